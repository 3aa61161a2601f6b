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

/// The innermost common axes that one of the reads alone has.
std::optional<ProductAxes> own_axes(const LoopGroup& loop_group, const FusionGroup& group, const Access& a, const Access& b) {
  const auto has = [](const std::vector<int>& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  const std::vector<int> of_a = followed_axes(loop_group, a), of_b = followed_axes(loop_group, b);
  ProductAxes axes;
  for (const int axis : group.axes) {
    const bool in_a = has(of_a, axis), in_b = has(of_b, axis);
    if (in_a && !in_b) axes.row = axis;
    if (in_b && !in_a) axes.column = axis;
  }
  return axes.row < 0 || axes.column < 0 ? std::nullopt : std::optional(axes);
}

/// Of the product that a statement sums up; nullopt where each operand has all axes of the result, or it is no product. Long sums of other
/// terms, as of differences squared or of weighted products, have two reads that are rows and columns as well.
std::optional<ProductAxes> axes_of(const LoopGroup& loop_group, const Statement& statement, const FusionGroup& group) {
  if (const auto product = unscaled_contraction_of(statement)) {
    const auto read = [&](int ordinal) { return statement.reads[static_cast<std::size_t>(ordinal)]; };
    return own_axes(loop_group, group, read(product->a), read(product->b));
  }
  if (statement.reduction != ReductionOp::add || terms_of_sum(loop_group) < kFewestTerms) return std::nullopt;
  for (std::size_t b = 1; b < statement.reads.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (const auto axes = own_axes(loop_group, group, statement.reads[a], statement.reads[b])) return axes;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<NamedValues> likely_product_tiles(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                              const GpuLimits& limits) {
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  std::optional<ProductAxes> axes;
  for (const std::string& name : heavy.statements) {
    if (!axes) axes = axes_of(heavy, nest.statement(name), group);
  }
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
