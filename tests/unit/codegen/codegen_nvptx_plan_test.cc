// Plans of GPU kernels: what stays in registers, where barriers are, how grids and recipes come out, what is refused.
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/ptx/ptxas.h"
#include "codegen/gpu/simt/block_kernel.h"
#include "codegen/gpu/simt/plan/block_plan.h"
#include "codegen/gpu/simt/plan/block_work.h"
#include "codegen/gpu/simt/plan/print_block_plan.h"
#include "support/error.h"
#include "support/simt/simt_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

namespace nestor::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = nvptx::Placement::Kind;

constexpr ElementType f32 = ElementType::f32, f16 = ElementType::f16, bf16 = ElementType::bf16;

struct Planned {
  nvptx::LaunchPlan launches;
  nvptx::BlockPlan block;

  Planned(const TileProgram& program, bool vectors, std::size_t kernel = 0) : launches(nvptx::plan_launches(program, 256)) {
    block = nvptx::plan_block(launches.kernels.at(kernel), launches.program, NvptxTarget{}, vectors);
  }
  const nvptx::Placement& placement(const std::string& name) const {
    for (const auto& [id, place] : block.placements) {
      if (block.buffer(id).name == name) return place;
    }
    internal_error("no placement of {}", name);
  }
  const nvptx::BlockOp& op(const std::string& name) const {
    for (const nvptx::BlockOp& op : block.ops) {
      if (op.op.name == name) return op;
    }
    internal_error("no op {}", name);
  }
  int barriers() const {
    return static_cast<int>(
        std::count_if(block.ops.begin(), block.ops.end(), [](const nvptx::BlockOp& op) { return op.barrier_before; }));
  }
};

TEST(NvptxPlan, rows_stay_in_registers_with_16_byte_vectors) {
  const Planned plan(norm_program(f16, 1024, 1), true);
  EXPECT_EQ(plan.block.threads, 128);
  EXPECT_EQ(plan.block.layout, (nvptx::Layout{8, 128, 1}));
  EXPECT_EQ(plan.placement("tile").kind, Kind::registers);
  EXPECT_EQ(plan.placement("tile").column_slots, 8);
  EXPECT_EQ(plan.placement("mean").kind, Kind::registers);
  EXPECT_EQ(plan.barriers(), 0);
  EXPECT_TRUE(plan.op("load").vectors);
  EXPECT_TRUE(plan.op("store").write_vector);
}

TEST(NvptxPlan, without_vectors_neighbouring_threads_take_neighbouring_elements) {
  const Planned plan(norm_program(f16, 1024, 1), false);
  EXPECT_EQ(plan.block.layout.vector, 1);
  EXPECT_EQ(plan.placement("tile").kind, Kind::registers);
  EXPECT_FALSE(plan.block.has_conditions());
}

TEST(NvptxPlan, short_rows_share_a_warp) {
  const Planned plan(norm_program(f16, 128, 8), true);
  EXPECT_LE(plan.block.layout.lanes, 32);
  EXPECT_GT(plan.block.layout.groups, 1);
  EXPECT_EQ(plan.placement("tile").kind, Kind::registers);
  EXPECT_EQ(plan.block.shared_bytes, 0);
}

TEST(NvptxPlan, every_thread_has_an_element_of_rows_that_fill_no_warp) {
  for (const std::int64_t width : {3, 6, 10, 12, 20, 24}) {
    const Planned plan(narrow_rows_program(f16, width), true);
    const nvptx::Layout layout = plan.block.layout;
    EXPECT_EQ(layout.lanes * layout.vector, width);
    EXPECT_EQ(layout.threads(), plan.block.threads);
    EXPECT_EQ(plan.block.threads % 32, 0);
    EXPECT_EQ(nvptx::working_threads(plan.op("store"), {64, width}), std::min<std::int64_t>(64, layout.groups) * layout.lanes);
  }
}

