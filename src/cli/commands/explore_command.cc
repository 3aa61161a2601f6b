// nestor explore: a prompt where one types steps and sees the loop nest after each.
#include "api/operators.h"
#include "cli/arguments/operator_args.h"
#include "cli/commands/commands.h"
#include "cli/explorer/explorer.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/line_reader.h"
#include "cli/terminal/output.h"
#include "support/error.h"
#include "support/words/printable.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>

namespace nestor::cli {
namespace {

struct ExploreArgs {
  OperatorArgs problem;
  DatabaseArgs database;
  MeasureArgs measure;
};

/// Runs one line; Ctrl-C ends what it does, not the session. Returns whether the session goes on.
bool execute_interruptible(Explorer& explorer, const std::string& line) {
  const InterruptGuard interrupt;
  explorer.set_stop(interrupt.flag());
  const bool open = explorer.execute(line);
  explorer.set_stop(nullptr);
  return open && !interrupt.terminated();
}

int run_explore(const ExploreArgs& args) {
  const Nest nest = args.problem.load();
  const Sizes sizes = args.problem.sizes(nest);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  Explorer explorer(nest, sizes, args.measure.resolve(nest), args.database.resolved_path(), std::cout);
  std::unique_ptr<LineReader> reader =
      make_editing_reader([&](const std::string& line) { return explorer.complete(line); },
                          InputHistory(InputHistory::default_path("explore_history")), screen_of_output().colour);
  if (!reader) reader = make_plain_reader();
  explorer.greet();
  int code = kOk;
  for (bool open = true; open;) {
    require_written();
    const std::optional<std::string> line = reader->read();
    if (!line) break;
    Screen screen = screen_of_output();
    if (!terminal) screen.marks = false;
    explorer.set_screen(screen);
    try {
      open = terminal ? execute_interruptible(explorer, *line) : explorer.execute(*line);
    } catch (const UserError& error) {
      std::cout << painted(printable(shortened(error.what()), true), Ink::red, screen.colour) << "\n";
      if (!terminal) code = kUserError;
    }
  }
  return code;
}

}  // namespace

void add_explore(CLI::App& app, Action& run) {
  auto args = std::make_shared<ExploreArgs>();
  CLI::App* command = app.add_subcommand("explore", "Schedule by hand: type steps, see the loops, ask why, measure, save");
  args->problem.add_to(*command);
  args->database.add_to(*command);
  args->measure.add_to(*command);
  command->footer(R"(examples:
  nestor explore layernorm --rows 512
  printf 'tile(product.i, product.j, io, jo, ii, ji, 32, 64)\nmeasure\n' | nestor explore matmul
Steps may be typed as split(i, 32, io, ii) or split i 32 io ii. With piped input the exit code is 1 when any line failed.
On a terminal Tab completes words, the arrows and Ctrl-R go through earlier lines, Ctrl-C gives up a line or a measurement, Ctrl-D leaves.
)");
  command->callback([args, &run] { run = [args] { return run_explore(*args); }; });
}

}  // namespace nestor::cli
