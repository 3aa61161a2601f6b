// Reading and writing of rows.
#include "db/store.h"

#include "db/file_checks.h"
#include "db/records/encoding.h"
#include "db/schema.h"
#include "db/trust/sealing.h"
#include "support/error.h"

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
    if (!options.read_only)
      return Connection(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOMUTEX, options.busy_timeout_ms);
    std::string uri = "file:" + percent_encoded(std::filesystem::absolute(path).string());
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

std::string valid_of(const std::string& recipe) { return nlohmann::json::parse(recipe).at("valid").dump(); }

}  // namespace

Store::Store(const std::string& path, const DatabaseOptions& options, std::shared_ptr<Trust> trust)
    : path_(path),
      writable_(!options.read_only || path == kInMemory),
      served_(new Served{options.revision, std::move(trust)}),
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

std::int64_t Store::device_id(const DeviceIdentity& device) {
  connection_.run("INSERT INTO device (key, kind, name, arch, units, details) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                  device.key(), device.kind, device.name, device.arch, std::int64_t{device.units}, device.details);
  auto row = connection_.query("SELECT id FROM device WHERE key = ? AND name = ? AND details = ?", device.key(), device.name,
                               device.details);
  row.step();
  return row.integer(0);
}

std::int64_t Store::nest_id(const std::string& digest, const std::string& json) {
  connection_.run("INSERT INTO nest (digest, json, seal) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", digest, json,
                  nest_seal(digest, json));
  auto row = connection_.query("SELECT id FROM nest WHERE digest = ?", digest);
  row.step();
  return row.integer(0);
}

std::int64_t Store::problem_id(const ProblemKey& problem, const std::string& nest_json) {
  const std::int64_t nest = nest_id(problem.nest_digest, nest_json);
  const std::string sizes = canonical_sizes(problem.sizes);
  {
    auto row = connection_.query("SELECT id FROM problem WHERE op = ? AND variant = ? AND sizes = ? AND nest_id = ?", problem.op,
                                 problem.variant, sizes, nest);
    if (row.step()) return row.integer(0);
  }
  connection_.run("INSERT INTO problem (op, variant, sizes, nest_id) VALUES (?, ?, ?, ?)", problem.op, problem.variant, sizes,
                  nest);
  const std::int64_t id = connection_.last_id();
  for (const auto& [name, value] : problem.sizes) {
    connection_.run("INSERT INTO problem_size (problem_id, name, value) VALUES (?, ?, ?)", id, name, value);
  }
  return id;
}

std::int64_t Store::kernel_id(const KernelRecord& kernel) {
  {
    auto row = connection_.query("SELECT id FROM kernel WHERE hash = ? AND architecture = ?", kernel.hash, kernel.architecture);
    if (row.step()) return row.integer(0);
  }
  if (kernel.code.empty()) internal_error("kernel {} is stored without its code", kernel.hash);
  connection_.run("INSERT INTO kernel (hash, architecture, valid, recipe, code) VALUES (?, ?, ?, ?, ?)", kernel.hash,
                  kernel.architecture, valid_of(kernel.recipe), kernel.recipe, Blob{zstd_compress(kernel.code)});
  return connection_.last_id();
}

std::int64_t Store::insert(const Record& record) {
  const TrialRecord& trial = record.trial;
  const std::int64_t device = device_id(record.device);
  const std::int64_t problem = problem_id(record.problem, record.nest_json);
  auto row = connection_.query(
      "INSERT INTO trial (device_id, problem_id, kernel_id, status, median_ms, max_error, created, toolchain, reason, samples, "
      "steps, report, revision, checked, seal, signer, signature, certificate)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      device, problem, nullptr, to_string(trial.status), trial.median_ms, trial.max_error, trial.created, trial.toolchain,
      trial.reason, Blob{doubles_to_bytes(trial.samples_ms)}, trial.steps, trial.report, std::int64_t{trial.revision},
      std::int64_t{trial.checked}, seal_of(record), trial.signature.signer, trial.signature.value, trial.certificate.digest);
  if (trial.kernel) row.bind(3, kernel_id(*trial.kernel));
  row.run();
  const std::int64_t id = connection_.last_id();
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

void Store::keep_certificate(const CertificateRecord& certificate) {
  if (certificate.text.empty()) return;
  connection_.run("INSERT INTO certificate (digest, text) VALUES (?, ?) ON CONFLICT DO NOTHING", certificate.digest,
                  Blob{zstd_compress(certificate.text)});
}

std::string Store::certificate_text(const std::string& digest) {
  auto row = connection_.query("SELECT text FROM certificate WHERE digest = ?", digest);
  if (!row.step()) return "";
  const std::string text = zstd_decompress(row.text(0));
  if (certificate_digest(text) != digest) user_error("the text of its certificate {} is not what was stored", digest);
  require_shallow(text, "a certificate");
  return text;
}

void Store::remove_unused_code() {
  connection_.run("DELETE FROM kernel WHERE id NOT IN (SELECT kernel_id FROM trial WHERE kernel_id IS NOT NULL)");
  connection_.run("DELETE FROM certificate WHERE digest NOT IN (SELECT certificate FROM trial)");
}

void Store::pin(std::int64_t trial_id) {
  connection_.run("INSERT INTO pin (trial_id, seal) VALUES (?, ?) ON CONFLICT DO NOTHING", trial_id, pin_seal(trial_id));
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
      " AND t.kernel_id IS NOT NULL AND (?6 OR served(t.checked, t.signer, t.seal))"
      " ORDER BY NOT served(t.checked, t.signer, t.seal), pin.trial_id IS NULL, t.median_ms, t.id",
      problem.op, problem.variant, canonical_sizes(problem.sizes), problem.nest_digest, device.key(), std::int64_t{unchecked_too},
      device.name);
  std::vector<std::int64_t> ids;
  while (row.step()) ids.push_back(row.integer(0));
  return ids;
}

KernelRecord Store::kernel(std::int64_t kernel_id) {
  auto row = connection_.query("SELECT architecture, recipe, hash, code, valid FROM kernel WHERE id = ?", kernel_id);
  if (!row.step()) user_error("{}: kernel {} is missing", path_, kernel_id);
  KernelRecord kernel{row.text(0), "", row.text(1), row.text(2)};
  try {
    kernel.code = zstd_decompress(row.text(3));
  } catch (const UserError& error) {
    user_error("{}: kernel {} is damaged: {}", path_, kernel_id, error.what());
  }
  if (kernel_hash(kernel.code, kernel.recipe) != kernel.hash)
    user_error("{}: kernel {} is damaged: its hash does not match its contents", path_, kernel_id);
  require_shallow(kernel.recipe, "the launch recipe");
  if (row.text(4) != valid_of(kernel.recipe))
    user_error("{}: kernel {} is damaged: its sizes are not those of its recipe", path_, kernel_id);
  return kernel;
}

std::string Store::code_of(const std::string& hash) {
  auto row = connection_.query("SELECT id FROM kernel WHERE hash = ? ORDER BY id LIMIT 1", hash);
  if (!row.step()) user_error("{}: kernel {} was removed meanwhile: try again", path_, hash);
  return kernel(row.integer(0)).code;
}

}  // namespace nestor