TEST(NvptxPlan, pieces_of_memory_are_loaded_whole_where_their_ends_are_read) {
  const auto strides = [](const TileProgram& program) {
    const Planned plan(program, true);
    std::vector<int> found;
    for (const nvptx::StridedRead& read : plan.op("y").strided_reads) found.push_back(read.stride);
    return found;
  };
  EXPECT_THAT(strides(strided_program(f32, 2, 1)), ElementsAre(2, 2, 2));
  EXPECT_THAT(strides(strided_program(bf16, 4, 3, 2)), ElementsAre(4, 4, 4));
  EXPECT_THAT(strides(strided_program(f32, 4, 2, 1)), ElementsAre(0, 0, 0)) << "the last element may not exist";
  EXPECT_THAT(strides(strided_program(f32, 2, 3)), ElementsAre(0, 0, 0)) << "elements of two pieces";
}

TEST(NvptxPlan, sums_need_powers_of_two_among_the_lanes) {
  const Planned plan(norm_program(f16, 24, 8), true);
  EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(plan.block.layout.lanes)));
}

/// Of the sum of each row of x, whose only block has all of its threads along the columns.
double clocks_of_sums(std::int64_t rows, std::int64_t columns) {
  const Planned plan(sum_program(f32, false), true);
  return nvptx::least_clocks(plan.block, {{"rows", rows}, {"cols", columns}}, 132);
}

TEST(NvptxPlan, few_threads_at_work_take_long) {
  const double wide = clocks_of_sums(1 << 15, 1 << 10), narrow = clocks_of_sums(1 << 22, 1 << 3);
  EXPECT_GT(wide, 0);
  EXPECT_GT(narrow, 3 * wide);  // 8 columns: of 32 lanes three in four have none
  EXPECT_EQ(nvptx::least_clocks(Planned(sum_program(f32, false), true).block, {}, 132), 0);  // no size is known
}

TEST(NvptxPlan, what_all_items_share_leaves_the_registers_first) {
  const GridShape few{.threads = 64, .persistent = 1, .cluster = 2}, many{.threads = 64, .persistent = 16, .cluster = 2};
  const Planned roomy(norm_program(f32, 4608, 1, false, few, 2), true), crowded(norm_program(f32, 4608, 1, false, many, 2), true);
  EXPECT_FALSE(roomy.placement("factors").outside);
  EXPECT_TRUE(crowded.placement("factors").outside);
  EXPECT_FALSE(crowded.placement("tile").outside);
  EXPECT_EQ(crowded.block.blocks_per_unit, 16);
  EXPECT_GE(crowded.block.shared_bytes, roomy.block.shared_bytes + 4608 / 2 * 4);
}

TEST(NvptxPlan, sums_of_a_streamed_product_stay_in_registers) {
  const Planned plan(tiled_product_program(f32, 64, 32), true);
  EXPECT_EQ(plan.placement("sums").kind, Kind::registers);
  ASSERT_TRUE(plan.op("add").product.has_value());
  EXPECT_EQ(plan.op("add").product->a_copy_width, 4);
  EXPECT_EQ(plan.op("add").product->b_copy_width, 4);
}

/// How often the text has the word.
int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Neighbouring lanes take neighbouring columns, and a thread's rows, four or eight, share what it loads of a column.
TEST(NvptxPlan, rows_of_pairs_share_their_columns) {
  for (const Self self : {Self::counts, Self::is_guarded, Self::is_selected}) {
    std::vector<int> masses;
    for (const std::int64_t tile : {8, 16}) {
      const TileProgram program = pair_forces_program(tile, self);
      NvptxTarget target;
      target.threads = 64;
      const nvptx::LaunchPlan launches = nvptx::plan_launches(program, target.threads);
      const nvptx::BlockPlan plan = nvptx::plan_block(launches.kernels.front(), launches.program, target, true, target.threads);
      EXPECT_EQ(plan.layout, (nvptx::Layout{1, 32, 2}));
      masses.push_back(count_of(compile_nvptx(program, target).kernel.code, "ld.global.nc.u16"));
    }
    EXPECT_GT(masses[0], 0);
    EXPECT_EQ(masses[0], masses[1]) << "loads of a column, whatever the rows";
  }
}

