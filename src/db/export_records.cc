// Database: records written as text, with the kernels' code in their lines or in a pack beside them.
#include "db/database.h"
#include "db/import.h"
#include "db/lookup.h"
#include "db/records/kernel_pack.h"
#include "db/stores.h"
#include "support/error.h"
#include "support/system/new_file.h"

#include <filesystem>
#include <functional>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

namespace nestor {
namespace {

namespace fs = std::filesystem;

// In an order that depends on contents alone: the ids of two files differ.
constexpr std::string_view kExportOrder =
    "SELECT t.id FROM trial t LEFT JOIN device d ON d.id = t.device_id LEFT JOIN problem p ON p.id = t.problem_id"
    " LEFT JOIN nest n ON n.id = p.nest_id LEFT JOIN kernel k ON k.id = t.kernel_id"
    " ORDER BY p.op, p.variant, n.digest, p.sizes, d.key, d.name, d.details, t.created, t.status, t.median_ms, t.samples, "
    "t.steps, k.hash, k.architecture, t.toolchain, t.reason, t.id";

constexpr std::string_view kWinnerOrder =
    "SELECT t.id, p.id, d.kind, d.name, d.arch, d.units, d.details FROM trial t JOIN device d ON d.id = t.device_id JOIN problem "
    "p ON p.id = t.problem_id JOIN nest n "
    "ON n.id = p.nest_id"
    " JOIN kernel k ON k.id = t.kernel_id LEFT JOIN pin ON pin.trial_id = t.id WHERE t.status = 'ok' AND served(t.checked, "
    "d.kind, "
    "t.signer, t.seal)"
    " ORDER BY p.op, p.variant, n.digest, p.sizes, d.key, d.name, d.details, pin.trial_id IS NULL, ? AND EXISTS (SELECT 1 FROM "
    "json_each(CASE WHEN "
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
    if (!all) {
      const DeviceIdentity device{row.text(2), row.text(3), row.text(4), static_cast<int>(row.integer(5)), row.text(6)};
      if (!served.emplace(row.integer(1), identity_text(device)).second) continue;
    }
    ids.push_back(row.integer(0));
  }
  return ids;
}

using Selected = std::set<std::string>;

std::string selected_text(const std::string& op, const std::string& variant, const std::string& digest,
                          const std::string& sizes) {
  return fmt::format("{}\n{}\n{}\n{}", op, variant, digest, sizes);
}

/// What of a file is exported.
struct Selection {
  Database::Exported which = Database::Exported::all;
  const Selected* problems = nullptr;  ///< null: all

  std::vector<std::int64_t> ids(Store& store) const {
    std::vector<std::int64_t> found = ids_to_export(store, which);
    if (problems == nullptr) return found;
    std::set<std::int64_t> wanted;
    auto row = store.connection().query(
        "SELECT t.id, p.op, p.variant, n.digest, p.sizes FROM trial t JOIN problem p ON p.id = t.problem_id JOIN nest n ON n.id "
        "= "
        "p.nest_id");
    while (row.step()) {
      if (problems->contains(selected_text(row.text(1), row.text(2), row.text(3), row.text(4)))) wanted.insert(row.integer(0));
    }
    std::erase_if(found, [&](std::int64_t id) { return !wanted.contains(id); });
    return found;
  }
};

// Each exported record with its kernel. Those whose kernel is damaged are warned of and left out.
void for_each_exported(Stores& stores, const Selection& which, const std::function<void(const Record&)>& take) {
  Store& store = stores.user;
  guarded(store.path(), [&] {
    for (const std::int64_t id : which.ids(store)) {
      std::optional<Record> record;
      try {
        record = store.read(id, true);
        if (record) require_own_signature(*record, fmt::format("{}: trial {}", store.path(), id));
      } catch (const UserError& error) {
        stores.warn(fmt::format("{}; trial {} is skipped", error.what(), id));
        continue;
      }
      if (record) take(*record);  // another process may have pruned it meanwhile
    }
  });
}

