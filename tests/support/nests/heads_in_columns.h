// A product of matrices whose results hold parts side by side, as heads of attention.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// out[i, c] = sum over j of w[c / 4, i, j] v[j, c], over total[c / 4, i]; `columns` of c, `part`: what v and w are read along.
inline Nest heads_in_columns(const std::string& columns = "4 H", const std::string& part = "floor(c / 4)",
                             const std::string& of_v = "j, c") {
  const std::string element = " : 0 <= i < N and 0 <= c < " + columns, weight = " : 0 <= h < H and 0 <= i < N and 0 <= j < N";
  return NestBuilder("heads_in_columns", {{"H", 3}, {"N", 5}})
      .tensor("a", TensorRole::input, {"H", "N", "N"})
      .tensor("v", TensorRole::input, {"N", "4 H"}, ElementType::f16)
      .tensor("total", TensorRole::input, {"H", "N"})
      .tensor("w", TensorRole::temporary, {"H", "N", "N"})
      .tensor("sum", TensorRole::temporary, {"N", columns})
      .tensor("out", TensorRole::output, {"N", columns})
      .statement("w[h, i, j]" + weight, "w[h, i, j]", {"a[h, i, j]"}, read(0) * number(2))
      .statement("sum_init[i, c]" + element, "sum[i, c]", {}, number(0))
      .statement("sum[i, c, j]" + element + " and 0 <= j < N", "sum[i, c]", {"w[" + part + ", i, j]", "v[" + of_v + "]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16)), ReductionOp::add)
      .statement("out[i, c]" + element, "out[i, c]", {"sum[i, c]", "total[" + part + ", i]"}, read(0) / read(1))
      .build();
}

}  // namespace nestor::samples
