// Whatever tiles, groups, stages and options a schedule for tensor cores chooses, its plan is the definition.
#include "support/tensor/tensor_problem.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace nestor::testing {
namespace {

class Choices {
 public:
  explicit Choices(unsigned seed) : random_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool flip() { return between(0, 1) == 1; }

 private:
  std::mt19937 random_;
};

/// `sm`: compute capability times ten. Without turns before 9.0.
void random_choices_give_the_definition(int sm) {
  const char* more = std::getenv("NESTOR_TEST_CASES");
  const int cases = more != nullptr ? std::atoi(more) : 12;
  for (int k = 0; k < cases; ++k) {
    Choices choose(static_cast<unsigned>(k));
    AttentionForm form{
        .seen = static_cast<Seen>(choose.between(0, 2)), .result = ElementType::f32, .depth = 8 * choose.between(1, 4)};
    if (choose.flip()) form.result = form.type;
    form.grouped = sm >= 90 && choose.between(0, 2) == 0;
    TensorSteps steps;
    if (form.grouped) steps.pack = 1 << choose.between(1, 3);
    steps.warpgroups = choose.between(1, 3);
    steps.rows = 16 * choose.between(1, 4 * steps.warpgroups * (steps.warpgroups == 1 ? 2 : 1));
    steps.columns = 8 * choose.between(1, 9);
    steps.stages = choose.between(1, 3);
    for (const char* step : {"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)", "a_from_registers(out.io)",
                             "early_release(out.io)", "min_blocks(out.io, 2)", "persistent(out.io, 1)"}) {
      if (choose.flip() && (sm >= 90 || std::string(step) != "ping_pong(out.io)")) steps.more.emplace_back(step);
    }
    const bool persistent = !steps.more.empty() && steps.more.back().starts_with("persistent");
    if (sm >= 90 && persistent && choose.flip()) steps.more.emplace_back("dynamic_scheduler(out.io)");
    const bool dynamic = !steps.more.empty() && steps.more.back().starts_with("dynamic_scheduler");
    if (sm >= 90 && !dynamic && choose.flip()) {
      const int blocks = choose.flip() ? 2 : 4;
      steps.rows *= blocks;
      steps.columns = static_cast<int>(nvptx::round_up(steps.columns, 8 * blocks));
      steps.more.push_back(fmt::format("cluster(out.io, {})", blocks));
    }
    if (choose.flip()) steps.rules = lazy_rules(choose.between(1, 3));
    if (choose.flip()) steps.more.push_back(fmt::format("unroll(total.jo, {})", choose.between(2, 4)));
    TensorShape shape{choose.between(1, 150), 0, choose.between(1, 100), form.depth};
    if (form.grouped) {
      shape.queries = choose.between(1, 40);
      shape.group = choose.between(1, 9);
    }
    shape.keys = form.seen == Seen::all ? choose.between(1, 150) : shape.queries + choose.between(0, 70);
    const TensorRun options{.round_operands = false, .blocks = choose.between(1, 4), .seed = static_cast<unsigned>(k)};
    const double tolerance = form.result == ElementType::f32 ? 1e-9 : 6e-4;
    NvptxTarget target;
    target.sm = sm;
    const double error =
        tensor_error(tensor_program(attention_nest(form), steps), shape, form.type, form.seen, true, options, target);
    EXPECT_LT(error, tolerance) << "case " << k << ": " << steps.rows << " x " << steps.columns << " tiles, " << steps.warpgroups
                                << " groups, " << steps.stages << " stages, " << fmt::format("{}", fmt::join(steps.more, " "))
                                << "; " << shape.queries << " x " << shape.keys << " in groups of " << shape.group << " by "
                                << steps.pack << ", window " << shape.window << ", sm " << sm;
  }
}

TEST(TensorPlans, random_choices_give_the_definition) { random_choices_give_the_definition(90); }
TEST(TensorPlans, random_choices_give_the_definition_where_all_threads_copy) { random_choices_give_the_definition(80); }

}  // namespace
}  // namespace nestor::testing
