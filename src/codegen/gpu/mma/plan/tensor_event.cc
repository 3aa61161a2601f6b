// Events by name.
#include "codegen/gpu/mma/plan/tensor_event.h"

#include <algorithm>

namespace nestor::nvptx {

EventNode event_node(Event::Kind kind, int op, int ring, int count) {
  EventNode node;
  node.kind = EventNode::Kind::event;
  node.event = {kind, op, ring, count};
  return node;
}

bool uses_variable(const EventNode& node, const std::string& var) {
  const auto uses = [&](const IntExpr& expr) { return expr.defined() && expr.uses(var); };
  return uses(node.lower) || uses(node.upper) || uses(node.condition) ||
         std::any_of(node.children.begin(), node.children.end(),
                     [&](const EventNode& child) { return uses_variable(child, var); });
}

bool contains(const EventNode& node, Event::Kind kind) {
  return is(node, kind) ||
         std::any_of(node.children.begin(), node.children.end(), [&](const EventNode& child) { return contains(child, kind); });
}

const char* name_of(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::wait_full:
      return "wait_full";
    case Event::Kind::wait_empty:
      return "wait_empty";
    case Event::Kind::load:
      return "load";
    case Event::Kind::release:
      return "release";
    case Event::Kind::next_tile:
      return "next_tile";
    case Event::Kind::product:
      return "product";
    case Event::Kind::wait_products:
      return "wait_products";
    case Event::Kind::compute:
      return "compute";
    case Event::Kind::narrow:
      return "narrow";
    case Event::Kind::read_test:
      return "read_test";
    case Event::Kind::quad_reduction:
      return "quad_reduction";
    case Event::Kind::take_registers:
      return "take_registers";
    case Event::Kind::wait_turn:
      return "wait_turn";
    case Event::Kind::pass_turn:
      return "pass_turn";
    case Event::Kind::commit_copies:
      return "commit_copies";
    case Event::Kind::wait_stores:
      return "wait_stores";
    case Event::Kind::wait_copies:
      return "wait_copies";
    case Event::Kind::barrier:
      return "barrier";
  }
  return "?";
}

}  // namespace nestor::nvptx