/// Writes lines that share nests and leave their kernels to a pack; returns the pack's index, in the order of the lines.
std::vector<PackedKernel> write_packed_lines(Stores& stores, const Selection& which, std::ostream& out) {
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

/// Kernels of the pack that is there, beside its lines, which `kernels` does not have. A damaged pack has none worth keeping.
std::vector<PackedKernel> older_kernels(const std::string& lines, const std::string& pack,
                                        const std::vector<PackedKernel>& kernels) {
  std::error_code ignored;
  if (!fs::exists(lines, ignored) || !fs::exists(pack, ignored)) return {};
  std::set<std::string> ours;
  for (const PackedKernel& kernel : kernels) ours.insert(kernel.hash);
  try {
    std::vector<PackedKernel> older = PackReader(pack).kernels();
    std::erase_if(older, [&](const PackedKernel& kernel) { return ours.contains(kernel.hash); });
    return older;
  } catch (const UserError&) {
    return {};
  }
}

/// Puts a pack in place: kernels of the store, then those that only the pack before it has.
void write_pack(Store& store, const std::vector<PackedKernel>& kernels, const std::vector<PackedKernel>& older,
                const std::string& path) {
  std::vector<PackedKernel> all = kernels;
  all.insert(all.end(), older.begin(), older.end());
  NewFile pack(path);
  guarded(store.path(), [&] {
    PackWriter writer(pack.out, all);
    for (const PackedKernel& kernel : kernels) writer.add(store.code_of(kernel.hash));
    if (!older.empty()) {
      std::set<std::string> wanted;
      for (const PackedKernel& kernel : older) wanted.insert(kernel.hash);
      PackReader reader(path);
      for (const PackedKernel& kernel : reader.kernels()) {
        const std::string code = reader.next(wanted.contains(kernel.hash));
        if (!code.empty()) writer.add(code);
      }
      reader.finish();
    }
    writer.finish();
  });
  pack.close();
  pack.rename();
}

/// The lines get their name between two packs: the first has the kernels of the older lines as well. So whoever reads, and whatever a
/// crash leaves, finds a pack with all that the lines need.
void put_in_place(Store& store, NewFile& lines, const std::string& path, const std::vector<PackedKernel>& kernels) {
  const std::string pack = pack_path(path);
  std::vector<PackedKernel> older = older_kernels(path, pack, kernels);
  if (!older.empty()) {
    try {
      write_pack(store, kernels, older, pack);
    } catch (const UserError&) {
      older.clear();  // what was there is damaged, or both are too much for one pack
    }
  }
  if (older.empty()) write_pack(store, kernels, {}, pack);
  lines.rename();
  if (!older.empty()) write_pack(store, kernels, {}, pack);
}

void write_packed_file(Stores& stores, const std::string& path, const Selection& which) {
  static_cast<void>(pack_path(path));  // refuses a wrong name before anything is written
  NewFile lines(path);
  const std::vector<PackedKernel> kernels = write_packed_lines(stores, which, lines.out);
  lines.close();
  kernels.empty() ? lines.rename() : put_in_place(stores.user, lines, path, kernels);
}

}  // namespace

void Database::export_records(std::ostream& out, Exported which) const {
  for_each_exported(*stores_, {which}, [&](const Record& record) { out << record_to_line(record) << '\n'; });
  out.flush();
  if (!out) user_error("writing the records of {} failed", stores_->user.path());
}

void Database::export_file(const std::string& path, Exported which, CodePlace code) const {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  // Nothing lies beside a pipe.
  if (code == CodePlace::record || (fs::exists(status) && !fs::is_regular_file(status))) {
    NewFile lines(path);
    for_each_exported(*stores_, {which}, [&](const Record& record) { lines.out << record_to_line(record) << '\n'; });
    lines.close();
    return lines.rename();
  }
  write_packed_file(*stores_, path, {which});
}

void Database::export_problems(const std::string& path, const std::vector<ProblemKey>& problems) const {
  Selected selected;
  for (const ProblemKey& problem : problems)
    selected.insert(selected_text(problem.op, problem.variant, problem.nest_digest, canonical_sizes(problem.sizes)));
  write_packed_file(*stores_, path, {Exported::all, &selected});
}

}  // namespace nestor
