// Creates and migrates the schema; every change is one transaction.
#include "db/schema.h"

#include "support/error.h"

#include <array>
#include <charconv>
#include <optional>

namespace nestor {
namespace {

struct Migration {
  int from;
  const std::string_view& sql;
};

const std::array<Migration, 3> kMigrations{{{1, kMigrationSql1To2}, {2, kMigrationSql2To3}, {3, kMigrationSql3To4}}};

// nullopt: an empty file. The queries here are not cached: the schema changes below them.
std::optional<int> schema_version(Connection& connection, const std::string& path) {
  SQLite::Database& raw = connection.raw();
  if (raw.execAndGet("SELECT count(*) FROM sqlite_master").getInt64() == 0) return std::nullopt;
  if (!raw.tableExists("meta") || !raw.tableExists("trial"))
    user_error("{} is a SQLite database, but not a tuning database of Nestor", path);
  SQLite::Statement query(raw, "SELECT value FROM meta WHERE key = 'schema_version'");
  const std::string text = query.executeStep() ? query.getColumn(0).getString() : "";
  int version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1) {
    user_error("the tuning database {} is damaged: its schema version is \"{}\"", path, text);
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

}  // namespace

void prepare_schema(Connection& connection, const std::string& path) {
  if (schema_version(connection, path) == kSchemaVersion) return;
  SQLite::Transaction transaction(connection.raw(), SQLite::TransactionBehavior::IMMEDIATE);
  // Again, now that no other process can change it.
  const std::optional<int> found = schema_version(connection, path);
  if (!found) {
    connection.raw().exec(std::string(kSchemaSql));
  } else {
    for (const Migration& migration : kMigrations) {
      if (migration.from >= *found) connection.raw().exec(std::string(migration.sql));
    }
  }
  store_version(connection, kSchemaVersion);
  transaction.commit();
}

void require_schema(Connection& connection, const std::string& path) {
  const std::optional<int> version = schema_version(connection, path);
  if (!version) user_error("{} is empty, not a tuning database", path);
  if (*version < kSchemaVersion) {
    user_error(
        "the tuning database {} has schema version {}: open it once for writing (`nestor db check`) to bring it to version {}",
        path, *version, kSchemaVersion);
  }
}

}  // namespace nestor
