// Tiles of rows and columns that the threads of a block share.
#include "autotune/space/product_points.h"

#include "autotune/space/structure/axes.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/contraction.h"
#include "poly/algebra/operands/half_products.h"
#include "support/rounding.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace nestor {
namespace {

struct ProductAxes {
  int row = -1, column = -1;  ///< the innermost common axes that one operand alone has
  int places = -1;            ///< the common axis that both operands and the result lie along in memory, if there is one
  bool other_terms = false;   ///< terms are no products: what changes along rows and columns alike is an operand, too
};

/// Terms of a sum from which its results are worth going to memory, rather than being computed where they are read.
constexpr double kFewestTerms = 32;

/// The two reads of a long sum of other terms (differences squared) that have register blocks as well: what else it reads has the common
/// axes of both alone.
std::optional<std::pair<int, int>> operands_of_terms(const LoopGroup& loop_group, const Statement& statement,
                                                     const FusionGroup& group) {
  if (statement.reduction != ReductionOp::add || terms_of_sum(loop_group) < kFewestTerms) return std::nullopt;
  std::vector<std::vector<int>> axes;  // of each read, those of the group
  for (const Access& read : statement.reads) {
    axes.push_back(followed_axes(loop_group, read));
    std::erase_if(axes.back(), [&](int axis) { return !has(group.axes, axis); });
  }
  const auto inside = [&](std::size_t read, std::size_t other) {
    return std::all_of(axes[read].begin(), axes[read].end(), [&](int axis) { return has(axes[other], axis); });
  };
  std::vector<int> operands;
  for (std::size_t read = 0; read < axes.size(); ++read) {
    bool beside = false;  // inside of all others that are not inside of it
    for (std::size_t other = 0; other < axes.size(); ++other) beside = beside || (!inside(other, read) && inside(read, other));
    if (!beside) operands.push_back(static_cast<int>(read));
  }
  if (operands.size() != 2) return std::nullopt;
  const std::pair<int, int> found(operands[0], operands[1]);
  for (std::size_t read = 0; read < axes.size(); ++read) {
    const int number = static_cast<int>(read);
    const bool operand = number == found.first || number == found.second;
    const bool common =
        inside(read, static_cast<std::size_t>(found.first)) && inside(read, static_cast<std::size_t>(found.second));
    if (!operand && !common) return std::nullopt;
  }
  return found;
}

/// Axes along which what is read changes, also where several make up an index; but not what terms move in.
std::vector<int> moving_axes(const LoopGroup& loop_group, const Statement& statement, int ordinal) {
  std::vector<int> axes;
  for (const std::set<int>& dims : dims_of_indices(statement, statement.reads[static_cast<std::size_t>(ordinal)])) {
    const auto is_reduced = [&](int dim) { return loop_group.reduced[static_cast<std::size_t>(dim)]; };
    if (std::any_of(dims.begin(), dims.end(), is_reduced)) continue;
    for (const int dim : dims) axes.push_back(loop_group.axes[static_cast<std::size_t>(dim)]);
  }
  return axes;
}

/// The innermost axes of the group that are among those of one operand alone; -1: there are none.
ProductAxes axes_of_one(const FusionGroup& group, const std::vector<int>& of_a, const std::vector<int>& of_b) {
  ProductAxes axes;
  for (const int axis : group.axes) {
    const bool in_a = has(of_a, axis), in_b = has(of_b, axis);
    if (in_a && !in_b) axes.row = axis;
    if (in_b && !in_a) axes.column = axis;
  }
  return axes;
}

/// Of a long sum whose terms are made of values of rows, of values of columns, and of what stays the same for all of an element's terms (what
/// neighbours say, and how far they are): blocks of few rows read values of columns seldom. nullopt: it is no such sum.
std::optional<ProductAxes> axes_of_other_terms(const LoopGroup& loop_group, const Statement& statement,
                                               const FusionGroup& group) {
  const std::vector<int> written = followed_axes(loop_group, statement.write);
  if (!statement.reduction || terms_of_sum(loop_group) < kFewestTerms || written.empty() || !has(group.axes, written.back()))
    return std::nullopt;
  ProductAxes axes;
  axes.other_terms = true;
  axes.column = written.back();
  const auto is_long = [&](int axis) {
    return loop_group.extents[static_cast<std::size_t>(loop_group.position_of(axis))] >= nvptx::kFewestTerms;
  };
  for (const int row : group.axes) {
    bool of_rows = false, of_columns = false, of_both = false;
    for (const Access& read : statement.reads) {
      const std::vector<int> own = followed_axes(loop_group, read);
      const bool summed = std::any_of(own.begin(), own.end(), [&](int axis) {
        return axis >= 0 && loop_group.reduced[static_cast<std::size_t>(loop_group.position_of(axis))];
      });
      if (!summed) continue;
      of_rows = of_rows || (has(own, row) && !has(own, axes.column));
      of_columns = of_columns || (!has(own, row) && has(own, axes.column) && own.back() == axes.column);
      of_both = of_both || (has(own, row) && has(own, axes.column));
    }
    if (row != axes.column && of_rows && of_columns && !of_both && is_long(row)) axes.row = row;
  }
  return axes.row >= 0 && is_long(axes.column) ? std::optional(axes) : std::nullopt;
}

/// Of the product that a statement sums up; nullopt where each operand has all axes of the result, or it is no product.
std::optional<ProductAxes> axes_of(const LoopGroup& loop_group, const Statement& statement, const FusionGroup& group) {
  const auto product = unscaled_contraction_of(statement);
  const auto operands =
      product ? std::optional(std::pair(product->a, product->b)) : operands_of_terms(loop_group, statement, group);
  if (!operands) return axes_of_other_terms(loop_group, statement, group);
  const auto axes_of_read = [&](int ordinal) {
    return followed_axes(loop_group, statement.reads[static_cast<std::size_t>(ordinal)]);
  };
  const std::vector<int> of_a = axes_of_read(operands->first), of_b = axes_of_read(operands->second);
  ProductAxes axes = axes_of_one(group, of_a, of_b);
  if (product && (axes.row < 0 || axes.column < 0))  // a row of a table is told by a difference (relative positions)
    axes = axes_of_one(group, moving_axes(loop_group, statement, operands->first),
                       moving_axes(loop_group, statement, operands->second));
  if (axes.row < 0 || axes.column < 0) return std::nullopt;
  const auto few = [&](int axis) {
    return loop_group.extents[static_cast<std::size_t>(loop_group.position_of(axis))] < nvptx::kFewestTerms;
  };
  // Tiles of few rows share what they read, but have no register blocks for what all read besides.
  if (!product && statement.reads.size() > 2 && (few(axes.row) || few(axes.column))) return std::nullopt;
  const int last = followed_axes(loop_group, statement.write).back();
  const bool along = product && last != axes.row && last != axes.column && of_a.back() == last && of_b.back() == last;
  if (along && has(group.axes, last)) axes.places = last;
  return axes;
}

/// Of blocks of so many threads, a tile each, that read what they need where it is.
NamedValues values_of_block(std::int64_t threads) {
  return {{"reduction_axis", -1}, {"cluster", 1},   {"persistent", 0},   {"prefetch", 0},
          {"staging", 0},         {"streaming", 0}, {"threads", threads}};
}

/// A product of its own for each place along memory: lanes have places, and each thread some rows and columns, which share what it reads.
std::vector<NamedValues> tiles_along_places(const NestStructure& structure, const FusionGroup& group, const ProductAxes& axes) {
  struct Shape {
    std::int64_t rows, columns, places, threads;
  };
  std::vector<NamedValues> points;
  for (const Shape& shape : {Shape{8, 8, 32, 256}, Shape{4, 8, 32, 256}, Shape{4, 4, 32, 128}, Shape{8, 4, 64, 256}}) {
    NamedValues values = values_of_block(shape.threads);
    for (const int axis : group.axes) {
      const Axis& cut = structure.axes[static_cast<std::size_t>(axis)];
      std::int64_t tile = axis == axes.row      ? shape.rows
                          : axis == axes.column ? shape.columns
                          : axis == axes.places ? shape.places
                                                : 1;
      while (tile > 1 && tile >= cut.extent) tile /= 2;  // a whole axis may be longer in another launch
      values["tile." + cut.name] = tile;
    }
    points.push_back(std::move(values));
  }
  return points;
}

/// Few rows for each thread, which has neighbouring columns of them: it reads what belongs to columns anew for each row.
std::vector<NamedValues> tiles_of_other_terms(const NestStructure& structure, const FusionGroup& group, const ProductAxes& axes) {
  struct Shape {
    std::int64_t rows, columns, threads;
  };
  std::vector<NamedValues> points;
  for (const Shape& shape : {Shape{16, 64, 256}, Shape{32, 64, 512}, Shape{32, 32, 256}}) {
    NamedValues values = values_of_block(shape.threads);
    for (const int axis : group.axes)
      values["tile." + structure.axes[static_cast<std::size_t>(axis)].name] = axis == axes.row      ? shape.rows
                                                                              : axis == axes.column ? shape.columns
                                                                                                    : 1;
    points.push_back(std::move(values));
  }
  return points;
}

/// Those of the first product of the group's heaviest loop group.
std::optional<ProductAxes> axes_of(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  std::optional<ProductAxes> axes;
  for (const std::string& name : heavy.statements) {
    if (!axes) axes = axes_of(heavy, nest.statement(name), group);
  }
  return axes;
}

/// A side of a tile for so many rows or columns: the usual one, or three quarters of it where these are filled so much better (48, 96, 144).
std::int64_t fitting_side(std::int64_t extent, std::int64_t usual) {
  constexpr double kWorth = 1.2;
  const std::int64_t shorter = usual / 4 * 3;
  if (2 * extent <= usual) return usual;  // which smaller tiles suit
  const auto padded = [&](std::int64_t side) { return static_cast<double>(round_up(std::max<std::int64_t>(extent, 1), side)); };
  return padded(shorter) * kWorth < padded(usual) ? shorter : usual;
}

/// Threads of a tile, each of which has 8 x 8 results of a usual large one, 4 x 4 of the next, 8 of a small one; of a shorter one as many as rows
/// and columns have equal shares for.
std::int64_t threads_of_tile(std::int64_t usual, int short_sides) {
  if (usual == 32) return 128;
  const std::int64_t shorter = usual == 128 ? 256 : 128;
  return short_sides == 0 ? 256 : shorter / short_sides;
}

}  // namespace

