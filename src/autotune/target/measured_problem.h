// MeasuredProblem: one problem with how it is measured, made by the tuner and inherited by its processes.
#pragma once

#include "autotune/target/measure_options.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_problem.h"
#include "support/launch_recipe.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nestor {

struct MeasuredProblem {
  /// An argument of the kernel, in the nest's order.
  struct Argument {
    std::string name;
    std::vector<std::int64_t> strides;  ///< elements
    bool output = false;
    bool covered = false;  ///< an output every element of which is written
  };
  Nest definition;
  std::shared_ptr<BaseSchedules> schedules;
  Sizes sizes;
  MeasureOptions options;
  std::vector<Argument> arguments;

  /// Throws UserError for scalars that the nest does not have.
  MeasuredProblem(const TrialProblem& tried, const MeasureOptions& measured);

  /// Pointers and strides as a kernel takes them. `pointer`: to the argument of that number here.
  void bind(const LaunchRecipe& recipe, const std::function<void*(std::size_t)>& pointer, std::vector<void*>& pointers,
            std::vector<std::int64_t>& strides) const;
};

}  // namespace nestor
