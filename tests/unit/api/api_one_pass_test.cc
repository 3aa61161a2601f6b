// Operators with rows of scores run in one pass over their keys: the space holds that schedule for each of them, derived by rules and
// steps alone, and its tile program and its host kernel compute what the definition says.
#include "api/operators.h"
#include "api/verify.h"
#include "autotune/measure_schedules.h"
#include "autotune/oracle/oracle.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/test_names.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

struct OnePass {
  const char* op;
  const char* variant;
  const char* first;           ///< the first and
  const char* last;            ///< the last statement inside the loop over tiles of keys
  std::size_t composites = 1;  ///< whose running values the pass uses
  Sizes sizes{};               ///< that differ from odd_sizes
};

std::ostream& operator<<(std::ostream& out, const OnePass& problem) { return out << problem.op << "." << problem.variant; }

/// Sizes that no tile divides, by the roles that names have in kernels/.
Sizes odd_sizes(const Nest& nest, const Sizes& others) {
  static const Sizes kKnown{{"batch", 2},  {"heads", 2},   {"queries", 11}, {"keys", 37},     {"head_dim", 6},
                            {"window", 9}, {"prefix", 21}, {"group", 2},    {"key_heads", 2}, {"dilation", 2},
                            {"rows", 7},   {"n", 37},      {"width", 6},    {"hidden", 37},   {"value_dim", 5}};
  Sizes sizes;
  for (const SizeParam& size : nest.sizes) sizes[size.name] = value_or(others, size.name, kKnown.at(size.name));
  return sizes;
}

/// The point with tiles of rows outside and tiles of the streamed axis inside, by the names of the space's parameters. Rules that make parts
/// or copy operands need more passes.
Point one_pass_point(const Space& space) {
  std::map<std::string, std::int64_t> values{{"fusion", 2}, {"tile.i", 4}, {"threads", 32}, {"parallel", 1}};
  for (const Parameter& parameter : space.parameters()) {
    if (parameter.name.starts_with("tile.")) values.emplace(parameter.name, 1);
    if (parameter.name.starts_with("rule."))
      values[parameter.name] = parameter.name != "rule.split_reduction" && parameter.name != "rule.copy_rows" &&
                               parameter.name != "rule.zero_terms" && parameter.name != "rule.bf16x6";
    if (parameter.name == "reduction_axis") values[parameter.name] = parameter.choices.at(1);
    if (parameter.name == "reduction_tile") values[parameter.name] = parameter.choices.front();
  }
  std::erase_if(values, [&](const auto& value) {
    return std::none_of(space.parameters().begin(), space.parameters().end(),
                        [&](const Parameter& parameter) { return parameter.name == value.first; });
  });
  return point_from(space, values).value();
}

struct Derived {
  Derived(const OnePass& problem, bool on_gpu)
      : nest(load_operator(problem.op, problem.variant)), sizes(odd_sizes(nest, problem.sizes)) {
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const SpaceLimits limits = on_gpu ? gpu_space_limits(90, 227 << 10, 132) : host_space_limits(2);
    const auto space = make_nest_space(schedules, sizes, limits);
    const Candidate candidate = space->candidate(one_pass_point(*space));
    if (!candidate.infeasible.empty()) user_error("infeasible: {}", candidate.infeasible);
    schedule = std::make_unique<Schedule>(schedules.replay(candidate.steps));
  }
  Nest nest;
  Sizes sizes;
  std::unique_ptr<Schedule> schedule;
};

std::size_t count_blocks(const TreeNode& node) {
  std::size_t count = node.kind == TreeNode::Kind::loop && node.loop_kind == LoopKind::gpu_block ? 1 : 0;
  for (const Tree& child : node.children) count += count_blocks(*child);
  return count;
}

class OnePassTest : public ::testing::TestWithParam<OnePass> {};

