// Kernels that go past tiles which data hides: guesses have them, they compute what their definition means, read no hidden tile, and plans that go past
// others have no proof.
#include "autotune/check/masked_places.h"
#include "autotune/tensors/host_tensor.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/plan/op_places.h"
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/gpu/mma/values/hidden_iterations.h"
#include "support/emulated_check.h"
#include "support/nests/hidden_blocks.h"
#include "support/nests/space_guesses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nestor::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Sizes kLarge{{"H", 16}, {"Q", 4096}, {"K", 4096}};

std::shared_ptr<const KernelPlans> plans_of(const TileProgram& program) {
  NvptxTarget target;
  target.sm = 90;
  return plan_kernels(program, target);
}

/// The plan whose loop goes past tiles; null: there is none.
const nvptx::TensorPlan* visiting_plan(const KernelPlans& plans) {
  for (const PlannedKernel& kernel : plans.kernels) {
    if (kernel.tensor && !kernel.tensor->visited.empty()) return &*kernel.tensor;
  }
  return nullptr;
}

class SkippedTiles : public ::testing::TestWithParam<std::pair<Shown, Seen>> {};

TEST_P(SkippedTiles, ComputeWhatTheDefinitionMeans) {
  const auto& [shown, seen] = GetParam();
  const Nest nest = hidden_attention(shown, {.seen = seen, .depth = 64});
  SpaceGuesses guesses(nest, kLarge);
  ASSERT_TRUE(guesses.has_rule(0, "skip_blocks"));
  const Sizes sizes{{"H", 1}, {"Q", 333}, {"K", 340}};
  int visiting = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    const TileProgram program = guesses.program(k);
    const auto plans = plans_of(program);
    if (visiting_plan(*plans) == nullptr) continue;
    const CompiledNvptx compiled = compile_nvptx(program, {});
    EmulatedKernel kernel(compiled.kernel.recipe, compiled.ir);
    EXPECT_EQ(EmulatedProblem(nest, sizes, compiled.kernel.recipe).run(kernel, {1, 2}), "") << "guess " << k;
    ++visiting;
  }
  EXPECT_GT(visiting, 0);
}

INSTANTIATE_TEST_SUITE_P(Conditions, SkippedTiles,
                         ::testing::Values(std::pair(Shown::documents, Seen::all), std::pair(Shown::documents, Seen::causal),
                                           std::pair(Shown::rising, Seen::all),
                                           std::pair(Shown::documents_or_first, Seen::causal),
                                           std::pair(Shown::blocks, Seen::causal), std::pair(Shown::keys, Seen::all)));

/// The first guess of packed documents, whose loop goes past tiles.
struct PackedDocuments {
  explicit PackedDocuments(const AttentionForm& form = {.depth = 64})
      : nest(hidden_attention(Shown::documents, form)), guesses(nest, kLarge), program(guesses.program(0)) {}
  Nest nest;
  SpaceGuesses guesses;
  TileProgram program;
};

TEST(VisitedTiles, AreAllThatIsRead) {
  PackedDocuments packed;
  const CompiledNvptx compiled = compile_nvptx(packed.program, {});
  EmulatedKernel kernel(compiled.kernel.recipe, compiled.ir);
  const Sizes sizes{{"H", 1}, {"Q", 640}, {"K", 640}};
  HostTensors tensors = make_arguments(packed.nest, sizes, 7);
  // Two documents, of which the second one has no number among its values.
  constexpr std::int64_t kFirst = 384;  // whole tiles of rows and of columns
  for (const char* name : {"own", "other"}) {
    for (std::int64_t k = 0; k < 640; ++k) tensors.at(name).set(k, k < kFirst ? 3 : 4);
  }
  for (std::int64_t k = kFirst * 64; k < 640 * 64; ++k) tensors.at("v").set(k, std::numeric_limits<double>::quiet_NaN());
  std::vector<EmulatedArgument> arguments;
  for (const ArgumentSpec& spec : compiled.kernel.recipe.arguments) {
    HostTensor& tensor = tensors.at(spec.name);
    arguments.push_back({tensor.bytes.data(), static_cast<std::size_t>(tensor.elements()) * size_in_bytes(tensor.type), {}});
  }
  const EmulationResult result = kernel.run(sizes, arguments, {.seed = 1});
  ASSERT_TRUE(result.passed()) << result.problem;
  for (std::int64_t k = 0; k < 640 * 64; ++k) EXPECT_EQ(std::isnan(tensors.at("out").get(k)), k >= kFirst * 64) << k;
}

TEST(VisitedTiles, AskForFiniteValuesOfWhatWouldBeMultipliedByZero) {
  PackedDocuments packed;
  const auto plans = plans_of(packed.program);
  ASSERT_NE(visiting_plan(*plans), nullptr);
  const auto needed = nvptx::finite_operands(*visiting_plan(*plans));
  EXPECT_TRUE(
      std::any_of(needed.begin(), needed.end(), [](const nvptx::FiniteOperand& operand) { return operand.tensor == "v"; }));
  const Sizes sizes{{"H", 1}, {"Q", 3}, {"K", 5}};
  EXPECT_EQ(MaskedFactors(packed.nest).at(sizes).at("v").size(), 5U * 64U) << "any of them may be hidden";
}