std::vector<int> tiled_by_products(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  const auto axes = axes_of(nest, structure, group);
  return axes ? std::vector<int>{axes->row, axes->column} : std::vector<int>{};
}

std::vector<NamedValues> likely_product_tiles(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                              const GpuLimits& limits) {
  const auto axes = axes_of(nest, structure, group);
  if (!axes) return {};
  if (axes->other_terms) return tiles_of_other_terms(structure, group, *axes);
  constexpr std::int64_t kFewestPlaces = 32;
  if (axes->places >= 0 && structure.axes[static_cast<std::size_t>(axes->places)].extent >= kFewestPlaces)
    return tiles_along_places(structure, group, *axes);
  const auto name_of = [&](int axis) { return "tile." + structure.axes[static_cast<std::size_t>(axis)].name; };
  double work = 1;
  for (const int axis : group.axes) work *= static_cast<double>(structure.axes[static_cast<std::size_t>(axis)].extent);
  std::vector<NamedValues> points;
  for (const std::int64_t tile : {std::int64_t{128}, std::int64_t{64}, std::int64_t{32}}) {
    NamedValues values{{"reduction_axis", -1}, {"cluster", 1}, {"persistent", 0},
                       {"prefetch", 0},        {"staging", 0}, {"streaming", 0}};
    for (const int axis : group.axes) values[name_of(axis)] = 1;
    const auto side = [&](int axis) {
      return tile == 32 ? tile : fitting_side(structure.axes[static_cast<std::size_t>(axis)].extent, tile);
    };
    values[name_of(axes->row)] = side(axes->row);
    values[name_of(axes->column)] = side(axes->column);
    values["threads"] = threads_of_tile(tile, int{side(axes->row) < tile} + int{side(axes->column) < tile});
    points.push_back(std::move(values));
  }
  // Large blocks of sums read less, where enough of them keep all multiprocessors busy.
  if (work < 128.0 * 128.0 * std::max(limits.units, 1)) std::rotate(points.begin(), points.begin() + 1, points.end());
  return points;
}

}  // namespace nestor
