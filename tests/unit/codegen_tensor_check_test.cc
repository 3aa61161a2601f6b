// The proof of a tensor plan: sound plans have one, and of the mutants that have one, none does anything wrong when it is run.
#include "codegen/nvptx/tensor_check.h"
#include "support/simt_programs.h"
#include "support/tensor_plan_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using nvptx::Event;
using nvptx::EventNode;
using nvptx::TensorPlan;
using ::testing::HasSubstr;
using Kind = Event::Kind;

/// A plan of attention and what it points to.
struct Attention {
  nvptx::LaunchPlan launches;
  TensorPlan plan;

  Attention(bool causal, GridShape shape)
      : launches(nvptx::plan_launches(streaming_attention_program(ElementType::f16, 64, causal), 256)) {
    launches.kernels.at(0).shape = shape;
    plan = nvptx::plan_tensor(launches.kernels[0], launches.program, NvptxTarget{});
  }
};

GridShape shape(int groups, int slots) {
  GridShape result;
  result.groups = groups;
  result.slots = slots;
  return result;
}

struct Case {
  std::string name;
  bool causal;
  GridShape shape;
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

std::vector<Case> cases() {
  GridShape overlap = shape(1, 2);
  overlap.overlap = 1;
  GridShape all = shape(2, 2);
  all.overlap = all.turns = all.hold = all.persistent = all.stagger = all.claims = 1;
  GridShape turns = shape(2, 1);
  turns.turns = 1;
  std::vector<Case> list;
  for (const bool causal : {false, true}) {
    const std::string kind = causal ? "causal" : "full";
    list.push_back({"base_" + kind, causal, shape(1, 2)});
    list.push_back({"overlap_" + kind, causal, overlap});
    list.push_back({"all_" + kind, causal, all});
  }
  list.push_back({"turns_one_slot", false, turns});
  return list;
}

class TensorCheck : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Attention, TensorCheck, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

/// The plan's first fault over sizes with no, one and many iterations, several items, and orders of the roles.
std::string fault_of(const TensorPlan& plan) {
  using Items = std::vector<TensorPlanRunner::Integers>;
  const auto item = [](std::int64_t s, std::int64_t qt) {
    return TensorPlanRunner::Integers{{"heads", 2}, {"s", s}, {"d", 64}, {"h", 1}, {"qt", qt}};
  };
  const std::vector<Items> runs = {{item(0, -1), item(0, -1), item(90, 0)},
                                   {item(40, 0)},
                                   {item(128, 1), item(128, 0)},
                                   {item(150, 2), item(150, 0)},
                                   {item(330, 0), item(330, 5), item(330, 1)},
                                   {item(512, 7), item(512, 3)}};
  for (const Items& items : runs) {
    for (unsigned seed = 0; seed < TensorPlanRunner::kOrders + 3; ++seed) {
      const std::string fault = TensorPlanRunner(plan, items).run(seed);
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

TEST_P(TensorCheck, a_plan_has_a_proof_and_runs) {
  const Attention attention(GetParam().causal, GetParam().shape);
  const nvptx::TensorCertificate certificate = check_tensor_plan(attention.plan);
  EXPECT_THAT(certificate.violations, ::testing::IsEmpty());
  EXPECT_THAT(certificate.proved.front(), HasSubstr("ring 0 (k)"));
  EXPECT_EQ(fault_of(attention.plan), "");
}

// ---- mutants

std::string label(const EventNode& node) {
  switch (node.kind) {
    case EventNode::Kind::loop:
      return "loop";
    case EventNode::Kind::condition:
      return "condition";
    case EventNode::Kind::sequence:
      return "value";
    case EventNode::Kind::event:
      break;
  }
  static const char* const kNames[] = {"wait_full", "wait_empty", "load",        "release",        "product",   "wait_products",
                                       "compute",   "narrow",     "finish_sums", "take_registers", "wait_turn", "pass_turn"};
  return kNames[static_cast<int>(node.event.kind)];
}

struct Mutant {
  std::string what, where;
  TensorPlan plan;
};

/// Every way to change one thing in a plan.
class Mutator {
 public:
  explicit Mutator(const TensorPlan& plan) : plan_(plan) {}

  std::vector<Mutant> all() {
    for (const bool consumer : {true, false}) {
      consumer_ = consumer;
      std::vector<std::size_t> path;
      visit(consumer ? plan_.consumer : plan_.producer, path);
    }
    for (std::size_t r = 0; r < plan_.rings.size(); ++r) {
      for (const int change : {-1, 1}) {
        Mutant& mutant = add(change > 0 ? "one slot more" : "one slot less");
        mutant.plan.rings[r].slots += change;
      }
      add("another origin").plan.rings[r].origin.front() = plan_.rings[r].origin.front() + IntExpr(1);
      add("registers or not").plan.rings[r].in_registers = !plan_.rings[r].in_registers;
      Mutant& moved = add("another offset");
      moved.plan.rings[r].offset += 1024;
    }
    for (const auto& [buffer, fragment] : plan_.fragments) {
      if (fragment.columns == 0) add("parts or not").plan.fragments[buffer].lane_sums = !fragment.lane_sums;
    }
    return std::move(mutants_);
  }

 private:
  using Siblings = std::vector<EventNode>;

  Mutant& add(const std::string& what) {
    mutants_.push_back({what, where_, plan_});
    return mutants_.back();
  }

  /// A copy of the plan, and in it the children of the node at `path`.
  Siblings& mutant(const std::string& what, const std::vector<std::size_t>& path) {
    Mutant& copy = add(what);
    EventNode* node = consumer_ ? &copy.plan.consumer : &copy.plan.producer;
    for (const std::size_t k : path) node = &node->children[k];
    return node->children;
  }

  void visit(const EventNode& node, std::vector<std::size_t>& path) {
    for (std::size_t k = 0; k < node.children.size(); ++k) {
      const EventNode& child = node.children[k];
      const std::string name = label(child);
      where_ = fmt::format("{}{} {}", consumer_ ? "c" : "p", fmt::join(path, "."), k);
      const auto at = static_cast<std::ptrdiff_t>(k);
      Siblings& dropped = mutant("drop " + name, path);
      dropped.erase(dropped.begin() + at);
      Siblings& repeated = mutant("repeat " + name, path);
      repeated.insert(repeated.begin() + at, child);
      if (k + 1 < node.children.size()) {
        Siblings& swapped = mutant(fmt::format("{} after {}", name, label(node.children[k + 1])), path);
        std::swap(swapped[k], swapped[k + 1]);
      }
      child.kind == EventNode::Kind::event ? change_event(child.event, path, k) : change_node(child, path, k);
      path.push_back(k);
      visit(child, path);
      path.pop_back();
    }
  }

  void change_event(const Event& event, const std::vector<std::size_t>& path, std::size_t k) {
    if (event.kind == Kind::wait_products) {
      mutant("wait for one product less", path)[k].event.count += 1;
      if (event.count > 0) mutant("wait for one product more", path)[k].event.count -= 1;
    }
    if (event.ring >= 0) {
      for (int ring = 0; ring < static_cast<int>(plan_.rings.size()); ++ring) {
        if (ring != event.ring) mutant("another ring", path)[k].event.ring = ring;
      }
    }
    if (event.kind == Kind::product || event.kind == Kind::compute || event.kind == Kind::narrow) {
      for (const int op : {event.op - 1, event.op + 1}) mutant("another op", path)[k].event.op = op;
    }
  }

  void change_node(const EventNode& node, const std::vector<std::size_t>& path, std::size_t k) {
    for (const int change : {-1, 1}) {
      if (node.kind == EventNode::Kind::loop) {
        mutant("another end", path)[k].upper = node.upper + IntExpr(change);
        mutant("another start", path)[k].lower = node.lower + IntExpr(change);
      }
      if (node.kind == EventNode::Kind::sequence && !node.var.empty())
        mutant("another value", path)[k].lower = node.lower + IntExpr(change);
    }
    if (node.kind != EventNode::Kind::condition) return;
    mutant("the opposite condition", path)[k].condition = IntExpr::make(IntOp::logical_not, {node.condition});
    mutant("no condition", path)[k].kind = EventNode::Kind::sequence;
  }

  const TensorPlan& plan_;
  bool consumer_ = true;
  std::string where_;
  std::vector<Mutant> mutants_;
};

/// What a mutant is when it is run, as far as that can show.
std::string fault_of_mutant(const TensorPlan& plan) {
  try {
    return fault_of(plan);
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Mutants that mean the same, and have a proof. "x after y": x and y, which came next, have changed places.
const std::map<std::string, std::string>& harmless() {
  static const std::map<std::string, std::string> kReasons = {
      {"compute after compute", "ops on different tiles"},
      {"compute after narrow", "an op on another tile than the operand's source"},
      {"compute after wait_products", "the products that end write other tiles"},
      {"narrow after wait_full", "waiting for a tile touches no fragment"},
      {"wait_full after compute", "waiting for a tile touches no fragment"},
      {"wait_full after narrow", "waiting for a tile touches no fragment"},
      {"release after compute", "a tile is released later"},
      {"release after finish_sums", "a tile is released later"},
      {"release after release", "tiles of different rings"},
      {"one slot less", "one slot is enough; its memory lies idle"},
      {"repeat wait_products", "the second wait finds nothing under way"},
      {"wait for one product more", "a longer wait"},
      {"pass_turn after wait_products", "a turn is passed on later"},
      {"value after pass_turn", "a turn is passed on earlier"},
      {"product after pass_turn", "a turn is passed on earlier"},
      {"wait_turn after wait_full", "a turn is waited for later"},
      {"wait_turn after product", "a turn is waited for later"},
  };
  return kReasons;
}

/// Mutants without a proof though none of their runs goes wrong: what the proof asks beyond that.
const std::map<std::string, std::string>& stricter() {
  static const std::map<std::string, std::string> kReasons = {
      {"another offset", "slots overlap: runs here have no memory"},
      {"one slot more", "slots overlap: runs here have no memory"},
      {"registers or not", "where an operand lies: runs here have no memory"},
      {"another ring", "a wait for a slot that is known to be free"},
      {"drop wait_empty", "a wait for a slot that is known to be free"},
      {"load after wait_empty", "a load follows its own wait"},
      {"load after value", "a load follows its own wait"},
      {"wait_empty after load", "a load follows its own wait"},
      {"repeat wait_empty", "waits alternate with loads"},
      {"repeat wait_full", "waits alternate with releases"},
      {"repeat take_registers", "a tile is taken once"},
      {"repeat compute", "an op runs once an iteration"},
      {"repeat narrow", "an op runs once an iteration"},
      {"repeat product", "an op runs once an iteration"},
      {"another value", "an op runs at its own iteration, even where no mask tells them apart"},
  };
  return kReasons;
}

TEST_P(TensorCheck, no_mutant_that_goes_wrong_has_a_proof) {
  const Attention attention(GetParam().causal, GetParam().shape);
  int wrong = 0;
  for (const Mutant& mutant : Mutator(attention.plan).all()) {
    const bool accepted = check_tensor_plan(mutant.plan).violations.empty();
    const std::string fault = fault_of_mutant(mutant.plan);
    wrong += fault.empty() ? 0 : 1;
    if (accepted) {
      EXPECT_EQ(fault, "") << mutant.what << " at " << mutant.where;
      EXPECT_EQ(harmless().count(mutant.what), 1U) << mutant.what << " at " << mutant.where;
    } else if (fault.empty()) {
      EXPECT_EQ(stricter().count(mutant.what), 1U) << mutant.what << " at " << mutant.where;
    }
  }
  EXPECT_GT(wrong, 200);
}

}  // namespace
}  // namespace nestor::testing
