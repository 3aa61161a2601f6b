// Database: text records read, with the kernels' code in their lines or in a pack beside them.
#include "db/import.h"

#include "db/records/kernel_pack.h"
#include "db/records/record_reader.h"
#include "db/stores.h"
#include "support/error.h"
#include "support/words/printable.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

namespace nestor {
namespace {

/// What changes when a file is replaced.
std::tuple<std::uint64_t, std::int64_t, std::int64_t, std::int64_t> version_of(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
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

/// Compares all hashes, and stores the kernels that are not there yet, or are damaged (within a transaction).
void store_kernels(Store& store, std::vector<NumberedRecord>& records, PackReader& pack, const std::string& path) {
  const KernelUsers users = users_of(records, pack, path);
  for (const PackedKernel& packed : pack.kernels()) {
    const auto found = users.find(packed.hash);
    const std::string code = pack.next(found != users.end());
    if (found == users.end()) continue;
    std::set<std::string> stored;
    for (NumberedRecord* user : found->second) {
      KernelRecord& known = *user->record.trial.kernel;
      const std::string given = kernel_hash(code, known.recipe);
      if (!is_hash_of(known.hash, code, known.recipe))
        user_error("line {}: the kernel's hash is {}, but its recipe and the code in {} give {}", user->line, known.hash, path,
                   given);
      known.hash = given;
      if (!stored.insert(known.hash + known.architecture).second) continue;
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

void require_own_signature(const Record& record, const std::string& where) {
  const Signature& signature = record.trial.signature;
  if (signature.empty() || is_signed(seal_of(record), signature.signer, signature.value)) return;
  user_error("{}: the record's signature is not one of the key {}: it was altered after it was signed", where,
             printable(signature.signer));
}

void store_record(Store& store, Record& record, const std::string& where, Database::Imported& imported) {
  // A signature that is there must be right. What comes with Nestor gets the own one, so that it stays trusted when it is shipped no more.
  Signature& signature = record.trial.signature;
  const std::string seal = seal_of(record);
  require_own_signature(record, where);
  if (signature.empty() && store.trust().vouched(seal, signature)) signature = store.trust().sign(seal);
  store.take_over_nest(record);
  store.mend_shared_rows(record);
  if (const auto known = store.find(record)) {
    imported.checked += store.take_over(*known, record) ? 1 : 0;
    return;
  }
  store.insert(record);
  ++imported.added;
}

Database::Imported Database::import_records(std::istream& in) {
  stores_->require_writable("import records");
  return import_from(stores_->user, in, "");
}

Database::Imported Database::import_file(const std::string& path) {
  stores_->require_writable("import records");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) user_error("{} is a folder: name a file of records (FILE.jsonl)", path);
  constexpr int kMostTries = 5;
  for (int tries = 1;; ++tries) {
    const auto version = version_of(path);
    std::ifstream in(path, std::ios::binary);
    if (!in) user_error("cannot read {}", path);
    try {
      return import_from(stores_->user, in, pack_path(path));
    } catch (const UserError& error) {
      // An export may have replaced both files after these lines were read.
      if (tries < kMostTries && version != version_of(path)) continue;
      user_error("{}: {}", path, error.what());
    }
  }
}

}  // namespace nestor
