// Store: what rows say against what was sealed, and sealing them anew.
#include "db/records/encoding.h"
#include "db/store.h"
#include "db/trust/sealing.h"
#include "support/error.h"
#include "support/words/printable.h"

#include <sqlite3.h>

#include <tuple>
#include <utility>

namespace nestor {
namespace {

std::string_view text_of(sqlite3_value* value) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
  return text == nullptr ? std::string_view() : std::string_view(text, static_cast<std::size_t>(sqlite3_value_bytes(value)));
}

// Columns id, steps, status, reason, samples, median_ms, max_error, toolchain, created, report, revision, checked.
TrialRecord trial_from(const Connection::Query& row) {
  TrialRecord trial;
  trial.id = row.integer(0);
  trial.steps = row.text(1);
  const std::string status = row.text(2);
  const auto known = trial_status_from(status);
  if (!known) user_error("\"{:.20}\" is no status", status);
  trial.status = *known;
  trial.reason = row.text(3);
  trial.samples_ms = doubles_from_bytes(row.text(4));
  trial.median_ms = row.real(5);
  trial.max_error = row.real(6);
  trial.toolchain = row.text(7);
  trial.created = row.text(8);
  trial.report = row.text(9);
  trial.revision = static_cast<int>(row.integer(10));
  trial.checked = static_cast<int>(row.integer(11));
  return trial;
}

}  // namespace

void Store::make_served_function() {
  const auto served = [](sqlite3_context* context, int, sqlite3_value** values) {
    const Served& here = *static_cast<const Served*>(sqlite3_user_data(context));
    const bool fresh = sqlite3_value_int64(values[0]) >= here.revisions.of(text_of(values[1]));
    sqlite3_result_int(context, fresh && here.trust->claims(text_of(values[2]), text_of(values[3])) ? 1 : 0);
  };
  connection_.raw().createFunction("served", 4, false, served_.get(), served, nullptr, nullptr, nullptr);
}

std::optional<Store::Row> Store::row_of(std::int64_t trial_id) {
  auto row = connection_.query(
      "SELECT t.id, t.steps, t.status, t.reason, t.samples, t.median_ms, t.max_error, t.toolchain, t.created, t.report, "
      "t.revision, t.checked,"
      " d.kind, d.name, d.arch, d.units, d.details, p.id, p.op, p.variant, n.digest, n.json, t.kernel_id, pin.trial_id IS NOT "
      "NULL,"
      " t.seal, t.signer, t.signature, d.key, p.sizes, n.seal, k.architecture, k.hash, coalesce(pin.seal, ''), "
      "t.certificate"
      " FROM trial t LEFT JOIN device d ON d.id = t.device_id LEFT JOIN problem p ON p.id = t.problem_id"
      " LEFT JOIN nest n ON n.id = p.nest_id LEFT JOIN pin ON pin.trial_id = t.id LEFT JOIN kernel k ON k.id = t.kernel_id WHERE "
      "t.id = ?",
      trial_id);
  if (!row.step()) return std::nullopt;
  Row found;
  Record& record = found.record;
  record.trial = trial_from(row);
  record.device = {row.text(12), row.text(13), row.text(14), static_cast<int>(row.integer(15)), row.text(16)};
  record.problem = {row.text(18), row.text(19), row.text(20), {}};
  record.nest_json = row.text(21);
  record.pinned = row.integer(23) != 0;
  found.seal = row.text(24);
  record.trial.signature = {row.text(25), row.text(26)};
  record.trial.certificate.digest = row.text(33);
  record.problem.sizes = sizes_of(row.integer(17));
  if (!row.is_null(22)) {
    found.kernel = row.integer(22);
    if (row.is_null(31)) found.damage = fmt::format("its kernel {} is missing", *found.kernel);
    record.trial.kernel = KernelRecord{row.text(30), "", "", row.text(31)};
  }
  if (row.text(27) != record.device.key()) found.damage = "its device's key is not that of the device";
  if (row.text(28) != canonical_sizes(record.problem.sizes)) found.damage = "its sizes contradict each other";
  if (row.text(29) != nest_seal(record.problem.nest_digest, record.nest_json)) found.damage = "its nest is not what was stored";
  if (record.pinned && row.text(32) != pin_seal(trial_id)) found.damage = "it was not pinned by Nestor";
  for (const auto& [column, what] : {std::pair(20, "nest"), std::pair(17, "problem"), std::pair(12, "device")}) {
    if (row.is_null(column)) found.damage = fmt::format("its {} is missing", what);
  }
  return found;
}

