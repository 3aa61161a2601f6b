// Which kernels can run on which device.
#include "support/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace nestor {
namespace {

using testing::HasSubstr;

TEST(Architecture, EveryX86CpuRunsBaselineKernels) {
  EXPECT_TRUE(can_run("x86-64:x86-64:", "host", ""));
  EXPECT_TRUE(can_run("x86-64:x86-64:+sse2,+cx8", "host", ""));
}

TEST(Architecture, FeaturesOfTheCpuAreAskedFor) {
  for (const auto& [feature, present] : {std::pair{"avx2", __builtin_cpu_supports("avx2")},
                                         {"fma", __builtin_cpu_supports("fma")},
                                         {"f16c", __builtin_cpu_supports("f16c")},
                                         {"avx512f", __builtin_cpu_supports("avx512f")}}) {
    std::string why;
    const std::string wanted = std::string("x86-64:some:+sse2,+") + feature;
    EXPECT_EQ(can_run(wanted, "host", "", &why), present != 0) << feature;
    if (present == 0) {
      EXPECT_THAT(why, HasSubstr(feature));
    }
    EXPECT_TRUE(can_run(std::string("x86-64:some:-") + feature, "host", "")) << "a feature that the kernel does without";
  }
}

TEST(Architecture, AFeatureThatThisCpuLacksIsNamed) {
  if (__builtin_cpu_supports("amx-tile")) GTEST_SKIP() << "this CPU has them all";
  std::string why;
  EXPECT_FALSE(can_run("x86-64:sapphirerapids:+avx2,+amx-tile", "host", "", &why));
  EXPECT_THAT(why, HasSubstr("amx-tile"));
}

TEST(Architecture, OtherKindsOfCodeDoNotRunOnTheHost) {
  std::string why;
  EXPECT_FALSE(can_run("sm_90", "host", "znver3", &why));
  EXPECT_THAT(why, HasSubstr("sm_90"));
  EXPECT_FALSE(can_run("aarch64:neoverse-v1:", "host", "znver3"));
  EXPECT_FALSE(can_run("", "host", "znver3"));
}

TEST(Architecture, PtxRunsOnItsGpuAndNewerOnes) {
  EXPECT_TRUE(can_run("sm_80", "cuda", "sm_80"));
  EXPECT_TRUE(can_run("sm_80", "cuda", "sm_90"));
  EXPECT_TRUE(can_run("sm_90", "cuda", "sm_100"));
  EXPECT_FALSE(can_run("sm_90", "cuda", "sm_80"));
  EXPECT_TRUE(can_run("sm_90a", "cuda", "sm_90"));
  EXPECT_FALSE(can_run("sm_90a", "cuda", "sm_100"));
  EXPECT_FALSE(can_run("x86-64:znver3:", "cuda", "sm_90"));
  EXPECT_FALSE(can_run("sm_", "cuda", "sm_90"));
  EXPECT_FALSE(can_run("sm_90", "quantum", "q1"));
}

TEST(Architecture, TheCpusNameIsLlvmsName) {
  FILE* pipe = popen("llc-19 --version 2>/dev/null", "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) text += line.data();
  pclose(pipe);
  const std::size_t at = text.find("Host CPU: ");
  if (at == std::string::npos) GTEST_SKIP() << "no llc-19 to compare with";
  const std::string llvm = text.substr(at + 10, text.find('\n', at) - at - 10);
  const std::string ours = host_cpu_name();
  EXPECT_TRUE(ours == llvm || ours.starts_with("x86-64")) << ours << " instead of " << llvm;
}

}  // namespace
}  // namespace nestor
