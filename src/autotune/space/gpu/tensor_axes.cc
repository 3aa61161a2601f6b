// Rows and columns found in the indices of products.
#include "autotune/space/gpu/tensor_axes.h"

#include "autotune/space/structure/axes.h"
#include "codegen/gpu/target/tensor_block.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/contraction.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/rounding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kMostWholeColumns = 256;   ///< of a tile
constexpr std::int64_t kFewestWholeColumns = 32;  ///< of each of several parts
constexpr std::int64_t kMostKeptTerms = 512;      ///< of rows of operands that stay in a block
constexpr std::int64_t kFewColumns = 8;           ///< the smallest product has twice as many
constexpr std::int64_t kShortSum = 64;            ///< terms of a sum that need no loop over tiles
constexpr std::size_t kMostCopiedDims = 5;        ///< of a tensor map

bool is_of(const NestStructure& structure, const FusionGroup& group, const Statement& statement) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const auto& statements = structure.loop_groups[static_cast<std::size_t>(u)].statements;
    return std::find(statements.begin(), statements.end(), statement.name) != statements.end();
  });
}

/// Lies in memory when the fusion group runs: an input, or what other groups have computed.
bool is_stored(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const std::string& tensor) {
  if (nest.tensor(tensor).role == TensorRole::input) return true;
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return std::none_of(writers.begin(), writers.end(), [&](const Statement* writer) { return is_of(structure, group, *writer); });
}

/// Lies in memory when the fusion group has run: an output, or what other groups read.
bool leaves(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const std::string& tensor) {
  if (nest.tensor(tensor).role == TensorRole::output) return true;
  const std::vector<const Statement*> readers = readers_of(nest, tensor);
  return std::any_of(readers.begin(), readers.end(), [&](const Statement* reader) { return !is_of(structure, group, *reader); });
}

/// Do tensor copies bring tiles of it?
bool is_copied(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const std::string& name) {
  const Tensor& tensor = nest.tensor(name);
  return is_stored(nest, structure, group, name) && is_half(tensor.type) && tensor.shape.size() <= kMostCopiedDims &&
         !has_ragged_rows(nest, tensor);
}

/// The reads that are multiplied, each once.
std::set<int> operands_of(const std::vector<Contraction>& products) {
  std::set<int> ordinals;
  for (const Contraction& product : products) ordinals.insert({product.a, product.b});
  return ordinals;
}

/// Do tensor copies bring tiles of both operands of all of these products?
bool are_copied(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const Statement& statement,
                const std::vector<Contraction>& products) {
  const auto copied = [&](int ordinal) {
    return is_copied(nest, structure, group, statement.reads[static_cast<std::size_t>(ordinal)].tensor);
  };
  return std::all_of(products.begin(), products.end(), [&](const Contraction& each) { return copied(each.a) && copied(each.b); });
}

/// How axes move an access.
enum class Moves : std::uint8_t {
  single,   ///< by single elements
  strided,  ///< so, or, but for the last index, by a few elements at once, as tensor copies can
  any,      ///< as the taps of a convolution
};

/// Axes that move an access: sums of several included.
std::vector<int> moved_axes(const LoopGroup& loop_group, const Access& access, Moves moves = Moves::single) {
  std::vector<int> axes;
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(access);
  for (std::size_t index = 0; index < moving.size(); ++index) {
    const bool strided = moves == Moves::strided && index + 1 < moving.size();
    for (const auto& [dim, factor] : moving[index]) {
      const bool known = static_cast<std::size_t>(dim) < loop_group.axes.size();
      if (known && (moves == Moves::any || (factor >= 1 && factor <= (strided ? nvptx::kMostStride : 1))))
        axes.push_back(loop_group.axes[static_cast<std::size_t>(dim)]);
    }
  }
  return axes;
}

/// By how many elements an axis moves an index of the access.
std::int64_t stride_of(const LoopGroup& loop_group, const Access& access, int axis) {
  for (const std::map<int, std::int64_t>& dims : moving_dims(access)) {
    if (const auto found = dims.find(loop_group.position_of(axis)); found != dims.end()) return found->second;
  }
  return 1;
}

