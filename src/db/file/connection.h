// One SQLite connection with its prepared statements, each prepared once.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace nestor {

/// Bytes to bind as a blob (strings bind as text).
struct Blob {
  std::string_view bytes;
};

class Connection {
  struct Prepared {
    SQLite::Statement statement;
    bool used = false;
  };

 public:
  /// `flags` as SQLite::Database takes them; `name` is a path or a file: URI.
  Connection(const std::string& name, int flags, int busy_timeout_ms);

  /// A prepared statement in use: reset, and free for the next use, at the end of its scope.
  class Query {
   public:
    explicit Query(Prepared& prepared);
    ~Query();
    Query(Query&& other) noexcept : prepared_(std::exchange(other.prepared_, nullptr)) {}

    bool step() { return prepared_->statement.executeStep(); }
    void run() { prepared_->statement.exec(); }
    std::int64_t integer(int column) const { return prepared_->statement.getColumn(column).getInt64(); }
    double real(int column) const { return prepared_->statement.getColumn(column).getDouble(); }
    /// Text or blob.
    std::string text(int column) const { return prepared_->statement.getColumn(column).getString(); }
    bool is_null(int column) const { return prepared_->statement.getColumn(column).isNull(); }

    void bind(int index, std::int64_t value) { prepared_->statement.bind(index, value); }
    void bind(int index, double value) { prepared_->statement.bind(index, value); }
    void bind(int index, std::string_view value) { prepared_->statement.bind(index, std::string(value)); }
    void bind(int index, Blob value);
    void bind(int index, std::nullptr_t) { prepared_->statement.bind(index); }

   private:
    Prepared* prepared_;
  };

  /// `sql` must live as long as the connection (a literal); `values` are bound in order.
  template <class... Values>
  Query query(std::string_view sql, const Values&... values) {
    Query query(prepared(sql));
    int index = 0;
    (query.bind(++index, values), ...);
    return query;
  }

  /// Runs a statement that returns nothing.
  template <class... Values>
  void run(std::string_view sql, const Values&... values) {
    query(sql, values...).run();
  }

  std::int64_t last_id() const { return database_.getLastInsertRowid(); }
  SQLite::Database& raw() { return database_; }

 private:
  Prepared& prepared(std::string_view sql);

  SQLite::Database database_;
  std::unordered_map<std::string_view, std::unique_ptr<Prepared>> prepared_;
};

/// Throws UserError (or InternalError) for a failure of SQLite on the file `path`.
[[noreturn]] void throw_database_error(const SQLite::Exception& error, const std::string& path);

/// Calls `function`; failures of SQLite become the errors above.
template <class Function>
auto guarded(const std::string& path, Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, path);
  }
}

}  // namespace nestor
