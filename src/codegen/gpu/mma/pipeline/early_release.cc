// Releases, moved within the events of an iteration.
#include "codegen/gpu/mma/pipeline/early_release.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

using Kind = Event::Kind;

/// Of kAmidParts: how much of a chain's exponentials stays in front of the wait for products of other chains.
constexpr int kChainParts = 6;

/// The op computes a tile of exponentials, none of which is below 0.
bool has_exponentials(const TensorOp& op) {
  const ScalarOp outermost = op.op.value.op();
  return (outermost == ScalarOp::exp || outermost == ScalarOp::exp2) && op.kind == TensorOp::Kind::map && op.column >= 0;
}

/// The op adds up a row of the exponentials that `made` leaves.
bool adds_up(const TensorOp& op, const TensorOp& made) {
  const ScalarExpr& value = op.op.value;
  return op.kind == TensorOp::Kind::reduce && op.op.reduction == ReductionOp::add && value.op() == ScalarOp::read &&
         op.op.reads[static_cast<std::size_t>(value.ordinal())].buffer == made.op.write.buffer;
}

/// The first op from `begin` on that computes and for which `wanted` holds.
template <class Wanted>
std::vector<EventNode>::iterator find_op(const TensorPlan& plan, std::vector<EventNode>& events,
                                         std::vector<EventNode>::iterator begin, const Wanted& wanted) {
  return std::find_if(begin, events.end(), [&](const EventNode& node) {
    return is(node, Kind::compute) && wanted(plan.ops[static_cast<std::size_t>(node.event.op)]);
  });
}

/// Moves the releases in front of the op at `into` behind `parts` of its parts.
void move_releases(std::vector<EventNode>& events, std::vector<EventNode>::iterator into, int parts) {
  const int op = into->event.op;
  const auto moved = std::stable_partition(events.begin(), into, [&](const EventNode& node) { return !is(node, Kind::release); });
  for (auto node = moved; node != into; ++node) {
    node->event.op = op;
    node->event.count = parts;
  }
}

}  // namespace

void release_early(const TensorPlan& plan, std::vector<EventNode>& events) {
  const auto exponentials = find_op(plan, events, events.begin(), has_exponentials);
  if (exponentials != events.end()) move_releases(events, exponentials, 1);
}

void release_chain_early(const TensorPlan& plan, std::vector<EventNode>& events) {
  const auto exponentials = find_op(plan, events, events.begin(), has_exponentials);
  if (exponentials == events.end()) return;
  const TensorOp& made = plan.ops[static_cast<std::size_t>(exponentials->event.op)];
  const auto sum = find_op(plan, events, exponentials, [&](const TensorOp& op) { return adds_up(op, made); });
  move_releases(events, sum != events.end() ? sum : exponentials, kChainParts);
}

}  // namespace nestor::nvptx
