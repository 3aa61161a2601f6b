// Picks one pair of instances at the sizes, and draws the iterations near both.
#include "api/explore/conflict_picture.h"

#include "poly/isl/isl_tools.h"
#include "poly/isl/sample_point.h"
#include "poly/schedule/order/loop_tree.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>
#include <set>

namespace nestor {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr int kUsualWidth = 80;
constexpr std::int64_t kNear = 2;         ///< iterations drawn on either side of an instance
constexpr std::size_t kMostColumns = 12;  ///< of iterations

/// Both instances, and the loops that they share.
struct Pair {
  Numbers first, second;               ///< of the source and of the sink
  std::vector<std::string> loops;      ///< around both, outermost first
  std::optional<std::size_t> decides;  ///< the first of `loops` in which they differ
};

std::optional<Pair> pair_at(const OrderConflict& conflict, const Sizes& sizes) {
  const isl::map pairs = at_sizes(conflict.pairs, sizes);
  if (pairs.is_empty()) return std::nullopt;
  const Numbers both = smallest_point(isl::manage(isl_set_flatten(isl_map_wrap(pairs.copy()))));
  Pair pair;
  const auto between = both.begin() + static_cast<std::ptrdiff_t>(conflict.source.loops.size());
  pair.first.assign(both.begin(), between);
  pair.second.assign(between, both.end());
  const std::size_t most = std::min(conflict.source.loops.size(), conflict.sink.loops.size());
  for (std::size_t k = 0; k < most && conflict.source.loops[k] == conflict.sink.loops[k]; ++k) {
    pair.loops.push_back(conflict.source.loops[k]);
    if (!pair.decides && pair.first[k] != pair.second[k]) pair.decides = k;
  }
  return pair;
}

/// What the loop does to the pair, in a few words.
std::string remark(const OrderConflict& conflict, const Pair& pair, std::size_t loop) {
  if (pair.loops[loop] == conflict.loop && is_concurrent(conflict.loop_kind))
    return fmt::format("   {}: both at once", to_string(conflict.loop_kind));
  if (pair.decides == loop && pair.first[loop] > pair.second[loop]) return "   B comes first";
  return "";
}

std::string loop_table(const OrderConflict& conflict, const Pair& pair) {
  std::size_t name = 0, number = 1;
  for (const std::string& loop : pair.loops) name = std::max(name, loop.size());
  for (std::size_t k = 0; k < pair.loops.size(); ++k)
    number = std::max({number, std::to_string(pair.first[k]).size(), std::to_string(pair.second[k]).size()});
  std::string text = fmt::format("  {:{}}  {:>{}}  {:>{}}\n", "", name, "A", number, "B", number);
  for (std::size_t k = 0; k < pair.loops.size(); ++k)
    text += fmt::format("  {:{}}  {:>{}}  {:>{}}{}\n", pair.loops[k], name, pair.first[k], number, pair.second[k], number,
                        remark(conflict, pair, k));
  if (!pair.decides) text += "  in the same iteration of all loops around both, B comes first\n";
  return text;
}

/// Iterations of two shared loops, one below the other, near both instances.
class Window {
 public:
  Window(const OrderConflict& conflict, const Pair& pair, const Sizes& sizes) : pair_(pair) {
    choose_axes();
    points_ = slice(conflict.source, sizes).unite(slice(conflict.sink, sizes)).coalesce();
    rows_ = axes_.size() == 2 ? near(0) : Numbers{0};
    columns_ = near(static_cast<int>(axes_.size()) - 1);
  }

  std::string text(int width) const {
    std::size_t cell = 1;
    for (const std::int64_t column : columns_) cell = std::max(cell, std::to_string(column).size());
    const std::string row_name = axes_.size() == 2 ? pair_.loops[axes_.front()] : "";
    std::size_t label = row_name.size();
    for (const std::int64_t row : rows_) label = std::max(label, std::to_string(row).size());
    const std::size_t all = 2 + label + columns_.size() * (cell + 2);
    if (all + 2 > static_cast<std::size_t>(width)) return "";
    std::string text = fmt::format("\n  {:>{}}  {} ->\n  {:>{}}", "", label, pair_.loops[axes_.back()], row_name, label);
    for (std::size_t c = 0; c < columns_.size(); ++c) text += separator(columns_, c) + fmt::format("{:>{}}", columns_[c], cell);
    text += "\n";
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (r > 0 && rows_[r] != rows_[r - 1] + 1) text += fmt::format("  {:>{}}\n", "..", label);
      text += fmt::format("  {:>{}}", axes_.size() == 2 ? std::to_string(rows_[r]) : "", label);
      for (std::size_t c = 0; c < columns_.size(); ++c)
        text += separator(columns_, c) + fmt::format("{:>{}}", sign(rows_[r], columns_[c]), cell);
      text += "\n";
    }
    return text;
  }

