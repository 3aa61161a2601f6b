// The lowering of each kind of op to loops of vector code.
#pragma once

#include "codegen/host/emit/frame.h"

namespace nestor {

/// copy, map and points: one store for each point.
void lower_map(Frame& frame, const TileOp& op);

/// reduce, and contractions too thin for a microkernel.
void lower_reduce(Frame& frame, const TileOp& op);

/// contract: register-blocked microkernels over packed panels; falls back to lower_reduce where no microkernel fits.
void lower_contract(Frame& frame, const TileOp& op);

}  // namespace nestor