std::optional<Record> Store::read(std::int64_t trial_id, bool with_kernel) {
  const auto damaged = [&](const std::string& how) { user_error("{}: trial {} is damaged: {}", path_, trial_id, how); };
  std::optional<Row> row;
  try {
    row = row_of(trial_id);
  } catch (const UserError& error) {
    damaged(error.what());
  }
  if (!row) return std::nullopt;
  if (row->damage.empty() && seal_of(row->record) != row->seal) row->damage = "what it says is not what was sealed";
  if (!row->damage.empty()) damaged(row->damage);
  TrialRecord& trial = row->record.trial;
  for (const std::string* text : {&trial.steps, &trial.report, &row->record.nest_json, &row->record.device.details}) {
    require_shallow(*text, "JSON of a trial");
    if (!text->empty() && !nlohmann::json::accept(*text)) damaged(fmt::format("what should be JSON is \"{:.40}\"", *text));
  }
  trial.trusted = trust().trusts(row->seal, trial.signature);
  trial.kernel.reset();
  if (!with_kernel) return std::move(row->record);
  if (row->kernel) trial.kernel = kernel(*row->kernel);
  try {
    trial.certificate.text = certificate_text(trial.certificate.digest);
  } catch (const UserError&) {
    // The digest is sealed and stays; the text can be proved again. db check names it.
  }
  return std::move(row->record);
}

Record Store::read_listed(std::int64_t trial_id, bool with_kernel) {
  std::optional<Record> record = read(trial_id, with_kernel);
  if (!record) user_error("{}: trial {} is damaged: an index has it, and the table does not", path_, trial_id);
  return std::move(*record);
}

void Store::seal_anew(std::int64_t trial_id, const std::optional<Signature>& given) {
  const std::optional<Row> row = row_of(trial_id);
  if (!row) user_error("{}: trial {} is damaged: it is not where it was", path_, trial_id);
  const std::string seal = seal_of(row->record);
  const Signature signature = given ? *given : trust().sign(seal);
  connection_.run("UPDATE trial SET seal = ?, signer = ?, signature = ? WHERE id = ?", seal, signature.signer, signature.value,
                  trial_id);
}

bool Store::sign(std::int64_t trial_id) {
  const std::optional<Row> row = row_of(trial_id);
  if (!row || trust().vouched(row->seal, row->record.trial.signature)) return false;
  seal_anew(trial_id);
  return true;
}

