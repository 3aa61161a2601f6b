// Splitting the points of reductions into parts: the statements that result.
#pragma once

#include <string>

#include "poly/nest/nest.h"

namespace nestor {

/// How points are put into parts.
struct Parts {
  std::string name;   ///< of the new dim
  std::int64_t size;  ///< points of the lead's dim in one part
};

/// A reduction of which every part accumulates for itself.
struct PartReduction {
  Tensor tensor;     ///< partial accumulators: the part, then the old index
  Statement init;    ///< over (element, part)
  Statement update;  ///< the old dims with the part before the first reduced one
  isl::map to_old;   ///< { Update -> old statement }
  isl::map part_of;  ///< { Update -> [part] }
};

/// { Statement -> [part] } for dim `dim` of the statement itself.
isl::map parts_of_dim(const Statement& statement, int dim, std::int64_t size);

/// Splits `statement`; `part_of` is { Statement -> [part] }, single valued, parts counted from 0. Names get the suffix
/// "_part". The update still computes the old value from the old reads.
PartReduction split_into_parts(const Nest& nest, const Statement& statement, const isl::map& part_of, const Parts& parts);

/// { element, part } as a statement that accumulates into the old tensor: read 0 is the partial accumulator; its value is set to that read.
Statement combine_parts(const Nest& nest, const Statement& statement, const PartReduction& split, const Parts& parts);

/// Puts init, update and combine (in this order) in the place of the old statement, which must be alone in its group.
void replace_by_parts(Nest& nest, const Statement& statement, const PartReduction& split, const Statement& combine);

}  // namespace nestor
