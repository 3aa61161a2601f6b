// Sums to whose terms data says where they belong: gradients of a table, counts of words, messages to nodes.
#include "autotune/space/gpu/scattered_sums.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/nest_runs.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

ScalarExpr is_word(int word, int index) {
  return ScalarExpr::make(ScalarOp::eq, {read(word, ElementType::i32), ScalarExpr::index(index)});
}

ScalarExpr chosen(const ScalarExpr& condition, const ScalarExpr& value) {
  return ScalarExpr::make(ScalarOp::select, {condition, value, number(0)});
}

/// out[w, d] = sum over t of (word[t] = w ? x[t, d] : 0)
Nest table_gradient() {
  const std::string all = " : 0 <= w < W and 0 <= d < D";
  return NestBuilder("table_gradient", {{"T", 8192}, {"W", 50257}, {"D", 768}})
      .tensor("word", TensorRole::input, {"T"}, ElementType::i32)
      .tensor("x", TensorRole::input, {"T", "D"})
      .tensor("out", TensorRole::output, {"W", "D"})
      .statement("out_init[w, d]" + all, "out[w, d]", {}, number(0))
      .statement("out[w, d, t]" + all + " and 0 <= t < T", "out[w, d]", {"word[t]", "x[t, d]"}, chosen(is_word(0, 0), read(1)),
                 ReductionOp::add, {"w"})
      .build();
}

/// out[r, w] = how often row r says w.
Nest word_counts() {
  const std::string all = " : 0 <= r < R and 0 <= w < W";
  return NestBuilder("word_counts", {{"R", 64}, {"T", 512}, {"W", 32000}})
      .tensor("word", TensorRole::input, {"R", "T"}, ElementType::i32)
      .tensor("out", TensorRole::output, {"R", "W"})
      .statement("out_init[r, w]" + all, "out[r, w]", {}, number(0))
      .statement("out[r, w, t]" + all + " and 0 <= t < T", "out[r, w]", {"word[r, t]"}, chosen(is_word(0, 0), number(1)),
                 ReductionOp::add, {"w"})
      .build();
}

testing::NestInputs inputs_of(const Nest& nest, const Sizes& sizes, std::int64_t words) {
  testing::NestInputs inputs{sizes, {}, {}};
  for (const Tensor& tensor : nest.tensors) {
    if (tensor.role != TensorRole::input) continue;
    auto& values = inputs.tensors[tensor.name];
    const std::int64_t count = static_cast<std::int64_t>(testing::elements_of(shape_at(tensor, sizes)));
    // Words beyond both ends of the table, and some that come often.
    for (std::int64_t k = 0; k < count; ++k)
      values.push_back(tensor.type == ElementType::i32 ? static_cast<double>(k % 3 == 0 ? words / 2 : k * 37 % (words + 4) - 2)
                                                       : 0.25 * static_cast<double>(k % 23 - 11));
  }
  return inputs;
}

void expect_equal(const Nest& nest, const TileProgram& program, const testing::NestInputs& inputs) {
  const auto expected = testing::run_definition(nest, inputs), found = testing::run_emulated(program, inputs);
  for (std::size_t k = 0; k < expected.at("out").size(); ++k) ASSERT_NEAR(found.at("out")[k], expected.at("out")[k], 1e-5) << k;
}

TEST(ScatteredSums, ThreadsLookForTheTermsOfTheirRows) {
  const Nest nest = table_gradient();
  testing::SpaceGuesses guesses(nest, {});
  EXPECT_EQ(value_or(guesses.values(0), kScatterParameter, 0), 1);
  const TileProgram program = guesses.program(0);
  EXPECT_NE(describe_kernels(program, {.sm = 90}).find("each term to the"), std::string::npos);
  for (const std::int64_t terms : {1, 31, 77}) {
    for (const std::int64_t words : {5, 130}) {
      const Sizes sizes{{"T", terms}, {"W", words}, {"D", 37}};
      expect_equal(nest, program, inputs_of(nest, sizes, words));
    }
  }
}

TEST(ScatteredSums, AndOfTheirPlacesAlongMemory) {
  const Nest nest = word_counts();
  testing::SpaceGuesses guesses(nest, {});
  const TileProgram program = guesses.program(0);
  EXPECT_NE(describe_kernels(program, {.sm = 90}).find("each term to the"), std::string::npos);
  for (const std::int64_t words : {7, 300}) {
    const Sizes sizes{{"R", 3}, {"T", 45}, {"W", words}};
    expect_equal(nest, program, inputs_of(nest, sizes, words));
  }
}

TEST(ScatteredSums, WithoutTheStepEachTermIsComparedWithEachPlace) {
  testing::SpaceGuesses guesses(table_gradient(), {});
  const std::vector<Step> steps = guesses.space->candidate(guesses.points.at(0)).steps;
  std::vector<Step> others;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(others), [](const Step& step) { return step.name != "scatter"; });
  ASSERT_LT(others.size(), steps.size());
  const TileProgram program = build_tile_program(guesses.schedules.replay(others));
  EXPECT_EQ(describe_kernels(program, {.sm = 90}).find("each term to the"), std::string::npos);
  const Nest nest = table_gradient();
  expect_equal(nest, program, inputs_of(nest, {{"T", 9}, {"W", 20}, {"D", 5}}, 20));
}

TEST(ScatteredSums, AreFoundByAnEquationThatDataDecides) {
  EXPECT_EQ(scattered_dim(table_gradient().statement("out")), 0);
  EXPECT_EQ(scattered_dim(word_counts().statement("out")), 1);
  EXPECT_EQ(scattered_dim(table_gradient().statement("out_init")), -1);
  const auto with = [](const ScalarExpr& value, const std::string& index) {
    const std::string all = " : 0 <= w < 9 and 0 <= t < T";
    return NestBuilder("other", {{"T", 8}})
        .tensor("word", TensorRole::input, {"T"}, ElementType::i32)
        .tensor("out", TensorRole::output, {"9"})
        .statement("out_init[w] : 0 <= w < 9", "out[w]", {}, number(0))
        .statement("out[w, t]" + all, "out[w]", {"word[t]"}, value, ReductionOp::add, {index})
        .build()
        .statement("out");
  };
  EXPECT_EQ(scattered_dim(with(chosen(is_word(0, 0), number(1)), "w + 3")), 0);
  EXPECT_EQ(scattered_dim(with(chosen(is_word(0, 0), number(1)), "w + t")), -1) << "a place that follows terms";
  EXPECT_EQ(scattered_dim(with(chosen(is_word(0, 0), number(1)), "t")), -1) << "a look-up";
  EXPECT_EQ(scattered_dim(with(ScalarExpr::make(ScalarOp::select, {is_word(0, 0), number(1), number(2)}), "w")), -1)
      << "others count";
}

}  // namespace
}  // namespace nestor
