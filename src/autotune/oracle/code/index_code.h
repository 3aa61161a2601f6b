// Index code: loops and affine expressions that isl generated, as plain integer programs, so that no isl call is needed
// for single points.
#pragma once

#include <isl/ast.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// Numbers of the variables (loop iterators, statement dims, element coordinates) in a frame of integers.
using SlotMap = std::map<std::string, int>;

/// An integer expression over the slots of a frame.
class IndexExpr {
 public:
  IndexExpr() : IndexExpr(0) {}
  explicit IndexExpr(std::int64_t constant);
  /// Compiles an expression; every name must be in `slots`.
  IndexExpr(__isl_keep isl_ast_expr* expr, const SlotMap& slots);
  /// constant + the sum of so many times what those slots hold.
  IndexExpr(std::int64_t constant, const std::vector<std::pair<int, std::int64_t>>& factors);

  std::int64_t evaluate(const std::int64_t* frame) const { return evaluate_node(root_, frame); }
  /// Values at `count` points, at most kMostPoints, from `frame` on, `along` apart in each of its first slots. It uses no others.
  void evaluate(const std::int64_t* frame, const std::vector<std::int64_t>& along, int count, std::int64_t* out) const {
    evaluate_node(root_, {frame, along, count}, out);
  }
  static constexpr int kMostPoints = 128;
  /// Constant factor of `slot` if the expression is linear in it (0 when it does not occur).
  std::optional<std::int64_t> coefficient(int slot) const { return coefficient_of(root_, slot); }
  /// Is it what the slot holds, and no more?
  bool is_slot(int slot) const {
    const Node& root = nodes_[static_cast<std::size_t>(root_)];
    return root.op == Op::slot && root.value == slot;
  }
  /// Are both what one slot holds?
  bool is_same_slot(const IndexExpr& other) const {
    const Node& root = nodes_[static_cast<std::size_t>(root_)];
    return root.op == Op::slot && other.is_slot(static_cast<int>(root.value));
  }

 private:
  enum class Op : std::uint8_t {
    constant,
    slot,
    add,
    sub,
    mul,
    neg,
    floor_div,
    mod,
    min,
    max,
    select,
    eq,
    le,
    lt,
    ge,
    gt,
    both,
    either
  };
  struct Node {
    Op op;
    std::int64_t value = 0;  ///< the constant, or the slot
    int a = -1, b = -1, c = -1;
  };
  struct Points {
    const std::int64_t* frame;
    const std::vector<std::int64_t>& along;
    int count;
  };
  int compile(__isl_keep isl_ast_expr* expr, const SlotMap& slots);
  int add_node(Node node);
  static std::int64_t combine(Op op, std::int64_t a, std::int64_t b);
  std::int64_t evaluate_node(int node, const std::int64_t* frame) const;
  void evaluate_node(int node, const Points& points, std::int64_t* out) const;
  std::optional<std::int64_t> coefficient_of(int node, int slot) const;
  bool linear_factor(int node, int slot, std::int64_t& factor) const;
  bool uses(int node, int slot) const;

  std::vector<Node> nodes_;
  int root_ = 0;
};

/// Loops around statement instances.
struct LoopCode {
  enum class Kind : std::uint8_t { block, loop, condition, statement };
  Kind kind = Kind::block;
  int slot = -1;           ///< loop: its iterator
  IndexExpr lower, upper;  ///< loop: inclusive bounds
  std::int64_t step = 1;
  IndexExpr condition;
  std::string statement;
  std::vector<IndexExpr> arguments;  ///< statement: its dims
  std::vector<LoopCode> children;    ///< condition: a second child runs when it does not hold
  // Filled by whoever executes the code:
  int statement_index = -1;
  std::vector<std::int64_t> strides;  ///< loop: step of each dim of its only statement; empty: iterate one by one
  bool parallel = false;              ///< loop: processes may share its iterations
};

/// Compiles an AST; its iterators get slots beyond those in `slots`, and are added there.
LoopCode compile_loops(__isl_keep isl_ast_node* node, SlotMap& slots);

}  // namespace nestor