 private:
  /// The loop that decides, and the next in which both differ; else one beside it.
  void choose_axes() {
    const std::size_t decides = *pair_.decides, count = pair_.loops.size();
    std::optional<std::size_t> other;
    for (std::size_t k = decides + 1; k < count && !other; ++k) {
      if (pair_.first[k] != pair_.second[k]) other = k;
    }
    if (!other && decides + 1 < count) other = decides + 1;
    if (!other && decides > 0) other = decides - 1;
    axes_ = {decides};
    if (other) axes_.push_back(*other);
    std::sort(axes_.begin(), axes_.end());
  }

  /// { [axes] }: the end's iterations, with the other shared loops as the first instance has them.
  isl::set slice(const OrderConflict::End& end, const Sizes& sizes) const {
    isl_set* set = at_sizes(end.iterations, sizes).release();
    const auto shared = static_cast<unsigned>(pair_.loops.size());
    set = isl_set_project_out(set, isl_dim_set, shared, static_cast<unsigned>(isl_set_dim(set, isl_dim_set)) - shared);
    for (unsigned k = shared; k-- > 0;) {
      if (std::find(axes_.begin(), axes_.end(), k) != axes_.end()) continue;
      set = isl_set_fix_si(set, isl_dim_set, k, static_cast<int>(pair_.first[k]));
      set = isl_set_project_out(set, isl_dim_set, k, 1);
    }
    return isl::manage(isl_set_reset_tuple_id(set));
  }

  Numbers near(int axis) const {
    const auto [low, high] = dim_range(points_, axis);
    const std::size_t loop = axes_[axis];
    std::set<std::int64_t> wanted;
    for (const std::int64_t centre : {pair_.first[loop], pair_.second[loop]}) {
      for (std::int64_t at = std::max(low, centre - kNear); at <= std::min(high, centre + kNear); ++at) wanted.insert(at);
      wanted.insert(centre);
    }
    Numbers numbers(wanted.begin(), wanted.end());
    if (numbers.size() > kMostColumns) numbers.resize(kMostColumns);
    return numbers;
  }

  static const char* separator(const Numbers& columns, std::size_t at) {
    return at > 0 && columns[at] != columns[at - 1] + 1 ? " ..  " : "  ";
  }

  const char* sign(std::int64_t row, std::int64_t column) const {
    const auto is_at = [&](const Numbers& instance) {
      return instance[axes_.back()] == column && (axes_.size() == 1 || instance[axes_.front()] == row);
    };
    if (is_at(pair_.first)) return "A";
    if (is_at(pair_.second)) return "B";
    isl_set* cell = points_.copy();
    if (axes_.size() == 2) cell = isl_set_fix_si(cell, isl_dim_set, 0, static_cast<int>(row));
    cell = isl_set_fix_si(cell, isl_dim_set, axes_.size() == 2 ? 1 : 0, static_cast<int>(column));
    return isl::manage(cell).is_empty() ? " " : ".";
  }

  const Pair& pair_;
  std::vector<std::size_t> axes_;  ///< positions in pair_.loops: one, or that of the rows and that of the columns
  isl::set points_;
  Numbers rows_, columns_;
};

std::string reading(const OrderConflict& conflict) {
  if (is_concurrent(conflict.loop_kind) && !conflict.loop.empty())
    return fmt::format("  Iterations of {} would run at the same time: nothing makes B wait for A.\n", conflict.loop);
  return "  The step's order reads line by line, from the left: it comes to B before A.\n";
}

}  // namespace

std::string conflict_picture(const OrderConflict& conflict, const Sizes& sizes, int width) {
  return isl_guarded("the picture of a conflict", [&]() -> std::string {
    const std::optional<Pair> pair = pair_at(conflict, sizes);
    if (!pair) return "  At the sizes of this session no pair of instances is in the wrong order; at others one is.\n";
    std::string text = fmt::format("  A = {} must come before\n  B = {}\n", instance_text(conflict.source, pair->first),
                                   instance_text(conflict.sink, pair->second));
    if (!pair->loops.empty()) text += "\n" + loop_table(conflict, *pair);
    if (!pair->decides) return text;
    const std::string drawn = Window(conflict, *pair, sizes).text(width > 0 ? width : kUsualWidth);
    return drawn.empty() ? text : text + drawn + "\n" + reading(conflict);
  });
}

}  // namespace nestor
