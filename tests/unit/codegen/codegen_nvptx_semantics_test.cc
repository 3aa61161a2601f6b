// GPU code means what its tile program means: the IR of every kernel, run thread by thread on the CPU, agrees with interpret().
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

class NvptxSemantics : public ::testing::TestWithParam<SimtCase> {};

TEST_P(NvptxSemantics, kernels_compute_what_the_program_says) {
  const SimtCase& test = GetParam();
  NvptxTarget target;
  target.threads = test.threads;
  const CompiledNvptx compiled = compile_nvptx(test.program, target);
  EXPECT_EQ(run_emulated(compiled, test.program, test.sizes, test.options, {1, 2}), "");
}

INSTANTIATE_TEST_SUITE_P(cases, NvptxSemantics, ::testing::ValuesIn(simt_cases()),
                         [](const auto& info) { return info.param.name; });

/// The code without the lines that have `call`.
std::string without(std::string ir, const std::string& call) {
  EXPECT_NE(ir.find(call), std::string::npos);
  for (std::size_t at = ir.find(call); at != std::string::npos; at = ir.find(call, at)) {
    const std::size_t line = ir.rfind('\n', at) + 1;
    ir.erase(line, ir.find('\n', at) - line);
    at = line;
  }
  return ir;
}

// The emulator itself must see what it is there to see.

TEST(SimtEmulator, notices_a_missing_barrier) {
  const CompiledNvptx compiled = compile_nvptx(block_steps_program(), {});
  SimtCase test{"unsynchronised", block_steps_program(), {{"rows", 3}, {"steps", 5}}, {}, 256};
  CompiledNvptx changed = compiled;
  changed.ir = without(compiled.ir, "call void @llvm.nvvm.barrier0()");
  EXPECT_NE(run_emulated(changed, test.program, test.sizes, test.options, {0}), "");
}

TEST(SimtEmulator, notices_a_copy_that_nobody_waits_for) {
  const TileProgram program = column_parts_program(ElementType::f32, 256, 5, 3);
  CompiledNvptx compiled = compile_nvptx(program, {});
  EXPECT_EQ(run_emulated(compiled, program, {{"batch", 23}}, {}, {0}), "");
  compiled.ir = without(compiled.ir, "call void @llvm.nvvm.cp.async.wait.group(");
  EXPECT_NE(run_emulated(compiled, program, {{"batch", 23}}, {}, {0}), "");
}

/// What the emulator says of a kernel whose blocks exchange results, without the lines that have `call`.
std::string exchange_without(const std::string& call) {
  const GridShape shape{.threads = 64, .persistent = 4, .cluster = 4};
  const TileProgram program = norm_program(ElementType::f32, 2048, 1, false, shape);
  CompiledNvptx compiled = compile_nvptx(program, {});
  compiled.ir = without(compiled.ir, call);
  return run_emulated(compiled, program, {{"batch", 9}}, {}, {0});
}

TEST(SimtEmulator, notices_that_nobody_waits_for_the_results_of_other_blocks) {
  EXPECT_NE(exchange_without("mbarrier.try_wait"), "");
}

TEST(SimtEmulator, notices_a_wait_for_what_nobody_sends) { EXPECT_NE(exchange_without("st.async"), ""); }

}  // namespace
}  // namespace nestor::testing
