// Dims of statements that have all their values, whatever the others are: what rules may join.
#pragma once

#include "poly/nest/nest.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// Those of `set` where 0 <= dim < bound, a function of the parameters.
isl::set below(const isl::set& set, int dim, const isl::pw_aff& bound);

/// Are two extents the same function of the sizes?
bool same_extent(const isl::pw_aff& a, const isl::pw_aff& b);

/// The set as if it said nothing of these dims.
isl::set without_dims(const isl::set& set, const std::vector<int>& dims);

/// Are the points a box along these dims, whatever the others are? Then all that follow these dims alone share one table.
bool is_box_along(const Nest& nest, const Statement& statement, const std::set<int>& dims);

/// Has every element of a sum's result all terms, from 0 on?
bool has_all_terms(const Nest& nest, const Statement& sum, int reduced);

/// The domain with any values of two dims.
isl::set with_any_values(const Nest& nest, const Statement& statement, int a, int b);

/// Do both dims have all their values, `extent` of the inner one, whatever the others are?
bool have_all_values(const Nest& nest, const Statement& statement, int outer, int inner, std::int64_t extent);

/// Two dims of a statement that become one: extent * outer + inner.
struct JoinedDims {
  int outer = 0, inner = 0;
  std::int64_t extent = 1;  ///< of the inner one
};

/// The statement with one dim s for both, in the place of the inner one; what follows them follows floor(s / extent) and s mod extent. They have
/// all their values.
Statement with_joined_dims(const Nest& nest, const Statement& statement, const JoinedDims& joint);

/// floor(function / divisor).
isl::pw_aff quotient_of(const isl::pw_aff& function, std::int64_t divisor);
/// factor * function.
isl::pw_aff multiple_of(const isl::pw_aff& function, std::int64_t factor);

/// A dim whose values are taken in chunks: extent * chunk + place.
struct ChunkedDim {
  int dim = 0;
  std::int64_t extent = 1;
};

/// A statement over the points of another one, with the chunk and, last, the place in it of a dim that has no negative values. It writes nothing yet.
Statement in_chunks(const Nest& nest, const Statement& statement, const ChunkedDim& chunked, const std::string& name);
/// The statement's access, or what has its dims, as in_chunks() of it has it.
isl::map seen_in_chunks(const Nest& nest, const Statement& chunks, const Statement& statement, const ChunkedDim& chunked,
                        const isl::map& access);

/// The access's relation with a dim of the statement for each index that is one at all its points.
isl::map along_dims(const Nest& nest, const Statement& statement, const Access& access);

/// A dim of a statement that becomes two: extent * outer + inner.
struct SplitDim {
  int dim = 0;
  std::int64_t extent = 1;  ///< of the inner one
};

/// The statement with dims h and e for a dim c, in its place: what follows c follows extent * h + e. nullopt: whole parts are not all its values,
/// whatever its other dims are.
std::optional<Statement> with_split_dim(const Nest& nest, const Statement& statement, const SplitDim& split);

}  // namespace nestor