/// Is the axis common to the group, or are parts of it?
bool is_common(const FusionGroup& group, int axis) {
  return (group.tile_is_part && axis == group.part->whole) ||
         std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end();
}

bool has(const std::vector<int>& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

/// Do neighbouring elements of an operand belong to different products, as the last index follows what both operands and the result do?
bool interleaves_products(const LoopGroup& loop_group, const Access& operand, const Access& other, const Access& write) {
  const std::vector<int> indices = followed_axes(loop_group, operand);
  const int last = indices.empty() ? -1 : indices.back();
  return last >= 0 && has(followed_axes(loop_group, other), last) && has(followed_axes(loop_group, write), last);
}

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

/// Are terms along a dim of `inner` values a part of an operand's rows that tiles do not fill, as in patches of an image?
bool cuts_tiles(const Access& operand, int dim, std::int64_t inner) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  return !moving.empty() && moving.back().contains(dim) && moving.back().size() > 1 && inner % nvptx::kTerms != 0;
}

/// Do neighbouring elements of an operand belong to other tiles, as its last index follows neither terms nor rows or columns, but a loop around?
bool lies_across_tiles(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  const auto is_of_tile = [&](const auto& dim) {
    const bool known = static_cast<std::size_t>(dim.first) < loop_group.axes.size();
    const int axis = known ? loop_group.axes[static_cast<std::size_t>(dim.first)] : -1;
    return !known || axis == axes.reduction_axis || axis == axes.row || axis == axes.column;
  };
  return !moving.empty() && !moving.back().empty() && std::none_of(moving.back().begin(), moving.back().end(), is_of_tile);
}

constexpr std::int64_t kAligned = 8;  ///< elements of 16 bits in 16 bytes, at multiples of which tensor copies start

/// Does the axis shift an operand's terms along memory by other elements than multiples of 16 bytes?
bool shifts_terms(const LoopGroup& loop_group, const Access& operand, int axis, int terms) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  if (moving.empty() || !moving.back().contains(loop_group.position_of(terms))) return false;
  const auto shift = moving.back().find(loop_group.position_of(axis));
  return shift != moving.back().end() && shift->second % kAligned != 0;
}

/// Does a loop around shift an operand's tiles so?
bool starts_anywhere(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  if (moving.empty() || moving.back().size() < 2) return false;
  return std::any_of(moving.back().begin(), moving.back().end(), [&](const auto& dim) {
    const auto at = static_cast<std::size_t>(dim.first);
    if (at >= loop_group.axes.size() || loop_group.extents[at] == 1 || dim.second % kAligned == 0) return false;
    const int axis = loop_group.axes[at];
    return axis != axes.reduction_axis && axis != axes.row && axis != axes.column;
  });
}

/// Does one index of an operand run along terms and along rows or columns, as signals do that filters slide over? Rows of such tiles would overlap.
bool overlaps_rows(const LoopGroup& loop_group, const Access& operand, const TensorAxes& axes) {
  const std::vector<std::map<int, std::int64_t>> moving = moving_dims(operand);
  return std::any_of(moving.begin(), moving.end(), [&](const std::map<int, std::int64_t>& dims) {
    const auto runs_along = [&](int axis) { return axis >= 0 && dims.contains(loop_group.position_of(axis)); };
    return runs_along(axes.reduction_axis) && (runs_along(axes.row) || runs_along(axes.column) || runs_along(axes.pack));
  });
}

/// Do several products add up in a tensor, as those of parts do? They take longer than waves of blocks are modelled for: wide tiles were measured
/// to be better.
bool several_products(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  return std::count_if(writers.begin(), writers.end(), [](const Statement* writer) { return multiplies_matrices(*writer); }) > 1;
}

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

