// HostProblem: one problem's arguments and reference values on this machine, made by the tuner and inherited by its processes.
#pragma once

#include "autotune/host/guarded_buffer.h"
#include "autotune/oracle/oracle.h"
#include "autotune/target/measured_problem.h"

#include <memory>
#include <vector>

namespace nestor {

struct HostProblem : MeasuredProblem {
  HostTensors outputs{};                 ///< shapes and poison; inputs are in `buffers` only
  std::vector<GuardedBuffer> buffers{};  ///< one an argument, inputs read-only
  AffordableSamples samples{};
};

/// Processes that compile for this machine at once.
int host_compilers();
/// Bytes of address space that each process that compiles for this machine may add to what it inherits, and most of a kernel's workspace.
std::int64_t host_worker_memory(const MeasureOptions& options);

/// Random arguments in guarded memory and the oracle's values. Throws UserError when the oracle is too expensive,
/// and LackOfResources, before anything is allocated, for sizes that do not fit this machine. Without the values where `stop` is set.
std::shared_ptr<HostProblem> make_host_problem(const TrialProblem& tried, const MeasureOptions& options,
                                               const std::atomic<bool>* stop = nullptr);

}  // namespace nestor
