// The text of a schema, compared by what it says.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <map>
#include <string>
#include <string_view>

namespace nestor {

/// A CREATE statement without comments, spaces that mean nothing, and the quotes of its first name; the parts between its outer brackets in
/// order of the alphabet. So a table equals one that got its columns by migrations.
std::string plain_statement(std::string_view sql);

/// plain_statement() of every table and index that has a statement, by "table NAME" and "index NAME"; SQLite's own are left out.
std::map<std::string, std::string> schema_statements(SQLite::Database& raw);

}  // namespace nestor
