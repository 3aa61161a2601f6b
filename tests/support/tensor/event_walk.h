// Walks the events of a role of a tensor plan in the order in which it takes them, at given sizes.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "support/error.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace nestor::testing {

using EventValues = std::map<std::string, std::int64_t>;  ///< of sizes, grid and loop variables

inline std::int64_t value_at(const IntExpr& expr, const EventValues& around) {
  return expr.evaluate([&](const std::string& name) {
    const auto found = around.find(name);
    if (found == around.end()) internal_error("tensor plan: variable {} has no value", name);
    return found->second;
  });
}

/// Calls `visit(event, around, masked)` for every event under the node; events of one iteration share their values. `masked`: of
/// the loop that the event is in, or what was given where it is in none.
template <class Visit>
void walk_events(const nvptx::EventNode& node, const std::shared_ptr<const EventValues>& around, bool masked,
                 const Visit& visit) {
  using Kind = nvptx::EventNode::Kind;
  if (node.kind == Kind::event) return visit(node.event, around, masked);
  if (node.kind == Kind::condition && value_at(node.condition, *around) == 0) return;
  const bool loop = node.kind == Kind::loop, binds = loop || (node.kind == Kind::sequence && !node.var.empty());
  const std::int64_t from = binds ? value_at(node.lower, *around) : 0;
  const std::int64_t to = loop ? value_at(node.upper, *around) : from + 1;
  for (std::int64_t k = from; k < to; ++k) {
    std::shared_ptr<const EventValues> inner = around;
    if (binds) {
      EventValues bound = *around;
      bound[node.var] = k;
      inner = std::make_shared<const EventValues>(std::move(bound));
    }
    for (const nvptx::EventNode& child : node.children) walk_events(child, inner, binds ? node.masked : masked, visit);
  }
}

}  // namespace nestor::testing