/// Of a product of two inputs that is summed into a temporary, whose terms come tile by tile.
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
    const bool chunks = has(group.reduction_axes, axis) && has(taps_a, axis) && has(taps_b, axis) && result.inner <= kShortSum &&
                        result.tap_axes.empty() && result.chunk_axis < 0;
    if (!chunks) return std::nullopt;
    result.chunk_axis = axis;
    result.chunks = several_products(nest, statement.write.tensor) ? 1 : extent(axis);
  }
  // Copies bring whole tiles of terms.
  const isl::set domain = statement.domain.intersect_params(full_context(nest));
  const auto whole = [&](int axis) { return is_box(domain, loop_group.position_of(axis), innermost); };
  if (!whole(result.row) || !whole(result.column)) return std::nullopt;
  result.column_extent = extent(result.column);
  const auto with_rows = [&](int axis) {
    TensorAxes other = result;
    other.row = axis;
    other.row_extent = extent(axis);
    other.fixed_rows = has_one_value(nest, extent_of(nest, statement.domain, loop_group.position_of(axis)));
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

/// Elements of an access beside the loops that all loop groups share and the streamed one.
std::int64_t width_of(const NestStructure& structure, const FusionGroup& group, const TensorAxes& tiled,
                      const std::vector<int>& axes) {
  std::int64_t width = 1;
  for (const int axis : axes) {
    if (axis >= 0 && axis != tiled.reduction_axis && !has(group.axes, axis))
      width *= structure.axes[static_cast<std::size_t>(axis)].extent;
  }
  return width;
}

/// Notes the 16-bit results of the fusion group that rows of its tiles are written to.
void add_results(const Nest& nest, const NestStructure& structure, const FusionGroup& group, TensorAxes& result) {
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    for (const std::string& name : loop_group.statements) {
      const Access& write = nest.statement(name).write;
      const Tensor& tensor = nest.tensor(write.tensor);
      const std::vector<int> axes = followed_axes(loop_group, write);
      if (!leaves(nest, structure, group, write.tensor) || !is_half(tensor.type) || !has(axes, result.row) ||
          axes.back() == result.row)
        continue;
      const bool of_tile = result.column >= 0 || has(axes, result.reduction_axis);
      result.results.push_back(of_tile ? 0 : width_of(structure, group, result, axes));
    }
  }
}

/// Does the group compute nothing but tiles of rows and columns, and values of a row?
bool has_whole_rows(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& axes) {
  return std::all_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    const bool multiplied = std::any_of(loop_group.statements.begin(), loop_group.statements.end(),
                                        [&](const std::string& name) { return multiplies_matrices(nest.statement(name)); });
    for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
      const int axis = loop_group.axes[k];
      if (axis != axes.column && !has(group.axes, axis) && !(multiplied && loop_group.reduced[k])) return false;
    }
    return has(loop_group.axes, axes.row);
  });
}

/// The extents of reduced dims beside the one that is cut into tiles, outermost first.
std::vector<std::int64_t> taps_of(const LoopGroup& loop_group, int reduction_axis) {
  std::vector<std::int64_t> taps;
  for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
    if (loop_group.reduced[k] && loop_group.axes[k] != reduction_axis) taps.push_back(loop_group.extents[k]);
  }
  return taps;
}

/// Where a sum has terms, whatever the value of the dim on `reduction_axis`.
isl::set places_of_taps(const Statement& sum, const LoopGroup& loop_group, int reduction_axis) {
  isl_set* places = isl_set_reset_tuple_id(sum.domain.copy());
  if (const int dim = loop_group.position_of(reduction_axis); dim >= 0)
    places = isl_set_project_out(places, isl_dim_set, static_cast<unsigned>(dim), 1);
  for (unsigned k = 0; k < static_cast<unsigned>(isl_set_dim(places, isl_dim_set)); ++k)
    places = isl_set_set_dim_name(places, isl_dim_set, k, ("d" + std::to_string(k)).c_str());
  return isl::manage(places);
}

