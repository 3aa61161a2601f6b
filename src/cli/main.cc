// nestor: parses the command line, runs one subcommand, turns failures into messages and exit codes.
#include "cli/arguments/operator_args.h"
#include "cli/commands/commands.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "support/debug.h"
#include "support/error.h"
#include "support/system/standard_streams.h"
#include "support/words/nearest_word.h"
#include "support/words/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>

#ifndef NESTOR_VERSION
#error "NESTOR_VERSION comes from the build"
#endif

namespace nestor::cli {
namespace {

constexpr const char* kFooter = R"(examples:
  nestor tune layernorm --rows 4096 --width 1024 --time 60
  nestor query layernorm --rows 4000 --width 1024
  nestor show attention --as loops
  nestor explore matmul
  nestor COMMAND --help

exit codes: 0 done, 1 bad input, 2 a bug in nestor, 3 no kernel found, 4 the device failed, 5 a check failed,
            130 interrupted (everything measured is stored)
)";

int fail(const char* kind, const std::string& whole, int code) {
  const std::string message = shortened(whole);
  try {
    if (output_mode().json) print_json({{"error", {{"kind", kind}, {"message", message}}}});
  } catch (const UserError&) {  // standard error has it, too
  }
  print_error(fmt::format("nestor: {}{}\n", code == kInternalError ? "internal error (please report it): " : "",
                          printable(message, true)));
  return code;
}

using Words = std::vector<std::string>;

Words commands_of(const CLI::App& app) {
  Words names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  return names;
}

/// What a word was meant to be that is no command, or an option that no command has.
std::string meant_word(const CLI::App& app, const Words& args) {
  const CLI::App* command = &app;
  Words options;
  const auto add_options = [&] {
    for (const CLI::Option* option : command->get_options([](const CLI::Option*) { return true; })) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
  };
  add_options();
  for (std::size_t k = 1; k < args.size(); ++k) {
    const std::string name = args[k].substr(0, args[k].find('='));
    if (name.starts_with("--")) {
      if (command != &app && std::find(options.begin(), options.end(), name) == options.end()) return did_you_mean(name, options);
      continue;
    }
    const Words commands = commands_of(*command);
    if (commands.empty() || name.starts_with("-")) continue;
    if (std::find(commands.begin(), commands.end(), name) == commands.end()) return did_you_mean(name, commands);
    command = command->get_subcommand(name);
    add_options();
  }
  return "";
}

int parse_and_run(CLI::App& app, const std::vector<std::string>& raw, const Action& run) {
  std::vector<std::string> args = rewrite_size_options(app, raw);
  args.erase(args.begin());
  std::reverse(args.begin(), args.end());
  try {
    app.parse(args);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help, or the version
    return fail("user", fmt::format("{}{} (see 'nestor --help')", error.what(), meant_word(app, raw)), kUserError);
  }
  return run();
}

int run_program(int argc, char** argv) {
  occupy_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write
  CLI::App app(
      "Nestor proves which orders of a loop nest are legal, searches them for the fastest, and remembers what it measured.",
      "nestor");
  app.set_version_flag("--version", "nestor " NESTOR_VERSION);
  app.add_flag("--json", output_mode().json, "write JSON for programs instead of text for people");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  Action run;
  add_tune(app, run);
  add_plan(app, run);
  add_query(app, run);
  add_explore(app, run);
  add_show(app, run);
  add_verify(app, run);
  add_bench(app, run);
  add_report(app, run);
  add_db(app, run);
  add_devices(app, run);
  add_completion(app, run);
  add_manual(app, run);
  const std::vector<std::string> args(argv, argv + argc);
  output_mode().json = std::find(args.begin(), args.end(), "--json") != args.end();
  if (const char* debug = std::getenv("NESTOR_DEBUG")) {
    const std::string unknown = unknown_debug_switches(debug);
    if (!unknown.empty()) print_error(fmt::format("nestor: NESTOR_DEBUG has no switch {} (see docs/debugging.md)\n", unknown));
  }
  try {
    const int code = parse_and_run(app, args, run);
    require_written();
    return code;
  } catch (const UserError& error) {
    return fail("user", error.what(), kUserError);
  } catch (const DeviceError& error) {
    return fail("device", error.what(), kDeviceError);
  } catch (const std::bad_alloc&) {
    return fail("user", "out of memory", kUserError);
  } catch (const std::exception& error) {
    return fail("internal", error.what(), kInternalError);
  }
}

}  // namespace
}  // namespace nestor::cli

int main(int argc, char** argv) { return nestor::cli::run_program(argc, argv); }
