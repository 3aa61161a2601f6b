// Tensor kernels of compute capability 8.0, run thread by thread on the CPU: their code gives what the operator means, whatever the order of
// warps and of copies, for ragged sizes, rows that start anywhere, and every way to share the work.
#include "support/simt_image.h"
#include "support/tensor_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

NvptxTarget older() {
  NvptxTarget target;
  target.sm = 80;
  return target;
}

struct Case {
  std::string name;
  TileProgram program;
  Sizes sizes;
  CheckOptions options;
};
std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

std::vector<Case> cases() {
  constexpr ElementType f32 = ElementType::f32, bf16 = ElementType::bf16;
  const CheckOptions half{.tolerance = 3e-3}, bfloat{.tolerance = 2.5e-2};
  const TensorSteps small{.rows = 64, .columns = 32, .groups = 1};
  const auto with = [](TensorSteps steps, int slots, std::vector<std::string> more) {
    steps.slots = slots;
    steps.more = std::move(more);
    return steps;
  };
  std::vector<Case> list;
  const auto add = [&](const std::string& name, const AttentionForm& form, const TensorSteps& steps, Sizes sizes,
                       CheckOptions options) {
    list.push_back({name, tensor_program(attention_nest(form), steps), std::move(sizes), options});
  };
  const Sizes ragged{{"H", 2}, {"Q", 70}, {"K", 100}};
  add("full", {.depth = 32}, small, ragged, half);
  add("one_slot", {.depth = 32}, with(small, 1, {}), ragged, half);
  add("overlap", {.depth = 16}, with(small, 2, {"overlap(out.io)"}), {{"H", 1}, {"Q", 64}, {"K", 161}}, half);
  add("overlap_one_slot", {.depth = 16}, with(small, 1, {"overlap(out.io)"}), {{"H", 1}, {"Q", 64}, {"K", 161}}, half);
  add("causal_three_slots", {.seen = Seen::causal, .depth = 16}, with(small, 3, {"overlap(out.io)", "hold(out.io)"}),
      {{"H", 1}, {"Q", 130}, {"K", 150}}, half);
  add("resident", {.seen = Seen::causal, .type = bf16, .result = bf16, .depth = 32},
      with({.rows = 128, .columns = 32, .groups = 2}, 2, {"persistent(out.io, 1)", "hold(out.io)"}),
      {{"H", 3}, {"Q", 200}, {"K", 200}}, bfloat);
  add("window", {.seen = Seen::window, .result = f32, .depth = 16}, small, {{"H", 1}, {"Q", 100}, {"K", 120}, {"W", 33}}, half);
  add("odd_columns", {.depth = 40}, {.rows = 64, .columns = 40, .groups = 1}, ragged, half);
  add("two_row_tiles", {.depth = 72}, {.rows = 128, .columns = 32, .groups = 1}, {{"H", 1}, {"Q", 129}, {"K", 40}}, half);
  // Rows that no copy of 16 bytes can start at.
  CheckOptions misaligned = half, padded = half, aligned = half;
  misaligned.misalignment = 1;
  padded.row_padding = 3;
  aligned.row_padding = 8;
  add("misaligned", {.depth = 32}, small, ragged, misaligned);
  add("odd_row_stride", {.depth = 32}, with(small, 1, {}), ragged, padded);
  add("even_row_stride", {.depth = 32}, small, ragged, aligned);
  list.push_back(
      {"linear", tensor_program(linear_attention_nest(ElementType::f16, 32), {.rules = {}, .columns = 32}), ragged, half});
  return list;
}

class TensorMma : public ::testing::TestWithParam<Case> {};

TEST_P(TensorMma, kernels_compute_what_the_program_says) {
  const Case& test = GetParam();
  const CompiledNvptx compiled = compile_nvptx(test.program, older());
  EXPECT_EQ(compiled.kernel.architecture, "sm_80");
  EXPECT_EQ(run_emulated(compiled, test.program, test.sizes, test.options, {1, 2}), "");
}

INSTANTIATE_TEST_SUITE_P(cases, TensorMma, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

/// What runs of attention differ in without the lines that have `call`.
std::string without(const std::string& call) {
  const TileProgram program = tensor_program(attention_nest({.depth = 32}), {.rows = 64, .columns = 32, .groups = 1});
  CompiledNvptx compiled = compile_nvptx(program, older());
  std::string& ir = compiled.ir;
  EXPECT_NE(ir.find(call), std::string::npos);
  for (std::size_t at = ir.find(call); at != std::string::npos; at = ir.find(call)) {
    const std::size_t line = ir.rfind('\n', at) + 1;
    ir.erase(line, ir.find('\n', at) - line);
  }
  return run_emulated(compiled, program, {{"H", 1}, {"Q", 64}, {"K", 200}}, {.tolerance = 3e-3}, {1, 2, 3});
}

TEST(TensorMmaEmulation, notices_a_missing_wait_or_barrier) {
  EXPECT_NE(without("\"cp.async.wait_group"), "");
  EXPECT_NE(without("@llvm.nvvm.barrier0()"), "");
}

}  // namespace
}  // namespace nestor::testing