/// Those of all products of the fusion group, which must be the same ones.
std::optional<TensorAxes> axes_of_sums(const Nest& nest, const NestStructure& structure, const FusionGroup& group, bool packs) {
  std::optional<TensorAxes> common;
  std::map<std::string, TensorOperand> rows, columns;  // by the elements that tiles of rows and of columns come from
  std::set<std::string> row_tensors, column_inputs;
  int stream = 0;                               // a sum that is read ends the loop that streams its terms
  std::set<std::pair<int, std::string>> tiles;  // of sums
  bool same_packs = true, same_taps = true, sums_parts = false;
  std::vector<std::int64_t> taps;
  std::optional<isl::set> tap_places;
  std::set<std::string> summed;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      const auto product = unscaled_contraction_of(statement);
      const auto is_summed = [&](const Access& read) { return summed.contains(read.tensor); };
      if (std::any_of(statement.reads.begin(), statement.reads.end(), is_summed)) {
        ++stream;
        summed.clear();
      }
      // The sum of a row times another one is left to the threads that hold the row.
      if (!product || (!multiplies_matrices(statement) && (group.tile_is_part || (common && common->whole_rows)))) continue;
      summed.insert(statement.write.tensor);
      const auto axes = axes_of_sum(nest, structure, loop_group, statement, group, packs);
      if (!axes) return std::nullopt;
      if (common && (axes->row != common->row || axes->column != common->column || axes->chunk_axis != common->chunk_axis))
        return std::nullopt;
      // The longest sum is cut into tiles; others have to be one.
      const bool same = !common || axes->reduction_axis == common->reduction_axis;
      if (!same && std::min(axes->inner, common->inner) > kShortSum) return std::nullopt;
      same_packs = same_packs && (!common || axes->pack == common->pack);
      const std::vector<std::int64_t> own_taps = taps_of(loop_group, axes->reduction_axis);
      same_taps = same_taps && (!common || own_taps == taps);
      taps = own_taps;
      // Loops over taps that several products share have one test of what lies around an image: others have loops of their own.
      if (!taps.empty()) {
        const isl::set places = places_of_taps(statement, loop_group, axes->reduction_axis);
        same_taps = same_taps && (!tap_places || places.is_equal(*tap_places));
        tap_places = places;
      }
      if (!common || axes->inner > common->inner) common = axes;
      tiles.emplace(stream, statement.write.tensor);
      const auto products = unscaled_contractions_of(statement);
      sums_parts = sums_parts || products.size() > 1;
      for (const int ordinal : operands_of(products)) {
        const Access& read = statement.reads[static_cast<std::size_t>(ordinal)];
        const bool of_rows = has(moved_axes(loop_group, read, Moves::strided), axes->row);
        const std::string elements = std::to_string(stream) + isl_text(read.relation.set_domain_tuple("point"));
        (of_rows ? rows : columns)[elements] = {1, followed_axes(loop_group, read).back() == axes->reduction_axis};
        if (of_rows) row_tensors.insert(read.tensor);
        if (!of_rows && nest.tensor(read.tensor).role == TensorRole::input) column_inputs.insert(read.tensor);
      }
    }
  }
  if (!common || (group.tile_is_part && common->column != group.part->whole)) return std::nullopt;
  if (common->whole_rows && !has_whole_rows(nest, structure, group, *common)) return std::nullopt;
  // What adds up chunks, or parts, has a tile of its own.
  common->first_products = static_cast<int>(tiles.size()) * (common->chunk_axis >= 0 || sums_parts ? 2 : 1);
  common->sums_parts = sums_parts;
  common->same_taps = same_taps;
  if (!same_packs) return std::nullopt;
  for (const auto& [tensor, operand] : rows) common->row_operands.push_back(operand);
  for (const auto& [tensor, operand] : columns) common->streamed_operands.push_back(operand);
  std::set_difference(column_inputs.begin(), column_inputs.end(), row_tensors.begin(), row_tensors.end(),
                      std::inserter(common->streamed_inputs, common->streamed_inputs.end()));
  add_results(nest, structure, group, *common);
  return common;
}

