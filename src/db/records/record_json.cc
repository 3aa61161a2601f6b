// Text form of records: one JSON object a line, described in tuning_db/README.md.
#include "db/records/encoding.h"
#include "db/records/record.h"
#include "db/trust/blake2b.h"
#include "support/error.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace nestor {
namespace {

using nlohmann::json;

constexpr int kAloneFormat = 1;                              // each line has its nest and its code
constexpr int kPackedFormat = 2;                             // nests have lines of their own, code is in a pack
constexpr std::size_t kKeyBytes = 32, kSignatureBytes = 64;  // of Ed25519

json device_to_json(const DeviceIdentity& device) {
  return {{"kind", device.kind},
          {"name", device.name},
          {"arch", device.arch},
          {"units", device.units},
          {"details", json::parse(device.details)}};
}

json problem_to_json(const ProblemKey& problem) {
  return {{"op", problem.op}, {"variant", problem.variant}, {"nest_digest", problem.nest_digest}, {"sizes", problem.sizes}};
}

json kernel_to_json(const KernelRecord& kernel, int format) {
  json object = {{"architecture", kernel.architecture}, {"recipe", json::parse(kernel.recipe)}, {"hash", kernel.hash}};
  if (format == kAloneFormat) object["code"] = base64_encode(kernel.code);
  return object;
}

// An object with exactly these keys; those of `optional` may be missing.
void require_keys(const json& object, std::string_view what, std::initializer_list<std::string_view> keys,
                  std::initializer_list<std::string_view> optional = {}) {
  if (!object.is_object()) user_error("{} is no JSON object", what);
  for (const std::string_view key : keys) {
    if (!object.contains(key)) user_error("{} has no \"{}\"", what, key);
  }
  const auto among = [](std::initializer_list<std::string_view> names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const auto& [key, value] : object.items()) {
    if (!among(keys, key) && !among(optional, key)) user_error("{} has an unknown key \"{}\"", what, key);
  }
}

template <class T>
T value(const json& object, const char* key) {
  try {
    return object.at(key).get<T>();
  } catch (const json::exception&) {
    user_error("\"{}\" has the wrong type: {:.60}", key, object.at(key).dump());
  }
}

template <>
std::int64_t value<std::int64_t>(const json& object, const char* key) {
  if (!object.at(key).is_number_integer()) user_error("\"{}\" is no integer: {:.60}", key, object.at(key).dump());
  return object.at(key).get<std::int64_t>();
}

DeviceIdentity device_from_json(const json& object) {
  require_keys(object, "\"device\"", {"kind", "name", "arch", "units", "details"});
  const auto units = value<std::int64_t>(object, "units");
  if (units < 0 || units > 1 << 20) user_error("\"units\" is {}", units);
  return {value<std::string>(object, "kind"), value<std::string>(object, "name"), value<std::string>(object, "arch"),
          static_cast<int>(units), object.at("details").dump()};
}

ProblemKey problem_from_json(const json& object) {
  require_keys(object, "\"problem\"", {"op", "variant", "nest_digest", "sizes"});
  ProblemKey problem{
      value<std::string>(object, "op"), value<std::string>(object, "variant"), value<std::string>(object, "nest_digest"), {}};
  const json& sizes = object.at("sizes");
  if (!sizes.is_object()) user_error("\"sizes\" is no JSON object");
  for (const auto& [name, size] : sizes.items()) problem.sizes[name] = value<std::int64_t>(sizes, name.c_str());
  return problem;
}

KernelRecord kernel_from_json(const json& object, int format) {
  KernelRecord kernel;
  if (format == kAloneFormat) {
    require_keys(object, "\"kernel\"", {"architecture", "code", "recipe", "hash"});
    kernel.code = base64_decode(value<std::string>(object, "code"));
  } else {
    require_keys(object, "\"kernel\"", {"architecture", "recipe", "hash"});
  }
  kernel.architecture = value<std::string>(object, "architecture");
  kernel.recipe = object.at("recipe").dump();
  kernel.hash = value<std::string>(object, "hash");
  if (kernel.hash.empty()) user_error("the kernel's \"hash\" is empty");
  return kernel;
}

// Lines of programs that did not count revisions have none.
int revision_from_json(const json& object, const char* key) {
  if (!object.contains(key)) return 0;
  const auto revision = value<std::int64_t>(object, key);
  if (revision < 0 || revision > 1 << 20) user_error("\"{}\" is {}", key, revision);
  return static_cast<int>(revision);
}

Signature signature_from_json(const json& object) {
  if (!object.contains("signature")) return {};
  require_keys(object.at("signature"), "\"signature\"", {"key", "value"});
  Signature signature{value<std::string>(object.at("signature"), "key"), value<std::string>(object.at("signature"), "value")};
  if (from_hex(signature.signer, kKeyBytes).empty()) user_error("the signature's \"key\" is no public key");
  if (from_hex(signature.value, kSignatureBytes).empty()) user_error("the signature's \"value\" is no signature");
  return signature;
}

CertificateRecord certificate_from_json(const json& object) {
  if (!object.contains("certificate")) return {};
  const json& given = object.at("certificate");
  require_keys(given, "\"certificate\"", {"digest"}, {"text"});
  CertificateRecord certificate{value<std::string>(given, "digest"), given.contains("text") ? given.at("text").dump() : ""};
  if (from_hex(certificate.digest, kDigestHex / 2).empty()) user_error("the certificate's \"digest\" is no digest");
  return certificate;
}

json certificate_to_json(const CertificateRecord& certificate, int format) {
  json object{{"digest", certificate.digest}};
  if (format == kAloneFormat && !certificate.text.empty()) object["text"] = json::parse(certificate.text);
  return object;
}

TrialRecord trial_from_json(const json& object, int format) {
  TrialRecord trial;
  trial.steps = object.at("steps").dump();
  const auto status = value<std::string>(object, "status");
  const auto known = trial_status_from(status);
  if (!known) user_error("\"{}\" is no status of a trial", status);
  trial.status = *known;
  trial.reason = value<std::string>(object, "reason");
  trial.samples_ms = value<std::vector<double>>(object, "samples_ms");
  trial.median_ms = value<double>(object, "median_ms");
  trial.max_error =
      object.at("max_error").is_null() ? std::numeric_limits<double>::infinity() : value<double>(object, "max_error");
  trial.toolchain = value<std::string>(object, "toolchain");
  trial.created = value<std::string>(object, "created");
  if (trial.created.empty()) user_error("\"created\" is empty");
  if (object.contains("report")) trial.report = object.at("report").dump();
  trial.revision = revision_from_json(object, "revision");
  trial.checked = revision_from_json(object, "checked");
  trial.signature = signature_from_json(object);
  if (!object.at("kernel").is_null()) trial.kernel = kernel_from_json(object.at("kernel"), format);
  trial.certificate = certificate_from_json(object);
  return trial;
}

std::string text_of(const json& line) { return line.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string line_of(const Record& record, int format) {
  const TrialRecord& trial = record.trial;
  json line = {{"format", format},
               {"device", device_to_json(record.device)},
               {"problem", problem_to_json(record.problem)},
               {"steps", json::parse(trial.steps)},
               {"status", to_string(trial.status)},
               {"reason", trial.reason},
               {"samples_ms", trial.samples_ms},
               {"median_ms", trial.median_ms},
               {"max_error", std::isfinite(trial.max_error) ? json(trial.max_error) : json()},
               {"toolchain", trial.toolchain},
               {"created", trial.created},
               {"pinned", record.pinned},
               {"kernel", trial.kernel ? kernel_to_json(*trial.kernel, format) : json()}};
  if (format == kAloneFormat) line["nest"] = json::parse(record.nest_json);
  if (!trial.report.empty()) line["report"] = json::parse(trial.report);
  if (trial.revision > 0) line["revision"] = trial.revision;
  if (trial.checked > 0) line["checked"] = trial.checked;
  if (!trial.certificate.digest.empty()) line["certificate"] = certificate_to_json(trial.certificate, format);
  if (!trial.signature.empty()) line["signature"] = {{"key", trial.signature.signer}, {"value", trial.signature.value}};
  return text_of(line);
}

json parsed_line(std::string_view line) {
  require_shallow(line, "the line");
  json object = json::parse(line, nullptr, false);
  if (object.is_discarded()) user_error("not JSON: {:.60}", line);
  if (!object.is_object() || !object.contains("format")) user_error("no record of a tuning database (it has no \"format\")");
  return object;
}

Record record_from_json(const json& object, int format) {
  const std::initializer_list<std::string_view> optional{"report", "revision", "checked", "signature", "certificate"};
  if (format == kAloneFormat) {
    require_keys(object, "the record",
                 {"format", "device", "problem", "nest", "steps", "status", "reason", "samples_ms", "median_ms", "max_error",
                  "toolchain", "created", "pinned", "kernel"},
                 optional);
  } else {
    require_keys(object, "the record",
                 {"format", "device", "problem", "steps", "status", "reason", "samples_ms", "median_ms", "max_error", "toolchain",
                  "created", "pinned", "kernel"},
                 optional);
  }
  Record record{device_from_json(object.at("device")), problem_from_json(object.at("problem")),
                format == kAloneFormat ? object.at("nest").dump() : "", trial_from_json(object, format),
                value<bool>(object, "pinned")};
  normalise(record, format == kAloneFormat ? CodePlace::record : CodePlace::pack);
  if (record.trial.status == TrialStatus::ok && record.trial.median_ms <= 0)
    user_error("the trial is ok, but its median is {}", record.trial.median_ms);
  if (record.pinned && !record.trial.kernel) user_error("the trial is pinned, but has no kernel");
  return record;
}

}  // namespace

std::string record_to_line(const Record& record) { return line_of(record, kAloneFormat); }
std::string record_to_packed_line(const Record& record) { return line_of(record, kPackedFormat); }

std::string nest_to_line(const std::string& digest, const std::string& nest_json) {
  return text_of({{"format", kPackedFormat}, {"digest", digest}, {"nest", json::parse(nest_json)}});
}

RecordLine record_line_from(std::string_view line) {
  const json object = parsed_line(line);
  const auto format = value<std::int64_t>(object, "format");
  if (format == kAloneFormat) return {.record = record_from_json(object, kAloneFormat)};
  if (format != kPackedFormat)
    user_error("its format is {}, this program knows formats {} and {}", format, kAloneFormat, kPackedFormat);
  if (!object.contains("digest")) return {.record = record_from_json(object, kPackedFormat), .shares_nest = true};
  require_keys(object, "the nest", {"format", "digest", "nest"});
  return {.nest_digest = value<std::string>(object, "digest"), .nest_json = object.at("nest").dump()};
}

}  // namespace nestor
