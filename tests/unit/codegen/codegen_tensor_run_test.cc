// Tensor plans, run without a GPU, give what the operator means: for masks, ragged sizes, and every way to order their events.
#include "support/tensor/tensor_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace nestor::testing {
namespace {

using Case = NamedCase<AttentionForm, TensorSteps>;

std::vector<TensorShape> shapes_for(Seen seen) {
  if (seen == Seen::all) return {{1, 1}, {63, 65}, {64, 64}, {65, 63}, {200, 200}, {70, 1}, {30, 290}};
  if (seen == Seen::picture) return {{1, 1}, {64, 65}, {130, 140}, {200, 200}};
  if (seen == Seen::halves) return {{256, 256}, {200, 230}};
  if (seen == Seen::frames) return {{1, 1}, {19, 21}, {130, 140}, {200, 200}};
  if (seen == Seen::blocks) return {{1, 1}, {127, 129}, {190, 200}, {300, 300}};
  if (seen == Seen::causal) return {{1, 1}, {63, 63}, {64, 65}, {65, 65}, {200, 200}, {33, 170}};
  std::vector<TensorShape> with_prefix{{1, 1, 1}, {65, 130, 30}, {200, 200, 1}, {130, 200, 40}, {63, 65, 500}, {200, 200, 33}};
  for (std::size_t k = 0; k < with_prefix.size(); ++k) with_prefix[k].prefix = std::array{0, 90, 1, 30, 65, 300}.at(k);
  if (seen == Seen::sinks) return {with_prefix[3]};  // its proof takes seconds
  if (has_prefix(seen)) return with_prefix;
  return {{1, 1, 1}, {64, 64, 5}, {65, 130, 64}, {200, 200, 1}, {130, 200, 70}, {63, 65, 500}};
}

bool in_two_stretches(Seen seen) { return seen == Seen::sinks || seen == Seen::halves || seen == Seen::frames; }

class Attention : public ::testing::TestWithParam<Case> {};

void expect_definition(const Case& test) {
  const TileProgram program = tensor_program(attention_nest(test.form), test.steps);
  unsigned seed = 0;
  for (const TensorShape& shape : shapes_for(test.form.seen)) {
    const TensorRun options{.round_operands = false, .blocks = 2, .seed = ++seed};
    EXPECT_LT(tensor_error(program, shape, test.form.type, test.form.seen, true, options), 1e-9)
        << shape.queries << " x " << shape.keys;
  }
}

TEST_P(Attention, without_rounding_the_plan_is_the_definition) { expect_definition(GetParam()); }

/// Which compute capability 8.0 has not.
class AttentionInClusters : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionInClusters, without_rounding_the_plan_is_the_definition) { expect_definition(GetParam()); }

TEST_P(Attention, without_rounding_the_plan_of_compute_capability_8_is_the_definition) {
  const Seen seen = GetParam().form.seen;
  if (in_two_stretches(seen)) return;  // refused: see below
  TensorSteps steps = GetParam().steps;
  std::erase(steps.more, "ping_pong(out.io)");
  const std::vector<TensorShape> shapes = shapes_for(seen);
  for (std::size_t first = 0; first < std::min<std::size_t>(shapes.size(), 3); ++first) {
    steps.stages = 1 + static_cast<int>(first);
    const TileProgram program = tensor_program(attention_nest(GetParam().form), steps);
    for (std::size_t k = first; k < shapes.size(); k += 3) {
      const TensorRun options{.round_operands = false, .blocks = 2, .seed = static_cast<unsigned>(k) + 1};
      EXPECT_LT(tensor_error(program, shapes[k], GetParam().form.type, seen, true, options, older()), 1e-9)
          << shapes[k].queries << " x " << shapes[k].keys << ", " << steps.stages << " stages";
    }
  }
}