/// Functions in an evaluation that few loop groups compute, for which multiplications of others can stand in.
int functions_of(const ScalarExpr& value) {
  static const std::set<ScalarOp> kFunctions{ScalarOp::exp,   ScalarOp::exp2,  ScalarOp::log,  ScalarOp::pow, ScalarOp::sqrt,
                                             ScalarOp::erf,   ScalarOp::rsqrt, ScalarOp::tanh, ScalarOp::sin, ScalarOp::cos,
                                             ScalarOp::log1p, ScalarOp::expm1, ScalarOp::atan};
  int functions = 0;
  value.visit([&](const ScalarExpr& expr) { functions += kFunctions.count(expr.op()) != 0 ? 1 : 0; });
  return functions;
}

/// Notes what the tiles of a product hold.
void add_tiles(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const LoopGroup& loop_group,
               const Statement& statement, std::set<std::string>& seen, TensorAxes& result) {
  // The sum of a row times another one is left to the threads that hold the row.
  const auto product = multiplies_matrices(statement) ? unscaled_contraction_of(statement) : std::nullopt;
  if (!product) {
    if (has(loop_group.axes, result.row) && has(loop_group.axes, result.reduction_axis))
      result.functions += functions_of(statement.value);
    for (const Access& read : statement.reads) {
      const std::vector<int> axes = followed_axes(loop_group, read);
      const Tensor& tensor = nest.tensor(read.tensor);
      if (is_stored(nest, structure, group, read.tensor) && is_half(tensor.type) && !axes.empty() &&
          axes.back() == result.reduction_axis && has(axes, result.row))
        ++result.tile_operands;
    }
    const int reduction_axis = loop_group.position_of(result.reduction_axis);
    const bool sums = statement.reduction && !loop_group.seldom && reduction_axis >= 0 &&
                      loop_group.reduced[static_cast<std::size_t>(reduction_axis)];
    const std::vector<int> written = followed_axes(loop_group, statement.write);
    if (sums && has(written, result.row) && width_of(structure, group, result, written) > 1) result.no_product = statement.name;
    return;
  }
  const auto is_input = [&](int ordinal) {
    return is_stored(nest, structure, group, statement.reads[static_cast<std::size_t>(ordinal)].tensor);
  };
  const bool of_inputs = is_input(product->a) && is_input(product->b);
  int parts = 0;  // operands in registers
  for (const int ordinal : operands_of(unscaled_contractions_of(statement))) {
    const Access& read = statement.reads[static_cast<std::size_t>(ordinal)];
    const std::vector<int> axes = followed_axes(loop_group, read);
    const std::int64_t width = width_of(structure, group, result, axes);
    if (!is_input(ordinal)) {
      if (!has(axes, result.reduction_axis)) continue;
      if (++parts == 1) ++result.register_operands;
      result.operand_parts = std::max(result.operand_parts, parts);
      if (nest.tensor(read.tensor).type != ElementType::f32) continue;
      ++result.wide_operands;
      const ValueRange range = range_of(nest, read.tensor);
      result.cancelling = result.cancelling || (range.low < 0 && range.high > 0);
    } else if (has(axes, result.reduction_axis)) {
      if (nest.tensor(read.tensor).role == TensorRole::input) result.streamed_inputs.insert(read.tensor);
      // Products of one kind share the tile that they read at the same indices.
      if (seen.insert(fmt::format("{} {} {}", read.tensor, fmt::join(axes, ","), of_inputs)).second)
        result.streamed_operands.push_back(
            {width, axes.back() != result.reduction_axis, of_inputs ? nvptx::kTerms : nvptx::kSumColumns});
    } else if (seen.insert(read.tensor).second) {
      result.row_operands.push_back({width, axes.back() != result.row});
    }
  }
  const std::vector<int> written = followed_axes(loop_group, statement.write);
  if (has(written, result.reduction_axis)) {
    ++result.first_products;
  } else {
    result.sums.push_back(width_of(structure, group, result, written));
  }
}

