// Products beside recurrences and beside sums down their columns: what has no place in a tile has kernels of its own, and what a kernel writes
// to memory no other thread of it reads.
#include "codegen/gpu/kernel_plans.h"
#include "poly/schedule/steps/step_table.h"
#include "support/error.h"
#include "support/nests/operand_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nestor::testing {
namespace {

using namespace samples;
using ::testing::HasSubstr;

constexpr ElementType kHalf = ElementType::f16;

/// The kernels on tensor cores of the first guesses, which are right at ragged sizes; `products`: how many there are.
void expect_right(const Nest& nest, const Sizes& ragged, std::size_t products, std::size_t guesses_tried = 2,
                  double tolerance = 4e-3) {
  SpaceGuesses guesses(nest, {});
  for (std::size_t k = 0; k < guesses_tried; ++k) {
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    std::size_t found = 0;
    for (const PlannedKernel& kernel : compiled.plans->kernels) found += kernel.tensor ? 1 : 0;
    EXPECT_EQ(found, products) << k;
    Sizes sizes = complete_sizes(nest, ragged);
    for (const auto& [name, value] : compiled.kernel.recipe.fixed_sizes) sizes.erase(name);
    EXPECT_EQ(run_emulated(compiled, guesses.meaning(), sizes, {.tolerance = tolerance}, {1}), "") << k;
  }
}

/// h[b, t, n] = a h[b, t - 1, n] + c with a and c from products of x[b, t, .], and what h starts from at t = 0.
Nest gated_scan() {
  const std::string place = "0 <= b < B and 0 <= t < T and 0 <= n < N", later = "0 <= b < B and 0 <= t < T - 1 and 0 <= n < N";
  NestBuilder builder("gated_scan", {{"B", 8}, {"T", 512}, {"N", 512}, {"K", 512}});
  builder.tensor("x", TensorRole::input, {"B", "T", "K"}, kHalf);
  for (const std::string each : {"a", "c"}) {
    builder.tensor("w" + each, TensorRole::input, {"N", "K"}, kHalf)
        .tensor("sum_" + each, TensorRole::temporary, {"B", "T", "N"})
        .tensor(each, TensorRole::temporary, {"B", "T", "N"})
        .statement("init_" + each + "[b, t, n] : " + place, "sum_" + each + "[b, t, n]", {}, number(0))
        .statement("add_" + each + "[b, t, n, k] : " + place + " and 0 <= k < K", "sum_" + each + "[b, t, n]",
                   {"x[b, t, k]", "w" + each + "[n, k]"}, product_of_halves(), ReductionOp::add)
        .statement(each + "[b, t, n] : " + place, each + "[b, t, n]", {"sum_" + each + "[b, t, n]"}, read(0) * number(0.01));
  }
  return builder.tensor("h", TensorRole::output, {"B", "T", "N"})
      .statement("first[b, t, n] : t = 0 and " + place, "h[b, t, n]", {"a[b, t, n]", "c[b, t, n]"}, read(0) * read(1))
      .statement("next[b, t, n] : " + later, "h[b, t + 1, n]", {"a[b, t + 1, n]", "h[b, t, n]", "c[b, t + 1, n]"},
                 read(0) * read(1) + read(2))
      .build();
}

TEST(ProductsAndSteps, AScanStandsBehindItsProducts) {
  expect_right(gated_scan(), {{"B", 2}, {"T", 7}, {"N", 72}, {"K", 80}}, 1);
  SpaceGuesses guesses(gated_scan(), {});
  const Candidate first = guesses.space->candidate(guesses.points.front());
  const auto cuts = [](const Step& step) { return step.name == "gpu_blocks" && step.args.at(0) == "next.n_o"; };
  EXPECT_TRUE(std::any_of(first.steps.begin(), first.steps.end(), cuts))
      << "eight blocks would go through the steps of all channels";
}

/// u[z, g] = sums of products in chunk g; s[z, g + 1] = d s[z, g] + u[z, g]; out = products with s.
Nest chunked_states() {
  const std::string state = "0 <= z < Z and 0 <= g < G and 0 <= k < 64 and 0 <= n < 64";
  const std::string result = "0 <= z < Z and 0 <= g < G and 0 <= i < 64 and 0 <= n < 64";
  return NestBuilder("chunked_states", {{"Z", 64}, {"G", 32}})
      .tensor("x", TensorRole::input, {"Z", "G", "64", "64"}, kHalf)
      .tensor("y", TensorRole::input, {"Z", "G", "64", "64"}, kHalf)
      .tensor("q", TensorRole::input, {"Z", "G", "64", "64"}, kHalf)
      .tensor("u", TensorRole::temporary, {"Z", "G", "64", "64"})
      .tensor("s", TensorRole::temporary, {"Z", "G", "64", "64"})
      .tensor("r", TensorRole::temporary, {"Z", "G", "64", "64"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"Z", "G", "64", "64"})
      .tensor("out", TensorRole::output, {"Z", "G", "64", "64"}, kHalf)
      .statement("u_init[z, g, k, n] : " + state, "u[z, g, k, n]", {}, number(0))
      .statement("u_add[z, g, k, n, j] : " + state + " and 0 <= j < 64", "u[z, g, k, n]", {"x[z, g, j, k]", "y[z, g, j, n]"},
                 product_of_halves(), ReductionOp::add)
      .statement("first[z, g, k, n] : g = 0 and " + state, "s[z, g, k, n]", {}, number(0))
      .statement("next[z, g, k, n] : g < G - 1 and " + state, "s[z, g + 1, k, n]", {"s[z, g, k, n]", "u[z, g, k, n]"},
                 read(0) * number(0.5) + read(1))
      .statement("r[z, g, k, n] : " + state, "r[z, g, k, n]", {"s[z, g, k, n]"}, ScalarExpr::cast(kHalf, read(0)))
      .statement("init[z, g, i, n] : " + result, "sum[z, g, i, n]", {}, number(0))
      .statement("add[z, g, i, n, k] : " + result + " and 0 <= k < 64", "sum[z, g, i, n]", {"q[z, g, i, k]", "r[z, g, k, n]"},
                 product_of_halves(), ReductionOp::add)
      .statement("out[z, g, i, n] : " + result, "out[z, g, i, n]", {"sum[z, g, i, n]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

TEST(ProductsAndSteps, StatesBetweenChunksAreNoPartOfProducts) { expect_right(chunked_states(), {{"Z", 2}, {"G", 3}}, 2); }

/// p[j] = sum over i of (l[i] = j ? f(near[i, j]) : 0) with near = x y^T.
Nest chosen_sums() {
  const std::string pair = "0 <= i < M and 0 <= j < N";
  const ScalarExpr own = ScalarExpr::make(
      ScalarOp::eq, {read(1, ElementType::i32),
                     ScalarExpr::make(ScalarOp::mul, {read(2, ElementType::i32), ScalarExpr::constant(1, ElementType::i32)})});
  return NestBuilder("chosen_sums", {{"M", 2048}, {"N", 2048}, {"K", 512}})
      .tensor("x", TensorRole::input, {"M", "K"}, kHalf)
      .tensor("y", TensorRole::input, {"N", "K"}, kHalf)
      .tensor("l", TensorRole::input, {"M"}, ElementType::i32)
      .tensor("m", TensorRole::input, {"N"}, ElementType::i32)
      .tensor("near", TensorRole::temporary, {"M", "N"})
      .tensor("p", TensorRole::output, {"N"})
      .statement("init[i, j] : " + pair, "near[i, j]", {}, number(0))
      .statement("near[i, j, k] : " + pair + " and 0 <= k < K", "near[i, j]", {"x[i, k]", "y[j, k]"}, product_of_halves(),
                 ReductionOp::add)
      .statement("p_init[j] : 0 <= j < N", "p[j]", {}, number(0))
      .statement("p[j, i] : " + pair, "p[j]", {"near[i, j]", "l[i]", "m[j]"},
                 ScalarExpr::make(ScalarOp::select, {own, read(0) * number(0.5), number(0)}), ReductionOp::add)
      .build();
}

TEST(ProductsAndSteps, SumsOfChosenElementsDownColumnsStayInTheProductsKernel) {
  expect_right(chosen_sums(), {{"M", 70}, {"N", 40}, {"K", 72}}, 1);
}

/// y = a b, then z[i, j] as `value` of y at `read` for points of `where`, in one kernel, and w = y once more in another.
std::string refusal(const std::string& where, const std::string& place, bool& right) {
  const std::string element = "0 <= i < M and 0 <= j < N";
  const Nest nest = NestBuilder("read_again", {{"M", 200}, {"N", 64}, {"K", 64}})
                        .tensor("a", TensorRole::input, {"M", "K"}, kHalf)
                        .tensor("b", TensorRole::input, {"N", "K"}, kHalf)
                        .tensor("sum", TensorRole::temporary, {"M", "N"})
                        .tensor("y", TensorRole::temporary, {"M", "N"})
                        .tensor("z", TensorRole::output, {"M", "N"})
                        .tensor("w", TensorRole::output, {"M", "N"})
                        .statement("sum_init[i, j] : " + element, "sum[i, j]", {}, number(0))
                        .statement("sum[i, j, k] : " + element + " and 0 <= k < K", "sum[i, j]", {"a[i, k]", "b[j, k]"},
                                   product_of_halves(), ReductionOp::add)
                        .statement("y[i, j] : " + element, "y[i, j]", {"sum[i, j]"}, read(0))
                        .statement("z[i, j] : " + element + where, "z[i, j]", {"y" + place}, read(0) + number(1))
                        .statement("w[i, j] : " + element, "w[i, j]", {"y[M - 1 - i, j]"}, read(0))
                        .build();
  const std::vector<std::string> names{"sum_init", "sum", "y", "z"};
  std::vector<std::string> steps{"apply_rule reassociate"};
  for (const std::string& name : names) {
    steps.push_back(fmt::format("split({0}.i, 128, {0}.io, {0}.ii)", name));
    steps.push_back(fmt::format("split({0}.j, 64, {0}.jo, {0}.ji)", name));
    if (name == "sum") steps.emplace_back("split(sum.k, 32, sum.ko, sum.ki)");
    const bool sum = name == "sum";
    steps.push_back(
        fmt::format("reorder({0}.io, {0}.jo, {1}{0}.ii, {0}.ji{2})", name, sum ? "sum.ko, " : "", sum ? ", sum.ki" : ""));
  }
  for (std::size_t k = 0; k + 1 < names.size(); ++k) {
    for (const char* loop : {"io", "jo"})
      steps.push_back(fmt::format("fuse_with({}.{}, {}.{})", names[k], loop, names[k + 1], loop));
  }
  for (const char* step : {"gpu_blocks(z.io, z.jo)", "tensor_cores(z.io, 2, 2)", "gpu_blocks(w.i)", "gpu_threads(w.i, 64)"})
    steps.emplace_back(step);
  Schedule schedule{nest};
  try {
    for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
    const CompiledNvptx compiled = compile_nvptx(build_tile_program(schedule), {});
    right =
        run_emulated(compiled, build_tile_program(Schedule{nest}), {{"M", 141}, {"N", 64}, {"K", 72}}, {.tolerance = 4e-3}, {1})
            .empty();
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

TEST(ProductsAndSteps, MemoryThatAKernelWritesIsReadByTheThreadsThatWroteIt) {
  bool right = false;
  EXPECT_EQ(refusal("", "[i, j]", right), "");
  EXPECT_TRUE(right);
  const std::string others = "z reads y where other threads of the same kernel write it";
  EXPECT_THAT(refusal(" and i = 0", "[i, j]", right), HasSubstr(others));
  EXPECT_THAT(refusal(" and j = 3", "[i, j]", right), HasSubstr(others));
}

}  // namespace
}  // namespace nestor::testing
