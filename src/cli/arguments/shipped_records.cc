// Finds the folder of shipped records.
#include "cli/arguments/shipped_records.h"

#include "db/database.h"
#include "support/error.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace nestor::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> records_in(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> folders() {
  if (const char* given = std::getenv("NESTOR_RECORDS"); given != nullptr && *given != 0) return {given};
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  return {program.parent_path().parent_path() / "share" / "nestor" / "records", NESTOR_SOURCE_RECORDS};
}

}  // namespace

std::vector<std::string> shipped_records() {
  std::string looked;
  for (const fs::path& folder : folders()) {
    std::vector<std::string> files = records_in(folder);
    if (!files.empty()) return files;
    looked += (looked.empty() ? "" : " or ") + folder.string();
  }
  user_error("there are no records (*.jsonl) in {}: $NESTOR_RECORDS names another folder", looked);
}

std::string system_database_to_write() {
  std::string path = Database::default_system_path();
  if (path.empty()) path = "/usr/local/share/nestor/tuning.db";
  std::error_code failure;
  fs::create_directories(fs::path(path).parent_path(), failure);
  if (failure) user_error("the folder of the system database {} cannot be made: {}", path, failure.message());
  return path;
}

}  // namespace nestor::cli
