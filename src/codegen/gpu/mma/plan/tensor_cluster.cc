// What the blocks of a cluster copy for each other. They take one work tile together, each its own rows of it, so tiles without rows are the same
// for all: each block copies a share of such a tile, and sends it to the same place in the shared memory of all. There it reports to the
// barrier of the stage, which waits for the bytes of the whole tile. In return a stage is filled again only after the warpgroups of all blocks
// have released it, and so tell the producer warps of all blocks.
#include "codegen/gpu/mma/plan/plan_passes.h"

namespace nestor::nvptx {
namespace {

/// Copies and releases of shared tiles reach as many blocks as share them.
void mark_events(const TensorPlan& plan, EventNode& node) {
  Event& event = node.event;
  const bool told = event.kind == Event::Kind::load || event.kind == Event::Kind::release;
  if (node.kind == EventNode::Kind::event && told)
    event.blocks = plan.circular_buffers[static_cast<std::size_t>(event.ring)].blocks;
  for (EventNode& child : node.children) mark_events(plan, child);
}

}  // namespace

void plan_sharing(TensorPlan& plan) {
  for (CircularBuffer& ring : plan.circular_buffers) {
    ring.blocks = ring.own_index < 0 && !ring.scheduler ? plan.cluster() : 1;
    ring.readers = plan.sharing_warpgroups() * ring.blocks;
    if (ring.blocks > 1) plan.cluster_start = plan.drains = true;
  }
  mark_events(plan, plan.consumer);
  mark_events(plan, plan.producer);
}

}  // namespace nestor::nvptx
