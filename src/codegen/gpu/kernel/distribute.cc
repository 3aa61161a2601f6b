// Grid of blocks for one op.
#include "codegen/gpu/kernel/distribute.h"

#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/op_shape.h"

#include <algorithm>
#include <bit>

namespace nestor::nvptx {
namespace {

/// Elements that one thread of a point-by-point op over contiguous memory takes: two 16-byte vectors of 32 bits.
constexpr std::int64_t kElementsPerThread = 8;

/// Extent of each dim that one block takes: 0 stands for all of it.
std::vector<std::int64_t> product_tiles(const TileOp& op, const ProductForm& form, int threads) {
  std::vector<std::int64_t> tiles(op.dims.size(), 0);
  const auto large = [&](int d) { return extent_bound(op.dims[d]).value_or(0) >= 256; };
  const std::int64_t edge = large(form.row) && large(form.column) && threads >= 256 ? 128 : 64;
  tiles[form.row] = edge;
  tiles[form.column] = edge;
  return tiles;
}

std::vector<std::int64_t> row_tiles(const TileOp& op, const TileProgram& program, int threads) {
  std::vector<std::int64_t> tiles(op.dims.size(), 0);
  const std::vector<bool> spread = spreadable_dims(op);
  const int column = choose_column(op, program.buffers, spread);
  for (std::size_t d = 0; d < tiles.size(); ++d) tiles[d] = spread[d] && !op.dims[d].reduced ? 1 : 0;
  if (column < 0) return tiles;
  const bool accumulates = std::any_of(op.dims.begin(), op.dims.end(), [](const OpDim& dim) { return dim.reduced; });
  const bool vectors = op.kind != OpKind::points && !(accumulates && !op.dims[column].reduced);
  const std::int64_t per_thread = vectors ? kElementsPerThread : 1;
  const std::int64_t chunk = threads * per_thread;
  if (!op.dims[column].reduced) tiles[column] = chunk;
  const auto extent = extent_bound(op.dims[column]);
  if (!extent) return tiles;
  // Short rows: one block takes several, those of the innermost dim other than the column.
  const auto width = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(*extent, 1))));
  for (int d = static_cast<int>(tiles.size()) - 1; d >= 0; --d) {
    if (d == column || tiles[d] != 1 || single_valued(op.dims[d])) continue;
    tiles[d] = std::max<std::int64_t>(chunk / width, 1);
    break;
  }
  return tiles;
}

void move_to_grid(Distribution& distribution, const OpDim& dim) {
  distribution.grid.push_back({dim.var, dim.lower, max(dim.upper - dim.lower, 0), 1});
}

OpDim cut(Distribution& distribution, const OpDim& dim, std::int64_t tile) {
  const std::string var = dim.var + "_tile";
  distribution.grid.push_back({var, dim.lower, max(floor_div(dim.upper - dim.lower + IntExpr(tile - 1), tile), 0), tile});
  OpDim part = dim;
  part.lower = IntExpr::variable(var);
  part.upper = min(IntExpr::variable(var) + IntExpr(tile), dim.upper);
  const auto bound = extent_bound(dim);
  part.max_extent = bound ? std::min(*bound, tile) : tile;
  const auto extent = exact_extent(dim);
  if (extent && *extent % tile == 0) part.upper = IntExpr::variable(var) + IntExpr(tile);
  return part;
}

}  // namespace

Distribution distribute(const TileOp& op, const TileProgram& program, int threads) {
  const auto outer = product_outer_dims(op);
  std::vector<std::int64_t> tiles;
  if (outer) {
    TileOp core = op;  // with the outer dims out of the way
    for (int d : *outer) core.dims[d].upper = core.dims[d].lower + IntExpr(1);
    if (const auto form = product_form(core)) tiles = product_tiles(op, *form, threads);
    for (int d : *outer) tiles[d] = op.dims[d].reduced ? 0 : 1;
  }
  if (tiles.empty()) tiles = row_tiles(op, program, threads);
  Distribution result;
  result.op = op;
  result.op.dims.clear();
  for (std::size_t d = 0; d < op.dims.size(); ++d) {
    const auto bound = extent_bound(op.dims[d]);
    if (tiles[d] == 0 || (bound && *bound <= tiles[d])) {
      result.op.dims.push_back(op.dims[d]);
    } else if (tiles[d] == 1) {
      move_to_grid(result, op.dims[d]);
    } else {
      result.op.dims.push_back(cut(result, op.dims[d], tiles[d]));
    }
  }
  return result;
}

}  // namespace nestor::nvptx
