// Scalar expressions: the right-hand sides of statements, free of any loop.
#pragma once

#include "nestor/types.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// Operations of a ScalarExpr. Arithmetic on f16 and bf16 does not exist: such values are cast to f32 when read.
enum class ScalarOp : std::uint8_t {
  constant,  ///< a number: `number`
  index,     ///< an integer affine in the statement's dims: `ordinal` into Statement::indices
  scalar,    ///< a scalar argument: `name`
  read,      ///< the element of access `ordinal` of Statement::reads, in its stored type
  add,
  sub,
  mul,
  div,
  min,
  max,
  pow,
  neg,
  abs,
  exp,
  exp2,
  log,
  sqrt,
  rsqrt,
  tanh,
  erf,
  sin,
  cos,
  log1p,
  expm1,
  atan,
  floor,
  cast,    ///< converts args[0] to `type`
  select,  ///< args[0] ? args[1] : args[2]
  lt,
  le,
  eq,
  logical_and,
  logical_or,
  logical_not,
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right_logical,
  mul_high_unsigned,
};

std::string_view to_string(ScalarOp op);
/// Throws UserError when `name` is no operation.
ScalarOp scalar_op_from(std::string_view name);
/// Number of arguments that `op` takes.
int arity(ScalarOp op);

/// Immutable expression tree; copying is cheap (shared nodes).
class ScalarExpr {
 public:
  ScalarExpr() = default;

  static ScalarExpr constant(double number, ElementType type = ElementType::f32);
  static ScalarExpr index(int ordinal);  ///< type i32
  static ScalarExpr scalar(std::string name, ElementType type);
  static ScalarExpr read(int ordinal, ElementType type);
  static ScalarExpr cast(ElementType type, ScalarExpr value);
  /// Result type: boolean for comparisons and logic, type of args[1] for select, else type of args[0].
  static ScalarExpr make(ScalarOp op, std::vector<ScalarExpr> args);

  bool defined() const { return node_ != nullptr; }
  ScalarOp op() const { return node_->op; }
  ElementType type() const { return node_->type; }
  double number() const { return node_->number; }
  int ordinal() const { return node_->ordinal; }
  const std::string& name() const { return node_->name; }
  const std::vector<ScalarExpr>& args() const { return node_->args; }

  bool is_constant(double value) const { return defined() && op() == ScalarOp::constant && number() == value; }
  /// Structural equality.
  bool equals(const ScalarExpr& other) const;
  /// Same node with other arguments.
  ScalarExpr with_args(std::vector<ScalarExpr> args) const;
  /// Visits this node and everything below it, parents first.
  void visit(const std::function<void(const ScalarExpr&)>& visitor) const;
  /// Rebuilds bottom-up: `rewriter` sees each node after its arguments were rewritten and returns its replacement.
  ScalarExpr rewrite(const std::function<ScalarExpr(const ScalarExpr&)>& rewriter) const;
  bool reads(int ordinal) const;
  /// Readable text; `read_name(k)` and `index_name(k)` name accesses and indices.
  std::string str(const std::function<std::string(int)>& read_name, const std::function<std::string(int)>& index_name) const;

 private:
  struct Node {
    ScalarOp op;
    ElementType type;
    double number = 0;
    int ordinal = -1;
    std::string name;
    std::vector<ScalarExpr> args;
  };
  explicit ScalarExpr(Node node) : node_(std::make_shared<const Node>(std::move(node))) {}
  std::shared_ptr<const Node> node_;
};

/// Associative and commutative operators a statement may accumulate with.
enum class ReductionOp : std::uint8_t { add, mul, min, max };
std::string_view to_string(ReductionOp op);
ReductionOp reduction_op_from(std::string_view name);
/// Neutral element: 0, 1, +inf, -inf (for i32 the extreme values).
double neutral_element(ReductionOp op, ElementType type);
/// The ScalarOp that combines two partial results.
ScalarOp combiner(ReductionOp op);
/// `a op b` in double.
double combine(ReductionOp op, double a, double b);

/// Evaluates in double: `read(k)`, `index(k)` and `scalar(name)` supply the leaves. Casts to f16, bf16 and i32 round as
/// the type does; bit operations work on 32-bit integers.
double evaluate(const ScalarExpr& expr, const std::function<double(int)>& read, const std::function<std::int64_t(int)>& index,
                const std::function<double(const std::string&)>& scalar);

}  // namespace nestor
