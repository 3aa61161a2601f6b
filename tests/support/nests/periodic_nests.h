// Nests that read neighbours across the edge of a grid, through copies that are made piece by piece.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// out[y, x] = g[y, x] + 2 g[y - 1, x] + 3 g[y, x + 1] on a torus, at places of `where`: both neighbours are copied, first as if all were at the edge.
inline Nest periodic_neighbours(const std::string& where = "", ElementType copied = ElementType::f32) {
  const std::string cell = "0 <= y < Y and 0 <= x < X" + where;
  const ScalarExpr element = copied == ElementType::f32 ? read(0) : ScalarExpr::cast(copied, read(0));
  const auto kept = [&](int ordinal) {
    return copied == ElementType::f32 ? read(ordinal) : ScalarExpr::cast(ElementType::f32, read(ordinal, copied));
  };
  return NestBuilder("torus", {{"Y", 4}, {"X", 5}})
      .tensor("g", TensorRole::input, {"Y", "X"})
      .tensor("up", TensorRole::temporary, {"Y", "X"}, copied)
      .tensor("right", TensorRole::temporary, {"Y", "X"}, copied)
      .tensor("out", TensorRole::output, {"Y", "X"})
      .statement("out_start[y, x] : 0 <= y < Y and 0 <= x < X", "out[y, x]", {"g[y, x]"}, read(0))
      .statement("up_edge[y, x] : " + cell, "up[y, x]", {"g[Y - 1, x]"}, element)
      .statement("up_inside[y, x] : " + cell + " and y >= 1", "up[y, x]", {"g[y - 1, x]"}, element)
      .statement("right_edge[y, x] : " + cell, "right[y, x]", {"g[y, 0]"}, element)
      .statement("right_inside[y, x] : " + cell + " and x <= X - 2", "right[y, x]", {"g[y, x + 1]"}, element)
      .statement("out[y, x] : " + cell, "out[y, x]", {"g[y, x]", "up[y, x]", "right[y, x]"},
                 read(0) + number(2) * kept(1) + number(3) * kept(2))
      .build();
}

}  // namespace nestor::samples
