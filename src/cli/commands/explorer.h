// Explorer: the session behind `nestor explore`, one command a line. It knows no terminal, so that tests can drive it.
#pragma once

#include "autotune/target/measure_options.h"
#include "poly/schedule/schedule.h"

#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace nestor::cli {

class Explorer {
 public:
  /// `nest` as defined; `sizes` complete. `database`: path where `save` stores and `load` looks.
  Explorer(Nest nest, Sizes sizes, MeasureOptions options, std::string database, std::ostream& out);

  /// Runs one line: a command, or a step, which is applied when it is legal. Returns false when the session ends.
  /// Throws UserError; the schedule is then as before.
  bool execute(const std::string& line);
  const Schedule& schedule() const { return history_.back(); }

 private:
  struct Command {
    const char* name;
    const char* arguments;
    const char* help;
    void (Explorer::*run)(const std::string& arguments);
  };
  static const std::vector<Command>& commands();

  void apply(const std::string& step);
  /// Throws UserError with the nearest word where `word`, the first of `text`, is neither a command nor a view nor a step.
  static void require_known(const std::string& text, const std::string& word);
  void push(const Schedule& schedule);
  void help(const std::string& topic);
  void why(const std::string& step);
  void measure(const std::string& arguments);
  void undo(const std::string& arguments);
  void reset(const std::string& arguments);
  void save(const std::string& path);
  void load(const std::string& source);
  void show_steps(const std::string& arguments);
  void show_rules(const std::string& arguments);
  void show_view(const std::string& view);
  void certificate(const std::string& arguments);
  void quit(const std::string& arguments);
  const TrialRecord& measured();

  Nest nest_;
  Sizes sizes_;
  MeasureOptions options_;
  std::string database_;
  std::ostream& out_;
  std::vector<Schedule> history_;
  std::optional<TrialRecord> record_;  ///< measurement of the current schedule
  double first_ms_ = 0;                ///< first measurement of the session: what speed-ups refer to
  bool done_ = false;
};

}  // namespace nestor::cli
