// Passes over finished tile programs.
#pragma once

#include "codegen/tile/tile_program.h"

namespace nestor {

/// Replaces an outer loop variable in every bound, guard and index of the op.
void substitute_variable(TileOp& op, const std::string& variable, const IntExpr& value);

/// The context as constraints a launcher can test. Throws UserError when it is not one conjunction of linear facts.
std::vector<SizeConstraint> size_constraints(const isl::set& context);

/// Folds initialisations into the reductions that follow them, and drops loops of one iteration.
TileProgram finish(TileProgram program);

/// True when `expr` reads nothing and is the constant `value`.
bool is_constant_value(const ScalarExpr& expr, double value);

/// True when `init` writes, without reading them back, exactly the elements that the reduction `op` accumulates into.
bool starts_elements(const TileOp& init, const TileOp& op);

}  // namespace nestor
