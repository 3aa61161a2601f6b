// Reading scalar expressions as they stand in nest files.
#pragma once

#include "poly/nest/json_reader.h"
#include "poly/nest/scalar_expr.h"

namespace nestor {

/// What scalar_expr_to_json writes. Equal subexpressions of the result are one node. Throws UserError naming the offending key.
ScalarExpr read_scalar_expr(const JsonReader& reader);

}  // namespace nestor
