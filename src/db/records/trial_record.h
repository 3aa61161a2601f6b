// What the database keeps of a trial: the device that measured, the problem, the outcome and the kernel.
#pragma once

#include "db/trust/trust.h"
#include "nestor/types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// Full identity of the device that measured. `key` is what look-ups compare.
struct DeviceIdentity {
  std::string kind;         ///< "host" or "cuda"
  std::string name;         ///< "AMD EPYC ...", "NVIDIA H200"
  std::string arch;         ///< "znver3", "sm_90"
  int units = 0;            ///< threads used, or multiprocessors
  std::string details;      ///< JSON: clocks, cache and memory sizes, driver
  std::string key() const;  ///< "host/znver3/2", "cuda/sm_90/132/NVIDIA H200", stable across runs
};

/// What was tuned.
struct ProblemKey {
  std::string op;
  std::string variant;  ///< element types, e.g. "f32"
  std::string nest_digest;
  Sizes sizes;
};

enum class TrialStatus : std::uint8_t { ok, illegal, compile_error, wrong, crash, timeout, slow, infeasible, unproved };
std::string_view to_string(TrialStatus status);
std::optional<TrialStatus> trial_status_from(std::string_view name);

/// A kernel as stored.
struct KernelRecord {
  std::string architecture;
  std::string code;    ///< object or PTX, uncompressed here, zstd in the file
  std::string recipe;  ///< LaunchRecipe as JSON
  std::string hash;    ///< kernel_hash(code, recipe), checked whenever the record is read; may be empty when added
};

/// Where the code of a text record's kernel is: in the record's line, or in a pack beside the file (the record's own is empty then).
enum class CodePlace : std::uint8_t { record, pack };

/// BLAKE2b-256 of code and recipe, 64 digits.
std::string kernel_hash(std::string_view code, std::string_view recipe);
/// Whether `hash` is that of code and recipe. Lines of older programs have an XXH3-128, 32 digits: it finds damage, no forgery.
bool is_hash_of(std::string_view hash, std::string_view code, std::string_view recipe);

/// What was proved of a kernel when it was compiled.
struct CertificateRecord {
  std::string digest;  ///< certificate_digest(text), part of the record's seal; "" without a certificate
  std::string text;    ///< JSON; "" where only the digest is known, as in exports that leave code to a pack
};

/// BLAKE2b-256 of a certificate's text, 64 digits.
std::string certificate_digest(std::string_view text);

struct TrialRecord {
  static constexpr int kThisProgram = -1;  ///< a revision of this program for the record's device, when added

  std::int64_t id = 0;  ///< given by the database; negative for trials of the system database
  std::string steps;    ///< schedule as JSON (schedule_to_json)
  TrialStatus status = TrialStatus::ok;
  std::string reason;              ///< for every status but ok; a remark on an ok one
  std::vector<double> samples_ms;  ///< raw, in measuring order
  double median_ms = 0;            ///< 0 unless ok or slow
  double max_error = 0;            ///< worst of the results, as a fraction of what is allowed; above 1: wrong
  std::string toolchain;           ///< "nestor 0.1.0 llvm 19.1.7"
  std::string created;             ///< ISO 8601, UTC ("2025-01-31T12:00:00Z"); empty when added: now
  std::string report;              ///< JSON: what the compiler and the driver said of the kernel (registers, spills); "" for none
  int revision = kThisProgram;     ///< of the code generator that made its code; 0: before revisions were counted
  int checked = kThisProgram;      ///< last revision whose proofs and checks an ok trial's kernel passed; 0: none
  std::optional<KernelRecord> kernel;
  CertificateRecord certificate = {};  ///< of `kernel`; digest may be empty when added
  Signature signature = {};            ///< of the record's seal; empty when added: by the own key
  bool trusted = false;                ///< when read: shipped, signed by a trusted key, or unsigned records are allowed
  bool own_device = true;              ///< when read for a device: measured on this very one, not on another of its model
};

}  // namespace nestor
