// The range of a scalar argument: what has the members `minimum` and `maximum`, infinite where there is no limit.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

namespace nestor {

/// Not so for NaN, whatever the range.
template <class Scalar>
bool in_range(double value, const Scalar& scalar) {
  return scalar.minimum <= value && value <= scalar.maximum;
}

/// "1e-30 to inf"
template <class Scalar>
std::string range_text(const Scalar& scalar) {
  return fmt::format("{} to {}", scalar.minimum, scalar.maximum);
}

/// The limits that there are become members "min" and "max": JSON has no infinity.
template <class Scalar>
void range_to_json(const Scalar& scalar, nlohmann::json& out) {
  if (!std::isinf(scalar.minimum)) out["min"] = scalar.minimum;
  if (!std::isinf(scalar.maximum)) out["max"] = scalar.maximum;
}

}  // namespace nestor
