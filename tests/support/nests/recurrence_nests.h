// Recurrences: groups of statements that share a loop over steps, as Python's `write` and `steps` make them.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// h[b, t + 1, s] = tanh(sum over j of h[b, t, j] w[s, j] + x[b, t + 1, s]): sequences are independent of each other.
inline Nest batched_states(std::int64_t batch = 5, std::int64_t times = 6, std::int64_t width = 19) {
  const std::string place = "0 <= b < batch and 0 <= t < times - 1 and 0 <= s < width";
  return NestBuilder("batched_states", {{"batch", batch}, {"times", times}, {"width", width}})
      .tensor("x", TensorRole::input, {"batch", "times", "width"})
      .tensor("w", TensorRole::input, {"width", "width"})
      .tensor("sum", TensorRole::temporary, {"batch", "times", "width"})
      .tensor("h", TensorRole::output, {"batch", "times", "width"})
      .statement("first[b, t, s] : 0 <= b < batch and t = 0 and 0 <= s < width", "h[b, t, s]", {"x[b, t, s]"}, read(0))
      .statement("start[b, t, s, j] : j = 0 and " + place, "sum[b, t, s]", {}, number(0))
      .statement("sum[b, t, s, j] : 0 <= j < width and " + place, "sum[b, t, s]", {"h[b, t, j]", "w[s, j]"}, read(0) * read(1),
                 ReductionOp::add)
      .join_last()
      .statement("h[b, t, s, j] : j = width and " + place, "h[b, t + 1, s]", {"sum[b, t, s]", "x[b, t + 1, s]"},
                 apply(ScalarOp::tanh, read(0) * number(0.125) + read(1)))
      .join_last()
      .build();
}

/// The same of one sequence, whose loop over steps has nothing parallel around it.
inline Nest states(std::int64_t times = 6, std::int64_t width = 19) {
  const std::string place = "0 <= t < times - 1 and 0 <= s < width";
  return NestBuilder("states", {{"times", times}, {"width", width}})
      .tensor("x", TensorRole::input, {"times", "width"})
      .tensor("w", TensorRole::input, {"width", "width"})
      .tensor("sum", TensorRole::temporary, {"times", "width"})
      .tensor("h", TensorRole::output, {"times", "width"})
      .statement("first[t, s] : t = 0 and 0 <= s < width", "h[t, s]", {"x[t, s]"}, read(0))
      .statement("start[t, s, j] : j = 0 and " + place, "sum[t, s]", {}, number(0))
      .statement("sum[t, s, j] : 0 <= j < width and " + place, "sum[t, s]", {"h[t, j]", "w[s, j]"}, read(0) * read(1),
                 ReductionOp::add)
      .join_last()
      .statement("h[t, s, j] : j = width and " + place, "h[t + 1, s]", {"sum[t, s]", "x[t + 1, s]"},
                 apply(ScalarOp::tanh, read(0) * number(0.125) + read(1)))
      .join_last()
      .build();
}

