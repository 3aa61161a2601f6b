// Equal subexpressions as one node, so that what visits, rewrites or emits expressions meets each of them once.
#pragma once

#include "poly/nest/scalar_expr.h"

namespace nestor {

/// The same expression in which structurally equal subexpressions are the same node.
ScalarExpr share_nodes(const ScalarExpr& expr);

/// Equal for two handles of one node, while either is alive.
inline const void* node_identity(const ScalarExpr& expr) { return &expr.args(); }

/// Has the expression at most some thousand nodes, each counted as often as it is used? What goes through expressions part by part, and
/// through shared parts again and again, would never end for others.
bool is_short(const ScalarExpr& expr);

}  // namespace nestor
