// Parts of a reduction on tensor cores: each block keeps its part's running results to itself and leaves them in memory for the kernel
// that combines them.
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/kernel/privatization.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/gpu/mma/tensor_kernel.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/tensor/tensor_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

constexpr int kSize = 64, kColumns = 16, kRows = 32, kPack = 4;

/// Attention whose keys are cut into parts of kSize: tiles of rows, parts and tiles of kColumns keys in blocks of tensor cores, and what
/// combines the parts in kernels of its own. Grouped heads are packed.
TileProgram in_parts(const AttentionForm& form) {
  struct Unit {
    std::string name, keys;  ///< the loop over keys, or ""
    bool own_part, dense;
  };
  const std::vector<Unit> units{{"dot_init", "j", false, false},        {"dot", "j", false, true},
                                {"score", "j", false, false},           {"largest_part_init", "", true, false},
                                {"largest_part", "r", true, false},     {"power", "j", false, false},
                                {"weighted_part_init", "", true, true}, {"weighted_part", "t", true, true},
                                {"total_part_init", "", true, false},   {"total_part", "s", true, false}};
  std::vector<std::string> steps{"apply_rule exp2_scale", "apply_rule online largest",
                                 fmt::format("apply_rule split_reduction largest r part {}", kSize)};
  const std::vector<std::string> outer =
      form.grouped ? std::vector<std::string>{"h", "go", "io"} : std::vector<std::string>{"h", "io"};
  const auto part_of = [](const Unit& unit) { return unit.name + (unit.keys.empty() ? ".part" : ".jp"); };
  for (const Unit& unit : units) {
    const std::string& n = unit.name;
    steps.push_back(fmt::format("split({0}.i, {1}, {0}.io, {0}.ii)", n, form.grouped ? kRows / kPack : kRows));
    if (form.grouped) steps.push_back(fmt::format("split({0}.g, {1}, {0}.go, {0}.gi)", n, kPack));
    std::string order = "reorder(";
    for (const std::string& loop : outer) order += n + "." + loop + ", ";
    order += part_of(unit);
    if (!unit.keys.empty()) {
      steps.push_back(fmt::format("split({0}.{1}, {2}, {0}.jp, {0}.jq)", n, unit.keys, kSize));
      steps.push_back(fmt::format("split({0}.jq, {1}, {0}.jo, {0}.ji)", n, kColumns));
      order += fmt::format(", {0}.jo", n) + (unit.own_part ? fmt::format(", {0}.part", n) : "");
    }
    order += form.grouped ? fmt::format(", {0}.gi, {0}.ii", n) : fmt::format(", {0}.ii", n);
    if (unit.dense && n != "dot") order += fmt::format(", {0}.d", n);
    if (!unit.keys.empty()) order += fmt::format(", {0}.ji", n);
    if (n == "dot") order += ", dot.e";
    steps.push_back(order + ")");
  }
  for (std::size_t k = 1; k < units.size(); ++k) {
    for (const std::string& loop : outer)
      steps.push_back(fmt::format("fuse_with({}.{}, dot_init.{})", units[k].name, loop, loop));
    steps.push_back(fmt::format("fuse_with({}, dot_init.jp)", part_of(units[k])));
  }
  for (std::size_t k = units.size() - 1; k-- > 0;) {
    if (!units[k].keys.empty()) steps.push_back(fmt::format("fuse_with({}.jo, total_part.jo)", units[k].name));
  }
  for (const std::string& loop : outer) steps.push_back(fmt::format("gpu_blocks(dot_init.{})", loop));
  steps.emplace_back("gpu_blocks(dot_init.jp)");
  steps.emplace_back("tensor_cores(dot_init.h, 1, 2)");
  Schedule schedule{attention_nest(form)};
  for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
  return build_tile_program(schedule);
}

TileTree with_private_blocks(const TileTree& tree, TileProgram& program, bool inside) {
  if (tree->kind == TileNode::Kind::op) return tree;
  auto result = std::make_shared<TileNode>(*tree);
  const bool block = nvptx::is_block_loop(*tree);
  if (inside && !block) return nvptx::privatized(tree, program);
  for (TileTree& child : result->children) child = with_private_blocks(child, program, block);
  return result;
}

