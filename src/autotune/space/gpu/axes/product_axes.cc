// Rows, columns and terms found in the indices of a product's operands and result.
#include "autotune/space/gpu/axes/product_axes.h"

#include "autotune/space/gpu/axes/tensor_operands.h"
#include "autotune/space/structure/axes.h"
#include "codegen/gpu/target/tensor_block.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/contraction.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/rounding.h"

#include <isl/set.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace nestor {
namespace {

constexpr std::int64_t kMostWholeColumns = 256;   ///< of a tile
constexpr std::int64_t kFewestWholeColumns = 32;  ///< of each of several parts
constexpr std::int64_t kFewColumns = 8;           ///< the smallest product has twice as many

/// Tiles of 128 rows, in the pack that fills them best.
std::int64_t fewest_tiles(const TensorAxes& axes) {
  constexpr std::int64_t kRows = 128;
  std::int64_t fewest = ceil_div(axes.row_extent, kRows) * axes.pack_extent;
  for (std::int64_t pack = 2; pack <= nvptx::kMostPacked && axes.pack >= 0; pack *= 2)
    fewest = std::min(fewest, ceil_div(axes.row_extent, kRows / pack) * ceil_div(axes.pack_extent, pack));
  return fewest * axes.others;
}

/// Rows of what packs them, where those fill more of a tile: 1,500 places of five heads are tiles of places for each head.
TensorAxes with_fuller_rows(const TensorAxes& axes) {
  if (axes.pack < 0) return axes;
  TensorAxes other = axes;
  other.row = std::exchange(other.pack, -1);
  other.row_extent = std::exchange(other.pack_extent, 1);
  return 5 * axes.row_extent * fewest_tiles(other) > 4 * fewest_tiles(axes) ? axes : other;
}

}  // namespace

std::optional<TensorAxes> axes_of_product(const Nest& nest, const NestStructure& structure, const LoopGroup& loop_group,
                                          const Statement& statement, const FusionGroup& group) {
  const std::vector<Contraction> products = unscaled_contractions_of(statement);
  if (products.empty() || !are_copied(nest, structure, group, statement, products)) return std::nullopt;
  const Access &a = statement.reads[static_cast<std::size_t>(products.front().a)],
               &b = statement.reads[static_cast<std::size_t>(products.front().b)];
  if (interleaves_products(loop_group, a, b, statement.write) || interleaves_products(loop_group, b, a, statement.write))
    return std::nullopt;
  const std::vector<int> in_a = followed_axes(loop_group, a), in_b = followed_axes(loop_group, b),
                         written = followed_axes(loop_group, statement.write);
  if (written.empty()) return std::nullopt;
  TensorAxes result;
  // Columns are streamed: an axis of one operand alone, which other statements of the group do not share, whatever its place.
  result.reduction_axis = written.back();
  for (const int axis : written) {
    if (has(in_a, axis) != has(in_b, axis) && !has(group.axes, axis)) result.reduction_axis = axis;
  }
  if (result.reduction_axis < 0 || has(in_a, result.reduction_axis) == has(in_b, result.reduction_axis)) return std::nullopt;
  // Rows, and what packs them, are those of one operand, and columns those of the other. What else this one follows are loops around, if
  // columns alone fill tiles.
  const bool fills = structure.axes[static_cast<std::size_t>(result.reduction_axis)].extent >= kLikelyColumns;
  for (const int axis : written) {
    if (axis == result.reduction_axis || !has(group.axes, axis) || has(in_a, axis) == has(in_b, axis)) continue;
    if (has(in_a, axis) != has(in_a, result.reduction_axis)) {
      result.pack = std::exchange(result.row, axis);
    } else if (!fills) {
      return std::nullopt;
    }
  }
  if (result.row < 0 || !has(group.reduction_axes, result.reduction_axis)) return std::nullopt;
  // Rows that lie across memory have no places between them.
  if ((has(in_a, result.row) ? in_a : in_b).back() == result.row) result.pack = -1;
  for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
    if (loop_group.reduced[k]) {
      // Rows of operands have terms of one dim: a loop over others has no place within that over columns.
      if (result.inner > 1) return std::nullopt;
      result.inner = loop_group.extents[k];
    }
    if (loop_group.axes[k] == result.row) result.row_extent = loop_group.extents[k];
    if (loop_group.axes[k] == result.pack) result.pack_extent = loop_group.extents[k];
  }
  if (result.pack_extent == 1) result.pack = -1;
  return with_fuller_rows(result);
}

