// Tensor fit: do a choice's tiles find room in the registers and the shared memory of a block?
#pragma once

#include "autotune/space/gpu/axes/tensor_axes.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/space_limits.h"
#include "codegen/gpu/target/tensor_block.h"

#include <string>

namespace nestor {

/// What a block of the choice keeps, as its plan will say: of tiles at the ends of tensors, which may be smaller, the whole ones.
nvptx::TensorBlock tensor_block(const TensorAxes& axes, const TensorChoice& choice, int sm);

/// Why the registers or the shared memory of a block cannot hold the choice's tiles; empty when they can.
std::string tensor_infeasible(const TensorAxes& axes, const TensorChoice& choice, const GpuLimits& limits);

/// Columns of the narrowest tile that has all of them, of those that are searched.
std::int64_t widest_tile(const TensorAxes& axes);

/// As many stages as find room, from the choice's own number down to `least`. False: not even these do.
bool take_stages(const TensorAxes& axes, const GpuLimits& limits, TensorChoice& choice, int least = 2);

/// Work tiles of the choice along rows, in all their packs: those of a cluster are whole.
std::int64_t tiles_of_rows(const TensorAxes& axes, const TensorChoice& choice);

/// With `column`: the pack of rows whose work tiles have the fewest empty places; 1, unless another has a fifth fewer of them.
int likely_pack(const TensorAxes& axes, TensorChoice choice, const GpuLimits& limits);

}  // namespace nestor
