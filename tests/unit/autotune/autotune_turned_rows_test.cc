// Products whose rows are normed and turned (queries with rotary positions), with as many heads or others: tiles in registers are read where
// they lie, and blocks have no conditions. First guesses have kernels on tensor cores for the products.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;
using testing::SpaceGuesses;

/// out[h, t, d] = r[h, t, d] + (d < 32 ? -r[h, t, d + 32] : r[h, t, d - 32]) of rows r = q / |q|, q[h, t, d] = sum over c of x[t, c] w[h, d, c];
/// with `others`, k[g, t, d] alike of other weights, and 2 u[g, t, d] of third ones.
Nest turned_rows(bool others) {
  const auto half = [](int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::f16)); };
  NestBuilder nest("turned_rows", {{"T", 70}, {"H", 4}, {"G", 2}, {"C", 128}});
  nest.tensor("x", TensorRole::input, {"T", "C"}, ElementType::f16);
  const auto product = [&](const std::string& q, const std::string& heads) {
    const std::string row = "0 <= h < " + heads + " and 0 <= t < T", element = row + " and 0 <= d < 64";
    nest.tensor("w" + q, TensorRole::input, {heads, "64", "C"}, ElementType::f16)
        .tensor(q, TensorRole::temporary, {heads, "T", "64"})
        .statement(q + "_init[h, t, d] : " + element, q + "[h, t, d]", {}, number(0))
        .statement(q + "[h, t, d, c] : " + element + " and 0 <= c < C", q + "[h, t, d]", {"x[t, c]", "w" + q + "[h, d, c]"},
                   half(0) * half(1), ReductionOp::add);
  };
  const auto turned = [&](const std::string& q, const std::string& heads) {
    const std::string row = "0 <= h < " + heads + " and 0 <= t < T", element = row + " and 0 <= d < 64", n = q + "_norm",
                      r = q + "_row", p = q + "_part", place = "[h, t, d]";
    nest.tensor(n, TensorRole::temporary, {heads, "T"})
        .tensor(r, TensorRole::temporary, {heads, "T", "64"})
        .tensor(p, TensorRole::temporary, {heads, "T", "64"})
        .tensor(q + "_out", TensorRole::output, {heads, "T", "64"}, ElementType::f16)
        .statement(n + "_init[h, t] : " + row, n + "[h, t]", {}, number(0))
        .statement(n + place + " : " + element, n + "[h, t]", {q + place}, read(0) * read(0), ReductionOp::add)
        .statement(r + place + " : " + element, r + place, {q + place, n + "[h, t]"}, read(0) * apply(ScalarOp::rsqrt, read(1)))
        .statement(p + "_low" + place + " : " + row + " and 0 <= d < 32", p + place, {r + "[h, t, d + 32]"}, number(0) - read(0))
        .statement(p + "_high" + place + " : " + row + " and 32 <= d < 64", p + place, {r + "[h, t, d - 32]"}, read(0))
        .statement(q + "_out" + place + " : " + element, q + "_out" + place, {r + place, p + place},
                   ScalarExpr::cast(ElementType::f16, read(0) + read(1)));
  };
  product("q", "H");
  if (others) product("k", "G");
  turned("q", "H");
  if (others) {
    turned("k", "G");
    product("u", "G");
    nest.tensor("u_out", TensorRole::output, {"G", "T", "64"}, ElementType::f16)
        .statement("u_out[h, t, d] : 0 <= h < G and 0 <= t < T and 0 <= d < 64", "u_out[h, t, d]", {"u[h, t, d]"},
                   ScalarExpr::cast(ElementType::f16, read(0) * number(2)));
  }
  return nest.build();
}

std::ptrdiff_t tensor_kernels(const TileProgram& program) {
  NvptxTarget target;
  target.sm = 90;
  const auto plans = plan_kernels(program, target);
  return std::count_if(plans->kernels.begin(), plans->kernels.end(),
                       [](const auto& kernel) { return kernel.tensor.has_value(); });
}

TEST(TurnedRows, HalvesOfARowThatChangePlacesLeaveTheProductAKernel) {
  SpaceGuesses guesses(turned_rows(false), {{"T", 4096}, {"H", 16}, {"C", 2048}});
  EXPECT_EQ(tensor_kernels(guesses.program(0)), 1);
}

TEST(TurnedRows, OtherNumbersOfHeadsHaveKernelsOfTheirOwn) {
  SpaceGuesses guesses(turned_rows(true), {{"T", 4096}, {"H", 16}, {"G", 4}, {"C", 2048}});
  EXPECT_GE(tensor_kernels(guesses.program(0)), 2) << "those with the same heads may share one";
}

}  // namespace
}  // namespace nestor
