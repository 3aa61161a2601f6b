// Numbers of tiles and the order of accesses, pair by pair, for all trip counts: questions to isl, up to the first that has the wrong answer.
#include "codegen/gpu/mma/proof/tensor_proof.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;

/// A step of a role.
struct StepPlace {
  std::size_t block = 0, at = 0;
};

class TileMatcher {
 public:
  explicit TileMatcher(TensorProof& proof)
      : proof_(proof),
        copier_(proof.copier()),
        loads_(copier_, proof.bounds, [](const Event& event) { return event.kind == Kind::load; }),
        waits_(proof.consumer, proof.bounds, [](const Event& event) { return event.kind == Kind::wait_full; }) {
    for (const OpPlace& place : proof.places) {
      if (place.loop >= 0) loop_vars_.insert(place.var);
    }
  }

  void run() {
    if (proof_.plan.cores == TensorCores::wgmma) {
      if (!same(loads_.total(), waits_.total())) proof_.fail("a work tile does not copy as many tiles as it waits for");
      match_order();
    }
    for (int r = 0; r < static_cast<int>(proof_.plan.circular_buffers.size()); ++r) match_ring(r);
  }

 private:
  BoundSpace& bounds() { return proof_.bounds; }
  bool same(const std::string& a, const std::string& b) {
    return bounds().impossible("", fmt::format("{} < {}", a, b)) && bounds().impossible("", fmt::format("{} > {}", a, b));
  }

  template <class Visit>
  static void each_step(const Role& role, const Visit& visit) {
    for (std::size_t b = 0; b < role.size(); ++b) {
      for (std::size_t s = 0; s < role[b].steps.size(); ++s) visit(StepPlace{b, s}, role[b].steps[s]);
    }
  }

  std::string runs(const StepPlace& load, const StepPlace& reader) {
    return run_of(copier_[load.block], "i", bounds()) + " and " + run_of(proof_.consumer[reader.block], "j", bounds());
  }

  /// The n-th copy is of the circular buffer that is waited for n-th.
  void match_order() {
    each_step(copier_, [&](const StepPlace& load, const RoleStep& loading) {
      if (loading.event.kind != Kind::load) return;
      each_step(proof_.consumer, [&](const StepPlace& wait, const RoleStep& waiting) {
        if (!proof_.violations.empty() || waiting.event.kind != Kind::wait_full || waiting.event.ring == loading.event.ring)
          return;
        const std::string meet = fmt::format("{} and {} = {}", runs(load, wait), loads_.before(load.block, load.at, "i"),
                                             waits_.before(wait.block, wait.at, "j"));
        if (!bounds().impossible("i, j", meet))
          proof_.fail("{} is copied where {} is waited for", proof_.name(loading.event.ring), proof_.name(waiting.event.ring));
      });
    });
  }

  std::set<std::string> loop_vars_of(const CircularBuffer& ring) const {
    std::set<std::string> vars;
    for (const IntExpr& index : ring.origin) {
      for (const std::string& var : loop_vars_) {
        if (index.uses(var)) vars.insert(var);
      }
    }
    return vars;
  }

  bool reads(const Event& event, int ring) const {
    if (event.kind == Kind::take_registers) return event.ring == ring;
    if (event.kind == Kind::compute) {
      const auto& circular_buffers = proof_.op(event.op).read_rings;
      return std::any_of(circular_buffers.begin(), circular_buffers.end(),
                         [&](const auto& entry) { return entry.second == ring; });
    }
    if (event.kind != Kind::product || proof_.ring(ring).in_registers) return false;
    return proof_.op(event.op).a_ring == ring || proof_.op(event.op).b_ring == ring;
  }

