// Bf16Parts: operands of a product as sums of numbers in bf16 (rules bf16x6 and bf16x3).
#pragma once

#include "poly/algebra/guarded/sum_edit.h"
#include "poly/nest/nest.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// Two reads of a sum, as ordinals; two parts, as places.
using OrdinalPair = std::pair<std::size_t, std::size_t>;

/// Is the tensor computed, elementwise at last, from a sum of few products? Its parts belong where it is.
bool comes_from_products(const Nest& nest, const std::string& tensor);

/// Do sums of few products of rows by columns enter what the tensor is computed from? Kernels may have it in registers.
bool comes_from_matrix_products(const Nest& nest, const std::string& tensor);

/// Does the temporary hold long sums of products, as they are added up? Nothing says that such may be rounded. Short ones may stay in registers of
/// a kernel, which multiplies halves of them.
bool is_long_sum_of_products(const Nest& nest, const std::string& tensor);

/// Is the sum of products of these reads one of matrices whose operands may have parts: rows and columns with terms not below 0,
/// over elements that are complete before the sum starts and are multiplied often? Those that come from products, or with `sums` are such
/// themselves, need not be: their parts stay with them. Of several dims of terms the innermost is not short. It can be guarded (sum_edit.h). Sets `why` where it is not.
bool may_have_parts(const Nest& nest, const Statement& sum, OrdinalPair operands, bool sums, std::string& why);

/// Stores `count` parts of what the edit's sum reads of the operand's tensor, in bf16, unless they are stored already; the names of their
/// tensors. a_p is what the ones before leave of a, rounded. Of an infinite a they are its sign, 0, and a; of NaN the first and the last are NaN.
/// The first one of what is beyond the largest of bf16 is that.
std::vector<std::string> store_parts(SumEdit& edit, std::size_t operand, std::size_t count);

/// A read of the part at the access, in f32, which is added to the statement's.
ScalarExpr read_part(Statement& statement, const std::string& part, const isl::map& access);

/// The sum adds up the products of these pairs of parts, in this order, in place of those of the operands. Ends the edit.
Nest multiply_parts(SumEdit& edit, OrdinalPair operands, const std::vector<std::string>& a, const std::vector<std::string>& b,
                    const std::vector<OrdinalPair>& pairs);

}  // namespace nestor
