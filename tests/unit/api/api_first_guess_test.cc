// First guesses of the search, on tensor cores and without: what the space takes for feasible, the plan does not refuse, and a plan takes
// what the space said. NESTOR_FIRST_GUESSES=1 looks at every guess of every operator, variant, size and machine, which takes hours; =7 at
// every seventh of these problems.
#include "api/operators.h"
#include "autotune/space/gpu/tensor_fit.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/space/structure/rule_variants.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/tensor_kernel.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/nests/operator_programs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace nestor {
namespace {

struct Machine {
  const char* name;
  int sm;
  std::int64_t shared_bytes;
  int units;
};
constexpr Machine kMachines[] = {{"A100", 80, 163 << 10, 108}, {"L40", 89, 99 << 10, 142}, {"H200", 90, 227 << 10, 132}};

enum class SizeSet : std::uint8_t { usual, odd, ragged, wide };
constexpr SizeSet kSizeSets[] = {SizeSet::usual, SizeSet::odd, SizeSet::ragged, SizeSet::wide};

/// One problem: an operator's variant at some sizes on a machine.
struct GuessProblem {
  std::string op, variant;
  SizeSet sizes;
  Machine machine;
  std::string title() const {
    constexpr const char* kNames[] = {"usual", "odd", "ragged", "wide"};
    return fmt::format("{} {}, {} sizes, {}", op, variant, kNames[static_cast<int>(sizes)], machine.name);
  }
};

void PrintTo(const GuessProblem& problem, std::ostream* out) { *out << problem.title(); }

/// By the roles that names have in kernels/; nothing where the operator is not defined for them.
std::optional<Sizes> sizes_of(const Nest& nest, SizeSet set) {
  static const Sizes ragged{{"batch", 3},    {"heads", 5},     {"queries", 777}, {"keys", 1301},    {"head_dim", 72},
                            {"window", 100}, {"prefix", 33},   {"group", 3},     {"key_heads", 2},  {"rows", 1003},
                            {"width", 1000}, {"hidden", 1111}, {"n", 333},       {"value_dim", 40}, {"dilation", 3},
                            {"steps", 17},   {"height", 129},  {"m", 300},       {"k", 520},        {"cols", 999}};
  static const Sizes wide{{"batch", 2},     {"heads", 4},     {"queries", 2000}, {"keys", 3000},     {"head_dim", 248},
                          {"window", 300},  {"prefix", 65},   {"group", 5},      {"key_heads", 3},   {"rows", 5000},
                          {"width", 12288}, {"hidden", 4096}, {"n", 4097},       {"value_dim", 136}, {"dilation", 1},
                          {"steps", 33},    {"height", 1000}, {"m", 5000},       {"k", 4100},        {"cols", 12289}};
  Sizes given;
  if (set == SizeSet::odd) given = testing::odd_operator_sizes(nest);
  for (const SizeParam& size : nest.sizes) {
    const Sizes& known = set == SizeSet::ragged ? ragged : wide;
    if (set >= SizeSet::ragged && known.contains(size.name)) given[size.name] = known.at(size.name);
  }
  try {
    return complete_sizes(nest, given);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

constexpr Machine kA100 = kMachines[0], kL40 = kMachines[1], kH200 = kMachines[2];

/// Every `step`th of all problems.
std::vector<GuessProblem> every(std::size_t step) {
  std::vector<GuessProblem> chosen;
  std::size_t number = 0;
  for (const OperatorEntry& entry : builtin_operators()) {
    for (const std::string& variant : entry.variants) {
      for (const SizeSet sizes : kSizeSets) {
        for (const Machine& machine : kMachines) {
          if (number++ % step == 0) chosen.push_back({entry.op, variant, sizes, machine});
        }
      }
    }
  }
  return chosen;
}

/// The guesses of one problem, each looked at once.
class Guesses {
 public:
  Guesses(const Nest& nest, const Sizes& sizes, const GuessProblem& problem)
      : problem_(problem),
        schedules_(nest_for_tuning(nest, sizes)),
        variants_(schedules_, sizes),
        space_(make_nest_space(schedules_, sizes,
                               gpu_space_limits(problem.machine.sm, problem.machine.shared_bytes, problem.machine.units))),
        points_(space_->defaults()) {
    target_.sm = problem.machine.sm;
    target_.shared_limit = problem.machine.shared_bytes;
  }

  /// So many of them from the first to the last, on tensor cores and others.
  void check(std::size_t most_tensor, std::size_t most_others) {
    std::vector<std::size_t> on_tensor_cores, others;
    for (std::size_t k = 0; k < points_.size(); ++k)
      (value_or(named_values(*space_, points_[k]), "groups", 0) > 0 ? on_tensor_cores : others).push_back(k);
    for (const auto& [list, most] : {std::pair(on_tensor_cores, most_tensor), std::pair(others, most_others)}) {
      const std::size_t count = std::min(list.size(), most);
      for (std::size_t n = 0; n < count; ++n) check_guess(list[count < 2 ? 0 : n * (list.size() - 1) / (count - 1)]);
    }
  }

 private:
  void check_guess(std::size_t number) {
    SCOPED_TRACE(fmt::format("{}, guess {}", problem_.title(), number));
    const NamedValues values = named_values(*space_, points_[number]);
    const bool on_tensor_cores = value_or(values, "groups", 0) > 0;
    const Candidate candidate = space_->candidate(points_[number]);
    // Shapes of blocks are proposed for all rows alike: those for which the space says so are never compiled.
    if (!candidate.infeasible.empty()) {
      EXPECT_FALSE(on_tensor_cores) << candidate.infeasible;
      return;
    }
    try {
      const TileProgram program = build_tile_program(schedules_.replay(candidate.steps));
      const nvptx::LaunchPlan launches = nvptx::plan_launches(program, target_.threads);
      for (const nvptx::KernelPlan& kernel : launches.kernels) {
        if (kernel.shape.warpgroups > 0) {
          compare(values, nvptx::plan_tensor(kernel, launches.program, target_));
        } else {
          plan_bodies(kernel, launches.program, target_);
        }
      }
    } catch (const UserError& error) {
      ADD_FAILURE() << error.what();
    }
  }

  /// The space's block is the plan's, or larger: tiles may end where tensors do.
  void compare(const NamedValues& values, const nvptx::TensorPlan& plan) {
    RuleChoice rules;
    for (const auto& [name, value] : values) {
      if (name.starts_with("rule.") && value != 0) rules.rules.insert(name.substr(5));
    }
    rules.split = static_cast<int>(value_or(values, "split", -1));
    if (rules.split >= 0) rules.parts = value_or(values, "parts", 0);
    const RuleVariant& variant = variants_.at(rules);
    const auto axes =
        tensor_axes(variants_.nest(variant), variant.structure, variants_.heaviest(variant, Fusion::maximal, true), 90);
    ASSERT_TRUE(axes.has_value());
    const nvptx::TensorNeeds said = estimate(tensor_block(*axes, tensor_choice(values), target_.sm), target_),
                             taken = estimate(block_of(plan), target_);
    EXPECT_EQ(taken.refusal, "");
    EXPECT_GE(said.registers, taken.registers);
    EXPECT_EQ(said.registers_left, taken.registers_left);
    EXPECT_GE(said.places.bytes, taken.places.bytes);
    if (problem_.sizes == SizeSet::usual) {
      EXPECT_EQ(said.registers, taken.registers);
      EXPECT_EQ(said.places.bytes, taken.places.bytes);
    }
  }

  const GuessProblem& problem_;
  BaseSchedules schedules_;
  RuleVariants variants_;
  std::unique_ptr<Space> space_;
  std::vector<Point> points_;
  NvptxTarget target_;
};

/// So many guesses on tensor cores, and so many others.
void check(const GuessProblem& problem, std::size_t most_tensor, std::size_t most_others) {
  const Nest nest = load_operator(problem.op, problem.variant);
  if (const auto sizes = sizes_of(nest, problem.sizes)) Guesses(nest, *sizes, problem).check(most_tensor, most_others);
}

class FirstGuesses : public ::testing::TestWithParam<GuessProblem> {};

TEST_P(FirstGuesses, ArePlanned) { check(GetParam(), 2, 8); }

INSTANTIATE_TEST_SUITE_P(Operators, FirstGuesses,
                         ::testing::Values(GuessProblem{"attention", "causal.f16", SizeSet::odd, kA100},
                                           GuessProblem{"attention", "topleft.f16", SizeSet::wide, kH200},
                                           GuessProblem{"attention_bias", "f16", SizeSet::ragged, kH200},
                                           GuessProblem{"differential_attention", "bf16", SizeSet::usual, kH200},
                                           GuessProblem{"attention", "window.gqa.f32", SizeSet::ragged, kH200},
                                           GuessProblem{"matmul", "f16", SizeSet::ragged, kL40},
                                           GuessProblem{"matmul_bias_gelu", "bf16", SizeSet::odd, kH200},
                                           GuessProblem{"layernorm_backward", "bf16", SizeSet::odd, kA100},
                                           GuessProblem{"rmsnorm_backward", "f32weight.f16", SizeSet::wide, kH200},
                                           GuessProblem{"retention", "bf16", SizeSet::odd, kH200},
                                           GuessProblem{"softmax", "f32", SizeSet::wide, kH200}));

TEST(AllFirstGuesses, ArePlanned) {
  const char* asked = std::getenv("NESTOR_FIRST_GUESSES");
  if (asked == nullptr) GTEST_SKIP() << "NESTOR_FIRST_GUESSES=1 asks for all problems";
  const int step = std::atoi(asked);
  ASSERT_GT(step, 0);
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  for (const GuessProblem& problem : every(static_cast<std::size_t>(step))) check(problem, kAll, kAll);
}

}  // namespace
}  // namespace nestor
