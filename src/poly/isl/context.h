// One isl context a thread, and the budget that keeps any isl computation finite.
#pragma once

#include <isl/cpp.h>

#include <cstdint>
#include <functional>
#include <string>

namespace nestor {

/// The calling thread's isl context. isl objects must not cross threads. isl errors arrive as isl::exception.
isl::ctx isl_context();

/// Default number of isl operations one computation may take (seconds of work at most).
inline constexpr std::uint64_t kIslBudget = 20'000'000;

/// Limits isl operations while alive; nests (the inner guard wins, the outer limit comes back afterwards).
class IslBudget {
 public:
  explicit IslBudget(std::uint64_t operations = kIslBudget);
  ~IslBudget();
  IslBudget(const IslBudget&) = delete;
  IslBudget& operator=(const IslBudget&) = delete;

 private:
  unsigned long previous_;
};

/// How messages about too much work for isl go on.
inline constexpr const char* kMoreSizes = "fix more sizes to numbers or use fewer steps";

/// Runs `compute` under a budget. A quota overrun becomes a UserError that names `what` and how to go on (fix more sizes,
/// fewer steps); any other isl failure becomes an InternalError that names `what`.
void with_isl_budget(const std::string& what, const std::function<void()>& compute, std::uint64_t operations = kIslBudget);

/// As above for a computation with a result.
template <class F>
auto isl_guarded(const std::string& what, F&& compute) {
  decltype(compute()) result;
  with_isl_budget(what, [&] { result = compute(); });
  return result;
}

}  // namespace nestor
