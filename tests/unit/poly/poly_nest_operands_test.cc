// Rule nest_operands: which sums it takes, what it makes of them, and that infinities and NaN stay where they are.
#include "poly/algebra/all_rules.h"
#include "support/error_text.h"
#include "support/nests/chained_products.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using Target = std::vector<std::string>;

constexpr const char* kName = "nest_operands";

std::vector<Target> targets(const Nest& nest) {
  std::vector<Target> found;
  for (const RuleMatch& match : rule(kName).find(nest)) found.push_back(match.target);
  return found;
}

Nest nested(const Nest& nest, const Target& target) {
  Nest result = rule(kName).apply(nest, target).nest;
  validate(result);
  return result;
}

std::string refusal(const Nest& nest, const Target& target = {"sum", "t"}) {
  return test::message_of([&] { rule(kName).apply(nest, target); });
}

constexpr const char* kRefused = "rule nest_operands does not apply to sum: ";
/// Extents of which 8 times as many terms are left out.
const Messages kWide{.turns = "16", .angles = "4", .width = "32", .outputs = "32"};

TEST(NestOperands, InnerSumsBecomeAnOperandBesideTheDirectSum) {
  ASSERT_THAT(targets(directional_messages(kWide)), ElementsAre(Target{"sum", "t"}));
  const Nest nest = nested(directional_messages(kWide), {"sum", "t"});
  EXPECT_THAT(statement_names(nest), ElementsAre("sums_inner_init", "sums_inner_update", "sums_operand", "sums_product_init",
                                                 "sums_product_sum", "init", "sum", "sums_kept_copied", "out"));
  const auto dims = [&](const std::string& name) { return nest.statement(name).dims; };
  EXPECT_THAT(dims("sums_inner_update"), ElementsAre("e", "t", "i", "j"));
  EXPECT_THAT(dims("sums_operand"), ElementsAre("e", "i", "j"));
  EXPECT_THAT(dims("sums_product_sum"), ElementsAre("e", "o", "i", "j"));
  EXPECT_THAT(dims("sum"), ElementsAre("e", "o", "j")) << "its terms are one dim";
  EXPECT_TRUE(targets(nest).empty());
}

TEST(NestOperands, OtherSumsStayAsTheyAre) {
  EXPECT_TRUE(targets(directional_messages()).empty()) << "little is left out";
  Messages other = kWide;
  other.type = ElementType::f32;
  EXPECT_EQ(refusal(directional_messages(other)),
            kRefused + std::string("no inner sums and elements of 16 bits are rows and columns of a product of matrices"));
  other = kWide;
  other.type = ElementType::bf16;
  EXPECT_EQ(refusal(directional_messages(other)), kRefused + std::string("it multiplies by elements before that may be large"));
  const auto bf16 = [](int k) { return wide(k, ElementType::bf16); };
  other.value = bf16(0) * bf16(2) * bf16(1);
  EXPECT_THAT(targets(directional_messages(other)), ElementsAre(Target{"sum", "t"})) << "the definition multiplies them last";
  other = kWide;
  const auto f16 = [](int k) { return wide(k, ElementType::f16); };
  other.value = f16(0) * f16(2) * apply(ScalarOp::exp, f16(1));
  EXPECT_THAT(refusal(directional_messages(other)), ::testing::HasSubstr("no inner sums and elements")) << "a computed factor";
  other = kWide;
  other.mask = " and j <= i";
  EXPECT_EQ(refusal(directional_messages(other)), kRefused + std::string("the dims that it reduces are no box of known extents"));
  other = kWide;
  other.angles = "A";
  EXPECT_EQ(refusal(directional_messages(other)), kRefused + std::string("the dims that it reduces are no box of known extents"));
  other = kWide;
  other.turns = "T";
  EXPECT_EQ(rule(kName).apply(directional_messages(other), {"sum", "t"}).nest.statement("sum").dims.size(), 3U)
      << "the outermost may have any extent";
  other = kWide;
  other.mask = " and o <= e";
  EXPECT_THAT(refusal(directional_messages(other)), ::testing::HasSubstr("or elements have no terms"));
  other.mask = " and t <= o";
  EXPECT_EQ(refusal(directional_messages(other)),
            kRefused + std::string("no factors of its terms have the same inner sum for several results"));
  EXPECT_EQ(refusal(directional_messages(kWide), {"sum", "i"}), kRefused + std::string("no inner sum over i is an operand"));
  EXPECT_EQ(refusal(directional_messages(kWide), {"sum"}), "rule nest_operands takes a statement and dims of its inner sum");
  EXPECT_THAT(refusal(chained_matrices(ElementType::f16), {"sum", "i"}),
              ::testing::HasSubstr("it does not add up to a temporary"));
}

TEST(NestOperands, InfinitiesAndNaNStayWhereTheyAre) {
  const auto bf16 = [](int k) { return wide(k, ElementType::bf16); };
  for (const Messages& messages : {Messages{}, Messages{.turns = "1", .angles = "1", .width = "3"}, Messages{.turns = "T"},
                                   Messages{.type = ElementType::bf16, .value = bf16(0) * bf16(2) * bf16(1)}}) {
    const Nest before = directional_messages(messages), after = nested(before, {"sum", "t"});
    for (const std::int64_t edges : {1, 6}) EXPECT_EQ(differences(before, after, {{"E", edges}, {"T", 2}, {"A", 1}}, 25), 0);
  }
}

TEST(NestOperands, WrongRewritesAreSeen) {
  const Nest before = directional_messages(), right = nested(before, {"sum", "t"});
  const auto mutant = [&](const std::string& name, const std::function<void(Statement&)>& change) {
    return differences(before, with_statement(right, name, change), {{"E", 6}, {"T", 1}, {"A", 1}}, 25);
  };
  EXPECT_EQ(mutant("sum", [](Statement&) {}), 0);
  EXPECT_GT(mutant("sum", [](Statement& sum) { sum.value = number(0); }), 0) << "what is not finite has no direct sum";
  EXPECT_GT(mutant("sum", [](Statement& sum) { sum.value = sum.value.args()[1]; }), 0) << "each has its direct sum, too";
  EXPECT_GT(mutant("sums_operand", [](Statement& store) { store.value = read(0) * number(2); }), 0);
}

}  // namespace
}  // namespace nestor
