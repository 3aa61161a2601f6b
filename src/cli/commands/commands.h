// The subcommands of `nestor`: each file adds one to the program.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace nestor::cli {

/// Registers a subcommand; `run` is set to its action, which returns an exit code, when the subcommand was given.
using Action = std::function<int()>;
void add_tune(CLI::App& app, Action& run);
void add_plan(CLI::App& app, Action& run);
void add_query(CLI::App& app, Action& run);
void add_explore(CLI::App& app, Action& run);
void add_show(CLI::App& app, Action& run);
void add_verify(CLI::App& app, Action& run);
void add_bench(CLI::App& app, Action& run);
void add_report(CLI::App& app, Action& run);
void add_db(CLI::App& app, Action& run);
void add_devices(CLI::App& app, Action& run);
void add_completion(CLI::App& app, Action& run);
void add_manual(CLI::App& app, Action& run);

}  // namespace nestor::cli
