// HalfProducts: sums of products of two 16-bit tensors, and their operands.
#pragma once

#include "poly/nest/nest.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace nestor {

/// Rows of an operand that lie beside others, which rule join_short_rows puts in one tile with these: of 64 and more.
inline constexpr std::int64_t kMostShortRows = 48;

/// Elements of 16 bits in 16 bytes, at multiples of which tensor copies start.
inline constexpr std::int64_t kAlignedHalves = 8;

/// Ordinals of the two different reads of 16 bits whose products, in f32, the statement adds up; nullopt: it is something else.
std::optional<std::pair<std::size_t, std::size_t>> half_products(const Statement& statement);

/// The same, or ordinals of two different reads of f32.
std::optional<std::pair<std::size_t, std::size_t>> products_of_one_width(const Statement& statement);

/// Of a sum of products in f32, the pairs of an f32 temporary's read and one of 16 bits that are its factors, as ordinals.
std::vector<std::pair<std::size_t, std::size_t>> wide_and_half(const Nest& nest, const Statement& statement);

/// Does the operand follow a dim of the result that the other one does not?
bool follows_own_dim(const Statement& sum, std::size_t operand, std::size_t other);

/// Are two factors of the sum rows and columns of a product of matrices?
bool multiplies_rows_by_columns(const Nest& nest, const Statement& sum);

/// Does the statement add up products in which two elements, of any types, follow a dim of the result each that the other does not?
bool multiplies_own_dims(const Statement& statement);

/// Dims that each index of an access follows.
std::vector<std::set<int>> dims_of_indices(const Statement& statement, const Access& access);

/// For each index of an access the dims of the statement that it is a sum of, with their factors, which are whole; none where it is anything
/// else.
std::vector<std::map<int, std::int64_t>> moving_dims(const Access& access);

/// Does an index move by several elements along a dim among `dims`?
bool moves_in_strides(const Access& access, const std::vector<int>& dims);

/// Names of the dims that the indices of an access are, in order; empty: it has others.
std::vector<std::string> names_of_indices(const Statement& statement, const Access& access);

/// The statement `name` that copies all of the tensor to one of that name; dims are named as the reader's where an index follows one.
Statement copy_statement(const Nest& nest, const Tensor& tensor, const Statement& reader, const Access& read,
                         const std::string& name);

/// An input of 16 bits with rows that start at other addresses than multiples of 16 bytes, for all sizes that the nest is defined for:
/// tensor copies cannot read its tiles (support/tensor_view.h).
bool has_ragged_rows(const Nest& nest, const Tensor& tensor);

}  // namespace nestor
