// HostRunner: what a worker does for one candidate: replay, compile, load, check, time.
#pragma once

#include "autotune/measure/base_schedules.h"
#include "autotune/measure/cold_cache.h"
#include "autotune/measure/guarded_buffer.h"
#include "autotune/measure/host_measurer.h"
#include "codegen/host/host_backend.h"

#include <memory>
#include <vector>

namespace nestor {

/// One problem's arguments and reference values; computed by the tuner, inherited by its workers.
struct HostProblem {
  BaseSchedules schedules;
  Sizes sizes;
  MeasureOptions options;
  double tolerance = 0;
  HostTensors outputs;                 ///< shapes and poison; inputs are in `buffers` only
  std::vector<std::string> names;      ///< of `buffers`, in the nest's order
  std::vector<GuardedBuffer> buffers;  ///< inputs read-only
  std::vector<std::vector<std::int64_t>> strides;
  std::vector<bool> is_output;
  std::vector<bool> covered;  ///< an output every element of which is written
  std::vector<OracleSample> samples;
};

/// Random arguments in guarded memory and the oracle's values. Throws UserError when the oracle is too expensive.
std::shared_ptr<HostProblem> make_host_problem(const Nest& original, const Nest& nest, const Sizes& sizes,
                                               const MeasureOptions& options);

class HostRunner : public TrialRunner {
 public:
  explicit HostRunner(std::shared_ptr<HostProblem> problem);
  std::optional<TrialOutcome> prepare(const TrialJob& job) override;
  TrialOutcome run(const TrialJob& job) override;

 private:
  double run_once();
  /// Checks the outputs of the last run; the reason when they are wrong.
  std::string check(TrialOutcome& outcome);
  void poison_outputs();

  std::shared_ptr<HostProblem> problem_;
  std::unique_ptr<ColdCache> cold_;
  std::optional<LoadedHostKernel> kernel_;
  CompiledKernel compiled_;
  double compile_ms_ = 0;
};

}  // namespace nestor
