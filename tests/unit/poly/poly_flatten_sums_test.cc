// Rule flatten_sums: a sum of sums of products is one sum.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/nested_sums.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isl/set.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const Nest& nest, const std::string& statement = "out") {
  try {
    rule("flatten_sums").apply(nest, {statement});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(FlattenSums, TapsAreTermsOfOneSum) {
  for (const bool stored : {false, true}) {
    const Nest before = nested_sums(stored);
    const auto matches = rule("flatten_sums").find(before);
    ASSERT_EQ(matches.size(), 1U) << stored;
    const Nest nest = rule("flatten_sums").apply(before, matches.front().target).nest;
    validate(nest);
    EXPECT_TRUE(rule("flatten_sums").find(nest).empty()) << "once";
    EXPECT_EQ(nest.statements.size(), 2U) << stored;
    EXPECT_EQ(nest.find_tensor("tap"), nullptr);
    EXPECT_EQ(nest.find_tensor("kept"), nullptr);
    const Statement& sum = nest.statement("out");
    EXPECT_THAT(sum.dims, ElementsAre("m", "o", "t", "k"));
    EXPECT_EQ(sum.reads.size(), 2U);
    const isl::set points = parse_set(
        "[M, O, K] -> { out[m, o, t, k] : 0 <= m < M and 0 <= o < O and 0 <= t < 3 and 1 <= m + t <= M and 0 <= k < K }", "test");
    EXPECT_TRUE(sum.domain.intersect_params(nest.context).is_equal(points.intersect_params(nest.context)));
    for (const Sizes& sizes : {Sizes{{"M", 1}, {"O", 1}, {"K", 1}}, Sizes{{"M", 6}, {"O", 3}, {"K", 4}}})
      EXPECT_EQ(differences(before, nest, sizes, 20), 0) << stored;
  }
}

TEST(FlattenSums, OtherSumsStayAsTheyAre) {
  EXPECT_THAT(refusal(nested_sums(false, "0")), HasSubstr("again and again")) << "one tap, three times";
  EXPECT_THAT(refusal(nested_sums(false, "t", "1")), HasSubstr("from 0"));
  EXPECT_THAT(refusal(nested_sums(), "tap"), HasSubstr("does not add up elements"));
  const Nest squares = with_statement(nested_sums(), "out", [](Statement& out) { out.value = out.value * out.value; });
  EXPECT_THAT(refusal(squares), HasSubstr("does not add up elements"));
  const Nest largest = with_statement(nested_sums(), "out", [](Statement& out) { out.reduction = ReductionOp::max; });
  EXPECT_THAT(refusal(largest), HasSubstr("does not add up elements"));
  Nest others = nested_sums();
  others.tensors.push_back({"seen", ElementType::f32, TensorRole::output, others.tensor("tap").shape});
  Statement reader = others.statement("tap_init");
  reader.name = "seen";
  const auto renamed_access = [](const std::string& tensor) {
    return Access{tensor, parse_map("[M, O, K] -> { seen[m, t, o] -> " + tensor + "[m, t, o] }", "test")};
  };
  reader.domain = isl::manage(isl_set_set_tuple_name(reader.domain.copy(), "seen"));
  reader.write = renamed_access("seen");
  reader.reads = {renamed_access("tap")};
  reader.value = read(0);
  reader.group = others.statements.back().group + 1;
  others.statements.push_back(reader);
  EXPECT_THAT(refusal(others), HasSubstr("nothing else reads"));
  const Nest shared = with_statement(nested_sums(), "out", [](Statement& out) { out.group -= 1; });
  EXPECT_THAT(refusal(shared), HasSubstr("shares loops"));
}

}  // namespace
}  // namespace nestor
