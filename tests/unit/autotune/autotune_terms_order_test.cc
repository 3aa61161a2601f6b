// Sums of products over several dims whose operands do not lie as tensor cores take them: channels first, edges of zeros, filters turned round,
// several sums of one kernel. All have a place there, and compute what the nest defines.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_problem.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/proof/program_proof.h"
#include "support/nests/half_values.h"
#include "support/nests/operand_nests.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

using namespace samples;

const char* const kCell = "0 <= n < B and 0 <= f < F and 0 <= y < Y and 0 <= z < Y";
const char* const kTerms = " and 0 <= k < C and 0 <= s < 3 and 0 <= t < 3";

/// A convolution with zeros around the image: a value of the definition, or terms that are left out.
Nest with_edges(bool zeros, bool last) {
  const std::string inside = " and 0 <= y + s - 1 < Y and 0 <= z + t - 1 < Y",
                    image = last ? "x[n, y + s - 1, z + t - 1, k]" : "x[n, k, y + s - 1, z + t - 1]",
                    filter = last ? "w[f, s, t, k]" : "w[f, k, s, t]", cell = last ? "n, y, z, f" : "n, f, y, z",
                    place = "0 <= n < B and 0 <= y < Y and 0 <= z < Y";
  const std::vector<std::string> first{"B", "F", "Y", "Y"}, ends{"B", "Y", "Y", "F"};
  NestBuilder builder("with_edges", {{"B", 2}, {"C", 32}, {"F", 40}, {"Y", 9}});
  builder
      .tensor("x", TensorRole::input,
              last ? std::vector<std::string>{"B", "Y", "Y", "C"} : std::vector<std::string>{"B", "C", "Y", "Y"}, kHalf)
      .tensor("w", TensorRole::input,
              last ? std::vector<std::string>{"F", "3", "3", "C"} : std::vector<std::string>{"F", "C", "3", "3"}, kHalf)
      .tensor("sum", TensorRole::temporary, last ? ends : first)
      .tensor("out", TensorRole::output, last ? ends : first, kHalf)
      .statement("sum_init[" + cell + "] : " + kCell, "sum[" + cell + "]", {}, number(0));
  if (zeros) {
    builder.tensor("padded", TensorRole::temporary, {"B", "Y", "Y", "C", "3", "3"})
        .statement("padded0[n, y, z, k, s, t] : " + place + kTerms, "padded[n, y, z, k, s, t]", {}, number(0))
        .statement("padded1[n, y, z, k, s, t] : " + place + kTerms + inside, "padded[n, y, z, k, s, t]", {image}, wide(0))
        .statement("sum[" + cell + ", s, t, k] : " + kCell + kTerms, "sum[" + cell + "]", {"padded[n, y, z, k, s, t]", filter},
                   read(0) * wide(1), ReductionOp::add);
  } else {
    builder.statement("sum[" + cell + ", s, t, k] : " + kCell + kTerms + inside, "sum[" + cell + "]", {image, filter},
                      wide(0) * wide(1), ReductionOp::add);
  }
  return builder
      .statement("out[" + cell + "] : " + kCell, "out[" + cell + "]", {"sum[" + cell + "]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

/// The same with zeros and elements stored in 16 bits, for each tap, as a definition of patches has them.
Nest with_stored_patches() {
  Nest nest = with_edges(true, true);
  for (Tensor& tensor : nest.tensors) tensor.type = tensor.name == "padded" ? kHalf : tensor.type;
  for (Statement& statement : nest.statements) {
    if (statement.write.tensor == "padded") statement.value = ScalarExpr::cast(kHalf, statement.value);
    if (statement.name == "sum") statement.value = wide(0) * wide(1);
  }
  return nest;
}

/// A convolution with a sum for each of its taps, which leave out terms at the edges.
Nest with_sums_of_taps() {
  const std::string cell = "[n, y, z, f]", place = "0 <= n < B and 0 <= f < F and 0 <= y < Y and 0 <= z < Y";
  NestBuilder builder("with_sums_of_taps", {{"B", 2}, {"C", 32}, {"F", 40}, {"Y", 9}});
  builder.tensor("x", TensorRole::input, {"B", "Y", "Y", "C"}, kHalf)
      .tensor("w", TensorRole::input, {"F", "3", "3", "C"}, kHalf)
      .tensor("out", TensorRole::output, {"B", "Y", "Y", "F"}, kHalf);
  std::vector<std::string> sums;
  ScalarExpr added;
  for (int tap = 0; tap < 9; ++tap) {
    const std::string name = "sum" + std::to_string(tap), s = std::to_string(tap / 3), t = std::to_string(tap % 3),
                      at = "y + " + s + " - 1, z + " + t + " - 1";
    builder.tensor(name, TensorRole::temporary, {"B", "Y", "Y", "F"})
        .statement(name + "_init" + cell + " : " + place, name + cell, {}, number(0))
        .statement(
            name + "[n, y, z, f, k] : " + place + " and 0 <= k < C and 0 <= y + " + s + " - 1 < Y and 0 <= z + " + t + " - 1 < Y",
            name + cell, {"x[n, " + at + ", k]", "w[f, " + s + ", " + t + ", k]"}, wide(0) * wide(1), ReductionOp::add);
    sums.push_back(name + cell);
    added = tap == 0 ? read(0) : added + read(tap);
  }
  return builder.statement("out" + cell + " : " + place, "out" + cell, sums, ScalarExpr::cast(kHalf, added * number(0.1)))
      .build();
}

/// A convolution, and the largest of each four neighbours.
Nest convolution_and_pool() {
  const std::string cell = "0 <= n < B and 0 <= y < 2*Y and 0 <= z < 2*Y and 0 <= f < F",
                    pooled = "0 <= n < B and 0 <= y < Y and 0 <= z < Y and 0 <= f < F";
  return NestBuilder("convolution_and_pool", {{"B", 2}, {"C", 64}, {"F", 40}, {"Y", 9}})
      .tensor("x", TensorRole::input, {"B", "2*Y + 2", "2*Y + 2", "C"}, kHalf)
      .tensor("w", TensorRole::input, {"F", "3", "3", "C"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "2*Y", "2*Y", "F"})
      .tensor("top", TensorRole::temporary, {"B", "Y", "Y", "F"})
      .tensor("out", TensorRole::output, {"B", "Y", "Y", "F"}, kHalf)
      .statement("sum_init[n, y, z, f] : " + cell, "sum[n, y, z, f]", {}, number(0))
      .statement("sum[n, y, z, f, s, t, k] : " + cell + kTerms, "sum[n, y, z, f]", {"x[n, y + s, z + t, k]", "w[f, s, t, k]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("top_init[n, y, z, f] : " + pooled, "top[n, y, z, f]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[n, y, z, f, p, q] : " + pooled + " and 0 <= p < 2 and 0 <= q < 2", "top[n, y, z, f]",
                 {"sum[n, 2*y + p, 2*z + q, f]"}, read(0), ReductionOp::max)
      .statement("out[n, y, z, f] : " + pooled, "out[n, y, z, f]", {"top[n, y, z, f]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

/// The gradient of a convolution's image: filters turned round, and the sum over filters outermost.
Nest image_gradient() {
  const std::string cell = "0 <= n < B and 0 <= y < Y + 2 and 0 <= z < Y + 2 and 0 <= k < C";
  return NestBuilder("image_gradient", {{"B", 2}, {"C", 40}, {"F", 32}, {"Y", 9}})
      .tensor("g", TensorRole::input, {"B", "Y", "Y", "F"}, kHalf)
      .tensor("w", TensorRole::input, {"F", "3", "3", "C"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "Y + 2", "Y + 2", "C"})
      .tensor("out", TensorRole::output, {"B", "Y + 2", "Y + 2", "C"}, kHalf)
      .statement("sum_init[n, y, z, k] : " + cell, "sum[n, y, z, k]", {}, number(0))
      .statement("sum[n, y, z, k, f, s, t] : " + cell +
                     " and 0 <= f < F and 0 <= s < 3 and 0 <= t < 3 and 0 <= y - s < Y and 0 <= z - t < Y",
                 "sum[n, y, z, k]", {"g[n, y - s, z - t, f]", "w[f, s, t, k]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, y, z, k] : " + cell, "out[n, y, z, k]", {"sum[n, y, z, k]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

/// The gradient of a convolution's filters: few results, each a sum over all places of all images.
Nest filter_gradient() {
  const std::string cell = "0 <= f < F and 0 <= s < 3 and 0 <= t < 2 and 0 <= k < C";
  return NestBuilder("filter_gradient", {{"B", 2}, {"C", 40}, {"F", 32}, {"Y", 9}})
      .tensor("g", TensorRole::input, {"B", "Y", "Y", "F"}, kHalf)
      .tensor("x", TensorRole::input, {"B", "Y + 2", "Y + 1", "C"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"F", "3", "2", "C"})
      .tensor("out", TensorRole::output, {"F", "3", "2", "C"})
      .statement("sum_init[f, s, t, k] : " + cell, "sum[f, s, t, k]", {}, number(0))
      .statement("sum[f, s, t, k, n, y, z] : " + cell + " and 0 <= n < B and 0 <= y < Y and 0 <= z < Y", "sum[f, s, t, k]",
                 {"g[n, y, z, f]", "x[n, y + s, z + t, k]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[f, s, t, k] : " + cell, "out[f, s, t, k]", {"sum[f, s, t, k]"}, read(0) * number(0.1))
      .build();
}

/// The same with channels first: filters shift the terms along memory.
Nest filter_gradient_of_channels_first() {
  const std::string cell = "0 <= f < F and 0 <= k < C and 0 <= s < 3 and 0 <= t < 2";
  return NestBuilder("filter_gradient", {{"B", 2}, {"C", 40}, {"F", 32}, {"Y", 9}})
      .tensor("g", TensorRole::input, {"B", "F", "Y", "24"}, kHalf)
      .tensor("x", TensorRole::input, {"B", "C", "Y + 2", "32"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"F", "C", "3", "2"})
      .tensor("out", TensorRole::output, {"F", "C", "3", "2"})
      .statement("sum_init[f, k, s, t] : " + cell, "sum[f, k, s, t]", {}, number(0))
      .statement("sum[f, k, s, t, n, y, z] : " + cell + " and 0 <= n < B and 0 <= y < Y and 0 <= z < 24", "sum[f, k, s, t]",
                 {"g[n, f, y, z]", "x[n, k, y + s, z + t]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[f, k, s, t] : " + cell, "out[f, k, s, t]", {"sum[f, k, s, t]"}, read(0) * number(0.1))
      .build();
}

/// Two convolutions of one image, multiplied.
Nest two_gates() {
  const std::string cell = "0 <= n < B and 0 <= y < Y and 0 <= z < Y and 0 <= f < F",
                    terms = " and 0 <= s < 3 and 0 <= t < 2 and 0 <= k < C";
  NestBuilder builder("two_gates", {{"B", 2}, {"C", 72}, {"F", 40}, {"Y", 9}});
  builder.tensor("x", TensorRole::input, {"B", "Y + 2", "Y + 1", "C"}, kHalf)
      .tensor("w", TensorRole::input, {"2", "F", "3", "2", "C"}, kHalf);
  for (const std::string gate : {"0", "1"}) {
    const std::string sum = "sum" + gate;
    builder.tensor(sum, TensorRole::temporary, {"B", "Y", "Y", "F"})
        .statement(sum + "_init[n, y, z, f] : " + cell, sum + "[n, y, z, f]", {}, number(0))
        .statement(sum + "[n, y, z, f, s, t, k] : " + cell + terms, sum + "[n, y, z, f]",
                   {"x[n, y + s, z + t, k]", "w[" + gate + ", f, s, t, k]"}, wide(0) * wide(1), ReductionOp::add);
  }
  return builder.tensor("out", TensorRole::output, {"B", "Y", "Y", "F"}, kHalf)
      .statement("out[n, y, z, f] : " + cell, "out[n, y, z, f]", {"sum0[n, y, z, f]", "sum1[n, y, z, f]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.1) + read(1)))
      .build();
}

/// Four neighbours as one row of 4 x 48 terms: a computed operand of six indices.
Nest merged_patches() {
  const std::string place = "0 <= n < B and 0 <= y < Y and 0 <= z < Y", terms = " and 0 <= p < 2 and 0 <= q < 2 and 0 <= k < 48",
                    cell = place + " and 0 <= f < F";
  return NestBuilder("merged_patches", {{"B", 2}, {"F", 40}, {"Y", 9}})
      .tensor("x", TensorRole::input, {"B", "2*Y", "2*Y", "48"}, kHalf)
      .tensor("gain", TensorRole::input, {"2", "2", "48"})
      .tensor("w", TensorRole::input, {"F", "2", "2", "48"}, kHalf)
      .tensor("scaled", TensorRole::temporary, {"B", "Y", "Y", "2", "2", "48"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "Y", "Y", "F"})
      .tensor("out", TensorRole::output, {"B", "Y", "Y", "F"}, kHalf)
      .statement("scaled[n, y, z, p, q, k] : " + place + terms, "scaled[n, y, z, p, q, k]",
                 {"x[n, 2*y + p, 2*z + q, k]", "gain[p, q, k]"}, ScalarExpr::cast(kHalf, wide(0) * read(1)))
      .statement("sum_init[n, y, z, f] : " + cell, "sum[n, y, z, f]", {}, number(0))
      .statement("sum[n, y, z, f, p, q, k] : " + cell + terms, "sum[n, y, z, f]", {"scaled[n, y, z, p, q, k]", "w[f, p, q, k]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, y, z, f] : " + cell, "out[n, y, z, f]", {"sum[n, y, z, f]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

/// A network's first layer: three colours, 7 x 7 places, every second one.
Nest colours() {
  const std::string cell = "0 <= n < B and 0 <= f < F and 0 <= y < Y and 0 <= z < Y";
  return NestBuilder("colours", {{"B", 2}, {"F", 64}, {"Y", 9}})
      .tensor("x", TensorRole::input, {"B", "3", "2*Y + 5", "2*Y + 5"}, kHalf)
      .tensor("w", TensorRole::input, {"F", "3", "7", "7"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "F", "Y", "Y"})
      .tensor("out", TensorRole::output, {"B", "F", "Y", "Y"}, kHalf)
      .statement("sum_init[n, f, y, z] : " + cell, "sum[n, f, y, z]", {}, number(0))
      .statement("sum[n, f, y, z, k, s, t] : " + cell + " and 0 <= k < 3 and 0 <= s < 7 and 0 <= t < 7", "sum[n, f, y, z]",
                 {"x[n, k, 2*y + s, 2*z + t]", "w[f, k, s, t]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, f, y, z] : " + cell, "out[n, f, y, z]", {"sum[n, f, y, z]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

/// Signals of several channels under filters as long as a tile has terms: they slide along memory, so that rows of tiles would overlap.
Nest long_filters() {
  const std::string cell = "0 <= n < B and 0 <= f < F and 0 <= y < 16*Y";
  return NestBuilder("long_filters", {{"B", 2}, {"F", 40}, {"Y", 9}})
      .tensor("x", TensorRole::input, {"B", "24", "16*Y + 31"}, kHalf)
      .tensor("w", TensorRole::input, {"F", "24", "32"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "F", "16*Y"})
      .tensor("out", TensorRole::output, {"B", "F", "16*Y"}, kHalf)
      .statement("sum_init[n, f, y] : " + cell, "sum[n, f, y]", {}, number(0))
      .statement("sum[n, f, y, k, t] : " + cell + " and 0 <= k < 24 and 0 <= t < 32", "sum[n, f, y]",
                 {"x[n, k, y + t]", "w[f, k, t]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, f, y] : " + cell, "out[n, f, y]", {"sum[n, f, y]"}, ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

struct OrderCase {
  const char* name;
  Nest nest;
  const char* rule;    ///< that the first guess has, beside the usual ones
  bool parts = false;  ///< its sums are cut into parts along an outer dim
};

class TermsOrder : public ::testing::TestWithParam<OrderCase> {};
INSTANTIATE_TEST_SUITE_P(
    Nests, TermsOrder,
    ::testing::Values(
        OrderCase{"channels_first", channels_first(), "terms_last"},
        OrderCase{"channels_first_in_strides", channels_first(2), "terms_last"},
        OrderCase{"zeros_around_channels_first", with_edges(true, false), "terms_last"},
        OrderCase{"edges_of_channels_first", with_edges(false, false), "terms_last"},
        OrderCase{"zeros_around_channels_last", with_edges(true, true), "skip_zeros"},
        OrderCase{"zeros_stored_for_each_tap", with_stored_patches(), "skip_zeros"},
        OrderCase{"sums_of_taps", with_sums_of_taps(), "reroll_sums"}, OrderCase{"long_filters", long_filters(), "terms_last"},
        OrderCase{"image_gradient", image_gradient(), "terms_last"}, OrderCase{"filter_gradient", filter_gradient(), "", true},
        OrderCase{"gradient_of_channels_first", filter_gradient_of_channels_first(), "columns_last"},
        OrderCase{"two_gates", two_gates(), ""}, OrderCase{"convolution_and_pool", convolution_and_pool(), ""},
        OrderCase{"merged_patches", merged_patches(), "gather_terms"}, OrderCase{"colours", colours(), "gather_terms"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(TermsOrder, TheFirstGuessHasTensorCoresAndIsRight) {
  const OrderCase& test = GetParam();
  const Sizes sizes = complete_sizes(test.nest, {{"B", 16}, {"F", 64}, {"Y", 10}});
  const std::set<std::string> known = sizes_known_to_products(test.nest, sizes);
  const TrialProblem problem = trial_problem(test.nest, sizes, false, known);
  BaseSchedules schedules(problem.start);
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
  for (const Point& point : space->defaults()) {
    const Candidate candidate = space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    const NamedValues values = named_values(*space, point);
    EXPECT_TRUE(*test.rule == 0 || value_or(values, std::string("rule.") + test.rule, 0) == 1)
        << ::testing::PrintToString(values);
    EXPECT_EQ(value_or(values, "split_axis", -1) >= 0, test.parts);
    const Schedule schedule = schedules.replay(candidate.steps);
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    const CompiledNvptx compiled = compile_nvptx(program, {});
    EXPECT_TRUE(std::any_of(compiled.plans->kernels.begin(), compiled.plans->kernels.end(),
                            [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }));
    Sizes ragged = complete_sizes(test.nest, {{"B", 3}, {"F", 48}, {"Y", 7}});
    for (const auto& [name, value] : compiled.kernel.recipe.fixed_sizes) ragged.erase(name);
    EXPECT_EQ(testing::run_emulated(compiled, build_tile_program(schedules.base({})), ragged, {.tolerance = 4e-3}, {1}), "");
    return;
  }
  FAIL() << "no guess fits";
}

}  // namespace
}  // namespace nestor
