// The range of a scalar argument: what has the members `minimum` and `maximum`, infinite where there is no limit.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

namespace nestor {

/// Not so for NaN, whatever the range. A scalar with a limit, even one, is finite: rules rely on it.
template <class Scalar>
bool in_range(double value, const Scalar& scalar) {
  const bool limited = std::isfinite(scalar.minimum) || std::isfinite(scalar.maximum);
  return scalar.minimum <= value && value <= scalar.maximum && (!limited || std::isfinite(value));
}

/// "0.5 to 2", "0.5 to inf and finite"
template <class Scalar>
std::string range_text(const Scalar& scalar) {
  const bool open = std::isinf(scalar.minimum) != std::isinf(scalar.maximum);
  return fmt::format("{} to {}{}", scalar.minimum, scalar.maximum, open ? " and finite" : "");
}

/// The limits that there are become members "min" and "max": JSON has no infinity.
template <class Scalar>
void range_to_json(const Scalar& scalar, nlohmann::json& out) {
  if (!std::isinf(scalar.minimum)) out["min"] = scalar.minimum;
  if (!std::isinf(scalar.maximum)) out["max"] = scalar.maximum;
}

}  // namespace nestor