TEST(NvptxPlan, sums_that_no_operand_follows_share_all_loads) {
  for (const bool weighed : {false, true}) {
    std::vector<int> keys;
    for (const std::int64_t tile : {8, 32}) {
      const TileProgram program = key_counts_program(tile, weighed);
      NvptxTarget target;
      target.threads = 32;
      const nvptx::LaunchPlan launches = nvptx::plan_launches(program, target.threads);
      const nvptx::BlockPlan plan = nvptx::plan_block(launches.kernels.front(), launches.program, target, true, target.threads);
      EXPECT_EQ(plan.ops.front().layout.lanes, 32) << "all threads have all rows";
      keys.push_back(count_of(compile_nvptx(program, target).kernel.code, "ld.global.nc"));
    }
    EXPECT_GT(keys[0], 0);
    EXPECT_EQ(keys[0], keys[1]) << "loads of a key, whatever the bins";
  }
}

TEST(NvptxPlan, terms_that_data_names_are_looked_at_alone) {
  const auto chosen = [](const LookupForm& form) { return Planned(lookup_program(form), true).op("found").chosen; };
  for (const bool falls : {false, true}) {
    ASSERT_TRUE(chosen({.falls = falls, .twice = true}));
    EXPECT_EQ(chosen({.falls = falls, .twice = true})->dim, 2);
  }
  EXPECT_TRUE(chosen({.words = 0}));
  EXPECT_TRUE(chosen({.other = std::numeric_limits<double>::infinity(), .combine = ReductionOp::min}));
  EXPECT_FALSE(chosen({.other = 0.5})) << "the others count";
  EXPECT_FALSE(chosen({.combine = ReductionOp::max})) << "0 is no least number";
  EXPECT_FALSE(chosen({.twice = true, .follows = true})) << "each term has a place of its own";
}

TEST(NvptxPlan, terms_look_for_the_sum_that_data_names) {
  const auto scattered = [](const ScatterForm& form) { return Planned(scatter_program(form, 32), true).op("put").scattered; };
  for (const bool falls : {false, true}) {
    ASSERT_TRUE(scattered({.falls = falls, .twice = true}));
    EXPECT_EQ(scattered({.columns = 5, .falls = falls})->dim, 0);
  }
  EXPECT_TRUE(scattered({.columns = 64, .known = false}));
  EXPECT_TRUE(scattered({.other = -std::numeric_limits<double>::infinity(), .combine = ReductionOp::max}));
  EXPECT_FALSE(scattered({.other = 0.5})) << "terms count for other sums, too";
  EXPECT_FALSE(scattered({.columns = 5, .follows_sum = true})) << "sums do not agree where a term belongs";
  EXPECT_FALSE(scattered({.tile = 1})) << "there is one sum";
  const TileProgram program = scatter_program({.columns = 5}, 32);
  EXPECT_GT(count_of(compile_nvptx(program, {}).kernel.code, "vote.sync.ballot"), 0);
}

// However many entries there are, and however long it would take to look at all of them.
TEST(NvptxPlan, a_look_up_takes_no_loop) {
  const auto work = [](std::int64_t words) {
    const Planned plan(lookup_program({.words = words}), true);
    return nvptx::least_clocks(plan.block, {{"rows", 512}, {"keys", 512}}, 132);
  };
  EXPECT_GT(work(20), 0);
  EXPECT_EQ(work(20), work(20000));
}

TEST(NvptxPlan, steps_that_need_their_own_columns_have_no_barriers) {
  for (const std::int64_t shift : {0, 37}) {
    const TileProgram program = stepped_columns_program(shift);
    NvptxTarget target;
    target.threads = 64;
    const nvptx::LaunchPlan launches = nvptx::plan_launches(program, target.threads);
    const nvptx::BlockPlan plan = nvptx::plan_block(launches.kernels.front(), launches.program, target, false, target.threads);
    EXPECT_FALSE(plan.ops.front().barrier_before);
    EXPECT_EQ(plan.ops.back().barrier_before, shift != 0) << shift;
  }
}

