// What an op's dims can become: which may be spread over threads, which one runs along memory, which form a product.
#pragma once

#include "codegen/tile/tile_program.h"

#include <optional>
#include <vector>

namespace nestor::nvptx {

/// column: neighbouring threads (and the elements of a vector) take neighbouring values. row: groups of threads take different
/// values. serial: each thread runs over all values.
enum class DimRole : std::uint8_t { row, column, serial };

/// Do the bounds of one of the op's dims depend on another one?
bool bounds_use_other_dims(const TileOp& op, const OpDim& dim);

/// Dims that may be spread: those without a dependence, and a reduction's own (as column only). Bounds must not depend on other
/// dims of the op; of a point-wise op only dims before the first sequential one qualify.
std::vector<bool> spreadable_dims(const TileOp& op);

/// The dim that most elements are contiguous along, among the spreadable ones with more than one value; -1: there is none.
int choose_column(const TileOp& op, const std::vector<Buffer>& buffers, const std::vector<bool>& spreadable);

inline constexpr int kMostPacked = 8;  ///< values of a pack: rows of a thread of tensor cores are a multiple of these apart

/// C[row, column] (+)= sum over k of A[row, k] * B[k, column], other dims fixed. With a `pack`, rows are pairs: C[pack, row, column] (+)=
/// sum over k of A[pack, row, k] * B[k, column].
struct ProductForm {
  int row = -1, column = -1, k = -1;  ///< dims
  int pack = -1;                      ///< dim; -1: none
  int a = -1, b = -1;                 ///< reads
};
/// The form of a contract op whose other dims (if any) all have one value; nullopt when it does not fit. `packs`: of two dims of rows
/// the outer one may be a pack.
std::optional<ProductForm> product_form(const TileOp& op, bool packs = false);

/// The same of a sum of other terms of two operands (differences squared), with rows and columns that register blocks are worth. A term is 0
/// where all that it reads is. Without a guard it may read more, which is the same for all rows and columns (weights of a sum).
std::optional<ProductForm> terms_form(const TileOp& op);
inline constexpr std::int64_t kFewestTerms = 16;  ///< rows, and columns
/// The term with operands of 16 bits as the f32 values that they are widened to.
ScalarExpr wide_term(const ScalarExpr& term);

/// Dims of a contract that must become loops around it before it has a ProductForm: batch dims, further rows, columns, ks.
/// nullopt: it cannot have one.
std::optional<std::vector<int>> product_outer_dims(const TileOp& op);

/// A point-wise op runs its leading sequential dims as loops around it when a parallel dim follows: how many.
int leading_serial_dims(const TileOp& op);

bool uses_any(const TileAccess& access, const std::string& var);
bool single_valued(const OpDim& dim);

}  // namespace nestor::nvptx
