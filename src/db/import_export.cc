// Database: text records in and out, with the kernels' code in their lines or in a pack beside them.
#include "db/database.h"
#include "db/file_checks.h"
#include "db/import.h"
#include "db/records/kernel_pack.h"
#include "db/records/record_reader.h"
#include "db/stores.h"
#include "support/error.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <ostream>
#include <set>

namespace nestor {
namespace {

namespace fs = std::filesystem;

// In an order that depends on contents alone: the ids of two files differ.
constexpr std::string_view kExportOrder =
    "SELECT t.id, t.status, t.problem_id, d.key FROM trial t JOIN device d ON d.id = t.device_id JOIN problem p ON p.id = "
    "t.problem_id"
    " JOIN nest n ON n.id = p.nest_id LEFT JOIN kernel k ON k.id = t.kernel_id"
    " ORDER BY p.op, p.variant, n.digest, p.sizes, d.key, d.name, d.details, t.created, t.status, t.median_ms, t.samples, "
    "t.steps, k.hash, t.id";

constexpr std::string_view kWinnerOrder =
    "SELECT t.id, p.id, d.key FROM trial t JOIN device d ON d.id = t.device_id JOIN problem p ON p.id = t.problem_id JOIN nest n "
    "ON n.id = p.nest_id"
    " JOIN kernel k ON k.id = t.kernel_id LEFT JOIN pin ON pin.trial_id = t.id WHERE t.status = 'ok' AND served(t.checked, "
    "t.signer, t.seal)"
    " ORDER BY p.op, p.variant, n.digest, p.sizes, d.key, pin.trial_id IS NULL, ? AND EXISTS (SELECT 1 FROM json_each(CASE WHEN "
    "json_valid(t.report) THEN t.report ELSE '{}' END, '$.kernels') WHERE json_extract(value, '$.local_bytes') > 0), "
    "t.median_ms, t.id";

std::vector<std::int64_t> ids_to_export(Store& store, Database::Exported which) {
  std::vector<std::int64_t> ids;
  std::set<std::pair<std::int64_t, std::string>> served;
  const bool all = which == Database::Exported::all;
  const std::int64_t in_registers = which == Database::Exported::winners_in_registers ? 1 : 0;
  Connection& connection = store.connection();
  auto row = all ? connection.query(kExportOrder) : connection.query(kWinnerOrder, in_registers);
  while (row.step()) {
    if (!all && !served.emplace(row.integer(1), row.text(2)).second) continue;
    ids.push_back(row.integer(0));
  }
  return ids;
}

// Each exported record with its kernel. Those whose kernel is damaged are warned of and left out.
void for_each_exported(Stores& stores, Database::Exported which, const std::function<void(const Record&)>& take) {
  Store& store = stores.user;
  guarded(store.path(), [&] {
    for (const std::int64_t id : ids_to_export(store, which)) {
      std::optional<Record> record;
      try {
        record = store.read(id, true);
      } catch (const UserError& error) {
        stores.warn(fmt::format("{}; trial {} is skipped", error.what(), id));
      }
      if (record) take(*record);  // another process may have pruned it meanwhile
    }
  });
}

/// A file that gets its name when it is complete, so that a failed export leaves what was there. Pipes and devices are written directly.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path) {
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    target_ = fs::is_regular_file(status) ? fs::canonical(path) : fs::path(path);
    direct_ = fs::exists(status) && !fs::is_regular_file(status);
    written_ = direct_ ? target_ : fs::path(fmt::format("{}.{}.part", target_.string(), ::getpid()));
    out.open(written_, std::ios::binary);
    if (!out) user_error("cannot write {}", path_);
  }
  ~NewFile() {
    std::error_code ignored;
    if (!direct_ && !complete_) fs::remove(written_, ignored);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void close() {
    out.close();
    if (!out) user_error("writing {} failed: is the disk full?", path_);
  }
  void rename() {
    std::error_code failure;
    if (!direct_) sync_file(written_);
    if (!direct_) fs::rename(written_, target_, failure);
    if (failure) user_error("cannot write {}: {}", path_, failure.message());
    complete_ = true;
  }

  std::ofstream out;

 private:
  std::string path_;
  fs::path target_, written_;
  bool direct_ = false, complete_ = false;
};

/// Writes lines that share nests and leave their kernels to a pack; returns the pack's index, in the order of the lines.
std::vector<PackedKernel> write_packed_lines(Stores& stores, Database::Exported which, std::ostream& out) {
  std::vector<PackedKernel> kernels;
  std::set<std::string> nests, packed;
  for_each_exported(stores, which, [&](const Record& record) {
    const std::string& digest = record.problem.nest_digest;
    if (nests.insert(digest).second) out << nest_to_line(digest, record.nest_json) << '\n';
    const auto& kernel = record.trial.kernel;
    if (kernel && packed.insert(kernel->hash).second) kernels.push_back({kernel->hash, kernel->code.size()});
    out << record_to_packed_line(record) << '\n';
  });
  return kernels;
}

void write_pack(Store& store, const std::vector<PackedKernel>& kernels, std::ostream& out) {
  PackWriter writer(out, kernels);
  for (const PackedKernel& kernel : kernels) writer.add(store.code_of(kernel.hash));
  writer.finish();
}

struct NumberedRecord {
  Record record;
  std::int64_t line = 0;
  /// Its kernel's code is in a pack.
  bool packed() const { return record.trial.kernel && record.trial.kernel->code.empty(); }
};

std::vector<NumberedRecord> read_records(std::istream& in) {
  std::vector<NumberedRecord> records;
  RecordReader reader(in);
  while (auto record = reader.next()) records.push_back({std::move(*record), reader.line()});
  return records;
}

using KernelUsers = std::map<std::string, std::vector<NumberedRecord*>>;

/// Records whose code the pack must have, by the kernel's hash.
KernelUsers users_of(std::vector<NumberedRecord>& records, const PackReader& pack, const std::string& path) {
  std::set<std::string> there;
  for (const PackedKernel& kernel : pack.kernels()) there.insert(kernel.hash);
  KernelUsers users;
  for (NumberedRecord& entry : records) {
    if (!entry.packed()) continue;
    const std::string& hash = entry.record.trial.kernel->hash;
    if (there.count(hash) == 0)
      user_error("line {}: {} has no code of kernel {}: take both files from the same export", entry.line, path, hash);
    users[hash].push_back(&entry);
  }
  return users;
}

/// Compares all hashes, and stores the kernels of records that are not there yet (within a transaction).
void store_kernels(Store& store, std::vector<NumberedRecord>& records, PackReader& pack, const std::string& path) {
  const KernelUsers users = users_of(records, pack, path);
  for (const PackedKernel& packed : pack.kernels()) {
    const auto found = users.find(packed.hash);
    const std::string code = pack.next(found != users.end());
    if (found == users.end()) continue;
    for (NumberedRecord* user : found->second) {
      KernelRecord& known = *user->record.trial.kernel;
      const std::string given = kernel_hash(code, known.recipe);
      if (!is_hash_of(known.hash, code, known.recipe))
        user_error("line {}: the kernel's hash is {}, but its recipe and the code in {} give {}", user->line, known.hash, path,
                   given);
      known.hash = given;
      if (store.find(user->record)) continue;
      KernelRecord kernel = known;
      kernel.code = code;
      store.kernel_id(kernel);
    }
  }
  pack.finish();
}

Database::Imported store_records(Store& store, std::vector<NumberedRecord>& records) {
  Database::Imported imported;
  for (NumberedRecord& entry : records) store_record(store, entry.record, fmt::format("line {}", entry.line), imported);
  return imported;
}

const NumberedRecord* first_packed(const std::vector<NumberedRecord>& records) {
  const auto found = std::find_if(records.begin(), records.end(), [](const NumberedRecord& entry) { return entry.packed(); });
  return found == records.end() ? nullptr : &*found;
}

std::unique_ptr<PackReader> open_pack(const NumberedRecord& user, const std::string& path) {
  try {
    return std::make_unique<PackReader>(path);
  } catch (const UserError& error) {
    user_error("line {}: the code of its kernel is in a pack, but {}", user.line, error.what());
  }
}

Database::Imported import_from(Store& store, std::istream& in, const std::string& pack) {
  std::vector<NumberedRecord> records = read_records(in);
  const NumberedRecord* packed = first_packed(records);
  if (packed != nullptr && pack.empty())
    user_error("line {}: the code of its kernel is in a pack beside the file: import the file by its name", packed->line);
  const std::unique_ptr<PackReader> reader = packed == nullptr ? nullptr : open_pack(*packed, pack);
  return guarded(store.path(), [&] {
    return store.in_transaction([&] {
      if (reader) store_kernels(store, records, *reader, pack);
      return store_records(store, records);
    });
  });
}

}  // namespace

