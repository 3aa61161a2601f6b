// Halide's value expressions as ScalarExprs, with the reads and affine integers they use.
#pragma once

#include <Halide.h>

#include <map>
#include <string>
#include <vector>

#include "frontend/values/affine_index.h"
#include "frontend/values/refusal.h"
#include "poly/nest/scalar_expr.h"

namespace nestor {

/// Where a Func's component or an input lives.
struct TensorRef {
  std::string name;
  ElementType type = ElementType::f32;
  bool boolean = false;  ///< bool in Halide: stored as i32, 0 or 1
};

/// A read, before bounds are known.
struct ReadDraft {
  std::string tensor;
  std::vector<isl::pw_aff> index;  ///< outermost first
  isl::set guard;                  ///< statement instances that may use the value: the affine conditions of selects around it
};

/// The element type of a Halide type; refuses what Nestor does not compute with.
ElementType element_type_of(const Halide::Type& type, const FuncPlace& place, const Halide::Expr& expr);

/// Translates the values of one statement. Values of 16-bit types are carried as f32 and rounded after each operation;
/// unsigned values are carried as i32 bit patterns.
class ValueTranslator {
 public:
  using TensorLookup = std::function<TensorRef(const Halide::Internal::Call&)>;

  ValueTranslator(FuncPlace place, AffineScope& scope, const ParameterTable& parameters, TensorLookup lookup)
      : place_(std::move(place)), scope_(scope), parameters_(parameters), lookup_(std::move(lookup)), guard_(scope.universe()) {}

  /// Throws UserError naming the part that cannot be translated. `expr` must be free of Lets.
  ScalarExpr translate(const Halide::Expr& expr);
  /// The function of an index or bound; refuses with `role` when not affine.
  isl::pw_aff affine(const Halide::Expr& expr, const std::string& role);
  /// Indices of a call or of a left-hand side, outermost first.
  std::vector<isl::pw_aff> indices_of(const std::vector<Halide::Expr>& args, const std::string& tensor);

  const std::vector<ReadDraft>& reads() const { return reads_; }
  const std::vector<isl::pw_aff>& indices() const { return indices_; }

 private:
  ScalarExpr visit(const Halide::Expr& expr);
  ScalarExpr visit_uncached(const Halide::Expr& expr);
  ScalarExpr visit_cast(const Halide::Internal::Cast& cast);
  ScalarExpr convert(ScalarExpr value, Halide::Type from, Halide::Type to, const Halide::Expr& culprit);
  ScalarExpr visit_arithmetic(const Halide::Expr& expr);
  ScalarExpr visit_division(const Halide::Expr& a, const Halide::Expr& b, const Halide::Expr& whole);
  ScalarExpr visit_remainder(const Halide::Expr& a, const Halide::Expr& b, const Halide::Expr& whole);
  ScalarExpr visit_comparison(const Halide::Expr& expr);
  ScalarExpr visit_select(const Halide::Expr& condition, const Halide::Expr& yes, const Halide::Expr& no);
  ScalarExpr visit_call(const Halide::Internal::Call& call);
  ScalarExpr visit_intrinsic(const Halide::Internal::Call& call);
  ScalarExpr visit_bits(const Halide::Internal::Call& call);
  ScalarExpr visit_function(const Halide::Internal::Call& call);
  ScalarExpr visit_read(const Halide::Internal::Call& call);
  ScalarExpr visit_index(const isl::pw_aff& function);
  ScalarExpr branch(const Halide::Expr& expr, const isl::set& when);
  [[noreturn]] void refuse_value(const Halide::Expr& expr, const std::string& reason) const;

  FuncPlace place_;
  AffineScope& scope_;
  const ParameterTable& parameters_;
  TensorLookup lookup_;
  isl::set guard_;
  std::map<const Halide::Internal::IRNode*, ScalarExpr> done_;  ///< under the current guard
  std::vector<Halide::Expr> alive_;                             ///< keeps the keys of `done_` from being reused
  std::vector<ReadDraft> reads_;
  std::vector<isl::pw_aff> indices_;
};

}  // namespace nestor