// Register blocks take any terms of two operands that are 0 where both are; of few rows there are none.
TEST(NvptxPlan, sums_of_squared_differences_have_register_blocks) {
  const auto product_of = [](std::int64_t rows, const std::function<void(TileOp&)>& change,
                             PairTerms terms = PairTerms::squares) {
    TileProgram program = blocked_product_program(rows, 32, false, true, 0, f32, terms);
    const std::function<void(TileTree&)> visit = [&](TileTree& tree) {
      TileNode node = *tree;
      if (node.kind == TileNode::Kind::op && node.op.name == "add") change(node.op);
      for (TileTree& child : node.children) visit(child);
      tree = std::make_shared<const TileNode>(std::move(node));
    };
    visit(program.root);
    return Planned(program, true).op("add").product;
  };
  const auto product = product_of(64, [](TileOp&) {});
  ASSERT_TRUE(product.has_value());
  EXPECT_EQ(product->stages, 3);
  EXPECT_TRUE(product->b_by_column);
  EXPECT_FALSE(product_of(8, [](TileOp&) {}).has_value());
  EXPECT_FALSE(product_of(64, [](TileOp& op) { op.value = plus(op.value, ScalarExpr::constant(1)); }).has_value());
  EXPECT_FALSE(product_of(64, [](TileOp& op) { op.value = exponential(op.value); }).has_value());
  EXPECT_FALSE(product_of(64, [](TileOp& op) { op.reduction = ReductionOp::max; }).has_value());
  const auto weighted = product_of(64, [](TileOp&) {}, PairTerms::weighted);
  ASSERT_TRUE(weighted.has_value());
  EXPECT_EQ(std::pair(weighted->form.a, weighted->form.b), std::pair(0, 1)) << "weights of the ks are no operand";
  const auto weights_of_rows = [](TileOp& op) { op.reads[2].index = {op.reads[0].index[0]}; };
  EXPECT_FALSE(product_of(64, weights_of_rows, PairTerms::weighted).has_value());
  const auto some_ks = [](TileOp& op) { op.guard = IntExpr::make(IntOp::ge, {IntExpr::variable("l"), IntExpr(2)}); };
  EXPECT_FALSE(product_of(64, some_ks, PairTerms::weighted).has_value()) << "weights outside of a guard may be nowhere";
  EXPECT_TRUE(product_of(64, some_ks).has_value());
}

// A sum of squares and 0.25 is far from what the units take for 0.
TEST(NvptxPlan, roots_and_reciprocals_of_normal_numbers_need_no_scaling) {
  for (const bool least : {false, true}) {
    const std::string code = compile_nvptx(pair_forces_program(8, Self::counts, least), {}).kernel.code;
    EXPECT_THAT(code, ::testing::HasSubstr(least ? "rcp.approx.ftz.f32" : "rsqrt.approx.ftz.f32"));
    EXPECT_THAT(code, ::testing::Not(::testing::HasSubstr(least ? "div.full" : "rsqrt.approx.f32")));
  }
}

// Each operand lies in shared memory so that a thread reads four of its elements at once, and pieces of 16 bytes run as they lie in memory.
TEST(NvptxPlan, tiles_of_f32_operands_are_copied_ahead) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      const Planned plan(blocked_product_program(128, 128, a_transposed, b_transposed), true);
      const nvptx::ProductPlan& product = *plan.op("add").product;
      EXPECT_EQ(product.stages, 3);
      EXPECT_EQ(product.a_copy_width, a_transposed ? 1 : 4);
      EXPECT_EQ(product.b_copy_width, 4);
      EXPECT_EQ(product.b_by_column, b_transposed);
      EXPECT_TRUE(plan.block.square_warps);
      EXPECT_EQ(plan.block.blocks_per_unit, 2) << "so ptxas leaves each thread 128 registers";
    }
  }
  EXPECT_EQ(Planned(tiled_product_program(f32, 64, 32), true).op("add").product->stages, 1) << "one tile";
  EXPECT_EQ(Planned(product_program(f16, false, false), true).op("c").product->stages, 1) << "16 bits are converted on their way";
}

TEST(NvptxPlan, attention_keeps_all_but_its_weights_in_registers) {
  const Planned plan(streaming_attention_program(f16, 64, true), true);
  for (const char* name : {"scores", "acc", "top", "before", "total"})
    EXPECT_EQ(plan.placement(name).kind, Kind::registers) << name;
  EXPECT_EQ(plan.placement("weights").kind, Kind::shared);
}

TEST(NvptxPlan, a_tile_read_in_another_order_goes_through_shared_memory_behind_a_barrier) {
  const Planned plan(transpose_program(f32), true);
  EXPECT_EQ(plan.placement("tile").kind, Kind::shared);
  EXPECT_FALSE(plan.op("load").barrier_before);
  EXPECT_TRUE(plan.op("store").barrier_before);
}

