// Explorer: the session behind `nestor explore`, one command a line. It reads no terminal, so that tests can drive it.
#pragma once

#include "api/explore/suggestions.h"
#include "autotune/target/measure_options.h"
#include "cli/terminal/line_reader.h"
#include "cli/terminal/screen.h"
#include "poly/schedule/schedule.h"

#include <atomic>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace nestor::cli {

class Explorer {
 public:
  /// `nest` as defined; `sizes` complete. `database`: path where `save` stores and `load` looks. Nothing written to `out` has control
  /// characters but line ends, tabs and, with colour, Nestor's own.
  Explorer(Nest nest, Sizes sizes, MeasureOptions options, std::string database, std::ostream& out);

  /// How text is laid out from now on; plain at first.
  void set_screen(const Screen& screen) { screen_ = screen; }
  /// Ends `measure` and `suggest` early when it is set; null: nothing does.
  void set_stop(const std::atomic<bool>* stop) { stop_ = stop; }

  /// Prints the nest's name and sizes, and its loops.
  void greet();
  /// Runs one line: a command, or a step, which is applied when it is legal. Returns false when the session ends.
  /// Throws UserError; the schedule is then as before.
  bool execute(const std::string& line);
  /// What may be typed at the end of `line`: a command, a view, a step, or an argument of one of these.
  Completion complete(const std::string& line) const;
  const Schedule& schedule() const { return history_.back(); }

 private:
  struct Command {
    const char* name;
    const char* arguments;
    const char* help;
    void (Explorer::*run)(const std::string& arguments);
  };
  static const std::vector<Command>& commands();

  /// The same behind the first word, which is line[first, end).
  Completion complete_rest(const std::string& line, const std::string& word, std::size_t first, std::size_t end) const;
  void apply(const std::string& step);
  /// Throws UserError with the nearest word where `word`, the first of `text`, is neither a command nor a view nor a step.
  static void require_known(const std::string& text, const std::string& word);
  void push(const Schedule& schedule);
  /// The schedule is another one: prints it, with marks at what differs from `before`.
  void moved_from(const Schedule& before);
  void say(const std::string& text);
  void help(const std::string& topic);
  void why(const std::string& step);
  void undo(const std::string& arguments);
  void redo(const std::string& arguments);
  void reset(const std::string& arguments);
  void diff(const std::string& source);
  void show_steps(const std::string& arguments);
  void show_rules(const std::string& arguments);
  void show_view(const std::string& view);
  void certificate(const std::string& arguments);
  void quit(const std::string& arguments);
  // explorer_records.cc: what asks the device, the database or the search
  void suggest(const std::string& arguments);
  void take(const std::string& number);
  void measure(const std::string& device);
  void measure_on(std::string_view device);
  void save(const std::string& path);
  void load(const std::string& source);
  void report(const std::string& path);
  Schedule loaded(const std::string& source) const;
  /// Measures the schedule unless that is done; null where the stop flag ended it.
  const TrialRecord* measured();
  /// Stores the measured schedule unless that is done; null where it could not be measured.
  const TrialRecord* stored();

  Nest nest_;
  Sizes sizes_;
  MeasureOptions options_;
  std::string database_;
  std::ostream& out_;
  Screen screen_;
  const std::atomic<bool>* stop_ = nullptr;
  std::vector<Schedule> history_;
  std::vector<Schedule> undone_;       ///< for redo, the next one last
  std::optional<TrialRecord> record_;  ///< measurement of the current schedule; its id once it is stored
  std::vector<Step> suggested_;        ///< for the current schedule
  std::optional<Suggester> suggester_;
  double first_ms_ = 0;  ///< first measurement of the session: what speed-ups refer to
  bool done_ = false;
};

}  // namespace nestor::cli
