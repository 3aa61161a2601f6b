// What blocks of a cluster copy for each other and tell each other (6. of the argument in tensor_check.h).
#include "codegen/gpu/mma/proof/tensor_proof.h"

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;

void check_ring(TensorProof& proof, int r) {
  const CircularBuffer& ring = proof.ring(r);
  if (ring.blocks != 1 && ring.blocks != proof.plan.cluster())
    return proof.fail("{} has the same tiles in {} blocks of a cluster of {}", proof.name(r), ring.blocks, proof.plan.cluster());
  if (ring.readers != proof.plan.sharing_warpgroups() * ring.blocks)
    proof.fail("a stage of {} is free when {} warpgroups have released it, and {} read it", proof.name(r), ring.readers,
               proof.plan.sharing_warpgroups() * ring.blocks);
  if (ring.own_index >= static_cast<int>(ring.origin.size())) proof.fail("{} has no index {}", proof.name(r), ring.own_index);
  if (ring.blocks == 1) return;
  if (ring.scheduler) proof.fail("{} is shared: each block draws for itself", proof.name(r));
  if (ring.own_index >= 0) proof.fail("{} is shared, and each block has tiles of its own", proof.name(r));
  if (!ring.shares_columns() && ring.rows % (kSwizzleRows * ring.blocks) != 0)
    proof.fail("{} rows of {} cannot be shared out to {} blocks", ring.rows, proof.name(r), ring.blocks);
  if (!proof.plan.cluster_start)
    proof.fail("{} is copied to blocks of the cluster before their barriers are ready", proof.name(r));
  if (!proof.plan.drains) proof.fail("{} is released to blocks of the cluster that may have ended", proof.name(r));
}

void check_events(TensorProof& proof, const Role& role) {
  for (const RoleBlock& block : role) {
    for (const RoleStep& step : block.steps) {
      const Event& event = step.event;
      const bool reaches = event.kind == Kind::load || event.kind == Kind::release;
      const int blocks = reaches ? proof.ring(event.ring).blocks : 1;
      if (event.blocks != blocks)
        proof.fail("{} reaches {} blocks{}", name_of(event.kind), event.blocks,
                   reaches ? fmt::format(", and {} is shared by {}", proof.name(event.ring), blocks) : "");
    }
  }
}

/// All work tiles have as many tiles: no bound and no condition depends on where a work tile lies.
void check_own_work_tiles(TensorProof& proof, const EventNode& role) {
  for (const GridLoop& loop : proof.plan.kernel->grid) {
    if (uses_variable(role, loop.var)) proof.fail("work tiles that warpgroups take in turn differ in length along {}", loop.var);
  }
}

}  // namespace

void prove_sharing(TensorProof& proof) {
  const bool claims = proof.plan.tile_rings() != proof.plan.circular_buffers.size();
  if (proof.plan.cluster() > 1 && (proof.plan.cores != TensorCores::wgmma || claims))
    return proof.fail("blocks of a cluster would take different work tiles, or copy without a producer warp");
  if (proof.plan.ping_pong_tiles()) {
    if (!proof.plan.persistent() || claims || proof.plan.cores != TensorCores::wgmma)
      proof.fail("warpgroups cannot tell which work tiles are theirs");
    check_own_work_tiles(proof, proof.plan.consumer);
    check_own_work_tiles(proof, proof.plan.producer);
  }
  for (int r = 0; r < static_cast<int>(proof.plan.circular_buffers.size()); ++r) check_ring(proof, r);
  check_events(proof, proof.consumer);
  check_events(proof, proof.producer);
}

}  // namespace nestor::nvptx
