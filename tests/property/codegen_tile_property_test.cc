// Tile programs of random nests under random steps mean what the nests define. A program runs with parallel iterations backwards, with all
// loads of an op before its stores and with poisoned scratch (tests/support/tile_adversary.h); every statement instance must run exactly
// once, and every element must have the value of the definition, interpreted instance by instance. The proof of programs refutes none.
//
// NESTOR_PROPERTY_CASES sets the number of cases, NESTOR_PROPERTY_SEED the first one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "codegen/host/repeated_values.h"
#include "codegen/host/repeated_values_proof.h"
#include "codegen/host/row_strips.h"
#include "codegen/proof/program_proof.h"
#include "codegen/tile/tile_program.h"
#include "poly/schedule/order/loop_tree.h"
#include "property/codegen_tile_nests.h"
#include "support/error.h"
#include "support/tile_definition.h"

namespace nestor::tile_property {
namespace {

using legality::from_environment;

// ---- random steps

class StepMaker {
 public:
  StepMaker(Random& random, const Schedule& schedule, int& fresh) : random_(random), schedule_(schedule), fresh_(fresh) {
    loops_ = loop_names(schedule.tree());
  }

  Step make() {
    if (loops_.empty()) return {"split", {"none", 2, "a", "b"}};
    const std::vector<std::string> near = schedule_.loops_of(random_.pick(schedule_.nest().statements).name);
    const auto any = [&] { return random_.pick(loops_); };
    const auto close = [&] { return random_.pick(near.empty() ? loops_ : near); };
    const auto statement = [&] { return random_.pick(schedule_.nest().statements).name; };
    const auto name = [&] { return fmt::format("n{}", fresh_++); };
    switch (random_.below(26)) {
      case 0:
      case 1:
      case 2:
        return {"split", {any(), random_.between(2, 5), name(), name()}};
      case 3:
      case 4:
        return {"tile", {close(), close(), name(), name(), name(), name(), random_.between(2, 4), random_.between(2, 4)}};
      case 5:
      case 6:
        return {"reorder", {close(), close()}};
      case 7:
        return {"reorder", {close(), close(), close()}};
      case 8:
      case 9:
      case 10:
        return {"fuse_with", {any(), any()}};
      case 11:
        return {"fission", {close(), statement()}};
      case 12:
        return {"skew", {close(), close(), random_.between(-2, 2)}};
      case 13:
        return {"shift", {statement(), close(), random_.between(-3, 3)}};
      case 14:
        return {"reverse", {any()}};
      case 15:
        return {"parallel", {any()}};
      case 16:
        return {random_.pick(std::vector<std::string>{"vectorize", "unroll", "gpu_lanes"}), {any()}};
      case 17:
        return {"gpu_blocks", {any()}};
      case 18:
        return {"compute_at", {statement(), any()}};
      case 19:
        return {"stage", {random_.pick(schedule_.nest().tensors).name, any()}};
      default:
        return {"specialize", {any()}};
    }
  }

 private:
  Random& random_;
  const Schedule& schedule_;
  int& fresh_;
  std::vector<std::string> loops_;
};

struct Totals {
  int steps = 0, programs = 0, refused = 0, unproved = 0, invalid = 0, runs = 0;
  int strips = 0, repeated = 0;  ///< programs that the host back end changes
  double slowest = 0;
};

// ---- cases

/// Applies what is legal.
class Scheduler {
 public:
  Scheduler(Random& random, Schedule schedule) : random_(random), schedule_(std::move(schedule)) {}

  Schedule make() {
    if (random_.chance(40)) attempt({"apply_rule", {"reassociate"}});
    if (random_.chance(50)) tile_statements();
    if (random_.chance(50)) fuse_bodies();
    for (int count = random_.between(1, 10); count > 0; --count) attempt(StepMaker(random_, schedule_, fresh_).make());
    if (random_.chance(60)) specialize_some();
    return schedule_;
  }