TEST(NvptxPlan, neighbouring_sums_of_a_triangular_system_are_made_together) {
  const Planned plan(triangular_program({.steps = 36}), true);
  const std::optional<nvptx::OwnSums>& sums = plan.op("solve").own_sums;
  ASSERT_TRUE(sums);
  EXPECT_EQ(sums->at_once, 16);
  EXPECT_EQ(sums->end, 0);
  EXPECT_EQ(sums->width, 4);
  EXPECT_EQ(sums->vectors, (std::vector<bool>{true, false, false}));
  const auto of = [](const TriangularForm& form) { return Planned(triangular_program(form), true).op("solve").own_sums; };
  EXPECT_EQ(of({.steps = 36, .apart = 3, .row = 3})->end, -2);
  EXPECT_EQ(of({.steps = 36, .apart = 3})->at_once, 1) << "the first rows have less than no terms";
  const Planned anywhere(triangular_program({.steps = 36}), false);
  EXPECT_EQ(anywhere.op("solve").own_sums->width, 1) << "the matrix may start anywhere";
  EXPECT_EQ(of({.steps = 36, .first = 3, .row = 3})->width, 1) << "terms start within a vector";
  EXPECT_EQ(of({.steps = 9})->at_once, 9);
  EXPECT_EQ(of({.steps = 36, .divided = true})->at_once, 4) << "long code";
  EXPECT_EQ(of({.steps = 20, .ahead = true})->at_once, 1) << "terms start elsewhere in each row";
  EXPECT_FALSE(of({.steps = 20, .apart = 0})) << "a term reads the sum that it is added to";
}

TEST(NvptxPlan, a_dependence_carried_by_a_loop_gets_a_barrier) {
  const Planned plan(block_steps_program(), true);
  EXPECT_TRUE(plan.op("step").barrier_before);
  EXPECT_TRUE(plan.op("back").barrier_before);    // others may still read what it overwrites
  EXPECT_FALSE(plan.op("store").barrier_before);  // each thread stores what it wrote itself
}

TEST(NvptxPlan, sums_that_a_loop_adds_to_stay_in_registers_while_it_runs) {
  const Planned plan(column_parts_program(bf16, 1024, 100, 3), true);
  for (const auto& [id, place] : plan.block.placements) {
    const std::string& name = plan.block.buffer(id).name;
    EXPECT_EQ(place.kind, Kind::registers) << name;
    if (name.starts_with("part_sum")) {
      EXPECT_EQ(place.column_slots, 8);
    }
  }
  EXPECT_EQ(plan.block.buffer(plan.op("add").op.write.buffer).memory, Memory::scratch);
  EXPECT_EQ(plan.block.buffer(plan.op("store add").op.write.buffer).name, "part");
  EXPECT_TRUE(plan.op("store add").write_vector);
}

TEST(NvptxPlan, a_loop_within_a_block_has_copies_under_way) {
  const Planned plan(column_parts_program(bf16, 1024, 100, 3), true);
  const auto ahead = std::count_if(plan.block.ops.begin(), plan.block.ops.end(), [](const auto& op) { return op.ahead > 0; });
  EXPECT_EQ(ahead, 2);  // one row ahead before the loop, two in it
  EXPECT_EQ(plan.placement("tile").stages, 2);
  const Planned plain(column_parts_program(bf16, 1024, 100, 3), false);
  EXPECT_EQ(plain.placement("tile").stages, 0);
}

TEST(NvptxPlan, groups_of_threads_divide_a_sum_over_rows_of_memory) {
  const Planned plan(column_parts_program(bf16, 1024, 100, 3), true, 1);
  EXPECT_EQ(plan.block.layout, (nvptx::Layout{8, 4, 64}));
  EXPECT_TRUE(plan.op("combine").crosses_groups());
  EXPECT_EQ(plan.op("combine").group_partials(), 8);
  EXPECT_EQ(plan.placement("sums").kind, Kind::registers);
}

