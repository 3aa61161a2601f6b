// Rule join_sums: pieces of a tensor that lie side by side are read there, others are copied.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

/// out[i, j] = sum over k of a w[j, first + k], and so on for b and c: a linear layer of what is put together.
Nest layer_of_parts(const std::array<std::string, 3>& first) {
  const std::string element = "0 <= i < M and 0 <= j < N", points = element + " and 0 <= k < K";
  NestBuilder builder("layer_of_parts", {{"M", 5}, {"N", 6}, {"K", 8}});
  builder.tensor("w", TensorRole::input, {"N", "4 K"}, ElementType::f16);
  for (const std::string x : {"a", "b", "c"}) {
    builder.tensor(x, TensorRole::input, {"M", "K"}, ElementType::f16).tensor("s" + x, TensorRole::temporary, {"M", "N"});
  }
  builder.tensor("out", TensorRole::output, {"M", "N"});
  const ScalarExpr product = ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)) *
                             ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16));
  for (std::size_t n = 0; n < 3; ++n) {
    const std::string x(1, static_cast<char>('a' + n)), sum = "s" + x;
    builder.statement("start_" + x + "[i, j] : " + element, sum + "[i, j]", {}, number(0))
        .statement(sum + "[i, j, k] : " + points, sum + "[i, j]", {x + "[i, k]", "w[j, k + " + first[n] + "]"}, product,
                   ReductionOp::add);
  }
  return builder
      .statement("out[i, j] : " + element, "out[i, j]", {"sa[i, j]", "sb[i, j]", "sc[i, j]"}, read(0) + read(1) + read(2))
      .build();
}

std::vector<std::string> tensors_read(const Nest& nest, const std::string& statement) {
  std::vector<std::string> names;
  for (const Access& access : nest.statement(statement).reads) names.push_back(access.tensor);
  return names;
}

TEST(JoinedPieces, ColumnsThatLieSideBySideAreReadThere) {
  for (const auto& first : {std::array<std::string, 3>{"0", "K", "2 K"}, {"K", "2 K", "3 K"}}) {
    const Nest before = layer_of_parts(first), after = rule("join_sums").apply(before, {}).nest;
    validate(after);
    EXPECT_THAT(tensors_read(after, "sa"), ElementsAre("a_joined", "w"));
    EXPECT_EQ(after.find_statement("sb"), nullptr);
    EXPECT_EQ(after.statements.size(), 6U) << "three copies, a start, a sum, a result";
    EXPECT_EQ(differences(before, after, {{"M", 2}, {"N", 2}, {"K", 3}}, 20), 0);
    EXPECT_EQ(differences(before, after, {{"M", 1}, {"N", 1}, {"K", 1}}, 20), 0);
  }
}

TEST(JoinedPieces, TheirOrderIsThatOfTheTensor) {
  const Nest before = layer_of_parts({"2 K", "0", "K"}), after = rule("join_sums").apply(before, {}).nest;
  validate(after);
  EXPECT_THAT(tensors_read(after, "sb"), ElementsAre("b_joined", "w")) << "b comes first there";
  EXPECT_EQ(differences(before, after, {{"M", 2}, {"N", 2}, {"K", 3}}, 20), 0);
}

TEST(JoinedPieces, OthersAreCopied) {
  for (const auto& first : {std::array<std::string, 3>{"0", "2 K", "3 K"}, {"0", "0", "K"}, {"1", "K", "2 K"}}) {
    const Nest before = layer_of_parts(first), after = rule("join_sums").apply(before, {}).nest;
    validate(after);
    EXPECT_THAT(tensors_read(after, "sa"), ElementsAre("a_joined", "w_joined"));
    EXPECT_EQ(differences(before, after, {{"M", 2}, {"N", 2}, {"K", 3}}, 20), 0) << first[1];
  }
}

TEST(JoinedPieces, WrongRewritesAreSeen) {
  const Nest before = layer_of_parts({"0", "K", "2 K"});
  const Nest mutant = with_statement(rule("join_sums").apply(before, {}).nest, "sa", [](Statement& sum) {
    sum.reads[1].relation = parse_map("[M, N, K] -> { sa[i, j, k] -> w[j, k + K] }", "test");
  });
  EXPECT_GT(differences(before, mutant, {{"M", 2}, {"N", 2}, {"K", 3}}, 20), 0);
}

}  // namespace
}  // namespace nestor
