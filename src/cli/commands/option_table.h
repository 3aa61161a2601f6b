// The commands and options of the program as a table, read from the parser itself: completion and manual pages are made of it.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace nestor::cli {

struct OptionRow {
  std::vector<std::string> names;  ///< "--trials", "-h"; of an argument that is told by its place its name, "OP"
  std::string help;
  std::string values;  ///< what it takes, as --help shows it ("INT", "TEXT ..."); "" for a switch
  bool positional = false;
  bool switched() const { return values.empty(); }
};

struct CommandRow {
  std::string name;  ///< "tune", "db export"; "" for the program
  std::string help;
  std::string footer;
  std::vector<OptionRow> options;
  std::vector<std::string> commands;  ///< the words that may follow
};

/// The program first, then each command, followed by those below it.
std::vector<CommandRow> option_table(const CLI::App& app);

}  // namespace nestor::cli
