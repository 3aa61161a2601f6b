// Windows in the indices of what a sum reads; tiles for them.
#include "autotune/space/window_points.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/rule_steps.h"
#include "poly/algebra/all_rules.h"
#include "poly/algebra/operands/half_products.h"
#include "support/rounding.h"

#include <algorithm>
#include <cstdlib>

namespace nestor {
namespace {

constexpr std::int64_t kMostTaps = 16;   ///< of a dim that a thread goes through for all its results
constexpr std::int64_t kMostSums = 64;   ///< that a thread adds up together
constexpr std::int64_t kMostKept = 128;  ///< results of a thread in registers
constexpr std::int64_t kMostSide = 512;  ///< of an image; sequences, which are longer, have any length
constexpr std::int64_t kWarp = 32;

/// Dims that an index moves along with a reduced one, by steps that leave some of what neighbours read in common.
std::vector<int> sliding_dims(const LoopGroup& loop_group, const Access& read) {
  std::vector<int> found;
  const auto indices = moving_dims(read);
  const auto moves_once = [&](int reduced) {  // else a neighbour's terms are elsewhere
    return std::count_if(indices.begin(), indices.end(), [&](const auto& index) {
             return std::any_of(index.begin(), index.end(), [&](const auto& moved) { return moved.first == reduced; });
           }) == 1;
  };
  for (const auto& index : indices) {
    for (const auto& [dim, step] : index) {
      if (static_cast<std::size_t>(dim) >= loop_group.reduced.size() || loop_group.reduced[static_cast<std::size_t>(dim)])
        continue;
      const bool slides = std::any_of(index.begin(), index.end(), [&](const auto& other) {
        const auto k = static_cast<std::size_t>(other.first);
        if (k >= loop_group.reduced.size() || !loop_group.reduced[k]) return false;
        const std::int64_t taps = loop_group.extents[k], tap = std::abs(other.second);
        return moves_once(other.first) && step > 0 && tap > 0 && taps > 1 && taps <= kMostTaps && step % tap == 0 &&
               step < taps * tap;
      });
      if (slides) found.push_back(dim);
    }
  }
  return found;
}

}  // namespace

std::optional<Windows> windows_of(const Nest& nest, const LoopGroup& loop_group) {
  for (const std::string& name : loop_group.statements) {
    const Statement& statement = nest.statement(name);
    if (!statement.reduction || multiplies_matrices(statement)) continue;
    const std::vector<int> written = followed_axes(loop_group, statement.write);
    if (written.empty() || written.back() < 0) continue;
    Windows windows;
    windows.columns = written.back();
    for (const Access& read : statement.reads) {
      const std::vector<int> dims = sliding_dims(loop_group, read);
      if (dims.empty()) continue;
      for (const int axis : written) {
        const bool slides = axis >= 0 && std::find(dims.begin(), dims.end(), loop_group.position_of(axis)) != dims.end();
        if (slides && std::find(windows.slides.begin(), windows.slides.end(), axis) == windows.slides.end())
          windows.slides.push_back(axis);
      }
      windows.vector = 16 / static_cast<std::int64_t>(size_in_bytes(nest.tensor(read.tensor).type));
    }
    // Neighbours along memory lie in other threads, and their vectors at other addresses.
    const auto columns = std::find(windows.slides.begin(), windows.slides.end(), windows.columns);
    if (columns != windows.slides.end()) {
      windows.vector = 1;
      windows.slides.erase(columns);
    }
    if (!windows.slides.empty()) return windows;
  }
  return std::nullopt;
}

std::vector<NamedValues> likely_window_tiles(const NestStructure& structure, const FusionGroup& group, const Windows& windows) {
  constexpr std::int64_t kMostColumns = 256, kMostRowsOfLeading = 8;
  const auto extent = [&](int axis) { return structure.axes[static_cast<std::size_t>(axis)].extent; };
  const auto is_common = [&](int axis) { return std::find(group.axes.begin(), group.axes.end(), axis) != group.axes.end(); };
  std::vector<int> slides;
  for (const int axis : windows.slides) {
    if (is_common(axis)) slides.push_back(axis);
  }
  if (slides.empty()) return {};
  const std::int64_t all = extent(windows.columns), vectors = ceil_div(all, windows.vector);
  // Columns that a block has whole are summed up by a power of two of lanes.
  const bool cut = is_common(windows.columns);
  std::int64_t columns = all, lanes = kWarp;
  while (cut && columns > kMostColumns) columns = ceil_div(columns, 2);
  if (cut) columns = std::min(kMostColumns, windows.vector * kWarp);
  while (cut && columns > 1 && columns >= 2 * all) columns /= 2;
  while (cut && lanes > 1 && lanes * windows.vector >= 2 * columns) lanes /= 2;
  while (!cut && lanes > 1 && vectors % lanes != 0) lanes /= 2;
  const std::int64_t held = cut ? std::max<std::int64_t>(columns / lanes, 1) : ceil_div(vectors, lanes) * windows.vector;
  std::vector<NamedValues> points;
  const auto add = [&](std::int64_t threads, std::int64_t run) {
    if (run * windows.vector > kMostSums || (!cut && run * held > kMostKept) || threads < lanes) return;
    NamedValues values{{"threads", threads}, {"cluster", 1}, {"reduction_axis", -1}};
    for (const int axis : group.axes) values["tile." + structure.axes[static_cast<std::size_t>(axis)].name] = 1;
    if (cut) values["tile." + structure.axes[static_cast<std::size_t>(windows.columns)].name] = columns >= all ? 0 : columns;
    std::int64_t rows = threads / lanes * run;
    for (std::size_t k = slides.size(); k-- > 0;) {
      const std::int64_t length = extent(slides[k]);
      const bool innermost = k + 1 == slides.size();
      std::int64_t tile = innermost ? std::min<std::int64_t>(rows, 2 * run) : std::min<std::int64_t>(rows, kMostRowsOfLeading);
      while (tile > run && innermost && length % tile != 0) tile /= 2;
      while (!innermost && tile > 1 && length % tile != 0) tile /= 2;
      if (k == 0 && innermost) tile = rows;
      while (tile > 1 && tile >= 2 * length) tile /= 2;
      values["tile." + structure.axes[static_cast<std::size_t>(slides[k])].name] = tile >= length ? 0 : tile;
      rows = std::max<std::int64_t>(rows / tile, 1);
    }
    // Neighbours lie in the run of a thread, so the axes that windows slide along come last but for the columns.
    points.push_back(std::move(values));
  };
  for (const std::int64_t threads : {32, 64, 128, 256}) {
    for (const std::int64_t run : {8, 4}) add(threads, run);
  }
  return points;
}

std::set<std::string> sizes_of_windows(const Nest& definition, const Sizes& sizes) {
  // Windows that read the image itself, where the definition has temporaries with nothing around it.
  const Nest nest = with_rule_everywhere("skip_neutral", definition);
  const bool sums = std::any_of(nest.statements.begin(), nest.statements.end(), [](const Statement& statement) {
    return statement.reduction && std::any_of(statement.reads.begin(), statement.reads.end(), [](const Access& read) {
             const auto dims = moving_dims(read);
             return std::any_of(dims.begin(), dims.end(), [](const auto& index) { return index.size() > 1; });
           });
  });
  std::set<std::string> found;
  if (!sums) return found;
  const NestStructure structure = find_axes(nest, sizes);
  for (const LoopGroup& loop_group : structure.loop_groups) {
    const auto windows = windows_of(nest, loop_group);
    if (!windows) continue;
    for (const std::string& name : loop_group.statements) {
      const Access& write = nest.statement(name).write;
      const std::vector<int> written = followed_axes(loop_group, write);
      bool inside = false;
      for (std::size_t k = 0; k < written.size(); ++k) {
        const bool slides = std::find(windows->slides.begin(), windows->slides.end(), written[k]) != windows->slides.end();
        inside = inside || slides;
        const bool is_long = slides && structure.axes[static_cast<std::size_t>(written[k])].extent > kMostSide;
        if (inside && !is_long) found.merge(sizes_in(nest, nest.tensor(write.tensor).shape[k]));
      }
    }
  }
  return found;
}

}  // namespace nestor