std::optional<Store::Row> Store::sound_row(std::int64_t trial_id) {
  try {
    std::optional<Row> row = row_of(trial_id);
    if (!row || !row->damage.empty() || seal_of(row->record) != row->seal) return std::nullopt;
    const Signature& signature = row->record.trial.signature;
    if (!signature.empty() && !is_signed(row->seal, signature.signer, signature.value)) return std::nullopt;
    return row;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

bool Store::take_over(std::int64_t trial_id, const Record& record) {
  const std::optional<Row> stored = sound_row(trial_id);
  const TrialRecord& given = record.trial;
  if (!stored) {
    connection_.run("DELETE FROM pin WHERE trial_id = ? AND seal != ?", trial_id, pin_seal(trial_id));
    insert(record, trial_id);
    return given.status == TrialStatus::ok;
  }
  if (record.pinned && !stored->record.pinned) pin(trial_id);
  // A total order: whatever comes first, the greatest stays.
  const auto rank = [&](const std::string& seal, const TrialRecord& trial) {
    return std::tuple(trust().vouched(seal, trial.signature), trial.status != TrialStatus::ok, trial.checked, trial.revision,
                      seal, trial.signature.signer);
  };
  if (given.certificate.digest == stored->record.trial.certificate.digest) keep_certificate(given.certificate);
  if (rank(seal_of(record), given) <= rank(stored->seal, stored->record.trial)) return false;
  const bool released = given.status == TrialStatus::ok && given.checked > stored->record.trial.checked;
  connection_.run(
      "UPDATE trial SET status = ?, reason = ?, median_ms = ?, max_error = ?, report = ?, revision = ?, checked = ?, "
      "certificate = ? WHERE id = ?",
      to_string(given.status), given.reason, given.median_ms, given.max_error, given.report, std::int64_t{given.revision},
      std::int64_t{given.checked}, given.certificate.digest, trial_id);
  keep_certificate(given.certificate);
  connection_.run("DELETE FROM certificate WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM trial WHERE certificate = ?1)",
                  stored->record.trial.certificate.digest);
  seal_anew(trial_id, given.signature);
  return released;
}

void Store::take_over_nest(const Record& record) {
  const std::string& digest = record.problem.nest_digest;
  if (!nest_is_sound(digest)) return store_nest(digest, record.nest_json);
  std::string stored;
  {
    auto row = connection_.query("SELECT json FROM nest WHERE digest = ?", digest);
    if (!row.step()) return;
    stored = row.text(0);
  }
  if (stored == record.nest_json) return;
  bool vouched = false;
  {
    auto row = connection_.query(
        "SELECT t.seal, t.signer, t.signature FROM trial t JOIN problem p ON p.id = t.problem_id JOIN nest n ON n.id = p.nest_id"
        " WHERE n.digest = ?",
        digest);
    while (!vouched && row.step()) vouched = trust().vouched(row.text(0), {row.text(1), row.text(2)});
  }
  const bool given = trust().vouched(seal_of(record), record.trial.signature);
  if (given < vouched || (given == vouched && stored < record.nest_json)) return;
  store_nest(digest, record.nest_json);
}

void Store::seal_all() {
  auto kernels = connection_.query("SELECT id, recipe, hash, code FROM kernel");
  while (kernels.step()) {
    std::string code;
    try {
      code = zstd_decompress(kernels.text(3));
    } catch (const UserError&) {
      continue;  // db check finds it
    }
    if (is_hash_of(kernels.text(2), code, kernels.text(1)))
      connection_.run("UPDATE kernel SET hash = ? WHERE id = ?", kernel_hash(code, kernels.text(1)), kernels.integer(0));
  }
  auto nests = connection_.query("SELECT id, digest, json FROM nest");
  while (nests.step())
    connection_.run("UPDATE nest SET seal = ? WHERE id = ?", nest_seal(nests.text(1), nests.text(2)), nests.integer(0));
  auto pins = connection_.query("SELECT trial_id FROM pin");
  while (pins.step()) connection_.run("UPDATE pin SET seal = ? WHERE trial_id = ?", pin_seal(pins.integer(0)), pins.integer(0));
  auto trials = connection_.query("SELECT id FROM trial");
  while (trials.step()) seal_anew(trials.integer(0), Signature{});
}

std::vector<std::string> Store::other_damage() {
  std::vector<std::string> findings;
  auto columns = connection_.query(
      "SELECT m.name, c.name, lower(c.type), c.\"notnull\" OR c.pk FROM sqlite_master m JOIN pragma_table_info(m.name) c"
      " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'");
  while (columns.step()) {
    const std::string table = columns.text(0), column = columns.text(1), type = columns.text(2);
    const std::string null = columns.integer(3) != 0 ? "" : fmt::format(" AND {} IS NOT NULL", column);
    SQLite::Statement odd(connection_.raw(),
                          fmt::format("SELECT count(*) FROM {} WHERE typeof({}) != '{}'{}", table, column, type, null));
    odd.executeStep();
    if (const std::int64_t count = odd.getColumn(0).getInt64(); count > 0)
      findings.push_back(fmt::format("table {}: {} values of {} are no {}", table, count, column, type));
  }
  auto certificates = connection_.query("SELECT digest FROM certificate");
  while (certificates.step()) {
    try {
      certificate_text(certificates.text(0));
    } catch (const UserError& error) {
      findings.push_back(fmt::format("certificate {}: {}", printable(certificates.text(0)), error.what()));
    }
  }
  auto pins = connection_.query("SELECT trial_id, seal FROM pin");
  while (pins.step()) {
    if (pins.text(1) != pin_seal(pins.integer(0)))
      findings.push_back(fmt::format("trial {} was not pinned by Nestor", pins.integer(0)));
  }
  return findings;
}

}  // namespace nestor
