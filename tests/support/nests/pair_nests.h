// Nests over pairs of points: what is made of their coordinates, and summed up over one of both.
#pragma once

#include "support/nests/sample_nests.h"

namespace nestor::samples {

/// Forces along `axes` axes, and energies, of points that pull each other; a distance is a sum of three terms and no less than 0.01. Two sums
/// read a distance, one of them for each axis.
inline Nest pulling_points(const std::string& axes = "3") {
  const std::string point = "0 <= i < N", pair = point + " and 0 <= j < N", axis = " and 0 <= a < " + axes;
  const ScalarExpr gap = read(0) - read(1);
  return NestBuilder("pulling", {{"N", 7}, {"A", 3}})
      .tensor("x", TensorRole::input, {"N", "3"})
      .tensor("z", TensorRole::input, {"N", axes})
      .tensor("sum", TensorRole::temporary, {"N", "N"})
      .tensor("apart", TensorRole::temporary, {"N", "N"})
      .tensor("force", TensorRole::output, {"N", axes})
      .tensor("energy", TensorRole::output, {"N"})
      .statement("sum_init[i, j] : " + pair, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, c] : " + pair + " and 0 <= c < 3", "sum[i, j]", {"x[i, c]", "x[j, c]"}, gap * gap, ReductionOp::add)
      .statement("apart[i, j] : " + pair, "apart[i, j]", {"sum[i, j]"}, ScalarExpr::make(ScalarOp::max, {read(0), number(0.01)}))
      .statement("force_init[i, a] : " + point + axis, "force[i, a]", {}, number(0))
      .statement("force[i, a, j] : " + pair + axis, "force[i, a]", {"z[i, a]", "z[j, a]", "apart[i, j]"}, gap / read(2),
                 ReductionOp::add)
      .statement("energy_init[i] : " + point, "energy[i]", {}, number(0))
      .statement("energy[i, j] : " + pair, "energy[i]", {"apart[i, j]"}, number(1) / read(0), ReductionOp::add)
      .build();
}

/// out[i, a] = sum over j of (x[i, a] - x[j, a]) near[i, j] / total, near = 1 / (1 + square of the distance), total their sum over all pairs.
inline Nest normalised_pairs() {
  const std::string pair = "0 <= i < N and 0 <= j < N", cell = "0 <= i < N and 0 <= a < 2";
  const ScalarExpr gap = read(0) - read(1);
  return NestBuilder("normalised_pairs", {{"N", 7}})
      .tensor("x", TensorRole::input, {"N", "2"})
      .tensor("sum", TensorRole::temporary, {"N", "N"})
      .tensor("near", TensorRole::temporary, {"N", "N"})
      .tensor("total", TensorRole::temporary, {})
      .tensor("out", TensorRole::output, {"N", "2"})
      .statement("sum_init[i, j] : " + pair, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, c] : " + pair + " and 0 <= c < 2", "sum[i, j]", {"x[i, c]", "x[j, c]"}, gap * gap, ReductionOp::add)
      .statement("near[i, j] : " + pair, "near[i, j]", {"sum[i, j]"}, number(1) / (number(1) + read(0)))
      .statement("total_init[]", "total[]", {}, number(0))
      .statement("total[k, l] : 0 <= k < N and 0 <= l < N", "total[]", {"near[k, l]"}, read(0), ReductionOp::add)
      .statement("out_init[i, a] : " + cell, "out[i, a]", {}, number(0))
      .statement("out[i, a, j] : " + cell + " and 0 <= j < N", "out[i, a]", {"x[i, a]", "x[j, a]", "near[i, j]", "total[]"},
                 gap * read(2) / read(3), ReductionOp::add)
      .build();
}

/// The square of each point's distance to the nearest of some segments from 0 to `way`: what is taken of the way comes from a sum of three
/// terms, and the distance is another one.
inline Nest nearest_segments() {
  const std::string pair = "0 <= i < N and 0 <= j < M", term = pair + " and 0 <= c < 3";
  const ScalarExpr gap = read(0) - read(1) * read(2);
  return NestBuilder("segments", {{"N", 9}, {"M", 5}})
      .tensor("x", TensorRole::input, {"N", "3"})
      .tensor("way", TensorRole::input, {"M", "3"})
      .tensor("dot", TensorRole::temporary, {"N", "M"})
      .tensor("share", TensorRole::temporary, {"N", "M"})
      .tensor("apart", TensorRole::temporary, {"N", "M"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("dot_init[i, j] : " + pair, "dot[i, j]", {}, number(0))
      .statement("dot[i, j, c] : " + term, "dot[i, j]", {"x[i, c]", "way[j, c]"}, read(0) * read(1), ReductionOp::add)
      .statement("share[i, j] : " + pair, "share[i, j]", {"dot[i, j]"},
                 ScalarExpr::make(ScalarOp::min, {ScalarExpr::make(ScalarOp::max, {read(0), number(0)}), number(1)}))
      .statement("apart_init[i, j] : " + pair, "apart[i, j]", {}, number(0))
      .statement("apart[i, j, c] : " + term, "apart[i, j]", {"x[i, c]", "share[i, j]", "way[j, c]"}, gap * gap, ReductionOp::add)
      .statement("out_init[i] : 0 <= i < N", "out[i]", {}, number(infinity()))
      .statement("out[i, j] : " + pair, "out[i]", {"apart[i, j]"}, read(0), ReductionOp::min)
      .build();
}

}  // namespace nestor::samples
