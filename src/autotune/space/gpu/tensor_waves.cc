// The model of a wave, and all tiles by it.
#include "autotune/space/gpu/tensor_waves.h"

#include "autotune/space/gpu/tensor_fit.h"
#include "codegen/gpu/target/block_registers.h"
#include "support/rounding.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace nestor {
namespace {

// Of a multiprocessor, a cycle.
constexpr double kProducts = 2048;   ///< of 16-bit operands, on sm_90
constexpr double kCopiedBytes = 64;  ///< from the L2 cache
// Cycles, measured on an H100: 512 x 1,024 x 4,096 by blocks of 64 x 64, with tiles of 64 and 128 terms, whole and in parts.
constexpr double kRound = 100;           ///< of barriers, for each tile
constexpr double kStart = 1500;          ///< of a block, until its first products
constexpr double kSecondKernel = 12000;  ///< that adds up parts
constexpr std::int64_t kTilesOfPart = 8;
constexpr double kManyWaves = 3.5;
constexpr std::int64_t kLargestTile = 128 * 256;
constexpr std::int64_t kLine = 64, kHalfLine = 32,
                       kMostColumns = 256;  ///< columns: results leave through shared memory in such blocks
constexpr std::size_t kChoices = 3;
constexpr int kFewestStages = 3;

std::int64_t blocks_of(const TensorAxes& axes, const TensorChoice& choice) {
  return tiles_of_rows(axes, choice) * ceil_div(axes.column_extent, choice.columns) * axes.others;
}

std::int64_t terms_of_tile(const TensorAxes& axes, const TensorChoice& choice) {
  return std::min<std::int64_t>(choice.depth, axes.inner);
}

}  // namespace

double modelled_cycles(const TensorAxes& axes, const TensorChoice& choice, std::int64_t parts, const GpuLimits& limits) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  // All sums of the tile, and what they read: operands that several of them share once.
  const auto count = [](std::size_t known) { return static_cast<double>(std::max<std::size_t>(known, 1)); };
  const double rows = number(choice.rows()), columns = number(choice.columns);
  const double products = std::max(axes.first_products, 1) * rows * columns / kProducts;
  const double read_rows = count(axes.row_operands.size()) * rows,
               read_columns = count(axes.streamed_operands.size()) * columns / choice.grid.cluster;
  const double copies = 2 * (read_rows + read_columns) / kCopiedBytes;
  const double term = std::max(products, copies) + kRound / number(terms_of_tile(axes, choice));
  const std::int64_t waves = ceil_div(blocks_of(axes, choice) * parts, std::int64_t{limits.units});
  const double wave = number(axes.inner * axes.taps * axes.chunks) / number(parts) * term + kStart;
  if (parts == 1) return number(waves) * wave;
  // Each part is written and read once, in f32.
  const double results = number(axes.row_extent * axes.pack_extent) * number(axes.column_extent) * number(axes.others);
  return number(waves) * wave + kSecondKernel + 8 * number(parts) * results / (kCopiedBytes * limits.units);
}

std::int64_t useful_parts(std::int64_t blocks, int rounds, std::int64_t tiles, const GpuLimits& limits) {
  if (2 * blocks > limits.units) return 1;
  return std::max<std::int64_t>(std::min(std::int64_t{rounds} * limits.units / blocks, tiles / kTilesOfPart), 1);
}

std::vector<TensorChoice> choices_in_few_waves(const TensorAxes& axes, const GpuLimits& limits) {
  if (axes.row_extent * axes.pack_extent * axes.column_extent * axes.others > kManyWaves * limits.units * kLargestTile) return {};
  std::vector<std::pair<double, TensorChoice>> found;
  const std::int64_t most = std::min(kMostColumns, widest_tile(axes));
  for (const auto& [warpgroups, row_tiles] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
    for (std::int64_t columns = axes.whole_rows ? most : std::min(kLine, most); columns <= most; columns += kHalfLine) {
      for (const int depth : {64, 128}) {
        for (const int cluster : {1, kMostMulticast}) {
          TensorChoice choice{.grid = {.warpgroups = warpgroups, .stages = 8, .intra_warpgroup_overlap = 1, .cluster = cluster},
                              .row_tiles = row_tiles,
                              .columns = columns,
                              .depth = depth};
          choice.pack_gqa = likely_pack(axes, choice, limits);
          if (cluster > 1 && axes.row_extent < 2 * choice.rows() / choice.pack_gqa) continue;
          if (!take_stages(axes, limits, choice, kFewestStages)) continue;
          const std::int64_t parts = useful_parts(blocks_of(axes, choice), 1, axes.inner / choice.depth, limits);
          const double whole = modelled_cycles(axes, choice, 1, limits);
          found.emplace_back(std::min(whole, modelled_cycles(axes, choice, parts, limits)), choice);
        }
      }
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<TensorChoice> choices;
  for (std::size_t k = 0; k < std::min(found.size(), kChoices); ++k) choices.push_back(found[k].second);
  return choices;
}

}  // namespace nestor
