// Files that somebody named for output: complete or as they were.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace nestor {

/// Waits until the file or folder is on the disk, as far as the system can say.
void sync_file(const std::string& path);

/// A file that gets its name when it is complete, so that what fails leaves what was there. A link stays, and the file that it names is
/// replaced. Pipes and devices are written directly, as are links to what is not there.
class NewFile {
 public:
  /// Throws UserError when it cannot be written.
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Throws UserError when not all of it could be written.
  void close();
  void rename();

  std::ofstream out;

 private:
  std::string path_;
  std::filesystem::path target_, written_;
  bool direct_ = false, complete_ = false;
};

}  // namespace nestor
