// Rule skip_blocks: which scores it takes, that values stay as they are, and which tables tell the next block that has points.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/blocks/next_blocks.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/hidden_blocks.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

using namespace samples;
using ::testing::Contains;
using testing::hidden_attention;
using ::testing::Not;
using testing::Seen;
using testing::Shown;

Nest skipping(const Nest& nest) { return rule("skip_blocks").apply(nest, {"score"}).nest; }
std::size_t matches(const Nest& nest) { return rule("skip_blocks").find(nest).size(); }
Nest small(Shown shown, Seen seen = Seen::all) { return hidden_attention(shown, {.seen = seen, .depth = 2}); }

/// Integers that are alike in stretches of 20.
void draw_stretches(samples::Memory& memory, const std::string& name) {
  if (!memory.contains(name)) return;
  for (auto& [index, value] : memory.at(name)) {
    std::int64_t at = 0;
    for (const std::int64_t each : index) at = 7 * at + each / 20;
    value = static_cast<double>(name == "chosen" ? at % 3 == 0 : at % 5);
  }
}

class SkipBlocks : public ::testing::TestWithParam<Shown> {};

TEST_P(SkipBlocks, LeavesAllValuesAsTheyAre) {
  for (const Seen seen : {Seen::all, Seen::causal}) {
    const Nest nest = small(GetParam(), seen), changed = skipping(nest);
    validate(changed);
    const Sizes sizes{{"H", 1}, {"Q", 130}, {"K", 140}};
    samples::Memory expected = Interpreter::random_inputs(nest, sizes, 3);
    for (const char* name : {"own", "other", "chosen"}) draw_stretches(expected, name);
    samples::Memory actual = expected;
    Interpreter(nest, sizes).run(expected);
    Interpreter(changed, sizes).run(actual);
    for (const auto& [index, value] : expected.at("out")) ASSERT_TRUE(same_value(actual.at("out").at(index), value));
    EXPECT_TRUE(tells_next_blocks(changed, "score_next"));
    EXPECT_EQ(matches(changed), 0U) << "once";
  }
}

TEST_P(SkipBlocks, AsksOfWeightsThatTheyMultiplyWhatIsFinite) {
  EXPECT_EQ(rule("skip_blocks").finite(small(GetParam())), std::vector<std::string>{"v"});
  EXPECT_TRUE(rule("skip_blocks").finite_everywhere);
}

INSTANTIATE_TEST_SUITE_P(Conditions, SkipBlocks,
                         ::testing::Values(Shown::documents, Shown::rising, Shown::documents_or_first, Shown::blocks,
                                           Shown::keys));

TEST(SkippedBlocks, AreToldByRangesWhereRowsAreComparedWithColumns) {
  const auto dims_of = [](Shown shown) { return skipping(small(shown)).statement("score_seen_2").dims.size(); };
  EXPECT_EQ(dims_of(Shown::documents), 2U) << "blocks of rows and of columns";
  EXPECT_EQ(dims_of(Shown::rising), 2U);
  EXPECT_EQ(dims_of(Shown::documents_or_first), 3U) << "an index of columns has no range";
  EXPECT_EQ(dims_of(Shown::blocks), 3U) << "chosen for each head, the same in a whole block";
  EXPECT_EQ(dims_of(Shown::keys), 2U) << "blocks of columns and places in them";
  EXPECT_EQ(writers_of(skipping(small(Shown::rising)), "score_least").size(), 2U);
  EXPECT_EQ(skipping(small(Shown::rising)).find_tensor("score_least_2"), nullptr) << "one end of each";
}

TEST(SkippedBlocks, OtherScoresStayAsTheyAre) {
  const Nest nest = small(Shown::documents);
  EXPECT_EQ(matches(nest), 1U);
  const auto with = [&](const std::function<void(Statement&)>& change) { return matches(with_statement(nest, "score", change)); };
  const auto choice = [](Statement& score, const ScalarExpr& condition, double hidden) {
    score.value = ScalarExpr::make(ScalarOp::select, {condition, score.value.args()[1], number(hidden)});
  };
  EXPECT_EQ(with([&](Statement& score) { choice(score, score.value.args()[0], -1000); }), 0U) << "rows may have nothing else";
  EXPECT_EQ(with([](Statement& score) { score.value = score.value.args()[1]; }), 0U);
  EXPECT_EQ(with([&](Statement& score) {
              score.reads[1].relation = parse_map("[H, Q, K] -> { score[h, i, j] -> other[0] }", "test");
              score.reads[2].relation = score.reads[1].relation.set_range_tuple("own");
            }),
            0U)
      << "no columns";
  EXPECT_EQ(with([](Statement& score) {
              score.reads[1].relation = score.reads[2].relation.set_range_tuple("other");
              score.value = ScalarExpr::make(
                  ScalarOp::select,
                  {ScalarExpr::make(ScalarOp::eq, {read(1, ElementType::i32), ScalarExpr::constant(0, ElementType::i32)}),
                   score.value.args()[1], score.value.args()[2]});
            }),
            0U)
      << "rows alone";
  EXPECT_EQ(matches(testing::attention_nest({.depth = 2})), 0U);
}

