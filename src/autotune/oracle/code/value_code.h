// Value code: a scalar expression as a list of operations on short vectors of doubles, so that the oracle evaluates many
// points at the price of one interpretation.
#pragma once

#include "poly/nest/scalar_expr.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// Points evaluated at once at most.
inline constexpr int kChunk = 128;

/// Supplies the leaves of one chunk of points.
class LeafSource {
 public:
  virtual ~LeafSource() = default;
  virtual void read(int ordinal, double* out, int count) = 0;
  virtual void index(int ordinal, double* out, int count) = 0;
};

class ValueCode {
 public:
  ValueCode() = default;
  /// Throws UserError when a scalar argument has no value.
  ValueCode(const ScalarExpr& expr, const std::map<std::string, double>& scalars);
  /// Doubles of working memory that `run` needs.
  std::size_t registers() const { return code_.size() * kChunk; }
  /// Evaluates `count` points; the result lies inside `memory`.
  const double* run(double* memory, LeafSource& source, int count) const;
  std::size_t size() const { return code_.size(); }

  struct Instruction {
    ScalarOp op;
    ElementType type;
    ElementType operand_type;
    double number = 0;
    int ordinal = -1;
    int a = -1, b = -1, c = -1;
  };
  /// In the order of their results in `memory`.
  const std::vector<Instruction>& instructions() const { return code_; }

 private:
  using Known = std::map<const void*, int>;  ///< node -> position of its value
  int compile(const ScalarExpr& expr, const std::map<std::string, double>& scalars, Known& known);
  std::vector<Instruction> code_;
};

}  // namespace nestor
