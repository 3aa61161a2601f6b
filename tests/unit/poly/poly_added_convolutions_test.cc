// Sums over taps and channels that are added together become one over the channels of all; what does not correspond stays.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/added_convolutions.h"
#include "support/nests/apply_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

bool joins(const AddedConvolutions& form) { return !rule("join_sums").find(added_convolutions(form)).empty(); }

Nest joined(const AddedConvolutions& form) {
  const Nest nest = rule("join_sums").apply(added_convolutions(form), {}).nest;
  validate(nest);
  return nest;
}

std::vector<std::string> reads_of(const Nest& nest, const std::string& statement) {
  std::vector<std::string> tensors;
  for (const Access& read : nest.statement(statement).reads) tensors.push_back(read.tensor);
  return tensors;
}

TEST(AddedConvolutions, TapsStayAndChannelsLieSideBySide) {
  const Nest nest = joined({});
  EXPECT_THAT(reads_of(nest, "sv0"), ElementsAre("x_joined", "v_joined"));
  EXPECT_TRUE(nest.statement("sv0").domain.is_equal(
      parse_set("[B, Y, Z, F, K, P] -> { sv0[n, y, z, f, s, t, k] : 0 <= n < B and 0 <= y < Y and 0 <= z < Z and 0 <= f < F and "
                "0 <= s < 3 and 0 <= t < 3 and 0 <= k < K + P }",
                "test")));
  const auto access = [&](const Access& found, const std::string& sum, const std::string& text) {
    const isl::set domain = nest.statement(sum).domain;
    return found.relation.intersect_domain(domain).is_equal(
        parse_map("[B, Y, Z, F, K, P] -> { " + text + " }", "test").intersect_domain(domain));
  };
  EXPECT_TRUE(access(nest.statement("sv0").reads[0], "sv0", "sv0[n, y, z, f, s, t, k] -> x_joined[n, y + s, z + t, k]"));
  EXPECT_TRUE(access(nest.statement("sv0").reads[1], "sv0", "sv0[n, y, z, f, s, t, k] -> v_joined[0, f, s, t, k]"));
  EXPECT_TRUE(access(nest.statement("x_joined_2").write, "x_joined_2", "x_joined_2[n, a, b, p] -> x_joined[n, a, b, p + K]"));
  EXPECT_TRUE(
      access(nest.statement("v_joined_2").write, "v_joined_2", "v_joined_2[g, f, s, t, p] -> v_joined[g, f, s, t, p + K]"));
  EXPECT_THAT(reads_of(nest, "out"), ElementsAre("sv0", "bias"));
  EXPECT_EQ(nest.find_tensor("su0"), nullptr);
  EXPECT_TRUE(rule("join_sums").find(nest).empty()) << "once";
}

TEST(AddedConvolutions, GatesShareCopies) {
  AddedConvolutions form;
  form.gates = 4;
  const Nest nest = joined(form);
  EXPECT_EQ(nest.statements.size(), 4U + 8U + 1U) << "four copies, four sums with what starts them, one result";
  EXPECT_THAT(reads_of(nest, "sv3"), ElementsAre("x_joined", "v_joined"));
  EXPECT_EQ(nest.statement("sv3_init").group, nest.statement("sv2").group + 1) << "sums of the same copies stand together";
}

TEST(AddedConvolutions, ThreeSumsBecomeOneAtOnce) {
  AddedConvolutions form;
  form.third = true;
  form.gates = 2;
  const Nest nest = joined(form);
  EXPECT_EQ(nest.statements.size(), 6U + 4U + 1U) << "six copies, two sums with what starts them, one result";
  EXPECT_THAT(reads_of(nest, "sv1"), ElementsAre("x_joined", "v_joined"));
  const isl::set domain = nest.statement("x_joined_3").domain;
  EXPECT_TRUE(nest.statement("x_joined_3")
                  .write.relation.intersect_domain(domain)
                  .is_equal(parse_map("[B, Y, Z, F, K, P] -> { x_joined_3[n, a, b, p] -> x_joined[n, a, b, p + K + P] }", "test")
                                .intersect_domain(domain)));
}