namespace {

/// Notes the axis whose values may be places within rows, as images of a batch may be within those of a convolution: another one that the
/// operand of the rows has alone, further out. Of several the one that fills packs best, and then the longest.
template <class Alone>
void find_pack(const LoopGroup& loop_group, const Access& rows, const Alone& alone, const isl::set& domain, TensorAxes& result) {
  const std::vector<int> moved = moved_axes(loop_group, rows, Moves::strided);
  if (followed_axes(loop_group, rows).back() != result.reduction_axis) return;  // memory runs along other dims than the terms
  const int row = loop_group.position_of(result.row), column = loop_group.position_of(result.column);
  // Rows of one pack lie side by side in tiles of results: no columns come between.
  for (int k = column < row ? column + 1 : 0; k < row; ++k) {
    const int axis = loop_group.axes[static_cast<std::size_t>(k)];
    const std::int64_t extent = loop_group.extents[static_cast<std::size_t>(k)];
    if (!alone(axis) || axis == result.column || !has(moved, axis)) continue;
    if (!is_box(domain, k, row) || !is_box(domain, k, loop_group.position_of(result.reduction_axis))) continue;
    const auto worth = [](std::int64_t values) { return std::pair(values % nvptx::kMostPacked == 0, values); };
    if (extent < 2 || (result.pack >= 0 && worth(extent) <= worth(result.pack_extent))) continue;
    result.pack = axis;
    result.pack_extent = extent;
  }
  if (result.pack < 0) result.pack_extent = 1;
}

}  // namespace

