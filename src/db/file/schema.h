// Schema version of a database file: creation and migration.
#pragma once

#include "db/file/connection.h"

#include <functional>
#include <string>
#include <string_view>

namespace nestor {

inline constexpr int kSchemaVersion = 6;

/// Texts of tuning_db/*.sql, compiled in.
extern const std::string_view kSchemaSql;
extern const std::string_view kIndexSql;  ///< indices that files of the current version may lack: they only make look-ups fast
extern const std::string_view kMigrationSql1To2;
extern const std::string_view kMigrationSql2To3;
extern const std::string_view kMigrationSql3To4;
extern const std::string_view kMigrationSql4To5;
extern const std::string_view kMigrationSql5To6;

/// Makes the file a tuning database of the current version: creates the schema in an empty file, and migrates an older one. On files from
/// before version 5 it calls `seal` in the same transaction, to fill in what SQL cannot compute. Safe when several processes do it at once; foreign keys must not be enforced meanwhile. Throws UserError for a newer version and for another program's database.
void prepare_schema(Connection& connection, const std::string& path, const std::function<void()>& seal);

/// Checks that the file is a tuning database of the current version. Throws UserError otherwise.
void require_schema(Connection& connection, const std::string& path);

}  // namespace nestor
