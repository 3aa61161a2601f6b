// What each role of a tensor plan does, in order: the ops, and every wait and arrival that their operands ask for.
#include "codegen/gpu/mma/pipeline/pipeline_passes.h"

#include "codegen/gpu/mma/pipeline/early_release.h"
#include "codegen/gpu/mma/pipeline/in_flight.h"
#include "codegen/gpu/mma/pipeline/tensor_chains.h"
#include "codegen/gpu/mma/plan/tensor_ranges.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/error.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;

EventNode loop_node(const std::string& var, const IntExpr& lower, const IntExpr& upper, bool masked,
                    std::vector<EventNode> body) {
  EventNode node;
  node.kind = EventNode::Kind::loop;
  node.var = var;
  node.lower = lower;
  node.upper = upper;
  node.masked = masked;
  node.children = std::move(body);
  return node;
}

/// The body with `var` standing for `value`.
EventNode at_value(const std::string& var, const IntExpr& value, bool masked, std::vector<EventNode> body) {
  EventNode node;
  node.var = var;
  node.lower = value;
  node.masked = masked;
  node.children = std::move(body);
  return node;
}

/// Runs its children where the stretch has an iteration.
EventNode if_any(const Stretch& stretch) {
  EventNode node;
  node.kind = EventNode::Kind::condition;
  node.condition = IntExpr::make(IntOp::gt, {stretch.upper, stretch.lower});
  return node;
}

class EventPlanner {
 public:
  EventPlanner(TensorPlan& plan, const TileTree& tree) : plan_(plan), tree_(tree), held_(plan) {}

  void run() {
    mark_streamed(tree_, {});
    mark_late();
    next_ = 0;
    consumer(tree_, plan_.consumer.children);
    surround_work_tile();
    if (plan_.dynamic_scheduler()) draw_work_tile();
    if (plan_.ping_pong_tiles()) take_turns();
    produce(plan_.consumer, plan_.producer.children);
  }

 private:
  // ---- what is loaded when
  void mark_streamed(const TileTree& tree, std::vector<std::string> loops) {
    if (tree->kind == TileNode::Kind::loop) {
      if (tree->step != 1)
        user_error("Kernel '{}' cannot use tensor cores: loop {} has step {}.", plan_.program->name, tree->var, tree->step);
      loops.push_back(tree->var);
      if (loops.size() > 1)
        user_error("Kernel '{}' cannot use tensor cores: loop {} stands inside another one.", plan_.program->name, tree->var);
    }
    if (tree->kind == TileNode::Kind::op) {
      const TensorOp& op = plan_.ops[static_cast<std::size_t>(next_++)];
      for (const int ring : {op.a_ring, op.b_ring}) {
        if (ring < 0) continue;
        CircularBuffer& info = plan_.circular_buffers[static_cast<std::size_t>(ring)];
        for (const IntExpr& index : info.origin) {
          info.streamed =
              info.streamed || std::any_of(loops.begin(), loops.end(), [&](const std::string& loop) { return index.uses(loop); });
        }
        if (!info.streamed) info.stages = 1;
        info.in_registers = !info.streamed && ring == op.a_ring && !op.a_by_row && plan_.kernel->shape.a_from_registers != 0;
      }
    }
    for (const TileTree& child : tree->children) mark_streamed(child, loops);
  }

  /// Products that may be left to the next iteration, unless something behind them in their own uses the result (is_used_after).
  void mark_late() {
    if (plan_.kernel->shape.intra_warpgroup_overlap == 0) return;
    for (std::size_t k = 0; k < plan_.ops.size(); ++k) {
      TensorOp& op = plan_.ops[k];
      if (op.kind != TensorOp::Kind::product || op.op.initialize || op.a_ring >= 0) continue;
      op.late = true;
    }
  }

  // ---- the consumers' program
  void consumer(const TileTree& tree, std::vector<EventNode>& out) {
    switch (tree->kind) {
      case TileNode::Kind::op: {
        InFlight in_flight(plan_, held_, out);
        run_op(next_++, in_flight, out);
        in_flight.settle_all();
        return;
      }
      case TileNode::Kind::loop:
        return stream(tree, out);
      default:
        for (const TileTree& child : tree->children) consumer(child, out);
    }
  }

