// A GPU kernel that leaves a product of 16-bit matrices to plain lanes says so, and why.
#include "autotune/space/nest/products_on_lanes.h"

#include "api/operators.h"
#include "autotune/trial/trial_steps.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const DeviceIdentity& h200() {
  static const DeviceIdentity kDevice{"cuda", "NVIDIA H200", "sm_90", 132, "{}"};
  return kDevice;
}

const std::string kOnLanes = R"({"steps":[{"args":["out.i"],"name":"gpu_blocks"}]})";
const std::string kOnTensorCores = R"({"steps":[{"args":["out.i",2],"name":"tensor_cores"}]})";

std::string of_operator(const std::string& op, const std::string& variant, const std::string& steps, double median_ms = 0,
                        const DeviceIdentity& device = h200(), const std::string& refusal = "") {
  const Nest nest = load_operator(op, variant);
  return products_on_lanes(nest, complete_sizes(nest, {}), {steps, device, median_ms, refusal});
}

TEST(ProductsOnLanes, AreNamedWithTheirTimeAndAWayOut) {
  EXPECT_THAT(of_operator("matmul", "f16", kOnLanes, 0.1), StartsWith("product: 0.027 ms at least of 0.1; `nestor tune`"));
  EXPECT_THAT(of_operator("matmul", "bf16", kOnLanes, 0.1, h200(), "tiles of 7 columns"), HasSubstr("; tiles of 7 columns"));
  EXPECT_EQ(of_operator("matmul", "f16", kOnTensorCores, 0.1), "");
}

TEST(ProductsOnLanes, AreNoneWhereTheyDoNotMatter) {
  EXPECT_EQ(of_operator("matmul", "f16", kOnLanes, 100), "") << "a tenth of the time";
  EXPECT_EQ(of_operator("matmul", "f32", kOnLanes, 0.1), "") << "f32 is not rounded";
  EXPECT_EQ(of_operator("matvec", "f16", kOnLanes), "") << "a matrix once";
  EXPECT_EQ(of_operator("layernorm", "bf16", kOnLanes), "") << "no product";
  EXPECT_EQ(of_operator("matmul", "f16", kOnLanes, 0.1, {"host", "a CPU", "znver3", 2, "{}"}), "");
  EXPECT_EQ(of_operator("matmul", "f16", kOnLanes, 0.1, {"cuda", "an older one", "sm_75", 40, "{}"}), "");
}

/// out = tanh(a) tanh(b): neither operand is in memory in 16 bits.
Nest product_of_computed(ElementType second) {
  using namespace samples;
  const auto curved = [](ElementType type) {
    return ScalarExpr::make(ScalarOp::tanh, {ScalarExpr::cast(ElementType::f32, read(0, type))});
  };
  return NestBuilder("curved", {{"M", 1024}, {"N", 1024}, {"K", 1024}})
      .tensor("a", TensorRole::input, {"M", "K"}, ElementType::f16)
      .tensor("b", TensorRole::input, {"K", "N"}, second)
      .tensor("left", TensorRole::temporary, {"M", "K"})
      .tensor("right", TensorRole::temporary, {"K", "N"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("left[i, k] : 0 <= i < M and 0 <= k < K", "left[i, k]", {"a[i, k]"}, curved(ElementType::f16))
      .statement("right[k, j] : 0 <= k < K and 0 <= j < N", "right[k, j]", {"b[k, j]"}, curved(second))
      .statement("out_init[i, j] : 0 <= i < M and 0 <= j < N", "out[i, j]", {}, number(0))
      .statement("out[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K", "out[i, j]", {"left[i, k]", "right[k, j]"},
                 read(0) * read(1), ReductionOp::add)
      .build();
}

TEST(ProductsOnLanes, ComputedOperandsOfNoOneTypeAreTheReason) {
  const auto reason = [](ElementType second) {
    const Nest nest = product_of_computed(second);
    return products_on_lanes(nest, complete_sizes(nest, {}), {kOnLanes, h200()});
  };
  EXPECT_THAT(reason(ElementType::bf16),
              HasSubstr("both of its operands, left and right, are computed: store them in 16 bits by kernels of their own"));
  EXPECT_THAT(reason(ElementType::f16), HasSubstr("`nestor tune` may find a schedule for tensor cores"));
}

}  // namespace
}  // namespace nestor
