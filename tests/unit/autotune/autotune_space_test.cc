// The space of a nest comes from its structure: points give legal schedules, with the fusion that the algebra allows.
#include "autotune/space/nest/nest_space.h"

#include "autotune/space/structure/nest_analysis.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/work_floor.h"
#include "codegen/gpu/backend.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"
#include "support/nests/tensor_nests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

namespace nestor {
namespace {

using samples::Mask;

struct Problem {
  explicit Problem(const Nest& nest, int threads = 2, std::int64_t scratch_bytes = 1 << 20)
      : sizes(complete_sizes(nest, {})),
        schedules(nest),
        space(make_nest_space(schedules, sizes, {threads, scratch_bytes, 8 << 20, 8, std::nullopt})) {}
  Schedule replay(const Point& point) {
    const Candidate candidate = space->candidate(point);
    if (!candidate.infeasible.empty()) user_error("infeasible: {}", candidate.infeasible);
    return schedules.replay(candidate.steps);
  }
  Sizes sizes;
  BaseSchedules schedules;
  std::unique_ptr<Space> space;
};

int count_loops(const TreeNode& node, LoopKind kind) {
  int count = node.kind == TreeNode::Kind::loop && node.loop_kind == kind ? 1 : 0;
  for (const Tree& child : node.children) count += count_loops(*child, kind);
  return count;
}

bool share_loop(const Schedule& schedule, const std::string& a, const std::string& b, std::size_t depth) {
  const auto first = schedule.loops_of(a), second = schedule.loops_of(b);
  return first.size() > depth && second.size() > depth && first[depth] == second[depth];
}

std::vector<Nest> nests() {
  return {samples::matmul(96, 80, 72),
          samples::row_norm(64, 128),
          samples::scores_softmax_values(Mask::none, 128, 128, 32),
          samples::scores_softmax_values(Mask::domain, 128, 128, 32),
          samples::stencil2d(4, 40, 40),
          samples::seidel(4, 40, 40),
          samples::row_gradient(96, 64)};
}

TEST(NestSpace, TheBestGuessAndTheBaselineAreLegal) {
  for (const Nest& nest : nests()) {
    Problem problem(nest);
    const Schedule guess = problem.replay(problem.space->defaults().front());
    const Schedule baseline = problem.replay(problem.space->baseline());
    if (std::getenv("NESTOR_TEST_SHOW")) {
      fmt::print("{}: {}\n{}\n", nest.op, describe(*problem.space), guess.str());
      for (const Step& step : guess.steps()) fmt::print("  {}\n", describe(step));
    }
    EXPECT_TRUE(std::none_of(baseline.steps().begin(), baseline.steps().end(), [](const Step& s) {
      return s.name != "parallel";
    })) << nest.op;
  }
}

TEST(NestSpace, RandomPointsAreMostlyLegalAndNeverFailOtherwise) {
  for (const Nest& nest : nests()) {
    Problem problem(nest);
    std::uint64_t state = 12345;
    int legal = 0, feasible = 0;
    for (int trial = 0; trial < 12; ++trial) {
      Point point;
      for (const Parameter& parameter : problem.space->parameters()) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        point.push_back(static_cast<int>((state >> 33) % parameter.choices.size()));
      }
      const Candidate candidate = problem.space->candidate(point);
      if (!candidate.infeasible.empty()) continue;
      ++feasible;
      try {
        problem.schedules.replay(candidate.steps);
        ++legal;
      } catch (const UserError& error) {
        if (std::getenv("NESTOR_TEST_SHOW")) fmt::print("{}: {}\n", nest.op, error.what());
      }
    }
    EXPECT_GT(feasible, 0) << nest.op;
    EXPECT_GE(4 * legal, 3 * feasible) << nest.op;
  }
}

TEST(NestSpace, TheSamePointGivesTheSameSteps) {
  const Nest nest = samples::row_norm(64, 128);
  Problem first(nest), second(nest);
  for (const Point& point : first.space->defaults()) {
    const auto a = first.space->candidate(point), b = second.space->candidate(point);
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (std::size_t k = 0; k < a.steps.size(); ++k) EXPECT_EQ(describe(a.steps[k]), describe(b.steps[k]));
  }
}

TEST(NestSpace, CompositesLetAllStatementsShareTheReductionLoop) {
  Problem problem(samples::scores_softmax_values(Mask::none, 256, 512, 64));
  const Point guess = problem.space->defaults().front();
  const Schedule with = problem.replay(guess);
  EXPECT_TRUE(share_loop(with, "Mx_update", "PV_update", 1)) << with.str();
  EXPECT_FALSE(with.active_composites().empty());
  // The same point without the rule: two passes over the streamed axis.
  Point without = guess;
  for (std::size_t k = 0; k < without.size(); ++k) {
    if (problem.space->parameters()[k].name == "rule.online") without[k] = 1;
  }
  const Schedule two_pass = problem.replay(without);
  EXPECT_TRUE(share_loop(two_pass, "Mx_update", "PV_update", 0)) << two_pass.str();
  EXPECT_FALSE(share_loop(two_pass, "Mx_update", "PV_update", 1)) << two_pass.str();
}

TEST(NestSpace, LargerTilesOfAStreamedReductionAreGuessed) {
  Problem problem(samples::scores_softmax_values(Mask::none, 512, 1024, 64), 2, 4 << 20);
  std::map<std::int64_t, std::set<std::int64_t>> rows;  // by the reduction's tile
  for (const Point& point : problem.space->defaults()) {
    const auto values = named_values(*problem.space, point);
    for (const auto& [name, value] : values) {
      if (name.starts_with("tile.") && value > 64 && problem.space->candidate(point).infeasible.empty())
        rows[values.at("reduction_tile")].insert(value);
    }
  }
  EXPECT_EQ(rows[256], (std::set<std::int64_t>{128, 256}));
  EXPECT_EQ(rows[512], (std::set<std::int64_t>{256}));
}

/// Each task packs its operands: a task a thread, two and four, as square as they can be.
TEST(NestSpace, LargeTilesOfAProductAreGuessed) {
  Problem problem(samples::matmul(1024, 1024, 256));
  std::set<std::pair<std::int64_t, std::int64_t>> tiles;
  for (const Point& point : problem.space->defaults()) {
    const auto values = named_values(*problem.space, point);
    tiles.emplace(values.at("tile.i"), values.at("tile.j"));
  }
  for (const auto& wanted : {std::pair<std::int64_t, std::int64_t>{0, 512}, {512, 512}, {512, 256}}) {
    EXPECT_TRUE(tiles.contains(wanted)) << wanted.first << " x " << wanted.second;
  }
}

TEST(NestSpace, RowsOfANormalisationAreFusedAndRunInParallel) {
  Problem problem(samples::row_norm(64, 128));
  const Schedule guess = problem.replay(problem.space->defaults().front());
  EXPECT_TRUE(share_loop(guess, "mean_update", "out", 0)) << guess.str();
  EXPECT_EQ(count_loops(*guess.tree(), LoopKind::parallel), 1) << guess.str();
}

TEST(NestSpace, StretchesOfAFewRowsAreGuessed) {
  Problem problem(samples::row_norm(64, 1024));
  bool found = false;
  for (const Point& point : problem.space->defaults()) {
    const auto values = named_values(*problem.space, point);
    if (values.at("reduction_axis") < 0) continue;
    found = true;
    EXPECT_EQ(values.at("reduction_tile"), 64);
    EXPECT_TRUE(std::any_of(values.begin(), values.end(),
                            [](const auto& named) { return named.first.starts_with("tile.") && named.second == 4; }));
    EXPECT_NO_THROW(problem.replay(point));
  }
  EXPECT_TRUE(found);
}

TEST(NestSpace, OneThreadMeansNoParallelLoops) {
  Problem problem(samples::row_norm(64, 128), 1);
  const Schedule guess = problem.replay(problem.space->defaults().front());
  EXPECT_EQ(count_loops(*guess.tree(), LoopKind::parallel), 0) << guess.str();
}

TEST(NestSpace, SumsOverRowsMeetTheRowsThatTheyAreSumsOf) {
  Problem problem(samples::row_gradient(96, 64));
  const auto& parameters = problem.space->parameters();
  auto values = named_values(*problem.space, problem.space->defaults().front());
  EXPECT_EQ(values.at("split_axis"), -1);
  bool met = false;
  for (const Parameter& parameter : parameters) {
    if (parameter.name != "split_axis") continue;
    for (const std::int64_t axis : parameter.choices) {
      values["split_axis"] = axis;
      values["num_splits"] = 8;
      const Schedule schedule = problem.replay(*point_from(*problem.space, values));
      if (schedule.nest().find_statement("dw_update_part") == nullptr) continue;
      met = true;
      for (const char* statement : {"s_update", "dx", "dw_update_part"}) {
        EXPECT_TRUE(share_loop(schedule, statement, "db_update_part", 0)) << schedule.str();  // the parts
        EXPECT_TRUE(share_loop(schedule, statement, "db_update_part", 1)) << schedule.str();  // the rows of one
      }
      EXPECT_FALSE(share_loop(schedule, "dw_update_combine", "db_update_part", 0)) << schedule.str();
      EXPECT_EQ(count_loops(*schedule.tree(), LoopKind::parallel), 2) << schedule.str();
    }
  }
  EXPECT_TRUE(met);
}

TEST(NestSpace, ATimeStencilRunsInParallelWithinEachStepAndASkewTilesTime) {
  Problem problem(samples::stencil2d(8, 40, 40));
  const Schedule guess = problem.replay(problem.space->defaults().front());
  EXPECT_GE(count_loops(*guess.tree(), LoopKind::parallel), 1) << guess.str();
  const auto& parameters = problem.space->parameters();
  const auto form = std::find_if(parameters.begin(), parameters.end(), [](const Parameter& p) { return p.name == "form"; });
  ASSERT_NE(form, parameters.end());
  Point skewed = problem.space->defaults().front();
  skewed[static_cast<std::size_t>(form - parameters.begin())] = static_cast<int>(form->choices.size()) - 1;
  const auto steps = problem.replay(skewed).steps();
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.name == "skew"; }));
}

