// Subcommands of `nestor db` about where records come from and go to: trust, sign, backup, merge, migrate.
#pragma once

#include "cli/arguments/operator_args.h"
#include "cli/commands/commands.h"

#include <memory>

namespace nestor::cli {

/// `database`: where the file is told, for all of them.
void add_db_sources(CLI::App& db, const std::shared_ptr<DatabaseArgs>& database, Action& run);

}  // namespace nestor::cli