TEST(VisitedTiles, HaveNoProofWhereTheyAreOthers) {
  PackedDocuments packed;
  const auto plans = plans_of(packed.program);
  ASSERT_NE(visiting_plan(*plans), nullptr);
  const nvptx::TensorPlan& plan = *visiting_plan(*plans);
  EXPECT_THAT(nvptx::check_tensor_plan(plan).violations, IsEmpty());
  const auto violations = [&](const std::function<void(nvptx::TensorPlan&)>& change) {
    nvptx::TensorPlan changed = plan;
    change(changed);
    return nvptx::check_tensor_plan(changed).violations;
  };
  using Plan = nvptx::TensorPlan;
  EXPECT_THAT(violations([](Plan& p) { p.visited[0].tiles *= 2; }), Not(IsEmpty()));
  EXPECT_THAT(violations([](Plan& p) { p.visited[0].row_blocks -= 1; }), Not(IsEmpty()));
  EXPECT_THAT(violations([](Plan& p) { p.visited[0].last_rows = p.visited[0].last_rows - IntExpr(1); }), Not(IsEmpty()));
  EXPECT_THAT(violations([](Plan& p) { p.visited[0].lower = p.visited[0].lower + IntExpr(1); }), Not(IsEmpty()));
  EXPECT_THAT(violations([](Plan& p) { p.visited[0].upper = p.visited[0].upper - IntExpr(1); }), Not(IsEmpty()));
  EXPECT_THAT(violations([](Plan& p) { p.visited[0].finite.clear(); }), Not(IsEmpty()));
  EXPECT_THAT(violations([](Plan& p) { p.visited.clear(); }), Not(IsEmpty())) << "events count tiles that are left";
  EXPECT_THAT(violations([](Plan& p) {
                for (nvptx::TensorOp& op : p.ops) {
                  if (op.op.name == "score") op.op.value = op.op.value.args()[1];
                }
              }),
              Contains(HasSubstr("another value")));
  // A table that is not one.
  TileProgram other = packed.program;
  for (Buffer& buffer : other.buffers) buffer.next_blocks = false;
  EXPECT_EQ(visiting_plan(*plans_of(other)), nullptr);
}

TEST(VisitedTiles, AreNotLeftOutWhereAnIterationChangesMore) {
  // Maxima start from what may be NaN: the weights of hidden tiles are NaN then.
  PackedDocuments started({.depth = 64, .started = true});
  EXPECT_EQ(visiting_plan(*plans_of(started.program)), nullptr);
}

TEST(HiddenIterations, LeaveExtremaAndSumsAsTheyAre) {
  PackedDocuments packed;
  const auto plans = plans_of(packed.program);
  ASSERT_NE(visiting_plan(*plans), nullptr);
  const nvptx::TensorPlan& plan = *visiting_plan(*plans);
  std::vector<TileOp> ops;
  for (const TileOp* op : nvptx::ops_of(plan.kernel->body)) ops.push_back(*op);
  const std::string& var = plan.visited[0].var;
  const auto places = nvptx::places_of_ops(plan.kernel->body);
  std::size_t begin = 0, end = 0;
  while (places[begin].var != var) ++begin;
  for (end = begin; places[end].var == var; ++end) {}
  const auto why = [&](const std::function<void(TileOp&)>& change, const std::string& name) {
    std::vector<TileOp> changed = ops;
    for (TileOp& op : changed) {
      if (op.name == name) change(op);
    }
    return nvptx::hidden_iteration(packed.program, var, changed, begin, end).why;
  };
  EXPECT_EQ(why([](TileOp&) {}, ""), "");
  const auto hidden_number = [](double number) {
    return [number](TileOp& op) {
      op.value = ScalarExpr::make(ScalarOp::select, {op.value.args()[0], op.value.args()[1], ScalarExpr::constant(number)});
    };
  };
  EXPECT_THAT(why(hidden_number(-1000), "score"), HasSubstr("largest"));
  EXPECT_THAT(why(hidden_number(0), "score"), HasSubstr("largest"));
  EXPECT_THAT(why([](TileOp& op) { op.reduction = ReductionOp::min; }, "largest"), HasSubstr("largest"));
  EXPECT_THAT(why([](TileOp& op) { op.value = ScalarExpr::make(ScalarOp::add, {op.value, ScalarExpr::constant(1)}); }, "total"),
              HasSubstr("total"));
  EXPECT_NE(why([](TileOp& op) { op.value = ScalarExpr::constant(1); }, "power"), "");
}

}  // namespace
}  // namespace nestor::testing