TEST(NestSpace, AnInPlaceSweepGetsAWavefront) {
  Problem problem(samples::seidel(4, 40, 40));
  const auto& parameters = problem.space->parameters();
  const auto form = std::find_if(parameters.begin(), parameters.end(), [](const Parameter& p) { return p.name == "form"; });
  ASSERT_NE(form, parameters.end());
  bool parallel = false;
  for (std::size_t choice = 1; choice < form->choices.size(); ++choice) {
    Point point = problem.space->defaults().front();
    point[static_cast<std::size_t>(form - parameters.begin())] = static_cast<int>(choice);
    const Schedule schedule = problem.replay(point);
    const auto loops = schedule.loops_of("sweep");
    parallel = parallel || count_loops(*schedule.tree(), LoopKind::parallel) > 1;
  }
  EXPECT_TRUE(parallel);
}

TEST(NestSpace, TilesThatOverflowTheCacheAreInfeasibleBeforeAnyCompile) {
  const Nest nest = samples::scores_softmax_values(Mask::none, 4096, 4096, 64);
  Problem problem(nest);
  Point huge = problem.space->defaults().front();
  const auto& parameters = problem.space->parameters();
  for (std::size_t k = 0; k < huge.size(); ++k) {
    if (parameters[k].name.starts_with("tile.")) huge[k] = static_cast<int>(parameters[k].choices.size()) - 1;
    if (parameters[k].name == "reduction_axis") huge[k] = 0;
  }
  EXPECT_NE(problem.space->candidate(huge).infeasible.find("KiB"), std::string::npos);
}

