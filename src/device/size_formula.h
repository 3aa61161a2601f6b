// Size formulas and constraints of a launch recipe, compiled so that a launch evaluates them without allocating.
#pragma once

#include "support/launch_recipe.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace nestor {

/// Sizes a kernel knows: the parameters in recipe order, then fixed sizes that are no parameters.
std::vector<std::string> size_names(const LaunchRecipe& recipe);

/// An integer expression over sizes, as a program for a stack machine.
class SizeFormula {
 public:
  /// `names`: the sizes, in the order of the values that evaluate() is given. Throws UserError for an unknown name.
  SizeFormula(const IntExpr& expr, std::span<const std::string> names);

  /// Throws UserError when the value does not fit 64 bits, or a divisor is not positive.
  std::int64_t evaluate(std::span<const std::int64_t> sizes) const;

 private:
  static constexpr int kDepth = 32;
  struct Instruction {
    IntOp op;
    std::int64_t operand = 0;  ///< constant: its value; variable: its index
  };
  void compile(const IntExpr& expr, std::span<const std::string> names, int depth);
  std::vector<Instruction> program_;
};

/// A SizeConstraint with indices in place of names.
class CompiledConstraint {
 public:
  CompiledConstraint(const SizeConstraint& constraint, std::span<const std::string> names);
  bool holds(std::span<const std::int64_t> sizes) const;
  const std::string& text() const { return text_; }

 private:
  struct Term {
    std::size_t size;
    std::int64_t coefficient;
  };
  std::vector<Term> terms_;
  std::int64_t constant_, modulus_;
  bool equality_;
  std::string text_;
};

}  // namespace nestor