 private:
  bool attempt(const Step& step) {
    try {
      schedule_ = schedule_.apply(step);
      return true;
    } catch (const UserError&) {
      return false;
    }
  }

  /// Loops of some statements in tiles, the loops over tiles outside.
  void tile_statements() {
    for (const Statement& statement : schedule_.nest().statements) {
      if (random_.chance(40)) continue;
      std::vector<std::string> outer, inner;
      for (const std::string& loop : schedule_.loops_of(statement.name)) {
        const std::string o = fmt::format("n{}", fresh_++), i = fmt::format("n{}", fresh_++);
        if (outer.size() < 3 && random_.chance(70) && attempt({"split", {loop, random_.between(2, 4), o, i}})) {
          outer.push_back(o);
          inner.push_back(i);
        } else {
          inner.push_back(loop);
        }
      }
      if (outer.empty() || outer.size() + inner.size() < 2) continue;
      if (random_.chance(50)) std::reverse(outer.begin(), outer.end());
      Step order{"reorder", {}};
      for (const std::string& loop : outer) order.args.emplace_back(loop);
      for (const std::string& loop : inner) order.args.emplace_back(loop);
      attempt(order);
      for (const std::string& loop : outer) {
        if (random_.chance(15)) attempt({random_.chance(50) ? "parallel" : "gpu_blocks", {loop}});
        if (random_.chance(40)) attempt({"specialize", {loop}});
      }
    }
  }

  /// Loops that follow each other at the top, and then inside what became one.
  void fuse_bodies() {
    for (int tries = 0; tries < 6; ++tries) {
      const std::vector<std::string> loops = loop_names(schedule_.tree());
      if (loops.size() < 2) return;
      const auto& statements = schedule_.nest().statements;
      const std::vector<std::string> a = schedule_.loops_of(random_.pick(statements).name),
                                     b = schedule_.loops_of(random_.pick(statements).name);
      for (std::size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
        if (a[k] != b[k] && !attempt({"fuse_with", {a[k], b[k]}})) break;
      }
    }
  }

  void specialize_some() {
    for (const std::string& loop : loop_names(schedule_.tree())) {
      if (random_.chance(35)) attempt({"specialize", {loop}});
    }
  }

  Random& random_;
  Schedule schedule_;
  int fresh_ = 0;
};

/// What an adversary computes, of inputs that are small integers.
std::map<std::string, std::vector<double>> results(const Schedule& schedule, const TileProgram& program, const Sizes& sizes) {
  std::map<std::string, std::vector<double>> memory;
  for (const Tensor& tensor : schedule.nest().tensors) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape_at(tensor, sizes)) count *= static_cast<std::size_t>(extent);
    std::vector<double>& values = memory[tensor.name];
    values.assign(count, testing::kUntouched);
    for (std::size_t k = 0; tensor.role == TensorRole::input && k < count; ++k) values[k] = static_cast<double>(k * 7 % 11) - 4;
  }
  testing::TileAdversary(program, sizes, memory).run();
  return memory;
}

