// A reduction whose terms depend on another one's result (a variance on its mean, a sum of exponentials on its maximum) meets across
// warps and blocks once, as one reduction of pairs, where the algebra has stated the composite; the code of such candidates computes
// what the definition says.
#include "api/operators.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/tile/tile_program.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using Values = std::map<std::string, std::int64_t>;

struct FusedProblem {
  std::string op, variant, rule;  ///< that states the composite
  std::int64_t width;
  Values choices;
  bool joined = true;
};

std::ostream& operator<<(std::ostream& out, const FusedProblem& problem) {
  out << problem.op << " " << problem.variant << " " << problem.width;
  for (const auto& [name, value] : problem.choices) out << " " << name << "=" << value;
  return out;
}

struct Compiled {
  CompiledNvptx code;
  std::string difference;  ///< from the definition, as emulated
};

Compiled compile(const FusedProblem& problem, bool with_rule) {
  const Nest nest = load_operator(problem.op, problem.variant);
  const std::int64_t rows = problem.width < 32768 ? 7 : 3;  // of 8192 threads each
  const Sizes sizes = complete_sizes(nest, {{"rows", rows}, {"width", problem.width}});
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, 4));
  Values values = named_values(*space, space->defaults().front());
  values["persistent"] = values["prefetch"] = 0;
  values["tile.i"] = 1;
  for (const auto& [name, value] : problem.choices) values[name] = value;
  values["rule." + problem.rule] = with_rule ? 1 : 0;
  const Candidate candidate = space->candidate(point_from(*space, values).value());
  EXPECT_EQ(candidate.infeasible, "");
  Compiled compiled{compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), {}), ""};
  compiled.difference = testing::run_emulated(compiled.code, build_tile_program(schedules.base({})), {{"rows", rows}},
                                              {.tolerance = nest.tolerance, .spread = 4}, {1, 2});
  return compiled;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Places where the threads of a row meet for results: waits of blocks or of clusters.
std::size_t meetings(const CompiledNvptx& compiled, bool clusters) {
  return count(compiled.kernel.code, clusters ? "mbarrier.try_wait" : "bar.sync");
}

class FusedReduction : public ::testing::TestWithParam<FusedProblem> {};

TEST_P(FusedReduction, MeetsOnceAndIsRight) {
  const FusedProblem& problem = GetParam();
  const bool clusters = problem.choices.contains("cluster");
  const Compiled apart = compile(problem, false), together = compile(problem, true);
  EXPECT_EQ(apart.difference, "");
  EXPECT_EQ(together.difference, "");
  const std::size_t before = meetings(apart.code, clusters), after = meetings(together.code, clusters);
  EXPECT_GE(before, 2U);
  EXPECT_EQ(2 * after, problem.joined ? before : 2 * before) << together.code.kernel.code;
  if (clusters && problem.joined) {
    EXPECT_EQ(count(together.code.kernel.code, "bytes.v2.b32"), count(apart.code.kernel.code, "st.async") / 2);
  }
}

TEST(JointReductionCode, TermsOf16BitRowsAreRescaledAndNotComputedAnew) {
  const auto exponentials = [](const std::string& variant, bool together) {
    const FusedProblem problem{"softmax", variant, "online", 1024, {{"threads", 64}}};
    return count(compile(problem, together).code.kernel.code, "ex2.approx");
  };
  // 16 elements a thread, two bodies; the rest corrects the results of two warps and their terms.
  EXPECT_EQ(exponentials("f16", false), 2 * 16U);
  EXPECT_LE(exponentials("f16", true), 2 * (16U + 4));
}

INSTANTIATE_TEST_SUITE_P(
    all, FusedReduction,
    ::testing::Values(
        FusedProblem{"softmax", "f32", "online", 1024, {{"threads", 64}}},
        FusedProblem{"softmax", "f16", "online", 1024, {{"threads", 128}}},
        FusedProblem{"softmax", "f32", "online", 1021, {{"threads", 64}}},  // warps with unequal shares
        FusedProblem{"softmax", "bf16", "online", 2048, {{"threads", 64}, {"cluster", 4}}},
        FusedProblem{"softmax", "f32", "online", 2003, {{"threads", 64}, {"cluster", 4}, {"persistent", 2}, {"prefetch", 1}}},
        FusedProblem{"softmax", "f32", "online", 32768, {{"threads", 512}, {"cluster", 16}}},  // blocks gather before they send
        FusedProblem{"log_softmax", "f32", "online", 1024, {{"threads", 64}}},
        FusedProblem{"layernorm", "f32", "moments", 1024, {{"threads", 64}}},
        FusedProblem{"layernorm", "bf16", "moments", 2048, {{"threads", 128}, {"tile.i", 2}}},
        FusedProblem{"layernorm", "f32", "moments", 4096, {{"threads", 128}, {"cluster", 4}}},
        FusedProblem{"layernorm", "f16", "moments", 4096, {{"threads", 64}, {"cluster", 8}, {"persistent", 8}, {"prefetch", 2}}},
        FusedProblem{"layernorm", "f32", "moments", 32768, {{"threads", 512}, {"cluster", 16}, {"persistent", 8}}},
        // The formulas count points, and warps have unequal numbers of them.
        FusedProblem{"layernorm", "f32", "moments", 1000, {{"threads", 64}}, false}));

}  // namespace
}  // namespace nestor