std::optional<TensorAxes> axes_of_sum(const Nest& nest, const NestStructure& structure, const LoopGroup& loop_group,
                                      const Statement& statement, const FusionGroup& group, bool packs) {
  const std::vector<Contraction> products = unscaled_contractions_of(statement);
  if (products.empty() || nest.tensor(statement.write.tensor).role != TensorRole::temporary ||
      !are_copied(nest, structure, group, statement, products))
    return std::nullopt;
  const Access &a = statement.reads[static_cast<std::size_t>(products.front().a)],
               &b = statement.reads[static_cast<std::size_t>(products.front().b)];
  if (interleaves_products(loop_group, a, b, statement.write) || interleaves_products(loop_group, b, a, statement.write))
    return std::nullopt;
  const Moves moves = packs ? Moves::strided : Moves::single;
  const std::vector<int> in_a = moved_axes(loop_group, a, moves), in_b = moved_axes(loop_group, b, moves),
                         single_a = moved_axes(loop_group, a), single_b = moved_axes(loop_group, b),
                         taps_a = moved_axes(loop_group, a, Moves::any), taps_b = moved_axes(loop_group, b, Moves::any),
                         written = followed_axes(loop_group, statement.write);
  TensorAxes result;
  std::int64_t points = 1;
  for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
    const int axis = loop_group.axes[k];
    if (!loop_group.reduced[k]) {
      points *= loop_group.extents[k];
      continue;
    }
    // Of several reduced dims the innermost is cut into tiles; the others are loops around products.
    if (!has(taps_a, axis) || !has(taps_b, axis)) return std::nullopt;
    if (result.reduction_axis >= 0) {
      result.tap_axes.push_back(result.reduction_axis);
      result.taps *= result.inner;
    }
    result.reduction_axis = axis;
    result.inner = loop_group.extents[k];
    result.fixed_inner = has_one_value(nest, extent_of(nest, statement.domain, static_cast<int>(k)));
  }
  const int innermost = loop_group.position_of(result.reduction_axis);
  if (cuts_tiles(a, innermost, result.inner) || cuts_tiles(b, innermost, result.inner)) return std::nullopt;
  const auto extent = [&](int axis) { return loop_group.extents[static_cast<std::size_t>(loop_group.position_of(axis))]; };
  const auto shifts = [&](int axis) {
    return shifts_terms(loop_group, a, axis, result.reduction_axis) || shifts_terms(loop_group, b, axis, result.reduction_axis);
  };
  const auto alone = [&](int axis) { return has(in_a, axis) != has(in_b, axis) && is_common(group, axis) && !shifts(axis); };
  // The innermost of those that one operand alone has: what is left of them are other rows or columns, in blocks of their own. Few, as taps,
  // are no columns where one further out fills more.
  for (const int axis : written) {
    if (axis < 0 || !alone(axis) || !(has(single_a, axis) || has(single_b, axis))) continue;
    const bool few = extent(axis) < kFewColumns && result.column >= 0 && extent(result.column) >= 2 * kFewColumns;
    if (!few) result.column = axis;
  }
  // Parts of rows are those of the columns that their reductions run along.
  if (group.tile_is_part) result.column = has(written, group.part->whole) && alone(group.part->whole) ? group.part->whole : -1;
  for (const int axis : written) {
    if (axis < 0 || result.column < 0 || !alone(axis) || has(in_a, axis) == has(in_a, result.column)) continue;
    // Unless one further out fills at least twice as many rows of a tile.
    if (result.row < 0 || 2 * extent(axis) > std::min(extent(result.row), std::int64_t{nvptx::kWarpgroupRows})) result.row = axis;
  }
  // Where blocks share rows alone, or rows of each of several parts of the columns, a tile may have all columns of them.
  for (std::size_t k = 0; k < loop_group.axes.size() && result.column >= 0 && !result.whole_rows && !group.tile_is_part; ++k) {
    const int axis = loop_group.axes[k];
    // Fewer columns would leave most of a tile empty: rather tiles of the parts.
    if (result.row >= 0 && (is_common(group, axis) || loop_group.extents[k] < kFewestWholeColumns)) continue;
    const auto is_of_other = [&](int rows) {
      return rows >= 0 && has(in_a, axis) != has(in_b, axis) && has(in_a, axis) != has(in_a, rows) &&
             (has(single_a, axis) || has(single_b, axis));
    };
    const int rows = is_of_other(result.column) ? result.column : is_of_other(result.row) ? result.row : -1;
    const bool known = !loop_group.reduced[k] && has_one_value(nest, extent_of(nest, statement.domain, static_cast<int>(k)));
    result.whole_rows = rows >= 0 && known && has(written, axis) && loop_group.extents[k] <= kMostWholeColumns;
    if (!result.whole_rows) continue;
    result.row = rows;
    result.column = axis;
  }
  if (result.row < 0 || result.column < 0 || !has(single_a, result.reduction_axis) || !has(single_b, result.reduction_axis))
    return std::nullopt;
  // What blocks do not share, as places of which another statement takes the largest, would be loops within tiles: but for one over chunks of
  // terms, which others of the group add up.
  for (const int axis : written) {
    if (axis < 0 || axis == result.row || axis == result.column || is_common(group, axis) || extent(axis) == 1) continue;
    const bool chunks = has(group.reduction_axes, axis) && has(taps_a, axis) && has(taps_b, axis) &&
                        result.inner <= kMostTermsOfChunk && result.tap_axes.empty() && result.chunk_axis < 0;
    if (!chunks) return std::nullopt;
    result.chunk_axis = axis;
    result.chunks = several_products(nest, statement.write.tensor) ? 1 : extent(axis);
  }
  // Copies bring whole tiles of terms.
  const isl::set domain = statement.domain.intersect_params(full_context(nest));
  const auto whole = [&](int axis) { return is_box(domain, loop_group.position_of(axis), innermost); };
  if (!whole(result.row) || !whole(result.column)) return std::nullopt;
  const auto is_fixed = [&](int axis) {
    return has_one_value(nest, extent_of(nest, statement.domain, loop_group.position_of(axis)));
  };
  result.column_extent = extent(result.column);
  result.fixed_columns = is_fixed(result.column);
  const auto with_rows = [&](int axis) {
    TensorAxes other = result;
    other.row = axis;
    other.row_extent = extent(axis);
    other.fixed_rows = is_fixed(axis);
    other.row_stride = stride_of(loop_group, has(in_a, axis) ? a : b, axis);
    if (packs && result.chunk_axis < 0) find_pack(loop_group, has(in_a, axis) ? a : b, alone, domain, other);
    other.others = points / std::max<std::int64_t>(other.row_extent * other.pack_extent * other.column_extent * other.chunks, 1);
    return other;
  };
  TensorAxes best = with_rows(result.row);
  // Rows of another dim, where packs make them fill more.
  for (const int axis : written) {
    if (!packs || axis < 0 || !alone(axis) || has(in_a, axis) == has(in_a, result.column) || !whole(axis)) continue;
    const TensorAxes other = with_rows(axis);
    if (other.pack >= 0 && 5 * fewest_tiles(other) <= 4 * fewest_tiles(best)) best = other;
  }
  for (const Access* operand : {&a, &b}) {
    if (lies_across_tiles(loop_group, *operand, best) || starts_anywhere(loop_group, *operand, best) ||
        overlaps_rows(loop_group, *operand, best))
      return std::nullopt;
  }
  return best;
}

}  // namespace nestor
