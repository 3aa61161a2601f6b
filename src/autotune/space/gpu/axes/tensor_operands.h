// TensorOperands: what operands of products are to a fusion group: where they lie, which axes move them, and whether tensor copies can bring tiles of them.
#pragma once

#include "autotune/space/gpu/axes/tile_axes.h"
#include "autotune/space/structure/nest_structure.h"
#include "codegen/tile/contraction.h"
#include "poly/nest/nest.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// Lies in memory when the fusion group runs: an input, or what other groups have computed.
bool is_stored(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const std::string& tensor);

/// Lies in memory when the fusion group has run: an output, or what other groups read.
bool leaves(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const std::string& tensor);

/// The reads that are multiplied, each once.
std::set<int> operands_of(const std::vector<Contraction>& products);

/// Do tensor copies bring tiles of both operands of all of these products?
bool are_copied(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const Statement& statement,
                const std::vector<Contraction>& products);

/// How axes move an access.
enum class Moves : std::uint8_t {
  single,   ///< by single elements
  strided,  ///< so, or, but for the last index, by a few elements at once, as tensor copies can
  any,      ///< as the taps of a convolution
};

/// Axes that move an access: sums of several included.
std::vector<int> moved_axes(const LoopGroup& loop_group, const Access& access, Moves moves = Moves::single);

/// By how many elements an axis moves an index of the access.
std::int64_t stride_of(const LoopGroup& loop_group, const Access& access, int axis);

/// Is the axis common to the group, or are parts of it?
bool is_common(const FusionGroup& group, int axis);

/// Do neighbouring elements of an operand belong to different products, as the last index follows what both operands and the result do?
bool interleaves_products(const LoopGroup& loop_group, const Access& operand, const Access& other, const Access& write);

/// Are terms along a dim of `inner` values a part of an operand's rows that tiles do not fill, as in patches of an image?
bool cuts_tiles(const Access& operand, int dim, std::int64_t inner);

/// Do neighbouring elements of an operand belong to other tiles, as its last index follows neither terms nor rows or columns, but a loop around?
bool lies_across_tiles(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes);

/// Does the axis shift an operand's terms along memory by other elements than multiples of 16 bytes?
bool shifts_terms(const LoopGroup& loop_group, const Access& operand, int axis, int terms);

/// Does a loop around shift an operand's tiles so?
bool starts_anywhere(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes);

/// Does one index of an operand run along terms and along rows or columns, as signals do that filters slide over? Rows of such tiles would overlap.
bool overlaps_rows(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes);

/// Do several products add up in a tensor, as those of parts do? They take longer than waves of blocks are modelled for: wide tiles were measured
/// to be better.
bool several_products(const Nest& nest, const std::string& tensor);

}  // namespace nestor
