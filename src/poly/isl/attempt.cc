// An isl computation under a budget of its own, whose overrun is an answer.
#include "poly/isl/attempt.h"

#include "poly/isl/context.h"

#include <isl/ctx.h>

namespace nestor {

bool isl_attempt(std::uint64_t operations, const std::function<void()>& compute) {
  isl_ctx* context = isl_context().get();
  bool overrun = false;
  try {
    const IslBudget budget(operations);
    compute();
  } catch (const isl::exception_quota&) {
    overrun = true;
  } catch (const std::exception&) {
    // Behind an overrun isl answers nothing, and whoever relied on an answer may have thrown.
    if (isl_ctx_last_error(context) != isl_error_quota) throw;
  }
  // A failure inside isl's C interface may have left no more than this.
  overrun = overrun || isl_ctx_last_error(context) == isl_error_quota;
  if (overrun) isl_ctx_reset_error(context);
  return !overrun;
}

}  // namespace nestor
