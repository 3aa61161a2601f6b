// The parts of a block plan's proof (block_check.h) and what they share.
#pragma once

#include "codegen/gpu/simt/plan/block_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// A variable of an op's instances: lower, lower + step, ... below upper.
struct Axis {
  enum class Kind : std::uint8_t { grid, loop, name, dim };  ///< name: has the one value `lower`
  Kind kind = Kind::dim;
  std::string var;
  IntExpr lower, upper;
  std::int64_t step = 1;
  const BlockNode* node = nullptr;  ///< of a loop or name
  int dim = -1;
};

/// Where an op stands in the plan: loops, names and conditions around it, outermost first.
struct OpSite {
  int op = -1;
  std::vector<const BlockNode*> around;
};

struct BlockProof {
  explicit BlockProof(const BlockPlan& of);

  const BlockPlan& plan;
  std::vector<OpSite> sites;  ///< in the order of the tree
  std::vector<std::string> violations, unproved;

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    add(violations, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void leave_open(fmt::format_string<Args...> format, Args&&... args) {
    add(unproved, fmt::format(format, std::forward<Args>(args)...));
  }
  bool good() const { return violations.empty(); }

  const BlockOp& op(int k) const { return plan.ops[k]; }
  const OpDim& dim(const BlockOp& op, int d) const { return op.op.dims[d]; }
  const OpSite& site(int op) const;
  const std::string& name(const TileAccess& access) const { return plan.buffer(access.buffer).name; }
  /// Blocks take work tiles in turn: the values of the grid's variables are names within a loop over trips.
  bool persistent() const { return plan.kernel->shape.persistent > 0 && !plan.kernel->grid.empty(); }
  bool is_grid_variable(const std::string& name) const;

  /// The op's variables, outermost first. The grid's variables count as such wherever the plan gives them their values; the number of
  /// a resident block's trip and work tile are left out.
  std::vector<Axis> axes(const OpSite& site) const;

 private:
  static void add(std::vector<std::string>& list, std::string text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
  }
};

/// Is the dim known to have one value?
bool has_one_value(const OpDim& dim);
/// A constant that upper - lower never exceeds, if their form shows one.
std::optional<std::int64_t> distance_bound(const IntExpr& lower, const IntExpr& upper);
/// Does a node of the tree bind a variable to one value?
bool is_name(const BlockNode& node);
bool is_loop(const BlockNode& node);

/// Row slots that the emitter gives each thread for so many rows.
std::int64_t slots_of(const BlockOp& op, std::int64_t rows);

void prove_tree(BlockProof& proof);        ///< 1.
void prove_points(BlockProof& proof);      ///< 2.
void prove_products(BlockProof& proof);    ///< 2., of register blocks
void prove_prefixes(BlockProof& proof);    ///< 3., lanes and warps of prefix sums
void prove_carried(BlockProof& proof);     ///< 2., values that a thread hands on to its next point
void prove_own_sums(BlockProof& proof);    ///< 2., sums that read other elements of what they write
void prove_reductions(BlockProof& proof);  ///< 3., participants; 7.
void prove_registers(BlockProof& proof);   ///< 4.
void prove_trips(BlockProof& proof);       ///< 4., copies ahead
void prove_places(BlockProof& proof);      ///< 6.
void prove_order(BlockProof& proof);       ///< 3., elements; 5.
void prove_windows(BlockProof& proof);     ///< 2., rows that are summed up together
void prove_joined(BlockProof& proof);      ///< 5., passes of several reductions

}  // namespace nestor::nvptx
