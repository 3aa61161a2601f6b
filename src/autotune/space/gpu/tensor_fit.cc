// The tiles of a choice, for the model of a block.
#include "autotune/space/gpu/tensor_fit.h"

#include "support/rounding.h"

#include <fmt/format.h>

namespace nestor {
namespace {

using nvptx::BlockTile;
using nvptx::TensorBlock;

/// Of `width` elements of the operand in each of so many lines.
BlockTile tile_of(std::int64_t lines, std::int64_t width, const TensorOperand& operand, int stages) {
  BlockTile tile;
  tile.rows = operand.dense ? lines : round_up(width, std::int64_t{operand.unit});
  tile.columns = operand.dense ? width : lines;
  tile.stages = stages;
  return tile;
}

/// A block of rows and columns whose terms are streamed.
void add_sum(const TensorAxes& axes, const TensorChoice& choice, TensorBlock& block) {
  const std::int64_t depth = axes.chunk_axis >= 0 ? axes.inner : choice.depth;
  // Where a tile has more columns than there are, and that is known, it is as wide as these.
  const std::int64_t columns = axes.fixed_columns
                                   ? std::min(choice.columns, round_up(axes.column_extent, std::int64_t{nvptx::kSwizzleRows}))
                                   : choice.columns;
  for (int k = 0; k < axes.first_products; ++k)
    block.products.push_back({choice.few_rows > 0 ? choice.rows() : choice.columns, 0});
  for (const TensorOperand& operand : axes.row_operands)
    block.tiles.push_back(tile_of(choice.rows(), depth, operand, choice.grid.stages));
  for (const TensorOperand& operand : axes.streamed_operands) {
    block.tiles.push_back(tile_of(columns, depth, operand, choice.grid.stages));
    block.tiles.back().blocks = choice.grid.cluster;
  }
}

/// A block of rows whose columns are streamed: what products leave is multiplied again.
void add_streamed_columns(const TensorAxes& axes, const TensorChoice& choice, int sm, TensorBlock& block) {
  for (int k = 0; k < axes.first_products; ++k) block.products.push_back({choice.columns, 0});
  int operands = axes.register_operands, wide = choice.grid.operand_halves != 0 ? axes.wide_operands : 0;
  for (const std::int64_t width : axes.sums) {
    const std::int64_t terms = operands-- > 0 ? choice.columns * axes.operand_parts : 0;
    block.products.push_back({width, wide-- > 0 ? 2 * terms : terms});
    if (axes.operand_parts > 1) block.products.push_back({width, 0});
  }
  for (const TensorOperand& operand : axes.row_operands) {
    block.tiles.push_back(tile_of(choice.rows(), operand.width, operand, 1));
    block.tiles.back().lends = operand.dense && (axes.results.size() <= 1 || axes.first_products <= 1);
    block.tiles.back().held = choice.grid.a_from_registers != 0 && operand.dense;
  }
  for (const TensorOperand& operand : axes.streamed_operands) {
    block.tiles.push_back(tile_of(choice.columns, operand.width, operand, choice.grid.stages));
    block.tiles.back().blocks = choice.grid.cluster;
  }
  // Where all threads copy they load these themselves.
  for (int k = 0; k < axes.tile_operands && sm >= kGroupProducts; ++k)
    block.tiles.push_back(tile_of(choice.rows(), choice.columns, TensorOperand{}, choice.grid.stages));
}

}  // namespace

TensorBlock tensor_block(const TensorAxes& axes, const TensorChoice& choice, int sm) {
  TensorBlock block{.warpgroups = choice.grid.warpgroups,
                    .row_tiles = choice.row_tiles,
                    .work_tiles = choice.work_tiles(),
                    .blocks_per_unit = choice.grid.blocks_per_unit(),
                    .persistent = choice.persistent(),
                    .scheduler = choice.grid.dynamic_scheduler != 0,
                    .chains = choice.grid.intra_warpgroup_overlap > 1 ? choice.grid.intra_warpgroup_overlap - 1 : 0};
  if (axes.column >= 0) {
    add_sum(axes, choice, block);
  } else {
    add_streamed_columns(axes, choice, sm, block);
  }
  for (const std::int64_t width : axes.results) {
    if (choice.few_rows > 0) break;  // transposed ones do not lie along rows, and are stored from registers
    nvptx::BlockResult result{width > 0 ? width : choice.columns};
    if (width <= 0) result.block_columns = nvptx::stored_columns(choice.columns);  // others lie beside the tile
    block.results.push_back(result);
  }
  return block;
}

std::string tensor_infeasible(const TensorAxes& axes, const TensorChoice& choice, const GpuLimits& limits) {
  if (!axes.no_product.empty()) return fmt::format("{} is no sum of products", axes.no_product);
  if (!axes.wide_in_memory.empty())
    return fmt::format("{} has an operand in memory that is not f16 or bf16", axes.wide_in_memory);
  if (axes.whole_rows && choice.columns < axes.column_extent)
    return fmt::format("a tile of {} columns does not have all {}", choice.columns, axes.column_extent);
  if (choice.grid.cluster > 1 && axes.streamed_operands.empty()) return "blocks of a cluster would share no tiles";
  if (choice.few_rows > 0 && !may_have_few_rows(axes, limits.sm)) return "these products cannot be transposed";
  const std::int64_t warpgroup_columns = std::int64_t{nvptx::kWarpgroupRows} * std::max(choice.grid.warpgroups, 1);
  if (choice.few_rows > 0 && choice.columns % warpgroup_columns != 0)
    return fmt::format("{} columns of transposed products are no multiple of {}", choice.columns, warpgroup_columns);
  if (choice.pack_gqa > 1 && axes.pack < 0) return "rows of one loop alone share what products multiply them with";
  if (axes.sums_parts ? choice.depth > nvptx::kMostPartTerms : axes.operand_parts > 1 && choice.columns > nvptx::kMostPartTerms)
    return fmt::format("products of parts sum up {} terms at once at most, for the bits of f32", nvptx::kMostPartTerms);
  if (choice.grid.operand_halves != 0 && axes.wide_operands == 0) return "no operand is computed in f32, to have two halves";
  if (choice.grid.intra_warpgroup_overlap > 1 && !several_chains(axes))
    return "products can overlap chain by chain only where there are several chains of them";
  // Chunks are added up with a test of the tile's columns, which cuts the loop over them where the work tile says.
  if (choice.grid.ping_pong_tiles != 0 && (axes.cut_tiles || axes.chunk_axis >= 0))
    return "warpgroups take work tiles in turn only where all have as many iterations";
  if (axes.cut_columns && (!axes.fixed_inner || choice.depth < axes.inner))
    return fmt::format("rows have different columns, over which their block has a loop: a tile of {} terms does not have all{}",
                       choice.depth, axes.fixed_inner ? fmt::format(" {}", axes.inner) : "");
  const bool all_rows = axes.fixed_rows && choice.rows() * choice.grid.cluster / choice.pack_gqa >= axes.row_extent;
  if (axes.cut_columns && axes.chunk_axis >= 0 && !all_rows)
    return "rows have different columns, over which their block has a loop: none over chunks of terms stands within";
  if ((choice.rows() / choice.pack_gqa - 1) * axes.row_stride >= nvptx::kMostCopiedRows)
    return fmt::format("rows that lie {} elements apart reach further than a tensor copy", axes.row_stride);
  NvptxTarget target;
  target.sm = limits.sm;
  target.shared_limit = limits.shared_bytes;
  const nvptx::TensorNeeds needs = estimate(tensor_block(axes, choice, limits.sm), target);
  return needs.refusal.empty() ? needs.spills : needs.refusal;
}

std::int64_t widest_tile(const TensorAxes& axes) {
  constexpr std::int64_t kFine = 192;  // from there on widths are multiples of 32
  return round_up(axes.column_extent,
                  std::int64_t{axes.whole_rows && axes.column_extent > kFine ? 2 * nvptx::kTerms : nvptx::kTerms});
}

std::int64_t tiles_of_rows(const TensorAxes& axes, const TensorChoice& choice) {
  const std::int64_t lines = choice.rows() * choice.grid.cluster / choice.pack_gqa;
  return ceil_div(axes.row_extent, lines) * choice.grid.cluster * ceil_div(axes.pack_extent, std::int64_t{choice.pack_gqa});
}

int likely_pack(const TensorAxes& axes, TensorChoice choice, const GpuLimits& limits) {
  choice.pack_gqa = 1;
  if (axes.column < 0 || axes.pack < 0 || limits.sm < kGroupProducts) return 1;
  int best = 1;
  std::int64_t fewest = 4 * tiles_of_rows(axes, choice);
  for (choice.pack_gqa = 2; choice.pack_gqa <= fullest_pack(axes); choice.pack_gqa *= 2) {
    const std::int64_t tiles = 5 * tiles_of_rows(axes, choice);
    if (tiles > fewest) continue;
    fewest = tiles - 1;
    best = choice.pack_gqa;
  }
  return best;
}

bool take_stages(const TensorAxes& axes, const GpuLimits& limits, TensorChoice& choice, int least) {
  while (choice.grid.stages > least && !tensor_infeasible(axes, choice, limits).empty()) --choice.grid.stages;
  return tensor_infeasible(axes, choice, limits).empty();
}

}  // namespace nestor
