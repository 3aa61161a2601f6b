// Postfix programs over 64-bit integers; anything that does not fit is an error, not a wrong size.
#include "device/size_formula.h"

#include "support/error.h"

#include <algorithm>
#include <array>

namespace nestor {
namespace {

std::size_t index_of(const std::string& name, std::span<const std::string> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) user_error("launch recipe: a formula uses \"{}\", which is no size of the kernel", name);
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

std::vector<std::string> size_names(const LaunchRecipe& recipe) {
  std::vector<std::string> names = recipe.sizes;
  for (const auto& [name, value] : recipe.fixed_sizes) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

SizeFormula::SizeFormula(const IntExpr& expr, std::span<const std::string> names) { compile(expr, names, 1); }

// `depth`: values on the stack when this expression has been computed.
void SizeFormula::compile(const IntExpr& expr, std::span<const std::string> names, int depth) {
  if (!expr.defined()) user_error("launch recipe: a size formula is missing");
  if (depth > kDepth) user_error("launch recipe: a size formula is nested too deeply");
  if (const auto constant = expr.as_constant()) {
    program_.push_back({IntOp::constant, *constant});
    return;
  }
  if (expr.op() == IntOp::variable) {
    program_.push_back({IntOp::variable, static_cast<std::int64_t>(index_of(expr.name(), names))});
    return;
  }
  int at = depth;
  for (const IntExpr& arg : expr.args()) compile(arg, names, at++);
  program_.push_back({expr.op()});
}

std::int64_t SizeFormula::evaluate(std::span<const std::int64_t> sizes) const {
  std::array<std::int64_t, kDepth + 1> stack;
  std::size_t top = 0;
  for (const Instruction& instruction : program_) {
    switch (instruction.op) {
      case IntOp::constant:
        stack[top++] = instruction.operand;
        break;
      case IntOp::variable:
        stack[top++] = sizes[instruction.operand];
        break;
      case IntOp::logical_not:
        stack[top - 1] = stack[top - 1] == 0 ? 1 : 0;
        break;
      case IntOp::select:
        top -= 2;
        stack[top - 1] = stack[top - 1] != 0 ? stack[top] : stack[top + 1];
        break;
      default:
        --top;
        stack[top - 1] = compute_binary(instruction.op, stack[top - 1], stack[top]);
    }
  }
  return stack[0];
}

CompiledConstraint::CompiledConstraint(const SizeConstraint& constraint, std::span<const std::string> names)
    : constant_(constraint.constant), modulus_(constraint.modulus), equality_(constraint.equality), text_(constraint.str()) {
  for (const auto& [name, coefficient] : constraint.terms) terms_.push_back({index_of(name, names), coefficient});
}

bool CompiledConstraint::holds(std::span<const std::int64_t> sizes) const {
  __int128 sum = constant_;
  for (const Term& term : terms_) sum += static_cast<__int128>(term.coefficient) * sizes[term.size];
  if (modulus_ > 0) return sum % modulus_ == 0;
  return equality_ ? sum == 0 : sum >= 0;
}

}  // namespace nestor
