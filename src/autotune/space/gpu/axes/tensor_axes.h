// TensorAxes: which loops of a fusion group become rows and columns of tiles on tensor cores.
#pragma once

#include "autotune/space/gpu/axes/tile_axes.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

#include <optional>

namespace nestor {

/// The axes if a statement of the fusion group is a sum of products of 16-bit inputs (or of one with a temporary) that fits.
/// `sm`: the compute capability, times ten, which says whether streamed sums may have packs.
std::optional<TensorAxes> tensor_axes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int sm);

/// Do sums along the streamed axis have other rows at some of its positions than at others, as under a triangular mask? Then those of a
/// part of the axis cannot stay in registers: its first tile does not have all of their rows. Where tiles are parts, that axis is the one of
/// columns.
bool rows_follow_stream(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& axes);

/// Do several tiles of weights come from as many tiles of scores? Then they may be independent chains of products.
bool several_chains(const TensorAxes& axes);

}  // namespace nestor
