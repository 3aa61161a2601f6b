// `nestor devices` shows the full identity of every device, over the fake driver.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nestor::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kFake = "NESTOR_LIBCUDA=" NESTOR_FAKE_CUDA;

TEST(CliDevices, ShowsEveryGpu) {
  const Outcome outcome = run_nestor({"devices"}, "", kFake + " FAKE_CUDA_DEVICES=2");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("cuda:1 +sm_90 +132 multiprocessors +Fake H200"));
  EXPECT_THAT(outcome.out, HasSubstr("memory    141.0 GiB, 3.20 GHz x 6144 bit (4.92 TB/s), L2 60 MiB"));
  EXPECT_THAT(outcome.out, HasSubstr("228 KiB shared memory (227 KiB a block), 65536 registers, 2048 threads, clusters"));
  EXPECT_THAT(outcome.out, HasSubstr("driver    CUDA 12.4"));
  EXPECT_THAT(outcome.out, HasSubstr("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"));
}

TEST(CliDevices, AsJson) {
  const Outcome outcome = run_nestor({"devices", "--json"}, "", kFake + " FAKE_CUDA_DEVICES=1");
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["cuda"], "ok");
  ASSERT_EQ(json["devices"].size(), 2);
  EXPECT_EQ(json["devices"][0]["device"], "host");
  const auto& gpu = json["devices"][1];
  EXPECT_EQ(gpu["device"], "cuda:0");
  EXPECT_EQ(gpu["key"], "cuda/sm_90/132/Fake H200");
  EXPECT_EQ(gpu["details"]["l2_bytes"], 60 << 20);
  EXPECT_EQ(gpu["details"]["driver_cuda_version"], 12040);
  EXPECT_EQ(gpu["pci"], "0000:00:00.0");
}

}  // namespace
}  // namespace nestor::test