/// Do others of the group touch a temporary that this loop group touches? The start of a sum that another kernel adds up stands alone.
bool is_linked(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int loop_group) {
  const auto tensors_of = [&](int u) {
    std::set<std::string> tensors;
    for (const std::string& name : structure.loop_groups[static_cast<std::size_t>(u)].statements) {
      const Statement& statement = nest.statement(name);
      tensors.insert(statement.write.tensor);
      for (const Access& read : statement.reads) {
        if (nest.tensor(read.tensor).role != TensorRole::input) tensors.insert(read.tensor);
      }
    }
    return tensors;
  };
  const std::set<std::string> own = tensors_of(loop_group);
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const std::set<std::string> others = tensors_of(u);
    return u != loop_group && std::any_of(own.begin(), own.end(), [&](const auto& tensor) { return others.contains(tensor); });
  });
}

/// Has a statement that is no product more dims than the rows and columns of tiles, as a result along an axis that the group does not share?
/// Nothing says which dims of a statement that stands alone are rows.
bool has_more_dims(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& tiled) {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const auto is_product = [&](const std::string& name) { return unscaled_contraction_of(nest.statement(name)).has_value(); };
    if (loop_group.seldom || std::any_of(loop_group.statements.begin(), loop_group.statements.end(), is_product)) return false;
    const bool linked = is_linked(nest, structure, group, u);
    int columns = 0;
    for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
      const int axis = loop_group.axes[k];
      const bool rows = axis == tiled.row || axis == tiled.pack;
      const bool around = rows ? linked : (axis != tiled.column && has(group.axes, axis)) || axis == tiled.chunk_axis;
      columns += !around && loop_group.extents[k] > 1 ? 1 : 0;
    }
    return columns > 1;
  });
}

/// Do statements read what the group makes at other rows than their own, as sums of all rows up to one's own that columns read, too? Other
/// blocks have those. A statement of one row, as the start of a recurrence, or of one column has no place in a tile of many.
bool reads_other_rows(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& tiled) {
  std::map<std::string, std::vector<int>> made;  // axes of indices
  const auto has_one = [&](const LoopGroup& loop_group, int axis) {
    const int position = axis < 0 ? -1 : loop_group.position_of(axis);
    return position >= 0 && loop_group.extents[static_cast<std::size_t>(position)] == 1 &&
           structure.axes[static_cast<std::size_t>(axis)].extent > 1;
  };
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const bool one = has_one(loop_group, tiled.row) || has_one(loop_group, tiled.column) || has_one(loop_group, tiled.pack);
    for (const std::string& name : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      for (const Access& read : statement.reads) {
        const auto known = made.find(read.tensor);
        if (known == made.end()) continue;
        if (one) return true;
        const std::vector<int> axes = followed_axes(loop_group, read);
        for (std::size_t k = 0; k < axes.size(); ++k) {
          if (known->second[k] == tiled.row && axes[k] != tiled.row) return true;
        }
      }
      made[statement.write.tensor] = followed_axes(loop_group, statement.write);
    }
  }
  return false;
}

/// Parts of the loop over streamed columns that read nothing of each other.
int chains_of(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int streamed) {
  std::vector<std::set<std::string>> chains;  // tensors that are computed
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    for (const std::string& name : loop_group.position_of(streamed) < 0 ? std::vector<std::string>{} : loop_group.statements) {
      const Statement& statement = nest.statement(name);
      std::set<std::string> own{statement.write.tensor};
      for (const Access& read : statement.reads) {
        if (!is_stored(nest, structure, group, read.tensor)) own.insert(read.tensor);
      }
      std::erase_if(chains, [&](const std::set<std::string>& chain) {
        const bool meets = std::any_of(chain.begin(), chain.end(), [&](const auto& tensor) { return own.contains(tensor); });
        if (meets) own.insert(chain.begin(), chain.end());
        return meets;
      });
      chains.push_back(std::move(own));
    }
  }
  return static_cast<int>(chains.size());
}

