// The calling thread's isl context and the operation budget.
#include "poly/isl/context.h"

#include <isl/ctx.h>
#include <isl/options.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "poly/isl/time_limit.h"
#include "support/error.h"

namespace nestor {
namespace {

/// All contexts ever made. They are never freed: isl objects in static or thread-local storage may outlive anything else,
/// and the list keeps them reachable for leak checkers after their thread has ended.
isl_ctx* new_context() {
  static std::mutex mutex;
  static auto* contexts = new std::vector<isl_ctx*>;
  isl_ctx* context = isl_ctx_alloc();
  isl_options_set_on_error(context, ISL_ON_ERROR_CONTINUE);
  const std::lock_guard lock(mutex);
  contexts->push_back(context);
  return context;
}

}  // namespace

isl::ctx isl_context() {
  thread_local isl_ctx* context = new_context();
  return isl::ctx(context);
}

IslBudget::IslBudget(std::uint64_t operations) : previous_(isl_ctx_get_max_operations(isl_context().get())) {
  isl_ctx* context = isl_context().get();
  isl_ctx_reset_operations(context);
  isl_ctx_set_max_operations(context, operations);
}

IslBudget::~IslBudget() {
  isl_ctx* context = isl_context().get();
  isl_ctx_set_max_operations(context, previous_);
  isl_ctx_reset_operations(context);
}

void with_isl_budget(const std::string& what, const std::function<void()>& compute, std::uint64_t operations) {
  isl_ctx* context = isl_context().get();
  isl_ctx_reset_error(context);
  const double seconds = std::max(1.0, static_cast<double>(operations) / static_cast<double>(kIslBudget)) * kIslSeconds;
  const IslTimeLimit limit(context, seconds);
  const IslBudget budget(operations);
  // A failure inside isl's C interface arrives as a null pointer or as a truth value that is neither; only the context still knows.
  const auto refuse_overrun = [&](bool thrown) {
    const bool quota = thrown || isl_ctx_last_error(context) == isl_error_quota, late = isl_ctx_aborted(context) != 0;
    if (!quota && !late) return;
    isl_ctx_reset_error(context);
    const std::string most =
        late ? fmt::format("{:.0f} seconds of isl's work", seconds) : fmt::format("{} isl operations", operations);
    user_error("{} takes more than {}; {}", what, most, kMoreSizes);
  };
  try {
    compute();
  } catch (const isl::exception& failure) {
    refuse_overrun(dynamic_cast<const isl::exception_quota*>(&failure) != nullptr);
    isl_ctx_reset_error(context);
    internal_error("isl failed in {}: {}", what, failure.what());
  } catch (const Error&) {  // of someone who relied on an answer
    refuse_overrun(false);
    throw;
  }
  refuse_overrun(false);
}

}  // namespace nestor
