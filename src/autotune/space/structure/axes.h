// Axes: dims of different statements that take equal values where the statements meet in a tensor.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// Fills `axes` and `loop_groups` of the result.
NestStructure find_axes(const Nest& nest, const Sizes& sizes);

/// For each index of an access the dim of the statement that it follows: index = dim + constant.
std::vector<std::optional<int>> followed_dims(const Access& access);

/// The same, but none for a remainder: as far as a dim goes, index = dim + constant.
std::vector<std::optional<int>> equal_dims(const Access& access);
/// By index: is it one dim and a constant that is not 0, as where a recurrence reaches other steps than its own?
std::vector<bool> shifted_indices(const Access& access);
/// By index: its constant term; none where it is no single affine function.
std::vector<std::optional<std::int64_t>> constant_terms(const Access& access);

/// The sizes that each index adds to its loops, as a part of a row that lies behind others has them: {w} of x[i, w + k]. None where an
/// index is no affine one.
std::vector<std::set<std::string>> sizes_in_indices(const Access& access);

/// Is the axis among these?
inline bool has(const std::vector<int>& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

/// The axes of these dims in a loop group that has the access; -1: an index follows none.
std::vector<int> followed_axes(const LoopGroup& loop_group, const Access& access);

/// For each index of an access the dims of the statement that it is the sum of, beside a constant (the taps of a convolution); none
/// where it is anything else.
std::vector<std::vector<int>> summed_dims(const Access& access);

/// A sum of products where each operand has a dim of the result that the other one lacks: one of products of matrices.
bool multiplies_matrices(const Statement& statement);
/// The same where rows or columns may also move with a sum of dims, as keys of a window do.
bool multiplies_windows(const Statement& statement);
/// Whether the nest, or one of the loop groups, has such a statement.
/// Does the statement add up what products of matrices come to, as of chunks of terms (rule bf16x6)?
bool adds_up_products(const Nest& nest, const Statement& statement);
bool multiplies(const Nest& nest);
bool multiplies(const Nest& nest, const NestStructure& structure, const std::vector<int>& loop_groups);

/// Does a sum read other elements of what it writes, as triangular systems do?
bool reads_own_sums(const Statement& statement);

/// The dim of the result that ends what a sum runs over, or starts it, where its terms do not follow that dim: out[s] = sum over k <= s of
/// f(k). -1: there is none.
int prefix_dim(const Statement& statement);

/// The axis of the places of running sums of the loop group; -1: it has none. A part's place is at or before its terms, too, and is none.
int axis_of_prefixes(const Nest& nest, const NestStructure& structure, const LoopGroup& loop_group);

/// Are all pairs of values of two dims in the set?
bool is_box(const isl::set& set, int a, int b);

/// Terms of the sums of a loop group.
double terms_of_sum(const LoopGroup& loop_group);

/// Results of a loop group: points of the box of the loops that it does not reduce.
double results_of(const LoopGroup& loop_group);

/// Elements of a box.
std::int64_t product_of(const std::vector<std::int64_t>& extents);

/// Do sums run over several dims, and none of them multiplies matrices?
bool sums_over_planes(const Nest& nest);

/// Names of the sizes that an extent depends on.
std::set<std::string> sizes_in(const Nest& nest, const isl::pw_aff& extent);

/// What its statements touch.
std::set<std::string> tensors_of(const Nest& nest, const NestStructure& structure, int loop_group);

/// Those of `loop_groups`, in textual order, that computed tensors connect, directly or by others.
std::vector<std::vector<int>> related_loop_groups(const Nest& nest, const NestStructure& structure,
                                                  const std::vector<int>& loop_groups);

}  // namespace nestor