bool has_step(const std::vector<Step>& steps, const std::string& name) {
  return std::any_of(steps.begin(), steps.end(), [&](const Step& step) { return step.name == name; });
}

/// The candidates of a GPU's defaults.
std::vector<Candidate> gpu_candidates(const Nest& nest, BaseSchedules& schedules, int sm) {
  const auto space = make_nest_space(schedules, complete_sizes(nest, {}), gpu_space_limits(sm, 227 << 10, 132));
  std::vector<Candidate> candidates;
  for (const Point& point : space->defaults()) candidates.push_back(space->candidate(point));
  return candidates;
}

TEST(TensorSpace, SixteenBitProductsInARowGoToTensorCoresFirst) {
  for (const testing::Seen seen : {testing::Seen::all, testing::Seen::causal}) {
    const Nest nest = testing::attention_nest({.seen = seen});
    BaseSchedules schedules(nest);
    const std::vector<Candidate> candidates = gpu_candidates(nest, schedules, 90);
    ASSERT_FALSE(candidates.empty());
    EXPECT_TRUE(has_step(candidates.front().steps, "tensor_cores"));
    // Others stay among the defaults.
    EXPECT_FALSE(has_step(candidates.back().steps, "tensor_cores"));
  }
}

TEST(TensorSpace, CandidatesThatLeaveTensorCoresAloneSayWhatTheirArithmeticTakes) {
  const Nest nest = testing::attention_nest({.seen = testing::Seen::all});
  BaseSchedules schedules(nest);
  int with = 0, without = 0;
  for (const Candidate& candidate : gpu_candidates(nest, schedules, 90)) {
    const bool tensor = has_step(candidate.steps, "tensor_cores");
    // Of those without, many are infeasible: a block would keep rows of scores, of a length that is not known.
    EXPECT_TRUE(!tensor || candidate.infeasible.empty()) << candidate.infeasible;
    EXPECT_EQ(candidate.least_ms == 0, tensor);
    ++(tensor ? with : without);
  }
  EXPECT_GT(with, 0);
  EXPECT_GT(without, 0);
}

