// The two kinds of process in a pipeline, seen from inside.
#pragma once

#include "autotune/workers/trial_stages.h"

#include <functional>
#include <memory>

namespace nestor {

/// Answers each job with {"outcome": ...} or {"compiled": ...} until the other end is gone.
void serve_compiler(int socket, const std::function<std::unique_ptr<TrialCompiler>()>& make_compiler);

/// Makes the device ready and says {"ready": true}, or {"error": text, "user": bool}; then answers each compiled job with
/// {"outcome": ..., "lost": whether the process must be replaced}. Jobs are read as they come, also while one runs, so that
/// who sends them never waits.
void serve_device(int socket, const std::function<std::unique_ptr<TrialDevice>()>& make_device);

}  // namespace nestor
