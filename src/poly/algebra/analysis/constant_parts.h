// Where in its domain a statement's value is a known constant, because of conditions on indices.
#pragma once

#include <isl/cpp.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor {

/// { Statement -> element } of a tensor that leaves no constant where it is NaN, or, if given, that infinity.
struct Company {
  std::string tensor;
  isl::map element;
  std::optional<double> infinity;
};

/// A part of a statement's domain, and the constant that an expression has there if it is known.
struct ConstantPart {
  isl::set domain;
  std::optional<double> value;
  bool masked = false;              ///< by a condition on indices
  std::vector<Company> company;     ///< with these being infinite or NaN the value is NaN
  std::set<std::string> factors{};  ///< tensors that a mask multiplies by 0 there, and that may be infinite or NaN
  std::string why{};                ///< where a constant was lost: what may be infinite, NaN or 0
};
using ConstantParts = std::vector<ConstantPart>;

/// Elements of a temporary that hold a known constant, because of a condition.
struct KnownElements {
  isl::set elements;
  double value;
  std::vector<Company> company;  ///< from the temporary's elements
  std::set<std::string> factors{};
};

/// The parts of the statement's domain, by what its value is there. `known`: the constant elements of temporaries.
ConstantParts constant_parts(const Nest& nest, const Statement& statement, const std::map<std::string, KnownElements>& known);

}  // namespace nestor
