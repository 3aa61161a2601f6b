// Rule join_dims: two dims that reductions run over together become one, wherever values lead.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/operand_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const Nest& nest, const std::string& statement = "top") {
  try {
    rule("join_dims").apply(nest, {statement});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(JoinDims, KeysInAnImageAreKeysInARow) {
  const Nest before = image_attention();
  const auto matches = rule("join_dims").find(before);
  ASSERT_FALSE(matches.empty());
  const Nest nest = rule("join_dims").apply(before, matches.front().target).nest;
  validate(nest);
  EXPECT_TRUE(rule("join_dims").find(nest).empty()) << "once";
  for (const char* name : {"dot", "score", "top", "power", "total"})
    EXPECT_EQ(nest.statement(name).dims.size() + 1, before.statement(name).dims.size());
  for (const char* tensor : {"dot", "score", "power"}) EXPECT_EQ(nest.tensor(tensor).shape.size(), 3U) << tensor;
  EXPECT_EQ(nest.tensor("by_row").shape.size(), 3U) << "along one of the dims alone, and its own rows";
  EXPECT_THAT(nest.statement("dot").reads[1].tensor, "k_joined");
  EXPECT_THAT(nest.statement("weighted").reads[1].tensor, "v_joined");
  EXPECT_EQ(nest.tensor("k").shape.size(), 4U) << "an argument stays what it is";
  for (const Sizes& sizes : {Sizes{{"H", 2}, {"Q", 3}, {"Y", 1}}, Sizes{{"H", 1}, {"Q", 2}, {"Y", 4}}})
    EXPECT_EQ(differences(before, nest, sizes, 4), 0);
}

TEST(JoinDims, AnOperandMayBeComputedInF32) {
  Nest before = with_statement(image_attention(), "dot", [](Statement& dot) {
    dot.value = read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16));
    dot.reads[0].relation = dot.reads[0].relation.set_range_tuple("pooled");
    dot.reads[0].tensor = "pooled";
  });
  EXPECT_FALSE(rule("join_dims").find(image_attention()).empty());
  Tensor pooled = before.tensor("q");
  pooled.name = "pooled";
  pooled.type = ElementType::f32;
  pooled.role = TensorRole::temporary;
  before.tensors.push_back(pooled);
  const isl::map same = parse_map("[H, Q, Y] -> { pool[h, i, e] -> pooled[h, i, e] }", "test");
  Statement pool;
  pool.name = "pool";
  pool.dims = {"h", "i", "e"};
  pool.domain = parse_set("[H, Q, Y] -> { pool[h, i, e] : 0 <= h < H and 0 <= i < Q and 0 <= e < 64 }", "test");
  pool.write = {"pooled", same};
  pool.reads = {{"q", same.set_range_tuple("q")}};
  pool.value = ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)) * number(0.5);
  insert_statement(before, 0, pool);
  validate(before);
  const auto matches = rule("join_dims").find(before);
  ASSERT_FALSE(matches.empty());
  const Nest nest = rule("join_dims").apply(before, matches.front().target).nest;
  EXPECT_EQ(differences(before, nest, {{"H", 2}, {"Q", 3}, {"Y", 2}}, 4), 0);
}

TEST(JoinDims, OtherNestsStayAsTheyAre) {
  const auto with = [](const std::string& name, const std::function<void(Statement&)>& change) {
    return refusal(with_statement(image_attention(), name, change));
  };
  const auto masked = [&](const std::string& name, const std::string& mask) {
    return with(name, [&](Statement& statement) {
      statement.domain =
          statement.domain.intersect(parse_set("[H, Q, Y] -> { " + name + "[h, i, y, x] : " + mask + " }", "test"));
    });
  };
  EXPECT_EQ(refusal(image_attention()), "");
  EXPECT_THAT(masked("top", "x <= y"), HasSubstr("the second one of a known extent"));
  EXPECT_THAT(masked("score", "y > 0"), HasSubstr("has not all values of both dims"));
  EXPECT_THAT(masked("power", "x + y <= i"), HasSubstr("has not all values of both dims"));
  EXPECT_THAT(with("power",
                   [](Statement& power) {
                     power.reads[0].relation = parse_map("[H, Q, Y] -> { power[h, i, y, x] -> score[h, i, y, 5 - x] }", "test");
                   }),
              HasSubstr("along other indices"));
  EXPECT_THAT(with("total",
                   [](Statement& total) {
                     total.reads[0].relation = parse_map("[H, Q, Y] -> { total[h, i, y, x] -> power[h, i, y, 0] }", "test");
                   }),
              HasSubstr("along other indices"));
  EXPECT_THAT(with("dot",
                   [](Statement& dot) {
                     dot.reads[1].relation = parse_map("[H, Q, Y] -> { dot[h, i, y, x, e] -> k[h, y, 0, e] }", "test");
                   }),
              HasSubstr("a factor of a product follows one of the dims alone"));
  EXPECT_THAT(with("dot",
                   [](Statement& dot) {
                     dot.reads[1].relation = parse_map("[H, Q, Y] -> { dot[h, i, y, x, e] -> k[h, 0, 0, e] }", "test");
                   }),
              HasSubstr("no product of 16-bit matrices has these dims as its columns"));
  EXPECT_THAT(refusal(image_attention(), "weighted_init"), HasSubstr("it reduces no temporary"));
  EXPECT_TRUE(rule("join_dims").find(image_attention(0)).empty()) << "an extent that is not known";
}

}  // namespace
}  // namespace nestor
