// Unrolls event trees; costs by operations, bytes and lanes.
#include "api/report/event_trace.h"

#include "api/report/nest_work.h"
#include "support/error.h"

#include <algorithm>

namespace nestor {
namespace {

using nvptx::Event;
using nvptx::EventNode;
using nvptx::TensorOp;
using nvptx::TensorPlan;

constexpr std::size_t kMostEvents = 60'000;
constexpr double kTensorFlops = 4096;  ///< a clock, of one multiprocessor of sm_90
constexpr double kMmaFlops = 2048;     ///< of sm_80
constexpr double kLanes = 128;         ///< results a clock
constexpr double kSpecialRate = 16;
constexpr double kCopyBytes = 64;  ///< a clock, from the second cache
constexpr double kIssue = 16;      ///< clocks of an event that only starts or tells something

std::int64_t value_of(const IntExpr& expr, const TraceValues& values) {
  return expr.evaluate([&](const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end()) user_error("the events depend on '{}', which is not known before the launch", name);
    return found->second;
  });
}

void append(const EventNode& node, TraceValues& values, std::vector<Event>& events) {
  const auto children = [&] {
    for (const EventNode& child : node.children) append(child, values, events);
  };
  const auto bound = [&](std::int64_t value, const auto& work) {
    const TraceValues saved = values;
    values[node.var] = value;
    work();
    values = saved;
  };
  switch (node.kind) {
    case EventNode::Kind::event:
      if (events.size() == kMostEvents) user_error("a work tile has more than {} events: too many to draw", kMostEvents);
      events.push_back(node.event);
      return;
    case EventNode::Kind::condition:
      if (value_of(node.condition, values) != 0) children();
      return;
    case EventNode::Kind::sequence:
      if (node.var.empty()) return children();
      return bound(value_of(node.lower, values), children);
    case EventNode::Kind::loop:
      const std::int64_t upper = value_of(node.upper, values);
      for (std::int64_t k = value_of(node.lower, values); k < upper; ++k) bound(k, children);
      return;
  }
}

/// Elements of an op's box that one warpgroup has.
double elements_of(const TensorPlan& plan, const TensorOp& op) {
  double elements = 1;
  for (std::size_t k = 0; k < op.op.dims.size(); ++k) {
    const double extent = static_cast<double>(op.op.dims[k].max_extent.value_or(1));
    elements *= static_cast<int>(k) == op.row ? std::min(extent, 1.0 * plan.row_tiles * nvptx::kWarpgroupRows) : extent;
  }
  return elements;
}

double compute_clocks(const TensorPlan& plan, const TensorOp& op) {
  double operations = op.op.reduction ? 1 : 0, special = 0;
  op.op.value.visit([&](const ScalarExpr& node) {
    operations += node.args().empty() ? 0 : 1;
    special += is_special(node.op()) ? 1 : 0;
  });
  const double elements = elements_of(plan, op);
  return kIssue + elements * (std::max(operations, 1.0) / kLanes + special / kSpecialRate);
}

EventCost product_cost(const TensorPlan& plan, const TensorOp& op) {
  const double flops = 2.0 * plan.row_tiles * nvptx::kWarpgroupRows * op.n * op.k;
  return {kIssue, flops / (plan.cores == nvptx::TensorCores::wgmma ? kTensorFlops : kMmaFlops)};
}

}  // namespace

TraceValues middle_block(const TensorPlan& plan, const Sizes& sizes) {
  TraceValues values(sizes.begin(), sizes.end());
  for (const auto& [name, value] : plan.program->fixed_sizes) values[name] = value;
  values[nvptx::kBlockNumber] = 0;
  values[nvptx::kBlockCount] = 1;
  for (const nvptx::LaunchLoop& loop : plan.kernel->launch_loops) values[loop.var] = value_of(loop.lower, values);
  for (const nvptx::GridLoop& loop : plan.kernel->grid)
    values[loop.var] = value_of(loop.lower, values) + loop.step * (value_of(loop.count, values) / 2);
  return values;
}

std::vector<Event> trace_of(const EventNode& role, const TraceValues& values) {
  std::vector<Event> events;
  TraceValues scope = values;
  append(role, scope, events);
  return events;
}

EventCost cost_of(const TensorPlan& plan, const Event& event) {
  const auto op = [&]() -> const TensorOp& { return plan.ops[event.op]; };
  switch (event.kind) {
    case Event::Kind::load:
      return {kIssue, static_cast<double>(plan.circular_buffers[event.ring].stage_bytes()) / kCopyBytes};
    case Event::Kind::product:
      return product_cost(plan, op());
    case Event::Kind::compute:
      return {compute_clocks(plan, op()), 0};
    case Event::Kind::narrow:
      return {kIssue + elements_of(plan, op()) / kLanes / std::max(1.0, static_cast<double>(op().n)), 0};
    case Event::Kind::take_registers:
      return {static_cast<double>(plan.circular_buffers[event.ring].stage_bytes()) / kLanes / plan.warpgroups, 0};
    case Event::Kind::quad_reduction:
      return {2 * kIssue, 0};
    case Event::Kind::release:
    case Event::Kind::pass_turn:
      return {kIssue / 4, 0};
    default:
      return {0, 0};
  }
}

}  // namespace nestor