  /// Who reads a tile does so at the iteration it was loaded for.
  void match_ring(int ring) {
    const std::set<std::string> vars = loop_vars_of(proof_.ring(ring));
    if (vars.empty()) return;
    if (vars.size() > 1 || proof_.ring(ring).in_registers)
      return proof_.fail("tiles of {} depend on more than one iteration", proof_.name(ring));
    const StepCounter copies(copier_, bounds(), [ring](const Event& e) { return e.kind == Kind::load && e.ring == ring; });
    // A warpgroup that keeps tiles goes on to the next one without giving the last one back (prove_blocks: always or never).
    bool keeps = false;
    each_step(proof_.consumer, [&](const StepPlace&, const RoleStep& step) {
      keeps = keeps || (step.event.kind == Kind::next_tile && step.event.ring == ring);
    });
    const Kind goes_on = keeps ? Kind::next_tile : Kind::release;
    const StepCounter passed(proof_.consumer, bounds(),
                             [ring, goes_on](const Event& e) { return e.kind == goes_on && e.ring == ring; });
    each_step(copier_, [&](const StepPlace& load, const RoleStep& loading) {
      if (loading.event.kind != Kind::load || loading.event.ring != ring) return;
      if (loading.var != *vars.begin())
        return proof_.fail("{} is copied where {} has no value", proof_.name(ring), *vars.begin());
      each_step(proof_.consumer, [&](const StepPlace& reader, const RoleStep& reading) {
        if (!proof_.violations.empty() || !reads(reading.event, ring)) return;
        if (reading.var != *vars.begin())
          return proof_.fail("{} is read where {} has no value", proof_.name(ring), *vars.begin());
        const std::string a = value_of(loading, "i", bounds()), b = value_of(reading, "j", bounds());
        const std::string meet =
            fmt::format("{} and {} = {} and ({} < {} or {} > {})", runs(load, reader), copies.before(load.block, load.at, "i"),
                        passed.before(reader.block, reader.at, "j"), a, b, a, b);
        if (!bounds().impossible("i, j", meet))
          proof_.fail("a reader of {} finds the tile of another iteration", proof_.name(ring));
      });
    });
  }

  TensorProof& proof_;
  const Role& copier_;
  StepCounter loads_, waits_;
  std::set<std::string> loop_vars_;
};

/// An access of an op's run to a buffer, or to the operand that `narrow` makes.
struct Access {
  StepPlace place;
  int op = -1;
  int part = 0;    ///< within the op: 0 for narrow, 1 for what follows
  int buffer = 0;  ///< -1 - op: the op's operand
  bool writes = false;
};

class OrderChecker {
 public:
  explicit OrderChecker(TensorProof& proof) : proof_(proof) {}

  void run() {
    collect();
    for (int k = 0; k < static_cast<int>(proof_.plan.ops.size()); ++k) {
      runs_once(k, 1);
      if (proof_.op(k).kind == TensorOp::Kind::product && proof_.op(k).a_ring < 0) runs_once(k, 0);
      written_before(k);
    }
    if (!proof_.violations.empty()) return;
    for (const Access& first : accesses_) {
      for (const Access& second : accesses_) {
        if (first.buffer == second.buffer && (first.writes || second.writes)) keeps_order(first, second);
      }
    }
  }

 private:
  BoundSpace& bounds() { return proof_.bounds; }
  const RoleBlock& block(const StepPlace& place) const { return proof_.consumer[place.block]; }
  const RoleStep& step(const StepPlace& place) const { return block(place).steps[place.at]; }
  const OpPlace& home(int op) const { return proof_.counted[static_cast<std::size_t>(op)]; }

  void collect() {
    for (std::size_t b = 0; b < proof_.consumer.size(); ++b) {
      for (std::size_t s = 0; s < proof_.consumer[b].steps.size(); ++s) add({b, s});
    }
  }

  void add(const StepPlace& place) {
    const Event& event = step(place).event;
    if (event.kind != Kind::product && event.kind != Kind::compute && event.kind != Kind::narrow) return;
    const TensorOp& op = proof_.op(event.op);
    const auto access = [&](int part, int buffer, bool writes) { accesses_.push_back({place, event.op, part, buffer, writes}); };
    if (event.kind == Kind::narrow) {
      access(0, op.op.reads[static_cast<std::size_t>(op.form.a)].buffer, false);
      access(0, -1 - event.op, true);
      return;
    }
    access(1, op.op.write.buffer, true);
    if (event.kind == Kind::product) {
      if (op.a_ring < 0) access(1, -1 - event.op, false);
      return;
    }
    for (const TileAccess& read : op.op.reads) access(1, read.buffer, false);
  }

