// Any lines typed into `nestor explore`: done, or refused with a UserError. Nothing is measured, and no file outside of a folder of its own is touched.
#include "cli/explorer/explorer.h"

#include "support/error.h"
#include "support/nests/sample_nests.h"
#include "support/system/json_text.h"
#include "support/temporary_folder.h"

#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>

namespace {

constexpr int kMostLines = 12;

/// Files are named without a folder; measuring and suggesting take seconds.
bool allowed(const std::string& line) {
  const std::size_t first = line.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return true;
  const std::string word = line.substr(first, line.find_first_of(" \t\r\n", first) - first);
  if (word == "measure" || word == "save" || word == "report" || word == "suggest") return false;
  return (word != "load" && word != "diff") || line.find('/') == std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nestor;
  static const test::TemporaryFolder kFolder;
  static const Nest kNest = samples::matmul();
  std::ostringstream out;
  cli::Explorer explorer(kNest, complete_sizes(kNest, {}), {}, kFolder.file("tuning.db"), out);
  explorer.set_screen({size % 2 == 0 ? 80 : 0, size % 3 == 0, size % 5 != 0});
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  int typed = 0;
  for (std::string line; std::getline(lines, line) && ++typed <= kMostLines;) {
    if (!allowed(line)) continue;
    try {
      static_cast<void>(explorer.complete(line));
      if (!explorer.execute(line)) break;
    } catch (const UserError& error) {
      static_cast<void>(json_to_text(error.what()));
    }
  }
  static_cast<void>(json_to_text(out.str()));
  return 0;
}
