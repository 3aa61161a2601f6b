// Reading and writing of rows.
#include "db/store.h"

#include "db/file/file_checks.h"
#include "db/file/schema.h"
#include "db/records/encoding.h"
#include "db/trust/sealing.h"
#include "support/error.h"

#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

namespace nestor {
namespace {

// A path inside a file: URI.
std::string percent_encoded(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("/._-").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Connection connect(const std::string& path, const DatabaseOptions& options) {
  if (path == kInMemory) return Connection(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOMUTEX, 0);
  const FileAccess access = check_database_file(path, options.read_only, file_system_type_of(path));
  return guarded(path, [&] {
    // No relative path: SQLite takes one that starts with "file:" for a URI.
    const std::string absolute = std::filesystem::absolute(path).string();
    if (!options.read_only)
      return Connection(absolute, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOMUTEX, options.busy_timeout_ms);
    std::string uri = "file:" + percent_encoded(absolute);
    if (access.immutable) uri += "?immutable=1";
    return Connection(uri, SQLite::OPEN_READONLY | SQLite::OPEN_URI | SQLite::OPEN_NOMUTEX, options.busy_timeout_ms);
  });
}

// The switch to WAL needs the file for itself for a moment, and SQLite does not wait for that by itself.
void switch_to_wal(SQLite::Database& database, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    try {
      database.exec("PRAGMA journal_mode = WAL");
      return;
    } catch (const SQLite::Exception& error) {
      const bool busy = (error.getErrorCode() & 0xff) == 5;  // SQLITE_BUSY
      if (!busy || std::chrono::steady_clock::now() >= deadline) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void limit_size(SQLite::Database& database, std::int64_t bytes) {
  const std::int64_t page = database.execAndGet("PRAGMA page_size").getInt64();
  // PRAGMA takes no bound parameters; this one is an integer.
  database.execAndGet(fmt::format("PRAGMA max_page_count = {}", std::max<std::int64_t>(1, bytes / page)));
}

}  // namespace

Store::Store(const std::string& path, const DatabaseOptions& options, std::shared_ptr<Trust> trust)
    : path_(path),
      writable_(!options.read_only || path == kInMemory),
      served_(new Served{options.revisions, std::move(trust)}),
      connection_(connect(path, options)) {
  guarded(path_, [&] {
    make_served_function();
    if (!writable_) return require_schema(connection_, path_);
    // Migrations make tables anew, which must not remove the rows that refer to them.
    connection_.raw().exec("PRAGMA foreign_keys = OFF; PRAGMA synchronous = FULL");
    if (options.max_bytes > 0) limit_size(connection_.raw(), options.max_bytes);
    prepare_schema(connection_, path_, [&] { seal_all(); });
    connection_.raw().exec("PRAGMA foreign_keys = ON");
    switch_to_wal(connection_.raw(), options.busy_timeout_ms);
  });
}

const Store::Shipped& Store::shipped() {
  auto version = connection_.query("PRAGMA data_version");
  version.step();
  const std::pair now(version.integer(0), std::int64_t{connection_.raw().getTotalChanges()});
  if (now == shipped_of_) return shipped_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> found;
  auto row = connection_.query(
      "SELECT problem_id, device_id, id FROM trial WHERE status = 'ok' AND kernel_id IS NOT NULL AND seal IN (SELECT value FROM "
      "json_each(?))",
      shipped_seals_json());
  while (row.step()) found[{row.integer(0), row.integer(1)}].push_back(row.integer(2));
  shipped_ = {};
  auto pairs = nlohmann::json::array();
  for (const auto& [ids, trials] : found) {
    pairs.push_back(fmt::format("{}/{}", ids.first, ids.second));
    shipped_.trials[ids] = nlohmann::json(trials).dump();
  }
  shipped_.pairs = pairs.dump();
  shipped_of_ = now;
  return shipped_;
}

std::int64_t Store::insert(const Record& record, std::optional<std::int64_t> instead_of) {
  const TrialRecord& trial = record.trial;
  const std::int64_t device = device_id(record.device);
  const std::int64_t problem = problem_id(record.problem, record.nest_json);
  auto row = connection_.query(
      "INSERT INTO trial (device_id, problem_id, kernel_id, status, median_ms, max_error, created, toolchain, reason, samples, "
      "steps, report, revision, checked, seal, signer, signature, certificate, id)"
      " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)"
      " ON CONFLICT (id) DO UPDATE SET device_id = ?1, problem_id = ?2, kernel_id = ?3, status = ?4, median_ms = ?5, max_error = "
      "?6, created = ?7, toolchain = ?8, reason = ?9, samples = ?10, steps = ?11, report = ?12, revision = ?13, checked = ?14,"
      " seal = ?15, signer = ?16, signature = ?17, certificate = ?18",
      device, problem, nullptr, to_string(trial.status), trial.median_ms, trial.max_error, trial.created, trial.toolchain,
      trial.reason, Blob{doubles_to_bytes(trial.samples_ms)}, trial.steps, trial.report, std::int64_t{trial.revision},
      std::int64_t{trial.checked}, seal_of(record), trial.signature.signer, trial.signature.value, trial.certificate.digest);
  if (trial.kernel) row.bind(3, kernel_id(*trial.kernel));
  if (instead_of) row.bind(19, *instead_of);
  row.run();
  const std::int64_t id = instead_of ? *instead_of : connection_.last_id();
  keep_certificate(trial.certificate);
  if (record.pinned) pin(id);
  return id;
}

void Store::replace_measurement(std::int64_t trial_id, const DeviceIdentity& device, const TrialRecord& measured) {
  connection_.run(
      "UPDATE trial SET device_id = ?, kernel_id = ?, median_ms = ?, max_error = ?, created = ?, toolchain = ?, reason = ?, "
      "samples = ?, "
      "report = ?, revision = ?, checked = ?, certificate = ? WHERE id = ?",
      device_id(device), kernel_id(measured.kernel.value()), measured.median_ms, measured.max_error, measured.created,
      measured.toolchain, measured.reason, Blob{doubles_to_bytes(measured.samples_ms)}, measured.report,
      std::int64_t{measured.revision}, std::int64_t{measured.checked}, measured.certificate.digest, trial_id);
  keep_certificate(measured.certificate);
  remove_unused_code();
}

void Store::remove_unused_code() {
  connection_.run("DELETE FROM kernel WHERE id NOT IN (SELECT kernel_id FROM trial WHERE kernel_id IS NOT NULL)");
  connection_.run("DELETE FROM certificate WHERE digest NOT IN (SELECT certificate FROM trial)");
}

void Store::pin(std::int64_t trial_id) {
  connection_.run("INSERT INTO pin (trial_id, seal) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET seal = ?2", trial_id,
                  pin_seal(trial_id));
}

std::optional<std::int64_t> Store::find(const Record& record) {
  const TrialRecord& trial = record.trial;
  auto row = connection_.query(
      "SELECT t.id FROM problem p JOIN nest n ON n.id = p.nest_id JOIN trial t ON t.problem_id = p.id JOIN device d ON d.id "
      "= t.device_id"
      " LEFT JOIN kernel k ON k.id = t.kernel_id"
      " WHERE p.op = ? AND p.variant = ? AND p.sizes = ? AND n.digest = ? AND d.key = ? AND d.name = ? AND d.details = ? AND "
      "t.created = ?"
      " AND t.samples = ? AND t.steps = ? AND t.toolchain = ? AND coalesce(k.hash, '') = ? AND coalesce(k.architecture, '') = ?"
      " AND (k.hash IS NOT NULL OR (t.status = ? AND t.reason = ?)) ORDER BY t.id",
      record.problem.op, record.problem.variant, canonical_sizes(record.problem.sizes), record.problem.nest_digest,
      record.device.key(), record.device.name, record.device.details, trial.created, Blob{doubles_to_bytes(trial.samples_ms)},
      trial.steps, trial.toolchain, trial.kernel ? trial.kernel->hash : "", trial.kernel ? trial.kernel->architecture : "",
      to_string(trial.status), trial.reason);
  if (!row.step()) return std::nullopt;
  return row.integer(0);
}

void Store::require_in_place() {
  int moved = 0;
  const bool known = sqlite3_file_control(connection_.raw().getHandle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK;
  if (known && moved != 0)
    user_error("the tuning database {} was removed, renamed or replaced while it was in use: nothing more is stored", path_);
}

std::vector<std::int64_t> Store::trials(const DeviceIdentity& device, const ProblemKey& problem) {
  auto row = connection_.query(
      "SELECT t.id FROM problem p JOIN nest n ON n.id = p.nest_id JOIN trial t ON t.problem_id = p.id JOIN device d ON d.id = "
      "t.device_id"
      " WHERE p.op = ? AND p.variant = ? AND p.sizes = ? AND n.digest = ? AND d.key = ? AND d.name = ? ORDER BY t.created, t.id",
      problem.op, problem.variant, canonical_sizes(problem.sizes), problem.nest_digest, device.key(), device.name);
  std::vector<std::int64_t> ids;
  while (row.step()) ids.push_back(row.integer(0));
  return ids;
}

std::vector<std::int64_t> Store::winners(const DeviceIdentity& device, const ProblemKey& problem, bool unchecked_too) {
  auto row = connection_.query(
      "SELECT t.id FROM problem p JOIN nest n ON n.id = p.nest_id JOIN trial t ON t.problem_id = p.id JOIN device d ON d.id = "
      "t.device_id LEFT JOIN pin ON pin.trial_id = t.id"
      " WHERE p.op = ?1 AND p.variant = ?2 AND p.sizes = ?3 AND n.digest = ?4 AND d.key = ?5 AND d.name = ?7 AND t.status = 'ok'"
      " AND t.kernel_id IS NOT NULL AND (?6 OR served(t.checked, d.kind, t.signer, t.seal))"
      " ORDER BY NOT served(t.checked, d.kind, t.signer, t.seal), pin.trial_id IS NULL, t.median_ms, t.id",
      problem.op, problem.variant, canonical_sizes(problem.sizes), problem.nest_digest, device.key(), std::int64_t{unchecked_too},
      device.name);
  std::vector<std::int64_t> ids;
  while (row.step()) ids.push_back(row.integer(0));
  return ids;
}

}  // namespace nestor
