// Likely tiles, groups and orders for products on tensor cores.
#include "autotune/space/gpu/tensor_guesses.h"

#include "autotune/space/gpu/tensor_fit.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/gpu/tensor_waves.h"
#include "codegen/gpu/target/block_registers.h"
#include "support/rounding.h"

#include <algorithm>
#include <cstdint>
#include <set>

namespace nestor {
namespace {

constexpr std::int64_t kWideRows = 128;  ///< elements of 16 bits from which blocks in pairs are a likely choice
/// Of longest_first: among work tiles that differ in their rows alone.
constexpr int kInnermost = 4;
constexpr std::int64_t kNarrowTile = 32;         ///< of tiles of streamed columns, where there are no more
constexpr std::int64_t kMostChainColumns = 112;  ///< of a likely choice of chains: masks of wider tiles spill
constexpr std::int64_t kTermsOfFewRows = 8;      ///< a row of transposed products, at least
constexpr std::int64_t kMostSumColumns = 256;    ///< of one instruction's sums

/// Rows of which products keep more sums in registers than tiles leave room for.
bool has_wide_sums(const TensorAxes& axes) {
  const bool of_rows = std::any_of(axes.sums.begin(), axes.sums.end(), [](std::int64_t width) { return width > 1; });
  return axes.inner > kWideRows && of_rows;
}

/// The choice's columns, and operands held in registers, as far as they fit: fewer columns where they do not. False: none do.
bool make_fit(const TensorAxes& axes, const GpuLimits& limits, TensorChoice& choice) {
  if (choice.grid.a_from_registers != 0 && !tensor_infeasible(axes, choice, limits).empty()) choice.grid.a_from_registers = 0;
  for (const std::int64_t least = std::min(kLikelyColumns, choice.columns); choice.columns >= least; choice.columns -= 16) {
    if (tensor_infeasible(axes, choice, limits).empty()) return true;
  }
  return false;
}

/// 128 rows a block, whose warps take 16 or 32 each, as in FlashAttention-2 (T. Dao, 2023, arXiv:2307.08691); tiles as small as leaves room
/// for another block beside.
std::vector<NamedValues> choices_of_single_warps(const TensorAxes& axes, const GpuLimits& limits) {
  std::vector<NamedValues> choices;
  for (const bool longest : {false, true}) {
    for (const int stages : {1, 2}) {
      for (const int warpgroups : {1, 2}) {
        for (const std::int64_t columns :
             axes.inner <= 64 ? std::vector<std::int64_t>{64, 128} : std::vector<std::int64_t>{64, 32}) {
          const TensorChoice choice{.grid = {.warpgroups = warpgroups, .stages = stages, .a_from_registers = axes.inner <= 64},
                                    .row_tiles = 3 - warpgroups,
                                    .columns = columns,
                                    .descending = longest,
                                    .longest_first = longest};
          if (tensor_infeasible(axes, choice, limits).empty()) choices.push_back(values_of(choice));
        }
      }
    }
  }
  return choices;
}

/// A block of a likely shape.
struct Shape {
  int warpgroups, row_tiles;
  std::int64_t columns;
  bool in_turn = false;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// The shapes, as wide as results are.
std::vector<Shape> as_wide_as(const TensorAxes& axes, const std::vector<Shape>& shapes) {
  std::vector<Shape> narrow;
  for (Shape shape : shapes) {
    shape.columns = axes.whole_rows ? widest_tile(axes) : std::min(shape.columns, widest_tile(axes));
    if (std::find(narrow.begin(), narrow.end(), shape) == narrow.end()) narrow.push_back(shape);
  }
  return narrow;
}

/// Of 64 rows, packed where that fills them.
std::int64_t blocks_of_rows(const TensorAxes& axes, const GpuLimits& limits) {
  TensorChoice choice{.grid = {.warpgroups = 1}};
  choice.pack_gqa = likely_pack(axes, choice, limits);
  return tiles_of_rows(axes, choice);
}

/// Products are transposed, so that tiles have the rows that there are: what streams through a block is the other operand alone, which is read
/// once. The fewest blocks that a multiprocessor has at once first.
std::vector<NamedValues> choices_of_few_rows(const TensorAxes& axes, const GpuLimits& limits) {
  std::vector<NamedValues> choices;
  for (const int blocks : {1, 2, 3, 4}) {
    for (const std::int64_t columns : {64, 128}) {
      for (const int depth : {256, 128, 64}) {
        TensorChoice choice{.grid = {.warpgroups = 1, .intra_warpgroup_overlap = 1, .min_blocks = blocks},
                            .row_tiles = static_cast<int>(columns / nvptx::kWarpgroupRows),
                            .columns = columns,
                            .depth = depth,
                            .few_rows = static_cast<int>(round_up(axes.row_extent, std::int64_t{nvptx::kSumColumns})),
                            .streaming_inputs = true};
        const std::int64_t all = ceil_div(axes.column_extent, columns) * axes.others;
        if (blocks > 1 && all <= std::int64_t{limits.units} * (blocks - 1)) continue;
        const auto fits = [&](std::int64_t stages) {
          choice.grid.stages = static_cast<int>(stages);
          return tensor_infeasible(axes, choice, limits).empty();
        };
        if (std::any_of(kSumStages.rbegin(), kSumStages.rend(), fits)) choices.push_back(values_of(choice));
      }
    }
  }
  return choices;
}

/// Few results: what takes the time is reading the operand of the columns. Each multiprocessor gets the same share of it, in large pieces,
/// since a piece costs its block the time of a round of barriers.
std::vector<NamedValues> choices_of_few_results(const TensorAxes& axes, const GpuLimits& limits) {
  std::vector<NamedValues> choices;
  // Transposed results are stored across memory: where they are as many as what they are sums of, that takes the time.
  const bool long_sums = axes.inner * axes.taps >= kTermsOfFewRows * axes.row_extent;
  if (long_sums && may_have_few_rows(axes, limits.sm)) choices = choices_of_few_rows(axes, limits);
  // Wide pieces of few terms at first, where the sum is long enough to be cut into parts.
  for (const std::int64_t columns : {256, 128}) {
    TensorChoice choice{.grid = {.warpgroups = 1, .stages = 16, .intra_warpgroup_overlap = 1},
                        .columns = columns,
                        .depth = 64,
                        .streaming_inputs = true};
    if (columns < axes.column_extent && take_stages(axes, limits, choice)) choices.push_back(values_of(choice));
  }
  for (const int turns : {1, 2, 3}) {
    if (axes.whole_rows) break;
    const std::int64_t all = axes.column_extent * axes.others * blocks_of_rows(axes, limits);
    const std::int64_t share =
        round_up(std::min(ceil_div(all, std::int64_t{limits.units} * turns), axes.column_extent), nvptx::kTerms);
    for (const int depth : {256, 128, 64}) {
      TensorChoice choice{.grid = {.warpgroups = 1, .stages = 16, .intra_warpgroup_overlap = 1, .min_blocks = turns},
                          .columns = share,
                          .depth = depth,
                          .streaming_inputs = true};
      if (share <= kMostSumColumns && take_stages(axes, limits, choice)) choices.push_back(values_of(choice));
    }
  }
  return choices;
}

/// Wide blocks, which read each element of memory for most products; then work tiles in turn, where what is left of a tile is computed beside
/// the products of another; narrower ones where those would leave multiprocessors idle. Before them, where waves are few, tiles that fill
/// these. Rows of blocks first, then columns, with tiles for a
/// pair of blocks or one.
std::vector<NamedValues> choices_of_sums(const TensorAxes& axes, const GpuLimits& limits) {
  const bool pairs = limits.sm >= kGroupProducts;
  std::vector<Shape> shapes = pairs ? std::vector<Shape>{{2, 1, 256}, {2, 2, 128, true}, {2, 1, 256, true}, {2, 1, 192},
                                                         {2, 1, 128}, {1, 1, 128},       {1, 1, 64}}
                                    : std::vector<Shape>{{2, 1, 128}, {2, 2, 64}, {2, 1, 64}, {1, 1, 64}};
  // Many sums of one tile leave room for few columns of each.
  if (pairs && axes.first_products > 2) shapes.insert(shapes.end() - 2, {2, 1, 64});
  std::vector<NamedValues> choices, for_fewer;
  const std::int64_t most_blocks = blocks_of_rows(axes, limits) * ceil_div(axes.column_extent, kLikelyColumns) * axes.others;
  const std::int64_t all_rows = axes.row_extent * axes.pack_extent;
  // All terms at once where a block has a loop over columns.
  const int depth = !pairs ? 32 : !axes.cut_columns || axes.inner <= 64 ? 64 : axes.inner <= 128 ? 128 : 256;
  const bool loops = axes.cut_columns && depth > 64;  // waves are none of blocks of columns
  if (pairs && (all_rows <= nvptx::kWarpgroupRows || most_blocks < limits.units)) choices = choices_of_few_results(axes, limits);
  if (pairs && all_rows > nvptx::kWarpgroupRows && !loops) {
    for (TensorChoice choice : choices_in_few_waves(axes, limits)) {
      for (const int raster_group : {8, 1}) {
        choice.grid.raster_group = raster_group;
        choices.push_back(values_of(choice));
      }
    }
  }
  for (const Shape& shape : as_wide_as(axes, shapes)) {
    TensorChoice choice{.grid = {.warpgroups = shape.warpgroups,
                                 .stages = 8,
                                 .intra_warpgroup_overlap = pairs ? 1 : 0,
                                 .ping_pong_tiles = shape.in_turn,
                                 .persistent = shape.in_turn},
                        .row_tiles = shape.row_tiles,
                        .columns = shape.columns,
                        .depth = depth};
    choice.pack_gqa = likely_pack(axes, choice, limits);
    if (!take_stages(axes, limits, choice)) continue;
    // Room for the whole results of both tiles.
    if (shape.in_turn) choice.grid.stages = std::max(choice.grid.stages - 1, 2);
    const std::int64_t blocks = tiles_of_rows(axes, choice) * ceil_div(axes.column_extent, choice.columns);
    const bool idle = blocks * axes.others < std::int64_t{limits.units} * choice.work_tiles();
    if ((idle || axes.cut_tiles) && shape.in_turn) continue;
    std::vector<bool> stays{false};
    if (pairs && !idle) stays = shape.in_turn ? std::vector<bool>{true} : std::vector<bool>{true, false};
    for (const bool persistent : stays) {
      for (const int together : pairs && !idle ? std::vector<int>{2, 1} : std::vector<int>{1}) {
        // Rows of one block alone: the other one of a pair would have none.
        if (together > 1 && axes.row_extent * choice.pack_gqa <= choice.rows()) continue;
        for (const int raster_group : idle || loops ? std::vector<int>{1} : std::vector<int>{8, 1}) {
          choice.grid.persistent = persistent;
          choice.grid.cluster = together;
          choice.grid.raster_group = raster_group;
          (idle ? for_fewer : choices).push_back(values_of(choice));
        }
      }
    }
  }
  // The most blocks first where there are too few.
  choices.insert(choices.end(), for_fewer.rbegin(), for_fewer.rend());
  return choices;
}

/// The choices with operands that are computed in f32 rounded, and in halves: by turns, halves first, where rounding may be beyond what a sum
/// allows; else a few in halves at last.
std::vector<NamedValues> in_both_forms(const TensorAxes& axes, const GpuLimits& limits, const std::vector<NamedValues>& choices) {
  constexpr std::size_t kFew = 8;
  if (axes.wide_operands == 0) return choices;
  std::vector<NamedValues> all, last;
  std::set<NamedValues> seen;
  for (const NamedValues& values : choices) {
    TensorChoice choice = tensor_choice(values);
    choice.grid.operand_halves = 1;
    choice.grid.exp2_polynomial = 0;  // what is not rounded is not approximate either
    const bool fits = tensor_infeasible(axes, choice, limits).empty() || make_fit(axes, limits, choice);
    std::vector<NamedValues>& list = axes.cancelling ? all : last;
    if (fits && list.size() < (axes.cancelling ? 2 * choices.size() : kFew) && seen.insert(values_of(choice)).second)
      list.push_back(values_of(choice));
    all.push_back(values);
  }
  all.insert(all.end(), last.begin(), last.end());
  return all;
}

/// Rows stay, columns come tile by tile.
std::vector<NamedValues> choices_of_warpgroups(const TensorAxes& axes, const GpuLimits& limits) {
  std::vector<NamedValues> choices;
  std::set<NamedValues> seen;
  const std::vector<int> most_warpgroups = axes.inner <= 64 ? std::vector<int>{3, 2} : std::vector<int>{2};
  const auto add = [&](TensorChoice choice) {
    // Tiles wider than all columns would have functions of nothing.
    choice.columns = std::min(choice.columns, round_up(axes.stream_extent, kNarrowTile));
    if (!make_fit(axes, limits, choice)) return;
    // Wide rows have more sums to correct than terms in a tile.
    if (has_wide_sums(axes)) choice.rescale = kDoublings;
    const NamedValues values = values_of(choice);
    if (seen.insert(values).second) choices.push_back(values);
  };
  // More functions than the exponential of an element keep the units for them busy longer than the products take.
  const auto add_with_polynomial = [&](TensorChoice choice) {
    add(choice);
    if (axes.functions <= axes.register_operands) return;
    choice.grid.exp2_polynomial = 8;
    add(choice);
  };
  // Few rows: one warpgroup, whose tile packs fill as far as they can. Then what streams through the block takes the time: small blocks, with
  // many tiles under way.
  const auto add_few_rows = [&](int blocks, int stages, std::int64_t columns) {
    add({.grid = {.warpgroups = 1, .stages = stages, .intra_warpgroup_overlap = 1, .min_blocks = blocks},
         .columns = columns,
         .pack_gqa = fullest_pack(axes),
         .streaming_inputs = true});
  };
  if (axes.row_extent < nvptx::kWarpgroupRows) {
    for (const int blocks : {2, 1}) {
      for (const int stages : {4, 2}) {
        for (const std::int64_t columns : {128, 64}) add_few_rows(blocks, stages, columns);
      }
      // Rows that see few columns, as in windows of an image: a block waits for its copies, others work.
      if (blocks == 2) add_few_rows(4, 2, kLikelyColumns);
    }
  }
  // Wide tiles of columns, then narrow ones. `cut`: for a mask that cuts some work tiles.
  const auto add_both = [&](int overlap, bool ping_pong, bool persistent, bool cut, int warpgroups) {
    // Without sums of products in registers, tiles of scores have room there.
    const bool by_chain = overlap > 1, wide_rows = has_wide_sums(axes), parts = axes.operand_parts > 1;
    TensorChoice choice{.grid = {.warpgroups = warpgroups,
                                 .intra_warpgroup_overlap = overlap,
                                 .ping_pong = ping_pong,
                                 .early_release = 1,
                                 .persistent = persistent,
                                 .dynamic_scheduler = persistent},
                        .columns = by_chain    ? kMostChainColumns
                                   : parts     ? nvptx::kMostPartTerms
                                   : wide_rows ? 80
                                               : 128,
                        .descending = cut,
                        .longest_first = cut ? kInnermost : 0};
    // A third warpgroup leaves no registers for operands that stay. Narrow tiles of parts read shared memory as fast as it gives them.
    choice.grid.a_from_registers = parts || (warpgroups < 3 && persistent && !by_chain);
    add_with_polynomial(choice);
    choice.columns = cut || by_chain || wide_rows ? 64 : 160;
    choice.grid.stages = cut && axes.inner <= 64 ? 4 : 2;
    choice.grid.a_from_registers = by_chain || (choice.grid.a_from_registers != 0 && cut);
    choice.longest_first = cut ? 2 : 0;
    add_with_polynomial(choice);
  };
  // Independent chains first, which cover each other's products without ping-pong.
  for (const int overlap : several_chains(axes) ? std::vector<int>{3, 2, 1} : std::vector<int>{1}) {
    for (const bool ping_pong : {true, false}) {
      if (ping_pong && overlap == 3) continue;
      for (const bool persistent : {false, true}) {
        // Rising order for work that is the same in all work tiles, falling order where a mask cuts some: there narrow tiles waste less.
        for (const bool cut : {false, true}) {
          for (const int warpgroups : overlap > 1 ? std::vector<int>{2} : most_warpgroups)
            add_both(overlap, ping_pong, persistent, cut, warpgroups);
        }
      }
    }
  }
  // Wide rows: what one block reads of keys and values for its rows comes near what the L2 cache can give, and a pair needs half of it.
  for (const bool cut : {false, true}) {
    for (const bool persistent : {false, true}) {
      for (const bool ping_pong : {true, false}) {
        if (axes.inner < kWideRows) break;
        add({.grid = {.warpgroups = 2,
                      .intra_warpgroup_overlap = 1,
                      .ping_pong = ping_pong,
                      .early_release = 1,
                      .persistent = persistent,
                      .cluster = 2},
             .columns = has_wide_sums(axes) ? 80
                        : cut               ? 128
                                            : 160,
             .descending = cut,
             .longest_first = cut ? kInnermost : 0});
      }
    }
  }
  return choices;
}

}  // namespace

std::vector<NamedValues> likely_tensor_choices(const TensorAxes& axes, const GpuLimits& limits) {
  if (axes.column >= 0) return choices_of_sums(axes, limits);
  const bool warps = limits.sm < kGroupProducts;
  return in_both_forms(axes, limits, warps ? choices_of_single_warps(axes, limits) : choices_of_warpgroups(axes, limits));
}

}  // namespace nestor
