// Whose records are served: keys, signatures, and files of older programs; copies and joined files.
#include "cli/commands/db_sources.h"

#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "db/records/kernel_pack.h"
#include "db/trust/key_files.h"
#include "support/error.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace nestor::cli {
namespace {

struct TrustArgs {
  std::string key, remark;
  bool off = false;
};

int list_keys(const std::vector<TrustedKey>& keys) {
  const KeyLookup own = find_signing_key(key_folder(), true);
  const std::string own_key = own.found ? SigningKey::from_seed(own.seed).public_key() : "";
  nlohmann::json json = nlohmann::json::array();
  for (const TrustedKey& entry : keys) json.push_back({{"key", entry.key}, {"remark", entry.remark}});
  if (output_mode().json) {
    print_json({{"own", own_key}, {"folder", key_folder()}, {"trusted", json}});
    return kOk;
  }
  print(own.found ? fmt::format("{}  your own, in {}", own_key, key_folder()) : "no key of your own: " + own.problem);
  for (const TrustedKey& entry : keys) print(fmt::format("{}  {}", entry.key, entry.remark));
  return kOk;
}

int run_trust(const TrustArgs& args) {
  std::vector<TrustedKey> keys = trusted_keys(key_folder());
  if (args.key.empty()) return list_keys(keys);
  const std::string key = public_key_from(args.key);
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const TrustedKey& entry) { return entry.key == key; });
  if (args.off && found == keys.end()) user_error("the key {} is not among the trusted ones", key);
  if (found != keys.end()) keys.erase(found);
  if (!args.off) keys.push_back({key, args.remark});
  store_trusted_keys(key_folder(), keys);
  if (output_mode().json) {
    print_json({{"key", key}, {"trusted", !args.off}});
  } else {
    print(fmt::format("{} is {}", key, args.off ? "trusted no more" : "trusted: records that it signed are served"));
  }
  return kOk;
}

int run_sign(const DatabaseArgs& args) {
  Database database = args.open(false);
  const std::int64_t count = database.sign_all();
  if (output_mode().json) {
    print_json({{"signed", count}, {"key", database.own_key()}});
  } else {
    print(fmt::format("{} signed with the key {}", count_of(count, "trial"), database.own_key()));
  }
  return kOk;
}

int run_backup(const DatabaseArgs& args, const std::string& file) {
  args.open(true).backup(file);
  output_mode().json ? print_json({{"database", args.resolved_path()}, {"copy", file}})
                     : print(fmt::format("{} copied to {}", args.resolved_path(), file));
  return kOk;
}

/// OUT/* names the packs, too, which are read with their records.
bool is_pack_of_another(const std::string& file, const std::vector<std::string>& files) {
  return file.ends_with(".pack") && std::any_of(files.begin(), files.end(), [&](const std::string& other) {
           return !other.ends_with(".pack") && pack_path(other) == file;
         });
}

int run_merge(const DatabaseArgs& args, const std::vector<std::string>& files) {
  Database database = args.open(false);
  Database::Imported merged;
  for (const std::string& file : files) {
    if (is_pack_of_another(file, files)) continue;
    const Database::Imported part = database.merge_file(file);
    merged.added += part.added;
    merged.checked += part.checked;
  }
  const std::int64_t waiting = database.waiting("", "");
  if (output_mode().json) {
    print_json({{"added", merged.added}, {"checked", merged.checked}, {"waiting", waiting}, {"database", args.resolved_path()}});
    return kOk;
  }
  print(fmt::format("{} added to {}", count_of(merged.added, "trial"), args.resolved_path()));
  if (merged.checked > 0) print(fmt::format("{} known already, and now checked", count_of(merged.checked, "trial")));
  if (waiting > 0) print(waiting_text(waiting));
  return kOk;
}

int run_migrate(const DatabaseArgs& args) {
  const Database database = args.open(false);
  const std::int64_t waiting = database.waiting("", "");
  if (output_mode().json) {
    print_json({{"database", args.resolved_path()}, {"waiting", waiting}});
    return kOk;
  }
  print(fmt::format("{} has the schema of this program", args.resolved_path()));
  if (waiting > 0) {
    print(waiting_text(waiting));
    print("are all of them yours? nestor db sign vouches for them, too");
  }
  return kOk;
}

}  // namespace

void add_db_sources(CLI::App& db, const std::shared_ptr<DatabaseArgs>& database, Action& run) {
  auto args = std::make_shared<TrustArgs>();
  CLI::App* trust = db.add_subcommand("trust", "Serve records that a key signed; without KEY, list the keys, your own first");
  trust->add_option("KEY", args->key, "public key (64 hexadecimal digits), or a file that holds one");
  trust->add_option("--remark", args->remark, "whose key it is");
  trust->add_flag("--off", args->off, "trust it no more");
  trust->callback([args, &run] { run = [args] { return run_trust(*args); }; });
  CLI::App* sign = db.add_subcommand("sign", "Vouch for every record of the file: sign them with your key");
  sign->callback([database, &run] { run = [database] { return run_sign(*database); }; });
  auto copy = std::make_shared<std::string>();
  CLI::App* backup = db.add_subcommand("backup", "Copy the whole file while others may write to it");
  backup->add_option("FILE", *copy, "the copy; an older one is replaced when this one is complete")->required();
  backup->callback([database, copy, &run] { run = [database, copy] { return run_backup(*database, *copy); }; });
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* merge = db.add_subcommand("merge", "Join exports and databases into this one, in any order and any number of times");
  merge->add_option("FILE", *files, "exports (JSON lines, with the packs beside them) and database files")->required();
  merge->callback([database, files, &run] { run = [database, files] { return run_merge(*database, *files); }; });
  CLI::App* migrate = db.add_subcommand("migrate", "Bring a file of an older program to this program's schema");
  migrate->callback([database, &run] { run = [database] { return run_migrate(*database); }; });
}

}  // namespace nestor::cli
