// Random steps: most do not fit or are illegal, which is for the schedule to say.
#pragma once

#include "support/nests/random_nests.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace nestor::legality {

/// What steps may name.
struct StepNames {
  std::vector<std::string> loops;
  std::vector<std::string> statements;
  std::vector<std::vector<std::string>> loops_of;  ///< of each statement: these may form chains
};

/// One of the steps that change or mark loops. `fresh` counts names that were given to new loops.
inline Step random_step(Random& random, const StepNames& names, int& fresh) {
  if (names.loops.empty()) return {"split", {"none", 2, "a", "b"}};
  const auto loop = [&] { return nlohmann::json(random.pick(names.loops)); };
  std::vector<std::string> together = random.pick(names.loops_of);
  if (together.empty() || random.chance(10)) together = names.loops;
  const auto near = [&] { return nlohmann::json(random.pick(together)); };
  const auto statement = [&] { return nlohmann::json(random.pick(names.statements)); };
  const auto name = [&] { return nlohmann::json(fmt::format("n{}", fresh++)); };
  switch (random.below(17)) {
    case 0:
    case 1:
      return {"split", {loop(), random.between(1, 4), name(), name()}};
    case 2:
      return {"tile", {near(), near(), name(), name(), name(), name(), random.between(1, 3), random.between(1, 3)}};
    case 3:
    case 4:
      return {"reorder", {near(), near()}};
    case 5:
      return {"reorder", {near(), near(), near()}};
    case 6:
    case 7:
    case 16:
      return {"fuse_with", {loop(), loop()}};
    case 8:
      return {"fission", {near(), statement()}};
    case 9:
      return {"skew", {near(), near(), random.between(-2, 2)}};
    case 10:
      return {"shift", {statement(), near(), random.between(-2, 2)}};
    case 11:
      return {"reverse", {loop()}};
    case 12:
      return {"parallel", {loop()}};
    case 13:
      return {"vectorize", {loop()}};
    case 14:
      return {random.chance(50) ? "serial" : "unroll", {loop()}};
    default:
      return {random.pick(std::vector<std::string>{"gpu_blocks", "gpu_lanes"}), {loop()}};
  }
}

}  // namespace nestor::legality
