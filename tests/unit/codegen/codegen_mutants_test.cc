// Mutants of emitted code: an instruction that orders others left out, moved, or with another number. The emulator notices each of them in a few
// orders, by a race, a deadlock, a wrong result or an instruction against its rules. Some dozen by default, NESTOR_MUTANTS=all makes all.
#include "support/mutants/code_mutants.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"
#include "support/tensor/product_nests.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace nestor::testing {
namespace {

constexpr unsigned kOrders = 4;
constexpr std::size_t kByDefault = 10;  // of each kernel

/// A change that nobody can tell from the code, and why. It stands for `count` mutants at most.
struct Equivalent {
  std::string change, line;  ///< parts of both
  int count;
  std::string reason;
};

struct MutatedKernel {
  std::string name;
  TileProgram program;
  NvptxTarget target;
  std::vector<std::pair<Sizes, CheckOptions>> runs;
  std::vector<Equivalent> equivalents;
};

const char* const kNoRegisters =
    "products that touch registers of products alone need one fence behind the last wait; the one before it is still good";
const char* const kTogether =
    "both operands' stages are given back behind one wait for products, so the wait for one does for both";
const char* const kImplied = "what it waits for has happened when a wait behind it, or one in front of it, is over";

std::vector<MutatedKernel> mutated_kernels() {
  const CheckOptions half{.tolerance = 3e-3}, plain{};
  CheckOptions misaligned;
  misaligned.misalignment = 1;
  CheckOptions misaligned_half = half;
  misaligned_half.misalignment = 1;
  const AttentionForm causal{.seen = Seen::causal, .depth = 16};
  std::vector<MutatedKernel> kernels;
  kernels.push_back(
      {"resident",
       tensor_program(attention_nest(causal), {.rows = 128,
                                               .columns = 32,
                                               .more = {"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)",
                                                        "a_from_registers(out.io)", "persistent(out.io, 1)"}}),
       {},
       {{{{"H", 3}, {"Q", 150}, {"K", 150}}, half}, {{{"H", 5}, {"Q", 20}, {"K", 20}}, half}},
       {{"left out", "wgmma.fence", 2, kNoRegisters},
        {"moved behind", "wgmma.fence", 2, kNoRegisters},
        {"left out", "bar.sync $0, 256", 1, "turns are for speed: nothing that groups compute depends on whose turn it is"},
        {"left out", "mbarrier.try_wait", 1, kImplied},
        {"moved behind", "mbarrier.try_wait", 1, kImplied}}});
  kernels.push_back(
      {"cluster",
       tensor_program(attention_nest({.depth = 16}),
                      {.rows = 256,
                       .columns = 32,
                       .more = {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)", "cluster(out.io, 2)"}}),
       {},
       {{{{"H", 3}, {"Q", 60}, {"K", 150}}, half}, {{{"H", 5}, {"Q", 40}, {"K", 20}}, half}},
       {{"left out", "wgmma.fence", 2, kNoRegisters},
        {"moved behind", "wgmma.fence", 2, kNoRegisters},
        {"left out", "mbarrier.try_wait", 3, "at the end, the wait for the last stage that groups give back is enough"},
        {"parity flipped", "mbarrier.try_wait", 1, "at the end, the wait for the last stage that groups give back is enough"}}});
  kernels.push_back({"tiles_in_turn",
                     product_program({}, {.rows = 64, .more = {"persistent(out.io, 1)", "ping_pong_tiles(out.io)"}}),
                     {},
                     {{{{"M", 270}, {"N", 200}, {"K", 136}}, half}, {{{"M", 200}, {"N", 40}, {"K", 40}}, half}},
                     {{"left out", "mbarrier.try_wait", 1, kTogether}, {"moved behind", "mbarrier.try_wait", 1, kTogether}}});
  kernels.push_back(
      {"sm_80",
       tensor_program(attention_nest({.depth = 32}), {.rows = 64, .columns = 32, .warpgroups = 1, .stages = 2}),
       {.sm = 80},
       {{{{"H", 1}, {"Q", 64}, {"K", 150}}, half},
        {{{"H", 1}, {"Q", 64}, {"K", 128}}, half},
        {{{"H", 1}, {"Q", 60}, {"K", 70}}, misaligned_half}},
       {{"left out", "cp.async.commit_group", 2,
         "its copies then belong to the next group, which is waited for before they are read"},
        {"moved behind", "cp.async.commit_group", 1, "as if left out"},
        {"", "cp.async.wait_group 1", 3, "what stays for the work tile is read behind the first wait of the loop alone"},
        {"left out", "barrier0", 1, "what stays for the work tile is read behind the first barrier of the loop alone"},
        {"left out", "bar.warp.sync", 1, "nothing was in the place of the results before"}}});
  kernels.push_back({"exchange",
                     norm_program(ElementType::f32, 2048, 1, false, {.threads = 64, .persistent = 4, .cluster = 4}),
                     {},
                     {{{{"batch", 9}}, plain}, {{{"batch", 9}}, misaligned}},
                     {}});
  kernels.push_back({"columns",
                     column_parts_program(ElementType::f32, 256, 5, 3),
                     {},
                     {{{{"batch", 23}}, plain}, {{{"batch", 23}}, misaligned}},
                     {}});
  return kernels;
}

std::ostream& operator<<(std::ostream& out, const MutatedKernel& kernel) { return out << kernel.name; }

class Mutants : public ::testing::TestWithParam<MutatedKernel> {
 protected:
  void prepare(const CompiledNvptx& compiled) {
    recipe_ = compiled.kernel.recipe;
    for (const auto& [sizes, options] : GetParam().runs) data_.push_back(make_data(GetParam().program, recipe_, sizes, options));
  }

  /// What the first run shows that shows anything; empty: none does.
  std::string problem(const std::string& ir, unsigned orders) const {
    EmulatedKernel kernel(recipe_, ir);
    for (unsigned seed = 1; seed <= orders; ++seed) {
      for (std::size_t k = 0; k < data_.size(); ++k) {
        const auto& [sizes, options] = GetParam().runs[k];
        HostImage image(recipe_, data_[k], options);
        const EmulationResult result = kernel.run(sizes, image.arguments, {.seed = seed});
        if (!result.passed()) return result.problem;
        const std::string difference =
            compare(recipe_, data_[k], options, [&](std::size_t n) { return image.memory[n]->data(); });
        if (!difference.empty()) return difference;
      }
    }
    return "";
  }

  LaunchRecipe recipe_;
  std::vector<CheckData> data_;
};

/// Takes one of those that the rules account for.
bool is_equivalent(std::vector<Equivalent>& equivalents, const CodeMutant& mutant) {
  for (Equivalent& known : equivalents) {
    if (known.count == 0 || mutant.change.find(known.change) != 0 || mutant.line.find(known.line) == std::string::npos) continue;
    --known.count;
    return true;
  }
  return false;
}

TEST_P(Mutants, are_noticed) {
  const CompiledNvptx compiled = compile_nvptx(GetParam().program, GetParam().target);
  prepare(compiled);
  ASSERT_EQ(problem(compiled.ir, 2 * kOrders), "");
  CodeMutator mutator(compiled.ir);
  const std::vector<CodeMutant> mutants = mutator.all();
  const char* which = std::getenv("NESTOR_MUTANTS");
  const bool all = which != nullptr && std::string(which) == "all";
  const std::size_t step = all ? 1 : std::max<std::size_t>(mutants.size() / kByDefault, 1);
  std::vector<Equivalent> equivalents = GetParam().equivalents;
  int noticed = 0, argued = 0, idle = 0;
  for (std::size_t k = step / 2; k < mutants.size(); k += step) {
    const CodeMutant& mutant = mutants[k];
    if (!problem(mutant.ir, kOrders).empty()) {
      ++noticed;
    } else if (problem(mutator.trapped(mutant.number), 1).empty()) {
      ++idle;  // nothing runs it here
    } else if (is_equivalent(equivalents, mutant)) {
      ++argued;
    } else {
      ADD_FAILURE() << "nobody notices: " << mutant.change << "\n" << mutant.line;
    }
  }
  RecordProperty("noticed", noticed);
  RecordProperty("argued", argued);
  RecordProperty("idle", idle);
  std::printf("%d noticed, %d equivalent by rule, %d in code that does not run here\n", noticed, argued, idle);
  EXPECT_GT(noticed, 0);
}

INSTANTIATE_TEST_SUITE_P(kernels, Mutants, ::testing::ValuesIn(mutated_kernels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nestor::testing
