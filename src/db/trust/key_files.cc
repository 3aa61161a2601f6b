// Keys as files; a new key gets its name only when it is complete.
#include "db/trust/key_files.h"

#include "db/trust/blake2b.h"
#include "support/error.h"

#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace nestor {
namespace {

namespace fs = std::filesystem;

const unsigned char* bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string key_path(const std::string& folder) { return folder + "/signing_key"; }
std::string list_path(const std::string& folder) { return folder + "/trusted_keys"; }

std::string first_word(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string word;
  in >> word;
  return word;
}

/// A file beside `path` with `text` on the disk, mode 0600; "" with errno set when that fails.
std::string written_beside(const std::string& path, std::string_view text) {
  std::string name = path + ".XXXXXX";
  const int file = ::mkstemp(name.data());
  if (file < 0) return "";
  const bool good = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file) == 0;
  const int why = errno;
  ::close(file);
  if (good) return name;
  ::unlink(name.c_str());
  errno = why;
  return "";
}

KeyLookup made_key(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  const std::string written = written_beside(key_path(folder), SigningKey::random().seed() + "\n");
  if (written.empty()) return {.problem = fmt::format("{} cannot be written: {}", key_path(folder), std::strerror(errno))};
  const bool won = ::link(written.c_str(), key_path(folder).c_str()) == 0 || errno == EEXIST;
  const int why = errno;
  ::unlink(written.c_str());
  if (!won) return {.problem = fmt::format("{} cannot be written: {}", key_path(folder), std::strerror(why))};
  return find_signing_key(folder, false);
}

}  // namespace

SigningKey SigningKey::random() {
  require_sodium();
  std::string seed(crypto_sign_SEEDBYTES, '\0');
  randombytes_buf(seed.data(), seed.size());
  return from_seed(to_hex(seed));
}

SigningKey SigningKey::from_seed(std::string_view seed_hex) {
  require_sodium();
  const std::string seed = from_hex(seed_hex, crypto_sign_SEEDBYTES);
  if (seed.empty()) user_error("a signing key is {} hexadecimal digits in lower case", 2 * crypto_sign_SEEDBYTES);
  SigningKey key;
  std::string open(crypto_sign_PUBLICKEYBYTES, '\0');
  key.secret_.resize(crypto_sign_SECRETKEYBYTES);
  crypto_sign_seed_keypair(bytes(open), bytes(key.secret_), bytes(seed));
  key.seed_ = seed_hex;
  key.public_ = to_hex(open);
  return key;
}

std::string SigningKey::sign(std::string_view message) const {
  std::string signature(crypto_sign_BYTES, '\0');
  crypto_sign_detached(bytes(signature), nullptr, bytes(message), message.size(), bytes(secret_));
  return to_hex(signature);
}

bool is_signed(std::string_view message, std::string_view key, std::string_view signature) {
  require_sodium();
  const std::string open = from_hex(key, crypto_sign_PUBLICKEYBYTES), value = from_hex(signature, crypto_sign_BYTES);
  if (open.empty() || value.empty()) return false;
  return crypto_sign_verify_detached(bytes(value), bytes(message), message.size(), bytes(open)) == 0;
}

std::string key_folder() {
  if (std::string folder = environment_value("NESTOR_KEYS"); !folder.empty()) return folder;
  if (const std::string data = environment_value("XDG_DATA_HOME"); !data.empty()) return data + "/nestor";
  const std::string home = environment_value("HOME");
  return home.empty() ? "" : home + "/.local/share/nestor";
}

KeyLookup find_signing_key(const std::string& folder, bool make) {
  if (folder.empty()) return {.problem = "no place for it: set $NESTOR_KEYS, $XDG_DATA_HOME or $HOME"};
  struct stat info{};
  if (::stat(key_path(folder).c_str(), &info) != 0) {
    if (make) return made_key(folder);
    return {.problem = fmt::format("{}: {}", key_path(folder), std::strerror(errno))};
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH | S_IRGRP | S_IROTH)) != 0)
    return {.problem = fmt::format("others may read or write {}: chmod 600 it, or remove it if they did", key_path(folder))};
  if (::faccessat(AT_FDCWD, key_path(folder).c_str(), R_OK, AT_EACCESS) != 0)
    return {.problem = fmt::format("{}: {}", key_path(folder), std::strerror(errno))};
  const std::string seed = first_word(key_path(folder));
  if (from_hex(seed, crypto_sign_SEEDBYTES).empty())
    return {.problem = fmt::format("{} holds no key: move it away, then another one is made", key_path(folder))};
  return {.found = true, .seed = seed};
}

std::vector<TrustedKey> trusted_keys(const std::string& folder) {
  std::vector<TrustedKey> keys;
  std::ifstream in(list_path(folder));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    TrustedKey entry;
    words >> entry.key;
    std::getline(words >> std::ws, entry.remark);
    if (!from_hex(entry.key, crypto_sign_PUBLICKEYBYTES).empty()) keys.push_back(std::move(entry));
  }
  return keys;
}

void store_trusted_keys(const std::string& folder, const std::vector<TrustedKey>& keys) {
  if (folder.empty()) user_error("no place for the list of trusted keys: set $NESTOR_KEYS, $XDG_DATA_HOME or $HOME");
  std::string text;
  for (const TrustedKey& entry : keys) text += fmt::format("{}{}{}\n", entry.key, entry.remark.empty() ? "" : " ", entry.remark);
  std::error_code failure;
  fs::create_directories(folder, failure);
  const std::string path = list_path(folder), written = written_beside(path, text);
  if (written.empty() || ::rename(written.c_str(), path.c_str()) != 0)
    user_error("the list of trusted keys {} cannot be written: {}", path, std::strerror(errno));
}

std::string public_key_from(const std::string& hex_or_file) {
  if (!from_hex(hex_or_file, crypto_sign_PUBLICKEYBYTES).empty()) return hex_or_file;
  std::ifstream in(hex_or_file);
  for (std::string word; in >> word;) {
    if (!from_hex(word, crypto_sign_PUBLICKEYBYTES).empty()) return word;
  }
  user_error("{} is neither a public key ({} hexadecimal digits in lower case) nor a file that holds one", hex_or_file,
             2 * crypto_sign_PUBLICKEYBYTES);
}

}  // namespace nestor
