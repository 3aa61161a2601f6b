// Keys and seals looked up; signatures verified once.
#include "db/trust/trust.h"

#include "db/trust/blake2b.h"
#include "support/error.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <mutex>

namespace nestor {
namespace {

constexpr std::size_t kMostRemembered = 4096;
constexpr const char* kSystemKeys = "/etc/nestor";

const std::unordered_set<std::string_view>& shipped_seals() {
  static const std::unordered_set<std::string_view> seals = [] {
    std::unordered_set<std::string_view> found;
    for (std::string_view left = kShippedSeals; left.size() >= kDigestHex;) {
      found.insert(left.substr(0, kDigestHex));
      const std::size_t end = left.find('\n');
      left = end == std::string_view::npos ? "" : left.substr(end + 1);
    }
    return found;
  }();
  return seals;
}

bool allowed_by_environment() {
  const char* value = std::getenv("NESTOR_ALLOW_UNSIGNED");
  return value != nullptr && std::string_view(value) == "1";
}

/// One a process: what it tunes is served by it, though nobody else knows the key. Told once.
const SigningKey& passing_key(const std::string& problem, const std::function<void(const std::string&)>& warn) {
  static std::once_flag told;
  static const SigningKey key = SigningKey::random();
  std::call_once(told, [&] {
    warn(
        fmt::format("there is no signing key to keep ({}): what this process tunes is served by other processes only after "
                    "`nestor db check --run`",
                    problem));
  });
  return key;
}

}  // namespace

Trust Trust::load(const TrustOptions& options, const std::function<void(const std::string&)>& warn) {
  const std::string folder = options.folder.empty() ? key_folder() : options.folder;
  Trust trust;
  trust.allow_unsigned_ = options.allow_unsigned || allowed_by_environment();
  const KeyLookup found = find_signing_key(folder, options.make_key);
  if (found.found) {
    trust.key_ = SigningKey::from_seed(found.seed);
  } else if (options.make_key) {
    trust.key_ = passing_key(found.problem, warn);
  }
  if (trust.key_) trust.trusted_.insert(trust.key_->public_key());
  for (const std::string& place : {folder, std::string(kSystemKeys)}) {
    if (place.empty()) continue;
    for (TrustedKey& entry : trusted_keys(place)) trust.trusted_.insert(std::move(entry.key));
  }
  trust.signers_json_ = nlohmann::json(trust.trusted_).dump();
  return trust;
}

const std::string& shipped_seals_json() {
  static const std::string text = nlohmann::json(shipped_seals()).dump();
  return text;
}

bool Trust::is_shipped(std::string_view seal) const { return shipped_seals().contains(seal); }

bool Trust::claims(std::string_view signer, std::string_view seal) const {
  return allow_unsigned_ || is_shipped(seal) || trusted_.contains(std::string(signer));
}

bool Trust::vouched(const std::string& seal, const Signature& signature) {
  if (is_shipped(seal)) return true;
  if (!trusted_.contains(signature.signer)) return false;
  std::string key = seal + signature.signer + signature.value;
  if (good_.contains(key)) return true;
  if (!is_signed(seal, signature.signer, signature.value)) return false;
  if (good_.size() >= kMostRemembered) good_.clear();
  good_.insert(std::move(key));
  return true;
}

bool Trust::trusts(const std::string& seal, const Signature& signature) { return allow_unsigned_ || vouched(seal, signature); }

Signature Trust::sign(const std::string& seal) const {
  if (!key_) return {};
  return {key_->public_key(), key_->sign(seal)};
}

}  // namespace nestor
