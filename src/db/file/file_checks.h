// Whether a path is a place for a database: checked before SQLite sees it, so that the message can say what to do.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nestor {

/// How a database file is to be opened.
struct FileAccess {
  bool exists = false;
  /// Read-only without the right (or, on a network, the means) to make SQLite's side files: nobody writes meanwhile.
  bool immutable = false;
};

/// Name of the network file system with this number (statfs f_type), if it is one.
std::optional<std::string_view> network_file_system(long type);

/// Throws UserError when `path` is no usable place: a folder, in a folder that does not exist, without the needed rights,
/// or to be written on a network file system. `file_system_type`: statfs f_type of its folder.
FileAccess check_database_file(const std::string& path, bool read_only, long file_system_type);

/// statfs f_type of the folder that holds `path`; 0 when there is none.
long file_system_type_of(const std::string& path);

}  // namespace nestor
