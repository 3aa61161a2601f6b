// Corrections of composite reductions as code applies them.
#pragma once

#include "poly/nest/composite.h"

#include <map>
#include <string>

namespace nestor {

/// `expr` with expressions in place of scalars, by their names.
ScalarExpr substitute_scalars(const ScalarExpr& expr, const std::map<std::string, ScalarExpr>& values);

/// What turns a term "r" that a mediator left, with a part's lead "m_old", into the term with the final lead "m_new"; both leads as
/// accumulated. A term that saw another value than the lead (`view`) is no exception where the lead has not moved: of a row of
/// nothing but -inf it becomes NaN, as by the definition. Expects one follower whose correction is that of its terms.
ScalarExpr settled_correction(const Composite& composite);

}  // namespace nestor
