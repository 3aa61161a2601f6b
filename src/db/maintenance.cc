// Database: pins, pruning, summaries and checks.
#include "db/database.h"
#include "db/stores.h"
#include "support/error.h"
#include "support/launch_recipe.h"

#include <map>
#include <numeric>
#include <tuple>

namespace nestor {
namespace {

// Trials that pruning keeps: pinned, or among the first ? ok ones with a kernel, by time, of their problem and device.
constexpr std::string_view kDeleteSlow =
    "DELETE FROM trial WHERE id NOT IN (SELECT trial_id FROM pin) AND id NOT IN ("
    " SELECT id FROM (SELECT t.id, row_number() OVER (PARTITION BY t.problem_id, d.key ORDER BY NOT served(t.checked, d.kind, "
    "t.signer, t.seal), t.median_ms, t.id) AS place"
    "  FROM trial t JOIN device d ON d.id = t.device_id WHERE t.status = 'ok') WHERE place <= ?)";

// Every trial against its seal and its signature. Nobody's signature is no damage: such a trial waits.
void check_trials(Store& store, std::vector<std::string>& findings) {
  auto trials = store.connection().query("SELECT id, seal, signer, signature FROM trial ORDER BY id");
  while (trials.step()) {
    try {
      store.read(trials.integer(0), false);
      if (trials.text(2).empty() && trials.text(3).empty()) continue;
      if (!is_signed(trials.text(1), trials.text(2), trials.text(3)))
        findings.push_back(fmt::format("{}: trial {} is damaged: its signature is not one of the key it names", store.path(),
                                       trials.integer(0)));
    } catch (const UserError& error) {
      findings.emplace_back(error.what());
    }
  }
}

}  // namespace

void Database::pin(std::int64_t trial_id, bool pinned) {
  stores_->require_writable("pin a trial");
  stores_->require_of_user(trial_id);
  Store& store = stores_->user;
  guarded(store.path(), [&] {
    return store.in_transaction([&] {
      Connection& connection = store.connection();
      auto row = connection.query(
          "SELECT status = 'ok' AND kernel_id IS NOT NULL, served(checked, (SELECT kind FROM device WHERE id = device_id), "
          "signer, seal) FROM trial WHERE id = ?",
          trial_id);
      if (!row.step()) user_error("there is no trial {} in {}", trial_id, store.path());
      if (pinned && row.integer(0) == 0) user_error("trial {} cannot be pinned: it has no kernel that ran correctly", trial_id);
      if (pinned && row.integer(1) == 0)
        user_error("trial {} cannot be pinned: its kernel waits for a check by this program (nestor db check --run)", trial_id);
      if (pinned) {
        connection.run(
            "DELETE FROM pin WHERE trial_id IN (SELECT other.id FROM trial t JOIN trial other USING (problem_id, device_id) "
            "WHERE t.id = ?)",
            trial_id);
        store.pin(trial_id);
      } else {
        connection.run("DELETE FROM pin WHERE trial_id = ?", trial_id);
      }
      return true;
    });
  });
}

std::int64_t Database::prune(int keep) {
  stores_->require_writable("remove trials");
  if (keep < 1) user_error("prune keeps at least 1 trial of each problem, not {}", keep);
  Store& store = stores_->user;
  return guarded(store.path(), [&] {
    return store.in_transaction([&]() -> std::int64_t {
      Connection& connection = store.connection();
      connection.run(kDeleteSlow, std::int64_t{keep});
      const std::int64_t removed = connection.raw().getChanges();
      store.remove_unused_code();
      connection.run("DELETE FROM problem WHERE id NOT IN (SELECT problem_id FROM trial)");
      connection.run("DELETE FROM nest WHERE id NOT IN (SELECT nest_id FROM problem)");
      connection.run("DELETE FROM device WHERE id NOT IN (SELECT device_id FROM trial)");
      return removed;
    });
  });
}

std::vector<Database::ProblemSummary> Database::summary() const {
  Store& store = stores_->user;
  return guarded(store.path(), [&] {
    auto row = store.connection().query(
        "SELECT p.op, p.variant, n.digest, p.id, d.kind, d.name, d.arch, d.units, d.details, count(*),"
        " sum(t.status = 'ok' AND served(t.checked, d.kind, t.signer, t.seal)),"
        " sum(t.status = 'ok' AND t.kernel_id IS NOT NULL AND NOT served(t.checked, d.kind, t.signer, t.seal)),"
        " coalesce(min(CASE WHEN t.status = 'ok' AND served(t.checked, d.kind, t.signer, t.seal) THEN t.median_ms END), 0)"
        " FROM trial t JOIN device d ON d.id = t.device_id JOIN problem p ON p.id = t.problem_id JOIN nest n ON n.id = p.nest_id"
        " GROUP BY p.id, d.key ORDER BY p.op, p.variant, n.digest, p.sizes, d.key");
    std::vector<ProblemSummary> found;
    while (row.step()) {
      ProblemSummary entry{{row.text(0), row.text(1), row.text(2), {}},
                           {row.text(4), row.text(5), row.text(6), static_cast<int>(row.integer(7)), row.text(8)},
                           row.integer(9),
                           row.integer(10),
                           row.integer(11),
                           row.real(12)};
      auto sizes = store.connection().query("SELECT name, value FROM problem_size WHERE problem_id = ?", row.integer(3));
      while (sizes.step()) entry.problem.sizes[sizes.text(0)] = sizes.integer(1);
      found.push_back(std::move(entry));
    }
    auto all = store.connection().query("SELECT count(*) FROM trial");
    all.step();
    const std::int64_t shown = std::accumulate(found.begin(), found.end(), std::int64_t{0},
                                               [](std::int64_t sum, const ProblemSummary& entry) { return sum + entry.trials; });
    if (const std::int64_t lost = all.integer(0) - shown; lost > 0)
      stores_->warn(fmt::format("{}: {} lost what they belong to: `nestor db check` says which", store.path(),
                                lost == 1 ? "a trial has" : fmt::format("{} trials have", lost)));
    return found;
  });
}

std::vector<DeviceIdentity> Database::devices() const {
  std::map<std::tuple<std::string, std::string, std::string>, DeviceIdentity> found;
  const auto collect = [&](Store& store) {
    guarded(store.path(), [&] {
      auto row = store.connection().query("SELECT kind, name, arch, units, details FROM device ORDER BY id");
      while (row.step()) {
        DeviceIdentity device{row.text(0), row.text(1), row.text(2), static_cast<int>(row.integer(3)), row.text(4)};
        found.emplace(std::tuple(device.key(), device.name, device.details), device);
      }
    });
  };
  collect(stores_->user);
  if (stores_->system) collect(*stores_->system);
  std::vector<DeviceIdentity> devices;
  devices.reserve(found.size());
  for (auto& [key, device] : found) devices.push_back(std::move(device));
  return devices;
}

std::vector<std::string> Database::check() const {
  Store& store = stores_->user;
  Connection& connection = store.connection();
  std::vector<std::string> findings;
  try {
    auto row = connection.query("PRAGMA integrity_check");
    while (row.step()) {
      if (row.text(0) != "ok") findings.push_back(row.text(0));
    }
    auto orphan = connection.query("PRAGMA foreign_key_check");
    while (orphan.step())
      findings.push_back(
          fmt::format("table {}, row {}: refers to a missing row of {}", orphan.text(0), orphan.integer(1), orphan.text(2)));
    for (std::string& damage : store.other_damage()) findings.push_back(std::move(damage));
    auto kernels = connection.query("SELECT id FROM kernel ORDER BY id");
    while (kernels.step()) {
      try {
        recipe_from_json(nlohmann::json::parse(store.kernel(kernels.integer(0)).recipe));
      } catch (const UserError& error) {
        findings.emplace_back(error.what());
      }
    }
    check_trials(store, findings);
  } catch (const SQLite::Exception& error) {
    findings.push_back(fmt::format("{}: {}", store.path(), error.what()));
  }
  return findings;
}

}  // namespace nestor
