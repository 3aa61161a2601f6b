// Halide's integer and boolean expressions as isl functions and sets over a statement's dims and the sizes.
#pragma once

#include <Halide.h>

#include <isl/cpp.h>

#include <map>
#include <optional>
#include <string>

namespace nestor {

/// What the parameters of a definition mean, by their Halide names.
struct ParameterTable {
  std::map<std::string, std::string> sizes;     ///< Param -> isl parameter
  std::map<std::string, std::string> scalars;   ///< Param -> scalar argument
  std::map<std::string, Halide::Expr> aliases;  ///< e.g. "X.extent.0" of a declared input -> its extent
};

/// Translates the expressions of one statement. Failure is a value: nullopt, and `reason()` tells why.
class AffineScope {
 public:
  /// `universe` is `[sizes] -> { S[dims] }`; `dims` maps Halide variables to positions in it.
  AffineScope(const isl::set& universe, std::map<std::string, int> dims, const ParameterTable& parameters)
      : universe_(universe), dims_(std::move(dims)), parameters_(parameters) {}

  /// { S[dims] -> [value] }; min, max, select and division by constants give pieces.
  std::optional<isl::pw_aff> integer(const Halide::Expr& expr);
  /// As above, but only sums of multiples, and divisions and remainders by constants: one piece.
  std::optional<isl::pw_aff> single_piece(const Halide::Expr& expr);
  /// { S[dims] : expr }, exact.
  std::optional<isl::set> condition(const Halide::Expr& expr);
  /// A superset of { S[dims] : expr == holds }, as tight as the affine parts of `expr` allow.
  isl::set necessary(const Halide::Expr& expr, bool holds);

  /// Why the last translation failed: names the part of the expression at fault.
  const std::string& reason() const { return reason_; }
  const isl::set& universe() const { return universe_; }
  /// Dim of the statement that `variable` is, if any.
  std::optional<int> dim_of(const std::string& variable) const;

 private:
  using Function = std::optional<isl::pw_aff>;
  Function visit(const Halide::Expr& expr);
  Function visit_variable(const Halide::Internal::Variable& variable);
  Function visit_product(const Halide::Expr& a, const Halide::Expr& b);
  Function visit_quotient(const Halide::Expr& a, const Halide::Expr& b, bool remainder);
  Function visit_select(const Halide::Internal::Select& select);
  Function visit_call(const Halide::Internal::Call& call);
  Function constant(std::int64_t value) const;
  std::optional<isl::set> visit_condition(const Halide::Expr& expr);
  std::optional<isl::set> compare(const Halide::Expr& a, const Halide::Expr& b,
                                  isl::set (isl::pw_aff::*relation)(isl::pw_aff) const);
  std::nullopt_t fail(const Halide::Expr& culprit, const std::string& why);

  isl::set universe_;
  std::map<std::string, int> dims_;
  const ParameterTable& parameters_;
  bool pieces_ = true;
  std::string reason_;
};

/// The value of an integer constant expression.
std::optional<std::int64_t> constant_of(const Halide::Expr& expr);

/// Strips markers that do not change a value: likely, strict_float and the like.
Halide::Expr without_markers(Halide::Expr expr);

}  // namespace nestor
