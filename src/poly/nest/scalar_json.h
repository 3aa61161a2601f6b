// Scalar expressions <-> JSON, as they stand in nest files.
#pragma once

#include "poly/nest/json_reader.h"
#include "poly/nest/scalar_expr.h"

#include <nlohmann/json.hpp>

namespace nestor {

nlohmann::json scalar_expr_to_json(const ScalarExpr& expr);
/// Throws UserError naming the offending key.
ScalarExpr scalar_expr_from_json(const nlohmann::json& json);

/// What scalar_expr_to_json writes. Equal subexpressions of the result are one node. Throws UserError naming the offending key.
ScalarExpr read_scalar_expr(const JsonReader& reader);

}  // namespace nestor
