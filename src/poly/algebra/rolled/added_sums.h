// Sums that are added together wherever they are read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor {

using TermsVisitor = std::function<void(const std::vector<ScalarExpr>&)>;

/// What an expression adds up: itself, where it is no addition. Sums of very many terms are some of their own.
std::vector<ScalarExpr> terms_of(const ScalarExpr& value);

/// Visits the terms of each addition in `value` that is no term of another one, once; values that are not added stand alone.
void visit_additions(const ScalarExpr& value, const TermsVisitor& visitor);

/// Does everybody who reads either tensor add both at one place?
bool always_added(const Nest& nest, const std::string& one, const std::string& other);

/// Leaves a tensor out of what its readers add, and out of the nest. Its writers are gone.
void leave_out_of_additions(Nest& nest, const std::string& tensor);

}  // namespace nestor
