// The programs of a tensor plan's roles as lists of straight blocks, and where ops stand in the tile program: what proofs are about.
#pragma once

#include "codegen/gpu/mma/plan/op_places.h"
#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/tile/analysis/bound_space.h"

#include <functional>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// An event, and the loop variable that is bound around it.
struct RoleStep {
  Event event;
  std::string var;  ///< empty: none
  IntExpr value;    ///< over the counter of the block's loop, which is called `var` too, or over sizes alone
};

/// Events without anything between them, run once or for each iteration of a loop, where all conditions hold.
struct RoleBlock {
  std::vector<IntExpr> conditions;
  std::string var;  ///< of its loop; empty: runs once
  IntExpr lower, upper;
  std::vector<RoleStep> steps;
  std::string trips;  ///< isl text of how often it runs

  bool loop() const { return !var.empty(); }
  bool always() const { return !loop() && conditions.empty(); }
};

using Role = std::vector<RoleBlock>;

/// The blocks of one work tile in order. What has another form is added to `problems`: a loop in a loop, a condition in a loop.
Role role_of(const EventNode& root, BoundSpace& bounds, std::vector<std::string>& problems);

/// isl text of a run of the block numbered `counter` (a dim): its values.
std::string run_of(const RoleBlock& block, const std::string& counter, BoundSpace& bounds);
/// isl text of the variable bound around the step, in run `counter`.
std::string value_of(const RoleStep& step, const std::string& counter, BoundSpace& bounds);

/// Numbers the steps of a role that `counts` picks, over one work tile.
class StepCounter {
 public:
  StepCounter(const Role& role, BoundSpace& bounds, std::function<bool(const Event&)> counts);
  /// How many come before step `at` of `block` in run `counter`: linear isl text.
  std::string before(std::size_t block, std::size_t at, const std::string& counter) const;
  std::string total() const { return starts_.back(); }

 private:
  const Role& role_;
  BoundSpace& bounds_;
  std::function<bool(const Event&)> counts_;
  std::vector<std::string> starts_;
  std::vector<int> each_;
};

/// isl text: the op in a loop runs at the iteration `counter` (a dim). What has no such text is added to `problems`.
std::string iterations_of(const OpPlace& place, const std::string& counter, BoundSpace& bounds,
                          std::vector<std::string>& problems);

}  // namespace nestor::nvptx
