// Runs the ptxas program on PTX text and reads its report.
#include "codegen/gpu/ptx/ptxas.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace nestor {
namespace {

namespace fs = std::filesystem;

std::string find_ptxas() {
  if (const char* given = std::getenv("NESTOR_PTXAS"); given != nullptr && *given != 0)
    return access(given, X_OK) == 0 ? given : "";
  std::istringstream path(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');) {
    const std::string candidate = folder + "/ptxas";
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  const char* usual = "/usr/local/cuda/bin/ptxas";
  return access(usual, X_OK) == 0 ? usual : "";
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// The largest number that stands before `words` in the log.
int largest_before(const std::string& log, const std::string& words) {
  int largest = 0;
  const std::regex pattern("(\\d+) " + words);
  for (std::sregex_iterator match(log.begin(), log.end(), pattern), end; match != end; ++match)
    largest = std::max(largest, std::stoi((*match)[1]));
  return largest;
}

/// A folder of this call alone, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "nestor-ptxas-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

PtxasReport run_ptxas(const std::string& ptx, const std::string& architecture) {
  PtxasReport report;
  const std::string program = find_ptxas();
  const TemporaryFolder folder;
  if (program.empty() || folder.path().empty()) return report;
  report.available = true;
  const std::string source = folder.path() + "/kernel.ptx";
  std::ofstream(source) << ptx;
  const std::string command = fmt::format("{} -v -arch={} -o {} {} 2>&1", quoted(program), quoted(architecture),
                                          quoted(folder.path() + "/kernel.cubin"), quoted(source));
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return report;
  char chunk[4096];
  for (std::size_t count; (count = fread(chunk, 1, sizeof chunk, pipe)) > 0;) report.log.append(chunk, count);
  report.accepted = pclose(pipe) == 0;
  if (report.accepted) {
    std::ifstream cubin(folder.path() + "/kernel.cubin", std::ios::binary);
    report.cubin.assign(std::istreambuf_iterator<char>(cubin), {});
  }
  report.registers = largest_before(report.log, "registers");
  report.spill_bytes =
      std::max(largest_before(report.log, "bytes spill stores"), largest_before(report.log, "bytes spill loads"));
  report.stack_bytes = largest_before(report.log, "bytes stack frame");
  return report;
}

}  // namespace nestor