  void run_op(int k, InFlight& in_flight, std::vector<EventNode>& out) {
    const TensorOp& op = plan_.ops[static_cast<std::size_t>(k)];
    if (op.kind == TensorOp::Kind::product) {
      if (op.a_ring < 0) {
        in_flight.settle(op.op.reads[static_cast<std::size_t>(op.form.a)].buffer);
        out.push_back(event_node(Kind::narrow, k));
      }
      return issue(k, in_flight, out);
    }
    settle_reads(op, in_flight);
    for (const TileAccess& read : op.op.reads) quad_reduction(op, read.buffer, out);
    for (const auto& [read, ring] : op.read_rings) out.push_back(event_node(Kind::wait_full, k, ring));
    out.push_back(event_node(Kind::compute, k));
    for (const auto& [read, ring] : op.read_rings) out.push_back(event_node(Kind::release, k, ring));
  }

  void settle_reads(const TensorOp& op, InFlight& in_flight) {
    in_flight.settle(op.op.write.buffer);
    for (const TileAccess& read : op.op.reads) in_flight.settle(read.buffer);
  }

  /// A sum that is still in lanes is added up for any reader that does more than scale it.
  void quad_reduction(const TensorOp& op, int buffer, std::vector<EventNode>& out) {
    const auto found = plan_.fragments.find(buffer);
    if (found == plan_.fragments.end() || !found->second.thread_sums || op.op.write.buffer == buffer ||
        finished_.count(buffer) != 0)
      return;
    finished_.insert(buffer);
    out.push_back(event_node(Kind::quad_reduction, -1, buffer));
  }

  void issue(int k, InFlight& in_flight, std::vector<EventNode>& out) {
    for (const int ring : held_.of(k)) {
      if (held_.take(ring)) out.push_back(event_node(Kind::wait_full, k, ring));
    }
    out.push_back(event_node(Kind::product, k));
    in_flight.start(k);
  }

  void stream(const TileTree& loop, std::vector<EventNode>& out) {
    constexpr int kUnroll = 2;
    unroll_ = loop->loop_kind != LoopKind::unroll ? 1 : loop->factor == 0 ? kUnroll : static_cast<int>(loop->factor);
    std::vector<int> ops;
    count_ops(loop, ops);
    const VisitedLoop* visited = plan_.visited_loop(loop->var);
    const std::vector<Stretch> stretches =
        visited != nullptr ? std::vector{Stretch{IntExpr(0), IntExpr::variable(visited->count)}} : stretches_of(plan_, *loop);
    // A stretch would have to end its own products before the next one: they run as without overlap.
    for (const int k : ops) plan_.ops[static_cast<std::size_t>(k)].late &= stretches.size() == 1 && !is_used_after(k, ops);
    const bool late = std::any_of(ops.begin(), ops.end(), [&](int k) { return plan_.ops[static_cast<std::size_t>(k)].late; });
    if (stretches.size() == 1 && are_sums_from_memory(ops)) return pipelined(loop->var, stretches.front(), ops, out);
    if (late && visited == nullptr && plan_.kernel->shape.intra_warpgroup_overlap > 1)
      return chained(loop->var, stretches.front(), ops, out);
    if (late) return overlapped(loop->var, stretches.front(), ops, out);
    const auto body = [&](bool /*masked*/) {
      std::vector<EventNode> events;
      InFlight in_flight(plan_, held_, events);
      bool waited = false;
      for (std::size_t j = 0; j < ops.size(); ++j) {
        const bool product = plan_.ops[static_cast<std::size_t>(ops[j])].kind == TensorOp::Kind::product;
        if (plan_.ping_pong() && !waited && product) events.push_back(event_node(Kind::wait_turn, -1));
        run_op(ops[j], in_flight, events);
        if (plan_.ping_pong() && !waited && product) events.push_back(event_node(Kind::pass_turn, -1));
        waited = waited || product;
      }
      in_flight.settle_all();
      return events;
    };
    for (const Stretch& stretch : stretches) ranges(loop->var, stretch, stretch.lower, ops, body, out);
  }

