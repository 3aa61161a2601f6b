// What the checker of tensor plans says of mutants, each held by its place: none that goes wrong when it is run has a proof, and golden/mutants
// lists for each plan those that have one, and those that have none though no run here goes wrong.
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "support/mutants/tensor_mutants.h"
#include "support/temporary_folder.h"
#include "support/tensor/tensor_check_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace nestor::testing {
namespace {

using Reasons = std::map<std::string, std::string>;

/// Mutants that mean the same, and have a proof. "x after y": x and y, which came next, have changed places.
const Reasons& harmless() {
  static const Reasons kReasons = {
      {"compute after wait_full", "the next work tile's number is waited for earlier, or tiles that the op does not read"},
      {"compute after compute", "ops on different tiles"},
      {"compute after narrow", "an op on another tile than the operand's source"},
      {"compute after wait_products", "the products that end write other tiles"},
      {"narrow after wait_full", "waiting for a tile touches no fragment"},
      {"wait_full after compute", "waiting for a tile touches no fragment"},
      {"wait_full after narrow", "waiting for a tile touches no fragment"},
      {"release after compute", "a tile is released later"},
      {"release after quad_reduction", "a tile is released later"},
      {"release after wait_full", "a tile is released later, after the wait for one of another circular buffer"},
      {"release after release", "tiles of different circular buffers"},
      {"one stage less", "one stage is enough; its memory lies idle"},
      {"repeat wait_stores", "nothing leaves by then"},
      {"repeat wait_products", "the second wait finds nothing under way"},
      {"wait for one product more", "a longer wait"},
      {"pass_turn after wait_products", "a turn is passed on later"},
      {"value after pass_turn", "a turn is passed on earlier"},
      {"product after pass_turn", "a turn is passed on earlier"},
      {"product after compute", "an op on other tiles than the product's"},
      {"wait_turn after wait_full", "a turn is waited for later"},
      {"drop wait_products", "another wait follows before anything touches what the products write"},
      {"wait for one product less", "another wait follows before anything touches what the products write"},
      {"wait_products after narrow", "the products that end write other tiles"},
      {"release after narrow", "a tile is released later"},
      {"value after value", "products that end together, in another order"},
      {"quad_reduction after quad_reduction", "sums in different tiles"},
      {"pass_turn after value", "a turn is passed on later"},
      {"pass_turn after release", "a turn is passed on later"},
      {"wait_turn after value", "a turn is waited for later"},
      {"no condition", "all valid sizes have an iteration"},
      {"wait_turn after product", "a turn is waited for later"},
  };
  return kReasons;
}

/// Mutants without a proof though none of their runs goes wrong: what the proof asks beyond that.
const Reasons& stricter() {
  static const Reasons kReasons = {
      {"release after compute", "a release in the middle of an op stands before it"},
      {"compute after compute", "a release in the middle of an op stands before it"},
      {"condition after wait_empty", "the stage for the next work tile's number is waited for earlier"},
      {"drop take_registers", "a run here is told its work tiles: it need not read their numbers"},
      {"another offset", "stages overlap: runs here have no memory"},
      {"one stage more", "stages overlap: runs here have no memory"},
      {"registers or not", "where an operand lies: runs here have no memory"},
      {"another circular buffer", "a wait for a stage that is known to be free"},
      {"drop wait_empty", "a wait for a stage that is known to be free"},
      {"load after wait_empty", "a load follows its own wait"},
      {"load after value", "a load follows its own wait"},
      {"value after wait_empty", "a load follows its own wait"},
      {"compute after release", "a tile is read while it is held, even where no other follows it"},
      {"wait_empty after load", "a load follows its own wait"},
      {"repeat wait_empty", "waits alternate with loads"},
      {"repeat wait_full", "waits alternate with releases"},
      {"repeat take_registers", "a tile is taken once"},
      {"repeat compute", "an op runs once an iteration"},
      {"repeat narrow", "an op runs once an iteration"},
      {"repeat product", "an op runs once an iteration"},
      {"another value", "an op runs at its own iteration, even where no mask tells them apart"},
      {"repeat value", "an op runs once an iteration"},
      {"drop wait_products", "nothing is in flight at the end of a block"},
      {"wait for one product less", "nothing is in flight at the end of a block"},
      {"compute after wait_products", "a release in the middle of an op stands before it"},
      {"compute after narrow", "a release in the middle of an op stands before it"},
      {"pass_turn after value", "no tile is released within a turn"},
      {"loop after pass_turn", "a tile that stays for the work tile has one stage, which keeps warpgroups in order as turns do"},
      {"condition after pass_turn",
       "a tile that stays for the work tile has one stage, which keeps warpgroups in order as turns do"},
      {"value after wait_turn", "no tile is released within a turn"},
      {"no condition", "all valid sizes have an iteration"},
      {"value after value", "tiles are copied in the order in which they are waited for"},
      {"wait_full after wait_full", "tiles are copied in the order in which they are waited for"},
  };
  return kReasons;
}

/// The same for copies by all threads, beyond those above.
const Reasons& harmless_where_all_copy() {
  static const Reasons kReasons = {
      {"another circular buffer", "a copy for an iteration beyond the last one"},
      {"barrier after load", "a copy into a stage that is used for the first time"},
      {"barrier after wait_full", "the barrier before has shown the same"},
      {"commit_copies after compute", "a batch is closed later, and waited for later still"},
      {"commit_copies after value", "a batch is closed later, and waited for later still"},
      {"commit_copies after wait_full", "a batch is closed later, and waited for later still"},
      {"copy for a later iteration", "a copy for an iteration beyond the last one"},
      {"copy for an earlier iteration", "a copy for an iteration beyond the last one"},
      {"drop barrier", "a barrier before a copy for an iteration beyond the last one, or another one has shown the same"},
      {"drop commit_copies", "two batches become one, and no wait leaves any under way"},
      {"drop load", "a copy for an iteration beyond the last one"},
      {"drop wait_copies", "the wait before has left nothing under way"},
      {"load after commit_copies", "a copy joins the next batch, and no wait leaves any under way"},
      {"load after load", "copies to different circular buffers"},
      {"narrow after wait_copies", "a wait touches no fragment"},
      {"release after barrier", "a release before a copy for an iteration beyond the last one"},
      {"repeat barrier", "all threads come to both"},
      {"repeat commit_copies", "a batch of nothing"},
      {"repeat load", "a copy for an iteration beyond the last one"},
      {"repeat wait_copies", "the second wait finds nothing under way"},
      {"wait for one batch more", "a longer wait"},
      {"wait_copies after barrier", "the wait before has left nothing under way"},
      {"wait_full after product", "the product reads another circular buffer"},
      {"wait_full after wait_full", "tiles of different circular buffers"},
  };
  return kReasons;
}

const Reasons& stricter_where_all_copy() {
  static const Reasons kReasons = {
      {"another end of copies", "a copy that nothing reads"},
      {"barrier after load", "a barrier already stands behind the product, though not behind its release"},
      {"barrier after wait_full", "another barrier follows before the tile is read"},
      {"commit_copies after wait_copies", "another wait follows before the tile is read"},
      {"condition after release", "a tile that stays for the work tile: its stage is filled once"},
      {"copy for a later iteration", "iterations that no run here has"},
      {"copy for an earlier iteration", "iterations that no run here has"},
      {"drop barrier", "another barrier follows before the tile is read or its stage filled"},
      {"drop commit_copies", "another wait follows before the tile is read"},
      {"drop load", "iterations that no run here has"},
      {"drop release", "with one stage, a tile's number plays no part in a run"},
      {"drop wait_copies", "another wait follows before the tile is read"},
      {"drop wait_full", "nothing is done there: it says what the barrier has shown"},
      {"load after commit_copies", "another wait follows before the tile is read"},
      {"loop after release", "a tile that stays for the work tile: its stage is filled once"},
      {"release after barrier", "a barrier already stands behind the product, though not behind its release"},
      {"repeat load", "with one stage, a tile's number plays no part in a run"},
      {"repeat release", "with one stage, a tile's number plays no part in a run"},
      {"repeat value", "with one stage, a tile's number plays no part in a run"},
      {"take_registers after release", "a tile that stays for the work tile: its stage is filled once"},
      {"wait for one batch less", "another wait follows before the tile is read"},
      {"wait_copies after barrier", "another wait follows before the tile is read"},
      {"wait_full after product", "nothing is done there: it says what the barrier has shown"},
      {"wait_full after take_registers", "nothing is done there: it says what the barrier has shown"},
  };
  return kReasons;
}

/// What a mutant does when it is run, as far as that can show.
std::string fault_of_mutant(const nvptx::TensorPlan& plan) {
  try {
    return fault_of(plan);
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Places of mutants by kind.
using Places = std::map<std::string, std::vector<std::string>>;

/// Why mutants of the kind are as they are; empty: nobody has said so.
std::string reason_for(const std::string& kind, const Reasons& reasons, const Reasons& where_all_copy, bool all_copy) {
  if (const auto found = reasons.find(kind); found != reasons.end()) return found->second;
  const auto found = where_all_copy.find(kind);
  return all_copy && found != where_all_copy.end() ? found->second : "";
}

std::string text_of(const std::string& title, const Places& places, const Reasons& reasons, const Reasons& more, bool all_copy) {
  std::string text = title + ":\n";
  for (const auto& [kind, where] : places) {
    const std::string reason = reason_for(kind, reasons, more, all_copy);
    EXPECT_NE(reason, "") << kind << " at " << fmt::format("{}", fmt::join(where, ", ")) << ": " << title;
    text += fmt::format("  {} ({}): {}\n", kind, reason, fmt::join(where, ", "));
  }
  return text;
}

class TensorMutants : public ::testing::TestWithParam<TensorCheckCase> {};

INSTANTIATE_TEST_SUITE_P(Attention, TensorMutants, ::testing::ValuesIn(tensor_check_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(TensorMutants, are_told_from_plans_wherever_they_go_wrong) {
  const CheckedAttention attention(GetParam());
  Places accepted, refused;
  int wrong = 0, all = 0;
  nvptx::BoundAnswers answers;  // most mutants leave most of the questions as they are
  for (const TensorMutant& mutant : TensorMutator(attention.plan).all()) {
    const bool proved = check_tensor_plan(mutant.plan, answers).violations.empty();
    const std::string fault = fault_of_mutant(mutant.plan);
    ++all;
    wrong += fault.empty() ? 0 : 1;
    EXPECT_FALSE(proved && !fault.empty()) << mutant.what << " at " << mutant.where << " has a proof: " << fault;
    if (fault.empty()) (proved ? accepted : refused)[mutant.what].push_back(mutant.where);
  }
  const bool all_copy = attention.plan.cores == nvptx::TensorCores::mma;
  const std::string text =
      fmt::format("{} mutants, of which {} go wrong and have no proof\n", all, wrong) +
      text_of("with a proof", accepted, harmless(), harmless_where_all_copy(), all_copy) +
      text_of("without one, though no run goes wrong", refused, stricter(), stricter_where_all_copy(), all_copy);
  const std::string path = fmt::format("{}/mutants/{}.txt", NESTOR_GOLDEN_FOLDER, GetParam().name);
  if (std::getenv("NESTOR_UPDATE_GOLDEN") != nullptr) test::write_whole(path, text);
  EXPECT_EQ(text, test::read_whole(path)) << path;
}

}  // namespace
}  // namespace nestor::testing
