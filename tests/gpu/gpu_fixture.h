// What tests that need a GPU share: skipping where there is none.
#pragma once

#include "device/cuda.h"

#include <gmock/gmock.h>

#include <string>

namespace nestor::test {

/// Skips every test, with the reason, where there is no GPU, or one older than sm_80.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (CudaDriver::find(&why) == nullptr) GTEST_SKIP() << why;
    device = CudaDevice::open(0);
    if (device->identity().sm < 80) GTEST_SKIP() << device->identity().name << " is older than sm_80";
  }
  CudaDevicePtr device;
};

}  // namespace nestor::test