TEST(WorkFloor, IsBelowTheInstancesAndNotFarBelow) {
  const auto floor_of = [](const std::string& mask) {
    return least_instances(samples::masked_points(mask, 1000, 1000), {{"R", 1000}, {"C", 1000}, {"P", 3}});
  };
  const struct {
    const char* mask;
    double instances;
  } cases[] = {{"i >= 0", 1e6}, {"j <= i", 500500}, {"j <= i or i < 500", 875250}, {"j <= i and j > i - 10", 9955}, {"i < 0", 0}};
  for (const auto& [mask, instances] : cases) {
    EXPECT_LE(floor_of(mask), instances) << mask;
    EXPECT_GE(floor_of(mask), instances - 0.2e6) << mask;
  }
  // 132 multiprocessors of 128 lanes at 2.1 GHz: 35.5e12 a second.
  EXPECT_NEAR(least_scalar_ms(35.5e9, 132), 1.0, 0.01);
}

TEST(TensorSpace, EveryDefaultOnTensorCoresIsLegalAndCompiles) {
  const Nest nest = testing::attention_nest({.seen = testing::Seen::causal});
  BaseSchedules schedules(nest);
  int compiled = 0;
  for (const Candidate& candidate : gpu_candidates(nest, schedules, 90)) {
    if (!has_step(candidate.steps, "tensor_cores")) continue;
    EXPECT_EQ(candidate.infeasible, "");
    const CompiledNvptx kernel = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), NvptxTarget{});
    EXPECT_EQ(kernel.kernel.architecture, "sm_90a");
    EXPECT_NE(kernel.kernel.code.find("wgmma.mma_async"), std::string::npos);
    ++compiled;
  }
  EXPECT_GE(compiled, 4);
}

TEST(TensorSpace, ItemsWithMostWorkStartFirstAmongAllOrAmongThoseThatOuterLoopsLeave) {
  const Nest nest = testing::attention_nest({.seen = testing::Seen::causal});
  BaseSchedules schedules(nest);
  const auto space = make_nest_space(schedules, complete_sizes(nest, {}), gpu_space_limits(90, 227 << 10, 132));
  const auto loops_of = [&](std::int64_t longest_first, const std::string& step) {
    const Point point = point_like(*space, space->defaults().front(), {{"longest_first", longest_first}});
    std::vector<std::string> loops;
    for (const Step& taken : space->candidate(point).steps) {
      if (taken.name == step) loops.push_back(taken.args.at(0).get<std::string>());
    }
    return loops;
  };
  const std::vector<std::string> rising = loops_of(0, "gpu_blocks");
  ASSERT_EQ(rising.size(), 2);
  EXPECT_TRUE(loops_of(0, "reverse").empty());
  for (const std::int64_t position : {1, 2, 3, 4}) {
    const std::vector<std::string> rows = loops_of(position, "reverse"), grid = loops_of(position, "gpu_blocks");
    ASSERT_EQ(rows.size(), 1) << position;
    ASSERT_EQ(grid.size(), 2) << position;
    EXPECT_EQ(grid[position == 1 ? 0 : 1], rows[0]) << position;
  }
}

TEST(TensorSpace, PolynomialsAreTriedWhereAnElementTakesMoreThanAnExponential) {
  const auto tries = [](const Nest& nest) {
    BaseSchedules schedules(nest);
    const std::vector<Candidate> candidates = gpu_candidates(nest, schedules, 90);
    return std::any_of(candidates.begin(), candidates.end(), [](const Candidate& candidate) {
      return candidate.infeasible.empty() && has_step(candidate.steps, "exp2_polynomial");
    });
  };
  Nest nest = testing::attention_nest();
  EXPECT_FALSE(tries(nest));
  int changed = 0;
  for (Statement& statement : nest.statements) {
    if (statement.name != "score") continue;
    statement.value = ScalarExpr::make(ScalarOp::tanh, {statement.value});
    ++changed;
  }
  ASSERT_GT(changed, 0);
  EXPECT_TRUE(tries(nest));
}

