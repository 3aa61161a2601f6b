// Database: whole files copied and joined.
#include "db/database.h"
#include "db/import.h"
#include "db/stores.h"
#include "support/error.h"
#include "support/system/new_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace nestor {
namespace {

namespace fs = std::filesystem;

bool is_sqlite(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string head(16, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  return head == std::string("SQLite format 3\0", 16);
}

Database::Imported merge_database(Stores& stores, const std::string& path) {
  DatabaseOptions options;
  options.read_only = true;
  const auto trust = std::make_shared<Trust>(Trust::load({}, stores.warn));
  Store from(path, options, trust);
  Store& to = stores.user;
  std::vector<std::int64_t> ids;
  guarded(path, [&] {
    auto row = from.connection().query("SELECT id FROM trial ORDER BY id");
    while (row.step()) ids.push_back(row.integer(0));
  });
  return guarded(to.path(), [&] {
    return to.in_transaction([&] {
      Database::Imported imported;
      for (const std::int64_t id : ids) {
        std::optional<Record> record;
        try {
          record = guarded(path, [&] { return from.read(id, true); });
          if (record) normalise(*record);
          if (record) require_own_signature(*record, fmt::format("{}: trial {}", path, id));
        } catch (const UserError& error) {
          stores.warn(fmt::format("{}; trial {} of {} is left out", error.what(), id, path));
          continue;
        }
        if (record) store_record(to, *record, fmt::format("{}: trial {}", path, id), imported);
      }
      return imported;
    });
  });
}

}  // namespace

Database::Imported Database::merge_file(const std::string& path) {
  stores_->require_writable("merge records");
  std::error_code ignored;
  if (fs::equivalent(path, stores_->user.path(), ignored)) return {};
  if (!is_sqlite(path)) return import_file(path);
  return merge_database(*stores_, path);
}

void Database::backup(const std::string& path) const {
  Store& store = stores_->user;
  std::error_code failure;
  if (fs::equivalent(path, store.path(), failure)) user_error("{} is the database itself: name another file for its copy", path);
  if (fs::exists(path, failure) && !fs::is_regular_file(path, failure))
    user_error("{} is no place for a copy of a database", path);
  // A link stays, and the file that it names is replaced.
  const std::string target = fs::exists(path, failure) ? fs::canonical(path).string() : path;
  const std::string part = fmt::format("{}.{}.part", target, ::getpid());
  try {
    guarded(part, [&] {
      SQLite::Statement copy(store.connection().raw(), "VACUUM INTO ?");
      copy.bind(1, fs::absolute(part).string());
      copy.exec();
    });
  } catch (const UserError&) {
    fs::remove(part, failure);
    throw;
  }
  sync_file(part);
  std::error_code renamed;
  fs::rename(part, target, renamed);
  if (renamed) {
    fs::remove(part, failure);
    user_error("cannot write {}: {}", path, renamed.message());
  }
  sync_file(fs::absolute(target).parent_path());
}

}  // namespace nestor
