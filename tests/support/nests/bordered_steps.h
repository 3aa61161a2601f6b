// Steps over a picture whose border stays as it is: tiles in both directions have pieces of the border, along conditions with many alternatives.
#pragma once

#include "codegen/tile/tile_program.h"
#include "support/nests/apply_steps.h"
#include "support/nests/sample_nests.h"

namespace nestor::samples {

/// g[t + 1, y + 1, x + 1] = g[t, y + 1, x + 1] / 2 + (g[t, y, x + 1] + g[t, y + 1, x]) / 4, and g[t + 1] = g[t] on the border.
inline Nest bordered_steps() {
  const std::string picture = "0 <= y < H and 0 <= x < W", step = "0 <= t < T and ";
  return NestBuilder("bordered_steps", {{"T", 3}, {"H", 11}, {"W", 70}})
      .tensor("p", TensorRole::input, {"H", "W"})
      .tensor("g", TensorRole::temporary, {"T + 1", "H", "W"})
      .tensor("out", TensorRole::output, {"H", "W"})
      .statement("first[y, x] : " + picture, "g[0, y, x]", {"p[y, x]"}, read(0))
      .statement("inner[t, s, y, x] : s = 0 and " + step + "0 <= y < H - 2 and 0 <= x < W - 2", "g[t + 1, y + 1, x + 1]",
                 {"g[t, y + 1, x + 1]", "g[t, y, x + 1]", "g[t, y + 1, x]"},
                 read(0) * number(0.5) + (read(1) + read(2)) * number(0.25))
      .statement("border[t, s, y, x] : s = 1 and " + step + picture + " and (y = 0 or y = H - 1 or x = 0 or x = W - 1)",
                 "g[t + 1, y, x]", {"g[t, y, x]"}, read(0))
      .join_last()
      .statement("out[y, x] : " + picture, "out[y, x]", {"g[T, y, x]"}, read(0))
      .build();
}

/// A kernel for each step: a block for 4 x 32 points.
inline TileProgram tiled_bordered_steps() {
  return build_tile_program(testing::scheduled(
      bordered_steps(),
      {"gpu_blocks(first.y)", "split(inner.y, 4, inner.yo, inner.yi)", "split(inner.x, 32, inner.xo, inner.xi)",
       "reorder(inner.t, inner.s, inner.yo, inner.xo, inner.yi, inner.xi)", "gpu_blocks(inner.s)", "gpu_blocks(inner.yo)",
       "gpu_blocks(inner.xo)", "fission(inner.xi, border)", "fission(inner.yi, border)", "gpu_blocks(out.y)"}));
}

}  // namespace nestor::samples