TEST(NvptxPlan, a_sum_that_something_else_reads_in_its_loop_stays_where_it_is) {
  TileProgram program = column_parts_program(f32, 1024, 100, 1);
  auto root = std::make_shared<TileNode>(*program.root);
  const std::vector<OpDim> dims{parallel_dim("c", 0, 1024, 1024)};
  TileOp look = make_op(OpKind::map, "look", dims, {1, {0, var("c")}}, {{3, {var("b"), var("c")}}});
  look.value = ScalarExpr::read(0, f32);
  auto blocks = std::make_shared<TileNode>(*root->children[0]);
  auto body = std::make_shared<TileNode>(*blocks->children[0]);
  auto rows = std::make_shared<TileNode>(*body->children[1]);
  rows->children = {sequence({rows->children[0], leaf(look)})};
  body->children[1] = rows;
  blocks->children = {body};
  root->children[0] = blocks;
  program.root = root;
  const Planned plan(program, true);
  EXPECT_EQ(plan.block.buffer(plan.op("add").op.write.buffer).memory, Memory::workspace);
}

TEST(NvptxPlan, an_op_outside_of_blocks_is_spread_over_a_grid) {
  const nvptx::LaunchPlan plan = nvptx::plan_launches(product_program(f32, false, true), 256);
  ASSERT_EQ(plan.kernels.size(), 1u);
  EXPECT_EQ(plan.kernels[0].grid.size(), 3u);
  const auto blocks = plan.launches[0].grid[0].evaluate([](const std::string& size) { return size == "batch" ? 3 : 130; });
  EXPECT_EQ(blocks, 3 * 3 * 3);
}

TEST(NvptxPlan, sequential_loops_around_parallel_work_become_launch_loops) {
  const nvptx::LaunchPlan plan = nvptx::plan_launches(relaxation_program(), 256);
  ASSERT_EQ(plan.launches.size(), 3u);
  EXPECT_EQ(plan.launches[1].kind, LaunchNode::Kind::loop);
  EXPECT_EQ(plan.launches[1].var, "t");
  ASSERT_EQ(plan.kernels[1].launch_loops.size(), 1U);
  EXPECT_EQ(plan.kernels[1].launch_loops[0].var, "t");
  EXPECT_EQ(plan.kernels[1].launch_loops[0].upper.str(), plan.launches[1].upper.str());
}

TEST(NvptxRecipe, says_all_that_a_launcher_needs) {
  const CompiledNvptx compiled = compile_nvptx(norm_program(f16, 1024, 1), {});
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  EXPECT_EQ(compiled.kernel.architecture, "sm_90");
  EXPECT_EQ(recipe.target, "nvptx");
  ASSERT_EQ(recipe.arguments.size(), 4u);
  EXPECT_TRUE(recipe.arguments[3].output);
  EXPECT_EQ(recipe.fixed_sizes.at("width"), 1024);
  EXPECT_FALSE(is_valid_for(recipe.valid, {{"batch", 3}, {"width", 512}}));
  ASSERT_EQ(recipe.launches.size(), 1u);
  const LaunchNode& node = recipe.launches[0];
  EXPECT_THAT(compiled.kernel.code, HasSubstr(".visible .entry " + node.symbol + "("));
  EXPECT_THAT(compiled.kernel.code, HasSubstr(".maxntid 128"));
  EXPECT_EQ(node.block[0], 128);
  std::string params;
  for (const KernelParam& param : node.params) params += std::string("psnclwtd")[static_cast<std::size_t>(param.kind)];
  EXPECT_EQ(params, "pspppsnc");  // x and its row stride, gamma, beta, y and its row stride, batch, eps
  EXPECT_EQ(recipe_to_json(recipe_from_json(recipe_to_json(recipe))), recipe_to_json(recipe));
}

TEST(NvptxRecipe, tells_the_workspace) {
  const CompiledNvptx compiled = compile_nvptx(relaxation_program(), {});
  const auto bytes = compiled.kernel.recipe.workspace_bytes.evaluate([](const std::string&) { return 50; });
  EXPECT_EQ(bytes, (2 * 50 * 50 * 4 + 63) / 64 * 64);
}

bool has_clusters(const TileTree& tree) {
  return tree->knobs.contains("cluster") || std::any_of(tree->children.begin(), tree->children.end(), has_clusters);
}

class EveryProgram : public ::testing::TestWithParam<std::tuple<SimtCase, int>> {};