const Buffer& buffer_named(const TileProgram& program, const std::string& name) {
  return *std::find_if(program.buffers.begin(), program.buffers.end(), [&](const Buffer& buffer) { return buffer.name == name; });
}

struct PartsCase {
  std::string name;
  AttentionForm form;
};
std::ostream& operator<<(std::ostream& out, const PartsCase& test) { return out << test.name; }

class PartsOnTensorCores : public ::testing::TestWithParam<PartsCase> {};

TEST_P(PartsOnTensorCores, keep_their_running_results_and_mean_the_same) {
  const AttentionForm& form = GetParam().form;
  const TileProgram program = in_parts(form);
  EXPECT_EQ(buffer_named(program, "weighted_part").memory, Memory::workspace);
  TileProgram own = program;
  own.root = with_private_blocks(own.root, own, false);
  EXPECT_EQ(buffer_named(own, "weighted_part_own").memory, Memory::scratch);
  EXPECT_EQ(buffer_named(own, "largest_part_previous_own").memory, Memory::scratch);
  std::vector<std::string> stores;
  nvptx::for_each_op(own.root, [&](const TileOp& op, bool in_block) {
    if (op.name.starts_with("store ")) stores.push_back(op.name);
    // A block reads and adds to its own tiles alone.
    for (const TileAccess& read : op.reads)
      EXPECT_FALSE(in_block && own.buffers.at(static_cast<std::size_t>(read.buffer)).memory == Memory::workspace);
  });
  EXPECT_THAT(stores, ::testing::UnorderedElementsAre("store largest_part", "store weighted_part", "store total_part"));
  const TensorShape shape{.queries = 40, .keys = 150, .biased = form.biased, .group = form.grouped ? 5 : 0};
  TensorMemory memory = random_memory(shape, ElementType::f16);
  const std::vector<double> expected = definition(memory, shape, form.seen, true);
  interpret(own, sizes_of(shape), {{"scale", kTensorScale}}, memory);
  EXPECT_LT(worst(expected, memory.at("out")), 1e-6);
}

TEST_P(PartsOnTensorCores, have_a_proved_plan_and_code) {
  const TileProgram program = in_parts(GetParam().form);
  const nvptx::LaunchPlan launches = nvptx::plan_launches(program, 256);
  const auto main = std::find_if(launches.kernels.begin(), launches.kernels.end(),
                                 [](const nvptx::KernelPlan& kernel) { return kernel.shape.warpgroups > 0; });
  ASSERT_NE(main, launches.kernels.end());
  const nvptx::TensorPlan plan = nvptx::plan_tensor(*main, launches.program, {});
  EXPECT_THAT(check_tensor_plan(plan).violations, ::testing::IsEmpty());
  EXPECT_EQ(compile_nvptx(program, {}).kernel.recipe.launches.size(), launches.kernels.size());
}

INSTANTIATE_TEST_SUITE_P(
    Forms, PartsOnTensorCores,
    ::testing::Values(PartsCase{"plain", {.result = ElementType::f32, .depth = kTensorDepth}},
                      PartsCase{"biased", {.result = ElementType::f32, .depth = kTensorDepth, .biased = true}},
                      PartsCase{"packed", {.result = ElementType::f32, .depth = kTensorDepth, .grouped = true}}),
    [](const auto& info) { return info.param.name; });

// The result of a block's first op is not its own where another op of the block finds what a block before has left.
TEST(PrivateTiles, stay_in_memory_where_a_block_reads_what_it_has_not_written) {
  TileProgram program = in_parts({.depth = kTensorDepth});
  const auto without_start = [&](const auto& self, const TileTree& tree) -> TileTree {
    auto result = std::make_shared<TileNode>(*tree);
    std::erase_if(result->children,
                  [](const TileTree& child) { return child->kind == TileNode::Kind::op && child->op.name == "total_part_init"; });
    for (TileTree& child : result->children) child = self(self, child);
    return result;
  };
  program.root = without_start(without_start, program.root);
  program.root = with_private_blocks(program.root, program, false);
  const auto exists = [&](const std::string& name) {
    return std::any_of(program.buffers.begin(), program.buffers.end(), [&](const Buffer& buffer) { return buffer.name == name; });
  };
  EXPECT_TRUE(exists("largest_part_own"));
  EXPECT_FALSE(exists("total_part_own"));
}

}  // namespace
}  // namespace nestor::testing
