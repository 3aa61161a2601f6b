// Trying one candidate: from its steps to compared results, in this process.
#pragma once

#include "codegen/tile/tile_program.h"
#include "poly/schedule/schedule.h"
#include "soak/case.h"
#include "soak/engine.h"

#include <functional>
#include <memory>
#include <vector>

namespace nestor::soak {

/// A run with its arguments and what should come of them.
struct PreparedRun {
  Run run;
  std::shared_ptr<const ProblemData> data;
};

/// What trying needs besides the candidate.
struct TryOptions {
  int threads = 2;     ///< of host code
  unsigned seed = 1;   ///< of the emulator
  std::string device;  ///< path of the socket of a device's server
  /// Called when the code is there; what follows is running.
  std::function<void(double generate_s)> generated = nullptr;
};

/// Code of a program. Throws UserError where it is refused, InternalError where Nestor is at fault.
Generated generate(const TileProgram& program, Engine engine, int sm);

/// Replays with `replay`, builds, proves, generates, and runs at all sizes that the kernel is valid for. Failures are values: see Verdict.
Outcome try_case(const Nest& nest, Engine engine, int sm, const std::function<Schedule()>& replay,
                 const std::vector<PreparedRun>& runs, const TryOptions& options);

/// "dim # of # is ..." for "dim 3 of 4 is ...": equal for reasons that differ in numbers and names alone.
std::string kind_of_reason(const std::string& reason);

}  // namespace nestor::soak