std::optional<TensorAxes> found_axes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int sm) {
  for (const int u : group.tile_is_part ? std::vector<int>{} : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    for (const std::string& name : loop_group.statements) {
      auto axes = axes_of_product(nest, structure, loop_group, nest.statement(name), group);
      if (!axes) continue;
      // Long rows of operands do not stay in a block: their terms are streamed where a tile has all columns.
      const auto sums = axes->inner > kMostKeptTerms ? axes_of_sums(nest, structure, group, false) : std::nullopt;
      if (sums && sums->whole_rows) return sums;
      std::set<std::string> seen;
      for (const int other : group.loop_groups) {
        const LoopGroup& all = structure.loop_groups[other];
        for (const std::string& statement : all.statements)
          add_tiles(nest, structure, group, all, nest.statement(statement), seen, *axes);
      }
      add_results(nest, structure, group, *axes);
      axes->chains = chains_of(nest, structure, group, axes->reduction_axis);
      return axes;
    }
  }
  NvptxTarget target;
  target.sm = sm;
  // Not all products of a group may have such rows.
  const bool packs = nvptx::has_group_products(target);
  auto axes = packs ? axes_of_sums(nest, structure, group, true) : std::nullopt;
  return axes ? axes : axes_of_sums(nest, structure, group, false);
}

}  // namespace

namespace {

/// Has a product other values of one of these axes at some rows than at others, as under a mask? `bounds`: other first or last ones.
bool has_cut_tiles(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int row_axis,
                   const std::vector<int>& along, bool bounds) {
  const isl::set sizes = full_context(nest);
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    const int row = loop_group.position_of(row_axis);
    return std::any_of(loop_group.statements.begin(), loop_group.statements.end(), [&](const std::string& name) {
      const Statement& statement = nest.statement(name);
      if (row < 0 || !multiplies_matrices(statement)) return false;
      isl::set points = statement.domain.intersect_params(sizes);
      if (bounds) points = isl::manage(isl_set_from_basic_set(isl_set_simple_hull(points.release())));
      return std::any_of(loop_group.axes.begin(), loop_group.axes.end(), [&](int axis) {
        const int other = loop_group.position_of(axis);
        return has(along, axis) && other != row && !is_box(points, row, other);
      });
    });
  });
}

/// A few rows of a few terms, as where four streams are mixed for each token: hardly anything of a tile would be theirs.
bool hardly_fills_tiles(const TensorAxes& axes) {
  constexpr std::int64_t kFewRows = 8, kFewTerms = 8;
  return axes.row_extent * axes.pack_extent <= kFewRows && axes.inner * axes.taps <= kFewTerms;
}

}  // namespace

std::optional<TensorAxes> tensor_axes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int sm) {
  auto axes = found_axes(nest, structure, group, sm);
  if (axes && hardly_fills_tiles(*axes)) return std::nullopt;
  // Steps of a recurrence take what those before them have left in memory, or in tiles at other places.
  if (axes && group.parallel.size() == group.axes.size() && !serial_axes(group).empty()) return std::nullopt;
  if (axes && (has_more_dims(nest, structure, group, *axes) || reads_other_rows(nest, structure, group, *axes)))
    return std::nullopt;
  if (axes) axes->stream_extent = structure.axes[static_cast<std::size_t>(axes->reduction_axis)].extent;
  if (axes && axes->column >= 0) {
    axes->cut_columns = has_cut_tiles(nest, structure, group, axes->row, {axes->column}, true);
    axes->cut_tiles = has_cut_tiles(nest, structure, group, axes->row, {axes->column, axes->reduction_axis}, false);
  }
  return axes;
}

bool rows_follow_stream(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const TensorAxes& axes) {
  const isl::set sizes = full_context(nest);
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[u];
    const int row = loop_group.position_of(axes.row),
              reduction_axis = loop_group.position_of(group.tile_is_part ? group.part->whole : axes.reduction_axis);
    if (row < 0 || reduction_axis < 0 || !loop_group.reduced[static_cast<std::size_t>(reduction_axis)]) continue;
    for (const std::string& name : loop_group.statements) {
      if (!is_box(nest.statement(name).domain.intersect_params(sizes), row, reduction_axis)) return true;
    }
  }
  return false;
}

bool several_chains(const TensorAxes& axes) { return axes.chains > 1 && axes.first_products > 1 && axes.register_operands > 1; }

}  // namespace nestor
