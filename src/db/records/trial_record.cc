// Names and keys of what the database keeps.
#include "db/records/trial_record.h"

#include "db/trust/blake2b.h"
#include "support/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace nestor {
namespace {

constexpr std::array<std::string_view, 9> kStatusNames{"ok",      "illegal", "compile_error", "wrong",   "crash",
                                                       "timeout", "slow",    "infeasible",    "unproved"};

}  // namespace

std::string DeviceIdentity::key() const {
  // GPUs of one architecture and size can differ in memory (H100 and H200): their name tells them apart.
  return kind == "cuda" ? fmt::format("{}/{}/{}/{}", kind, arch, units, name) : fmt::format("{}/{}/{}", kind, arch, units);
}

std::string_view to_string(TrialStatus status) { return kStatusNames[static_cast<std::size_t>(status)]; }

std::optional<TrialStatus> trial_status_from(std::string_view name) {
  const auto found = std::find(kStatusNames.begin(), kStatusNames.end(), name);
  if (found == kStatusNames.end()) return std::nullopt;
  return static_cast<TrialStatus>(found - kStatusNames.begin());
}

std::string kernel_hash(std::string_view code, std::string_view recipe) { return Blake2b().add(code).add(recipe).hex(); }

std::string certificate_digest(std::string_view text) { return Blake2b().add(text).hex(); }

bool is_hash_of(std::string_view hash, std::string_view code, std::string_view recipe) {
  if (hash.size() == kDigestHex) return hash == kernel_hash(code, recipe);
  return hash == Hasher().add(code).add(recipe).hex();
}

}  // namespace nestor
