// Order: accesses of different threads to one element of memory, one of them a write, and the barriers between them; points of one op, and
// blocks of the grid.
#include "codegen/gpu/simt/proof/block_meet.h"

#include <fmt/ranges.h>

#include <deque>
#include <set>

namespace nestor::nvptx {
namespace {

using Rows = Toucher::Rows;
using Columns = Toucher::Columns;

/// An access to shared or global memory: of an element, or anywhere within bytes of shared memory.
struct ThreadAccess {
  Toucher who;                      ///< `access` null: bytes alone
  std::int64_t low = 0, high = -1;  ///< bytes of shared memory; none in global memory
  bool shared() const { return high >= low; }
  bool writes() const { return who.writes; }
};

/// What an op touches between two barriers of its own.
using Phase = std::vector<ThreadAccess>;

/// The phases of an op, as the emitter runs them.
struct OpEvents {
  bool starts_with_barrier = false, ends_with_barrier = false;
  std::vector<Phase> phases;
};

class EventMaker {
 public:
  EventMaker(const BlockProof& proof, const OpSite& site) : proof_(proof), site_(site), op_(proof.op(site.op)) {}

  OpEvents make() {
    OpEvents events;
    events.starts_with_barrier = op_.barrier_before;
    if (op_.product) return product(std::move(events));
    const bool in_registers = proof_.plan.in_registers(op_.op.write);
    const bool combines = op_.reduces_columns() || op_.crosses_groups() || op_.prefix;
    Phase parts, results;
    const Rows rows = rows_of(!in_registers && !combines);
    for (const TileAccess& read : op_.op.reads) {
      add(parts, read, false, op_.divides() ? Rows::all : rows, columns_of(op_.column, !in_registers && !combines));
    }
    add_result(results, in_registers);
    const bool meets = (op_.crosses_warps() && proof_.plan.cluster == 1) || op_.prefix_crosses_warps() ||
                       (op_.crosses_groups() && op_.group_partials() > 1);
    if (!meets) {
      parts.insert(parts.end(), results.begin(), results.end());
      events.phases = {std::move(parts)};
      return events;
    }
    add_bytes(parts, op_.partials_offset, proof_.plan.partials_bytes(op_), true);
    add_bytes(results, op_.partials_offset, proof_.plan.partials_bytes(op_), false);
    events.ends_with_barrier = (op_.crosses_warps() && !op_.unroll_rows && !op_.rows.empty()) ||
                               (op_.prefix_crosses_warps() && !(op_.prefix_in_one_pass() && op_.rows.empty()));
    events.phases = {std::move(parts), std::move(results)};
    return events;
  }

 private:
  Rows rows_of(bool owner_only) const {
    if (!op_.rows.empty()) return Rows::by_row;
    return owner_only ? Rows::first : Rows::all;
  }
  Columns columns_of(int column, bool owner_only) const {
    if (column >= 0) return Columns::by_column;
    return owner_only ? Columns::first : Columns::all;
  }

  void add(Phase& phase, const TileAccess& access, bool writes, Rows rows, Columns columns, bool kept_only = false) const {
    const Placement* place = proof_.plan.placement(access.buffer);
    if (place != nullptr && place->kind == Placement::Kind::registers) return;
    ThreadAccess touch;
    touch.who = {&site_, &access, writes, rows, columns, kept_only};
    if (place != nullptr && place->kind == Placement::Kind::shared) {
      touch.low = place->offset;
      touch.high = place->offset + place->bytes - 1;
    }
    phase.push_back(touch);
  }

  void add_bytes(Phase& phase, std::int64_t offset, std::int64_t bytes, bool writes) const {
    ThreadAccess touch;
    touch.who = {&site_, nullptr, writes, Rows::all, Columns::any, false};
    touch.low = offset;
    touch.high = offset + bytes - 1;
    phase.push_back(touch);
  }

  /// The write, and the value that a sum goes on from, by the thread that has the element.
  void add_result(Phase& phase, bool in_registers) const {
    const bool reduced_column = op_.column >= 0 && proof_.dim(op_, op_.column).reduced;
    const bool accumulates = op_.stores_sums();
    const Rows rows = rows_of(!in_registers);
    const Columns columns = columns_of(reduced_column ? -1 : op_.column, !in_registers);
    add(phase, op_.op.write, true, rows, columns, accumulates);
    if (op_.op.reduction && !op_.op.initialize) add(phase, op_.op.write, false, rows, columns, accumulates);
  }

