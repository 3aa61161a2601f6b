// Recurrences that only add up: sums, products and extrema of all points before, forwards and backwards.
#pragma once

#include "support/nests/sample_nests.h"

#include <limits>
#include <string>
#include <vector>

namespace nestor::samples {

/// How a recurrence along c is written. `first` gives the first element, `value` reads the element before, x there, and x at c alone.
struct RunningForm {
  std::string first_value = "x[r, c]";
  ScalarExpr first = read(0);
  ScalarExpr value = read(0) + read(1);
  bool backward = false;
  TensorRole role = TensorRole::output;
  ElementType type = ElementType::f32;
};

/// s[r, c + 1] = s[r, c] + x[r, c + 1], or as the form has it; out[r, c] = 2 s[r, c].
inline Nest running_values(const RunningForm& form = {}) {
  const std::string place = "0 <= r < R and 0 <= c < C", edge = form.backward ? "c = C - 1" : "c = 0",
                    own = form.backward ? "[r, C - 2 - c]" : "[r, c + 1]", before = form.backward ? "[r, C - 1 - c]" : "[r, c]";
  const auto wide = [&](const ScalarExpr& value) {
    return form.type == ElementType::f16 ? ScalarExpr::cast(ElementType::f32, value) : value;
  };
  return NestBuilder("running", {{"R", 3}, {"C", 6}})
      .tensor("x", TensorRole::input, {"R", "C"}, form.type)
      .tensor("g", TensorRole::input, {"R"}, form.type)
      .tensor("s", form.role, {"R", "C"}, form.type)
      .tensor("out", TensorRole::output, {"R", "C"})
      .statement("first[r, c] : " + place + " and " + edge, "s[r, c]", {form.first_value}, form.first)
      .statement("step[r, c] : " + place + " and c < C - 1", "s" + own, {"s" + before, "x" + own, "x[r, c]"}, form.value)
      .statement("out[r, c] : " + place, "out[r, c]", {"s[r, c]"},
                 ScalarExpr::make(ScalarOp::mul, {number(2), wide(read(0, form.type))}))
      .build();
}

/// Sums in place: x is copied to s, and each element adds the one before; steps go around rows.
inline Nest running_in_place(TensorRole role = TensorRole::output) {
  return NestBuilder("running_in_place", {{"R", 3}, {"C", 6}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("s", role, {"R", "C"})
      .tensor("out", TensorRole::output, {"R", "C"})
      .statement("copy[r, c] : 0 <= r < R and 0 <= c < C", "s[r, c]", {"x[r, c]"}, read(0) * number(3))
      .statement("step[c, r] : 0 <= c < C - 1 and 0 <= r < R", "s[r, c + 1]", {"s[r, c]", "s[r, c + 1]"}, read(0) + read(1))
      .statement("out[r, c] : 0 <= r < R and 0 <= c < C", "out[r, c]", {"s[r, c]"}, read(0))
      .build();
}

/// s[r, 0] = 0 and s[r, c + 1] = s[r, c] + x[r, c].
inline Nest running_from_zero() {
  return NestBuilder("running_from_zero", {{"R", 3}, {"C", 6}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("out", TensorRole::output, {"R", "C + 1"})
      .statement("first[r, c] : 0 <= r < R and c = 0", "out[r, c]", {}, number(0))
      .statement("step[r, c] : 0 <= r < R and 0 <= c < C", "out[r, c + 1]", {"out[r, c]", "x[r, c]"}, read(0) + read(1))
      .build();
}

/// What a reduction of all places but some leaves out, and how its terms are made.
struct LeftOutForm {
  std::string seen = "(k < c or k > c)";
  ReductionOp op = ReductionOp::max;
  std::vector<std::string> reads{"x[r, k]"};
  ScalarExpr value = read(0);
  double start = -std::numeric_limits<double>::infinity();
  std::string rows = "R", columns = "C";
};

/// out[r, c] = x[r, c] - the largest x[r, k] of all other k, or as the form has it.
inline Nest largest_others(const LeftOutForm& form = {}) {
  const std::string place = "0 <= r < " + form.rows + " and 0 <= c < " + form.columns;
  return NestBuilder("largest_others", {{"R", 3}, {"C", 6}})
      .tensor("x", TensorRole::input, {form.rows, form.columns})
      .tensor("others", TensorRole::temporary, {form.rows, form.columns})
      .tensor("out", TensorRole::output, {form.rows, form.columns})
      .statement("others_init[r, c] : " + place, "others[r, c]", {}, number(form.start))
      .statement("others[r, c, k] : " + place + " and 0 <= k < " + form.columns + " and " + form.seen, "others[r, c]", form.reads,
                 form.value, form.op)
      .statement("out[r, c] : " + place, "out[r, c]", {"x[r, c]", "others[r, c]"}, read(0) - read(1))
      .build();
}

}  // namespace nestor::samples
