// Kernels that follow each other in one launch: operands that an earlier kernel has left in the workspace come by tensor copies, and
// kernels with `programmatic_launch` wait at their start for the one before.
#include "codegen/gpu/backend.h"
#include "support/simt/simt_image.h"
#include "support/tensor/product_chain.h"
#include "support/tensor/product_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

/// The PTX of each kernel, from its entry on.
std::vector<std::string> kernels_of(const CompiledNvptx& compiled) {
  std::vector<std::string> kernels;
  const std::string& text = compiled.kernel.code;
  for (std::size_t at = text.find(".entry"); at != std::string::npos;) {
    const std::size_t next = text.find(".entry", at + 1);
    kernels.push_back(text.substr(at, next - at));
    at = next;
  }
  return kernels;
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

constexpr const char* kTriggers = "griddepcontrol.launch_dependents;";
constexpr const char* kWaits = "griddepcontrol.wait;";

/// Where the first instruction that touches memory other than parameters, or other threads, stands.
std::size_t first_work(const std::string& kernel) {
  std::size_t first = kernel.size();
  for (const char* word : {"ld.global", "ld.shared", "st.global", "st.shared", "cp.async", "mbarrier", "bar.sync", "barrier.",
                           "wgmma", "atom.", "shfl.", "fence."})
    first = std::min(first, kernel.find(word));
  return first;
}

const LaunchNode& launch_of(const CompiledNvptx& compiled, std::size_t k) { return compiled.kernel.recipe.launches.at(k); }

TEST(ProductChain, OperandsInTheWorkspaceHaveTensorMaps) {
  const CompiledNvptx compiled = compile_nvptx(product_chain(product_chain_nest()), {});
  ASSERT_EQ(compiled.kernel.recipe.launches.size(), 2U);
  std::vector<std::string> mapped;
  for (const KernelParam& param : launch_of(compiled, 1).params) {
    if (param.kind != KernelParam::Kind::tensor_map) continue;
    mapped.push_back(param.name);
    ASSERT_EQ(param.held.has_value(), param.name == "low") << param.name;
    if (!param.held) continue;
    EXPECT_EQ(param.index, -1);
    const auto at = [](const IntExpr& formula) {
      return formula.evaluate([](const std::string& name) { return name == "P" ? 20 : name == "M" ? 70 : 1000; });
    };
    EXPECT_EQ(param.held->type, ElementType::f16);
    ASSERT_EQ(param.held->shape.size(), 2U);
    EXPECT_EQ(at(param.held->shape[0]), 70);
    EXPECT_EQ(at(param.held->shape[1]), 20);
    ASSERT_EQ(param.held->strides.size(), 1U);
    EXPECT_EQ(at(param.held->strides[0]), 32) << "rows are padded to 16 elements";
    EXPECT_EQ(at(param.held->offset) % 64, 0);
  }
  EXPECT_THAT(mapped, ::testing::UnorderedElementsAre("low", "c", "out"));
}

TEST(ProductChain, ComputesWhatTheProgramSays) {
  const TileProgram program = product_chain(product_chain_nest(), {"programmatic_launch(out.io)"});
  const Sizes sizes{{"M", 70}, {"N", 40}, {"K", 24}, {"P", 40}};
  for (const NvptxTarget& target : {NvptxTarget{}, older()}) {
    const TileProgram& meaning = target.sm == 80 ? product_chain(product_chain_nest()) : program;
    EXPECT_EQ(run_emulated(compile_nvptx(meaning, target), meaning, sizes, {.tolerance = 3e-3}, {1, 2}), "") << target.sm;
  }
}

TEST(ProgrammaticLaunch, KernelsWaitFirstThingAndTheOnesBeforeLetThem) {
  const CompiledNvptx compiled = compile_nvptx(product_chain(product_chain_nest(), {"programmatic_launch(out.io)"}), {});
  const std::vector<std::string> kernels = kernels_of(compiled);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(count(kernels[0], kTriggers), 1U);
  EXPECT_EQ(count(kernels[0], kWaits), 0U);
  EXPECT_EQ(count(kernels[1], kTriggers), 0U);
  EXPECT_EQ(count(kernels[1], kWaits), 1U);
  EXPECT_LT(kernels[0].find(kTriggers), first_work(kernels[0]));
  EXPECT_LT(kernels[1].find(kWaits), first_work(kernels[1]));
  EXPECT_FALSE(launch_of(compiled, 0).programmatic);
  EXPECT_TRUE(launch_of(compiled, 1).programmatic);
}

TEST(ProgrammaticLaunch, IsNowhereWithoutTheStep) {
  for (const NvptxTarget& target : {NvptxTarget{}, older()}) {
    const CompiledNvptx compiled = compile_nvptx(product_chain(product_chain_nest()), target);
    EXPECT_EQ(count(compiled.kernel.code, "griddepcontrol"), 0U);
    for (const LaunchNode& node : compiled.kernel.recipe.launches) EXPECT_FALSE(node.programmatic);
  }
}

/// The first kernel waits for what stands before it in the stream; then what comes after the last may be placed early, too.
TEST(ProgrammaticLaunch, AFirstKernelMakesTheLaunchPartOfAChain) {
  const CompiledNvptx compiled = compile_nvptx(product_chain(product_chain_nest(), {"programmatic_launch(low.io)"}), {});
  const std::vector<std::string> kernels = kernels_of(compiled);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(count(kernels[0], kWaits), 1U);
  EXPECT_EQ(count(kernels[0], kTriggers), 0U) << "the second one is launched as usual";
  EXPECT_EQ(count(kernels[1], kWaits), 0U);
  EXPECT_EQ(count(kernels[1], kTriggers), 1U);
  EXPECT_LT(kernels[0].find(kWaits), first_work(kernels[0]));
  EXPECT_TRUE(launch_of(compiled, 0).programmatic);
  EXPECT_FALSE(launch_of(compiled, 1).programmatic);
}

/// Block plans too; each kernel waits, and lets the next one be placed.
TEST(ProgrammaticLaunch, KernelsOfPlainLanesWaitAsWell) {
  using namespace samples;
  const auto cell = [](const std::string& name) { return name + "[i, j] : 0 <= i < N and 0 <= j < 64"; };
  const Nest nest = NestBuilder("three", {{"N", 10}})
                        .tensor("x", TensorRole::input, {"N", "64"})
                        .tensor("a", TensorRole::temporary, {"N", "64"})
                        .tensor("b", TensorRole::temporary, {"N", "64"})
                        .tensor("y", TensorRole::output, {"N", "64"})
                        .statement(cell("A"), "a[i, j]", {"x[i, j]"}, read(0) + number(1))
                        .statement(cell("B"), "b[i, j]", {"a[(N - 1 - i), j]"}, read(0) * number(2))
                        .statement(cell("Y"), "y[i, j]", {"b[(N - 1 - i), j]"}, read(0) + read(0))
                        .build();
  Schedule schedule{nest};
  for (const char* step : {"gpu_blocks(A.i)", "gpu_blocks(B.i)", "gpu_blocks(Y.i)", "programmatic_launch(A.i)",
                           "programmatic_launch(B.i)", "programmatic_launch(Y.i)"})
    schedule = schedule.apply(parse_step(step));
  const TileProgram program = build_tile_program(schedule);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  const std::vector<std::string> kernels = kernels_of(compiled);
  ASSERT_EQ(kernels.size(), 3U);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(count(kernels[k], kTriggers), 1U) << k;
    EXPECT_EQ(count(kernels[k], kWaits), 1U) << k;
    EXPECT_TRUE(launch_of(compiled, k).programmatic) << k;
    EXPECT_LT(kernels[k].find(kWaits), first_work(kernels[k])) << k;
  }
  EXPECT_EQ(run_emulated(compiled, program, {{"N", 5}}, {}, {1}), "");
}

/// A sum over tiles whose number is known when it is compiled keeps its start apart on tensor cores: its loop over tiles stays.
TEST(SumsOverTiles, OfAFixedSizeGetTensorCores) {
  for (const int fixed : {64, 200}) {
    const ProductForm form{.result = ElementType::f32};
    Schedule schedule{fix_sizes(product_nest(form), {{"K", fixed}})};
    std::vector<std::string> steps{"apply_rule reassociate"};
    for (std::string& step : product_steps("sum", "out")) steps.push_back(std::move(step));
    for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
    const TileProgram program = build_tile_program(schedule);
    bool initialised = false;
    std::function<void(const TileTree&)> look = [&](const TileTree& node) {
      if (node->kind == TileNode::Kind::op && node->op.name == "sum") initialised = initialised || node->op.initialize;
      for (const TileTree& child : node->children) look(child);
    };
    look(program.root);
    EXPECT_FALSE(initialised) << fixed;
    EXPECT_LT(product_error(program, form, {70, 40, fixed}, {.round_operands = false, .blocks = 2, .seed = 5}), 1e-9) << fixed;
  }
}

}  // namespace
}  // namespace nestor::testing
