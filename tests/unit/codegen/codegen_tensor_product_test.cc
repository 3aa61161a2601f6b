// Sums of products that are streamed tile by tile: a plain product of matrices on tensor cores.
#include "codegen/gpu/backend.h"
#include "codegen/gpu/mma/pipeline/tensor_roles.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/gpu/ptx/ptxas.h"
#include "support/tensor/product_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using ProductCase = NamedCase<ProductForm, ProductSteps>;

const std::vector<ProductShape>& shapes() {
  static const std::vector<ProductShape> kShapes{{1, 1, 1},      {64, 64, 64},   {130, 70, 33},
                                                 {63, 129, 100}, {200, 200, 31}, {257, 65, 200}};
  return kShapes;
}

std::vector<ProductCase> product_cases() {
  const ElementType f32 = ElementType::f32;
  const std::vector<std::string> overlap{"intra_warpgroup_overlap(out.io)"};
  return {{"plain", {.result = f32}, {.rows = 64, .warpgroups = 1}},
          {"two_groups", {.result = f32}, {}},
          {"half_results", {}, {.columns = 128}},
          {"odd_columns", {}, {.columns = 40, .depth = 48}},
          {"transposed", {.type = ElementType::bf16, .result = f32, .transposed = true}, {.depth = 64}},
          {"two_row_tiles", {.result = f32}, {.warpgroups = 1, .stages = 3}},
          {"overlap", {.result = f32}, {.more = overlap}},
          {"overlap_three_slots", {.result = f32}, {.stages = 3, .more = overlap}},
          {"overlap_unrolled", {.result = f32}, {.stages = 3, .more = {"intra_warpgroup_overlap(out.io)", "unroll(sum.ko, 2)"}}},
          {"gated", {.result = f32, .gated = true}, {}},
          {"gated_overlap", {.result = f32, .gated = true}, {.stages = 3, .more = overlap}},
          {"gated_overlap_unrolled",
           {.result = f32, .gated = true},
           {.more = {"intra_warpgroup_overlap(out.io)", "unroll(sum_c.ko)", "ping_pong(out.io)"}}},
          {"swapped", {}, {.rows = 16, .warpgroups = 1, .stages = 3, .more = {"swap_ab(out.io)"}}},
          {"swapped_transposed_overlap",
           {.type = ElementType::bf16, .result = f32, .transposed = true},
           {.rows = 24, .columns = 128, .depth = 64, .more = {"swap_ab(out.io)", "intra_warpgroup_overlap(out.io)"}}},
          {"swapped_gated_resident",
           {.gated = true},
           {.rows = 8, .columns = 128, .warpgroups = 1, .more = {"swap_ab(out.io)", "persistent(out.io, 1)"}}},
          {"resident", {}, {.stages = 3, .more = {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)"}}},
          {"resident_turns",
           {.result = f32},
           {.more = {"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)", "persistent(out.io, 1)"}}},
          {"tiles_in_turn", {.result = f32}, {.rows = 64, .more = {"persistent(out.io, 1)", "ping_pong_tiles(out.io)"}}},
          {"tiles_in_turn_overlap",
           {},
           {.rows = 128,
            .stages = 3,
            .more = {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)", "ping_pong_tiles(out.io)"}}},
          {"gated_tiles_in_turn_of_three",
           {.gated = true},
           {.rows = 64, .warpgroups = 3, .stages = 4, .more = {"persistent(out.io, 1)", "ping_pong_tiles(out.io)"}}}};
}

class TensorProduct : public ::testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(Tensor, TensorProduct, ::testing::ValuesIn(product_cases()),
                         [](const auto& info) { return info.param.name; });

double tolerance(const ProductForm& form) { return form.result == ElementType::f32 ? 1e-9 : 6e-4; }

TEST_P(TensorProduct, the_plan_is_the_definition) {
  const ProductCase& test = GetParam();
  const TileProgram program = product_program(test.form, test.steps);
  unsigned seed = 0;
  for (const ProductShape& shape : shapes()) {
    const TensorRun options{.round_operands = false, .blocks = 2, .seed = ++seed};
    EXPECT_LT(product_error(program, test.form, shape, options), tolerance(test.form))
        << shape.m << " x " << shape.n << " x " << shape.k;
  }
}

TEST_P(TensorProduct, the_plan_of_compute_capability_8_is_the_definition) {
  const ProductCase& test = GetParam();
  ProductSteps steps = test.steps;
  for (const char* step : {"ping_pong(out.io)", "ping_pong_tiles(out.io)"}) std::erase(steps.more, step);
  const TileProgram program = product_program(test.form, steps);
  unsigned seed = 0;
  for (const ProductShape& shape : shapes()) {
    const TensorRun options{.round_operands = false, .blocks = 2, .seed = ++seed};
    EXPECT_LT(product_error(program, test.form, shape, options, older()), tolerance(test.form))
        << shape.m << " x " << shape.n << " x " << shape.k;
  }
}

TEST(TensorProducts, blocks_of_a_cluster_share_the_columns) {
  for (const char* more : {"cluster(out.io, 2)", "cluster(out.io, 4)"}) {
    const ProductForm form{.result = ElementType::f32};
    const TileProgram program =
        product_program(form, {.rows = 256, .warpgroups = 1, .stages = 3, .more = {"intra_warpgroup_overlap(out.io)", more}});
    for (const ProductShape& shape : shapes())
      EXPECT_LT(product_error(program, form, shape, {.round_operands = false, .blocks = 2, .seed = 3}), 1e-9) << more;
  }
}

/// The next iteration's products are issued before the wait for those of the last one, whose tiles are given back one iteration later.
TEST(TensorProducts, with_overlap_one_iteration_is_always_under_way) {
  const PlannedTensor planned(product_program({}, {.stages = 3, .more = {"intra_warpgroup_overlap(out.io)"}}));
  const nvptx::EventNode& whole = planned.plan.consumer.children.at(1);
  ASSERT_EQ(whole.kind, nvptx::EventNode::Kind::condition);
  const nvptx::EventNode& loop = whole.children.at(1);
  ASSERT_EQ(loop.kind, nvptx::EventNode::Kind::loop);
  std::vector<std::string> events;
  for (const nvptx::EventNode& node : loop.children) events.emplace_back(nvptx::name_of(node.event.kind));
  EXPECT_THAT(events, ::testing::ElementsAre("wait_full", "wait_full", "product", "wait_products", "release", "release",
                                             "next_tile", "next_tile"));
  EXPECT_EQ(loop.children.at(3).event.count, 1);
  // With one stage there is no room for two tiles.
  const PlannedTensor single(product_program({}, {.stages = 1, .more = {"intra_warpgroup_overlap(out.io)"}}));
  EXPECT_EQ(single.plan.consumer.children.at(1).kind, nvptx::EventNode::Kind::loop);
}

TEST(TensorProducts, assemble_with_products_under_way_from_one_iteration_to_the_next) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{},
        {"intra_warpgroup_overlap(out.io)"},
        {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)", "cluster(out.io, 2)"}}) {
    const int rows = more.size() == 3 ? 256 : 128;
    const TileProgram program = product_program({}, {.rows = rows, .columns = 256, .depth = 64, .stages = 3, .more = more});
    const CompiledNvptx compiled = compile_nvptx(program, {});
    EXPECT_THAT(compiled.kernel.code, Not(HasSubstr(".local")));
    EXPECT_THAT(compiled.kernel.code, HasSubstr("cp.async.bulk.tensor.2d.global.shared"));
    const PtxasReport report = run_ptxas(compiled.kernel.code, compiled.kernel.architecture);
    if (!report.available) GTEST_SKIP() << "no ptxas program here: set NESTOR_PTXAS";
    EXPECT_TRUE(report.accepted) << report.log;
    EXPECT_EQ(report.spill_bytes, 0) << report.log;
    EXPECT_THAT(report.log, Not(HasSubstr("wgmma"))) << "products run one after the other";
  }
}

TEST(TensorProducts, products_of_one_operand_share_its_tile_and_start_from_nothing) {
  const TileProgram program =
      product_program({.gated = true}, {.columns = 128, .depth = 64, .stages = 3, .more = {"intra_warpgroup_overlap(out.io)"}});
  const PlannedTensor planned(program);
  EXPECT_EQ(planned.plan.circular_buffers.size(), 3U);
  EXPECT_EQ(planned.op("sum").a_ring, planned.op("sum_c").a_ring);
  const PtxasReport report = run_ptxas(compile_nvptx(program, {}).kernel.code, "sm_90a");
  if (!report.available) GTEST_SKIP() << "no ptxas program here: set NESTOR_PTXAS";
  EXPECT_TRUE(report.accepted) << report.log;
  // Not even a wait of its own between the first products of a work tile.
  EXPECT_THAT(report.log, Not(HasSubstr("C75")));
}

/// Tiles have the rows that there are, and a product of them as many columns.
TEST(TensorProducts, swapped_operands_leave_no_places_of_few_rows_empty) {
  const ProductSteps few{.rows = 16, .columns = 128, .depth = 64, .warpgroups = 1, .stages = 4};
  ProductSteps swapped = few;
  swapped.more = {"swap_ab(out.io)"};
  const PlannedTensor usual(product_program({}, few)), planned(product_program({}, swapped));
  const auto rows = [](const PlannedTensor& plan) {
    std::vector<int> all;
    for (const nvptx::CircularBuffer& ring : plan.plan.circular_buffers) all.push_back(ring.rows);
    return all;
  };
  EXPECT_THAT(rows(usual), ::testing::Contains(nvptx::kWarpgroupRows));
  EXPECT_THAT(rows(planned), ::testing::Contains(16));
  EXPECT_EQ(planned.plan.row_tiles, 2);
  EXPECT_LT(planned.plan.shared_bytes, usual.plan.shared_bytes);
}

/// What is read once is the first to leave the L2 cache, where a schedule says so.
TEST(TensorProducts, copies_of_streamed_inputs_have_a_cache_policy) {
  const auto code = [](const std::vector<std::string>& more) {
    return compile_nvptx(product_program({}, {.columns = 128, .depth = 64, .more = more}), {}).kernel.code;
  };
  const std::string plain = code({}), streamed = code({"streaming(b)"});
  EXPECT_THAT(plain, Not(HasSubstr("L2::cache_hint")));
  EXPECT_THAT(streamed, HasSubstr("createpolicy.fractional.L2::evict_first.b64"));
  EXPECT_THAT(streamed, HasSubstr("L2::cache_hint"));
  EXPECT_THAT(code({"streaming(b)", "cluster(out.io, 2)"}), HasSubstr(".multicast::cluster.L2::cache_hint"));
  for (const std::string& text : {streamed, code({"streaming(b)", "cluster(out.io, 2)"})}) {
    const PtxasReport report = run_ptxas(text, "sm_90a");
    if (!report.available) GTEST_SKIP() << "no ptxas program here: set NESTOR_PTXAS";
    EXPECT_TRUE(report.accepted) << report.log;
  }
}

/// Both operands come from memory: there is no place for a test of terms, which are 0 beyond the ends of both alone.
TEST(TensorProducts, terms_left_out_within_the_operands_are_refused) {
  const auto refusal = [](Terms terms) -> std::string {
    try {
      const PlannedTensor planned(product_program({.terms = terms}));
      return "planned";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal(Terms::triangle), HasSubstr("sum adds up a part of its tile of a, and not up to the end of a: "));
  EXPECT_THAT(refusal(Terms::head), HasSubstr("sum adds up a part of its tile of a, and not up to the end of a: "));
}

TEST(TensorProducts, the_proof_tells_tiles_that_are_kept_from_those_that_are_given_back) {
  const PlannedTensor planned(product_program({}, {.stages = 2, .more = {"intra_warpgroup_overlap(out.io)"}}));
  const auto violations = [&](const auto& change) {
    nvptx::TensorPlan mutant = planned.plan;
    change(mutant, mutant.consumer.children.at(1));
    const auto found = check_tensor_plan(mutant).violations;
    return found.empty() ? "" : found.front();
  };
  const auto none = [](nvptx::TensorPlan&, nvptx::EventNode&) {};
  EXPECT_EQ(violations(none), "");
  EXPECT_THAT(violations([](nvptx::TensorPlan& plan, nvptx::EventNode&) { plan.circular_buffers[0].stages = 1; }),
              HasSubstr("has 1 stages where 2 tiles are held at once"));
  EXPECT_THAT(
      violations([](nvptx::TensorPlan&, nvptx::EventNode& whole) { whole.children.at(1).children.at(3).event.count = 2; }),
      HasSubstr("is released while product sum reads it"));
  EXPECT_THAT(violations([](nvptx::TensorPlan&, nvptx::EventNode& whole) {
                auto& body = whole.children.at(1).children;
                std::swap(body.at(2), body.at(6));
              }),
              Not(::testing::IsEmpty()));
  EXPECT_THAT(violations([](nvptx::TensorPlan&, nvptx::EventNode& whole) { whole.children.erase(whole.children.begin() + 2); }),
              HasSubstr("is released while product sum reads it"));
}

}  // namespace
}  // namespace nestor::testing