std::vector<Case> attention_cases() {
  std::vector<Case> result;
  const std::vector<std::string> plain{}, overlap{"intra_warpgroup_overlap(out.io)"},
      all{"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)", "a_from_registers(out.io)", "persistent(out.io, 1)"};
  for (const auto& [name, seen] :
       {std::pair("full", Seen::all), std::pair("causal", Seen::causal), std::pair("window", Seen::window),
        std::pair("prefix", Seen::prefix), std::pair("sinks", Seen::sinks), std::pair("picture", Seen::picture),
        std::pair("halves", Seen::halves), std::pair("frames", Seen::frames), std::pair("blocks", Seen::blocks)}) {
    const AttentionForm form{.seen = seen, .result = ElementType::f32, .depth = kTensorDepth};
    const TensorSteps one{.rows = 64, .columns = 32, .warpgroups = 1}, two{.rows = 128, .columns = 64};
    const auto with = [](TensorSteps steps, std::vector<std::string> more) {
      steps.more = std::move(more);
      return steps;
    };
    const std::string prefix = std::string(name) + "_";
    result.push_back({prefix + "plain", form, with(one, plain)});
    if (seen == Seen::picture) result.push_back({prefix + "everything", form, with(two, all)});
    if (seen == Seen::picture) continue;
    if (seen == Seen::frames) result.push_back({prefix + "two_warpgroups", form, with(two, {"ping_pong(out.io)"})});
    if (in_two_stretches(seen)) continue;  // without overlap
    AttentionForm own_powers = form;
    own_powers.own_powers = true;
    result.push_back({prefix + "sum_with_powers_of_its_own", own_powers, with(one, plain)});
    result.push_back({prefix + "everything", form, with(two, all)});
    result.push_back({prefix + "overlap", form, with(two, overlap)});
    result.push_back({prefix + "turns_in_persistent_blocks", form, with(one, {"ping_pong(out.io)", "persistent(out.io, 1)"})});
    result.push_back({prefix + "odd_tiles", form, with({.rows = 96, .columns = 40, .warpgroups = 3, .stages = 3}, overlap)});
    result.push_back(
        {prefix + "maximum_that_stays_behind",
         form,
         {.rules = lazy_rules(1), .columns = 24, .more = {"intra_warpgroup_overlap(out.io)", "unroll(total.jo, 2)"}}});
    result.push_back(
        {prefix + "two_row_tiles", form, with({.rows = 128, .columns = 24, .warpgroups = 1}, {"a_from_registers(out.io)"})});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Tensor, Attention, ::testing::ValuesIn(attention_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(TensorRuns, of_compute_capability_8_refuse_loops_that_leave_out_tiles_in_their_middle) {
  const TileProgram program = tensor_program(attention_nest({.seen = Seen::sinks}));
  try {
    const PlannedTensor planned(program, older());
    FAIL() << "planned";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("leaves out iterations in its middle"));
  }
}

std::vector<Case> cluster_cases() {
  std::vector<Case> result;
  for (const auto& [name, seen] :
       {std::pair("full", Seen::all), std::pair("causal", Seen::causal), std::pair("window", Seen::window)}) {
    const AttentionForm form{.seen = seen, .result = ElementType::f32, .depth = kTensorDepth};
    const std::string prefix = std::string(name) + "_";
    result.push_back({prefix + "pairs", form, {.rows = 128, .columns = 32, .warpgroups = 1, .more = {"cluster(out.io, 2)"}}});
    const std::vector<std::string> all{"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)", "a_from_registers(out.io)",
                                       "persistent(out.io, 1)", "cluster(out.io, 2)"};
    result.push_back({prefix + "everything", form, {.rows = 256, .columns = 64, .more = all}});
    const std::vector<std::string> four{"intra_warpgroup_overlap(out.io)", "cluster(out.io, 4)"};
    result.push_back({prefix + "four", form, {.rows = 160, .columns = 64, .warpgroups = 1, .more = four}});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Tensor, AttentionInClusters, ::testing::ValuesIn(cluster_cases()),
                         [](const auto& info) { return info.param.name; });

/// Heads of queries that share keys and values, several in a tile; compute capability 8.0 has no copies for them.
class AttentionInPacks : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionInPacks, without_rounding_the_plan_is_the_definition) {
  const Case& test = GetParam();
  const TileProgram program = tensor_program(attention_nest(test.form), test.steps);
  const PlannedTensor planned(program);
  EXPECT_EQ(planned.plan.pack, test.steps.pack);
  EXPECT_EQ(planned.ring("q").pack_index, 1);
  EXPECT_EQ(planned.ring("k").pack_index, -1);
  unsigned seed = 0;
  // Groups that fill their packs, that leave places empty, and single heads; rows that fill no tile.
  for (const auto& [group, queries, keys] :
       {std::tuple(8, 20, 33), std::tuple(5, 1, 70), std::tuple(1, 40, 40), std::tuple(3, 17, 65)}) {
    const TensorShape shape{.queries = queries, .keys = keys, .window = 9, .biased = test.form.biased, .group = group};
    const TensorRun options{.round_operands = false, .blocks = 2, .seed = ++seed};
    EXPECT_LT(tensor_error(program, shape, test.form.type, test.form.seen, true, options),
              test.form.result == ElementType::f32 ? 1e-9 : 6e-4)
        << group << " heads of " << queries << " x " << keys;
  }
}

std::vector<Case> pack_cases() {
  std::vector<Case> result;
  for (const auto& [name, seen] :
       {std::pair("full", Seen::all), std::pair("causal", Seen::causal), std::pair("window", Seen::window)}) {
    const AttentionForm form{.seen = seen, .result = ElementType::f32, .depth = kTensorDepth, .grouped = true};
    const AttentionForm half{.seen = seen, .depth = kTensorDepth, .biased = true, .grouped = true};
    const std::string prefix = std::string(name) + "_";
    result.push_back({prefix + "pairs", form, {.rows = 64, .columns = 32, .warpgroups = 1, .pack = 2}});
    const std::vector<std::string> all{"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)", "a_from_registers(out.io)",
                                       "persistent(out.io, 1)"};
    result.push_back({prefix + "everything", form, {.rows = 128, .columns = 64, .more = all, .pack = 4}});
    result.push_back({prefix + "two_row_tiles", form, {.rows = 128, .columns = 24, .warpgroups = 1, .stages = 3, .pack = 8}});
    const std::vector<std::string> cluster{"intra_warpgroup_overlap(out.io)", "cluster(out.io, 2)"};
    result.push_back({prefix + "clusters", form, {.rows = 256, .columns = 32, .more = cluster, .pack = 8}});
    result.push_back({prefix + "biased", half, {.rows = 64, .columns = 32, .warpgroups = 1, .pack = 4}});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Tensor, AttentionInPacks, ::testing::ValuesIn(pack_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(TensorRuns, blocks_of_a_cluster_share_out_wide_tiles_by_columns) {
  const AttentionForm form{.result = ElementType::f32, .depth = 128};
  const TileProgram program = tensor_program(
      attention_nest(form), {.rows = 256,
                             .columns = 32,
                             .more = {"intra_warpgroup_overlap(out.io)", "a_from_registers(out.io)", "cluster(out.io, 2)"}});
  const PlannedTensor planned(program);
  EXPECT_TRUE(planned.ring("k").shares_columns());
  EXPECT_EQ(planned.ring("k").copied_rows(), planned.ring("k").rows);
  for (const TensorShape& shape :
       {TensorShape{.queries = 130, .keys = 70, .depth = 128}, {.queries = 10, .keys = 33, .depth = 128}})
    EXPECT_LT(tensor_error(program, shape, form.type, Seen::all, true, {.round_operands = false}), 1e-9);
}

TEST(TensorRuns, elements_beside_products_are_of_a_blocks_own_rows) {
  const AttentionForm form{.result = ElementType::f32, .depth = kTensorDepth, .biased = true};
  const TileProgram program =
      tensor_program(attention_nest(form), {.rows = 128, .columns = 32, .warpgroups = 1, .more = {"cluster(out.io, 2)"}});
  const TensorShape shape{.queries = 150, .keys = 80, .biased = true};
  EXPECT_LT(tensor_error(program, shape, form.type, Seen::all, true, {.round_operands = false}), 1e-9);
}

TEST(TensorRuns, rounded_operands_and_results_stay_within_their_precision) {
  for (const auto& [type, tolerance] : {std::pair(ElementType::f16, 2e-3), std::pair(ElementType::bf16, 1.6e-2)}) {
    for (const Seen seen : {Seen::all, Seen::causal, Seen::window}) {
      const TileProgram program = tensor_program(attention_nest({seen, type, type, kTensorDepth}),
                                                 {.more = {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)"}});
      const double error = tensor_error(program, {130, 200, 70}, type, seen, true, {});
      EXPECT_LT(error, tolerance);
      EXPECT_GT(error, 0);  // operands were rounded indeed
    }
  }
}

TEST(TensorRuns, rows_that_fill_no_whole_step_or_block) {
  for (const int depth : {40, 72}) {  // products take 16 at a time, copies 64
    const AttentionForm form{.seen = Seen::causal, .result = ElementType::f32, .depth = depth};
    for (const char* more : {"intra_warpgroup_overlap(out.io)", "a_from_registers(out.io)"}) {
      const TileProgram program =
          tensor_program(attention_nest(form), {.rows = 64, .columns = 32, .warpgroups = 1, .more = {more}});
      EXPECT_LT(tensor_error(program, {65, 100, 0, depth}, form.type, form.seen, true, {.round_operands = false}), 1e-9) << depth;
    }
  }
}

TEST(TensorRuns, an_elementwise_operand_of_rows_and_columns_comes_through_a_ring) {
  for (const Seen seen : {Seen::all, Seen::causal}) {
    const AttentionForm form{.seen = seen, .result = ElementType::f32, .depth = kTensorDepth, .biased = true};
    for (const TensorSteps& steps : {TensorSteps{.rows = 64, .columns = 40, .warpgroups = 1},
                                     TensorSteps{.columns = 72,
                                                 .more = {"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)",
                                                          "a_from_registers(out.io)", "persistent(out.io, 1)"}}}) {
      const TileProgram program = tensor_program(attention_nest(form), steps);
      const PlannedTensor planned(program);
      const nvptx::CircularBuffer& bias = planned.ring("bias");
      EXPECT_TRUE(bias.streamed);
      EXPECT_EQ(bias.rows, planned.plan.rows());
      EXPECT_EQ(planned.op("score").read_rings.size(), 1U);
      for (const TensorShape& shape : {TensorShape{65, 100}, TensorShape{130, 144}, TensorShape{1, 1}}) {
        TensorShape biased = shape;
        biased.biased = true;
        EXPECT_LT(tensor_error(program, biased, form.type, seen, true, {.round_operands = false, .blocks = 2}), 1e-9)
            << shape.queries << " x " << shape.keys;
      }
    }
  }
}

class TwoMaps : public ::testing::TestWithParam<std::tuple<Seen, std::vector<std::string>>> {};

TEST_P(TwoMaps, that_share_their_values_are_the_definition) {
  const auto& [seen, more] = GetParam();
  const AttentionForm form{.seen = seen, .result = ElementType::f32, .depth = kTensorDepth, .maps = 2};
  const TileProgram program = tensor_program(attention_nest(form), {.rules = two_map_rules(), .columns = 48, .more = more});
  unsigned seed = 0;
  for (TensorShape shape : shapes_for(seen)) {
    if (++seed % 2 == more.size() % 2) continue;  // half of the shapes with each plan, as a run takes a second
    shape.maps = 2;
    const TensorRun options{.round_operands = false, .blocks = 2, .seed = seed};
    EXPECT_LT(tensor_error(program, shape, form.type, seen, true, options), 1e-9) << shape.queries << " x " << shape.keys;
    if (more.front() != "intra_warpgroup_overlap(out.io)") continue;
    EXPECT_LT(tensor_error(program, shape, form.type, seen, true, options, older()), 1e-9)
        << "sm_80, " << shape.queries << " x " << shape.keys;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tensor, TwoMaps,
    ::testing::Combine(::testing::Values(Seen::all, Seen::causal, Seen::window),
                       ::testing::Values(std::vector<std::string>{"ping_pong(out.io)"},
                                         std::vector<std::string>{"intra_warpgroup_overlap(out.io)", "early_release(out.io)"},
                                         std::vector<std::string>{"intra_warpgroup_overlap(out.io, 1)", "ping_pong(out.io)"},
                                         std::vector<std::string>{"intra_warpgroup_overlap(out.io, 2)"},
                                         std::vector<std::string>{"intra_warpgroup_overlap(out.io, 2)", "early_release(out.io)",
                                                                  "ping_pong(out.io)", "a_from_registers(out.io)",
                                                                  "persistent(out.io, 1)"})));

TEST(TensorRuns, two_products_that_are_no_attention) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"intra_warpgroup_overlap(out.io)"}}) {
    const TileProgram program =
        tensor_program(linear_attention_nest(ElementType::f16, kTensorDepth), {.rules = {}, .columns = 32, .more = more});
    for (const TensorShape& shape : shapes_for(Seen::causal)) {
      EXPECT_LT(tensor_error(program, shape, ElementType::f16, Seen::causal, false, {.round_operands = false}), 1e-9);
      EXPECT_LT(tensor_error(program, shape, ElementType::f16, Seen::causal, false, {}), 4e-3);
    }
  }
}

}  // namespace
}  // namespace nestor::testing
