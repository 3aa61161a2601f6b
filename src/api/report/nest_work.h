// Work of a nest: what its definition computes and moves at given sizes, counted from its polyhedra.
#pragma once

#include "poly/nest/nest.h"

namespace nestor {

/// Points of a set, and whether the number is exact or from samples.
struct PointCount {
  double points = 0;
  bool exact = true;
};

/// Points of a bounded set without parameters. Dims that nothing ties to others are counted apart; what is left is counted one by one
/// up to 200,000 points, else from 4,096 samples of its box.
PointCount count_points(const isl::set& set);

/// What the definition asks for; no schedule can do with less, rules of algebra apart.
struct NestWork {
  double bytes = 0;         ///< of inputs and outputs, each once
  double tensor_flops = 0;  ///< of sums of products with an operand of 16 bits
  double scalar_flops = 0;  ///< all other arithmetic, one an operation
  double special = 0;       ///< exponentials, quotients, roots and the like, also counted above
  bool exact = true;        ///< of the instances that these follow from
  double flops() const { return tensor_flops + scalar_flops; }
};

/// Operations that take a unit of their own: exponentials, quotients, roots and the like.
bool is_special(ScalarOp op);

/// `sizes` are complete. Throws UserError when isl takes too long.
NestWork work_of(const Nest& nest, const Sizes& sizes);

}  // namespace nestor