  /// Whether an op behind op k in its iteration touches what op k writes.
  bool is_used_after(int k, const std::vector<int>& ops) const {
    const int result = plan_.ops[static_cast<std::size_t>(k)].op.write.buffer;
    return std::any_of(ops.begin(), ops.end(), [&](int other) {
      const TileOp& op = plan_.ops[static_cast<std::size_t>(other)].op;
      return other > k &&
             (op.write.buffer == result ||
              std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == result; }));
    });
  }

  /// Nothing but products that add up tiles from memory, whose tiles may be kept for an iteration more.
  bool are_sums_from_memory(const std::vector<int>& ops) const {
    const auto streams = [&](int ring) {
      return ring >= 0 && plan_.circular_buffers[static_cast<std::size_t>(ring)].streamed &&
             plan_.circular_buffers[static_cast<std::size_t>(ring)].stages > 1;
    };
    return plan_.kernel->shape.intra_warpgroup_overlap > 0 && plan_.cores == TensorCores::wgmma &&
           std::all_of(ops.begin(), ops.end(), [&](int k) {
             const TensorOp& op = plan_.ops[static_cast<std::size_t>(k)];
             return op.kind == TensorOp::Kind::product && !op.op.initialize && streams(op.a_ring) && streams(op.b_ring);
           });
  }

  /// Each iteration issues its products before it waits for those of the one before, so that tensor cores never run out of work.
  void pipelined(const std::string& var, const Stretch& stretch, const std::vector<int>& ops, std::vector<EventNode>& out) {
    std::vector<int> circular_buffers;
    const auto issue_all = [&](std::vector<EventNode>& events) {
      circular_buffers.clear();
      for (const int k : ops) {
        for (const int ring : held_.of(k)) {
          if (std::find(circular_buffers.begin(), circular_buffers.end(), ring) != circular_buffers.end()) continue;
          circular_buffers.push_back(ring);
          events.push_back(event_node(Kind::wait_full, k, ring));
        }
        events.push_back(event_node(Kind::product, k));
      }
    };
    const auto each_ring = [&](Kind kind, std::vector<EventNode>& events) {
      for (const int ring : circular_buffers) events.push_back(event_node(kind, -1, ring));
    };
    EventNode whole = if_any(stretch);
    std::vector<EventNode> first;
    issue_all(first);
    each_ring(Kind::next_tile, first);
    whole.children.push_back(at_value(var, stretch.lower, true, std::move(first)));
    const auto body = [&](bool /*masked*/) {
      std::vector<EventNode> events;
      if (plan_.ping_pong()) events.push_back(event_node(Kind::wait_turn, -1));
      issue_all(events);
      if (plan_.ping_pong()) events.push_back(event_node(Kind::pass_turn, -1));
      events.push_back(event_node(Kind::wait_products, -1, -1, static_cast<int>(ops.size())));
      each_ring(Kind::release, events);
      each_ring(Kind::next_tile, events);
      return events;
    };
    ranges(var, stretch, stretch.lower + IntExpr(1), ops, body, whole.children);
    whole.children.push_back(event_node(Kind::wait_products, -1, -1, 0));
    each_ring(Kind::release, whole.children);
    out.push_back(std::move(whole));
  }

  /// The first iteration without its late products; then iterations that issue their own products and the late ones of the iteration
  /// before at once; then the last late ones.
  void overlapped(const std::string& var, const Stretch& stretch, const std::vector<int>& ops, std::vector<EventNode>& out) {
    std::vector<int> early, late;
    for (const int k : ops) (plan_.ops[static_cast<std::size_t>(k)].late ? late : early).push_back(k);
    EventNode whole = if_any(stretch);
    std::vector<EventNode> first;
    {
      InFlight in_flight(plan_, held_, first);
      for (const int k : early) run_op(k, in_flight, first);
      in_flight.settle_all();
      for (const int k : late) first.push_back(event_node(Kind::narrow, k));
    }
    whole.children.push_back(at_value(var, stretch.lower, true, std::move(first)));
    const std::vector<int> order = late_readers_last(plan_, early, late);
    const auto body = [&](bool /*masked*/) {
      std::vector<EventNode> events;
      InFlight in_flight(plan_, held_, events);
      std::size_t at = 0;
      if (plan_.ping_pong()) events.push_back(event_node(Kind::wait_turn, -1));
      for (; at < order.size() && leads(plan_.ops[static_cast<std::size_t>(order[at])]); ++at)
        issue(order[at], in_flight, events);
      std::vector<EventNode> before;  // of the iteration before
      for (const int k : late) issue(k, in_flight, before);
      events.push_back(at_value(var, IntExpr::variable(var) - IntExpr(1), true, std::move(before)));
      if (plan_.ping_pong()) events.push_back(event_node(Kind::pass_turn, -1));
      for (; at < order.size(); ++at) run_op(order[at], in_flight, events);
      in_flight.settle_all();
      if (plan_.kernel->shape.early_release != 0 && plan_.cores == TensorCores::wgmma) release_early(plan_, events);
      for (const int k : late) events.push_back(event_node(Kind::narrow, k));
      return events;
    };
    ranges(var, stretch, stretch.lower + IntExpr(1), ops, body, whole.children);
    std::vector<EventNode> last;
    {
      InFlight in_flight(plan_, held_, last);
      for (const int k : late) issue(k, in_flight, last);
      in_flight.settle_all();
    }
    whole.children.push_back(at_value(var, stretch.upper - IntExpr(1), true, std::move(last)));
    out.push_back(std::move(whole));
  }

  // ---- chain by chain
  /// What one chain computes of an iteration, beside products of others.
  struct Phase {
    int chain = 0;
    IntExpr at;  ///< iteration
    bool masked = true;
    // Products issued at first: chain (-1: none) and iteration.
    int late = -1, next = -1;
    IntExpr late_at, next_at;
  };

  void issue_at(const std::vector<int>& ops, const std::string& var, const IntExpr& at, InFlight& in_flight,
                std::vector<EventNode>& out) {
    std::vector<EventNode> events;
    for (const int k : ops) issue(k, in_flight, events);
    out.push_back(at_value(var, at, true, std::move(events)));
  }

  void phase(const std::vector<Chain>& chains, const std::string& var, const Phase& phase, std::vector<EventNode>& out) {
    const Chain& own = chains[static_cast<std::size_t>(phase.chain)];
    std::vector<EventNode> work = std::exchange(owed_, {});
    InFlight in_flight(plan_, held_, work);
    const bool ahead = phase.next != phase.chain;
    if (plan_.ping_pong()) out.push_back(event_node(Kind::wait_turn, -1));
    // What is needed first is issued first.
    if (!ahead) issue_at(own.leads, var, phase.next_at, in_flight, out);
    if (phase.late >= 0) issue_at(chains[static_cast<std::size_t>(phase.late)].late, var, phase.late_at, in_flight, out);
    if (ahead && phase.next >= 0)
      issue_at(chains[static_cast<std::size_t>(phase.next)].leads, var, phase.next_at, in_flight, out);
    if (plan_.ping_pong()) out.push_back(event_node(Kind::pass_turn, -1));
    for (const int k : own.rest) run_op(k, in_flight, work);
    const bool releases_early = plan_.kernel->shape.early_release != 0 && plan_.cores == TensorCores::wgmma;
    if (releases_early) release_chain_early(plan_, work);
    const auto end = static_cast<std::ptrdiff_t>(work.size());
    in_flight.settle_all();
    if (releases_early && ahead && phase.next >= 0) owe_releases(chains[static_cast<std::size_t>(phase.next)], end, work);
    for (const int k : own.late) work.push_back(event_node(Kind::narrow, k));
    out.push_back(at_value(var, phase.at, phase.masked, std::move(work)));
  }

  /// Releases of tiles that only `next` reads, which computes next, wait for the middle of its exponentials.
  void owe_releases(const Chain& next, std::ptrdiff_t from, std::vector<EventNode>& work) {
    const auto own = [&](const EventNode& node) {
      if (node.event.kind != Kind::release) return false;
      const std::vector<int> readers = held_.readers(node.event.ring);
      return std::all_of(readers.begin(), readers.end(),
                         [&](int k) { return std::find(next.leads.begin(), next.leads.end(), k) != next.leads.end(); });
    };
    const auto owed = std::stable_partition(work.begin() + from, work.end(), [&](const EventNode& node) { return !own(node); });
    owed_.assign(owed, work.end());
    work.erase(owed, work.end());
  }

  /// Chains that do not depend on each other take turns within an iteration: while one computes, the late products of the one before run,
  /// and with two chains under way the first ones of the next, so that no chain waits for products of its own. Nothing is in flight from one
  /// phase to the next.
  void chained(const std::string& var, const Stretch& stretch, const std::vector<int>& ops, std::vector<EventNode>& out) {
    const std::vector<Chain> chains = chains_of(plan_, ops);
    const bool ahead = plan_.kernel->shape.intra_warpgroup_overlap > 2;
    const int last = static_cast<int>(chains.size()) - 1;
    const IntExpr now = IntExpr::variable(var), before = now - IntExpr(1), end = stretch.upper - IntExpr(1);
    // The phase of `chain` at iteration `at`; `later`: the iteration behind it, undefined if there is none.
    const auto phase_of = [&](int chain, const IntExpr& at, const IntExpr& earlier, const IntExpr& later, bool masked) {
      Phase result;
      result.chain = chain;
      result.at = at;
      result.masked = masked;
      result.late = chain > 0 ? chain - 1 : earlier.defined() ? last : -1;
      result.late_at = chain > 0 ? at : earlier;
      result.next = !ahead ? chain : chain < last ? chain + 1 : later.defined() ? 0 : -1;
      result.next_at = !ahead || chain < last ? at : later;
      return result;
    };
    EventNode whole = if_any(stretch);
    std::vector<EventNode>& parts = whole.children;
    if (ahead) {
      std::vector<EventNode> first;
      InFlight in_flight(plan_, held_, first);
      for (const int k : chains.front().leads) issue(k, in_flight, first);
      in_flight.settle_all();
      parts.push_back(at_value(var, stretch.lower, true, std::move(first)));
    }
    // An iteration of the loop begins behind the first chain's phase where that has been peeled off, else with it.
    for (int c = 0; c <= (ahead ? 0 : last); ++c) phase(chains, var, phase_of(c, stretch.lower, {}, {}, true), parts);
    const auto body = [&](bool masked) {
      std::vector<EventNode> events;
      for (int c = 1; ahead && c <= last; ++c) phase(chains, var, phase_of(c, before, {}, now, masked), events);
      for (int c = 0; c <= (ahead ? 0 : last); ++c) phase(chains, var, phase_of(c, now, before, {}, masked), events);
      return events;
    };
    const std::vector<EventNode> owed = owed_;
    ranges(var, stretch, stretch.lower + IntExpr(1), ops, body, parts, ahead ? 1 : 0);
    owed_ = owed;
    for (int c = 1; ahead && c <= last; ++c) phase(chains, var, phase_of(c, end, {}, {}, true), parts);
    std::vector<EventNode> events;
    InFlight in_flight(plan_, held_, events);
    for (const int k : chains.back().late) issue(k, in_flight, events);
    in_flight.settle_all();
    parts.push_back(at_value(var, end, true, std::move(events)));
    out.push_back(std::move(whole));
  }

  void count_ops(const TileTree& tree, std::vector<int>& ops) {
    if (tree->kind == TileNode::Kind::op) ops.push_back(next_++);
    for (const TileTree& child : tree->children) count_ops(child, ops);
  }

  // ---- iterations with and without tests
  /// `back`: the body computes parts of iterations as far back as so many.
  template <class Body>
  void ranges(const std::string& var, const Stretch& stretch, const IntExpr& from, const std::vector<int>& ops, const Body& body,
              std::vector<EventNode>& out, int back = 0) {
    if (plan_.visited_loop(var) != nullptr) return out.push_back(loop_node(var, from, stretch.upper, true, body(true)));
    for (const TestedRange& part : tested_ranges(plan_, var, stretch, from, ops, back)) {
      out.push_back(loop_node(var, part.from, part.to, part.masked, body(part.masked)));
      if (!part.masked) out.back().unroll = unroll_;
    }
  }

  // ---- operands that stay for the work tile
  void surround_work_tile() {
    std::vector<EventNode> before, after;
    for (int r = 0; r < static_cast<int>(plan_.circular_buffers.size()); ++r) {
      const CircularBuffer& ring = plan_.circular_buffers[static_cast<std::size_t>(r)];
      if (ring.streamed) continue;
      before.push_back(event_node(Kind::wait_full, -1, r));
      if (ring.in_registers) before.push_back(event_node(Kind::take_registers, -1, r));
      (ring.in_registers ? before : after).push_back(event_node(Kind::release, -1, r));
    }
    auto& body = plan_.consumer.children;
    // Stores come last, and need no operand.
    auto end = body.end();
    while (end != body.begin() && is_store(*(end - 1))) --end;
    body.insert(end, after.begin(), after.end());
    body.insert(body.begin(), before.begin(), before.end());
  }

  /// The last thing that a work tile waits for is the number of the next one, so the last that the producer warp does for it is to tell it.
  void draw_work_tile() {
    CircularBuffer ring;
    ring.scheduler = ring.in_registers = true;
    ring.stages = kWorkTileStages;
    const int number = static_cast<int>(plan_.circular_buffers.size());
    plan_.circular_buffers.push_back(std::move(ring));
    for (const Kind kind : {Kind::wait_full, Kind::take_registers, Kind::release})
      plan_.consumer.children.push_back(event_node(kind, -1, number));
  }

  /// A warpgroup has its turn from the first tile of its work tile to the last.
  void take_turns() {
    std::vector<EventNode>& body = plan_.consumer.children;
    const auto last =
        std::find_if(body.rbegin(), body.rend(), [](const EventNode& node) { return contains(node, Kind::wait_full); });
    body.insert(last.base(), event_node(Kind::pass_turn, -1));
    body.insert(body.begin(), event_node(Kind::wait_turn, -1));
  }

  bool is_store(const EventNode& node) const {
    return node.kind == EventNode::Kind::event &&
           (node.event.kind == Kind::quad_reduction ||
            (node.event.kind == Kind::compute &&
             plan_.ops[static_cast<std::size_t>(node.event.op)].kind == TensorOp::Kind::store));
  }

  // ---- the producer's program: the consumers' waits as loads, in the same order
  void produce(const EventNode& node, std::vector<EventNode>& out) const {
    for (const EventNode& child : node.children) produce_node(child, out);
  }

  void produce_node(const EventNode& node, std::vector<EventNode>& out) const {
    if (node.kind == EventNode::Kind::event) {
      if (node.event.kind != Kind::wait_full) return;
      const int ring = node.event.ring;
      EventNode wait = event_node(Kind::wait_empty, node.event.op, ring), load = event_node(Kind::load, node.event.op, ring);
      out.push_back(std::move(wait));
      out.push_back(std::move(load));
      return;
    }
    EventNode copy = node;
    copy.children.clear();
    for (const EventNode& child : node.children) produce_node(child, copy.children);
    if (!copy.children.empty()) out.push_back(std::move(copy));
  }

  TensorPlan& plan_;
  const TileTree& tree_;
  HeldTiles held_;
  std::vector<EventNode> owed_;  ///< releases that the next phase says
  int next_ = 0;
  int unroll_ = 1;  ///< of the loop being planned, where its tiles need no tests
  std::set<int> finished_;
};

}  // namespace

void plan_events(TensorPlan& plan, const TileTree& tree) { EventPlanner(plan, tree).run(); }

}  // namespace nestor::nvptx