TEST(NextBlocks, AreToldByOneFormOfTables) {
  const Nest nest = skipping(small(Shown::documents));
  ASSERT_TRUE(tells_next_blocks(nest, "score_next"));
  EXPECT_FALSE(tells_next_blocks(nest, "score_seen"));
  const auto told = [&](const std::string& statement, const std::function<void(Statement&)>& change) {
    return tells_next_blocks(with_statement(nest, statement, change), "score_next");
  };
  EXPECT_FALSE(told("score_next_init", [](Statement& start) { start.value = ScalarExpr::constant(3, ElementType::i32); }));
  EXPECT_FALSE(told("score_next_2", [](Statement& least) { least.reduction = ReductionOp::max; }));
  EXPECT_FALSE(told("score_next_2", [](Statement& least) {
    least.domain = least.domain.subtract(parse_set("[H, Q, K] -> { score_next_2[i, j, l] : l = j + 1 }", "test"));
  })) << "one block is not looked at";
  EXPECT_FALSE(told("score_next_2", [](Statement& least) {
    least.reads[0].relation = parse_map("[H, Q, K] -> { score_next_2[i, j, l] -> score_seen[i, j] }", "test");
  })) << "another block";
  EXPECT_FALSE(told("score_seen_2", [](Statement& seen) { seen.reduction = ReductionOp::min; }));
  EXPECT_FALSE(told("score_seen_2", [](Statement& seen) {
    seen.value = ScalarExpr::make(ScalarOp::select,
                                  {ScalarExpr::constant(0, ElementType::boolean), seen.value.args()[1], seen.value.args()[2]});
  })) << "it does not follow from the condition";
  EXPECT_FALSE(told("score_seen_2", [](Statement& seen) {
    const ScalarExpr& both = seen.value.args()[0];
    const ScalarExpr turned = ScalarExpr::make(ScalarOp::le, {both.args()[0].args()[1], both.args()[0].args()[0]});
    seen.value = ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::logical_and, {turned, both.args()[1]}),
                                                     seen.value.args()[1], seen.value.args()[2]});
  })) << "ends the other way around";
  for (const char* end : {"score_least_2", "score_largest_2"}) {
    const auto statement = std::find_if(nest.statements.begin(), nest.statements.end(), [&](const Statement& each) {
      return each.reduction && each.write.tensor == std::string(end).substr(0, std::string(end).size() - 2);
    });
    ASSERT_NE(statement, nest.statements.end());
    EXPECT_FALSE(told(statement->name, [](Statement& each) {
      each.reduction = each.reduction == ReductionOp::min ? ReductionOp::max : ReductionOp::min;
    }));
    EXPECT_FALSE(told(statement->name, [](Statement& each) {
      each.domain = each.domain.subtract(isl::manage(isl_set_fix_si(each.domain.copy(), isl_dim_set, 1, 3)));
    })) << "a place is not looked at";
  }
  EXPECT_FALSE(told("score", [](Statement& score) {
    const std::vector<ScalarExpr>& args = score.value.args();
    score.value = ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::logical_or, args[0].args()), args[1], args[2]});
  })) << "a block without points has some";
  EXPECT_FALSE(told("score", [](Statement& score) {
    const std::vector<ScalarExpr>& args = score.value.args();
    score.value = ScalarExpr::make(ScalarOp::select, {args[0].args()[0], args[1], args[2]});
  })) << "the test alone";
}

TEST(NeutralTerms, ConditionsOnIndicesBesideDataLeaveDomains) {
  // i sees j <= i of its own document: an "and" of both, one choice within the other, and the other way around.
  const Nest nest = small(Shown::documents);
  for (const int form : {0, 1, 2}) {
    const Nest causal = with_statement(nest, "score", [&](Statement& score) {
      score.indices = {isl::pw_aff(isl_context(), "[H, Q, K] -> { score[h, i, j] -> [(i - j)] }")};
      const ScalarExpr before = ScalarExpr::make(ScalarOp::le, {ScalarExpr::constant(0, ElementType::i32), ScalarExpr::index(0)});
      const std::vector<ScalarExpr> args = score.value.args();
      const auto select = [&](const ScalarExpr& condition, const ScalarExpr& value) {
        return ScalarExpr::make(ScalarOp::select, {condition, value, args[2]});
      };
      score.value = form == 0   ? select(ScalarExpr::make(ScalarOp::logical_and, {args[0], before}), args[1])
                    : form == 1 ? select(args[0], select(before, args[1]))
                                : select(before, select(args[0], args[1]));
    });
    const Nest left = rule("neutral_terms").apply(causal, {}).nest;
    const isl::set sums = left.statement("total").domain;
    EXPECT_TRUE(sums.is_subset(parse_set("[H, Q, K] -> { total[h, i, j] : j <= i }", "test"))) << form;
    int conditions = 0;
    left.statement("score").value.visit([&](const ScalarExpr& node) { conditions += node.op() == ScalarOp::index ? 1 : 0; });
    EXPECT_EQ(conditions, 0) << "decided on what is left, form " << form;
    const Sizes sizes{{"H", 1}, {"Q", 9}, {"K", 11}};
    samples::Memory expected = Interpreter::random_inputs(causal, sizes, 5), actual = expected;
    Interpreter(causal, sizes).run(expected);
    Interpreter(left, sizes).run(actual);
    for (const auto& [index, value] : expected.at("out")) EXPECT_TRUE(same_value(actual.at("out").at(index), value)) << form;
  }
}

}  // namespace
}  // namespace nestor
