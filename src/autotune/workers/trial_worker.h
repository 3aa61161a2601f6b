// The life of a worker process, seen from inside.
#pragma once

#include "autotune/workers/trial_stages.h"

#include <functional>
#include <memory>

namespace nestor {

/// Makes the stage and says that it is ready or why it cannot be; then answers each request until the other end is gone or `usable` is
/// false. `reads_ahead`: requests are read as they come, also while one runs, so that who sends them never waits.
void serve_trials(int socket, const std::function<std::unique_ptr<TrialStage>()>& make_stage, bool reads_ahead);

}  // namespace nestor
