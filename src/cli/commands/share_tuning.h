// nestor tune --plan: the problems of a plan, or a share of them.
#pragma once

#include "autotune/tuner.h"
#include "cli/arguments/operator_args.h"

#include <string>

namespace nestor::cli {

struct ShareArgs {
  std::string plan;           ///< file; "": one problem is tuned
  std::string shard = "0/1";  ///< k/n
  std::string export_file;    ///< "": none
};

/// Adds --plan, --shard and --export. Options that name one problem are refused beside them.
void add_share(CLI::App& command, ShareArgs& args);

/// Tunes the share; `each`: what every problem gets. Returns an exit code.
int run_share(const ShareArgs& args, TuneRequest& each, const DatabaseArgs& database);

}  // namespace nestor::cli
