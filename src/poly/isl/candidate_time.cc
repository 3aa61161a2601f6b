// One limit around the limits of all computations of a candidate.
#include "poly/isl/candidate_time.h"

#include <fmt/format.h>
#include <isl/ctx.h>

#include "poly/isl/context.h"
#include "poly/isl/time_limit.h"
#include "support/error.h"

namespace nestor {

void with_candidate_time(const std::function<void()>& compute, double seconds) {
  isl_ctx* context = isl_context().get();
  const IslTimeLimit limit(context, seconds);
  const auto refuse_late = [&] {
    if (isl_ctx_aborted(context) == 0) return;
    isl_ctx_reset_error(context);
    user_error("it takes more than {:.0f} seconds from steps to code; {}", seconds, kMoreSizes);
  };
  try {
    compute();
  } catch (const std::exception&) {
    // Whatever went wrong behind the end of the time did so because of it.
    refuse_late();
    throw;
  }
  refuse_late();
}

}  // namespace nestor
