// GpuProblem: one problem's arguments and reference values on a GPU, made by the tuner and inherited by its processes.
#pragma once

#include "autotune/gpu/gpu_data.h"
#include "autotune/target/measured_problem.h"
#include "autotune/target/target.h"

#include <memory>

namespace nestor {

struct GpuProblem : MeasuredProblem {
  GpuFacts gpu;  ///< what is compiled for
  std::shared_ptr<GpuData> data{};
};

/// `known`: data of another problem with this definition, these sizes and these options, to be used again. Throws UserError for a device too old,
/// LackOfResources for what does not fit it or this machine. The reference values come later, as GpuData has it.
std::shared_ptr<GpuProblem> make_gpu_problem(const TrialProblem& tried, const MeasureOptions& options,
                                             std::shared_ptr<GpuData> known = nullptr);

}  // namespace nestor
