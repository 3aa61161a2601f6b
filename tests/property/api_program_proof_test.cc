// The proof of tile programs, from both sides: programs of every built-in operator are proved and right, and of their mutants none is
// proved that computes something else. Environment: NESTOR_MUTANTS, how many (default 81, three an operator); NESTOR_PROOF_RECORDS=all,
// every shipped record.
#include "codegen/host/row_strips.h"
#include "codegen/proof/program_proof.h"
#include "poly/nest/nest_json.h"
#include "support/mutants/program_mutants.h"
#include "support/nests/operator_programs.h"
#include "support/nests/shipped_schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

namespace nestor {
namespace {

using testing::DefinitionResult;
using testing::Mutant;
using testing::OperatorSchedule;
using testing::OperatorSchedules;

int count_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// The variant without rounding of stored values: what the interpreter and the oracle both compute.
std::string f32_variant(const OperatorEntry& entry) {
  const auto plain = std::find(entry.variants.begin(), entry.variants.end(), "f32");
  const auto any =
      std::find_if(entry.variants.begin(), entry.variants.end(), [](const std::string& v) { return v.ends_with("f32"); });
  return plain != entry.variants.end() ? *plain : any != entry.variants.end() ? *any : entry.variants.front();
}

bool is_defined(const Nest& nest, const Sizes& sizes) {
  try {
    complete_sizes(nest, sizes);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

/// What the operator computes at odd sizes and at the least ones.
std::vector<DefinitionResult> results_of(const OperatorSchedules& source) {
  std::vector<DefinitionResult> results;
  results.emplace_back(source.nest(), source.sizes());
  Sizes least = source.sizes();
  for (const SizeParam& size : source.nest().sizes) {
    if (!size.specialized) least[size.name] = size.min;
  }
  if (is_defined(source.nest(), least)) results.emplace_back(source.nest(), least);
  return results;
}

struct Tally {
  int programs = 0, refuted = 0, unproved = 0, accepted = 0;
};

void expect_proved_and_right(const OperatorSchedule& item, const std::vector<DefinitionResult>& results) {
  const ProgramProof proof = prove_program(item.program, item.schedule);
  EXPECT_EQ(to_string(proof.verdict), "proved") << item.name << ": " << proof.reason << "\n" << describe(item.program);
  EXPECT_EQ(results.front().difference(item.program), "") << item.name << "\n" << describe(item.program);
  // As a host runs it.
  const TileProgram strips = in_row_strips(item.program, 0);
  if (describe(strips) == describe(item.program)) return;
  const ProgramProof of_strips = prove_program(strips, item.schedule);
  EXPECT_EQ(to_string(of_strips.verdict), "proved") << item.name << " in strips: " << of_strips.reason << "\n"
                                                    << describe(strips);
  for (const DefinitionResult& result : results)
    EXPECT_EQ(result.difference(strips), "") << item.name << "\n" << describe(strips);
}

/// A mutant is not proved, or computes the same.
void try_mutant(const OperatorSchedule& item, const std::vector<DefinitionResult>& results, std::mt19937_64& random,
                Tally& tally) {
  const Mutant mutant = testing::mutant_of(item.program, random);
  const ProgramProof proof = prove_program(mutant.program, item.schedule);
  if (proof.verdict == ProofVerdict::refuted) ++tally.refuted;
  if (proof.verdict == ProofVerdict::unproved) ++tally.unproved;
  if (proof.verdict != ProofVerdict::proved) return;
  ++tally.accepted;
  for (const DefinitionResult& result : results) {
    EXPECT_EQ(result.difference(mutant.program), "") << item.name << ": " << mutant.change << " is proved\n"
                                                     << describe(item.program) << "\nmutant:\n"
                                                     << describe(mutant.program);
  }
}

TEST(ProgramProofOperators, ProgramsAreProvedAndMutantsThatDifferAreNot) {
  const std::vector<OperatorEntry> operators = builtin_operators();
  const int mutants = std::max(1, count_from("NESTOR_MUTANTS", 81) / static_cast<int>(operators.size()));
  std::mt19937_64 random(14);
  Tally tally;
  for (const OperatorEntry& entry : operators) {
    OperatorSchedules source(entry.op, f32_variant(entry));
    const std::vector<DefinitionResult> results = results_of(source);
    // The space of seidel2d takes ten seconds.
    const bool guesses = mutants > 10 || entry.op != "seidel2d";
    const std::vector<OperatorSchedule> items = source.schedules(guesses, mutants > 10 ? 3 : 0, 5);
    for (const OperatorSchedule& item : items) expect_proved_and_right(item, results);
    for (int k = 0; k < mutants; ++k) try_mutant(items[static_cast<std::size_t>(k) % items.size()], results, random, tally);
    tally.programs += static_cast<int>(items.size());
  }
  fmt::print("{} programs proved; mutants: {} refuted, {} unproved, {} proved and the same\n", tally.programs, tally.refuted,
             tally.unproved, tally.accepted);
  EXPECT_GT(tally.refuted, 2 * tally.accepted);
}

TEST(ProgramProofRecords, ShippedSchedulesAreProved) {
  const bool all = std::getenv("NESTOR_PROOF_RECORDS") != nullptr;
  int records = 0, number = 0;
  std::set<std::string> seen;
  for (const auto& file : std::filesystem::directory_iterator(NESTOR_TUNING_DB)) {
    if (file.path().extension() != ".jsonl") continue;
    testing::ShippedLines lines(file.path());
    for (nlohmann::json record = lines.next(); !record.is_null(); record = lines.next()) {
      if (!all && number++ % 24 != 0) continue;
      const nlohmann::json& steps = record.at("steps");
      if (!seen.insert(steps.dump()).second) continue;
      const Sizes sizes = record.at("problem").at("sizes");
      const Schedule schedule = replay_trial_steps(nest_from_json(record.at("nest")), sizes, steps);
      const ProgramProof proof = prove_program(build_tile_program(schedule), schedule);
      EXPECT_EQ(to_string(proof.verdict), "proved") << file.path() << ": " << record.at("problem") << ": " << proof.reason;
      ++records;
    }
  }
  EXPECT_GT(records, 10);
  fmt::print("{} records proved\n", records);
}

}  // namespace
}  // namespace nestor