/// The order and the values that the host back end makes of a program mean the same. Where ops only move, that is proved as well.
void check_host_forms(const Schedule& schedule, const TileProgram& program, const std::vector<Sizes>& all, bool proved,
                      Totals& totals) {
  const std::string text = describe(program);
  const TileProgram strips = in_row_strips(program, 0), repeated = with_repeated_values(program);
  if (describe(strips) != text) {
    ++totals.strips;
    const ProgramProof proof = prove_program(strips, schedule);
    if (proved && proof.verdict != ProofVerdict::proved) FAIL() << "in strips: " << proof.reason << "\n" << describe(strips);
  }
  totals.repeated += describe(repeated) != text ? 1 : 0;
  const TileProgram both = with_repeated_values(strips);
  EXPECT_NO_THROW(prove_repeated_values(program, repeated)) << text;
  EXPECT_NO_THROW(prove_repeated_values(strips, both)) << describe(strips);
  for (const TileProgram& form : {strips, repeated, both}) {
    for (const Sizes& sizes : describe(form) != text ? all : std::vector<Sizes>{}) {
      EXPECT_EQ(results(schedule, form, sizes), results(schedule, program, sizes)) << describe(form);
    }
  }
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void run_case(std::uint64_t seed, Totals& totals) {
  Random random(seed);
  Nest nest = NestMaker(random).make();
  const int least = static_cast<int>(nest.sizes[0].min);
  std::vector<Sizes> all;
  for (int k = 0; k < 2; ++k) all.push_back({{"N", random.between(least, 9)}, {"M", random.between(least, 7)}});
  if (random.chance(20)) {
    nest = fix_sizes(nest, {{"N", all[0].at("N")}});
    for (Sizes& sizes : all) sizes["N"] = all[0].at("N");
  }
  try {
    validate(nest);
  } catch (const UserError&) {
    ++totals.invalid;
    return;
  }
  const double begin = processor_seconds();
  const Schedule schedule = Scheduler(random, Schedule(nest)).make();
  totals.steps += static_cast<int>(schedule.steps().size());
  TileProgram program;
  const auto history = [&] {
    std::string text = fmt::format("case {}\n{}", seed, describe(nest));
    for (const Step& step : schedule.steps()) text += describe(step) + "\n";
    return text;
  };
  try {
    program = build_tile_program(schedule);
  } catch (const UserError& error) {
    ++totals.refused;
    if (std::getenv("NESTOR_PROPERTY_VERBOSE") != nullptr)
      std::printf("case %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
    return;
  } catch (const std::exception& error) {
    FAIL() << error.what() << "\n" << history();
  }
  const double seconds = processor_seconds() - begin;
  if (seconds > 0.5 && std::getenv("NESTOR_PROPERTY_VERBOSE") != nullptr)
    std::printf("case %llu took %.1f s\n", static_cast<unsigned long long>(seed), seconds);
  totals.slowest = std::max(totals.slowest, seconds);
  ++totals.programs;
  const ProgramProof proof = prove_program(program, schedule);
  if (proof.verdict == ProofVerdict::refuted) FAIL() << "refuted: " << proof.reason << "\n" << history() << describe(program);
  if (proof.verdict == ProofVerdict::unproved) {
    ++totals.unproved;
    if (std::getenv("NESTOR_PROPERTY_VERBOSE") != nullptr)
      std::printf("case %llu: unproved: %s\n", static_cast<unsigned long long>(seed), proof.reason.c_str());
  }
  try {
    check_host_forms(schedule, program, all, proof.verdict == ProofVerdict::proved, totals);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  if (::testing::Test::HasFailure()) FAIL() << history() << describe(program);
  for (const Sizes& sizes : all) {
    ++totals.runs;
    try {
      testing::ProgramRun(schedule, program, sizes).check();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (::testing::Test::HasFailure()) {
      FAIL() << "at N=" << sizes.at("N") << ", M=" << sizes.at("M") << "\n" << history() << describe(program);
    }
  }
}

TEST(TileProperty, ProgramsOfRandomSchedulesMeanWhatTheirNestsDefine) {
  const std::int64_t cases = from_environment("NESTOR_PROPERTY_CASES", 400);
  const std::int64_t first = from_environment("NESTOR_PROPERTY_SEED", 1);
  Totals totals;
  for (std::int64_t k = 0; k < cases && !HasFailure(); ++k) run_case(static_cast<std::uint64_t>(first + k), totals);
  std::printf(
      "%lld cases: %d steps, %d programs run %d times, %d refused, %d unproved, %d nests invalid, %d in strips, "
      "%d with repeated values, slowest %.2f s\n",
      static_cast<long long>(cases), totals.steps, totals.programs, totals.runs, totals.refused, totals.unproved, totals.invalid,
      totals.strips, totals.repeated, totals.slowest);
  if (cases >= 100) {
    EXPECT_GT(totals.programs, cases / 2);
    EXPECT_GT(totals.strips, 0);
  }
}

}  // namespace
}  // namespace nestor::tile_property
