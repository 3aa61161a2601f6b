// Parts of sums that a kernel on tensor cores adds up in memory, one row of a tile after the other.
#include "codegen/gpu/backend.h"
#include "support/nests/apply_steps.h"
#include "support/nests/half_values.h"
#include "support/simt/simt_image.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using namespace samples;

/// out[a, b] = sum over r of dot * dot with dot[r, a, b] = q[r, a] k[r, b].
Nest squares_over_rows() {
  const std::string point = "0 <= r < R and 0 <= a < P and 0 <= b < P", pair = "0 <= a < P and 0 <= b < P";
  return NestBuilder("squares_over_rows", {{"R", 128}, {"P", 128}})
      .tensor("q", TensorRole::input, {"R", "P", "32"}, kHalf)
      .tensor("k", TensorRole::input, {"R", "P", "32"}, kHalf)
      .tensor("dot", TensorRole::temporary, {"R", "P", "P"})
      .tensor("out", TensorRole::output, {"P", "P"})
      .statement("dot_init[r, a, b] : " + point, "dot[r, a, b]", {}, number(0))
      .statement("dot[r, a, b, c] : " + point + " and 0 <= c < 32", "dot[r, a, b]", {"q[r, a, c]", "k[r, b, c]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out_init[a, b] : " + pair, "out[a, b]", {}, number(0))
      .statement("out[a, b, r] : " + pair + " and 0 <= r < R", "out[a, b]", {"dot[r, a, b]"}, read(0) * read(0), ReductionOp::add)
      .build();
}

/// Blocks of 64 x 64 results and 64 rows, which are one part of the sum over rows.
std::vector<std::string> steps_in_parts() {
  std::vector<std::string> steps{"apply_rule(reassociate)", "apply_rule(split_reduction, out, r, r_p, 64)"};
  const auto add = [&](const std::string& text) { steps.push_back(text); };
  for (const char* name : {"dot_init", "dot", "out_part_init", "out_part"}) {
    const std::string rows = std::string(name) == "out_part_init" ? "r_p" : "r_o", s = name;
    if (rows == "r_o") add(fmt::format("split({0}.r, 64, {0}.r_o, {0}.r_i)", s));
    for (const char* dim : {"a", "b"}) add(fmt::format("split({0}.{1}, 64, {0}.{1}_o, {0}.{1}_i)", s, dim));
    const std::string inner = s == "out_part_init" ? "" : s == "out_part" ? ", {0}.r_i, {0}.r_p" : ", {0}.r_i";
    const std::string last = s == "dot" ? ", {0}.c" : "";
    add(fmt::format(fmt::runtime("reorder({0}." + rows + ", {0}.a_o, {0}.b_o" + inner + ", {0}.a_i, {0}.b_i" + last + ")"), s));
    if (s == "dot_init") continue;
    add(fmt::format("fuse_with({}.{}, dot_init.r_o)", s, rows));
    for (const char* dim : {"a_o", "b_o"}) add(fmt::format("fuse_with({}.{}, dot_init.{})", s, dim, dim));
  }
  for (const char* text :
       {"fuse_with(dot.r_i, out_part.r_i)", "fuse_with(dot_init.r_i, out_part.r_i)", "gpu_blocks(dot_init.r_o)",
        "gpu_blocks(dot_init.a_o)", "gpu_blocks(dot_init.b_o)", "tensor_cores(dot_init.r_o, 1, 4)",
        "fuse_with(out_init.a, out_combine.a)", "fuse_with(out_init.b, out_combine.b)", "gpu_blocks(out_combine.a)",
        "gpu_blocks(out_combine.b)", "gpu_threads(out_combine.a, 32)"})
    add(text);
  return steps;
}

TEST(PartsInMemory, AreAddedToRowByRow) {
  const Nest nest = squares_over_rows();
  const CompiledNvptx compiled = compile_nvptx(build_tile_program(scheduled(nest, steps_in_parts())), {});
  const TileProgram meaning = build_tile_program(Schedule(nest));
  for (const Sizes& sizes : {Sizes{{"R", 70}, {"P", 72}}, Sizes{{"R", 3}, {"P", 8}}})
    EXPECT_EQ(run_emulated(compiled, meaning, sizes, {.tolerance = 1e-2}, {1}), "");
}

}  // namespace
}  // namespace nestor::testing
