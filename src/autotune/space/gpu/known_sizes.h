// Known sizes: sizes that GPU kernels must know when they are compiled.
#pragma once

#include "poly/nest/nest.h"

#include <set>
#include <string>

namespace nestor {

/// Marks as specialized what two products in a row run along in their operands' tiles: the extents of the dims that a sum of products of
/// two 16-bit inputs reduces, and of those that the second product, of what the first has left and another 16-bit input, adds to the rows
/// (head sizes of attention). Sizes that the first product's results have too (square matrices) stay free: tiles are cut from those.
/// The definition need not say so. Other nests stay as they are.
void specialize_product_sizes(Nest& nest);

/// Sizes that are free, in the innermost extents of large arguments whose rows have at most 64 elements, or 256 bytes where nothing
/// multiplies matrices, and of dims next to those while their run of memory is; and of dims shorter than 256 that a sum runs over where
/// these are several and lie innermost (channels and places of an image): a block can give each of their elements a thread only where it
/// knows how many there are. Also those of windows (sizes_of_windows), of rows of running
/// sums (prefix_dim), of dims up to 32 of temporaries that are reduced across memory after a reduction over such a dim (a softmax over
/// neighbours), of rows of such up to 256 that are added up across memory after a reduction along them, and of what a step of a recurrence
/// keeps from statement to statement, if these need elements of others.
std::set<std::string> sizes_of_short_rows(const Nest& nest, const Sizes& sizes);

/// Sizes that are free, in the extents that sums of products of 16 bits run over: of short sums whose results are reduced along rows (a
/// log-sum-exp of scores), so that a block keeps its rows and never stores the results; and of sums over several dims (convolutions), also
/// where a factor is computed, and of sums of products of integers.
/// Beside products, also sizes in the innermost extents of arguments of 16 bits whose rows are no multiple of 16 bytes: tensor copies take
/// no such rows, and kernels avoid them only where they are known. Of operands of 16 bits, also extents up to 32 of rows beside other rows, and of
/// indices that share one in a copy, as tensor copies have five; and sizes behind which a part of a row starts. And those of rows of weights, made of a product and of sums over its rows, that
/// a sum over other dims adds up (of all heads), up to 4096 elements in all: a block keeps them.
std::set<std::string> sizes_known_to_products(const Nest& nest, const Sizes& sizes);

}  // namespace nestor