void store_record(Store& store, Record& record, const std::string& where, Database::Imported& imported) {
  // A signature that is there must be right. What comes with Nestor gets the own one, so that it stays trusted when it is shipped no more.
  Signature& signature = record.trial.signature;
  const std::string seal = seal_of(record);
  if (!signature.empty() && !is_signed(seal, signature.signer, signature.value))
    user_error("{}: the record's signature is not one of the key {}: it was altered after it was signed", where,
               signature.signer);
  if (signature.empty() && store.trust().vouched(seal, signature)) signature = store.trust().sign(seal);
  if (const auto known = store.find(record)) {
    imported.checked += store.take_over(*known, record) ? 1 : 0;
    return;
  }
  store.insert(record);
  ++imported.added;
}

void Database::export_records(std::ostream& out, Exported which) const {
  for_each_exported(*stores_, which, [&](const Record& record) { out << record_to_line(record) << '\n'; });
  out.flush();
  if (!out) user_error("writing the records of {} failed", stores_->user.path());
}

void Database::export_file(const std::string& path, Exported which, CodePlace code) const {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  // Nothing lies beside a pipe.
  if (code == CodePlace::record || (fs::exists(status) && !fs::is_regular_file(status))) {
    NewFile lines(path);
    for_each_exported(*stores_, which, [&](const Record& record) { lines.out << record_to_line(record) << '\n'; });
    lines.close();
    return lines.rename();
  }
  const std::string pack_name = pack_path(path);
  NewFile lines(path);
  const std::vector<PackedKernel> kernels = write_packed_lines(*stores_, which, lines.out);
  lines.close();
  if (!kernels.empty()) {
    NewFile pack(pack_name);
    guarded(stores_->user.path(), [&] { write_pack(stores_->user, kernels, pack.out); });
    pack.close();
    pack.rename();
  }
  lines.rename();
}

Database::Imported Database::import_records(std::istream& in) {
  stores_->require_writable("import records");
  return import_from(stores_->user, in, "");
}

Database::Imported Database::import_file(const std::string& path) {
  stores_->require_writable("import records");
  std::ifstream in(path, std::ios::binary);
  if (!in) user_error("cannot read {}", path);
  try {
    return import_from(stores_->user, in, pack_path(path));
  } catch (const UserError& error) {
    user_error("{}: {}", path, error.what());
  }
}

}  // namespace nestor
