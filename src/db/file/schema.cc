// Creates and migrates the schema; every change is one transaction.
#include "db/file/schema.h"

#include "db/file/schema_text.h"
#include "support/error.h"
#include "support/words/printable.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <sqlite3.h>

namespace nestor {
namespace {

struct Migration {
  int from;
  const std::string_view& sql;
};

const std::array<Migration, 5> kMigrations{
    {{1, kMigrationSql1To2}, {2, kMigrationSql2To3}, {3, kMigrationSql3To4}, {4, kMigrationSql4To5}, {5, kMigrationSql5To6}}};

/// Files from here on have seals and signatures, which a migration keeps.
constexpr int kFirstSealed = 5;

/// What belongs into a tuning database, of any version.
constexpr std::array<std::string_view, 9> kTables{"meta",   "device", "nest", "problem",    "problem_size",
                                                  "kernel", "trial",  "pin",  "certificate"};

/// Triggers, views and tables of others change what statements mean: SQL of a supplied file is not run. SQLite's own statistics are let be.
void refuse_foreign_objects(SQLite::Database& raw, const std::string& path) {
  SQLite::Statement row(raw, "SELECT type, name FROM sqlite_master");
  while (row.executeStep()) {
    const std::string type = row.getColumn(0).getString(), name = row.getColumn(1).getString();
    const bool known = type == "index" || (type == "table" && (std::find(kTables.begin(), kTables.end(), name) != kTables.end() ||
                                                               name.starts_with("sqlite_stat")));
    if (!known)
      user_error(
          "the tuning database {} holds a {} \"{}\", which Nestor did not make and which could change what it reads: take the "
          "records "
          "from a program that you trust (nestor db export), or drop it",
          path, type, printable(name));
  }
}

/// What a fresh file of this version says, by table and index.
const std::map<std::string, std::string>& expected_statements() {
  static const std::map<std::string, std::string> expected = [] {
    SQLite::Database fresh(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    fresh.exec(std::string(kSchemaSql));
    fresh.exec(std::string(kIndexSql));
    return schema_statements(fresh);
  }();
  return expected;
}

/// Columns, checks, defaults, collations and indices: all of them could change what is read, or refuse what is written. Indices may be
/// missing.
void require_statements(SQLite::Database& raw, const std::string& path) {
  const auto& expected = expected_statements();
  const auto found = schema_statements(raw);
  for (const auto& [name, statement] : found) {
    const auto wanted = expected.find(name);
    if (wanted != expected.end() && wanted->second == statement) continue;
    user_error(
        "the tuning database {} is damaged: its {} is not as version {} has it: take the records from a program that you trust "
        "(nestor db export), or restore a copy",
        path, printable(name), kSchemaVersion);
  }
  for (const auto& [name, statement] : expected) {
    if (name.starts_with("table") && !found.contains(name))
      user_error("the tuning database {} is damaged: it lacks the {}", path, name);
  }
}

/// SQL of our own that fails on a schema that is not what the file says is damage. What is wrong with the disk or the file's rights is not.
template <class Function>
void on_sound_schema(const std::string& path, Function&& function) {
  try {
    function();
  } catch (const SQLite::Exception& error) {
    const int code = error.getErrorCode() & 0xff;
    if (code != SQLITE_ERROR && code != SQLITE_CONSTRAINT && code != SQLITE_MISMATCH) throw;
    user_error("the tuning database {} is damaged: its tables are not those of the schema version that it names ({})", path,
               printable(error.what()));
  }
}

// nullopt: an empty file. The queries here are not cached: the schema changes below them.
std::optional<int> schema_version(Connection& connection, const std::string& path) {
  SQLite::Database& raw = connection.raw();
  // No function of an application may be called by the schema itself, such as a default or an index.
  raw.exec("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON");
  if (raw.execAndGet("SELECT count(*) FROM sqlite_master").getInt64() == 0) return std::nullopt;
  if (!raw.tableExists("meta") || !raw.tableExists("trial"))
    user_error("{} is a SQLite database, but not a tuning database of Nestor", path);
  refuse_foreign_objects(raw, path);
  SQLite::Statement query(raw, "SELECT value FROM meta WHERE key = 'schema_version'");
  const std::string text = query.executeStep() ? query.getColumn(0).getString() : "";
  int version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1) {
    user_error("the tuning database {} is damaged: its schema version is \"{}\"", path, printable(text));
  }
  if (version > kSchemaVersion) {
    user_error(
        "the tuning database {} has schema version {}, this program knows versions up to {}: use a newer Nestor, or another "
        "database",
        path, version, kSchemaVersion);
  }
  return version;
}

void store_version(Connection& connection, int version) {
  SQLite::Statement store(
      connection.raw(),
      "INSERT INTO meta (key, value) VALUES ('schema_version', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value");
  store.bind(1, std::to_string(version));
  store.exec();
}

/// Files of this version may be older than an index. One that cannot be made at once is made another time: nobody waits for it.
void add_indices(SQLite::Database& raw) {
  const char* const count =
      "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name IN ('trial_of_signer', 'trial_of_seal')";
  if (raw.execAndGet(count).getInt() == 2) return;
  const int patience_ms = raw.execAndGet("PRAGMA busy_timeout").getInt();
  raw.setBusyTimeout(0);
  try {
    SQLite::Transaction transaction(raw, SQLite::TransactionBehavior::IMMEDIATE);
    raw.exec(std::string(kIndexSql));
    transaction.commit();
  } catch (const SQLite::Exception&) {
    // Look-ups are slower without.
  }
  raw.setBusyTimeout(patience_ms);
}

void bring_to_version(Connection& connection, const std::string& path, const std::function<void()>& seal) {
  if (schema_version(connection, path) == kSchemaVersion) {
    require_statements(connection.raw(), path);
    return add_indices(connection.raw());
  }
  SQLite::Transaction transaction(connection.raw(), SQLite::TransactionBehavior::IMMEDIATE);
  // Again, now that no other process can change it.
  const std::optional<int> found = schema_version(connection, path);
  if (!found) {
    connection.raw().exec(std::string(kSchemaSql));
  } else {
    for (const Migration& migration : kMigrations) {
      if (migration.from >= *found) connection.raw().exec(std::string(migration.sql));
    }
    require_statements(connection.raw(), path);
    if (*found < kFirstSealed) seal();
  }
  connection.raw().exec(std::string(kIndexSql));
  store_version(connection, kSchemaVersion);
  transaction.commit();
}

void require_version(Connection& connection, const std::string& path) {
  const std::optional<int> version = schema_version(connection, path);
  if (!version) user_error("{} is empty, not a tuning database", path);
  if (*version < kSchemaVersion) {
    user_error(
        "the tuning database {} has schema version {}, this program reads version {}: `nestor db migrate --db {}` brings it "
        "there",
        path, *version, kSchemaVersion, path);
  }
  require_statements(connection.raw(), path);
}

}  // namespace

void prepare_schema(Connection& connection, const std::string& path, const std::function<void()>& seal) {
  on_sound_schema(path, [&] { bring_to_version(connection, path, seal); });
}

void require_schema(Connection& connection, const std::string& path) {
  on_sound_schema(path, [&] { require_version(connection, path); });
}

}  // namespace nestor
