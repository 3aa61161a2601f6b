// Rule forward_pieces: which copies it leaves out, and what is read in their place.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/periodic_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> targets(const Nest& nest) {
  std::vector<std::string> found;
  for (const RuleMatch& match : rule("forward_pieces").find(nest)) found.push_back(match.target.at(0));
  return found;
}

std::string refusal(const Nest& nest, const std::string& last) {
  try {
    rule("forward_pieces").apply(nest, {last});
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

Nest forwarded(Nest nest) {
  while (!targets(nest).empty()) nest = rule("forward_pieces").apply(nest, {targets(nest).front()}).nest;
  validate(nest);
  return nest;
}

/// The nest with another domain of one of its statements.
Nest with_domain(Nest nest, const std::string& name, const std::string& domain) {
  for (Statement& statement : nest.statements) {
    if (statement.name == name) statement.domain = parse_set("[Y, X] -> { " + name + "[y, x] : " + domain + " }", "test");
  }
  return nest;
}

TEST(ForwardPieces, ReadersReadTheSourceAcrossTheEdge) {
  for (const std::string where : {"", " and (x + y) mod 2 = 0", " and y <= x"}) {
    const Nest before = periodic_neighbours(where);
    EXPECT_THAT(targets(before), ElementsAre("up_inside", "right_inside"));
    const Nest after = forwarded(before);
    EXPECT_THAT(statement_names(after), ElementsAre("out_start", "out"));
    EXPECT_EQ(after.find_tensor("up"), nullptr);
    for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 5}, {2, 2}, {5, 4}})
      EXPECT_EQ(differences(before, after, {{"Y", rows}, {"X", columns}}, 5), 0) << where << rows << " x " << columns;
  }
}

TEST(ForwardPieces, TheLastCopyOfAnElementCounts) {
  Nest before = periodic_neighbours();
  std::swap(before.statements[1], before.statements[2]);  // all are at the edge then
  std::swap(before.statements[1].group, before.statements[2].group);
  EXPECT_THAT(targets(before), ElementsAre("up_edge", "right_inside"));
  const Nest after = forwarded(before);
  EXPECT_EQ(differences(before, after, {{"Y", 5}, {"X", 3}}, 5), 0);
  EXPECT_NE(differences(periodic_neighbours(), after, {{"Y", 5}, {"X", 3}}, 5), 0) << "the test can fail";
}

TEST(ForwardPieces, OtherValuesStayWhereTheyAre) {
  EXPECT_EQ(refusal(periodic_neighbours(), "up_edge"),
            "rule forward_pieces does not apply to up_edge: no other statement writes up before it");
  EXPECT_EQ(refusal(periodic_neighbours(), "out"), "rule forward_pieces does not apply to out: it writes no temporary");
  EXPECT_THAT(refusal(periodic_neighbours("", ElementType::f16), "up_inside"), HasSubstr("up_edge is no copy of elements"))
      << "rounded";
  Nest doubled = periodic_neighbours();
  value_of(doubled, "up_edge") = read(0) + read(0);
  EXPECT_THAT(refusal(doubled, "up_inside"), HasSubstr("up_edge is no copy of elements"));
  Nest two = periodic_neighbours();
  two.tensors.push_back(two.tensor("g"));
  two.tensors.back().name = "h";
  for (Statement& statement : two.statements) {
    if (statement.name == "up_edge") statement.reads[0] = {"h", statement.reads[0].relation.set_range_tuple("h")};
  }
  EXPECT_THAT(refusal(two, "up_inside"), HasSubstr("up is made of several tensors"));
}

TEST(ForwardPieces, TheSourceMustStillBeThere) {
  // The reader changes what the next one's copy was made of.
  Nest again = periodic_neighbours();
  for (Tensor& tensor : again.tensors) {
    if (tensor.name == "g") tensor.role = TensorRole::temporary;
  }
  Statement change = renamed(again.statement("out_start"), "change");
  change.write = {"g", change.write.relation.set_range_tuple("g")};
  insert_statement(again, position_of(again, "out"), change);
  EXPECT_THAT(refusal(again, "up_inside"), HasSubstr("g is written again before out"));
  Nest sum = periodic_neighbours();
  for (Statement& statement : sum.statements) {
    if (statement.name == "out") statement.reduction = ReductionOp::add;
  }
  EXPECT_THAT(refusal(sum, "up_inside"), HasSubstr("out is a reduction")) << "rows of operands";
  const Nest holes = with_domain(periodic_neighbours(), "up_edge", "0 <= y < Y and 0 <= x < X and y <= 0 and x >= 1");
  EXPECT_THAT(refusal(holes, "up_inside"), HasSubstr("out reads elements that no copy has written"));
}

TEST(ForwardPieces, IndicesHaveFewPieces) {
  Nest many = periodic_neighbours();
  for (int k = 2; k <= 5; ++k) {
    Statement more = renamed(many.statement("up_edge"), "up_" + std::to_string(k));
    more.domain = parse_set(
        "[Y, X] -> { up_" + std::to_string(k) + "[y, x] : 0 <= y < Y and 0 <= x < X and y = " + std::to_string(3 * k) + " }",
        "test");
    insert_statement(many, position_of(many, "out"), more);
  }
  EXPECT_THAT(refusal(many, "up_5"), HasSubstr("out would read "));
}

}  // namespace
}  // namespace nestor
