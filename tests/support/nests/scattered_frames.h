// Frames that overlap: terms that are scattered over sums.
#pragma once

#include "support/nests/sample_nests.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace nestor::samples {

struct Frames {
  std::int64_t hop = 4, window = 10;
  std::string mask = "", place = "";  ///< of terms, and where they belong in place of hop a + t
  ReductionOp op = ReductionOp::add;
  double start = 0;
};

/// out[hop a + t] += x[a, t] (t + 1).
inline Nest scattered(const Frames& frames = {}) {
  const std::string place = frames.place.empty() ? fmt::format("{}a + t", frames.hop) : frames.place;
  const std::string length = fmt::format("{} N + {}", frames.hop, frames.window);
  return NestBuilder("frames", {{"N", 9}})
      .tensor("x", TensorRole::input, {"N", std::to_string(frames.window)})
      .tensor("out", TensorRole::output, {length})
      .statement("start[y] : 0 <= y < " + length, "out[y]", {}, number(frames.start))
      .statement(fmt::format("sum[a, t] : 0 <= a < N and 0 <= t < {}{}", frames.window, frames.mask), "out[" + place + "]",
                 {"x[a, t]"}, read(0) * ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)), frames.op, {"t + 1"})
      .build();
}

}  // namespace nestor::samples
