// Rule gather_sums: each element takes the terms that are scattered over it, whatever the strides are.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"
#include "support/nests/scattered_frames.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

bool matches(const Nest& nest) { return !rule("gather_sums").find(nest).empty(); }

Nest gathered(const Nest& nest) {
  Nest result = rule("gather_sums").apply(nest, {"sum"}).nest;
  validate(result);
  EXPECT_FALSE(matches(result)) << "once";
  return result;
}

TEST(GatherSums, OverlappingFramesAreAddedUpElementByElement) {
  const std::vector<Frames> all{{.hop = 1, .window = 3},
                                {.hop = 2, .window = 3},
                                {.hop = 4, .window = 10},
                                {.hop = 5, .window = 6},
                                {.hop = 3, .window = 12},
                                {.mask = " and t <= a"},
                                {.start = 2},
                                {.place = "4a + t + 3"},
                                {.op = ReductionOp::max, .start = -3}};
  for (const Frames& frames : all) {
    const Nest before = scattered(frames), after = gathered(before);
    ASSERT_TRUE(matches(before)) << frames.hop << " " << frames.window;
    const Statement& sum = after.statement("sum");
    EXPECT_EQ(functions_of(sum.write.relation).size(), 1U);
    EXPECT_EQ(sum.dims.size(), 2U);
    for (const std::int64_t count : {1, 2, 7}) EXPECT_EQ(differences(before, after, {{"N", count}}, 10), 0) << frames.hop;
  }
}

TEST(GatherSums, ProductsOfPolynomialsAndPicturesAreGatheredAlongEachIndex) {
  const Nest polynomials =
      NestBuilder("polynomials", {{"N", 6}, {"M", 40}})
          .tensor("x", TensorRole::input, {"N"})
          .tensor("y", TensorRole::input, {"M"})
          .tensor("out", TensorRole::output, {"N + M"})
          .statement("start[k] : 0 <= k < N + M", "out[k]", {}, number(0))
          .statement("sum[i, j] : 0 <= i < N and 0 <= j < M", "out[i + j]", {"x[i]", "y[j]"}, read(0) * read(1), ReductionOp::add)
          .build();
  const Nest after = gathered(polynomials);
  EXPECT_EQ(after.statement("sum").dims.back(), "i") << "the shorter one stays";
  for (const Sizes& sizes : {Sizes{{"N", 3}, {"M", 5}}, Sizes{{"N", 5}, {"M", 2}}, Sizes{{"N", 1}, {"M", 1}}})
    EXPECT_EQ(differences(polynomials, after, sizes, 20), 0);
  const Nest picture =
      NestBuilder("picture", {{"N", 6}, {"M", 4}})
          .tensor("x", TensorRole::input, {"2", "N", "M", "3"})
          .tensor("out", TensorRole::output, {"2", "2 N + 1", "3 M + 1"})
          .statement("start[b, y, z] : 0 <= b < 2 and 0 <= y <= 2 N and 0 <= z <= 3 M", "out[b, y, z]", {}, number(0))
          .statement(
              "sum[b, i, j, s, t, c] : 0 <= b < 2 and 0 <= i < N and 0 <= j < M and 0 <= s < 3 and 0 <= t < 4 "
              "and 0 <= c < 3",
              "out[b, 2i + s, 3j + t]", {"x[b, i, j, c]"}, read(0), ReductionOp::add)
          .build();
  const Nest gathered_picture = gathered(picture);
  EXPECT_EQ(gathered_picture.statement("sum").dims.size(), 6U);
  for (const Sizes& sizes : {Sizes{{"N", 3}, {"M", 2}}, Sizes{{"N", 1}, {"M", 1}}})
    EXPECT_EQ(differences(picture, gathered_picture, sizes, 10), 0);
}

TEST(GatherSums, OtherSumsStay) {
  EXPECT_FALSE(matches(scattered({.hop = 3, .window = 3}))) << "no terms meet";
  EXPECT_FALSE(matches(scattered({.place = "2a + 2t"}))) << "no dim by itself";
  EXPECT_FALSE(matches(scattered({.place = "a - t + 10"}))) << "differences";
  EXPECT_FALSE(matches(scattered({.place = "floor(a / 2) + t"}))) << "no affine place";
  EXPECT_FALSE(matches(matmul())) << "a dim each";
  const Nest own = with_statement(scattered(), "sum", [](Statement& sum) {
    sum.reads.push_back({"out", parse_map("[N] -> { sum[a, t] -> out[0] }", "test")});
    sum.value = sum.value * read(1);
  });
  EXPECT_FALSE(matches(own)) << "its own result";
}

TEST(GatherSums, WrongRewritesAreSeen) {
  const Nest before = scattered();
  const auto mutant = [&](const std::string& domain) {
    return differences(
        before,
        with_statement(gathered(before), "sum",
                       [&](Statement& sum) {
                         const std::string dims = fmt::format("{}", fmt::join(sum.dims, ", "));
                         sum.domain = sum.domain.subtract(parse_set("[N] -> { sum[" + dims + "] : " + domain + " }", "test"));
                       }),
        {{"N", 5}}, 10);
  };
  const std::vector<std::string> dims = gathered(before).statement("sum").dims;
  EXPECT_EQ(mutant("false"), 0);
  EXPECT_GT(mutant(dims[0] + " = 7"), 0) << "an element's terms";
  EXPECT_GT(mutant(dims[1] + " = 1"), 0) << "every second term";
}

}  // namespace
}  // namespace nestor
