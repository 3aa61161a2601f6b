// The proof of a block plan: sound plans have one, and of the mutants that have one, none computes anything else when it is run.
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/kernel_builder.h"
#include "codegen/gpu/simt/proof/block_check.h"
#include "codegen/gpu/simt/proof/block_proof.h"
#include "codegen/gpu/simt/proof/launch_check.h"
#include "support/mutants/block_mutants.h"
#include "support/simt/simt_image.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace nestor::testing {
namespace {

using nvptx::BlockPlan;

const std::vector<SimtCase>& all_cases() {
  static const std::vector<SimtCase> kCases = simt_cases();
  return kCases;
}

class BlockCheck : public ::testing::TestWithParam<SimtCase> {};

TEST_P(BlockCheck, every_plan_has_a_proof) {
  const SimtCase& test = GetParam();
  NvptxTarget target;
  target.threads = test.threads;
  const nvptx::LaunchPlan launches = nvptx::plan_launches(test.program, test.threads);
  for (const nvptx::KernelPlan& kernel : launches.kernels) {
    for (const BlockPlan& plan : plan_bodies(kernel, launches.program, target)) {
      const nvptx::BlockCertificate certificate = nvptx::check_block_plan(plan);
      EXPECT_THAT(certificate.violations, ::testing::IsEmpty());
      EXPECT_THAT(certificate.unproved, ::testing::IsEmpty());
    }
  }
}

TEST_P(BlockCheck, launches_run_the_program) {
  EXPECT_THAT(nvptx::check_launches(nvptx::plan_launches(GetParam().program, GetParam().threads)), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(cases, BlockCheck, ::testing::ValuesIn(all_cases()), [](const auto& info) { return info.param.name; });

/// Bounds of tiles at the ends of several ranges: a minimum, and 1 more.
TEST(BlockCheck, extents_behind_sums_with_minima_are_known) {
  const IntExpr tile = IntExpr::variable("tile"), rows = IntExpr::variable("rows");
  const IntExpr last = IntExpr::make(IntOp::min, {IntExpr(63), rows - tile * IntExpr(64) - IntExpr(3)});
  EXPECT_EQ(nvptx::distance_bound(IntExpr(0), last + IntExpr(1)), 64);
  EXPECT_EQ(nvptx::distance_bound(tile, IntExpr(1) + IntExpr::make(IntOp::min, {tile + IntExpr(7), rows})), 8);
  EXPECT_EQ(nvptx::distance_bound(IntExpr(0), rows + IntExpr(1)), std::nullopt);
}

// ---- ops that only look parallel

/// out[i / 3] += x[i], as if no two values of i met.
TileOp scattering_op(const ProgramMaker& m, int out, int x, const OpDim& dim, const IntExpr& index) {
  TileOp op = make_op(OpKind::reduce, "u", {dim}, {out, {floor_div(index, 3)}}, {{x, {index}}});
  op.value = m.read(op, 0);
  op.reduction = ReductionOp::add;
  return op;
}

std::string refusal(const TileProgram& program) {
  try {
    compile_nvptx(program, {});
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(BlockRaces, lanes_that_add_to_one_address_are_refused_with_an_example) {
  ProgramMaker m("scatter");
  m.size("n");
  const int x = m.input("x", ElementType::f32, {var("n")}), out = m.output("out", ElementType::f32, {var("n")});
  const OpDim dim = parallel_dim("i", 0, min(IntExpr(96), var("n") - IntExpr(96) * var("b")), 96);
  const TileOp op = scattering_op(m, out, x, dim, IntExpr(96) * var("b") + var("i"));
  const TileProgram program = m.finish(loop("b", 0, floor_div(var("n") + IntExpr(95), 96), leaf(op), LoopKind::gpu_block));
  EXPECT_THAT(refusal(program), ::testing::HasSubstr("two points of u touch out[(96*b + i) / 3]"));
  EXPECT_THAT(refusal(program), ::testing::ContainsRegex("n = [0-9]+"));
}

TEST(BlockRaces, blocks_that_add_to_one_address_are_refused) {
  ProgramMaker m("scatter");
  m.size("n");
  const int x = m.input("x", ElementType::f32, {var("n")}), out = m.output("out", ElementType::f32, {var("n")});
  const TileProgram program = m.finish(leaf(scattering_op(m, out, x, parallel_dim("i", 0, var("n")), var("i"))));
  EXPECT_THAT(refusal(program), ::testing::HasSubstr("two blocks at u touch out"));
}

/// x[i + 1] is written while another thread may still read it.
TEST(BlockRaces, a_neighbour_that_is_overwritten_is_refused) {
  ProgramMaker m("shift");
  m.size("rows");
  const int x = m.input("x", ElementType::f32, {var("rows"), 64}), y = m.output("y", ElementType::f32, {var("rows"), 65});
  TileOp first =
      make_op(OpKind::copy, "first", {parallel_dim("i", 0, 64)}, {y, {var("r"), var("i")}}, {{x, {var("r"), var("i")}}});
  first.value = m.read(first, 0);
  TileOp op = make_op(OpKind::map, "move", {parallel_dim("i", 0, 64)}, {y, {var("r"), var("i") + IntExpr(1)}},
                      {{y, {var("r"), var("i")}}});
  op.value = m.read(op, 0);
  const TileProgram program = m.finish(loop("r", 0, var("rows"), sequence({leaf(first), leaf(op)}), LoopKind::gpu_block));
  EXPECT_THAT(refusal(program), ::testing::HasSubstr("two points of move touch y"));
}

// ---- passes

TEST(JoinedPasses, reductions_over_the_same_memory_share_a_pass_and_others_do_not) {
  for (const std::int64_t tile : {1, 8}) {
    NvptxTarget target;
    target.threads = 64;
    const nvptx::LaunchPlan launches = nvptx::plan_launches(joined_sums_program(ElementType::f32, tile), 64);
    for (const BlockPlan& plan : plan_bodies(launches.kernels.front(), launches.program, target)) {
      std::map<std::string, std::string> passes;
      for (const nvptx::BlockOp& op : plan.ops) passes[op.op.name] = op.joins < 0 ? "" : plan.ops[op.joins].op.name;
      EXPECT_EQ(passes.at("b"), "a") << "the same elements of x";
      EXPECT_EQ(passes.at("a") + passes.at("d"), "") << "d needs what a has found";
      BlockPlan mutant = plan;
      for (nvptx::BlockOp& op : mutant.ops) {
        if (op.op.name == "d") op.joins = 0;
      }
      EXPECT_THAT(nvptx::check_block_plan(mutant).violations, ::testing::Not(::testing::IsEmpty()));
    }
  }
}

TEST(JoinedPasses, elementwise_ops_at_the_same_points_share_them_and_others_do_not) {
  const nvptx::LaunchPlan launches = nvptx::plan_launches(joined_maps_program(8), 64);
  for (const BlockPlan& plan : plan_bodies(launches.kernels.front(), launches.program, {.threads = 64})) {
    std::map<std::string, std::string> passes;
    for (const nvptx::BlockOp& op : plan.ops) passes[op.op.name] = op.joins < 0 ? "" : plan.ops[op.joins].op.name;
    EXPECT_EQ(passes.at("minus"), "plus");
    EXPECT_EQ(passes.at("times"), "plus") << "under its own guard";
    EXPECT_EQ(passes.at("plus") + passes.at("again"), "") << "again reads what plus has written";
    const auto violations = [&](const std::string& name, const std::function<void(nvptx::BlockOp&)>& change) {
      BlockPlan mutant = plan;
      for (nvptx::BlockOp& op : mutant.ops) {
        if (op.op.name == name) change(op);
      }
      return nvptx::check_block_plan(mutant).violations;
    };
    EXPECT_THAT(violations("minus", [](nvptx::BlockOp&) {}), ::testing::IsEmpty());
    EXPECT_THAT(violations("again", [](nvptx::BlockOp& op) { op.joins = 0; }), ::testing::Not(::testing::IsEmpty()));
    EXPECT_THAT(violations("minus", [](nvptx::BlockOp& op) { op.barrier_before = true; }), ::testing::Not(::testing::IsEmpty()));
    EXPECT_THAT(violations("minus", [](nvptx::BlockOp& op) { op.op.dims[1].lower = IntExpr(1); }),
                ::testing::Not(::testing::IsEmpty()));
    EXPECT_THAT(violations("plus", [](nvptx::BlockOp& op) { op.joins = 1; }), ::testing::Not(::testing::IsEmpty()));
  }
}

// ---- launches

/// What is said of a program's launches after a change of them.
std::vector<std::string> problems_after(const TileProgram& program, const std::function<void(nvptx::LaunchPlan&)>& change) {
  nvptx::LaunchPlan plan = nvptx::plan_launches(program, 256);
  change(plan);
  return nvptx::check_launches(plan);
}

using Launches = nvptx::LaunchPlan;

TEST(LaunchMutants, have_no_proof) {
  const TileProgram steps = relaxation_program(), parts = column_parts_program(ElementType::f32, 256, 5, 1),
                    product = product_program(ElementType::f32, false, true),
                    rows = norm_program(ElementType::f32, 512, 4, true, {.threads = 64, .persistent = 2, .cluster = 2});
  const std::vector<std::pair<std::string, std::function<void(Launches&)>>> changes{
      {"a kernel left out", [](Launches& p) { p.launches.pop_back(); }},
      {"kernels in another order", [](Launches& p) { std::reverse(p.launches.begin(), p.launches.end()); }},
      {"a kernel twice", [](Launches& p) { p.launches.push_back(p.launches.back()); }},
      {"blocks more", [](Launches& p) { p.launches.back().grid[0] = p.launches.back().grid[0] + IntExpr(1); }},
      {"blocks fewer", [](Launches& p) { p.launches.back().grid[0] = p.launches.back().grid[0] - IntExpr(1); }},
      {"no blocks", [](Launches& p) { p.launches.back().grid[0] = IntExpr(0); }},
      {"another start",
       [](Launches& p) { p.kernels.back().grid.back().lower = p.kernels.back().grid.back().lower + IntExpr(1); }},
      {"another step", [](Launches& p) { p.kernels.back().grid.back().step += 1; }},
      {"another count",
       [](Launches& p) { p.kernels.back().grid.back().count = p.kernels.back().grid.back().count - IntExpr(1); }},
      {"a grid's loop left out", [](Launches& p) { p.kernels.back().grid.pop_back(); }},
      {"a grid's loop twice", [](Launches& p) { p.kernels.back().grid.push_back(p.kernels.back().grid.back()); }},
      {"other clusters", [](Launches& p) { p.launches.back().cluster[0] *= 2; }},
  };
  int refused = 0;
  for (const TileProgram& program : {steps, parts, product, rows}) {
    ASSERT_THAT(problems_after(program, [](Launches&) {}), ::testing::IsEmpty());
    for (const auto& [what, change] : changes) {
      if (nvptx::plan_launches(program, 256).launches.size() < 2 && what == "kernels in another order") continue;
      EXPECT_THAT(problems_after(program, change), ::testing::Not(::testing::IsEmpty())) << program.name << ": " << what;
      ++refused;
    }
  }
  EXPECT_GE(refused, 45);
  const auto later = [](Launches& p) { p.launches[1].lower = p.launches[1].lower + IntExpr(1); };
  EXPECT_THAT(problems_after(steps, later), ::testing::Not(::testing::IsEmpty()));
  // What a kernel's plan relies on is what its launches give.
  const std::vector<std::pair<std::string, std::function<void(nvptx::KernelPlan&)>>> beliefs{
      {"fewer trips", [](auto& k) { k.launch_loops[0].upper = k.launch_loops[0].upper - IntExpr(1); }},
      {"later trips", [](auto& k) { k.launch_loops[0].lower = k.launch_loops[0].lower + IntExpr(1); }},
      {"another loop", [](auto& k) { k.launch_loops[0].var = "other"; }},
      {"no loop", [](auto& k) { k.launch_loops.clear(); }},
      {"a condition", [](auto& k) { k.condition = IntExpr::make(IntOp::gt, {var("n"), IntExpr(8)}); }},
  };
  for (const auto& [what, change] : beliefs) {
    const auto in_loop = [&](Launches& p) { change(p.kernels[1]); };
    EXPECT_THAT(problems_after(steps, in_loop), ::testing::Not(::testing::IsEmpty())) << what;
  }
}

/// out[r, i], i <= r, with a bound of 64 values that only the launcher's loop keeps, or its condition.
TileProgram triangle_program(std::int64_t rows, const IntExpr& condition = {}) {
  ProgramMaker m("triangle");
  m.size("n");
  const int x = m.input("x", ElementType::f32, {128, var("n"), 128}),
            out = m.output("out", ElementType::f32, {128, var("n"), 128});
  OpDim columns = parallel_dim("i", 0, var("r") + IntExpr(1), 64);
  TileOp op = make_op(OpKind::copy, "u", {columns}, {out, {var("r"), var("b"), var("i")}}, {{x, {var("r"), var("b"), var("i")}}});
  op.value = m.read(op, 0);
  TileTree body = loop("b", 0, var("n"), leaf(op), LoopKind::gpu_block);
  if (condition.defined()) {
    auto node = std::make_shared<TileNode>();
    node->kind = TileNode::Kind::condition;
    node->condition = condition;
    node->children = {body};
    body = node;
  }
  return m.finish(loop("r", 0, IntExpr(rows), body));
}

TEST(BlockLaunches, bounds_of_loops_around_a_launch_are_known_in_its_kernels) {
  EXPECT_EQ(refusal(triangle_program(64)), "");
  EXPECT_THAT(refusal(triangle_program(65)), ::testing::HasSubstr("i has more than 64 values where"));
  const IntExpr first_rows = IntExpr::make(IntOp::gt, {IntExpr(64), var("r")}),
                more = IntExpr::make(IntOp::gt, {IntExpr(65), var("r")});
  EXPECT_EQ(refusal(triangle_program(100, first_rows)), "");
  EXPECT_THAT(refusal(triangle_program(100, more)), ::testing::HasSubstr("i has more than 64 values where"));
}

/// Points that a guard leaves out touch nothing; sums are stored whatever their guard.
// Sums are stored where the guard holds for some reduced point, as far as other dims say so.
TEST(BlockRaces, guards_keep_points_apart_and_sums_unless_reduced_dims_decide) {
  struct Form {
    OpKind kind;
    bool by_reduced;
  };
  for (const Form& form : {Form{OpKind::points, false}, Form{OpKind::reduce, false}, Form{OpKind::reduce, true}}) {
    ProgramMaker m("guarded");
    m.size("n");
    const int x = m.input("x", ElementType::f32, {var("n"), 8}), out = m.output("out", ElementType::f32, {var("n")});
    const IntExpr place = IntExpr(4) * var("i") + IntExpr(3) * var("j") + var("k");
    const IntExpr most = form.by_reduced ? IntExpr(3) + var("l") : IntExpr(3);
    const IntExpr inside = IntExpr::make(IntOp::ge, {most, IntExpr(3) * var("j") + var("k")});
    const IntExpr within = IntExpr::make(IntOp::gt, {var("n"), place});
    TileOp op = make_op(form.kind, "u",
                        {parallel_dim("i", 0, floor_div(var("n") + IntExpr(3), 4)), parallel_dim("j", 0, 2),
                         parallel_dim("k", 0, 3), reduced_dim("l", 0, 8)},
                        {out, {place}}, {{x, {place, var("l")}}});
    op.value = m.read(op, 0);
    op.reduction = ReductionOp::add;
    op.guard = inside && within;
    const std::string refused = refusal(m.finish(leaf(op)));
    EXPECT_THAT(refused, ::testing::HasSubstr(form.by_reduced ? "two blocks at u touch out" : ""));
    EXPECT_EQ(refused.empty(), !form.by_reduced) << refused;
  }
}

/// x[p, p] of p = q alone: the guard's equality tells points apart, whatever the bounds.
TEST(BlockRaces, equal_indices_in_a_guard_tell_points_apart) {
  for (const bool guarded : {true, false}) {
    ProgramMaker m("diagonal");
    m.size("n").size("w");
    const int out = m.output("out", ElementType::f32, {var("n"), var("n"), var("w")});
    const IntExpr low = max(floor_div(var("n") - var("w"), 16), 0);
    TileOp op = make_op(OpKind::points, "u",
                        {parallel_dim("p", low, var("n")), parallel_dim("i", 0, var("w")), parallel_dim("q", low, var("n"))},
                        {out, {var("p"), var("p"), var("i")}}, {});
    op.value = ScalarExpr::constant(0);
    if (guarded) op.guard = IntExpr::make(IntOp::eq, {var("p"), var("q")});
    const std::string refused = refusal(m.finish(leaf(op)));
    EXPECT_THAT(refused, ::testing::HasSubstr(guarded ? "" : "touch out[p, p, i]"));
    EXPECT_EQ(refused.empty(), guarded) << refused;
  }
}

// ---- mutants

/// How a case is run: sizes and addresses at which conditions on vectors hold, and at which they do not.
struct Setting {
  Sizes sizes;
  CheckOptions options;
};

std::vector<Setting> settings_of(const SimtCase& test) {
  std::vector<Setting> settings{{test.sizes, test.options}};
  CheckOptions padded = test.options, crooked = test.options;
  padded.row_padding = 3;
  crooked.misalignment = 1;
  settings.push_back({test.sizes, padded});
  settings.push_back({test.sizes, crooked});
  for (const std::int64_t by : {-1, 3, 8}) {
    Setting ragged{test.sizes, test.options};
    for (auto& [name, size] : ragged.sizes) size = std::max<std::int64_t>(size + by, 1);
    settings.push_back(ragged);
  }
  return settings;
}

/// The code of a program, one of whose kernels has these plans.
CompiledNvptx with_plans(const CompiledNvptx& compiled, std::size_t changed, const std::vector<BlockPlan>& plans) {
  llvm::LLVMContext context;
  llvm::Module module("mutant", context);
  CompiledNvptx result = compiled;
  std::map<std::string, nvptx::BuiltKernel> kernels;
  for (std::size_t k = 0; k < compiled.plans->kernels.size(); ++k) {
    PlannedKernel planned = compiled.plans->kernels[k];
    if (k == changed) planned.bodies = plans;
    kernels[planned.kernel->symbol] = nvptx::build_kernel(module, planned, compiled.plans->launches.program);
  }
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(module, &stream)) internal_error("invalid code: {}", problem);
  const std::function<void(std::vector<LaunchNode>&)> complete = [&](std::vector<LaunchNode>& nodes) {
    for (LaunchNode& node : nodes) {
      complete(node.children);
      if (node.kind != LaunchNode::Kind::kernel) continue;
      node.block[0] = kernels.at(node.symbol).threads;
      node.shared_bytes = kernels.at(node.symbol).shared_bytes;
    }
  };
  complete(result.kernel.recipe.launches);
  result.ir.clear();
  llvm::raw_string_ostream text(result.ir);
  module.print(text, nullptr);
  return result;
}

constexpr unsigned kLongestRun = 20;  ///< seconds, of a mutant at all settings

/// What `compute` returns, from a process of its own: a mutant may touch what it must not.
std::string in_own_process(const std::function<std::string()>& compute) {
  int ends[2];
  if (pipe(ends) != 0) internal_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLongestRun);
    std::string text;
    try {
      text = compute();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (write(ends[1], text.data(), std::min<std::size_t>(text.size(), 4000)) < 0) _exit(2);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? text : "its result is lost";
  if (WTERMSIG(status) == SIGALRM) return fmt::format("it runs for more than {} s", kLongestRun);
  return fmt::format("it ends by signal {}", WTERMSIG(status));
}

/// Which mutants are run: a few of those that have a proof, all of those, or all there are, to count what a run tells apart.
enum class Emulated { few, accepted, all };
constexpr int kFew = 2;  ///< of each plan, about

Emulated asked_for() {
  const char* asked = std::getenv("NESTOR_BLOCK_MUTANTS");
  if (asked == nullptr) return Emulated::few;
  return std::string(asked) == "all" ? Emulated::all : Emulated::accepted;
}

/// All mutants of a case's plans.
class MutantRun {
 public:
  explicit MutantRun(const SimtCase& test) : test_(test) {
    NvptxTarget target;
    target.threads = test.threads;
    compiled_ = compile_nvptx(test.program, target);
    for (const Setting& setting : settings_of(test))
      settings_.emplace_back(setting, make_data(test.program, compiled_.kernel.recipe, setting.sizes, setting.options));
  }

  void run() {
    for (std::size_t k = 0; k < compiled_.plans->kernels.size(); ++k) {
      const std::vector<BlockPlan>& plans = compiled_.plans->kernels[k].bodies;
      for (std::size_t p = 0; p < plans.size(); ++p) of_plan(k, plans, p);
    }
    fmt::print("{}: {} mutants, {} with a proof, {} run, {} of them told apart\n", test_.name, mutants_, accepted_, run_,
               told_apart_);
    EXPECT_GT(mutants_, 10 * accepted_ / 4);
  }

 private:
  void of_plan(std::size_t kernel, const std::vector<BlockPlan>& plans, std::size_t changed) {
    std::vector<std::pair<BlockMutant, bool>> chosen;  // and whether it has a proof
    std::vector<BlockMutant> accepted;
    for (BlockMutant& mutant : BlockMutator(plans[changed]).all()) {
      ++mutants_;
      if (nvptx::check_block_plan(mutant.plan).holds()) {
        accepted.push_back(std::move(mutant));
      } else if (asked_for() == Emulated::all) {
        chosen.emplace_back(std::move(mutant), false);
      }
    }
    accepted_ += static_cast<int>(accepted.size());
    const std::size_t step = asked_for() == Emulated::few ? std::max<std::size_t>(accepted.size() / kFew, 1) : 1;
    for (std::size_t a = 0; a < accepted.size(); a += step) chosen.emplace_back(std::move(accepted[a]), true);
    for (const auto& [mutant, proved] : chosen) {
      std::vector<BlockPlan> bodies = plans;
      bodies[changed] = mutant.plan;
      const std::string difference = difference_of(kernel, bodies);
      ++run_;
      told_apart_ += difference.empty() ? 0 : 1;
      EXPECT_TRUE(!proved || difference.empty()) << mutant.where << ": " << mutant.what << " has a proof, and " << difference;
    }
  }

  std::string difference_of(std::size_t kernel, const std::vector<BlockPlan>& plans) const {
    return in_own_process([&] {
      const CompiledNvptx code = with_plans(compiled_, kernel, plans);
      for (const auto& [setting, data] : settings_) {
        const std::string found = run_emulated(code, data, setting.sizes, setting.options, {1});
        if (!found.empty()) return found;
      }
      return std::string();
    });
  }

  const SimtCase& test_;
  CompiledNvptx compiled_;
  std::vector<std::pair<Setting, CheckData>> settings_;
  int mutants_ = 0, accepted_ = 0, run_ = 0, told_apart_ = 0;
};

class BlockMutants : public ::testing::TestWithParam<SimtCase> {};

TEST_P(BlockMutants, with_a_proof_compute_what_the_program_says) { MutantRun(GetParam()).run(); }

/// One small case for each thing that plans can have. Sizes replace those of the case: each mutant runs at several settings, one thread of
/// the emulator for each of the kernel's.
std::vector<SimtCase> mutated_cases() {
  const std::vector<std::pair<std::string, Sizes>> kinds{{"vector_f16", {}},
                                                         {"strided", {{"rows", 2}, {"cols", 200}}},
                                                         {"strided_bf16_by_4", {{"rows", 2}, {"cols", 64}}},
                                                         {"strided_with_gaps", {{"rows", 2}, {"cols", 64}}},
                                                         {"rows_f16", {}},
                                                         {"rows_across_warps", {}},
                                                         {"resident_rows", {}},
                                                         {"resident_cluster", {}},
                                                         {"cluster_rows", {}},
                                                         {"cluster_crowded", {}},
                                                         {"column_parts", {}},
                                                         {"column_sums", {}},
                                                         {"joined_sums", {{"rows", 9}, {"cols", 37}}},
                                                         {"joined_maps", {{"rows", 9}, {"cols", 11}}},
                                                         {"pairs", {{"n", 21}, {"of", 37}}},
                                                         {"counts", {{"bins", 21}, {"n", 9}}},
                                                         {"lookup", {{"rows", 5}, {"keys", 9}}},
                                                         {"scattered", {{"rows", 1}, {"places", 70}, {"terms", 37}}},
                                                         {"scattered_unknown", {{"rows", 1}, {"places", 70}, {"terms", 9}}},
                                                         {"plane_sums", {}},
                                                         {"plane_sums_of_clusters", {}},
                                                         {"unknown_width", {}},
                                                         {"product_tails", {{"m", 20}, {"n", 70}, {"k", 21}}},
                                                         {"stream_product", {{"m", 65}, {"n", 67}, {"k", 35}}},
                                                         {"product_transposed", {{"m", 12}, {"n", 40}, {"k", 37}}},
                                                         {"blocked_product_narrow", {{"m", 20}, {"n", 28}, {"k", 36}}},
                                                         {"blocked_squares", {{"m", 20}, {"n", 28}, {"k", 36}}},
                                                         {"one_pass_masked", {{"heads", 1}, {"s", 35}}},
                                                         {"masked_product", {{"n", 40}}},
                                                         {"block_steps", {}},
                                                         {"stepped_columns", {}},
                                                         {"transpose", {}},
                                                         {"running_sums", {}},
                                                         {"wavefronts", {}},
                                                         {"windows_known", {{"high", 3}}},
                                                         {"windows_then_norm", {{"high", 3}}},
                                                         {"windows_padded", {{"high", 3}, {"across", 6}, {"maps", 8}}},
                                                         {"windows_odd_width", {{"high", 1}, {"across", 18}, {"maps", 5}}},
                                                         {"windows_channels_first", {{"high", 9}, {"across", 6}}},
                                                         {"prefix_unknown", {{"rows", 2}, {"cols", 131}}},
                                                         {"prefix_kept", {}},
                                                         {"prefix_rows", {{"rows", 9}}},
                                                         {"prefix_rows_across_warps", {{"rows", 4}}},
                                                         {"prefix_down", {{"rows", 21}, {"cols", 9}}},
                                                         {"prefix_shifted", {}},
                                                         {"recurrence", {{"rows", 37}, {"steps", 19}}},
                                                         {"recurrence_in_scratch", {}},
                                                         {"triangular_later", {}},
                                                         {"triangular_in_scratch", {{"systems", 1}, {"cols", 9}}},
                                                         {"triangular_unknown", {{"systems", 1}, {"cols", 3}, {"steps", 18}}},
                                                         {"triangular_ahead", {}},
                                                         {"prefix_shifted_rows", {{"rows", 5}}},
                                                         {"integers", {}}};
  std::vector<SimtCase> chosen;
  for (const auto& [kind, sizes] : kinds) {
    for (const SimtCase& test : all_cases()) {
      if (test.name.substr(0, test.name.rfind('_')) != kind) continue;
      chosen.push_back(test);
      if (!sizes.empty()) chosen.back().sizes = sizes;
      break;
    }
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(cases, BlockMutants, ::testing::ValuesIn(mutated_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nestor::testing
