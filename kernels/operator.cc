// The registry of operators and the few helpers that their definitions share.
#include "operator.h"

#include <algorithm>
#include <cmath>

#include "support/error.h"

namespace nestor::kernels {
namespace {

/// Filled before main by the Registrations of the files beside this one.
std::vector<Operator>& registry() {
  static std::vector<Operator> all;
  return all;
}

}  // namespace

Registration::Registration(Operator op) {
  std::vector<Operator>& all = registry();
  const auto at =
      std::lower_bound(all.begin(), all.end(), op, [](const Operator& a, const Operator& b) { return a.name < b.name; });
  all.insert(at, std::move(op));
}

const std::vector<Operator>& operators() { return registry(); }

HalideDefinition define(const std::string& op, const std::string& variant) {
  for (const Operator& known : operators()) {
    if (known.name != op) continue;
    if (std::find(known.variants.begin(), known.variants.end(), variant) == known.variants.end()) {
      user_error("operator '{}' has no variant '{}'", op, variant);
    }
    HalideDefinition definition = known.define(variant);
    definition.op = op;
    definition.variant = variant;
    return definition;
  }
  user_error("there is no operator '{}'", op);
}

Halide::Type element_of(const std::string& variant) {
  const std::string name = variant.substr(variant.rfind('.') + 1);  // npos + 1 is 0
  if (name == "f32") return Halide::Float(32);
  if (name == "f16") return Halide::Float(16);
  if (name == "bf16") return Halide::BFloat(16);
  internal_error("variant '{}' does not end with an element type", variant);
}

std::vector<std::string> variants(const std::vector<std::string>& options) {
  std::vector<std::string> all;
  for (const std::string& chosen : options) {
    for (const std::string type : {"f32", "f16", "bf16"}) {
      if (chosen.ends_with("f32weight") && type == "f32") continue;
      all.push_back(chosen.empty() ? type : chosen + "." + type);
    }
  }
  return all;
}

Halide::Type weight_type_of(const std::string& variant) {
  return has_option(variant, "f32weight") ? Halide::Float(32) : element_of(variant);
}

bool has_option(const std::string& variant, const std::string& option) {
  return ("." + variant).find("." + option + ".") != std::string::npos;
}

double tolerance_for(const std::string& variant, double f32_tolerance) {
  const Halide::Type type = element_of(variant);
  if (type.bits() == 32) return f32_tolerance;
  return std::max(f32_tolerance, type.is_bfloat() ? 1.6e-2 : 2e-3);
}

std::vector<HalideSize> RowSizes::sizes() const {
  return {{rows, 4096}, {.param = width, .default_value = 1024, .specialized = true}};
}

HalideOutput column_sum(const std::string& name, const Halide::Expr& term, const Halide::Var& c, const Halide::Type& type,
                        const RowSizes& sizes) {
  // A sum of f32 is the result: a copy would be no part of anybody's definition.
  const bool wide_result = type.bits() == 32;
  Halide::Func sum(wide_result ? name : name + "_sum");
  sum(c) = 0.0f;
  sum(c) += term;
  if (wide_result) return {sum, sizes.row()};
  Halide::Func result(name);
  result(c) = Halide::cast(type, sum(c));
  return {result, sizes.row()};
}

Halide::Expr gelu(const Halide::Expr& x) { return 0.5f * x * (1.0f + Halide::erf(x * static_cast<float>(std::sqrt(0.5)))); }

}  // namespace nestor::kernels