/// A matrix that each step corrects by an outer product, in place: left = v - k m, m += k left. A loop over stages orders the statements, and
/// the place of one statement's columns is that of another one's rows.
inline Nest corrected_matrix(std::int64_t batch = 5, std::int64_t times = 6, std::int64_t rows = 4, std::int64_t columns = 19) {
  const std::string step = "0 <= b < batch and 0 <= t < times", column = step + " and 0 <= s < columns",
                    state = " 0 <= b < batch and 0 <= d < rows and 0 <= e < columns";
  return NestBuilder("corrected", {{"batch", batch}, {"times", times}, {"rows", rows}, {"columns", columns}})
      .tensor("k", TensorRole::input, {"batch", "times", "rows"})
      .tensor("v", TensorRole::input, {"batch", "times", "columns"})
      .tensor("m", TensorRole::temporary, {"batch", "rows", "columns"})
      .tensor("sum", TensorRole::temporary, {"batch", "times", "columns"})
      .tensor("left", TensorRole::output, {"batch", "times", "columns"})
      .statement("first[b, d, e] : " + state, "m[b, d, e]", {}, number(0))
      .statement("start[b, t, p, s, r] : p = 0 and r = 0 and " + column, "sum[b, t, s]", {}, number(0))
      .statement("sum[b, t, p, s, r] : p = 0 and 0 <= r < rows and " + column, "sum[b, t, s]", {"m[b, r, s]", "k[b, t, r]"},
                 read(0) * read(1), ReductionOp::add)
      .join_last()
      .statement("left[b, t, p, s, r] : p = 0 and r = rows and " + column, "left[b, t, s]", {"v[b, t, s]", "sum[b, t, s]"},
                 (read(0) - read(1)) * number(0.0625))
      .join_last()
      .statement("m[b, t, p, s, r] : p = 1 and 0 <= s < rows and 0 <= r < columns and " + step, "m[b, s, r]",
                 {"m[b, s, r]", "k[b, t, s]", "left[b, t, r]"}, read(0) + read(1) * read(2))
      .join_last()
      .build();
}

/// Sweeps over equations in place: each unknown is made of all others as they are by now, so that steps over them are serial, too.
inline Nest sweeps(std::int64_t times = 6, std::int64_t width = 19) {
  const std::string place = "0 <= t < times and 0 <= s < width";
  return NestBuilder("sweeps", {{"times", times}, {"width", width}})
      .tensor("a", TensorRole::input, {"width", "width"})
      .tensor("y", TensorRole::input, {"width"})
      .tensor("sum", TensorRole::temporary, {"times", "width"})
      .tensor("x", TensorRole::output, {"width"})
      .statement("first[s] : 0 <= s < width", "x[s]", {"y[s]"}, read(0))
      .statement("start[t, s, j] : j = 0 and " + place, "sum[t, s]", {}, number(0))
      .statement("sum[t, s, j] : 0 <= j < width and " + place, "sum[t, s]", {"a[s, j]", "x[j]"}, read(0) * read(1),
                 ReductionOp::add)
      .join_last()
      .statement("x[t, s, j] : j = width and " + place, "x[s]", {"y[s]", "sum[t, s]"}, (read(0) - read(1)) * number(0.03125))
      .join_last()
      .build();
}

/// Many systems of T unknowns: what is left of each unknown after the one before it, in two statements, and back.
inline Nest eliminated_systems(std::int64_t systems, std::int64_t unknowns) {
  const std::string step = "0 <= t < T - 1 and 0 <= r < R";
  const ScalarExpr pivot = number(1) / (number(4) + read(0) * read(1));
  return NestBuilder("eliminated_systems", {{"R", systems}, {"T", unknowns}})
      .tensor("x", TensorRole::input, {"T", "R"})
      .tensor("pivot", TensorRole::temporary, {"T", "R"})
      .tensor("ratio", TensorRole::temporary, {"T", "R"})
      .tensor("y", TensorRole::output, {"T", "R"})
      .statement("first[t, r] : t = 0 and 0 <= r < R", "ratio[t, r]", {"x[t, r]"}, read(0))
      .statement("pivot[t, s, r] : " + step + " and s = 0", "pivot[t, r]", {"x[t + 1, r]", "ratio[t, r]"}, pivot)
      .statement("ratio[t, s, r] : " + step + " and s = 1", "ratio[t + 1, r]", {"x[t + 1, r]", "pivot[t, r]"}, read(0) * read(1))
      .join_last()
      .statement("last[t, r] : t = T - 1 and 0 <= r < R", "y[t, r]", {"ratio[t, r]"}, read(0))
      .statement("back[t, r] : " + step, "y[T - 2 - t, r]", {"ratio[T - 2 - t, r]", "y[T - 1 - t, r]"},
                 read(0) - number(0.5) * read(1))
      .build();
}

}  // namespace nestor::samples
