// The journal of a share, a line a problem.
#include "api/share_journal.h"

#include "db/records/record.h"
#include "support/codegen_revision.h"
#include "support/error.h"
#include "support/system/json_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace nestor {
namespace {

/// A file for appending, with the system's reasons.
class AppendedFile {
 public:
  explicit AppendedFile(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {
    if (file_ < 0) fail();
  }
  ~AppendedFile() { ::close(file_); }
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  /// One write, so that lines of several processes do not mix.
  void add(const std::string& text) const {
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written >= 0 && written < static_cast<ssize_t>(text.size())) errno = ENOSPC;
    if (written != static_cast<ssize_t>(text.size()) || ::fsync(file_) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const { user_error("cannot write {}: {}", path_, std::strerror(errno)); }
  std::string path_;
  int file_;
};

nlohmann::json device_json(const DeviceIdentity& device) {
  nlohmann::json details = json_or_discarded(device.details);
  if (details.is_object()) details.erase("driver_cuda_version");  // a new driver does not undo what was measured
  return {device.key(), device.name, details.is_discarded() ? nlohmann::json(device.details) : details};
}

}  // namespace

ShareJournal::ShareJournal(const std::string& database) : path_(database + ".done") { read(); }

std::string ShareJournal::key_of(const ProblemKey& problem, const DeviceIdentity& device, bool fix_all_sizes, int revision) {
  return json_to_text(
      {problem.op, problem.variant, problem.nest_digest, problem.sizes, device_json(device), fix_all_sizes, revision});
}

void ShareJournal::read() {
  std::ifstream in(path_, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = json_or_discarded(line);
    if (!json.is_object() || !json.contains("what") || !json.contains("trials") || !json.contains("time_s")) continue;
    if (!json.at("trials").is_number_integer() || !json.at("time_s").is_number()) continue;
    entries_.emplace(json_to_text(json.at("what")), ShareBudget{json.at("trials"), json.at("time_s"), false});
  }
}

bool ShareJournal::finished(const ProblemKey& problem, const DeviceIdentity& device, const ShareBudget& budget) const {
  const auto [first, last] =
      entries_.equal_range(key_of(problem, device, budget.fix_all_sizes, kCodegenRevisions.of(device.kind)));
  return std::any_of(first, last, [&](const auto& entry) {
    return entry.second.trials >= budget.trials && entry.second.time_s >= budget.time_s;
  });
}

void ShareJournal::add(const ProblemKey& problem, const DeviceIdentity& device, const ShareBudget& budget) {
  const std::string what = key_of(problem, device, budget.fix_all_sizes, kCodegenRevisions.of(device.kind));
  const nlohmann::json line{{"what", nlohmann::json::parse(what)}, {"trials", budget.trials}, {"time_s", budget.time_s}};
  // What a crash cut off before must not swallow this line.
  AppendedFile(path_).add("\n" + json_to_text(line) + "\n");
  entries_.emplace(what, budget);
}

}  // namespace nestor
