// Loop steps: what each does to the tree, to the forms and to the legality of an order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isl/schedule.h>

#include "poly/algebra/all_rules.h"
#include "poly/nest/nest_json.h"
#include "poly/schedule/order/loop_tree.h"
#include "poly/schedule/schedule.h"
#include "poly/schedule/steps/step_table.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/nests/apply_steps.h"
#include "support/nests/sample_nests.h"

namespace nestor {
namespace {

using testing::apply_steps;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal_of;

/// Nine-point sweeps in place: every loop carries a dependence, one of them against the order of x.
Nest nine_point_sweeps() {
  return samples::NestBuilder("sweeps", {{"T", 3}, {"N", 8}})
      .context("N >= 3")
      .tensor("A", TensorRole::output, {"N", "N"})
      .statement("sweep[t, y, x] : 0 <= t < T and 1 <= y < N - 1 and 1 <= x < N - 1", "A[y, x]",
                 {"A[y - 1, x - 1]", "A[y - 1, x]", "A[y - 1, x + 1]", "A[y, x - 1]", "A[y, x]", "A[y, x + 1]", "A[y + 1, x - 1]",
                  "A[y + 1, x]", "A[y + 1, x + 1]"},
                 samples::read(0))
      .build();
}

/// b = f(a) and c = g(b at i - 1, i, i + 1).
Nest two_stages() {
  return samples::NestBuilder("two_stages", {{"N", 16}})
      .context("N >= 3")
      .tensor("a", TensorRole::input, {"N"})
      .tensor("b", TensorRole::temporary, {"N"})
      .tensor("c", TensorRole::output, {"N"})
      .statement("first[i] : 0 <= i < N", "b[i]", {"a[i]"}, samples::read(0))
      .statement("second[i] : 1 <= i < N - 1", "c[i]", {"b[i - 1]", "b[i]", "b[i + 1]"}, samples::read(0))
      .build();
}

TEST(Schedule, starts_in_the_original_order) {
  const Schedule schedule{samples::matmul()};
  EXPECT_EQ(schedule.tree()->children.size(), 2u);
  EXPECT_THAT(schedule.loops_of("C_update"), ElementsAre("C_update.i", "C_update.j", "C_update.k"));
  EXPECT_THAT(schedule.str(), HasSubstr("for C_update.k in [0, K):"));
  EXPECT_TRUE(schedule.steps().empty());
}

TEST(Schedule, what_was_tried_before_comes_to_the_same) {
  const Schedule schedule{nine_point_sweeps()};
  const auto split = [](std::int64_t factor) { return parse_step("split(sweep.y, " + std::to_string(factor) + ", o, i)"); };
  const Step illegal = parse_step("parallel(sweep.t)");
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(schedule.try_apply(illegal));
    EXPECT_FALSE(schedule.try_apply(parse_step("split(nowhere, 4, o, i)")));
    for (std::int64_t factor = 2; factor < 100; ++factor) {  // more than are kept
      const auto found = schedule.try_apply(split(factor));
      ASSERT_TRUE(found);
      EXPECT_EQ(found->str(), schedule.apply(split(factor)).str());
      EXPECT_EQ(found->steps().size(), 1u);
    }
    const auto found = schedule.try_apply(split(4));
    EXPECT_FALSE(found->try_apply(split(4))) << "there is no loop sweep.y any more";
    EXPECT_TRUE(schedule.try_apply(split(4)));
  }
  EXPECT_TRUE(schedule.steps().empty());
}

TEST(Schedule, statements_of_one_group_share_their_loops) {
  const Nest nest = samples::NestBuilder("pair", {{"N", 4}})
                        .tensor("a", TensorRole::output, {"N"})
                        .tensor("b", TensorRole::output, {"N"})
                        .statement("one[i] : 0 <= i < N", "a[i]", {}, samples::number(1))
                        .statement("two[i] : 0 <= i < N", "b[i]", {"a[i]"}, samples::read(0))
                        .join_last()
                        .build();
  const Schedule schedule{nest};
  EXPECT_THAT(schedule.loops_of("two"), ElementsAre("one.i"));
  EXPECT_NO_THROW(schedule.apply(parse_step("parallel(i)")));
}

TEST(Schedule, split_keeps_a_one_to_one_relation) {
  const Schedule schedule = apply_steps(Schedule{samples::matmul()}, {"split(k, 4, ko, ki)"});
  const isl::map relation = schedule.loop_relation("C_update");
  EXPECT_TRUE(relation.is_bijective());
  const isl::map expected(isl_context(),
                          "[M, N, K] -> { C_update[i, j, k] -> [i, j, ko, ki] : k = 4ko + ki and 0 <= ki < 4 and 0 <= i < M and "
                          "0 <= j < N and 0 <= k < K }");
  EXPECT_TRUE(relation.is_equal(expected));
}

TEST(Schedule, a_name_may_be_reused_by_its_own_split) {
  const Schedule schedule = apply_steps(Schedule{samples::matmul()}, {"split(k, 4, k, ki)", "split(k, 2, k, kj)"});
  EXPECT_THAT(schedule.loops_of("C_update"), ElementsAre("C_update.i", "C_update.j", "k", "kj", "ki"));
  EXPECT_TRUE(schedule.loop_relation("C_update").is_bijective());
}

TEST(Schedule, tile_splits_and_reorders) {
  const Schedule schedule = apply_steps(Schedule{samples::matmul()}, {"tile(C_update.i, C_update.j, io, jo, ii, ji, 8, 16)"});
  EXPECT_THAT(schedule.loops_of("C_update"), ElementsAre("io", "jo", "ii", "ji", "C_update.k"));
}

TEST(Schedule, reorder_of_independent_loops_is_legal_around_a_reduction) {
  const Schedule schedule = apply_steps(Schedule{samples::matmul()}, {"reorder(C_update.k, C_update.i, C_update.j)"});
  EXPECT_THAT(schedule.loops_of("C_update"), ElementsAre("C_update.k", "C_update.i", "C_update.j"));
}

TEST(Schedule, reversing_a_reduction_needs_reassociation) {
  const Schedule schedule{samples::matmul()};
  EXPECT_THAT(refusal_of(schedule, "reverse(C_update.k)"), HasSubstr("apply_rule(reassociate)"));
  const Schedule free = apply_steps(schedule, {"apply_rule(reassociate)", "reverse(C_update.k)", "vectorize(C_update.k)"});
  EXPECT_TRUE(free.reassociation_allowed());
}

TEST(Schedule, a_parallel_reduction_is_refused_even_if_it_may_be_regrouped) {
  const Schedule schedule = apply_steps(Schedule{samples::matmul()}, {"apply_rule(reassociate)"});
  const std::string message = refusal_of(schedule, "parallel(C_update.k)");
  EXPECT_THAT(message,
              HasSubstr("C_update[i=0, j=0, k=0] must come before C_update[i=0, j=0, k=1] (flow through C, a reduction)"));
  EXPECT_THAT(message, HasSubstr("split_reduction, C_update"));
  EXPECT_THAT(refusal_of(schedule, "gpu_blocks(C_update.i, C_update.k)"), HasSubstr("split_reduction"));
  EXPECT_EQ(refusal_of(schedule, "gpu_lanes(C_update.k)"), "");
}

TEST(Schedule, sweeps_in_place_are_refused_in_parallel_and_accepted_as_a_wavefront) {
  const Schedule schedule{nine_point_sweeps()};
  for (const std::string loop : {"t", "y", "x"}) {
    const std::string message = refusal_of(schedule, "parallel(" + loop + ")");
    EXPECT_THAT(message, HasSubstr("is illegal: sweep[t=")) << loop;
    EXPECT_THAT(message, HasSubstr("skew(")) << loop;
  }
  EXPECT_THAT(refusal_of(schedule, "parallel(x)"),
              HasSubstr("apply skew(sweep.y, sweep.x, 2), reorder(sweep.x, sweep.y), then parallel(sweep.y)"));
  const Schedule wave = apply_steps(schedule, {"skew(y, x, 2)", "reorder(x, y)", "parallel(y)"});
  EXPECT_THAT(wave.loops_of("sweep"), ElementsAre("sweep.t", "sweep.x", "sweep.y"));
}

TEST(Schedule, sweeps_in_place_are_refused_in_tiles_and_accepted_after_a_skew) {
  const Schedule schedule{nine_point_sweeps()};
  const std::string message = refusal_of(schedule, "tile(y, x, yo, xo, yi, xi, 4, 4)");
  EXPECT_THAT(message, HasSubstr("flow through A"));
  EXPECT_THAT(message, HasSubstr("apply skew(sweep.y, sweep.x, 1), then tile("));
  const Schedule tiled = apply_steps(schedule, {"skew(y, x, 1)", "tile(y, x, yo, xo, yi, xi, 4, 4)"});
  EXPECT_TRUE(tiled.loop_relation("sweep").is_bijective());
  EXPECT_THAT(refusal_of(schedule, "tile(t, y, to, yo, ti, yi, 2, 4)"), HasSubstr("skew(sweep.t, sweep.y, 1)"));
  EXPECT_NO_THROW(apply_steps(schedule, {"skew(t, y, 1)", "tile(t, y, to, yo, ti, yi, 2, 4)"}));
}

TEST(Schedule, time_and_space_of_a_sweep_can_be_tiled_together_after_skewing_both) {
  const Schedule schedule = apply_steps(Schedule{nine_point_sweeps()},
                                        {"skew(t, y, 1)", "skew(t, x, 1)", "skew(y, x, 1)", "split(t, 2, to, ti)",
                                         "split(y, 8, yo, yi)", "split(x, 8, xo, xi)", "reorder(to, yo, xo, ti, yi, xi)"});
  EXPECT_TRUE(schedule.loop_relation("sweep").is_bijective());
}

TEST(Schedule, fusion_of_a_stencil_needs_a_shift_and_says_so) {
  const Schedule schedule{two_stages()};
  const std::string message = refusal_of(schedule, "fuse_with(first.i, second.i)");
  EXPECT_THAT(message, HasSubstr("first[i=2] must come before second[i=1] (flow through b)"));
  EXPECT_THAT(message, HasSubstr("apply shift(second, second.i, 1), then fuse_with(first.i, second.i)"));
  const Schedule fused = apply_steps(schedule, {"shift(second, second.i, 1)", "fuse_with(first.i, second.i)"});
  EXPECT_THAT(fused.loops_of("first"), ElementsAre("second.i"));
  EXPECT_THAT(refusal_of(fused, "parallel(second.i)"), HasSubstr("fission(second.i, second)"));
  EXPECT_THAT(refusal_of(fused, "shift(second, second.i, -1)"), HasSubstr("is illegal"));
}

TEST(Schedule, fission_takes_fusion_back) {
  const Schedule schedule =
      apply_steps(Schedule{two_stages()}, {"shift(second, second.i, 1)", "fuse_with(first.i, second.i)",
                                           "fission(second.i, second)", "parallel(second.i)", "parallel(second.i_f)"});
  EXPECT_THAT(schedule.loops_of("first"), ElementsAre("second.i"));
  EXPECT_THAT(schedule.loops_of("second"), ElementsAre("second.i_f"));
}

TEST(Schedule, fusion_moves_the_producer_down_to_the_consumer) {
  const Schedule schedule{samples::row_norm()};
  const Schedule fused =
      apply_steps(schedule, {"fuse_with(variance_update.i, out.i)", "fuse_with(variance_init.i, out.i)",
                             "fuse_with(mean_update.i, out.i)", "fuse_with(mean_init.i, out.i)", "parallel(out.i)"});
  EXPECT_EQ(fused.tree()->children.size(), 1u);
  EXPECT_THAT(refusal_of(schedule, "fuse_with(mean_init.i, out.i)"),
              HasSubstr("mean_init[i=0] must come before mean_update[i=0, k=0]"));
}

TEST(Schedule, fusion_past_a_sibling_suggests_what_to_fuse_first) {
  const Schedule schedule{samples::row_norm()};
  EXPECT_THAT(refusal_of(schedule, "fuse_with(variance_init.i, out.i)"),
              HasSubstr("apply fuse_with(variance_update.i, out.i), then fuse_with(variance_init.i, out.i)"));
}

TEST(Schedule, compute_at_matches_loops_by_value) {
  const Schedule schedule =
      apply_steps(Schedule{samples::matmul()}, {"reorder(C_update.j, C_update.i, C_update.k)", "compute_at(C_init, C_update.i)"});
  EXPECT_THAT(schedule.loops_of("C_init"), ElementsAre("C_update.j", "C_update.i"));
  EXPECT_THAT(refusal_of(Schedule{samples::matmul()}, "compute_at(C_init, C_update.k)"),
              HasSubstr("no loop left to run along with C_update.k"));
}

TEST(Schedule, compute_at_follows_tiles_that_were_split_alike) {
  const std::vector<std::string> tiles{"tile(C_update.i, C_update.j, io, jo, ii, ji, 8, 16)"};
  const Schedule schedule = apply_steps(Schedule{samples::matmul()}, tiles);
  EXPECT_THAT(refusal_of(schedule, "compute_at(C_init, jo)"), HasSubstr("split or reorder C_init's loops the same way first"));
  const Schedule same = apply_steps(schedule, {"tile(C_init.i, C_init.j, ai, aj, bi, bj, 8, 16)", "compute_at(C_init, jo)"});
  EXPECT_THAT(same.loops_of("C_init"), ElementsAre("io", "jo", "bi", "bj"));
  EXPECT_THAT(refusal_of(same, "compute_at(C_init, jo)"), HasSubstr("inside loop jo already"));
}

TEST(Schedule, undo_is_keeping_the_old_value) {
  const Schedule before{samples::matmul()};
  const Schedule after = before.apply(parse_step("split(k, 4, ko, ki)"));
  EXPECT_EQ(before.steps().size(), 0u);
  EXPECT_EQ(after.steps().size(), 1u);
  EXPECT_THAT(before.loops_of("C_update"), ElementsAre("C_update.i", "C_update.j", "C_update.k"));
}

TEST(Schedule, stages_follow_their_loop) {
  const Schedule schedule = apply_steps(Schedule{samples::matmul()}, {"stage(A, C_update.i, 2)", "split(C_update.i, 8, io, ii)"});
  ASSERT_EQ(schedule.stages().size(), 1u);
  EXPECT_EQ(schedule.stages()[0].loop, "ii");
  EXPECT_EQ(schedule.stages()[0].stages, 2);
}

TEST(Schedule, marks_show_in_the_code) {
  const Schedule schedule = apply_steps(
      Schedule{samples::matmul()},
      {"parallel(C_update.i)", "vectorize(C_update.j, 8)", "specialize(C_update.i)", "streaming(C)", "stage(B, C_update.i)"});
  EXPECT_THAT(schedule.str(), HasSubstr("parallel for C_update.i in [0, M):  # full tiles apart  # B staged"));
  EXPECT_THAT(schedule.str(), HasSubstr("vectorize(8) for C_update.j in [0, N):"));
  EXPECT_THAT(schedule.streaming_tensors(), ElementsAre("C"));
}

TEST(Schedule, isl_tree_has_the_order_of_the_loops) {
  const Schedule schedule =
      apply_steps(Schedule{samples::matmul()}, {"tile(C_update.i, C_update.j, io, jo, ii, ji, 8, 16)", "parallel(io)"});
  const isl::schedule tree = schedule.isl_tree();
  const isl::union_map order = isl::manage(isl_schedule_get_map(tree.get()));
  const isl::union_map expected(
      isl_context(),
      "[M, N, K] -> { C_init[i, j] -> [0, i, j, 0, 0, 0]; C_update[i, j, k] -> [1, io, jo, ii, ji, k] : "
      "i = 8io + ii and 0 <= ii < 8 and j = 16jo + ji and 0 <= ji < 16 }");
  EXPECT_TRUE(order.intersect_domain(tree.domain()).is_equal(expected.intersect_domain(tree.domain()))) << order;
}

TEST(Schedule, json_round_trip_replays_every_step) {
  const Nest nest = samples::matmul();
  const Schedule schedule =
      apply_steps(Schedule{nest}, {"tile(C_update.i, C_update.j, io, jo, ii, ji, 8, 16)", "parallel(io)", "vectorize(ji, 8)"});
  const nlohmann::json json = schedule_to_json(schedule);
  EXPECT_EQ(json["nest"], digest(nest));
  EXPECT_EQ(schedule_from_json(nest, nlohmann::json::parse(json.dump())).str(), schedule.str());
}

TEST(Step, text_and_json_round_trip) {
  const Step step = parse_step(" split( i , 32, io, ii ) ");
  EXPECT_EQ(describe(step), "split(i, 32, io, ii)");
  EXPECT_EQ(describe(parse_step("split i 32 io ii")), describe(step));
  EXPECT_TRUE(step.args[1].is_number_integer());
  EXPECT_EQ(parse_step("skew(y, x, -2)").args[2], -2);
  EXPECT_EQ(describe(step_from_json(step_to_json(step))), describe(step));
  EXPECT_EQ(describe(step_from_json("reverse(i)")), "reverse(i)");
}

/// Steps of stored records and files, and what they are called today.
const std::vector<std::pair<std::string, std::string>>& old_spellings() {
  static const std::vector<std::pair<std::string, std::string>> spellings{
      {"gpu_warps(C_update.j)", "gpu_lanes(C_update.j)"},
      {"tensor_cores(C_update.i, 2, 3)", "tensor_cores(C_update.i, 2, 3)"},
      {"overlap(C_update.i)", "intra_warpgroup_overlap(C_update.i)"},
      {"overlap(C_update.i, 2)", "intra_warpgroup_overlap(C_update.i, 2)"},
      {"turns(C_update.i)", "ping_pong(C_update.i)"},
      {"hold(C_update.i)", "a_from_registers(C_update.i)"},
      {"stagger(C_update.i)", "early_release(C_update.i)"},
      {"polynomial(C_update.i, 8)", "exp2_polynomial(C_update.i, 8)"},
      {"persistent(C_update.i, 2)", "persistent(C_update.i, 2)"},
      {"residents(C_update.i, 2)", "min_blocks(C_update.i, 2)"},
      {"claims(C_update.i)", "dynamic_scheduler(C_update.i)"},
      {"cluster(C_update.i, 2)", "cluster(C_update.i, 2)"},
      {"stage(A, C_update.i, registers)", "stage(A, C_update.i)"},
      {"stage(A, C_update.i, shared, 3)", "stage(A, C_update.i, 3)"},
      {"stage(A, C_update.i, scratch, 2)", "stage(A, C_update.i, 2)"}};
  return spellings;
}

TEST(Step, old_spellings_are_read_as_what_they_are_called_today) {
  for (const auto& [old, today] : old_spellings()) {
    const Step step = parse_step(old);
    EXPECT_EQ(describe(step), today);
    // As records have them.
    const std::string name = old.substr(0, old.find('('));
    nlohmann::json args = nlohmann::json::array();
    for (const nlohmann::json& arg : parse_step("reorder" + old.substr(name.size())).args) args.push_back(arg);
    EXPECT_EQ(describe(step_from_json({{"name", name}, {"args", args}})), today);
  }
}

TEST(Step, schedules_of_old_spellings_replay_and_are_written_in_new_ones) {
  const Nest nest = samples::matmul();
  nlohmann::json steps = nlohmann::json::array({"gpu_blocks(C_update.i)"});
  Schedule expected = Schedule{nest}.apply(parse_step("gpu_blocks(C_update.i)"));
  std::vector<std::string> written{"gpu_blocks(C_update.i)"};
  for (const auto& [old, today] : old_spellings()) {
    steps.push_back(old);
    expected = expected.apply(parse_step(today));
    written.push_back(today);
  }
  const Schedule replayed = schedule_from_json(nest, {{"nest", digest(nest)}, {"steps", steps}});
  EXPECT_EQ(replayed.str(), expected.str());
  std::vector<std::string> texts;
  const nlohmann::json json = schedule_to_json(replayed);
  for (const nlohmann::json& step : json.at("steps")) texts.push_back(describe(step_from_json(step)));
  EXPECT_EQ(texts, written);
  EXPECT_EQ(json.at("steps")[5].at("name"), "ping_pong");
}

TEST(Step, every_knob_that_is_searched_comes_back_from_the_steps_that_set_it) {
  const Schedule grid = apply_steps(Schedule{samples::matmul()}, {"gpu_blocks(C_update.i)"});
  for (const KnobStep& known : knob_steps()) {
    for (const Knob& knob : known.knobs) {
      for (const std::int64_t value : knob.searched) {
        LoopKnobs wanted{{"warpgroups", 2}, {"persistent", 3}};  // what other steps need
        wanted[knob.name] = value;
        std::erase_if(wanted, [](const auto& entry) { return entry.second == knob_named(entry.first).otherwise; });
        Schedule schedule = grid;
        for (const Step& step : steps_that_set("C_update.i", wanted)) schedule = schedule.apply(step);
        EXPECT_EQ(find_loop(schedule.tree(), "C_update.i")->knobs, wanted) << knob.name << " = " << value;
        EXPECT_EQ(loop_knobs(grid_shape(wanted)), wanted) << knob.name << " = " << value;
        EXPECT_THAT(schedule.str(), HasSubstr(describe(wanted))) << knob.name << " = " << value;
      }
    }
  }
}

TEST(Step, knobs_are_printed_in_the_words_of_their_steps) {
  EXPECT_EQ(describe(LoopKnobs{}), "");
  EXPECT_EQ(describe(LoopKnobs{{"threads", 256}, {"cluster", 4}}), "256 threads, clusters of 4 blocks");
  EXPECT_EQ(describe(LoopKnobs{{"warpgroups", 2}, {"intra_warpgroup_overlap", 1}}),
            "2 warpgroups on tensor cores, 2 stages, intra-warpgroup overlap");
  EXPECT_EQ(describe(LoopKnobs{{"warpgroups", 2}, {"stages", 3}, {"intra_warpgroup_overlap", 3}}),
            "2 warpgroups on tensor cores, 3 stages, intra-warpgroup overlap chain by chain, 2 in flight");
}

TEST(Step, every_step_has_help) {
  EXPECT_GE(step_help().size(), 30u);
  for (const StepHelp& help : step_help()) {
    EXPECT_FALSE(help.arguments.empty()) << help.name;
    EXPECT_FALSE(help.help.empty()) << help.name;
  }
}

TEST(Step, rules_are_found_beside_sums_without_terms) {
  Nest nest = samples::row_norm();
  for (Statement& statement : nest.statements) {
    if (statement.name == "variance_update") statement.domain = isl::set::empty(statement.domain.space());
  }
  const Schedule split = Schedule(nest).apply({"apply_rule", {"split_reduction", "variance_update", "k", "p", 3}});
  EXPECT_TRUE(split.nest().statement("variance_update_part").domain.is_empty());
  for (const Rule& rule : rules()) EXPECT_NO_THROW(rule.find(split.nest())) << rule.name;
}

}  // namespace
}  // namespace nestor
