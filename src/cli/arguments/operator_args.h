// Arguments that name a problem: an operator, its variant and its sizes; shared by most subcommands.
#pragma once

#include "autotune/target/measure_options.h"
#include "db/database.h"
#include "poly/nest/nest.h"

#include "support/words/nearest_word.h"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace nestor::cli {

/// Accepts numbers above 0. (CLI11's own refusal prints the largest double, all 309 digits of it.)
CLI::Validator positive_number();

/// Accepts whole numbers from `least` to `most`. (CLI11 takes the largest one for what 64 bits do not hold, and -1 for the largest.)
CLI::Validator whole_number_between(std::uint64_t least, std::uint64_t most);
/// Accepts numbers that a trial may have.
CLI::Validator trial_number();
/// What a word was meant to be, as did_you_mean() says it.
using Meant = std::string (*)(std::string_view word, const std::vector<std::string>& known);
/// One of these words; another one gets the nearest of them.
CLI::Validator one_of(const std::vector<std::string>& words, Meant meant = did_you_mean);

struct OperatorArgs {
  std::string source;
  std::string variant;
  std::vector<std::string> size_texts;  ///< "rows=4096", in the order given

  /// Adds OP, --variant and --sizes. `required`: whether OP must be given.
  void add_to(CLI::App& command, bool required = true);
  Nest load() const;
  /// Sizes as given, checked by name and value; missing ones take their default. Throws UserError listing the sizes, or where one has two values.
  Sizes sizes(const Nest& nest) const;

 private:
  const CLI::App* command_ = nullptr;  ///< that these arguments belong to
};

/// Where trials are stored: --db and --system-db.
struct DatabaseArgs {
  std::string path;
  std::string system_path;

  void add_to(CLI::App& command);
  std::string resolved_path() const;
  /// --system-db, else the system's own if there is one, else "".
  std::string resolved_system_path() const;
  /// The path, or kInMemory where the default database cannot be made and there is one of the system; a line on stderr says so.
  std::string usable_path() const;
  /// The default database is made when it is not there yet.
  Database open(bool read_only) const;
};

/// How kernels are measured: --target, --gpus, --threads, --run-timeout, --set NAME=VALUE.
struct MeasureArgs {
  MeasureOptions options;
  std::string target;
  int gpus = 1;
  std::vector<std::string> scalar_texts;

  void add_to(CLI::App& command);
  /// Checks the names of scalars against the nest, and that the device is there. Throws UserError.
  MeasureOptions resolve(const Nest& nest) const;
  /// The same without scalars.
  MeasureOptions resolve() const;
};

/// Turns `--rows 4096` and `--rows=4096` into `--sizes rows=4096` wherever `--rows` is no option of the subcommand that
/// `args` (the program's name first) names. Throws UserError when a value is missing.
std::vector<std::string> rewrite_size_options(const CLI::App& app, std::vector<std::string> args);

}  // namespace nestor::cli