TEST(TensorSpace, PairsOfBlocksShareTilesOfWideRows) {
  const Nest nest = testing::attention_nest({.depth = 256});
  BaseSchedules schedules(nest);
  int pairs = 0;
  for (const Candidate& candidate : gpu_candidates(nest, schedules, 90)) {
    if (!has_step(candidate.steps, "tensor_cores") || !has_step(candidate.steps, "cluster")) continue;
    EXPECT_EQ(candidate.infeasible, "");
    EXPECT_FALSE(has_step(candidate.steps, "dynamic_scheduler"));
    const CompiledNvptx kernel = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), NvptxTarget{});
    EXPECT_EQ(kernel.kernel.recipe.launches.front().cluster[0], 2);
    EXPECT_NE(kernel.kernel.code.find("multicast::cluster"), std::string::npos);
    ++pairs;
  }
  EXPECT_GE(pairs, 2);
}

TEST(TensorSpace, ResidentBlocksOfWideRowsFitSinceResultsLeaveThroughAnOperandsPlace) {
  const Nest nest = testing::attention_nest({.depth = 256});
  BaseSchedules schedules(nest);
  int resident = 0;
  for (const Candidate& candidate : gpu_candidates(nest, schedules, 90)) {
    if (!has_step(candidate.steps, "persistent") || has_step(candidate.steps, "cluster")) continue;
    EXPECT_EQ(candidate.infeasible, "");
    const CompiledNvptx kernel = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), NvptxTarget{});
    EXPECT_LE(kernel.kernel.recipe.launches.front().shared_bytes, 227 << 10);
    ++resident;
  }
  EXPECT_GE(resident, 2);
}

TEST(TensorSpace, EveryDefaultForComputeCapability8IsLegalAndCompiles) {
  const Nest nest = testing::attention_nest({.seen = testing::Seen::causal, .depth = 128});
  BaseSchedules schedules(nest);
  NvptxTarget target;
  target.sm = 80;
  int compiled = 0;
  for (const Candidate& candidate : gpu_candidates(nest, schedules, 80)) {
    if (!has_step(candidate.steps, "tensor_cores")) continue;
    EXPECT_EQ(candidate.infeasible, "");
    EXPECT_FALSE(has_step(candidate.steps, "ping_pong"));
    const CompiledNvptx kernel = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), target);
    EXPECT_EQ(kernel.kernel.architecture, "sm_80");
    EXPECT_NE(kernel.kernel.code.find("mma.sync"), std::string::npos);
    ++compiled;
  }
  EXPECT_GE(compiled, 8);
}

TEST(TensorSpace, NothingElseDoes) {
  const Nest single = testing::attention_nest({.type = ElementType::f32, .result = ElementType::f32});
  for (const int sm : {80, 90}) {
    BaseSchedules schedules(single);
    for (const Candidate& candidate : gpu_candidates(single, schedules, sm))
      EXPECT_FALSE(has_step(candidate.steps, "tensor_cores"));
  }
}

TEST(NestStructure, LoopsAreAlignedThroughTheTensorsTheyShare) {
  const Schedule base(samples::scores_softmax_values(Mask::none, 128, 128, 32));
  const NestStructure structure = analyse(base, complete_sizes(base.nest(), {}));
  const auto axis = [&](const std::string& loop_group, std::size_t loop) {
    for (const LoopGroup& u : structure.loop_groups) {
      if (u.first == loop_group) return u.axes.at(loop);
    }
    return -1;
  };
  EXPECT_EQ(axis("QK_update", 0), axis("O", 0));         // i
  EXPECT_EQ(axis("QK_update", 1), axis("L_update", 1));  // j
  EXPECT_EQ(axis("PV_update", 2), axis("P", 1));         // j again
  EXPECT_NE(axis("QK_update", 2), axis("PV_update", 2));
  EXPECT_NE(axis("QK_update", 0), axis("QK_update", 1));
}

/// Parts of parts, of one size: either axis could be the other's name, but one loop lies inside the other.
TEST(NestStructure, LoopsOfAStatementHaveAxesOfTheirOwn) {
  Schedule schedule(samples::scores_softmax_values(Mask::none, 128, 128, 32));
  for (const char* step :
       {"apply_rule(split_reduction, QK_update, d, p, 16)", "apply_rule(split_reduction, QK_update_part, d, pp, 16)"})
    schedule = schedule.apply(parse_step(step));
  const NestStructure structure = analyse(schedule, complete_sizes(schedule.nest(), {}));
  EXPECT_FALSE(structure.parts.empty());
  for (const LoopGroup& loop_group : structure.loop_groups)
    EXPECT_EQ(std::set<int>(loop_group.axes.begin(), loop_group.axes.end()).size(), loop_group.axes.size()) << loop_group.first;
}

}  // namespace
}  // namespace nestor
