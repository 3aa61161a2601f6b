// Device servers of soak over the fake driver: results come back, damage is seen, and a process that dies is replaced.
#include "soak/device_server.h"
#include "soak/problem_data.h"

#include "support/cuda/fake_cuda_use.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace nestor::soak {
namespace {

using nestor::testing::FakeCuda;
using nestor::testing::FakeLaunch;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = 37;

Nest twice() {
  using namespace samples;
  return NestBuilder("twice", {{"n", 64}})
      .tensor("x", TensorRole::input, {"n"})
      .tensor("y", TensorRole::output, {"n"})
      .statement("S[i] : 0 <= i < n", "y[i]", {"x[i]"}, read(0) * number(2))
      .build();
}

/// y = 2 x for n elements, by a kernel of the fake driver.
Generated generated(const std::string& kernel) {
  LaunchRecipe recipe;
  recipe.target = "nvptx";
  recipe.arguments = {{"x", ElementType::f32, false, {IntExpr::variable("n")}},
                      {"y", ElementType::f32, true, {IntExpr::variable("n")}}};
  recipe.sizes = {"n"};
  LaunchNode node;
  node.symbol = kernel;
  for (int k = 0; k < 2; ++k) node.params.push_back({.kind = KernelParam::Kind::pointer, .index = k, .dim = 0, .name = ""});
  node.params.push_back({.kind = KernelParam::Kind::size, .index = 0, .dim = 0, .name = "n"});
  recipe.launches = {node};
  return {{"sm_90", nestor::testing::fake_ptx(kernel, 3), recipe}, "", "", ""};
}

float* at(const FakeLaunch& launch, std::size_t k) { return reinterpret_cast<float*>(launch.params[k]); }

void scale(const FakeLaunch& launch, float factor) {
  for (std::uint64_t k = 0; k < launch.params[2]; ++k) at(launch, 1)[k] = factor * at(launch, 0)[k];
}

class SoakDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeCuda& fake = nestor::testing::use_fake_cuda();
    fake.kernels["right"] = [](const FakeLaunch& launch) { scale(launch, 2); };
    fake.kernels["wrong"] = [](const FakeLaunch& launch) { scale(launch, 2.5); };
    fake.kernels["beyond"] = [](const FakeLaunch& launch) {
      scale(launch, 2);
      at(launch, 1)[kCount] = 1;
    };
    fake.kernels["input"] = [](const FakeLaunch& launch) {
      scale(launch, 2);
      at(launch, 0)[3] = 99;
    };
    fake.kernels["dies"] = [](const FakeLaunch&) { std::abort(); };
    servers_.emplace(0, 2);
    data_ = make_problem_data(twice(), {{{"n", kCount}}, "ordinary", 3}, 1e6);
  }
  /// What the run did wrong, or how its result differs.
  std::string found(const std::string& kernel) const {
    const auto loaded = load_on_device(generated(kernel), servers_->address());
    HostTensors results;
    const std::string problem = loaded->run({{"n", kCount}}, data_, results);
    return problem.empty() ? difference(twice(), data_, results) : problem;
  }

  std::optional<DeviceServers> servers_;
  ProblemData data_;
};

TEST_F(SoakDevice, ResultsComeBackAndAreCompared) {
  EXPECT_EQ(found("right"), "");
  EXPECT_THAT(found("wrong"), HasSubstr("y["));
}

TEST_F(SoakDevice, WhatIsTouchedOutsideOfOutputsIsFound) {
  EXPECT_EQ(found("beyond"), "memory around y was written");
  EXPECT_EQ(found("input"), "x was changed, which is an input");
}

TEST_F(SoakDevice, AProcessThatDiesIsReplaced) {
  for (int k = 0; k < 3; ++k) EXPECT_THROW(found("dies"), DeviceError);
  EXPECT_EQ(found("right"), "");
}

TEST_F(SoakDevice, CodeThatTheDriverRefusesIsTheDevicesFailure) {
  Generated bad = generated("right");
  bad.kernel.code = "no PTX";
  EXPECT_THROW(load_on_device(bad, servers_->address()), DeviceError);
  EXPECT_EQ(found("right"), "");
}

}  // namespace
}  // namespace nestor::soak