  /// Places at which the op runs (part 1) or its operand is made (part 0).
  std::vector<StepPlace> places_of(int op, int part) const {
    std::vector<StepPlace> places;
    for (const Access& access : accesses_) {
      if (access.op == op && access.part == part && access.writes) places.push_back(access.place);
    }
    return places;
  }

  void runs_once(int op, int stage) {
    const std::vector<StepPlace> places = places_of(op, stage);
    const std::string name = (stage == 0 ? "the operand of " : "") + proof_.op(op).op.name;
    const OpPlace& home = this->home(op);
    if (home.loop < 0) {
      if (places.size() != 1 || !block(places[0]).always()) proof_.fail("{} is not computed once a work tile", name);
      return;
    }
    const std::string whole = iterations_of(home, "v", bounds(), proof_.violations);
    std::string left = whole;
    for (const StepPlace& place : places) {
      if (step(place).var != home.var) return proof_.fail("{} is computed where {} has no value", name, home.var);
      const bool moves = step(place).value.uses(home.var);
      if (block(place).loop() && !moves) return proof_.fail("{} is computed again and again for one iteration", name);
      // The run at which the step has the value v.
      const std::string counter = moves ? fmt::format("(2*v - {})", value_of(step(place), "v", bounds())) : "0";
      std::string at_value = moves ? run_of(block(place), counter, bounds())
                                   : fmt::format("v = {} and {} = 1", value_of(step(place), "0", bounds()), block(place).trips);
      if (!bounds().impossible("v", fmt::format("{} and not ({})", at_value, whole)))
        proof_.fail("{} is computed for iterations that do not exist", name);
      if (!bounds().impossible("v", fmt::format("{} and ({}) and not ({})", at_value, whole, left)))
        proof_.fail("{} is computed more than once an iteration", name);
      left += fmt::format(" and not ({})", at_value);
    }
    if (!bounds().impossible("v", left)) proof_.fail("{} is not computed at every iteration", name);
  }

  /// In the tile program itself: what an op reads, an op before it has written.
  void written_before(int k) {
    const TensorOp& op = proof_.op(k);
    const auto check = [&](int buffer) {
      if (proof_.plan.fragments.count(buffer) == 0) return;
      for (int earlier = 0; earlier < k; ++earlier) {
        if (proof_.op(earlier).op.write.buffer == buffer && (home(earlier).loop < 0 || home(earlier).loop == home(k).loop))
          return;
      }
      proof_.fail("{} reads {}, which nothing before it writes", op.op.name, proof_.plan.buffer(buffer).name);
    };
    for (const TileAccess& read : op.op.reads) check(read.buffer);
    if (op.op.reduction && !op.op.initialize) check(op.op.write.buffer);
  }

  /// No run of `second` precedes one of `first` that the tile program has before it.
  void keeps_order(const Access& first, const Access& second) {
    if (!proof_.violations.empty() || second.place.block > first.place.block) return;
    const OpPlace &a = home(first.op), &b = home(second.op);
    const bool ranked = std::pair(first.op, first.part) < std::pair(second.op, second.part);
    const bool together = a.loop >= 0 && a.loop == b.loop;
    if (!together && !ranked) return;
    std::string wrong = run_of(block(first.place), "i", bounds()) + " and " + run_of(block(second.place), "j", bounds());
    if (together)
      wrong += fmt::format(" and {} {} {}", value_of(step(first.place), "i", bounds()), ranked ? "<=" : "<",
                           value_of(step(second.place), "j", bounds()));
    if (second.place.block == first.place.block) wrong += second.place.at < first.place.at ? " and j <= i" : " and j < i";
    if (!bounds().impossible("i, j", wrong))
      proof_.fail("{} and {} touch {} in another order than the tile program's", proof_.op(first.op).op.name,
                  proof_.op(second.op).op.name, first.buffer < 0 ? "an operand" : proof_.plan.buffer(first.buffer).name);
  }

  TensorProof& proof_;
  std::vector<Access> accesses_;
};

}  // namespace

void prove_tiles(TensorProof& proof) { TileMatcher(proof).run(); }

void prove_order(TensorProof& proof) { OrderChecker(proof).run(); }

}  // namespace nestor::nvptx
