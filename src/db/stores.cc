// Trials by their ids, and the right to write.
#include "db/stores.h"

#include "support/error.h"

namespace nestor {

std::optional<Stores::TrialPlace> Stores::place_of(std::int64_t trial_id) {
  if (trial_id > 0) return TrialPlace{user, trial_id};
  if (trial_id < 0 && system) return TrialPlace{*system, -trial_id};
  return std::nullopt;
}

void Stores::require_writable(const char* what) const {
  if (!user.writable()) user_error("the tuning database {} was opened read-only: cannot {}", user.path(), what);
}

void Stores::require_of_user(std::int64_t trial_id) const {
  if (trial_id < 0 && system) user_error("trial {} is in the system database {}, which is read-only", trial_id, system->path());
}

}  // namespace nestor