TEST_P(OnePassTest, TilesOfKeysAreVisitedOnceAndNothingLeavesTheBlock) {
  const Derived derived(GetParam(), true);
  const Schedule& schedule = *derived.schedule;
  EXPECT_EQ(schedule.active_composites().size(), GetParam().composites) << schedule.str();
  const std::vector<std::string> first = schedule.loops_of(GetParam().first), last = schedule.loops_of(GetParam().last);
  // Grid loops, then the streamed one.
  std::size_t shared = 0;
  while (shared < std::min(first.size(), last.size()) && first[shared] == last[shared]) ++shared;
  ASSERT_GE(shared, 2U) << schedule.str();
  EXPECT_EQ(count_blocks(*schedule.tree()), shared - 1) << schedule.str();
  EXPECT_EQ(schedule.loops_of("out").at(shared - 2), last[shared - 2]) << schedule.str();
  EXPECT_NE(schedule.loops_of("out").at(shared - 1), last[shared - 1]) << schedule.str();

  const TileProgram program = build_tile_program(schedule);
  for (const Buffer& buffer : program.buffers) EXPECT_NE(buffer.memory, Memory::workspace) << buffer.name;
  HostTensors arguments = make_arguments(derived.nest, derived.sizes, 3);
  std::map<std::string, std::vector<double>> memory;
  for (const auto& [name, tensor] : arguments) {
    for (std::int64_t k = 0; k < tensor.elements(); ++k) memory[name].push_back(tensor.get(k));
  }
  std::map<std::string, double> scalars;
  for (const ScalarParam& scalar : derived.nest.scalars) scalars[scalar.name] = scalar.default_value;
  interpret(program, derived.sizes, scalars, memory);
  for (auto& [name, tensor] : arguments) {
    for (std::int64_t k = 0; k < tensor.elements(); ++k) tensor.set(k, memory.at(name)[static_cast<std::size_t>(k)]);
  }
  std::string where;
  const auto expected = reference_samples(derived.nest, derived.sizes, scalars, arguments, 1 << 20, 1);
  EXPECT_LE(worst_error(expected, arguments, &where), 1) << where << "\n" << describe(program);
}

TEST_P(OnePassTest, HostKernelIsRight) {
  const Derived derived(GetParam(), false);
  MeasureOptions options;
  options.threads = 2;
  options.repetitions = 1;
  const TrialRecord record = measure_schedule(*derived.schedule, derived.nest, derived.sizes, options);
  EXPECT_EQ(record.status, TrialStatus::ok) << record.reason << "\n" << derived.schedule->str();
}

std::string test_name(const ::testing::TestParamInfo<OnePass>& info) {
  return testing::operator_test_name(info.param.op, info.param.variant);
}

INSTANTIATE_TEST_SUITE_P(
    Operators, OnePassTest,
    ::testing::Values(OnePass{"attention", "f16", "dot", "total"}, OnePass{"attention", "causal.lse.f16", "dot", "total"},
                      OnePass{"attention", "topleft.bf16", "dot", "total"},
                      OnePass{"attention", "window.gqa.f32", "dot", "total"}, OnePass{"attention", "prefix.f16", "dot", "total"},
                      OnePass{"attention", "dilated.lse.f16", "dot", "total"}, OnePass{"attention_alibi", "f16", "dot", "total"},
                      OnePass{"attention_alibi", "gqa.f16", "dot", "total"},
                      OnePass{"attention_softcap", "causal.f16", "dot", "total"},
                      OnePass{"attention_bias", "f16", "dot", "total"},
                      OnePass{"differential_attention", "causal.f16", "dot1", "total2", 2},
                      OnePass{"evoformer_attention", "f16", "dot", "total", 1, {{"batch", 1}}},
                      OnePass{"retention", "f16", "dot", "weighted", 0}, OnePass{"gated_mlp", "f16", "gate", "sum", 0}),
    test_name);

}  // namespace
}  // namespace nestor
