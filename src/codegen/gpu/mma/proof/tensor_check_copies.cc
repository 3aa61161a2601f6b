// Copies by all threads of a block: batches, barriers and stages, counted along the one program that all of them run (3. of the argument for
// TensorCores::mma in tensor_check.h).
#include "codegen/gpu/mma/proof/tensor_proof.h"

#include <optional>

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;

class CopyProver {
 public:
  explicit CopyProver(TensorProof& proof)
      : proof_(proof),
        batches_(counter([](const Event& event) { return event.kind == Kind::commit_copies; })),
        barriers_(counter([](const Event& event) { return event.kind == Kind::barrier; })) {}

  void run() {
    for (int r = 0; r < static_cast<int>(proof_.plan.circular_buffers.size()); ++r) {
      check_loop(r);
      if (proof_.violations.empty()) prove_ring(r);
    }
  }

 private:
  struct StepPlace {
    std::size_t block = 0, at = 0;
  };

  StepCounter counter(std::function<bool(const Event&)> counts) { return {proof_.consumer, proof_.bounds, std::move(counts)}; }
  BoundSpace& bounds() { return proof_.bounds; }
  const RoleBlock& block(const StepPlace& place) const { return proof_.consumer[place.block]; }
  const RoleStep& step(const StepPlace& place) const { return block(place).steps[place.at]; }
  std::string run(const StepPlace& place, const char* counter) { return run_of(block(place), counter, bounds()); }

  std::vector<StepPlace> places(Kind kind, int ring) const {
    std::vector<StepPlace> found;
    for (std::size_t b = 0; b < proof_.consumer.size(); ++b) {
      for (std::size_t s = 0; s < proof_.consumer[b].steps.size(); ++s) {
        const Event& event = proof_.consumer[b].steps[s].event;
        if (event.kind == kind && event.ring == ring) found.push_back({b, s});
      }
    }
    return found;
  }

  /// The loop that fills a circular buffer is the one around its readers: beyond its end nothing is copied.
  void check_loop(int r) {
    const CircularBuffer& ring = proof_.ring(r);
    for (std::size_t k = 0; k < proof_.plan.ops.size(); ++k) {
      const TensorOp& op = proof_.plan.ops[k];
      if (op.kind != TensorOp::Kind::product || (op.a_ring != r && op.b_ring != r)) continue;
      const OpPlace& place = proof_.places[k];
      bool moves = false;
      for (const IntExpr& index : ring.origin) moves = moves || (place.loop >= 0 && index.uses(place.var));
      bool same = moves == ring.streamed;
      if (same && moves) same = ring.var == place.var && affine_of(ring.upper) == affine_of(place.upper);
      if (!same) proof_.fail("{} is filled by another loop than that of {}", proof_.name(r), op.op.name);
    }
  }

  void prove_ring(int r) {
    const auto of_ring = [&](Kind kind) { return counter([=](const Event& e) { return e.kind == kind && e.ring == r; }); };
    const StepCounter loads = of_ring(Kind::load), waits = of_ring(Kind::wait_full), releases = of_ring(Kind::release);
    for (const StepPlace& wait : places(Kind::wait_full, r)) prove_arrival(r, wait, loads, waits);
    for (const StepPlace& load : places(Kind::load, r)) prove_free_stage(r, load, loads, releases);
  }

  /// The step that a wait for a tile relies on: the thread's own wait for copies, which a barrier follows.
  std::optional<StepPlace> thread_wait(const StepPlace& wait) const {
    bool behind_barrier = false;
    for (std::size_t s = wait.at; s-- > 0;) {
      const Kind kind = block(wait).steps[s].event.kind;
      if (kind == Kind::barrier) behind_barrier = true;
      if (kind == Kind::wait_copies && behind_barrier) return StepPlace{wait.block, s};
    }
    return std::nullopt;
  }

  void prove_arrival(int r, const StepPlace& wait, const StepCounter& loads, const StepCounter& waits) {
    const auto own = thread_wait(wait);
    if (!own) return proof_.fail("{} is waited for without a wait for copies and a barrier", proof_.name(r));
    const std::string number = waits.before(wait.block, wait.at, "j");
    if (!bounds().impossible("j", fmt::format("{} and {} >= {}", run(wait, "j"), number, loads.total())))
      return proof_.fail("{} is waited for where nothing copies it", proof_.name(r));
    for (const StepPlace& load : places(Kind::load, r)) {
      const std::string late =
          fmt::format("{} and {} and {} = {} and {} < {} + {}", run(load, "i"), run(wait, "j"),
                      loads.before(load.block, load.at, "i"), number, batches_.before(own->block, own->at, "j"),
                      batches_.before(load.block, load.at, "i"), step(*own).event.count + 1);
      if (!bounds().impossible("i, j", late)) proof_.fail("{} is read before its copy has arrived", proof_.name(r));
    }
  }

  void prove_free_stage(int r, const StepPlace& load, const StepCounter& loads, const StepCounter& releases) {
    const CircularBuffer& ring = proof_.ring(r);
    const std::string number = loads.before(load.block, load.at, "i"), when = run(load, "i");
    const std::string exists =
        ring.streamed ? fmt::format(" and {} < {}", value_of(step(load), "i", bounds()), bounds().value(ring.upper)) : "";
    if (!bounds().impossible("i", fmt::format("{}{} and {} >= {}", when, exists, number, releases.total())))
      proof_.fail("{} is copied where nothing reads it", proof_.name(r));
    if (proof_.plan.persistent() &&
        !bounds().impossible("i", fmt::format("{} and {} < 1", when, barriers_.before(load.block, load.at, "i"))))
      proof_.fail("{} is overwritten while the work tile before may be read", proof_.name(r));
    for (const StepPlace& release : places(Kind::release, r)) {
      const std::string early =
          fmt::format("{}{} and {} and {} - {} = {} and {} < {} + 1", when, exists, run(release, "j"), number, ring.stages,
                      releases.before(release.block, release.at, "j"), barriers_.before(load.block, load.at, "i"),
                      barriers_.before(release.block, release.at, "j"));
      if (!bounds().impossible("i, j", early)) proof_.fail("{} is overwritten while it may be read", proof_.name(r));
    }
  }

  TensorProof& proof_;
  StepCounter batches_, barriers_;
};

}  // namespace

void prove_copies(TensorProof& proof) {
  if (proof.plan.cores == TensorCores::mma) CopyProver(proof).run();
}

}  // namespace nestor::nvptx
