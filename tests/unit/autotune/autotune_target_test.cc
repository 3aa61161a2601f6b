// What code is made for follows from a device's identity, also where the device is not here.
#include "autotune/target/target.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

DeviceIdentity gpu(const std::string& arch, const std::string& details) { return {"cuda", "GPU", arch, 80, details}; }

TEST(NvptxTargetOfADevice, HasItsArchitectureAndItsSharedMemory) {
  const NvptxTarget target = nvptx_target(gpu("sm_86", R"({"shared_bytes_per_block":101376})"));
  EXPECT_EQ(target.sm, 86);
  EXPECT_EQ(target.shared_limit, 101376);
  EXPECT_EQ(nvptx_target(gpu("sm_100", "{}")).sm, 90) << "the newest that code is made for";
}

TEST(NvptxTargetOfADevice, TakesDefaultsWhereTheIdentityDoesNotSay) {
  for (const char* details : {"{}", "[]", "", R"({"shared_bytes_per_block":"much"})", R"({"shared_bytes_per_block":-1})"})
    EXPECT_EQ(nvptx_target(gpu("sm_90", details)).shared_limit, NvptxTarget().shared_limit) << details;
  EXPECT_EQ(nvptx_target(gpu("sm_x", "{}")).sm, NvptxTarget().sm);
}

}  // namespace
}  // namespace nestor
