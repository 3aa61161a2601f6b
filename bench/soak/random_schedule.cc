// Draws steps by the names that a schedule has now, and keeps those that it takes.
#include "soak/random_schedule.h"

#include "poly/algebra/all_rules.h"
#include "support/error.h"
#include "support/nests/random_steps.h"

#include <optional>

namespace nestor::soak {
namespace {

using legality::Random;

/// Rules come before all other steps.
Schedule with_rules(Schedule schedule, Random& random) {
  for (int count = random.below(4); count > 0; --count) {
    const std::vector<RuleMatch> matches = find_matches(schedule.nest());
    if (matches.empty()) break;
    const RuleMatch& match = random.pick(matches);
    Step step{"apply_rule", {match.rule}};
    for (const std::string& target : match.target) step.args.emplace_back(target);
    try {
      schedule = schedule.apply(step);
    } catch (const UserError&) {  // a match may name a target that its side conditions refuse
    }
  }
  return schedule;
}

class StepDraw {
 public:
  StepDraw(const Schedule& schedule, Random& random, int sm, int& fresh)
      : schedule_(schedule), random_(random), sm_(sm), fresh_(fresh) {
    for (const Statement& statement : schedule.nest().statements) {
      names_.statements.push_back(statement.name);
      names_.loops_of.push_back(schedule.loops_of(statement.name));
      names_.loops.insert(names_.loops.end(), names_.loops_of.back().begin(), names_.loops_of.back().end());
    }
  }

  Step draw() {
    if (names_.loops.empty() || random_.chance(55)) return legality::random_step(random_, names_, fresh_);
    return sm_ > 0 && random_.chance(40) ? gpu_step() : tuning_step();
  }

 private:
  nlohmann::json loop() { return random_.pick(names_.loops); }
  nlohmann::json name() { return fmt::format("n{}", fresh_++); }
  int power(int low, int high) { return 1 << random_.between(low, high); }
  nlohmann::json tensor() {
    const std::vector<Tensor>& tensors = schedule_.nest().tensors;
    return tensors[static_cast<std::size_t>(random_.below(static_cast<int>(tensors.size())))].name;
  }

  /// Steps as tuning takes them: larger factors, placement, specialised tiles, staging.
  Step tuning_step() {
    switch (random_.below(9)) {
      case 0:
      case 1:
        return {"split", {loop(), power(2, 6), name(), name()}};
      case 2:
        return {"specialize", {loop()}};
      case 3:
        return {"compute_at", {random_.pick(names_.statements), loop()}};
      case 4:
        return {"vectorize", {loop(), power(1, 5)}};
      case 5:
        return {"unroll", {loop(), random_.between(2, 5)}};
      case 6:
        return {"stage", {tensor(), loop()}};
      case 7:
        return {"streaming", {tensor()}};
      default:
        return {"parallel", {loop()}};
    }
  }

  Step gpu_step() {
    switch (random_.below(7)) {
      case 0:
      case 1:
      case 2:
        return {"gpu_blocks", {loop()}};
      case 3:
        return {"gpu_threads", {loop(), 32 * power(0, 4)}};
      case 4:
        return {"persistent", {loop(), random_.between(1, 3)}};
      case 5:
        return {"stage", {tensor(), loop(), random_.between(1, 3)}};
      default:
        return sm_ >= 90 ? Step{"cluster", {loop(), power(1, 2)}} : Step{"gpu_lanes", {loop()}};
    }
  }

  const Schedule& schedule_;
  Random& random_;
  int sm_;
  int& fresh_;
  legality::StepNames names_;
};

}  // namespace

Schedule random_schedule(Schedule start, std::uint64_t seed, int sm, bool rules) {
  constexpr int kTriesForAStep = 6;
  Random random(seed);
  Schedule schedule = rules ? with_rules(std::move(start), random) : std::move(start);
  int fresh = 0;
  for (int wanted = random.between(1, 10); wanted > 0; --wanted) {
    for (int tries = 0; tries < kTriesForAStep; ++tries) {
      const Step step = StepDraw(schedule, random, sm, fresh).draw();
      try {
        schedule = schedule.apply(step);
        break;
      } catch (const UserError&) {  // most random steps do not fit
      }
    }
  }
  return schedule;
}

}  // namespace nestor::soak
