// Direct sums: where what a rule made of a sum does not hold, the sum's own terms are added up.
#pragma once

#include "poly/algebra/values/dims_view.h"
#include "poly/nest/nest.h"

#include <string>

namespace nestor {

/// |value| <= most: false for NaN.
ScalarExpr at_most(const ScalarExpr& value, double most);
/// Is the value neither an infinity nor NaN?
ScalarExpr is_finite(const ScalarExpr& value);
/// Is the node such a test?
bool tests_finite(const ScalarExpr& node);

/// Adds a temporary with an element for each point of `results`, in front of the group of `sum`, a statement of the nest. It starts from the element of
/// the f32 tensor `value` where that is finite, else from 0; then it adds up the sum's terms where that is not. Returns its name.
std::string add_direct_sums(Nest& nest, const Statement& sum, const DimsView& results, const std::string& value);

/// A temporary for results, with a fresh name that ends so; returns the name.
std::string add_results(Nest& nest, const Statement& sum, const DimsView& results, const std::string& suffix);
/// A statement that writes each element of a tensor with elements for results.
Statement over_results(const Nest& nest, const DimsView& results, const std::string& name, const std::string& tensor);
/// What it reads of another one at the same place.
ScalarExpr read_at(Statement& statement, const std::string& tensor, const isl::map& relation);

}  // namespace nestor