  OpEvents product(OpEvents events) const {
    const ProductPlan& product = *op_.product;
    const bool staged = !(product.a_direct && product.b_direct);
    Phase copies, steps;
    for (int k = 0; k < static_cast<int>(op_.op.reads.size()); ++k) {
      const bool staged_operand = (k == product.form.a && !product.a_direct) || (k == product.form.b && !product.b_direct);
      add(staged_operand ? copies : steps, op_.op.reads[k], false, Rows::all, Columns::any);
    }
    for (const bool writes : {true, false}) {
      Phase& phase = writes ? copies : steps;
      if (!product.a_direct) add_bytes(phase, product.a_offset, product.a_bytes(op_.layout), writes);
      if (!product.b_direct) add_bytes(phase, product.b_offset, product.b_bytes(op_.layout), writes);
    }
    Phase results;
    add(results, op_.op.write, true, Rows::by_row, Columns::by_column, true);
    if (!op_.op.initialize) add(results, op_.op.write, false, Rows::by_row, Columns::by_column, true);
    steps.insert(steps.end(), results.begin(), results.end());
    if (!staged) {
      events.phases = {std::move(steps)};
      return events;
    }
    events.starts_with_barrier = true;
    events.phases = {std::move(copies), std::move(steps)};
    return events;
  }

  const BlockProof& proof_;
  const OpSite& site_;
  const BlockOp& op_;
};

/// A touch since the last barrier on some path.
struct Waiting {
  const ThreadAccess* touch = nullptr;
  const BlockNode* carried = nullptr;  ///< outermost loop whose way back was taken since
  bool operator==(const Waiting& other) const = default;
};

class OrderProver {
 public:
  explicit OrderProver(BlockProof& proof) : proof_(proof), events_(proof.plan.ops.size()) {
    for (const OpSite& site : proof.sites) events_[site.op] = EventMaker(proof, site).make();
  }

  void run() {
    points();
    blocks();
    std::vector<Waiting> waiting;
    visit(proof_.plan.root, waiting, nullptr);
  }

 private:
  using State = std::vector<Waiting>;

  // ---- within an op, between blocks

  /// Points of one op that differ in rows or columns.
  void points() {
    for (const OpSite& site : proof_.sites) {
      const BlockOp& op = proof_.op(site.op);
      if (proof_.plan.in_registers(op.op.write)) continue;
      const bool accumulates = op.op.reduction && op.op.kind != OpKind::points;
      const Toucher write{&site, &op.op.write, true, Rows::by_row, Columns::by_column, op.stores_sums()};
      ask({&write, &write, Meeting::Apart::point, site.around.size(), nullptr}, "two points of");
      for (const TileAccess& access : op.op.reads) {
        if (access.buffer != op.op.write.buffer) continue;
        const Toucher read{&site, &access, false, Rows::by_row, Columns::by_column, false};
        // A sum is written when all its points have been read.
        const auto apart = accumulates ? Meeting::Apart::nothing : Meeting::Apart::point;
        ask({&write, &read, apart, site.around.size(), nullptr}, "two points of");
      }
    }
  }

  /// Blocks of the grid, or work tiles of resident ones.
  void blocks() {
    if (proof_.plan.kernel->grid.empty()) return;
    std::vector<Toucher> all;
    for (const OpSite& site : proof_.sites) {
      const BlockOp& op = proof_.op(site.op);
      const auto add = [&](const TileAccess& access, bool writes) {
        if (proof_.plan.buffer(access.buffer).memory != Memory::scratch)
          all.push_back({&site, &access, writes, Rows::all, Columns::all, false});
      };
      add(op.op.write, true);
      for (const TileAccess& read : op.op.reads) add(read, false);
    }
    for (std::size_t k = 0; k < all.size(); ++k) {
      for (std::size_t other = k; other < all.size(); ++other) {
        const Toucher &a = all[k], &b = all[other];
        if ((a.writes || b.writes) && a.access->buffer == b.access->buffer)
          ask({&a, &b, Meeting::Apart::block, 0, nullptr}, "two blocks at");
      }
    }
  }

  void ask(const Meeting& meeting, const char* who) {
    const MeetingAnswer answer = can_meet(proof_, meeting);
    if (answer.verdict == MeetingAnswer::Verdict::never) return;
    const std::string &first = proof_.op(meeting.a->site->op).op.name, &second = proof_.op(meeting.b->site->op).op.name;
    const std::string ops = first == second ? first : first + " and " + second;
    const std::string element = describe(*meeting.a->access);
    if (answer.verdict == MeetingAnswer::Verdict::meet)
      return proof_.fail("{} {} touch {}, one of them writing, where {}", who, ops, element, answer.example);
    proof_.leave_open("{} {} may touch {}, one of them writing", who, ops, element);
  }

