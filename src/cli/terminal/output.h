// How `nestor` writes: tables and units for people, JSON for machines, progress only on a terminal.
#pragma once

#include "db/database.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace nestor::cli {

/// Set by --json before the subcommand or after it.
struct OutputMode {
  bool json = false;
};
OutputMode& output_mode();

/// Writes to standard error, which may be closed: nobody is left to tell.
void print_error(const std::string& text);

/// A message that quotes what somebody gave, cut in the middle where that is longer than anybody reads.
std::string shortened(const std::string& message);

/// Throws UserError, with the reason, when standard output did not take everything that was written there.
void require_written();

/// Writes text, or the JSON with --json, and a line end. Throws as require_written() does. What is no UTF-8 in JSON is replaced.
void print(const std::string& text);
void print_json(const nlohmann::json& json);

/// "12.3 us", "4.56 ms", "1.23 s"; "-" for 0.
std::string format_ms(double ms);
std::string format_sizes(const Sizes& sizes);
/// "1 trial", "2 trials"
std::string count_of(std::int64_t count, const std::string& noun);

/// Columns padded to their widest cell; the first row is the heading. What is wider than `width` columns (0: no limit) is wrapped within its
/// widest columns; where that leaves too little for one, each row becomes a paragraph with a line for each cell.
std::string format_table(const std::vector<std::vector<std::string>>& rows, int width = 0);

nlohmann::json problem_to_json(const ProblemKey& problem);
nlohmann::json device_to_json(const DeviceIdentity& device);
/// Without code; steps as JSON.
nlohmann::json trial_to_json(const TrialRecord& trial);
/// What is said of kernels that are not served because this program has not checked them.
std::string waiting_text(std::int64_t kernels);
/// ", 4.1 TB/s" when the trial's report says how many bytes its arguments have: each read or written once.
std::string throughput_text(const TrialRecord& trial);
/// "\n  kernel_0: 40 registers, 3 blocks of 256 threads a multiprocessor, ..." for each kernel of a GPU trial; "" otherwise.
std::string kernel_text(const TrialRecord& trial);
/// The steps of TrialRecord::steps, one a line, indented.
std::string steps_text(const std::string& steps_json);

/// One line on a terminal's standard error, overwritten by each call. Elsewhere a line of its own every five seconds, so that logs tell
/// that something goes on.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& text);  ///< control characters are shown as what they are

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point said_ = Clock::now();
};

}  // namespace nestor::cli
