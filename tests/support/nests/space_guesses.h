// The first guesses of a nest's space for an H100, and their programs, proved.
#pragma once

#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/proof/program_proof.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

namespace nestor::testing {

struct SpaceGuesses {
  SpaceGuesses(const Nest& nest, const Sizes& large)
      : schedules(nest_for_tuning(nest, complete_sizes(nest, large))),
        space(make_nest_space(schedules, complete_sizes(nest, large), gpu_space_limits(90, NvptxTarget{}.shared_limit, 132))),
        points(space->defaults()) {}

  NamedValues values(std::size_t k) const { return named_values(*space, points.at(k)); }
  bool has_rule(std::size_t k, const std::string& rule) const { return value_or(values(k), "rule." + rule, 0) == 1; }

  TileProgram program(std::size_t k) { return program(points.at(k)); }
  TileProgram program(const Point& point) {
    const Candidate candidate = space->candidate(point);
    EXPECT_EQ(candidate.infeasible, "");
    const Schedule schedule = schedules.replay(candidate.steps);
    TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    return program;
  }
  /// What the definition means, for the emulator.
  const TileProgram& meaning() {
    if (!meaning_) meaning_ = build_tile_program(schedules.base({}));
    return *meaning_;
  }

  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  std::vector<Point> points;

 private:
  std::optional<TileProgram> meaning_;
};

}  // namespace nestor::testing
