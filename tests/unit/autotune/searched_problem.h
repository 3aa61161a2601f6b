// A nest with its space of GPU candidates, whose code is run in the emulator.
#pragma once

#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/simt/simt_image.h"

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace nestor::testing {

inline constexpr int kUnits = 4;

struct SearchedProblem {
  SearchedProblem(const Nest& nest, const Sizes& given)
      : sizes(complete_sizes(nest, given)),
        schedules(nest_for_tuning(nest, sizes)),
        space(make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, kUnits))) {}
  Point with(std::map<std::string, std::int64_t> changes) const {
    auto values = named_values(*space, space->defaults().front());
    for (const auto& [name, value] : changes) values[name] = value;
    const auto point = point_from(*space, values);
    if (!point) internal_error("no such point");
    return *point;
  }
  /// The candidate's code against what the nest as it was written computes.
  std::string difference(const Point& point, const Sizes& at, double tolerance = 1e-4) {
    const Candidate candidate = space->candidate(point);
    if (!candidate.infeasible.empty()) return candidate.infeasible;
    const CompiledNvptx compiled = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), {});
    Sizes dynamic = at;
    for (const auto& [name, value] : compiled.kernel.recipe.fixed_sizes) dynamic.erase(name);
    if (!meaning) meaning = build_tile_program(schedules.base({}));
    return run_emulated(compiled, *meaning, dynamic, {.tolerance = tolerance}, {1});
  }
  Sizes sizes;
  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  std::optional<TileProgram> meaning;  ///< of the nest as it was written, once it is asked for
};

}  // namespace nestor::testing
