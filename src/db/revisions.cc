// Database: which kernels wait for a check by this revision of the code generator, and what a check found.
#include "db/database.h"
#include "db/stores.h"
#include "support/error.h"

namespace nestor {

std::vector<std::int64_t> Database::to_check(bool all) const {
  Store& store = stores_->user;
  return guarded(store.path(), [&] {
    auto row = store.connection().query(
        "SELECT t.id FROM trial t LEFT JOIN problem p ON p.id = t.problem_id LEFT JOIN nest n ON n.id = p.nest_id"
        " LEFT JOIN device d ON d.id = t.device_id WHERE t.status = 'ok' AND t.kernel_id IS NOT NULL"
        " AND (? OR n.id IS NULL OR d.id IS NULL OR NOT served(t.checked, d.kind, t.signer, t.seal))"
        " ORDER BY p.op, p.variant, p.sizes, d.key, t.median_ms, t.id",
        std::int64_t{all});
    std::vector<std::int64_t> ids;
    while (row.step()) ids.push_back(row.integer(0));
    return ids;
  });
}

std::int64_t Database::waiting(const std::string& op, const std::string& variant, const std::string& nest_digest) const {
  const auto count = [&](Store& store) {
    return guarded(store.path(), [&] {
      auto row = store.connection().query(
          "SELECT count(*) FROM trial t JOIN problem p ON p.id = t.problem_id JOIN nest n ON n.id = p.nest_id"
          " JOIN device d ON d.id = t.device_id WHERE t.status = 'ok' AND t.kernel_id IS NOT NULL"
          " AND NOT served(t.checked, d.kind, t.signer, t.seal)"
          " AND ?1 IN ('', p.op) AND ?2 IN ('', p.variant) AND ?3 IN ('', n.digest)",
          op, variant, nest_digest);
      row.step();
      return row.integer(0);
    });
  };
  return count(stores_->user) + (stores_->system ? count(*stores_->system) : 0);
}

std::int64_t Database::damaged(const std::string& op, const std::string& variant, const std::string& nest_digest) const {
  const auto count = [&](Store& store) {
    return guarded(store.path(), [&] {
      auto row = store.connection().query(
          "SELECT t.id FROM trial t LEFT JOIN problem p ON p.id = t.problem_id LEFT JOIN nest n ON n.id = p.nest_id"
          " WHERE t.status = 'ok' AND (p.id IS NULL OR n.id IS NULL OR"
          " (?1 IN ('', p.op) AND ?2 IN ('', p.variant) AND ?3 IN ('', n.digest)))",
          op, variant, nest_digest);
      std::int64_t found = 0;
      while (row.step()) {
        try {
          store.read(row.integer(0), true);
        } catch (const UserError&) {
          ++found;
        }
      }
      return found;
    });
  };
  return count(stores_->user) + (stores_->system ? count(*stores_->system) : 0);
}

void Database::store_check(std::int64_t trial_id, const CheckResult& found) {
  stores_->require_writable("store what a check found");
  stores_->require_of_user(trial_id);
  Store& store = stores_->user;
  guarded(store.path(), [&] {
    return store.in_transaction([&] {
      Connection& connection = store.connection();
      auto row = connection.query("SELECT status = 'ok' AND kernel_id IS NOT NULL FROM trial WHERE id = ?", trial_id);
      if (!row.step()) user_error("there is no trial {} in {}", trial_id, store.path());
      if (row.integer(0) == 0) user_error("trial {} has no kernel that ran correctly: there is nothing to check", trial_id);
      const auto stored = store.read(trial_id, false);  // what was damaged meanwhile must not be sealed anew
      if (found.status == TrialStatus::ok && found.measured) {
        store.replace_measurement(trial_id, found.device, *found.measured);
      } else if (found.status == TrialStatus::ok) {
        connection.run(
            "UPDATE trial SET checked = max(checked, ?1), revision = CASE WHEN ?2 THEN max(revision, ?1) ELSE revision END"
            " WHERE id = ?3",
            store.revision(stored->device.kind), std::int64_t{found.same_code}, trial_id);
      } else {
        connection.run("UPDATE trial SET status = ?, reason = ?, checked = 0 WHERE id = ?", to_string(found.status), found.reason,
                       trial_id);
        connection.run("DELETE FROM pin WHERE trial_id = ?", trial_id);
      }
      store.seal_anew(trial_id);
      return true;
    });
  });
}

std::int64_t Database::sign_all() {
  stores_->require_writable("sign its records");
  Store& store = stores_->user;
  if (store.trust().own_key().empty()) user_error("there is no key to sign with");
  return guarded(store.path(), [&] {
    return store.in_transaction([&] {
      std::int64_t signed_now = 0;
      auto row = store.connection().query("SELECT id FROM trial ORDER BY id");
      while (row.step()) {
        try {
          store.read(row.integer(0), true);
        } catch (const UserError& error) {
          stores_->warn(fmt::format("{}; it is not signed", error.what()));
          continue;
        }
        signed_now += store.sign(row.integer(0)) ? 1 : 0;
      }
      return signed_now;
    });
  });
}

std::string Database::own_key() const { return stores_->user.trust().own_key(); }

void Database::allow_unsigned(bool allowed) { stores_->user.trust().allow_unsigned(allowed); }

std::vector<std::int64_t> Database::with_status(TrialStatus status) const {
  std::vector<std::int64_t> ids;
  const auto collect = [&](Store& store, std::int64_t sign) {
    guarded(store.path(), [&] {
      auto row = store.connection().query("SELECT id FROM trial WHERE status = ? ORDER BY created, id", to_string(status));
      while (row.step()) ids.push_back(sign * row.integer(0));
    });
  };
  collect(stores_->user, 1);
  if (stores_->system) collect(*stores_->system, -1);
  return ids;
}

}  // namespace nestor
