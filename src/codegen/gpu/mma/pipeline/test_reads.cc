// What column tests read is asked for where an iteration, or what is left of it behind a loop, begins, so that it has arrived when the op comes.
#include "codegen/gpu/mma/pipeline/pipeline_passes.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace nestor::nvptx {
namespace {

/// Do loops or conditions stand in it, so that what comes before is in another stretch of events than what comes behind?
bool divides(const EventNode& node) {
  return node.kind == EventNode::Kind::loop || node.kind == EventNode::Kind::condition ||
         std::any_of(node.children.begin(), node.children.end(), divides);
}

void read_ahead(const TensorPlan& plan, EventNode& node) {
  std::vector<EventNode> children;
  std::size_t begin = 0;  // of the straight stretch
  for (EventNode& child : node.children) {
    read_ahead(plan, child);
    if (is(child, Event::Kind::compute) && plan.ops[static_cast<std::size_t>(child.event.op)].test)
      children.insert(children.begin() + static_cast<std::ptrdiff_t>(begin++),
                      event_node(Event::Kind::read_test, child.event.op));
    children.push_back(std::move(child));
    if (divides(children.back())) begin = children.size();
  }
  node.children = std::move(children);
}

}  // namespace

void plan_test_reads(TensorPlan& plan) { read_ahead(plan, plan.consumer); }

}  // namespace nestor::nvptx
