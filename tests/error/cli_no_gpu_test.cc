// Why there is no GPU: `nestor devices` says it, and goes on.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nestor::test {
namespace {

using ::testing::HasSubstr;

const std::string kFake = "NESTOR_LIBCUDA=" NESTOR_FAKE_CUDA;

std::string devices_with(const std::string& variables) {
  const Outcome outcome = run_nestor({"devices"}, "", variables);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("host"));
  return outcome.out;
}

TEST(CliNoGpu, NoDriver) {
  EXPECT_THAT(devices_with("NESTOR_LIBCUDA=/nowhere/libcuda.so.1"),
              HasSubstr("no CUDA device: the CUDA driver cannot be loaded: /nowhere/libcuda.so.1"));
}

TEST(CliNoGpu, ADriverThatIsTooOld) {
  EXPECT_THAT(devices_with(kFake + " FAKE_CUDA_VERSION=11040"),
              HasSubstr("no CUDA device: the CUDA driver is too old: it has CUDA 11.4, Nestor needs 12.0 or newer"));
  const Outcome outcome = run_nestor({"devices", "--json"}, "", kFake + " FAKE_CUDA_VERSION=11040");
  EXPECT_THAT(nlohmann::json::parse(outcome.out)["cuda"], HasSubstr("too old"));
}

TEST(CliNoGpu, NoDevice) {
  EXPECT_THAT(devices_with(kFake + " FAKE_CUDA_DEVICES=0"), HasSubstr("no CUDA device: the CUDA driver sees no device"));
  EXPECT_THAT(devices_with(kFake + " FAKE_CUDA_FAIL=cuInit=804"), HasSubstr("no CUDA device: cuInit failed: CUDA error 804"));
}

TEST(CliNoGpu, ADriverThatFailsLater) {
  const Outcome outcome = run_nestor({"devices"}, "", kFake + " FAKE_CUDA_FAIL=cuDeviceGetName=700");
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("cuDeviceGetName failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
}

}  // namespace
}  // namespace nestor::test
