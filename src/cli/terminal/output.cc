// Tables, units, JSON forms of records, and the progress line.
#include "cli/terminal/output.h"

#include "autotune/trial/trial_spelling.h"
#include "poly/schedule/schedule.h"
#include "support/codegen_revision.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/words/printable.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace nestor::cli {
namespace {

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

OutputMode& output_mode() {
  static OutputMode mode;
  return mode;
}

void print_error(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string shortened(const std::string& message) {
  constexpr std::size_t kHead = 3000, kTail = 500;
  if (message.size() <= kHead + kTail) return message;
  return fmt::format("{} [{} more bytes] {}", message.substr(0, kHead), message.size() - kHead - kTail,
                     message.substr(message.size() - kTail));
}

void require_written() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  std::cout.flush();
  int error = errno;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return;
  std::clearerr(stdout);
  std::cout.clear();
  // What failed may have been an earlier line; the next one fails likewise.
  if (error == 0 && ::write(STDOUT_FILENO, "\n", 1) < 0) error = errno;
  const std::string reason = error == EBADF ? "it is closed" : error != 0 ? std::strerror(error) : "an earlier line was lost";
  user_error("cannot write to standard output: {}", reason);
}

void print(const std::string& given) {
  const std::string text = output_mode().json ? given : printable(given, true);
  errno = 0;
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!text.ends_with('\n')) std::fputc('\n', stdout);
  require_written();
}

void print_json(const nlohmann::json& json) { print(json_to_text(json, 2)); }

std::string format_ms(double ms) {
  if (ms <= 0) return "-";
  if (ms < 1) return fmt::format("{:.4g} us", ms * 1000);
  if (ms < 1000) return fmt::format("{:.4g} ms", ms);
  return fmt::format("{:.4g} s", ms / 1000);
}

std::string format_sizes(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text.empty() ? "-" : text;
}

std::string count_of(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

nlohmann::json problem_to_json(const ProblemKey& problem) {
  return {{"op", problem.op}, {"variant", problem.variant}, {"nest", problem.nest_digest}, {"sizes", problem.sizes}};
}

nlohmann::json device_to_json(const DeviceIdentity& device) {
  nlohmann::json json{
      {"kind", device.kind}, {"name", device.name}, {"arch", device.arch}, {"units", device.units}, {"key", device.key()}};
  json["details"] = json_or_discarded(device.details);
  if (json["details"].is_discarded()) json["details"] = device.details;
  return json;
}

nlohmann::json trial_to_json(const TrialRecord& trial) {
  nlohmann::json json{{"id", trial.id},
                      {"status", to_string(trial.status)},
                      {"median_ms", trial.median_ms},
                      {"samples_ms", trial.samples_ms},
                      {"max_error", trial.max_error},
                      {"toolchain", trial.toolchain},
                      {"created", trial.created},
                      {"revision", trial.revision},
                      {"checked", trial.checked}};
  if (!trial.reason.empty()) json["reason"] = trial.reason;
  json["schedule"] = current_trial_steps(json_or_discarded(trial.steps));
  if (!trial.report.empty()) json["report"] = json_or_discarded(trial.report);
  if (trial.kernel) json["kernel"] = {{"architecture", trial.kernel->architecture}, {"hash", trial.kernel->hash}};
  return json;
}

std::string waiting_text(std::int64_t kernels) {
  return fmt::format(
      "{} for a check by this program (code revision {} on GPUs, {} on hosts), or for a key that is trusted, before being "
      "served: nestor db check --run, or nestor db trust KEY",
      count_of(kernels, "kernel") + (kernels == 1 ? " waits" : " wait"), kCodegenRevisions.cuda, kCodegenRevisions.host);
}

std::string throughput_text(const TrialRecord& trial) {
  const nlohmann::json report = json_or_discarded(trial.report);
  if (!report.is_object() || !report.contains("argument_bytes") || trial.median_ms <= 0) return "";
  const double gigabytes = report.at("argument_bytes").get<double>() / trial.median_ms / 1e6;
  return gigabytes < 1000 ? fmt::format(", {:.3g} GB/s", gigabytes) : fmt::format(", {:.3f} TB/s", gigabytes / 1000);
}

std::string kernel_text(const TrialRecord& trial) {
  const nlohmann::json report = json_or_discarded(trial.report);
  if (!report.is_object() || !report.contains("kernels")) return "";
  std::string text;
  for (const nlohmann::json& kernel : report.at("kernels")) {
    text += fmt::format("\n  {}: {} registers", kernel.value("name", "?"), kernel.value("registers", 0));
    if (const int local = kernel.value("local_bytes", 0); local > 0)
      text += fmt::format(", {} bytes of local memory a thread", local);
    if (kernel.contains("threads")) {
      text += fmt::format(", {} bytes of shared memory, {} of {} threads a multiprocessor", kernel.value("shared_bytes", 0),
                          count_of(kernel.value("blocks_per_unit", 0), "block"), kernel.value("threads", 0));
    }
  }
  return text;
}

std::string steps_text(const std::string& steps_json) {
  const nlohmann::json json = json_or_discarded(steps_json);
  if (!json.is_object() || !json.contains("steps")) return "  " + steps_json + "\n";  // stored by another program
  std::string text;
  for (const nlohmann::json& step : json.at("steps")) text += "  " + describe(step_from_json(step)) + "\n";
  return text.empty() ? "  no steps: the original order\n" : text;
}

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (shown_) print_error("\r\033[K");
}

void ProgressLine::show(const std::string& given) {
  const std::string text = printable(given);
  constexpr std::chrono::seconds kBetweenLines{5};
  if (!terminal_) {
    if (Clock::now() - said_ < kBetweenLines) return;
    said_ = Clock::now();
    return print_error(text + "\n");
  }
  shown_ = true;
  print_error("\r\033[K" + text.substr(0, static_cast<std::size_t>(terminal_columns() - 1)));
}

}  // namespace nestor::cli
