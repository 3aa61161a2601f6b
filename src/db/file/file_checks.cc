// Paths, rights and file systems.
#include "db/file/file_checks.h"

#include "support/error.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <fcntl.h>
#include <array>
#include <cstdint>
#include <filesystem>

namespace nestor {
namespace {

namespace fs = std::filesystem;

struct FileSystem {
  std::uint32_t type;
  std::string_view name;
};

constexpr std::array kNetworkFileSystems{
    FileSystem{0x6969, "NFS"},        FileSystem{0x517b, "SMB"},       FileSystem{0xff534d42, "CIFS"},
    FileSystem{0xfe534d42, "SMB 2"},  FileSystem{0x5346414f, "AFS"},   FileSystem{0x6b414653, "AFS"},
    FileSystem{0x73757245, "Coda"},   FileSystem{0x564c, "NCP"},       FileSystem{0x0bd00bd0, "Lustre"},
    FileSystem{0x47504653, "GPFS"},   FileSystem{0x00c36400, "Ceph"},  FileSystem{0x01021997, "9P"},
    FileSystem{0x19830326, "BeeGFS"}, FileSystem{0x7461636f, "OCFS2"}, FileSystem{0x01161970, "GFS2"},
};

fs::path folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

// By the effective user, as open() will judge.
bool may(const fs::path& path, int mode) { return ::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0; }

void require_writable(const std::string& path, bool exists) {
  if (exists && !may(path, W_OK)) {
    user_error(
        "the tuning database {} is read-only for this user: choose another one (--db or $NESTOR_DB), or change its permissions",
        path);
  }
  const fs::path folder = folder_of(path);
  if (!may(folder, W_OK | X_OK)) {
    user_error(
        "the folder {} is read-only for this user, so the tuning database {} cannot be written: choose another one (--db or "
        "$NESTOR_DB)",
        folder.string(), path);
  }
}

}  // namespace

std::optional<std::string_view> network_file_system(long type) {
  for (const FileSystem& entry : kNetworkFileSystems) {
    if (entry.type == static_cast<std::uint32_t>(type)) return entry.name;
  }
  return std::nullopt;
}

long file_system_type_of(const std::string& path) {
  struct statfs info{};
  return ::statfs(folder_of(path).c_str(), &info) == 0 ? static_cast<long>(info.f_type) : 0;
}

FileAccess check_database_file(const std::string& path, bool read_only, long file_system_type) {
  if (path.empty()) user_error("the path of the tuning database is empty");
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) user_error("{} is a folder, not a tuning database", path);
  if (!fs::is_directory(folder_of(path), ignored))
    user_error("the folder {} of the tuning database {} does not exist", folder_of(path).string(), path);
  FileAccess access;
  access.exists = fs::exists(path, ignored);
  if (access.exists && !fs::is_regular_file(path, ignored))
    user_error("{} is a device, a pipe or a socket, not a tuning database: name a file", path);
  const auto network = network_file_system(file_system_type);
  if (read_only) {
    if (!access.exists) user_error("there is no tuning database at {}", path);
    if (!may(path, R_OK)) user_error("this user may not read the tuning database {}", path);
    const bool changes = fs::exists(path + "-wal", ignored) && fs::file_size(path + "-wal", ignored) > 0;
    const bool side_files = may(folder_of(path), W_OK);
    access.immutable = (network || !side_files) && !changes;
    if (changes && !side_files && !network && !may(path + "-shm", R_OK))
      user_error(
          "the tuning database {} has changes beside it ({}-wal) that a program left there, and this user cannot write to its "
          "folder to "
          "read them: have its owner run `nestor db check --db {}` once, or copy both files to a folder of your own",
          path, path, path);
    if (network && !access.immutable)
      user_error("the tuning database {} is on a network file system ({}) and another program has it open", path, *network);
    return access;
  }
  if (network) {
    user_error(
        "the tuning database {} is on a network file system ({}), where SQLite's write-ahead log is not safe: choose a local "
        "disk (--db or $NESTOR_DB)",
        path, *network);
  }
  require_writable(path, access.exists);
  return access;
}

}  // namespace nestor
