// Rows that many trials share: devices, nests, problems, kernels and certificates. One damaged bit there must not cost all of them, so that
// whoever stores such a row compares the one that is there, and writes it anew where it contradicts its own key, seal or hash.
#include "db/records/encoding.h"
#include "db/store.h"
#include "db/trust/sealing.h"
#include "support/error.h"
#include "support/system/json_text.h"

namespace nestor {
namespace {

/// The constraints on sizes, which the row of a kernel repeats. Throws UserError where the recipe has none.
std::string valid_of(const std::string& recipe) {
  const nlohmann::json json = json_from_text(recipe, "the launch recipe");
  if (!json.is_object() || !json.contains("valid")) user_error("the launch recipe does not say for which sizes it is valid");
  return json.at("valid").dump();
}

}  // namespace

std::int64_t Store::device_id(const DeviceIdentity& device) {
  const std::string key = device.key();
  connection_.run(
      "UPDATE OR IGNORE device SET key = ?1 WHERE key != ?1 AND kind = ?2 AND name = ?3 AND arch = ?4 AND units = ?5 AND details "
      "= ?6",
      key, device.kind, device.name, device.arch, std::int64_t{device.units}, device.details);
  connection_.run(
      "INSERT INTO device (key, kind, name, arch, units, details) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET"
      " kind = ?2, arch = ?4, units = ?5 WHERE kind != ?2 OR arch != ?4 OR units != ?5",
      key, device.kind, device.name, device.arch, std::int64_t{device.units}, device.details);
  auto row =
      connection_.query("SELECT id FROM device WHERE key = ? AND name = ? AND details = ?", key, device.name, device.details);
  row.step();
  return row.integer(0);
}

std::int64_t Store::nest_id(const std::string& digest, const std::string& json) {
  connection_.run("INSERT INTO nest (digest, json, seal) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", digest, json,
                  nest_seal(digest, json));
  // Another text of the nest is no damage.
  if (!nest_is_sound(digest)) store_nest(digest, json);
  auto row = connection_.query("SELECT id FROM nest WHERE digest = ?", digest);
  row.step();
  return row.integer(0);
}

bool Store::nest_is_sound(const std::string& digest) {
  auto row = connection_.query("SELECT json, seal FROM nest WHERE digest = ?", digest);
  return row.step() && row.text(1) == nest_seal(digest, row.text(0));
}

void Store::store_nest(const std::string& digest, const std::string& json) {
  connection_.run("UPDATE nest SET json = ?, seal = ? WHERE digest = ?", json, nest_seal(digest, json), digest);
}

Sizes Store::sizes_of(std::int64_t problem_id) {
  Sizes sizes;
  auto row = connection_.query("SELECT name, value FROM problem_size WHERE problem_id = ?", problem_id);
  while (row.step()) sizes[row.text(0)] = row.integer(1);
  return sizes;
}

std::int64_t Store::problem_id(const ProblemKey& problem, const std::string& nest_json) {
  const std::int64_t nest = nest_id(problem.nest_digest, nest_json);
  const std::string sizes = canonical_sizes(problem.sizes);
  connection_.run("INSERT INTO problem (op, variant, sizes, nest_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", problem.op,
                  problem.variant, sizes, nest);
  std::int64_t id = 0;
  {
    auto row = connection_.query("SELECT id FROM problem WHERE op = ? AND variant = ? AND sizes = ? AND nest_id = ?", problem.op,
                                 problem.variant, sizes, nest);
    row.step();
    id = row.integer(0);
  }
  if (sizes_of(id) == problem.sizes) return id;
  connection_.run("DELETE FROM problem_size WHERE problem_id = ?", id);
  for (const auto& [name, value] : problem.sizes)
    connection_.run("INSERT INTO problem_size (problem_id, name, value) VALUES (?, ?, ?)", id, name, value);
  return id;
}

std::int64_t Store::kernel_id(const KernelRecord& kernel) {
  const auto known = [&]() -> std::optional<std::int64_t> {
    auto row = connection_.query("SELECT id FROM kernel WHERE hash = ? AND architecture = ?", kernel.hash, kernel.architecture);
    return row.step() ? std::optional(row.integer(0)) : std::nullopt;
  };
  const std::optional<std::int64_t> id = known();
  if (id && (kernel.code.empty() || kernel_is_sound(*id))) return *id;
  if (kernel.code.empty()) internal_error("kernel {} is stored without its code", kernel.hash);
  connection_.run(
      "INSERT INTO kernel (hash, architecture, valid, recipe, code) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET valid "
      "= ?3, recipe = ?4, code = ?5",
      kernel.hash, kernel.architecture, valid_of(kernel.recipe), kernel.recipe, Blob{zstd_compress(kernel.code)});
  const std::optional<std::int64_t> stored = known();
  if (!stored) user_error("{} is damaged: a kernel that was just stored is not there", path_);
  return *stored;
}

bool Store::kernel_is_sound(std::int64_t kernel_id) {
  try {
    kernel(kernel_id);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

KernelRecord Store::kernel(std::int64_t kernel_id) {
  auto row = connection_.query("SELECT architecture, recipe, hash, code, valid FROM kernel WHERE id = ?", kernel_id);
  if (!row.step()) user_error("{}: kernel {} is missing", path_, kernel_id);
  const auto damaged = [&](const std::string& how) { user_error("{}: kernel {} is damaged: {}", path_, kernel_id, how); };
  KernelRecord kernel{row.text(0), "", row.text(1), row.text(2)};
  try {
    kernel.code = zstd_decompress(row.text(3));
  } catch (const UserError& error) {
    damaged(error.what());
  }
  if (kernel_hash(kernel.code, kernel.recipe) != kernel.hash) damaged("its hash does not match its contents");
  require_shallow(kernel.recipe, "the launch recipe");
  std::string valid;
  try {
    valid = valid_of(kernel.recipe);
  } catch (const UserError& error) {
    damaged(error.what());
  }
  if (row.text(4) != valid) damaged("its sizes are not those of its recipe");
  return kernel;
}

std::string Store::code_of(const std::string& hash) {
  auto row = connection_.query("SELECT id FROM kernel WHERE hash = ? ORDER BY id LIMIT 1", hash);
  if (!row.step()) user_error("{}: kernel {} was removed meanwhile: try again", path_, hash);
  return kernel(row.integer(0)).code;
}

void Store::keep_certificate(const CertificateRecord& certificate) {
  if (certificate.text.empty()) return;
  connection_.run(
      "INSERT INTO certificate (digest, text) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET text = ?2 WHERE text IS NOT ?2",
      certificate.digest, Blob{zstd_compress(certificate.text)});
}

std::string Store::certificate_text(const std::string& digest) {
  auto row = connection_.query("SELECT text FROM certificate WHERE digest = ?", digest);
  if (!row.step()) return "";
  const std::string text = zstd_decompress(row.text(0));
  if (certificate_digest(text) != digest) user_error("the text of its certificate {} is not what was stored", digest);
  require_shallow(text, "a certificate");
  return text;
}

void Store::mend_shared_rows(const Record& record) {
  device_id(record.device);
  problem_id(record.problem, record.nest_json);
  if (record.trial.kernel && !record.trial.kernel->code.empty()) kernel_id(*record.trial.kernel);
}

}  // namespace nestor
