// Grids without edges: neighbours across the edge are read where they are, in the kernel of what is computed from them.
#include "support/nests/periodic_nests.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using samples::periodic_neighbours;
using testing::SearchedProblem;

/// Kernels of a candidate: grids of blocks, by the threads of each.
int kernels(const Candidate& candidate) { return testing::count_steps(candidate, "gpu_threads"); }

TEST(PeriodicGrids, OneKernelReadsNeighboursAcrossTheEdge) {
  for (const std::string where : {"", " and (x + y) mod 2 = 0"}) {
    SearchedProblem problem(periodic_neighbours(where), {{"Y", 1024}, {"X", 1024}});
    const Point first = problem.space->defaults().front();
    const Candidate candidate = problem.space->candidate(first);
    ASSERT_EQ(candidate.infeasible, "");
    EXPECT_EQ(kernels(candidate), 1);
    for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 70}, {37, 2}, {5, 300}})
      EXPECT_EQ(problem.difference(first, {{"Y", rows}, {"X", columns}}), "") << where << rows << " x " << columns;
    // By copies, as they are written.
    Point copies = problem.space->defaults().back();
    auto values = named_values(*problem.space, copies);
    values["rule.forward_pieces"] = 0;
    copies = *point_from(*problem.space, values);
    EXPECT_GT(kernels(problem.space->candidate(copies)), 4);
    EXPECT_EQ(problem.difference(copies, {{"Y", 5}, {"X", 40}}), "");
  }
}

TEST(PeriodicGrids, ProcessorsReadCopiesInWholeVectors) {
  const Nest nest = periodic_neighbours();
  const Sizes sizes = complete_sizes(nest, {{"Y", 1024}, {"X", 1024}});
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const auto space = make_nest_space(schedules, sizes, host_space_limits(4));
  EXPECT_FALSE(named_values(*space, space->defaults().front()).contains("rule.forward_pieces"));
}

}  // namespace
}  // namespace nestor
