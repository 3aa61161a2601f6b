// Tiles of rows and columns that the threads of a block share.
#include "autotune/space/product_points.h"

#include "autotune/space/structure/axes.h"
#include "codegen/tile/contraction.h"

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

struct ProductAxes {
  int row = -1, column = -1;  ///< the innermost common axes that one operand alone has
  int places = -1;            ///< the common axis that both operands and the result lie along in memory, if there is one
};

/// Terms of a sum from which its results are worth going to memory, rather than being computed where they are read.
constexpr double kFewestTerms = 32;

/// Of the product that a statement sums up; nullopt where each operand has all axes of the result, or it is no product.
std::optional<ProductAxes> axes_of(const LoopGroup& loop_group, const Statement& statement, const FusionGroup& group) {
  const auto product = unscaled_contraction_of(statement);
  // Long sums of other terms of two operands (differences squared) have register blocks as well.
  const bool terms = !product && statement.reduction == ReductionOp::add && statement.reads.size() == 2 &&
                     terms_of_sum(loop_group) >= kFewestTerms;
  if (!product && !terms) return std::nullopt;
  const auto axes_of_read = [&](int ordinal) {
    return followed_axes(loop_group, statement.reads[static_cast<std::size_t>(ordinal)]);
  };
  const auto has = [](const std::vector<int>& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  const std::vector<int> of_a = axes_of_read(product ? product->a : 0), of_b = axes_of_read(product ? product->b : 1);
  ProductAxes axes;
  for (const int axis : group.axes) {
    const bool in_a = has(of_a, axis), in_b = has(of_b, axis);
    if (in_a && !in_b) axes.row = axis;
    if (in_b && !in_a) axes.column = axis;
  }
  if (axes.row < 0 || axes.column < 0) return std::nullopt;
  const int last = followed_axes(loop_group, statement.write).back();
  const bool along = product && last != axes.row && last != axes.column && of_a.back() == last && of_b.back() == last;
  if (along && has(group.axes, last)) axes.places = last;
  return axes;
}

/// A product of its own for each place along memory: lanes have places, and each thread some rows and columns, which share what it reads.
std::vector<NamedValues> tiles_along_places(const NestStructure& structure, const FusionGroup& group, const ProductAxes& axes) {
  struct Shape {
    std::int64_t rows, columns, places, threads;
  };
  std::vector<NamedValues> points;
  for (const Shape& shape : {Shape{8, 8, 32, 256}, Shape{4, 8, 32, 256}, Shape{4, 4, 32, 128}, Shape{8, 4, 64, 256}}) {
    NamedValues values{{"reduction_axis", -1}, {"cluster", 1},   {"persistent", 0},         {"prefetch", 0},
                       {"staging", 0},         {"streaming", 0}, {"threads", shape.threads}};
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

/// Those of the first product of the group's heaviest loop group.
std::optional<ProductAxes> axes_of(const Nest& nest, const NestStructure& structure, const FusionGroup& group) {
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  std::optional<ProductAxes> axes;
  for (const std::string& name : heavy.statements) {
    if (!axes) axes = axes_of(heavy, nest.statement(name), group);
  }
  return axes;
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
    values[name_of(axes->row)] = values[name_of(axes->column)] = tile;
    values["threads"] = tile * tile / (tile == 32 ? 8 : tile == 64 ? 16 : 64);
    points.push_back(std::move(values));
  }
  // Large blocks of sums read less, where enough of them keep all multiprocessors busy.
  if (work < 128.0 * 128.0 * std::max(limits.units, 1)) std::rotate(points.begin(), points.begin() + 1, points.end());
  return points;
}

}  // namespace nestor
