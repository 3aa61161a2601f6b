// Rule split_dims: a dim that holds parts side by side becomes two, where operands of a product follow its parts.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/heads_in_columns.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const Nest& nest, const std::string& statement = "sum") {
  try {
    rule("split_dims").apply(nest, {statement});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::string read_of(const Nest& nest, const std::string& statement, std::size_t read) {
  return isl_text(nest.statement(statement).reads[read].relation);
}

TEST(SplitDims, HeadsInColumnsAreADimOfTheirOwn) {
  const Nest before = heads_in_columns();
  const auto matches = rule("split_dims").find(before);
  ASSERT_EQ(matches.size(), 1U);
  EXPECT_THAT(matches.front().target, ElementsAre("sum"));
  const Nest nest = rule("split_dims").apply(before, matches.front().target).nest;
  validate(nest);
  EXPECT_TRUE(rule("split_dims").find(nest).empty()) << "once";
  for (const char* name : {"sum_init", "sum", "out"})
    EXPECT_EQ(nest.statement(name).dims.size(), before.statement(name).dims.size() + 1) << name;
  EXPECT_EQ(nest.tensor("sum").shape.size(), 3U);
  EXPECT_EQ(nest.tensor("out").shape.size(), 2U) << "a result stays what it is";
  EXPECT_THAT(read_of(nest, "sum", 0), HasSubstr("w[c_part, i, j]"));
  EXPECT_THAT(read_of(nest, "sum", 1), HasSubstr("v[j, 4c_part + c]"));
  EXPECT_THAT(read_of(nest, "out", 0), HasSubstr("sum[i, c_part, c]"));
  for (const Sizes& sizes : {Sizes{{"H", 1}, {"N", 1}}, Sizes{{"H", 3}, {"N", 2}}})
    EXPECT_EQ(differences(before, nest, sizes, 50), 0);
}

TEST(SplitDims, OtherNestsStayAsTheyAre) {
  const auto with = [](const std::string& name, const std::function<void(Statement&)>& change) {
    return refusal(with_statement(heads_in_columns(), name, change));
  };
  const auto among = [&](const std::string& name, const std::string& dims, const std::string& condition) {
    return with(name, [&](Statement& statement) {
      statement.domain =
          statement.domain.intersect(parse_set("[H, N] -> { " + name + "[" + dims + "] : " + condition + " }", "test"));
    });
  };
  EXPECT_THAT(refusal(heads_in_columns("4 H - 1")), HasSubstr("no two factors become rows and columns")) << "no whole parts";
  EXPECT_THAT(refusal(heads_in_columns("H", "c")), HasSubstr("no two factors become")) << "no parts";
  EXPECT_THAT(refusal(heads_in_columns("4 H", "floor(c / 4)", "j, 0")), HasSubstr("no two factors become")) << "v has no columns";
  EXPECT_THAT(refusal(heads_in_columns(), "out"), HasSubstr("no two factors become")) << "no sum";
  EXPECT_THAT(among("sum", "i, c, j", "j <= c"), HasSubstr("no two factors become")) << "no box";
  EXPECT_THAT(among("out", "i, c", "c > 0"), HasSubstr("has not all values of whole parts"));
  EXPECT_THAT(
      with("out",
           [](Statement& out) { out.reads[0].relation = parse_map("[H, N] -> { out[i, c] -> sum[i, 4 H - 1 - c] }", "test"); }),
      HasSubstr("along other indices"));
  Nest wider = heads_in_columns();
  for (Tensor& tensor : wider.tensors) {
    if (tensor.name == "sum") tensor.shape[1] = tensor.shape[1].add_constant(1);
  }
  EXPECT_THAT(refusal(wider), HasSubstr("no whole number of parts"));
}

}  // namespace
}  // namespace nestor
