// The user's signing key and the keys that the user trusts: two files in the user's data folder, never in a database.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// An Ed25519 key pair. Keys and signatures are lower-case hexadecimal digits.
class SigningKey {
 public:
  /// Of 32 random bytes, or of that seed (64 digits). Throws UserError for what is no seed.
  static SigningKey random();
  static SigningKey from_seed(std::string_view seed_hex);
  const std::string& public_key() const { return public_; }  ///< 64 digits
  std::string seed() const { return seed_; }                 ///< 64 digits: the secret
  std::string sign(std::string_view message) const;          ///< 128 digits

 private:
  std::string seed_, public_, secret_;
};

/// Whether `signature` is `key`'s of `message`; false for what is no key or no signature.
bool is_signed(std::string_view message, std::string_view key, std::string_view signature);

/// $NESTOR_KEYS, else $XDG_DATA_HOME/nestor, else ~/.local/share/nestor; "" when none of them is set.
std::string key_folder();

/// The key in `folder`/signing_key (mode 0600). `make`: made when it is not there; of several processes that try, one wins and all
/// use its key. Without, or where the folder cannot be written, a key with the public key "" is none.
struct KeyLookup {
  bool found = false;
  std::string seed = {};
  std::string problem = {};  ///< why there is none although one was asked for
};
KeyLookup find_signing_key(const std::string& folder, bool make);

/// Public keys in `folder`/trusted_keys: one a line, the rest of the line is a remark. Lines that are no key are left out.
struct TrustedKey {
  std::string key, remark;
};
std::vector<TrustedKey> trusted_keys(const std::string& folder);
/// Writes the list anew, complete or not at all. Throws UserError when it cannot be written.
void store_trusted_keys(const std::string& folder, const std::vector<TrustedKey>& keys);

/// 64 hexadecimal digits, or the first such word in the file of that name. Throws UserError when there is none.
std::string public_key_from(const std::string& hex_or_file);

}  // namespace nestor
