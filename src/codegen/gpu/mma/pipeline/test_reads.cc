// What column tests read is asked for where an iteration begins, so that it has arrived when the op comes.
#include "codegen/gpu/mma/pipeline/pipeline_passes.h"

namespace nestor::nvptx {
namespace {

void read_ahead(const TensorPlan& plan, EventNode& node) {
  std::vector<EventNode> reads;
  for (EventNode& child : node.children) {
    read_ahead(plan, child);
    if (is(child, Event::Kind::compute) && plan.ops[static_cast<std::size_t>(child.event.op)].test)
      reads.push_back(event_node(Event::Kind::read_test, child.event.op));
  }
  node.children.insert(node.children.begin(), reads.begin(), reads.end());
}

}  // namespace

void plan_test_reads(TensorPlan& plan) { read_ahead(plan, plan.consumer); }

}  // namespace nestor::nvptx
