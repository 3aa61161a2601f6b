// Walks the parser.
#include "cli/commands/option_table.h"

#include <algorithm>

namespace nestor::cli {
namespace {

OptionRow row_of(const CLI::Option& option) {
  OptionRow row;
  row.help = option.get_description();
  row.positional = option.get_positional();
  if (option.get_items_expected_max() > 0) row.values = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  // A list of choices says more than a type; longer texts belong to checks.
  if (row.values.find(' ') != std::string::npos && !row.values.starts_with("{"))
    row.values = row.values.substr(0, row.values.find(' '));
  if (const std::size_t open = row.values.find('{'); open != std::string::npos) row.values = row.values.substr(open);
  if (row.positional) {
    row.names = {option.get_single_name()};
    return row;
  }
  for (const std::string& name : option.get_snames()) row.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.names.push_back("--" + name);
  return row;
}

void add(const CLI::App& app, const std::string& name, std::vector<CommandRow>& table) {
  CommandRow row{name, app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    row.options.push_back(row_of(*option));
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : commands) row.commands.push_back(command->get_name());
  table.push_back(std::move(row));
  for (const CLI::App* command : commands)
    add(*command, name.empty() ? command->get_name() : name + " " + command->get_name(), table);
}

}  // namespace

std::vector<CommandRow> option_table(const CLI::App& app) {
  std::vector<CommandRow> table;
  add(app, "", table);
  return table;
}

}  // namespace nestor::cli
