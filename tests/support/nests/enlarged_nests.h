// Convolutions of images that are made larger: neighbours have the same element.
#pragma once

#include "support/nests/sample_nests.h"

namespace nestor::samples {

/// out[n, y, x, f] = sum over s, t < 3 and c < 64 of a[n, floor((y + s) / 2), floor((x + t) / 2), c] w[f, s, t, c], for places with all taps.
inline Nest enlarged_convolution() {
  const ElementType f16 = ElementType::f16;
  const auto wide = [&](int k) { return ScalarExpr::cast(ElementType::f32, read(k, f16)); };
  const std::string place = "0 <= n < N and 0 <= y < 2 S - 2 and 0 <= x < 2 S - 2 and 0 <= f < F";
  return NestBuilder("enlarged_convolution", {{"N", 8}, {"S", 32}, {"F", 128}})
      .tensor("a", TensorRole::input, {"N", "S", "S", "64"}, f16)
      .tensor("w", TensorRole::input, {"F", "3", "3", "64"}, f16)
      .tensor("sums", TensorRole::temporary, {"N", "2 S - 2", "2 S - 2", "F"})
      .tensor("out", TensorRole::output, {"N", "2 S - 2", "2 S - 2", "F"}, f16)
      .statement("init[n, y, x, f] : " + place, "sums[n, y, x, f]", {}, number(0))
      .statement("sum[n, y, x, f, s, t, c] : " + place + " and 0 <= s < 3 and 0 <= t < 3 and 0 <= c < 64", "sums[n, y, x, f]",
                 {"a[n, floor((y + s) / 2), floor((x + t) / 2), c]", "w[f, s, t, c]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, y, x, f] : " + place, "out[n, y, x, f]", {"sums[n, y, x, f]"}, ScalarExpr::cast(f16, read(0)))
      .build();
}

/// The same with zeros around the larger image, and a convolution of a map b of its size, whose results are added.
inline Nest enlarged_beside_convolution() {
  const ElementType f16 = ElementType::f16;
  const auto wide = [&](int k) { return ScalarExpr::cast(ElementType::f32, read(k, f16)); };
  const std::string place = "0 <= n < N and 0 <= y < 2 S and 0 <= x < 2 S",
                    taps = " and 0 <= s < 3 and 0 <= t < 3 and 0 <= c < 64", result = place + " and 0 <= f < F",
                    row = "y + s - 1", column = "x + t - 1", inside = " and 0 <= " + row + " < 2 S and 0 <= " + column + " < 2 S";
  NestBuilder builder("enlarged_beside_convolution", {{"N", 8}, {"S", 32}, {"F", 128}});
  builder.tensor("a", TensorRole::input, {"N", "S", "S", "64"}, f16)
      .tensor("b", TensorRole::input, {"N", "2 S", "2 S", "64"}, f16);
  for (const std::string map : {"a", "b"}) {
    builder.tensor("w" + map, TensorRole::input, {"F", "3", "3", "64"}, f16)
        .tensor("part_" + map, TensorRole::temporary, {"N", "2 S", "2 S", "64", "3", "3"})
        .tensor("sums_" + map, TensorRole::temporary, {"N", "2 S", "2 S", "F"});
  }
  builder.tensor("out", TensorRole::output, {"N", "2 S", "2 S", "F"}, f16);
  for (const std::string map : {"a", "b"}) {
    const std::string part = "part_" + map + "[n, y, x, c, s, t]", sums = "sums_" + map + "[n, y, x, f]",
                      element = map == "a" ? "a[n, floor((" + row + ") / 2), floor((" + column + ") / 2), c]"
                                           : "b[n, " + row + ", " + column + ", c]";
    builder.statement("init_" + map + "[n, y, x, f] : " + result, sums, {}, number(0))
        .statement("zeros_" + map + "[n, y, x, c, s, t] : " + place + taps, part, {}, number(0))
        .statement("inside_" + map + "[n, y, x, c, s, t] : " + place + taps + inside, part, {element}, wide(0))
        .statement("sum_" + map + "[n, y, x, f, s, t, c] : " + result + taps, sums, {part, "w" + map + "[f, s, t, c]"},
                   read(0) * wide(1), ReductionOp::add);
  }
  return builder
      .statement("out[n, y, x, f] : " + result, "out[n, y, x, f]", {"sums_a[n, y, x, f]", "sums_b[n, y, x, f]"},
                 ScalarExpr::cast(f16, read(0) + read(1)))
      .build();
}

}  // namespace nestor::samples
