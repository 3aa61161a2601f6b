// Running a host kernel on tensors whose memory is guarded.
#pragma once

#include "autotune/check/result_check.h"
#include "codegen/host/host_backend.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// What a launch passes to a kernel, in the order of its recipe; strides in elements.
struct KernelArguments {
  std::vector<void*> pointers;
  std::vector<std::int64_t> strides;
  std::vector<double> scalars;
};

/// Runs `kernel` once on copies of `tensors` between guard pages, inputs read-only, and copies outputs back.
CheckRun run_guarded(const LoadedHostKernel& kernel, const LaunchRecipe& recipe, HostTensors& tensors, const Sizes& sizes,
                     const std::map<std::string, double>& scalars, int threads);

/// A kernel compiled for the host against its definition, in full.
CheckReport check_host_kernel(ResultCheck& check, const LoadedHostKernel& kernel, const LaunchRecipe& recipe,
                              const CheckSizes& sizes, const std::map<std::string, double>& scalars, int threads);

}  // namespace nestor
