// Engines: where compiled candidates run. Each gives back the outputs of one run.
#pragma once

#include "autotune/oracle/oracle.h"
#include "soak/case.h"
#include "soak/problem_data.h"
#include "support/launch_recipe.h"

#include <memory>
#include <string>

namespace nestor::soak {

/// A compiled candidate, loaded where it runs.
class LoadedCandidate {
 public:
  virtual ~LoadedCandidate() = default;
  /// Runs once on the arguments of `data` and fills `results` with the outputs. Returns what the run itself did wrong (an access out of
  /// bounds, a race, a changed input), "" when nothing.
  virtual std::string run(const Sizes& sizes, const ProblemData& data, HostTensors& results) = 0;
};

/// What code generation made of a candidate.
struct Generated {
  CompiledKernel kernel;
  std::string ir;      ///< for the emulator
  std::string binary;  ///< for a device: machine code, where ptxas is there
  std::string open;    ///< of the proof of how threads share it; "": nothing
};

/// On `threads` threads of this machine.
std::unique_ptr<LoadedCandidate> load_on_host(const Generated& generated, int threads);
/// In the emulator of GPU kernels, in an order of threads that `seed` draws.
std::unique_ptr<LoadedCandidate> load_in_emulator(const Generated& generated, unsigned seed);

}  // namespace nestor::soak
