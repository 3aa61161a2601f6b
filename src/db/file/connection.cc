// Statement cache, and SQLite's result codes in words.
#include "db/file/connection.h"

#include "support/error.h"

#include <sqlite3.h>
#include <sys/resource.h>

#include <optional>

namespace nestor {

Connection::Connection(const std::string& name, int flags, int busy_timeout_ms) : database_(name, flags, busy_timeout_ms) {}

Connection::Query::Query(Prepared& prepared) : prepared_(&prepared) {
  if (prepared.used) internal_error("database statement used twice at once: {}", prepared.statement.getQuery());
  prepared.used = true;
}

Connection::Query::~Query() {
  if (prepared_ == nullptr) return;
  prepared_->statement.tryReset();  // its result repeats the failure of the last step
  prepared_->statement.clearBindings();
  prepared_->used = false;
}

void Connection::Query::bind(int index, Blob value) {
  prepared_->statement.bind(index, static_cast<const void*>(value.bytes.data()), static_cast<int>(value.bytes.size()));
}

Connection::Prepared& Connection::prepared(std::string_view sql) {
  auto& slot = prepared_[sql];
  if (!slot) slot = std::make_unique<Prepared>(SQLite::Statement(database_, std::string(sql)));
  return *slot;
}

namespace {

/// The limit on the size of files that a failed write may have met, in bytes.
std::optional<std::uint64_t> limit_met_by(int extended_code) {
  const bool writes = extended_code == SQLITE_IOERR_WRITE || extended_code == SQLITE_IOERR_TRUNCATE ||
                      extended_code == SQLITE_IOERR_SHMSIZE || extended_code == SQLITE_IOERR_FSYNC;
  rlimit limit{};
  if (!writes || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

void throw_database_error(const SQLite::Exception& error, const std::string& path) {
  switch (error.getErrorCode() & 0xff) {
    case SQLITE_NOTADB:
      user_error("{} is not a tuning database: it is no SQLite file, or its first page is damaged", path);
    case SQLITE_CORRUPT:
      user_error("the tuning database {} is damaged ({}): restore a copy, or move it away and start a new one", path,
                 error.what());
    case SQLITE_FULL:
      user_error("the tuning database {} cannot grow: the disk (or the limit set for it) is full; what was stored before is kept",
                 path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
      user_error("the tuning database {} is read-only", path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      user_error("the tuning database {} is locked by another process for too long: try again when it is done", path);
    case SQLITE_CANTOPEN:
      user_error("the tuning database {} cannot be opened: {}", path, error.what());
    case SQLITE_IOERR:
      if (const auto limit = limit_met_by(error.getExtendedErrorCode()))
        user_error(
            "the tuning database {} cannot grow: this process may write files of {} bytes at most (ulimit -f); what was stored "
            "before is kept",
            path, *limit);
      user_error("reading or writing the tuning database {} failed: {}", path, error.what());
    case SQLITE_TOOBIG:
      user_error("the tuning database {} cannot store a record of this size: {}", path, error.what());
    default:
      internal_error("SQLite error {} on the tuning database {}: {}", error.getExtendedErrorCode(), path, error.what());
  }
}

}  // namespace nestor
