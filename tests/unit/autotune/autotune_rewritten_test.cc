// Attention written otherwise has the guesses of attention: operands in f32, heads side by side in rows, weights by a logarithm,
// keys by their distance.
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;
using testing::SpaceGuesses;

const Sizes kSizes{{"H", 16}, {"N", 2048}};

ScalarExpr wide(int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::bf16)); }

struct Spelling {
  bool scaled = false, rows = false, logarithm = false;  ///< queries and keys in f32; heads in rows; weights exp(s - log(total))
  bool columns = false;                                  ///< results of all heads in a row, along one dim
  bool distances = false;                                ///< keys up to the query, by their distance from it
};

Nest attention(const Spelling& how) {
  const std::string seen = how.distances ? " and j <= i" : "", place = how.distances ? "i - j" : "j";
  const std::string scores = " : 0 <= h < H and 0 <= i < N and 0 <= j < N" + seen, row = " : 0 <= h < H and 0 <= i < N",
                    columns = how.columns ? " : 0 <= i < N and 0 <= d < 64 H" : row + " and 0 <= d < 64",
                    result = how.columns ? "[i, d]" : "[h, i, d]", head = how.columns ? "[floor(d / 64), i" : "[h, i",
                    operand = " : 0 <= h < H and 0 <= i < N and 0 <= e < 64";
  const auto element = [&](const std::string& tensor, const std::string& at, const std::string& dim) {
    return how.rows ? tensor + "[" + at + ", 64 h + " + dim + "]" : tensor + "[h, " + at + ", " + dim + "]";
  };
  const std::vector<std::string> shape =
      how.rows ? std::vector<std::string>{"N", "64 H"} : std::vector<std::string>{"H", "N", "64"};
  NestBuilder nest("spelling", {{"H", 2}, {"N", 5}});
  for (const char* input : {"q", "k", "v"}) nest.tensor(input, TensorRole::input, shape, ElementType::bf16);
  for (const char* scaled : {"left", "right"}) {
    if (how.scaled) nest.tensor(scaled, TensorRole::temporary, {"H", "N", "64"});
  }
  for (const char* of_row : {"top", "total", "log"}) nest.tensor(of_row, TensorRole::temporary, {"H", "N"});
  nest.tensor("s", TensorRole::temporary, {"H", "N", "N"}).tensor("p", TensorRole::temporary, {"H", "N", "N"});
  const auto results = how.columns ? std::vector<std::string>{"N", "64 H"} : std::vector<std::string>{"H", "N", "64"};
  nest.tensor("sum", TensorRole::temporary, results).tensor("out", TensorRole::output, results, ElementType::bf16);
  if (how.scaled) {
    nest.statement("left[h, i, e]" + operand, "left[h, i, e]", {element("q", "i", "e")}, wide(0) * number(0.3));
    nest.statement("right[h, i, e]" + operand, "right[h, i, e]", {element("k", "i", "e")}, wide(0) * number(0.7));
  }
  nest.statement("s_init[h, i, j]" + scores, "s[h, i, j]", {}, number(0));
  if (how.scaled) {
    nest.statement("s[h, i, j, e]" + scores + " and 0 <= e < 64", "s[h, i, j]", {"left[h, i, e]", "right[h, j, e]"},
                   read(0) * read(1), ReductionOp::add);
  } else {
    nest.statement("s[h, i, j, e]" + scores + " and 0 <= e < 64", "s[h, i, j]",
                   {element("q", "i", "e"), element("k", place, "e")}, wide(0) * wide(1), ReductionOp::add);
  }
  nest.statement("top_init[h, i]" + row, "top[h, i]", {}, number(-infinity()))
      .statement("top[h, i, j]" + scores, "top[h, i]", {"s[h, i, j]"}, read(0), ReductionOp::max)
      .statement("p[h, i, j]" + scores, "p[h, i, j]", {"s[h, i, j]", "top[h, i]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("total_init[h, i]" + row, "total[h, i]", {}, number(0))
      .statement("total[h, i, j]" + scores, "total[h, i]", {"p[h, i, j]"}, read(0), ReductionOp::add)
      .statement("sum_init" + result + columns, "sum" + result, {}, number(0));
  const std::string terms = (how.columns ? "sum[i, d, j]" : "sum[h, i, d, j]") + columns + " and 0 <= j < N" + seen,
                    value = how.columns ? "v[j, d]" : element("v", place, "d");
  if (how.logarithm) {
    nest.statement("log[h, i]" + row, "log[h, i]", {"total[h, i]"}, apply(ScalarOp::log, read(0)))
        .statement(terms, "sum[h, i, d]", {"s[h, i, j]", "top[h, i]", "log[h, i]", value},
                   apply(ScalarOp::exp, read(0) - read(1) - read(2)) * wide(3), ReductionOp::add)
        .statement("out[h, i, d]" + columns, "out[h, i, d]", {"sum[h, i, d]"}, ScalarExpr::cast(ElementType::bf16, read(0)));
  } else {
    nest.statement(terms, "sum" + result, {"p" + head + ", j]", value}, read(0) * wide(1), ReductionOp::add)
        .statement("out" + result + columns, "out" + result, {"sum" + result, "total" + head + "]"},
                   ScalarExpr::cast(ElementType::bf16, read(0) / read(1)));
  }
  Nest built = nest.build();
  if (!how.logarithm) std::erase_if(built.tensors, [](const Tensor& tensor) { return tensor.name == "log"; });
  return built;
}

/// Tensor plans of the first guess, and whether scores go through memory.
void expect_one_kernel(const Spelling& how) {
  const Nest nest = attention(how);
  validate(nest);
  SpaceGuesses guesses(nest, kSizes);
  const Candidate first = guesses.space->candidate(guesses.points.at(0));
  ASSERT_EQ(first.infeasible, "");
  EXPECT_EQ(std::count_if(first.steps.begin(), first.steps.end(), [](const Step& step) { return step.name == "tensor_cores"; }),
            1);
  const Nest& ordered = guesses.schedules.replay(first.steps).nest();
  for (const Statement& statement : ordered.statements) {
    if (!statement.reduction || statement.dims.size() < 4) continue;
    for (const Access& read : statement.reads)
      EXPECT_TRUE(statement.name != "s" || ordered.tensor(read.tensor).type == ElementType::bf16) << "scores of " << read.tensor;
  }
  guesses.program(0);
}

TEST(Rewritten, AttentionIsOneKernelOnTensorCores) { expect_one_kernel({}); }
TEST(Rewritten, OperandsInF32AreRounded) { expect_one_kernel({.scaled = true}); }
TEST(Rewritten, HeadsInRowsAreCopied) { expect_one_kernel({.rows = true}); }
TEST(Rewritten, HeadsInColumnsOfResultsAreADim) { expect_one_kernel({.rows = true, .columns = true}); }
TEST(Rewritten, HeadsInColumnsOfResultsAreComputedAsTheyAreDefined) {
  SpaceGuesses guesses(attention({.rows = true, .columns = true}), kSizes);
  ASSERT_TRUE(guesses.has_rule(0, "split_dims"));
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"H", 3}, {"N", 70}}, {.tolerance = 0.016}, {1}), "");
}
TEST(Rewritten, KeysByTheirDistanceArePlaces) {
  expect_one_kernel({.distances = true});
  SpaceGuesses guesses(attention({.distances = true}), kSizes);
  ASSERT_TRUE(guesses.has_rule(0, "unskew_dims"));
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"H", 2}, {"N", 150}}, {.tolerance = 0.016}, {1}), "");
}
TEST(Rewritten, WeightsByALogarithmAreThoseOfTheRow) { expect_one_kernel({.logarithm = true}); }

}  // namespace
}  // namespace nestor
