// The proof of a tensor plan: sound plans have one, and of the mutants that have one, none does anything wrong when it is run.
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/mma/pipeline/tensor_roles.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/gpu/mma/tensor_kernel.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_programs.h"
#include "support/tensor/tensor_plan_runner.h"

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

GridShape shape(int warpgroups, int stages) { return {.warpgroups = warpgroups, .stages = stages}; }

struct Case {
  std::string name;
  bool causal;
  GridShape shape;
  int sm = 90;
  bool biased = false;
  int maps = 1;
  std::int64_t shared_limit = NvptxTarget{}.shared_limit;
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

/// Two maps share their values.
TileProgram two_maps(bool causal) {
  const AttentionForm form{.seen = causal ? Seen::causal : Seen::all, .maps = 2};
  return tensor_program(attention_nest(form), {.rules = two_map_rules(), .rows = 64, .warpgroups = 1});
}

/// A plan of attention and what it points to.
struct Attention {
  nvptx::LaunchPlan launches;
  TensorPlan plan;

  explicit Attention(const Case& tested)
      : launches(nvptx::plan_launches(tested.maps == 2
                                          ? two_maps(tested.causal)
                                          : streaming_attention_program(ElementType::f16, 64, tested.causal, tested.biased),
                                      256)) {
    launches.kernels.at(0).shape = tested.shape;
    NvptxTarget target;
    target.sm = tested.sm;
    target.shared_limit = tested.shared_limit;
    plan = nvptx::plan_tensor(launches.kernels[0], launches.program, target);
  }
};

std::vector<Case> cases() {
  GridShape overlap = shape(1, 2);
  overlap.intra_warpgroup_overlap = 1;
  GridShape all = shape(2, 2);
  all.intra_warpgroup_overlap = all.ping_pong = all.a_from_registers = all.persistent = all.early_release =
      all.dynamic_scheduler = 1;
  GridShape turns = shape(2, 1);
  turns.ping_pong = 1;
  std::vector<Case> list;
  for (const bool causal : {false, true}) {
    const std::string kind = causal ? "causal" : "full";
    list.push_back({"base_" + kind, causal, shape(1, 2)});
    list.push_back({"overlap_" + kind, causal, overlap});
    list.push_back({"all_" + kind, causal, all});
  }
  list.push_back({"turns_one_slot", false, turns});
  GridShape resident = shape(2, 2);
  resident.intra_warpgroup_overlap = resident.a_from_registers = resident.persistent = 1;
  GridShape overlap_one = overlap, overlap_three = overlap;
  overlap_one.stages = 1;
  overlap_three.stages = 3;
  list.push_back({"sm80_one_slot", false, shape(2, 1), 80});
  list.push_back({"sm80_overlap_one_slot", false, overlap_one, 80});
  list.push_back({"sm80_overlap_three_slots", false, overlap_three, 80});
  list.push_back({"sm80_resident", true, resident, 80});
  GridShape biased = all;
  biased.early_release = biased.dynamic_scheduler = 0;
  list.push_back({"biased_all_causal", true, biased, 90, true});
  list.push_back({"biased_turns", false, turns, 90, true});
  GridShape cluster = shape(1, 2);
  cluster.cluster = 2;
  list.push_back({"cluster_full", false, cluster});
  cluster = biased;
  cluster.early_release = 1;
  cluster.cluster = 2;
  list.push_back({"cluster_all_causal", true, cluster});
  cluster = shape(1, 1);
  cluster.cluster = 4;
  list.push_back({"cluster_of_four", false, cluster});
  // Without room for results beside the other tiles.
  GridShape narrow = resident;
  narrow.a_from_registers = 0;
  list.push_back({"resident_without_room", false, narrow, 90, false, 1, 56 << 10});
  narrow.ping_pong = narrow.dynamic_scheduler = narrow.early_release = 1;
  list.push_back({"all_without_room_causal", true, narrow, 90, false, 1, 56 << 10});
  list.push_back({"two_maps_turns", false, turns, 90, false, 2});
  for (const int chains : {1, 2}) {
    GridShape by_chain = shape(1, 2), all_by_chain = all;
    by_chain.intra_warpgroup_overlap = all_by_chain.intra_warpgroup_overlap = 1 + chains;
    const std::string name = fmt::format("two_maps_{}_chains", chains);
    list.push_back({name, true, by_chain, 90, false, 2});
    list.push_back({name + "_all", false, all_by_chain, 90, false, 2});
  }
  return list;
}

class TensorCheck : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Attention, TensorCheck, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

/// The plan's first fault over sizes with no, one and many iterations, several work tiles, and orders of the roles.
std::string fault_of(const TensorPlan& plan) {
  using Items = std::vector<TensorPlanRunner::Integers>;
  const auto work_tile = [](std::int64_t s, std::int64_t qt) {
    return TensorPlanRunner::Integers{{"heads", 2}, {"s", s}, {"d", 64}, {"h", 1},     {"qt", qt},
                                      {"H", 2},     {"Q", s}, {"K", s},  {"out_h", 1}, {"out_io", qt}};
  };
  std::vector<Items> runs = {{work_tile(0, -1), work_tile(0, -1), work_tile(90, 0)},
                             {work_tile(40, 0)},
                             {work_tile(128, 1), work_tile(128, 0)},
                             {work_tile(150, 2), work_tile(150, 0)},
                             {work_tile(330, 0), work_tile(330, 5), work_tile(330, 1)},
                             {work_tile(512, 7), work_tile(512, 3)}};
  // Nests have no sizes of 0.
  const std::vector<std::string>& sizes = plan.program->sizes;
  if (std::find(sizes.begin(), sizes.end(), "K") != sizes.end())
    runs.front() = {work_tile(1, 0), work_tile(1, 0), work_tile(90, 0)};
  // A block that is not resident has one work tile. Where one role copies it goes on well with more of them all the same.
  if (plan.cores == nvptx::TensorCores::mma && !plan.persistent()) {
    std::vector<Items> single;
    for (const Items& work_tiles : runs) {
      for (const TensorPlanRunner::Integers& one : work_tiles) single.push_back({one});
    }
    runs = std::move(single);
  }
  const unsigned orders = TensorPlanRunner::kOrders + 3 * static_cast<unsigned>(plan.cluster());
  for (const Items& work_tiles : runs) {
    TensorPlanRunner runner(plan, work_tiles);
    for (unsigned seed = 0; seed < orders; ++seed) {
      const std::string fault = runner.run(seed);
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

TEST_P(TensorCheck, a_plan_has_a_proof_and_runs) {
  const Attention attention(GetParam());
  const nvptx::TensorCertificate certificate = check_tensor_plan(attention.plan);
  EXPECT_THAT(certificate.violations, ::testing::IsEmpty());
  EXPECT_THAT(certificate.proved.front(), HasSubstr("circular buffer 0 (k)"));
  const int blocks = attention.plan.cluster();
  const std::string shared = fmt::format("of {} blocks, each of which copies its share", blocks);
  EXPECT_EQ(certificate.proved.front().find(shared) != std::string::npos, blocks > 1);
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
  return nvptx::name_of(node.event.kind);
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
    for (std::size_t r = 0; r < plan_.circular_buffers.size(); ++r) {
      for (const int change : {-1, 1}) {
        Mutant& mutant = add(change > 0 ? "one stage more" : "one stage less");
        mutant.plan.circular_buffers[r].stages += change;
      }
      if (!plan_.circular_buffers[r].scheduler)
        add("another origin").plan.circular_buffers[r].origin.front() = plan_.circular_buffers[r].origin.front() + IntExpr(1);
      if (plan_.circular_buffers[r].upper.defined()) {
        for (const int change : {-1, 1}) {
          Mutant& mutant = add("another end of copies");
          mutant.plan.circular_buffers[r].upper = plan_.circular_buffers[r].upper + IntExpr(change);
        }
      }
      add("registers or not").plan.circular_buffers[r].in_registers = !plan_.circular_buffers[r].in_registers;
      Mutant& moved = add("another offset");
      moved.plan.circular_buffers[r].offset += 1024;
      if (plan_.cluster() > 1) change_sharing(r);
    }
    if (plan_.cluster() > 1) {
      add("no meeting at the start").plan.cluster_start = false;
      add("no wait at the end").plan.drains = false;
    }
    for (const auto& [buffer, fragment] : plan_.fragments) {
      if (fragment.columns == 0) add("parts or not").plan.fragments[buffer].thread_sums = !fragment.thread_sums;
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

  void change_sharing(std::size_t r) {
    const nvptx::CircularBuffer& ring = plan_.circular_buffers[r];
    for (const int change : {-1, 1}) add("another number of readers").plan.circular_buffers[r].readers += change;
    Mutant& shared = add("shared or not");
    shared.plan.circular_buffers[r].blocks = ring.blocks == 1 ? plan_.cluster() : 1;
    Mutant& both = add("shared or not, and as many readers");
    both.plan.circular_buffers[r].blocks = ring.blocks == 1 ? plan_.cluster() : 1;
    both.plan.circular_buffers[r].readers = plan_.warpgroups * both.plan.circular_buffers[r].blocks;
    add("rows of its own or not").plan.circular_buffers[r].own_index = ring.own_index < 0 ? ring.row_index : -1;
  }

  void change_event(const Event& event, const std::vector<std::size_t>& path, std::size_t k) {
    if (event.kind == Kind::wait_products) {
      mutant("wait for one product less", path)[k].event.count += 1;
      if (event.count > 0) mutant("wait for one product more", path)[k].event.count -= 1;
    }
    if (event.kind == Kind::wait_copies) {
      mutant("wait for one batch less", path)[k].event.count += 1;
      if (event.count > 0) mutant("wait for one batch more", path)[k].event.count -= 1;
    }
    if (event.kind == Kind::load && plan_.cores == nvptx::TensorCores::mma) {
      mutant("copy for a later iteration", path)[k].event.count += 1;
      if (event.count > 0) mutant("copy for an earlier iteration", path)[k].event.count -= 1;
    }
    if ((event.kind == Kind::load || event.kind == Kind::release) && plan_.cluster() > 1) {
      mutant(std::string(nvptx::name_of(event.kind)) + " reaches other blocks", path)[k].event.blocks =
          event.blocks == 1 ? plan_.cluster() : 1;
    }
    if (event.ring >= 0) {
      for (int ring = 0; ring < static_cast<int>(plan_.circular_buffers.size()); ++ring) {
        if (ring != event.ring) mutant("another circular buffer", path)[k].event.ring = ring;
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
      {"compute after wait_full", "the next work tile's number is waited for earlier, or tiles that the op does not read"},
      {"compute after compute", "ops on different tiles"},
      {"compute after narrow", "an op on another tile than the operand's source"},
      {"compute after wait_products", "the products that end write other tiles"},
      {"narrow after wait_full", "waiting for a tile touches no fragment"},
      {"wait_full after compute", "waiting for a tile touches no fragment"},
      {"wait_full after narrow", "waiting for a tile touches no fragment"},
      {"release after compute", "a tile is released later"},
      {"release after quad_reduction", "a tile is released later"},
      {"release after wait_full", "a tile is released later, after the wait for one of another circular buffer"},
      {"release after release", "tiles of different circular buffers"},
      {"one stage less", "one stage is enough; its memory lies idle"},
      {"repeat wait_stores", "nothing leaves by then"},
      {"repeat wait_products", "the second wait finds nothing under way"},
      {"wait for one product more", "a longer wait"},
      {"pass_turn after wait_products", "a turn is passed on later"},
      {"value after pass_turn", "a turn is passed on earlier"},
      {"product after pass_turn", "a turn is passed on earlier"},
      {"product after compute", "an op on other tiles than the product's"},
      {"wait_turn after wait_full", "a turn is waited for later"},
      {"drop wait_products", "another wait follows before anything touches what the products write"},
      {"wait for one product less", "another wait follows before anything touches what the products write"},
      {"wait_products after narrow", "the products that end write other tiles"},
      {"release after narrow", "a tile is released later"},
      {"value after value", "products that end together, in another order"},
      {"quad_reduction after quad_reduction", "sums in different tiles"},
      {"pass_turn after value", "a turn is passed on later"},
      {"wait_turn after value", "a turn is waited for later"},
      {"no condition", "all valid sizes have an iteration"},
      {"wait_turn after product", "a turn is waited for later"},
  };
  return kReasons;
}

/// Mutants without a proof though none of their runs goes wrong: what the proof asks beyond that.
const std::map<std::string, std::string>& stricter() {
  static const std::map<std::string, std::string> kReasons = {
      {"release after compute", "a release in the middle of an op stands before it"},
      {"compute after compute", "a release in the middle of an op stands before it"},
      {"condition after wait_empty", "the stage for the next work tile's number is waited for earlier"},
      {"drop take_registers", "a run here is told its work tiles: it need not read their numbers"},
      {"another offset", "stages overlap: runs here have no memory"},
      {"one stage more", "stages overlap: runs here have no memory"},
      {"registers or not", "where an operand lies: runs here have no memory"},
      {"another circular buffer", "a wait for a stage that is known to be free"},
      {"drop wait_empty", "a wait for a stage that is known to be free"},
      {"load after wait_empty", "a load follows its own wait"},
      {"load after value", "a load follows its own wait"},
      {"value after wait_empty", "a load follows its own wait"},
      {"compute after release", "a tile is read while it is held, even where no other follows it"},
      {"wait_empty after load", "a load follows its own wait"},
      {"repeat wait_empty", "waits alternate with loads"},
      {"repeat wait_full", "waits alternate with releases"},
      {"repeat take_registers", "a tile is taken once"},
      {"repeat compute", "an op runs once an iteration"},
      {"repeat narrow", "an op runs once an iteration"},
      {"repeat product", "an op runs once an iteration"},
      {"another value", "an op runs at its own iteration, even where no mask tells them apart"},
      {"repeat value", "an op runs once an iteration"},
      {"drop wait_products", "nothing is in flight at the end of a block"},
      {"wait for one product less", "nothing is in flight at the end of a block"},
      {"compute after wait_products", "a release in the middle of an op stands before it"},
      {"compute after narrow", "a release in the middle of an op stands before it"},
      {"pass_turn after value", "no tile is released within a turn"},
      {"value after wait_turn", "no tile is released within a turn"},
      {"no condition", "all valid sizes have an iteration"},
      {"value after value", "tiles are copied in the order in which they are waited for"},
      {"wait_full after wait_full", "tiles are copied in the order in which they are waited for"},
  };
  return kReasons;
}

/// The same for copies by all threads, beyond those above.
const std::map<std::string, std::string>& harmless_where_all_copy() {
  static const std::map<std::string, std::string> kReasons = {
      {"another circular buffer", "a copy for an iteration beyond the last one"},
      {"barrier after load", "a copy into a stage that is used for the first time"},
      {"barrier after wait_full", "the barrier before has shown the same"},
      {"commit_copies after compute", "a batch is closed later, and waited for later still"},
      {"commit_copies after value", "a batch is closed later, and waited for later still"},
      {"commit_copies after wait_full", "a batch is closed later, and waited for later still"},
      {"copy for a later iteration", "a copy for an iteration beyond the last one"},
      {"copy for an earlier iteration", "a copy for an iteration beyond the last one"},
      {"drop barrier", "a barrier before a copy for an iteration beyond the last one, or another one has shown the same"},
      {"drop commit_copies", "two batches become one, and no wait leaves any under way"},
      {"drop load", "a copy for an iteration beyond the last one"},
      {"drop wait_copies", "the wait before has left nothing under way"},
      {"load after commit_copies", "a copy joins the next batch, and no wait leaves any under way"},
      {"load after load", "copies to different circular buffers"},
      {"narrow after wait_copies", "a wait touches no fragment"},
      {"release after barrier", "a release before a copy for an iteration beyond the last one"},
      {"repeat barrier", "all threads come to both"},
      {"repeat commit_copies", "a batch of nothing"},
      {"repeat load", "a copy for an iteration beyond the last one"},
      {"repeat wait_copies", "the second wait finds nothing under way"},
      {"wait for one batch more", "a longer wait"},
      {"wait_copies after barrier", "the wait before has left nothing under way"},
      {"wait_full after product", "the product reads another circular buffer"},
      {"wait_full after wait_full", "tiles of different circular buffers"},
  };
  return kReasons;
}

const std::map<std::string, std::string>& stricter_where_all_copy() {
  static const std::map<std::string, std::string> kReasons = {
      {"another end of copies", "a copy that nothing reads"},
      {"barrier after load", "a barrier already stands behind the product, though not behind its release"},
      {"barrier after wait_full", "another barrier follows before the tile is read"},
      {"commit_copies after wait_copies", "another wait follows before the tile is read"},
      {"condition after release", "a tile that stays for the work tile: its stage is filled once"},
      {"copy for a later iteration", "iterations that no run here has"},
      {"copy for an earlier iteration", "iterations that no run here has"},
      {"drop barrier", "another barrier follows before the tile is read or its stage filled"},
      {"drop commit_copies", "another wait follows before the tile is read"},
      {"drop load", "iterations that no run here has"},
      {"drop release", "with one stage, a tile's number plays no part in a run"},
      {"drop wait_copies", "another wait follows before the tile is read"},
      {"drop wait_full", "nothing is done there: it says what the barrier has shown"},
      {"load after commit_copies", "another wait follows before the tile is read"},
      {"loop after release", "a tile that stays for the work tile: its stage is filled once"},
      {"release after barrier", "a barrier already stands behind the product, though not behind its release"},
      {"repeat load", "with one stage, a tile's number plays no part in a run"},
      {"repeat release", "with one stage, a tile's number plays no part in a run"},
      {"repeat value", "with one stage, a tile's number plays no part in a run"},
      {"take_registers after release", "a tile that stays for the work tile: its stage is filled once"},
      {"wait for one batch less", "another wait follows before the tile is read"},
      {"wait_copies after barrier", "another wait follows before the tile is read"},
      {"wait_full after product", "nothing is done there: it says what the barrier has shown"},
      {"wait_full after take_registers", "nothing is done there: it says what the barrier has shown"},
  };
  return kReasons;
}

TEST_P(TensorCheck, no_mutant_that_goes_wrong_has_a_proof) {
  const Attention attention(GetParam());
  const bool all_copy = attention.plan.cores == nvptx::TensorCores::mma;
  const auto known = [&](const auto& reasons, const auto& more, const std::string& what) {
    return reasons.count(what) != 0 || (all_copy && more.count(what) != 0);
  };
  int wrong = 0;
  nvptx::BoundAnswers answers;  // most mutants leave most of the questions as they are
  for (const Mutant& mutant : Mutator(attention.plan).all()) {
    const bool accepted = check_tensor_plan(mutant.plan, answers).violations.empty();
    const std::string fault = fault_of_mutant(mutant.plan);
    wrong += fault.empty() ? 0 : 1;
    if (accepted) {
      EXPECT_EQ(fault, "") << mutant.what << " at " << mutant.where;
      EXPECT_TRUE(known(harmless(), harmless_where_all_copy(), mutant.what)) << mutant.what << " at " << mutant.where;
    } else if (fault.empty()) {
      EXPECT_TRUE(known(stricter(), stricter_where_all_copy(), mutant.what)) << mutant.what << " at " << mutant.where;
    }
  }
  EXPECT_GT(wrong, 150);
}

TEST(TensorProofs, rows_of_a_pack_lie_where_products_read_them) {
  const PlannedTensor planned(
      tensor_program(attention_nest({.depth = 16, .grouped = true}), {.rows = 64, .columns = 32, .warpgroups = 1, .pack = 4}));
  EXPECT_THAT(check_tensor_plan(planned.plan).violations, ::testing::IsEmpty());
  const auto q = static_cast<std::size_t>(&planned.ring("q") - planned.plan.circular_buffers.data());
  for (const int index : {-1, 0, 2, 3}) {
    nvptx::TensorPlan mutant = planned.plan;
    mutant.circular_buffers[q].pack_index = index;
    EXPECT_THAT(check_tensor_plan(mutant).violations,
                ::testing::ElementsAre(::testing::HasSubstr("does not hold the rows of a pack as dot reads them")));
  }
  nvptx::TensorPlan mutant = planned.plan;
  mutant.pack = 2;
  EXPECT_THAT(check_tensor_plan(mutant).violations, ::testing::Not(::testing::IsEmpty()));
}

TEST(TensorProofs, what_earlier_proofs_have_answered_changes_no_verdict) {
  nvptx::BoundAnswers answers;
  for (const Case& tested : cases()) {
    const Attention attention(tested);
    EXPECT_THAT(check_tensor_plan(attention.plan, answers).violations, ::testing::IsEmpty()) << tested.name;
    const std::vector<Mutant> mutants = Mutator(attention.plan).all();
    for (std::size_t k = 0; k < mutants.size(); k += 150) {
      EXPECT_EQ(check_tensor_plan(mutants[k].plan, answers).violations, check_tensor_plan(mutants[k].plan).violations)
          << tested.name << ": " << mutants[k].what << " at " << mutants[k].where;
    }
  }
}

}  // namespace
}  // namespace nestor::testing
