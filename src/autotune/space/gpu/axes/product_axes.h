// ProductAxes: rows, columns and terms of one product of matrices, as axes of tiles on tensor cores.
#pragma once

#include "autotune/space/gpu/axes/tile_axes.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

#include <cstdint>
#include <optional>

namespace nestor {

inline constexpr std::int64_t kShortSum = 64;  ///< terms of a sum that need no loop over tiles
/// Terms of a chunk, all of which a tile has at once: as many as share a scale in blocks of 128.
inline constexpr std::int64_t kMostTermsOfChunk = 128;

/// Of a product whose columns are streamed, tile by tile; nothing where it does not fit.
std::optional<TensorAxes> axes_of_product(const Nest& nest, const NestStructure& structure, const LoopGroup& loop_group,
                                          const Statement& statement, const FusionGroup& group);

/// Of a product of two inputs that is summed into a temporary, whose terms come tile by tile.
std::optional<TensorAxes> axes_of_sum(const Nest& nest, const NestStructure& structure, const LoopGroup& loop_group,
                                      const Statement& statement, const FusionGroup& group, bool packs);

}  // namespace nestor
