// Trust: whose records may be served by this process.
#pragma once

#include "db/trust/key_files.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

namespace nestor {

/// Who sealed a record, and how: a seal is the digest of all that it says.
struct Signature {
  std::string signer = {};  ///< public key; "": nobody signed
  std::string value = {};
  bool empty() const { return signer.empty() && value.empty(); }
};

struct TrustOptions {
  std::string folder = {};  ///< of keys; "": key_folder()
  bool allow_unsigned = false;
  bool make_key = false;  ///< where there is none
};

/// Own key, trusted keys, the seals of records that come with Nestor, and whether unsigned records may run. Used by one thread at a time.
class Trust {
 public:
  /// $NESTOR_ALLOW_UNSIGNED=1 allows unsigned records, too. A key that cannot be kept is one of this process alone, of which `warn` is told.
  static Trust load(const TrustOptions& options, const std::function<void(const std::string&)>& warn);

  /// What a record claims, without looking at its signature: cheap, for look-ups that choose.
  bool claims(std::string_view signer, std::string_view seal) const;
  /// Whether a record with this seal may be served. Signatures that were found good are remembered.
  bool trusts(const std::string& seal, const Signature& signature);
  /// Shipped with Nestor, or signed by a key that is trusted: somebody vouches for it.
  bool vouched(const std::string& seal, const Signature& signature);
  /// By the own key; empty when there is none.
  Signature sign(const std::string& seal) const;

  /// All are served that nobody vouches for, too.
  bool allows_unsigned() const { return allow_unsigned_; }
  /// Keys that are trusted, as a JSON list: claims() in SQL, beside shipped_seals_json().
  const std::string& signers_json() const { return signers_json_; }
  std::string own_key() const { return key_ ? key_->public_key() : ""; }
  void allow_unsigned(bool allowed) { allow_unsigned_ = allowed; }

 private:
  bool is_shipped(std::string_view seal) const;

  std::optional<SigningKey> key_;
  std::unordered_set<std::string> trusted_;
  std::string signers_json_;
  std::unordered_set<std::string> good_;  ///< seal, signer and signature of each that was verified
  bool allow_unsigned_ = false;
};

/// Seals of the records in tuning_db, one a line, compiled in.
extern const std::string_view kShippedSeals;

/// The same as a JSON list.
const std::string& shipped_seals_json();

}  // namespace nestor
