// The calling thread's isl context and the operation budget.
#include "poly/context.h"

#include <isl/ctx.h>
#include <isl/options.h>

#include <mutex>
#include <vector>

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
  const IslBudget budget(operations);
  try {
    compute();
  } catch (const isl::exception& failure) {
    // A failure inside isl's C interface arrives as a null pointer; only the context still knows its kind.
    const bool quota =
        dynamic_cast<const isl::exception_quota*>(&failure) != nullptr || isl_ctx_last_error(context) == isl_error_quota;
    isl_ctx_reset_error(context);
    if (quota) {
      user_error("{} takes more than {} isl operations; fix more sizes to numbers or use fewer steps", what, operations);
    }
    internal_error("isl failed in {}: {}", what, failure.what());
  }
}

}  // namespace nestor
