// Loops that go past tiles: those that they leave out change nothing, and ops ask no block test where they run.
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/gpu/mma/proof/tensor_proof.h"
#include "codegen/gpu/mma/values/hidden_iterations.h"

namespace nestor::nvptx {
namespace {

bool same_loop(const VisitedLoop& a, const VisitedLoop& b) {
  return same_visits(a, b) && a.count == b.count && a.finite == b.finite && a.lower.str() == b.lower.str() &&
         a.upper.str() == b.upper.str();
}

}  // namespace

void prove_visits(TensorProof& proof) {
  if (proof.plan.visited.empty()) return;
  if (proof.plan.cores != TensorCores::wgmma || proof.plan.cluster() > 1 || proof.plan.ping_pong_tiles())
    return proof.fail("tiles are gone past, and not all that share the loop's tiles know of them");
  std::vector<TileOp> ops;
  for (const TileOp* op : ops_of(proof.plan.kernel->body)) ops.push_back(*op);
  if (ops.size() != proof.plan.ops.size() || ops.size() != proof.places.size())
    return proof.fail("{} ops for {} of the tile program", proof.plan.ops.size(), ops.size());
  for (const VisitedLoop& loop : proof.plan.visited) {
    std::size_t begin = 0, end = 0;
    while (begin < ops.size() && proof.places[begin].var != loop.var) ++begin;
    for (end = begin; end < ops.size() && proof.places[end].var == loop.var; ++end) {
      const OpPlace& place = proof.places[end];
      if (place.loops.size() != 1 || place.condition.defined())
        return proof.fail("{} goes past tiles of {}, which stands in a condition or in another loop", loop.var, ops[end].name);
      if (!proof.op(static_cast<int>(end)).op.value.equals(value_by_blocks(*proof.plan.program, ops[end], true)))
        return proof.fail("{} computes another value at tiles that are left", ops[end].name);
    }
    if (begin == end) return proof.fail("{} is the loop of no op", loop.var);
    std::string why;
    const auto found = visited_loop(*proof.plan.program, proof.places[begin], ops, begin, end, why);
    if (!found || !same_loop(*found, loop)) return proof.fail("{} may not go past tiles: {}", loop.var, why);
    // Nothing is known of how many are left: what follows holds for any number.
    for (std::size_t k = begin; k < end; ++k) {
      proof.counted[k].lower = IntExpr(0);
      proof.counted[k].upper = IntExpr::variable(loop.count);
    }
  }
}

}  // namespace nestor::nvptx
