// How many rows a block has.
#include "autotune/space/gpu/short_rows.h"

#include "autotune/space/gpu/column_strips.h"
#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/structure/axes.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace nestor {
namespace {

constexpr double kPointsOfShortRow = 512, kTermsOfShortSum = 16;  ///< of a row, and of a sum
constexpr std::int64_t kThreadsOfShortRows = 256;

/// The largest power of two up to `most` that is shorter than the axis: a whole axis may be longer in another launch.
std::int64_t tile_within(std::int64_t extent, std::int64_t most) {
  const auto shorter = std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(extent - 1, 1)));
  return std::min(static_cast<std::int64_t>(shorter), std::max<std::int64_t>(most, 1));
}

}  // namespace

std::vector<NamedValues> values_of_short_rows(const NestStructure& structure, const FusionGroup& group) {
  const double points = points_per_work_tile(structure, group);
  const double terms = terms_of_sum(structure.loop_groups[static_cast<std::size_t>(group.heaviest)]);
  const double results = points / terms;
  if (group.part || group.axes.size() < 2 || group.loop_groups.size() < 2 || terms < 2 || terms > kTermsOfShortSum ||
      points > kPointsOfShortRow || results < 2)
    return {};
  const auto axis = [&](std::size_t from_last) -> const Axis& {
    return structure.axes[static_cast<std::size_t>(group.axes[group.axes.size() - 1 - from_last])];
  };
  std::vector<NamedValues> found;
  for (const std::int64_t each : {16, 8}) {  // results of a thread
    const auto rows = std::bit_floor(static_cast<std::uint64_t>(static_cast<double>(kThreadsOfShortRows * each) / results));
    const std::int64_t last = tile_within(axis(0).extent, static_cast<std::int64_t>(rows)),
                       before = tile_within(axis(1).extent, static_cast<std::int64_t>(rows) / last);
    NamedValues values{{"threads", kThreadsOfShortRows}, {"cluster", 1}, {"reduction_axis", -1}, {"staging", 1}};
    for (const int other : group.axes) values["tile." + structure.axes[static_cast<std::size_t>(other)].name] = 1;
    values["tile." + axis(0).name] = last;
    values["tile." + axis(1).name] = before;
    found.push_back(std::move(values));
  }
  return found;
}

NamedValues values_of_small_blocks(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                   std::int64_t threads) {
  constexpr double kMostTerms = 256, kMostResults = 1024;
  const LoopGroup& heavy = structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  const double terms = terms_of_sum(heavy);
  if (group.part || group.axes.empty() || terms < 2 || terms > kMostTerms) return {};
  double results = 1;  // of the heaviest sums, for each point of the common axes
  for (std::size_t k = 0; k < heavy.axes.size(); ++k) {
    const bool common = std::find(group.axes.begin(), group.axes.end(), heavy.axes[k]) != group.axes.end();
    if (!common && !heavy.reduced[k]) results *= static_cast<double>(heavy.extents[k]);
  }
  NamedValues values{{"threads", threads}, {"cluster", 1}, {"reduction_axis", -1}};
  bool inside = true;  // of the axes that a block has whole
  for (std::size_t k = group.axes.size(); k-- > 0;) {
    const Axis& axis = structure.axes[static_cast<std::size_t>(group.axes[k])];
    const auto extent = static_cast<double>(axis.extent);
    inside = inside && k > 0 && results * extent <= kMostResults && has_known_extent(nest, structure, group, group.axes[k]);
    // What is not whole is cut once, so that each thread has a result.
    const std::int64_t tile =
        inside ? 0 : tile_within(axis.extent, static_cast<std::int64_t>(static_cast<double>(threads) / results));
    results *= inside ? extent : static_cast<double>(tile);
    values["tile." + axis.name] = tile;
  }
  return results >= static_cast<double>(threads) / 2 && results <= kMostResults ? values : NamedValues{};
}

}  // namespace nestor
