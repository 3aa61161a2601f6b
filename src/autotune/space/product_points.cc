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
  return axes;
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
