// Recurrences on the host: statements of a step get loops of their own, and independent sequences are outermost.
#include "autotune/measure_schedules.h"
#include "autotune/space/distribution.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/proof/program_proof.h"
#include "codegen/tile/tile_program.h"
#include "poly/schedule/order/loop_tree.h"
#include "support/nests/recurrence_nests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace nestor {
namespace {

struct HostSpace {
  explicit HostSpace(const Nest& nest, int threads = 2)
      : sizes(complete_sizes(nest, {})), schedules(nest_for_tuning(nest, sizes)), limits(host_space_limits(threads)) {
    limits.threads = threads;
    space = make_nest_space(schedules, sizes, limits);
  }
  Schedule schedule(const Point& point) {
    const Candidate candidate = space->candidate(point);
    EXPECT_EQ(candidate.infeasible, "");
    return schedules.replay(candidate.steps);
  }
  Schedule first() { return schedule(space->defaults().front()); }
  NamedValues values(const Point& point) const { return named_values(*space, point); }
  bool distributes() const {
    return std::any_of(space->parameters().begin(), space->parameters().end(), [](const Parameter& parameter) {
      return parameter.name == "form" && parameter.choices.front() == kDistributedForm;
    });
  }
  Sizes sizes;
  BaseSchedules schedules;
  SpaceLimits limits;
  std::unique_ptr<Space> space;
};

std::size_t loops_shared(const Schedule& schedule, const std::string& one, const std::string& other) {
  const auto a = schedule.loops_of(one), b = schedule.loops_of(other);
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

LoopKind kind_of(const Schedule& schedule, const std::string& loop) { return find_loop(schedule.tree(), loop)->loop_kind; }

/// Places of parallel loops among those around the statement, the outermost being 0.
std::vector<std::size_t> parallel_loops(const Schedule& schedule, const std::string& statement) {
  std::vector<std::size_t> places;
  const auto loops = schedule.loops_of(statement);
  for (std::size_t k = 0; k < loops.size(); ++k) {
    if (kind_of(schedule, loops[k]) == LoopKind::parallel) places.push_back(k);
  }
  return places;
}

std::vector<Nest> recurrences() {
  return {samples::batched_states(), samples::states(), samples::corrected_matrix(), samples::sweeps()};
}

TEST(Distribution, IndependentSequencesAreOneParallelRegionAroundAllSteps) {
  HostSpace host(samples::batched_states());
  const Schedule schedule = host.first();
  for (const char* statement : {"start", "sum", "h"})
    EXPECT_EQ(parallel_loops(schedule, statement), std::vector<std::size_t>{0}) << schedule.str();
  // Sequences of a task, and all places of a state, are inside of a step, for each statement by itself.
  EXPECT_EQ(loops_shared(schedule, "start", "sum"), 2u) << schedule.str();
  EXPECT_EQ(loops_shared(schedule, "sum", "h"), 2u) << schedule.str();
  EXPECT_EQ(schedule.loops_of("sum").size(), 5u) << schedule.str();
}

TEST(Distribution, OneSequenceHasTasksInsideOfEachStepWhereThoseAreLarge) {
  HostSpace large(samples::states(8, 256), 4);
  const Schedule schedule = large.first();
  EXPECT_EQ(loops_shared(schedule, "start", "sum"), 1u) << schedule.str();
  EXPECT_EQ(loops_shared(schedule, "sum", "h"), 1u) << schedule.str();
  EXPECT_EQ(parallel_loops(schedule, "sum"), std::vector<std::size_t>{1}) << schedule.str();
  EXPECT_TRUE(parallel_loops(schedule, "h").empty()) << "256 points are not worth a parallel region\n" << schedule.str();
  HostSpace small(samples::states(8, 16), 4);
  EXPECT_TRUE(parallel_loops(small.first(), "sum").empty()) << small.first().str();
  HostSpace alone(samples::states(8, 256), 1);
  EXPECT_TRUE(parallel_loops(alone.first(), "sum").empty()) << alone.first().str();
}

TEST(Distribution, FewSequencesForManyProcessorsHaveTasksInsideOfEachStepToo) {
  for (const std::int64_t batch : {1, 3}) {
    HostSpace host(samples::batched_states(batch, 8, 96), 16);
    const Schedule schedule = host.first();
    EXPECT_EQ(parallel_loops(schedule, "sum"), std::vector<std::size_t>{1}) << schedule.str();
    EXPECT_EQ(schedule.loops_of("sum").front(), "start.t") << schedule.str();
    const std::string tasks = schedule.loops_of("sum").at(1);
    EXPECT_TRUE(tasks.starts_with("start.s")) << tasks << ": 96 states are cut, not " << batch << " sequences\n"
                                              << schedule.str();
    MeasureOptions options;
    options.threads = 4;
    options.repetitions = 1;
    options.compile_timeout_s = options.run_timeout_s = 240;
    const TrialRecord trial = measure_schedule(schedule, samples::batched_states(batch, 8, 96), host.sizes, options);
    EXPECT_EQ(trial.status, TrialStatus::ok) << trial.reason << "\n" << schedule.str();
  }
}

TEST(Distribution, StatementsThatMeetInAStepStayTogether) {
  HostSpace host(samples::sweeps());
  const Schedule schedule = host.first();
  EXPECT_EQ(loops_shared(schedule, "sum", "x"), 2u) << "sweeps, and unknowns\n" << schedule.str();
  EXPECT_TRUE(parallel_loops(schedule, "sum").empty()) << schedule.str();
}

TEST(Distribution, ALoopThatOrdersStatementsIsInNobodysWay) {
  HostSpace host(samples::corrected_matrix());
  ASSERT_TRUE(host.distributes());
  EXPECT_NO_THROW(host.schedule(host.space->baseline()));
  const Schedule schedule = host.first();
  EXPECT_EQ(loops_shared(schedule, "left", "m"), 2u) << schedule.str();
  EXPECT_EQ(parallel_loops(schedule, "m"), std::vector<std::size_t>{0}) << schedule.str();
}

TEST(Distribution, NestsWithoutSharedStepsHaveNoSuchForm) {
  for (const Nest& nest : {samples::matmul(), samples::row_norm(), samples::stencil2d(3, 17, 18), samples::seidel(3, 17, 18)})
    EXPECT_FALSE(HostSpace(nest).distributes()) << nest.op;
  for (const Nest& nest : recurrences()) EXPECT_TRUE(HostSpace(nest).distributes()) << nest.op;
}

TEST(Distribution, GuessesAreLegalProvedAndCoverEachOther) {
  for (const Nest& nest : recurrences()) {
    HostSpace host(nest);
    std::set<std::string> orders;
    for (const Point& point : host.space->defaults()) {
      const Schedule schedule = host.schedule(point);
      if (!orders.insert(schedule.str()).second) continue;
      const TileProgram program = build_tile_program(schedule);
      EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved) << schedule.str();
    }
    EXPECT_GE(orders.size(), 2u) << nest.op;
  }
}

/// Compiled, and compared with the definition in full: with one and no element more or less than a tile, infinities and NaN.
TEST(Distribution, ResultsAreThoseOfTheDefinition) {
  MeasureOptions options;
  options.threads = 2;
  options.repetitions = 1;
  options.compile_timeout_s = options.run_timeout_s = 240;
  for (const Nest& nest : recurrences()) {
    HostSpace host(nest);
    std::set<std::string> orders;
    for (const Point& point : host.space->defaults()) {
      if (value_or(host.values(point), "form", 0) != kDistributedForm || orders.size() > 4) continue;
      const Schedule schedule = host.schedule(point);
      if (!orders.insert(schedule.str()).second) continue;
      const TrialRecord trial = measure_schedule(schedule, nest, host.sizes, options);
      EXPECT_EQ(trial.status, TrialStatus::ok) << nest.op << ": " << trial.reason << "\n" << schedule.str();
    }
  }
}

TEST(Distribution, MarksOnOwnLoopsKeepResults) {
  HostSpace host(samples::states(6, 70), 3);
  MeasureOptions options;
  options.threads = 3;
  options.repetitions = 1;
  options.compile_timeout_s = options.run_timeout_s = 240;
  NamedValues values = host.values(host.space->defaults().front());
  for (const std::int64_t vector : {0, 8, 16}) {
    for (const std::int64_t unroll : {0, 4}) {
      values["vector"] = vector;
      values["unroll"] = unroll;
      const auto point = point_from(*host.space, values);
      ASSERT_TRUE(point);
      const Schedule schedule = host.schedule(*point);
      EXPECT_EQ(parallel_loops(schedule, "sum").size(), 1u) << schedule.str();
      const TrialRecord trial = measure_schedule(schedule, samples::states(6, 70), host.sizes, options);
      EXPECT_EQ(trial.status, TrialStatus::ok) << trial.reason << "\n" << schedule.str();
    }
  }
}

}  // namespace
}  // namespace nestor
