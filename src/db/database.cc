// Database: opening, adding and looking up.
#include "db/database.h"

#include "db/stores.h"
#include "support/error.h"
#include "support/words/printable.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

namespace nestor {
namespace {

void warn_on_stderr(const std::string& message) {
  std::fprintf(stderr, "nestor: warning: %s\n", printable(message, true).c_str());
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void require_positive(const Sizes& sizes) {
  for (const auto& [name, value] : sizes) {
    if (value <= 0) user_error("size {} is {}; sizes are positive", name, value);
  }
}

/// A measurement took seconds: it is not given up because another process holds the file for some minutes.
template <class Change>
std::int64_t patiently(Stores& stores, Change&& change) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(stores.patience_s);
  for (bool told = false;;) {
    try {
      return change();
    } catch (const SQLite::Exception& error) {
      const bool busy = (error.getErrorCode() & 0xff) == 5;  // SQLITE_BUSY
      if (!busy || std::chrono::steady_clock::now() >= deadline) throw_database_error(error, stores.user.path());
    }
    if (!std::exchange(told, true))
      stores.warn(fmt::format("the tuning database {} is held by another process: waiting for it, {} s at most",
                              stores.user.path(), stores.patience_s));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

std::string_view to_string(MatchKind kind) {
  static constexpr std::array<std::string_view, 4> kNames{"exact", "nearest", "other device", "none"};
  return kNames[static_cast<std::size_t>(kind)];
}

Database::Database(std::unique_ptr<Stores> stores) : stores_(std::move(stores)) {}
Database::~Database() = default;
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;

std::string Database::default_path() {
  std::string path = default_path_if_any();
  if (path.empty()) user_error("no place for the tuning database: set $NESTOR_DB, $XDG_DATA_HOME or $HOME");
  return path;
}

std::string Database::default_path_if_any() {
  if (std::string path = environment("NESTOR_DB"); !path.empty()) return path;
  if (const std::string data = environment("XDG_DATA_HOME"); !data.empty()) return data + "/nestor/tuning.db";
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.local/share/nestor/tuning.db";
}

std::string Database::default_system_path() {
  if (std::string path = environment("NESTOR_SYSTEM_DB"); !path.empty()) return path;
  for (const char* path : {"/usr/local/share/nestor/tuning.db", "/usr/share/nestor/tuning.db"}) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return "";
}

Database Database::open(const std::string& path, const DatabaseOptions& options) {
  // Only the default place is made on demand: elsewhere a folder that does not exist is more likely a slip of the pen.
  if (!options.read_only && !path.empty() && environment("NESTOR_DB") != path && path == default_path_if_any()) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  }
  const Warn warn = options.warn ? options.warn : warn_on_stderr;
  const TrustOptions wanted{
      .folder = options.key_folder, .allow_unsigned = options.allow_unsigned, .make_key = !options.read_only};
  const auto trust = std::make_shared<Trust>(Trust::load(wanted, warn));
  std::optional<Store> system;
  if (!options.system_path.empty()) {
    DatabaseOptions below = options;
    below.read_only = true;
    system.emplace(options.system_path, below, trust);
  }
  return Database(std::make_unique<Stores>(Stores{Store(path, options, trust), std::move(system), warn, options.patience_s}));
}

std::int64_t Database::add_trial(const DeviceIdentity& device, const ProblemKey& problem, const std::string& nest_json,
                                 const TrialRecord& trial) {
  stores_->require_writable("add a trial");
  Record record{device, problem, nest_json, trial, false};
  normalise(record);
  record.trial.signature = stores_->user.trust().sign(seal_of(record));
  return patiently(*stores_, [&] { return stores_->user.in_transaction([&] { return stores_->user.insert(record); }); });
}

std::vector<TrialRecord> Database::trials(const DeviceIdentity& device, const ProblemKey& problem) const {
  std::vector<TrialRecord> found;
  const auto collect = [&](Store& store, std::int64_t sign) {
    guarded(store.path(), [&] {
      for (const std::int64_t id : store.trials(device, problem)) {
        try {
          Record record = store.read_listed(id, false);
          record.trial.id = sign * id;
          record.trial.own_device = is_same_device(device, record.device);
          found.push_back(std::move(record.trial));
        } catch (const UserError& error) {
          stores_->warn(fmt::format("{}; trial {} is skipped", error.what(), id));
        }
      }
    });
  };
  collect(stores_->user, 1);
  if (stores_->system) collect(*stores_->system, -1);
  std::stable_sort(found.begin(), found.end(), [](const TrialRecord& a, const TrialRecord& b) { return a.created < b.created; });
  return found;
}

std::optional<TrialRecord> Database::trial(std::int64_t id, bool with_kernel) const {
  const auto place = stores_->place_of(id);
  if (!place) return std::nullopt;
  std::optional<Record> record = guarded(place->store.path(), [&] { return place->store.read(place->id, with_kernel); });
  if (!record) return std::nullopt;
  record->trial.id = id;
  return std::move(record->trial);
}

std::optional<Database::Origin> Database::origin(std::int64_t trial_id) const {
  const auto place = stores_->place_of(trial_id);
  if (!place) return std::nullopt;
  const std::optional<Record> record = guarded(place->store.path(), [&] { return place->store.read(place->id, false); });
  if (!record) return std::nullopt;
  return Origin{record->device, record->problem, record->nest_json};
}

std::optional<TrialRecord> Database::best(const DeviceIdentity& device, const ProblemKey& problem, Kernels kernels) const {
  const auto find = [&](Store& store, bool own) -> std::optional<Answer> {
    const bool unchecked_too = kernels == Kernels::unchecked_too;
    for (const std::int64_t id : store.winners(device, problem, unchecked_too)) {
      try {
        Record record = store.read_listed(id, true);
        record.trial.own_device = is_same_device(device, record.device);
        if (record.trial.own_device != own) continue;
        if (!unchecked_too) require_trusted(record, store.path());
        return Answer{0, std::move(record)};
      } catch (const UserError& error) {
        stores_->warn(fmt::format("{}; trial {} is skipped", error.what(), id));
      }
    }
    return std::nullopt;
  };
  for (const bool own : {true, false}) {
    std::optional<Answer> answer = stores_->ask_both([&](Store& store) { return find(store, own); });
    if (answer) return std::move(answer->record.trial);
  }
  return std::nullopt;
}

Match Database::query(const DeviceIdentity& device, const std::string& op, const std::string& variant,
                      const std::string& nest_digest, const Sizes& sizes, const TryKernel& loads) const {
  require_positive(sizes);
  std::vector<std::string> passed_over;
  const Warn warn = [&](const std::string& message) {
    if (std::find(passed_over.begin(), passed_over.end(), message) != passed_over.end()) return;
    passed_over.push_back(message);
    stores_->warn(message);
  };
  Ask ask{&device, op, variant, nest_digest, sizes};
  if (loads) ask.loads = [&](const Record& record) { loads(record.trial); };
  const auto match = [&](MatchKind kind, Answer answer) {
    Record& record = answer.record;
    return Match{kind,
                 answer.distance,
                 std::move(record.problem),
                 std::move(record.device),
                 std::move(record.trial),
                 std::move(passed_over)};
  };
  if (auto answer = stores_->ask_both([&](Store& store) { return find_exact(store, ask, warn); })) {
    return match(MatchKind::exact, std::move(*answer));
  }
  for (const bool same_device : {true, false}) {
    auto answer = stores_->ask_both([&](Store& store) { return find_nearest(store, ask, same_device, warn); });
    if (answer) return match(same_device ? MatchKind::nearest : MatchKind::other_device, std::move(*answer));
  }
  return {};
}

}  // namespace nestor
