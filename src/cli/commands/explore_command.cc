// nestor explore: a prompt where one types steps and sees the loop nest after each.
#include "api/operators.h"
#include "cli/arguments/operator_args.h"
#include "cli/arguments/schedule_source.h"
#include "cli/commands/commands.h"
#include "cli/commands/explorer.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "support/error.h"

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

int run_explore(const ExploreArgs& args) {
  const Nest nest = args.problem.load();
  const Sizes sizes = args.problem.sizes(nest);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  Explorer explorer(nest, sizes, args.measure.resolve(nest), args.database.resolved_path(), std::cout);
  std::cout << fmt::format("{} ({}) at {}; 'help' lists what can be typed\n", nest.op, nest.variant, format_sizes(sizes));
  std::cout << explorer.schedule().str();
  int code = kOk;
  std::string line;
  for (bool open = true; open;) {
    if (terminal) std::cout << "> ";
    require_written();
    if (!std::getline(std::cin, line)) break;
    if (!terminal) std::cout << "> " << line << "\n";
    try {
      open = explorer.execute(line);
    } catch (const UserError& error) {
      std::cout << shortened(error.what()) << "\n";
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
)");
  command->callback([args, &run] { run = [args] { return run_explore(*args); }; });
}

}  // namespace nestor::cli
