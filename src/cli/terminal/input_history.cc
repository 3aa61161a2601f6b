// One write a line; a file that has grown too long is replaced by a shorter one.
#include "cli/terminal/input_history.h"

#include "support/words/printable.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace nestor::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostKept = 1000;
constexpr std::size_t kLongestLine = 4096;

std::string folder_in(const char* variable, const char* below) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value != '/') return "";  // the XDG specification ignores relative paths
  return std::string(value) + below;
}

bool write_all(const std::string& path, int flags, const std::string& text) {
  const int file = ::open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
  if (file < 0) return false;
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return ::close(file) == 0 && written;
}

}  // namespace

std::string InputHistory::default_path(const std::string& name) {
  std::string folder = folder_in("XDG_STATE_HOME", "/nestor/");
  if (folder.empty()) folder = folder_in("HOME", "/.local/state/nestor/");
  return folder.empty() ? "" : folder + name;
}

std::vector<std::string> InputHistory::load() const {
  std::error_code ignored;
  std::vector<std::string> lines;
  if (path_.empty() || !fs::is_regular_file(path_, ignored)) return lines;
  std::ifstream in(path_);
  std::size_t read = 0;
  for (std::string line; std::getline(in, line); ++read) {
    if (!line.empty() && line.size() <= kLongestLine && printable(line) == line) lines.push_back(line);
  }
  if (lines.size() > kMostKept) lines.erase(lines.begin(), lines.end() - kMostKept);
  if (read <= 2 * kMostKept) return lines;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const std::string shorter = path_ + "." + std::to_string(::getpid());
  if (!write_all(shorter, O_TRUNC, text) || std::rename(shorter.c_str(), path_.c_str()) != 0) ::unlink(shorter.c_str());
  return lines;
}

void InputHistory::append(const std::string& line) const {
  if (path_.empty() || line.empty() || line.size() > kLongestLine || printable(line) != line) return;
  const std::string text = line + "\n";
  if (write_all(path_, O_APPEND, text)) return;
  std::error_code ignored;
  const fs::path folder = fs::path(path_).parent_path();
  if (fs::exists(folder, ignored) || !fs::create_directories(folder, ignored)) return;
  fs::permissions(folder, fs::perms::owner_all, ignored);
  write_all(path_, O_APPEND, text);
}

}  // namespace nestor::cli
