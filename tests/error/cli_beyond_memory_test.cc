// Sizes that do not fit a machine or a GPU: refused at once, with what they need and what there is.
#include "integration/run_nestor.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// 15 TiB of input.
const std::vector<std::string> kHuge{"--rows", "4000000000", "--width", "1024"};
constexpr const char* kNeed = "layernorm (f32) at rows=4000000000, width=1024 needs ";

class BeyondMemory : public ::testing::Test {
 protected:
  Outcome run(std::vector<std::string> args, const std::string& prefix = "", const std::string& input = "") const {
    args.insert(args.end(), {"--db", folder_.file("t.db")});
    return run_nestor(args, input, prefix);
  }
  std::vector<std::string> huge(std::vector<std::string> args) const {
    args.insert(args.end(), kHuge.begin(), kHuge.end());
    return args;
  }
  TemporaryFolder folder_;
};

TEST_F(BeyondMemory, TuneRefusesBeforeItAllocates) {
  // With 8 GiB of address space the arguments could not be made either; the refusal comes first.
  for (const char* limits : {"", "prlimit --as=8589934592"}) {
    const Outcome outcome = run(huge({"tune", "layernorm", "--target", "host"}), limits);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(kNeed), HasSubstr(" of memory; "), HasSubstr("choose smaller sizes")));
    if (*limits != '\0') {
      EXPECT_THAT(outcome.err, HasSubstr("ulimit -v leaves"));
    }
  }
}

TEST_F(BeyondMemory, BenchVerifyAndMeasureRefuseToo) {
  write_whole(folder_.file("none.steps"), "# the original order\n");
  const Outcome bench = run(huge({"bench", "layernorm", "--target", "host", "--steps", folder_.file("none.steps")}));
  EXPECT_EQ(bench.code, 1);
  EXPECT_THAT(bench.err, HasSubstr(kNeed));
  const Outcome verify = run(huge({"verify", "layernorm", "--target", "host", "--steps", folder_.file("none.steps")}));
  EXPECT_EQ(verify.code, 1);
  EXPECT_THAT(verify.err, HasSubstr(kNeed));
  const Outcome measured = run(huge({"explore", "layernorm", "--target", "host"}), "", "measure\nsteps\n");
  EXPECT_EQ(measured.code, 1);
  EXPECT_THAT(measured.out, AllOf(HasSubstr(kNeed), HasSubstr("> steps")));  // the session goes on
}

TEST_F(BeyondMemory, AGpuRefusesWhatIsLargerThanItsMemory) {
  const std::string fake = "env NESTOR_LIBCUDA=" NESTOR_FAKE_CUDA;
  const Outcome outcome = run(huge({"tune", "layernorm", "--target", "cuda"}), fake);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(kNeed), HasSubstr("of memory on the GPU; cuda:0 has 141 GiB")));
}

TEST_F(BeyondMemory, AGpuThatOthersUseRefusesWhatDoesNotFitBesideThem) {
  const std::string fake = "env NESTOR_LIBCUDA=" NESTOR_FAKE_CUDA " FAKE_CUDA_MEMORY=1073741824 FAKE_CUDA_IN_USE=1073000000";
  const Outcome outcome = run({"tune", "layernorm", "--rows", "4096", "--width", "1024", "--target", "cuda"}, fake);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("of memory on the GPU"), HasSubstr("724 KiB free")));
}

}  // namespace
}  // namespace nestor::test