  std::string describe(const TileAccess& access) const {
    std::vector<std::string> index;
    for (const IntExpr& part : access.index) index.push_back(part.str());
    return fmt::format("{}[{}]", proof_.name(access), fmt::join(index, ", "));
  }

  // ---- between ops

  /// `again`: only what waits since then is looked at, at a later iteration of that loop.
  void visit(const BlockNode& node, State& state, const BlockNode* again) {
    if (node.kind == TileNode::Kind::op) return visit_op(node.op, state, again);
    if (node.kind == TileNode::Kind::condition) {
      State inside = state;
      visit_children(node, inside, again);
      return merge(state, inside);
    }
    if (!is_loop(node)) return visit_children(node, state, again);
    visit_loop(node, state, again);
  }

  void visit_children(const BlockNode& node, State& state, const BlockNode* again) {
    for (const BlockNode& child : node.children) visit(child, state, again);
  }

  void visit_loop(const BlockNode& node, State& state, const BlockNode* again) {
    State inside = state;
    visit_children(node, inside, again);
    if (again == nullptr) {
      State later;
      for (const Waiting& waiting : inside) {
        // Other iterations of a loop over work tiles are other blocks' work, which blocks() has looked at; shared memory is this block's own.
        if (!lies_within(waiting, node) || (node.independent && !waiting.touch->shared())) continue;
        merge(later, {{waiting.touch, &node}});
      }
      visit_children(node, later, &node);
    }
    merge(state, inside);
  }

  static bool lies_within(const Waiting& waiting, const BlockNode& loop) {
    const auto& around = waiting.touch->who.site->around;
    return std::find(around.begin(), around.end(), &loop) != around.end();
  }

  static void merge(State& into, const State& from) {
    for (const Waiting& waiting : from) {
      if (std::find(into.begin(), into.end(), waiting) == into.end()) into.push_back(waiting);
    }
  }

  void visit_op(int op, State& state, const BlockNode* again) {
    const OpEvents& events = events_[op];
    if (events.starts_with_barrier) state.clear();
    for (std::size_t k = 0; k < events.phases.size(); ++k) {
      if (k > 0) state.clear();
      for (const ThreadAccess& touch : events.phases[k]) {
        for (const Waiting& waiting : state) check(waiting, touch);
      }
      if (again != nullptr) continue;
      for (const ThreadAccess& touch : events.phases[k]) merge(state, {{&touch, nullptr}});
    }
    if (events.ends_with_barrier) state.clear();
  }

  void check(const Waiting& before, const ThreadAccess& now) {
    const ThreadAccess& first = *before.touch;
    if ((!first.writes() && !now.writes()) || first.shared() != now.shared()) return;
    if (first.shared() && (first.high < now.low || now.high < first.low)) return;
    const bool elements =
        first.who.access != nullptr && now.who.access != nullptr && first.who.access->buffer == now.who.access->buffer;
    if (!first.shared() && !elements) return;
    if (!elements) return missing(first, now, "");
    Meeting meeting{&first.who, &now.who, Meeting::Apart::thread, common_nodes(*first.who.site, *now.who.site), before.carried};
    if (before.carried != nullptr) {
      const auto& around = first.who.site->around;
      meeting.shared = static_cast<std::size_t>(std::find(around.begin(), around.end(), before.carried) - around.begin());
    }
    if (!asked_.insert({&first, &now, before.carried}).second) return;
    const MeetingAnswer answer = can_meet(proof_, meeting);
    if (answer.verdict == MeetingAnswer::Verdict::never) return;
    if (answer.verdict == MeetingAnswer::Verdict::meet) return missing(first, now, answer.example);
    proof_.leave_open("{}, then {}: {} may be touched by different threads without a barrier between", op_name(first),
                      op_name(now), describe(*now.who.access));
  }

  const std::string& op_name(const ThreadAccess& touch) const { return proof_.op(touch.who.site->op).op.name; }

  void missing(const ThreadAccess& first, const ThreadAccess& now, const std::string& example) {
    const std::string place = now.who.access != nullptr ? describe(*now.who.access) : fmt::format("bytes from {}", now.low);
    proof_.fail("no barrier between {} and {} for {}{}", op_name(first), op_name(now), place,
                example.empty() ? "" : " where " + example);
  }

  BlockProof& proof_;
  std::vector<OpEvents> events_;
  std::set<std::tuple<const ThreadAccess*, const ThreadAccess*, const BlockNode*>> asked_;
};

}  // namespace

void prove_order(BlockProof& proof) { OrderProver(proof).run(); }

}  // namespace nestor::nvptx
