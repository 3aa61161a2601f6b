// TileAxes: what tiles on tensor cores are rows, columns and terms of, by axes of a nest.
#pragma once

#include "codegen/gpu/target/tensor_block.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// An input of products: elements of a row, or of a streamed position. `dense`: memory runs along them, and not across.
struct TensorOperand {
  std::int64_t width = 1;
  bool dense = true;
  int unit = nvptx::kTerms;  ///< of which its width, where it lies across memory, becomes a multiple in a tile
};

inline constexpr std::int64_t kLikelyColumns = 64;  ///< the fewest of a likely choice: narrower tiles leave tensor cores waiting

/// The loops that products of a fusion group tile, and what their tiles hold. Axes are those of the structure.
struct TensorAxes {
  int row = -1;             ///< common axis along the rows of every product
  int reduction_axis = -1;  ///< axis whose tiles are columns of the first product: the loop over them stays in a block
  /// Common axis along the columns of a product whose sum itself is streamed: `reduction_axis` is what it sums over. -1: columns are streamed.
  int column = -1;
  bool whole_rows = false;   ///< a tile has all of its columns, which no loop around blocks runs along
  int pack = -1;             ///< common axis that first operands follow and second ones do not, beside `row`; -1: none
  std::int64_t inner = 1;    ///< extent of the reduced dim of the first product
  bool fixed_inner = false;  ///< it is known when compiling
  /// Axis of chunks of terms, -1: none. A sum starts anew in each of them, has all terms of it at once (`inner`), and another one adds up.
  int chunk_axis = -1;
  std::int64_t chunks = 1;   ///< of them, where one product adds up; else they count among `others`
  bool cut_tiles = false;    ///< with `column`: some tiles have less columns or terms than others, as under a mask
  bool cut_columns = false;  ///< some rows have fewer columns than others: tiles of columns are a loop in the block of their rows
  bool same_taps = true;     ///< all products sum over the same values of other dims, which may be loops around them
  std::vector<int> tap_axes;  ///< of these dims of the product that streams most terms, outermost first
  std::int64_t taps = 1;      ///< points of them
  std::int64_t row_extent = 1, pack_extent = 1, column_extent = 1;
  bool fixed_rows = false;         ///< with `column`: row_extent is known when compiling
  bool fixed_columns = false;      ///< with `column`: column_extent is known when compiling
  std::int64_t stream_extent = 1;  ///< of `reduction_axis`: streamed columns, or terms
  std::int64_t row_stride = 1;     ///< elements of the operand from one row to the next
  std::int64_t others = 1;         ///< with `column`: points of the common axes beside rows, packs, columns and chunks
  // Extents beside rows and streamed columns, one entry a tile.
  std::vector<TensorOperand> row_operands;       ///< inputs that stay for a block's rows; with `column`: whose rows these are
  std::vector<TensorOperand> streamed_operands;  ///< inputs that come tile by tile; with `column`: whose rows are columns
  std::set<std::string> streamed_inputs;         ///< inputs among the latter that no tile of rows comes from
  std::vector<std::int64_t> sums;                ///< elements of a row, of sums along the streamed axis
  std::vector<std::int64_t> results;             ///< elements of a row, of 16-bit results; 0: as many as a tile has columns
  int tile_operands = 0;                         ///< 16-bit inputs of rows and streamed columns that are no operand of a product
  int first_products = 0;                        ///< tiles of rows and streamed columns that products leave
  int register_operands = 0;                     ///< such tiles that are first operands of products
  int operand_parts = 1;                         ///< 16-bit tiles of each, whose products with others are added up apart
  bool sums_parts = false;                       ///< with `column`: a sum adds up products of several parts, apart from its tile
  int wide_operands = 0;                         ///< of these, computed in f32
  bool cancelling =
      false;          ///< some of those may have either sign: a sum may be small beside its terms, and so beside their rounding
  int chains = 1;     ///< parts of the loop over streamed columns that need nothing of each other
  int functions = 0;  ///< exponentials and the like for an element of such tiles
  std::string no_product;  ///< a statement that sums rows of several elements, and no products: it has no place; empty: none does
  std::string wide_in_memory;  ///< a product whose operand another kernel has stored in f32; empty: none is
};

}  // namespace nestor