TEST_P(EveryProgram, assembles_without_local_memory_or_spills) {
  const auto& [test, sm] = GetParam();
  NvptxTarget target;
  target.sm = sm;
  target.threads = test.threads;
  if (sm < 90 && has_clusters(test.program->root)) {
    EXPECT_THAT([&] { compile_nvptx(test.program, target); },
                ::testing::ThrowsMessage<UserError>(HasSubstr("step `cluster` needs compute capability 9.0")));
    return;
  }
  const CompiledNvptx compiled = compile_nvptx(test.program, target);
  EXPECT_EQ(compiled.kernel.code.find(".local"), std::string::npos);
  EXPECT_THAT(compiled.kernel.code, HasSubstr(sm == 80 ? ".target sm_80" : ".target sm_90"));
  const PtxasReport report = run_ptxas(compiled.kernel.code, compiled.kernel.architecture);
  if (!report.available) GTEST_SKIP() << "no ptxas program here";
  EXPECT_TRUE(report.accepted) << report.log;
  EXPECT_EQ(report.spill_bytes, 0) << report.log;
  EXPECT_EQ(report.stack_bytes, 0) << report.log;
  EXPECT_GT(report.registers, 0);
}

/// One case of each kind of program.
std::vector<SimtCase> distinct_programs() {
  std::vector<SimtCase> result;
  std::set<std::string> seen;
  for (const SimtCase& test : simt_cases()) {
    if (seen.insert(test.name.substr(0, test.name.rfind('_'))).second) result.push_back(test);
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(programs, EveryProgram,
                         ::testing::Combine(::testing::ValuesIn(distinct_programs()), ::testing::Values(80, 90)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_sm" + std::to_string(std::get<1>(info.param));
                         });

TEST(Ptxas, reports_what_it_refuses) {
  const PtxasReport report = run_ptxas(".version 8.0\n.target sm_90\n.address_size 64\nnonsense\n", "sm_90");
  if (!report.available) GTEST_SKIP() << "no ptxas program here";
  EXPECT_FALSE(report.accepted);
  EXPECT_THAT(report.log, HasSubstr("nonsense"));
}

std::string refusal(const TileProgram& program, const NvptxTarget& target = {}) {
  try {
    compile_nvptx(program, target);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(NvptxErrors, scratch_of_unknown_size_names_the_size_to_fix) {
  const std::string message = refusal(open_scratch_program());
  EXPECT_THAT(message, HasSubstr("'row_copy'"));
  EXPECT_THAT(message, HasSubstr("fix 'cols'"));
}

TEST(NvptxErrors, too_much_shared_memory_names_buffers_and_bytes) {
  const std::string message = refusal(huge_scratch_program());
  EXPECT_THAT(message, HasSubstr("'picture'"));
  EXPECT_THAT(message, HasSubstr("232448"));
}

TEST(NvptxErrors, impossible_blocks_and_devices) {
  NvptxTarget target;
  target.threads = 100;
  EXPECT_THAT(refusal(vector_program(f32), target), HasSubstr("100 threads"));
  target.threads = 256;
  target.sm = 61;
  EXPECT_THAT(refusal(vector_program(f32), target), HasSubstr("6.1"));
}

TEST(NvptxPlan, as_text_says_where_values_live_and_what_waits) {
  const Planned rows(norm_program(f16, 1024, 1), true), summed(norm_program(f32, 4096, 2), true);
  const std::string text = nvptx::describe(rows.block);
  EXPECT_THAT(text, HasSubstr("block plan of " + rows.block.kernel->symbol + ": 128 threads"));
  EXPECT_THAT(text, HasSubstr("tile: registers of each thread, 1 x 8 slots, by column"));
  EXPECT_THAT(text, HasSubstr("128 lanes x 1 groups, vectors of 8"));
  EXPECT_THAT(nvptx::describe(summed.block), HasSubstr("partial results meet in shared memory from byte"));
}

TEST(NvptxPlan, passes_have_names_of_their_own) {
  std::set<std::string> names;
  for (const nvptx::BlockPass& pass : nvptx::block_passes()) EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
  EXPECT_GT(names.size(), 5U);
}

}  // namespace
}  // namespace nestor::testing
