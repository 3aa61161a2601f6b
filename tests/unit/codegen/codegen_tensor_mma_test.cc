// Tensor kernels of compute capability 8.0, run thread by thread on the CPU: their code gives what the operator means, whatever the order of
// warps and of copies, for ragged sizes, rows that start anywhere, and every way to share the work.
#include "support/simt/simt_image.h"
#include "support/tensor/tensor_mma_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

class TensorMma : public ::testing::TestWithParam<SimtCase> {};

TEST_P(TensorMma, kernels_compute_what_the_program_says) {
  const SimtCase& test = GetParam();
  const CompiledNvptx compiled = compile_nvptx(test.program, older());
  EXPECT_EQ(compiled.kernel.architecture, "sm_80");
  EXPECT_EQ(run_emulated(compiled, test.program, test.sizes, test.options, {1, 2}), "");
}

INSTANTIATE_TEST_SUITE_P(cases, TensorMma, ::testing::ValuesIn(tensor_mma_cases()),
                         [](const auto& info) { return info.param.name; });

/// What runs of attention differ in without the lines that have `call`.
std::string without(const std::string& call) {
  const TileProgram program = tensor_program(attention_nest({.depth = 32}), {.rows = 64, .columns = 32, .warpgroups = 1});
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
