// What a file in this folder provides: an operator's naive definition, its named sizes, element types and tolerance.
// A new operator is a new file: define a function and register it with NESTOR_OPERATOR; CMake finds the file.
#pragma once

#include <Halide.h>

#include <string>
#include <vector>

#include "frontend/halide_frontend.h"

namespace nestor::kernels {

struct Operator {
  std::string name;
  std::vector<std::string> variants;  ///< "f32", "causal.bf16", ...: options, then the element type; the first is the default
  HalideDefinition (*define)(const std::string& variant);
};

/// All registered operators by name.
const std::vector<Operator>& operators();

/// The definition of one variant, with its names filled in. Throws UserError when there is no such operator or variant.
HalideDefinition define(const std::string& op, const std::string& variant);

struct Registration {
  explicit Registration(Operator op);
};

/// NESTOR_OPERATOR(name, function, "variant", ...) or NESTOR_OPERATOR(name, function, variants({"", "option", ...}))
#define NESTOR_OPERATOR(op, function, ...)                              \
  static const nestor::kernels::Registration nestor_registration_##op { \
    nestor::kernels::Operator { #op, {__VA_ARGS__}, function }          \
  }

/// Element type that a variant's name ends with, as Halide has it.
Halide::Type element_of(const std::string& variant);
/// Every list of options ("" is none, "stats.f32weight" two) with each of f32, f16 and bf16. `f32weight` before f32 says
/// nothing and is left out.
std::vector<std::string> variants(const std::vector<std::string>& options);
/// Type of weights and biases: f32 with the option `f32weight`, else the element type.
Halide::Type weight_type_of(const std::string& variant);
/// True when the options before the element type include `option`.
bool has_option(const std::string& variant, const std::string& option);

/// `f32_tolerance` for f32; for 16-bit types at least a few units in the last place of the rounded result.
double tolerance_for(const std::string& variant, double f32_tolerance);

/// Inputs and outputs are stored in the variant's type; everything between is f32.
inline Halide::Expr wide(const Halide::Expr& value) { return Halide::cast<float>(value); }

/// The sizes of an operator on rows: any number of rows at launch, a width for which kernels are compiled.
struct RowSizes {
  Halide::Param<int> rows{"rows"}, width{"width"};
  /// `expr` / width, in f32.
  Halide::Expr over_width(const Halide::Expr& expr) const { return expr / wide(width); }
  std::vector<Halide::Expr> matrix() const { return {width, rows}; }
  std::vector<Halide::Expr> row() const { return {width}; }
  std::vector<Halide::Expr> column() const { return {rows}; }
  std::vector<HalideSize> sizes() const;
};

/// The output `name`(c): the sum over all rows of `term`, in f32, rounded to `type`; `term` uses c and a reduction variable.
HalideOutput column_sum(const std::string& name, const Halide::Expr& term, const Halide::Var& c, const Halide::Type& type,
                        const RowSizes& sizes);

/// x/2 (1 + erf(x / sqrt 2)).
Halide::Expr gelu(const Halide::Expr& x);

}  // namespace nestor::kernels
