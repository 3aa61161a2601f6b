// Column tests of tensor plans: which conditions are read once for all rows, and what the proof says of those that are wrong.
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "support/nests/masked_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor::testing {
namespace {

using nvptx::Event;
using nvptx::EventNode;
using nvptx::TensorOp;
using nvptx::TensorPlan;
using ::testing::HasSubstr;

struct Planned : PlannedTensor {
  explicit Planned(const MaskForm& form, int columns = 32, Seen seen = Seen::all)
      : PlannedTensor(
            tensor_program(masked_attention(form, seen),
                           {.rows = 64, .columns = columns, .warpgroups = 1, .more = {"intra_warpgroup_overlap(out.io)"}})) {}
};

TensorOp& score_of(TensorPlan& plan) {
  return *std::find_if(plan.ops.begin(), plan.ops.end(), [](const TensorOp& op) { return op.op.name == "score"; });
}

std::string complaint(const TensorPlan& plan) {
  const auto violations = check_tensor_plan(plan).violations;
  return violations.empty() ? "" : violations.front();
}

std::string after(const Planned& planned, const std::function<void(TensorPlan&, TensorOp&)>& change) {
  TensorPlan mutant = planned.plan;
  change(mutant, score_of(mutant));
  return complaint(mutant);
}

void each_list(EventNode& node, const std::function<void(std::vector<EventNode>&)>& visit) {
  visit(node.children);
  for (EventNode& child : node.children) each_list(child, visit);
}

/// The variable of the loop over tiles.
std::string loop_of(const EventNode& node) {
  if (node.kind == EventNode::Kind::loop) return node.var;
  for (const EventNode& child : node.children) {
    if (const std::string found = loop_of(child); !found.empty()) return found;
  }
  return "";
}

bool reads_test(const EventNode& node) { return is(node, Event::Kind::read_test); }

TEST(ColumnTests, AreConditionsOnValuesThatAllRowsShare) {
  const Planned by_key({}), wide({.type = ElementType::i64}), by_both({.by_query = true});
  ASSERT_TRUE(by_key.op("score").test);
  EXPECT_TRUE(by_key.op("score").test->usual);
  EXPECT_EQ(by_key.op("score").test->value.op(), ScalarOp::mul);
  ASSERT_TRUE(wide.op("score").test);
  EXPECT_EQ(wide.op("score").test->value.op(), ScalarOp::mul);
  EXPECT_FALSE(by_both.op("score").test);
  for (const Planned* planned : {&by_key, &wide, &by_both}) EXPECT_EQ(complaint(planned->plan), "");
}

TEST(ColumnTests, AreReadWhereTheIterationBegins) {
  Planned planned({});
  int lists = 0;
  each_list(planned.plan.consumer, [&](std::vector<EventNode>& events) {
    const auto computes = [&](const EventNode& node) {
      return is(node, Event::Kind::compute) && planned.plan.ops[static_cast<std::size_t>(node.event.op)].test;
    };
    if (std::none_of(events.begin(), events.end(), computes)) return;
    ++lists;
    EXPECT_TRUE(reads_test(events.front()));
  });
  EXPECT_GE(lists, 2);
}

TEST(ColumnTests, TakeTheNearestElementWhereLanesMayHaveNone) {
  EXPECT_FALSE(Planned({}, 64).op("score").test->clamped);
  EXPECT_TRUE(Planned({}, 48).op("score").test->clamped);
}

TEST(ColumnTestProofs, RefuseAnotherValue) {
  const Planned planned({});
  const std::string wrong = "score computes another value without its test";
  EXPECT_EQ(after(planned, [](TensorPlan&, TensorOp& op) { op.test->usual = false; }), wrong);
  EXPECT_EQ(after(planned, [](TensorPlan&, TensorOp& op) { op.test->value = op.op.value; }), wrong);
  EXPECT_EQ(after(planned, [](TensorPlan&, TensorOp& op) { op.test->value = samples::number(0); }), wrong);
  EXPECT_EQ(after(planned, [](TensorPlan&, TensorOp& op) { op.test->value = op.test->value.args()[0]; }), wrong);
}

TEST(ColumnTestProofs, RefuseConditionsOfOthers) {
  const Planned planned({}), by_both({.by_query = true});
  EXPECT_THAT(
      after(planned, [](TensorPlan&,
                        TensorOp& op) { op.test->condition = ScalarExpr::make(ScalarOp::logical_not, {op.test->condition}); }),
      HasSubstr("tests what its value does not ask"));
  EXPECT_THAT(
      after(by_both,
            [](TensorPlan&, TensorOp& op) { op.test = nvptx::ColumnTest{op.op.value.args()[0], true, op.op.value.args()[1]}; }),
      HasSubstr("tests elements of its rows once for all of them"));
}

TEST(ColumnTestProofs, RefuseReadsOfAnotherIterationAndNone) {
  const Planned planned({});
  const std::string wrong = "score does not find the test of its iteration";
  EXPECT_EQ(after(planned,
                  [](TensorPlan& plan, TensorOp&) {
                    each_list(plan.consumer, [](std::vector<EventNode>& events) { std::erase_if(events, reads_test); });
                  }),
            wrong);
  EXPECT_EQ(after(planned,
                  [](TensorPlan& plan, TensorOp&) {
                    each_list(plan.consumer, [](std::vector<EventNode>& events) {
                      if (!events.empty() && reads_test(events.front()))
                        std::rotate(events.begin(), events.begin() + 1, events.end());
                    });
                  }),
            wrong);
  // Read for the iteration before, as the late products are.
  EXPECT_EQ(after(planned,
                  [](TensorPlan& plan, TensorOp&) {
                    each_list(plan.consumer, [](std::vector<EventNode>& events) {
                      if (events.size() < 2 || !reads_test(events.front())) return;
                      const auto let = std::find_if(events.begin(), events.end(), [](const EventNode& node) {
                        return node.kind == EventNode::Kind::sequence && !node.var.empty();
                      });
                      if (let == events.end()) return;
                      let->children.insert(let->children.begin(), events.front());
                      events.erase(events.begin());
                    });
                  }),
            wrong);
  EXPECT_THAT(after(planned, [](TensorPlan&, TensorOp& op) { op.test.reset(); }), HasSubstr("is not its kind of event"));
}

TEST(ColumnTestProofs, RefuseLanesBeyondTheArgument) {
  const Planned narrow({}, 48);
  EXPECT_EQ(after(narrow, [](TensorPlan&, TensorOp& op) { op.test->clamped = false; }),
            "score tests columns that it does not have");
  // Asked for without masks where the op has masks.
  const Planned planned({}, 64);
  EXPECT_EQ(after(planned,
                  [](TensorPlan& plan, TensorOp& op) {
                    const int tested = static_cast<int>(&op - plan.ops.data());
                    EventNode early = nvptx::event_node(Event::Kind::read_test, tested);
                    each_list(plan.consumer, [&](std::vector<EventNode>& events) {
                      if (events.size() < 2 || !reads_test(events.front())) return;
                      EventNode unmasked;
                      unmasked.var = loop_of(plan.consumer);
                      unmasked.lower = IntExpr::variable("K");
                      unmasked.masked = false;
                      unmasked.children = {early};
                      events.insert(events.begin(), unmasked);
                    });
                  }),
            "the test of score reads beyond mask");
}

TEST(ColumnTestProofs, RefuseMapsThatCannotBeComputedTwice) {
  EXPECT_THAT(after(Planned({}), [](TensorPlan&, TensorOp& op) { op.read_rings[1] = 0; }), ::testing::Not(""));
}

}  // namespace
}  // namespace nestor::testing
