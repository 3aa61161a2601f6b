// Integer expressions: loop bounds, indices and guards of tile programs, and the size formulas of launch recipes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

enum class IntOp : std::uint8_t {
  constant,
  variable,  // a variable is a loop, an op dim or a size parameter
  add,
  sub,
  mul,
  floor_div,
  mod,  // floor_div and mod round towards minus infinity; the divisor is positive
  min,
  max,
  select,  // select: args[0] != 0 ? args[1] : args[2]
  ge,
  gt,
  eq,
  logical_and,
  logical_or,
  logical_not,  // 0 or 1
};

/// The value of an operation of two arguments. Throws UserError if it does not fit 64 bits or a divisor is not positive.
std::int64_t compute_binary(IntOp op, std::int64_t a, std::int64_t b);

/// Immutable integer expression, 64 bits wide. Factories fold constants.
class IntExpr {
 public:
  IntExpr() = default;
  IntExpr(std::int64_t value);  // NOLINT(google-explicit-constructor): literals read well in bounds
  static IntExpr variable(std::string name);
  static IntExpr make(IntOp op, std::vector<IntExpr> args);

  bool defined() const { return node_ != nullptr; }
  IntOp op() const { return node_->op; }
  std::int64_t value() const { return node_->value; }
  const std::string& name() const { return node_->name; }
  const std::vector<IntExpr>& args() const { return node_->args; }
  std::optional<std::int64_t> as_constant() const;
  bool is_constant(std::int64_t value) const { return as_constant() == value; }

  bool uses(const std::string& variable) const;
  /// Coefficient of `variable` if the expression is linear in it with a constant coefficient (0 when absent).
  std::optional<std::int64_t> coefficient(const std::string& variable) const;
  /// What divides it whatever its variables hold, as large as the text shows; 0: it is 0.
  std::int64_t divisor() const;
  IntExpr substitute(const std::string& variable, const IntExpr& value) const;
  /// Throws UserError like compute_binary().
  std::int64_t evaluate(const std::function<std::int64_t(const std::string&)>& value_of) const;
  std::string str() const;  ///< C-like text

 private:
  struct Node {
    IntOp op;
    std::int64_t value = 0;
    std::string name;
    std::vector<IntExpr> args;
  };
  void append_to(std::string& text) const;
  explicit IntExpr(Node node) : node_(std::make_shared<const Node>(std::move(node))) {}
  std::shared_ptr<const Node> node_;
};

IntExpr operator+(const IntExpr& a, const IntExpr& b);
IntExpr operator-(const IntExpr& a, const IntExpr& b);
IntExpr operator*(const IntExpr& a, const IntExpr& b);
IntExpr floor_div(const IntExpr& a, std::int64_t b);
IntExpr mod(const IntExpr& a, std::int64_t b);
IntExpr min(const IntExpr& a, const IntExpr& b);
IntExpr max(const IntExpr& a, const IntExpr& b);
IntExpr operator&&(const IntExpr& a, const IntExpr& b);

}  // namespace nestor
