// The two sides of a meeting (block_meet.h): their variables as positions from 0, apart unless both sides share them.
#pragma once

#include "codegen/gpu/simt/proof/block_touch.h"

#include <map>
#include <set>

namespace nestor::nvptx {

/// Marks the names of positions, which the two sides have for themselves: "i@a".
inline constexpr char kSideMark = '@';

/// A variable of one side: value = lower + step * position, position >= 0. Where the lower bound is not linear, the name stands for the value.
struct SideVariable {
  const Axis* axis = nullptr;
  std::string name;
  bool by_value = false;
  IntExpr value, lower, upper;            ///< over names, shared variables and sizes
  std::optional<std::int64_t> low, high;  ///< of what the name stands for
  IntExpr position() const { return by_value ? IntExpr::variable(name) - lower : IntExpr::variable(name); }
};

class Side {
 public:
  Side(const BlockProof& proof, const Meeting& meeting, bool is_a);
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  IntExpr closed(const IntExpr& expr) const;  ///< over positions, shared variables and sizes
  const SideVariable* of_dim(int dim) const;
  const SideVariable* of_axis(const BlockNode* node, const std::string& var) const;
  const std::vector<SideVariable>& variables() const { return variables_; }
  const std::vector<Axis>& shared() const { return shared_; }
  const Toucher& toucher() const { return *toucher_; }
  const BlockOp& op() const { return *op_; }
  /// The op's guard, where points that it leaves out touch nothing; else what is known of points that touch the element, if anything.
  IntExpr guard() const;
  /// Conditions around the op; `of_shared`: those above the shared nodes.
  std::vector<IntExpr> conditions(bool of_shared) const;
  /// Does one of these, or the guard, say "or"?
  bool has_alternatives() const;

 private:
  const Toucher* toucher_;
  const BlockOp* op_;
  std::size_t shared_nodes_;
  std::vector<Axis> axes_;
  std::vector<Axis> shared_;
  std::vector<SideVariable> variables_;                  ///< own ones, in the order of axes
  std::vector<std::pair<std::string, IntExpr>> values_;  ///< of own variables and names, in the order of axes
};

/// Positions on both sides that stand for the same thing: rows, columns, the variables of one loop or of one op.
std::vector<std::pair<const SideVariable*, const SideVariable*>> partners(const Meeting& meeting, const Side& a, const Side& b);

/// By arithmetic within extents: true when the accesses surely do not meet.
bool stay_apart(const Meeting& meeting, const Side& a, const Side& b);

}  // namespace nestor::nvptx
