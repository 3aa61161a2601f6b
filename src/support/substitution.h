// Several variables replaced at once.
#pragma once

#include "support/int_expr.h"

#include <map>
#include <string>

namespace nestor {

/// Each variable by its value, at once: a variable inside a value stays, where one replacement after the other would replace it too.
IntExpr substitute_all(const IntExpr& expr, const std::map<std::string, IntExpr>& values);

}  // namespace nestor
