// Written beside its place, synced, then renamed.
#include "support/system/new_file.h"

#include "nestor/error.h"
#include "support/system/standard_streams.h"

#include <fmt/format.h>

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace nestor {

namespace fs = std::filesystem;

void sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::close(file);
}

NewFile::NewFile(const std::string& path) : path_(path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) throw UserError(fmt::format("cannot write {}: it is a folder; name a file", path));
  const bool regular = fs::is_regular_file(status);
  target_ = regular ? fs::canonical(path) : fs::path(path);
  direct_ = !regular && (fs::exists(status) || fs::is_symlink(fs::symlink_status(path, ignored)));
  // Hidden: FOLDER/* names complete files alone.
  const std::string part = fmt::format(".{}.{}.part", target_.filename().string(), ::getpid());
  written_ = direct_ ? target_ : target_.parent_path() / part;
  errno = 0;
  out.open(written_, std::ios::binary);
  if (!out) throw UserError(fmt::format("cannot write {}{}", path_, errno == 0 ? "" : ": " + open_failure(path_, errno)));
}

NewFile::~NewFile() {
  std::error_code ignored;
  if (!direct_ && !complete_) fs::remove(written_, ignored);
}

void NewFile::close() {
  out.close();
  if (!out) throw UserError(fmt::format("writing {} failed: is the disk full?", path_));
}

void NewFile::rename() {
  std::error_code failure;
  if (!direct_) sync_file(written_);
  if (!direct_) fs::rename(written_, target_, failure);
  if (failure) throw UserError(fmt::format("cannot write {}: {}", path_, failure.message()));
  complete_ = true;
}

}  // namespace nestor