TEST(AddedConvolutions, TapsCorrespondInAnyOrder) {
  AddedConvolutions form;
  form.second_taps = "t, s";
  EXPECT_TRUE(joins(form)) << "the same taps, summed in another order";
  form = {};
  form.second_taps = "t, s";
  form.second_at = "y + 2 - s";
  EXPECT_FALSE(joins(form)) << "filters turned round";
}

TEST(AddedConvolutions, OtherConvolutionsStay) {
  const auto with = [](auto AddedConvolutions::* member, auto value) {
    AddedConvolutions form;
    form.*member = value;
    return joins(form);
  };
  EXPECT_TRUE(joins({}));
  EXPECT_TRUE(with(&AddedConvolutions::channels, std::string("K"))) << "as many channels";
  EXPECT_TRUE(with(&AddedConvolutions::channels, std::string("7")));
  EXPECT_TRUE(with(&AddedConvolutions::type, ElementType::bf16));
  EXPECT_FALSE(with(&AddedConvolutions::type, ElementType::f32)) << "no 16-bit tensors";
  EXPECT_FALSE(with(&AddedConvolutions::second_size, std::string("1"))) << "a convolution of 1 x 1";
  EXPECT_FALSE(with(&AddedConvolutions::second_size, std::string("2")));
  EXPECT_FALSE(with(&AddedConvolutions::weight_at, std::string("t, s"))) << "weights with rows and columns exchanged";
  EXPECT_FALSE(with(&AddedConvolutions::weight_at, std::string("s, 2 - t"))) << "weights turned round";
  EXPECT_FALSE(with(&AddedConvolutions::second_at, std::string("y + 2 - s"))) << "images turned round";
  EXPECT_FALSE(with(&AddedConvolutions::second_at, std::string("y"))) << "one row of the image";
  EXPECT_FALSE(with(&AddedConvolutions::scale, 2.0)) << "twice a sum";
}

TEST(AddedConvolutions, SumsThatAnythingElseReadsStay) {
  const auto with_value = [](const ScalarExpr& value) {
    Nest nest = added_convolutions();
    Statement out = nest.statement("out");
    out.value = ScalarExpr::cast(ElementType::f16, value);
    replace_statement(nest, out);
    return !rule("join_sums").find(nest).empty();
  };
  const ScalarExpr x = read(0), bias = read(1), h = read(2);
  EXPECT_TRUE(with_value((x + bias) + h));
  EXPECT_TRUE(with_value(x + (bias + h)));
  EXPECT_TRUE(with_value((x + h) * (h + bias + x))) << "added twice";
  EXPECT_TRUE(with_value(apply(ScalarOp::exp, h + x) + bias));
  EXPECT_FALSE(with_value((x + bias) * h)) << "a sum beside the addition";
  EXPECT_FALSE(with_value((x + h) * h));
  EXPECT_FALSE(with_value(x + h + h)) << "one of them twice";
  EXPECT_FALSE(with_value(x - h + bias));
  EXPECT_FALSE(with_value(x + apply(ScalarOp::neg, h)));
}

/// With one image, dims of images and parts have the same single value: no access tells them apart.
TEST(AddedConvolutions, DimsOfOneValueAreNoRows) {
  Nest nest = rule("join_sums").apply(fix_sizes(added_convolutions(), {{"B", 1}, {"Y", 2}, {"Z", 2}, {"F", 2}}), {}).nest;
  const std::string sum = rule("split_reduction").find(nest).at(0).target.at(0);
  nest = rule("split_reduction").apply(nest, rule("split_reduction").find(nest).at(0).target).nest;
  std::size_t parts = 0;
  for (const RuleMatch& match : rule("split_reduction").find(nest)) {
    if (match.target.at(0) != sum + "_part") continue;
    const Nest again = rule("split_reduction").apply(nest, match.target).nest;
    ++parts;
    for (const RuleMatch& rows : rule("join_short_rows").find(again))
      EXPECT_NO_THROW(validate(rule("join_short_rows").apply(again, rows.target).nest)) << rows.target.at(0);
  }
  EXPECT_GT(parts, 0U);
}

}  // namespace
}  // namespace nestor
