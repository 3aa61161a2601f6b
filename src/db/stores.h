// What stands behind Database: the user's store, the system's, and how they are asked together.
#pragma once

#include "db/lookup.h"
#include "db/store.h"

#include <optional>
#include <utility>

namespace nestor {

struct Stores {
  Store user;
  std::optional<Store> system;
  Warn warn;
  int patience_s = 0;  ///< DatabaseOptions::patience_s

  struct TrialPlace {
    Store& store;
    std::int64_t id;
  };
  /// Store and row of a trial id as callers see it: negative ids belong to the system's store.
  std::optional<TrialPlace> place_of(std::int64_t trial_id);
  /// Throws UserError when the user's store is read-only; `what` says what was wanted.
  void require_writable(const char* what) const;
  /// Throws UserError for a trial of the system's store.
  void require_of_user(std::int64_t trial_id) const;
  /// The better of both stores' answers; the user's when they are equal.
  template <class Find>
  std::optional<Answer> ask_both(Find&& find);
};

template <class Find>
std::optional<Answer> Stores::ask_both(Find&& find) {
  std::optional<Answer> best = guarded(user.path(), [&] { return find(user); });
  if (!system) return best;
  std::optional<Answer> other = guarded(system->path(), [&] { return find(*system); });
  if (!other || (best && !better(*other, *best))) return best;
  other->record.trial.id = -other->record.trial.id;
  return other;
}

}  // namespace nestor
