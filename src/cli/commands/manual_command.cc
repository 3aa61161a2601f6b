// nestor manual: manual pages made of the table of commands and options.
#include "cli/commands/commands.h"
#include "cli/commands/option_table.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"
#include "support/error.h"
#include "support/words/nearest_word.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <memory>

namespace nestor::cli {
namespace {

/// Text that troff prints as it is.
std::string plain(const std::string& text) {
  std::string escaped;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
    line_begins = c == '\n';
  }
  return escaped;
}

std::string page_name(const std::string& command) {
  std::string name = command.empty() ? "nestor" : "nestor-" + command;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string synopsis(const CommandRow& command) {
  std::string text = command.name.empty() ? "nestor" : "nestor " + command.name;
  for (const OptionRow& option : command.options) {
    if (option.positional) text += " " + option.names.front();
  }
  return text + (command.commands.empty() ? " [options]" : " COMMAND [options]");
}

std::string options_text(const CommandRow& command) {
  std::string text;
  for (const OptionRow& option : command.options) {
    std::vector<std::string> names;
    for (const std::string& name : option.names) names.push_back("\\fB" + plain(name) + "\\fR");
    const std::string values = option.switched() || option.positional ? "" : " \\fI" + plain(option.values) + "\\fR";
    text += fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "), values, plain(option.help));
  }
  return text;
}

std::string commands_text(const CommandRow& command, const std::vector<CommandRow>& table) {
  std::string text;
  for (const std::string& below : command.commands) {
    const std::string name = command.name.empty() ? below : command.name + " " + below;
    const auto row = std::find_if(table.begin(), table.end(), [&](const CommandRow& other) { return other.name == name; });
    text += fmt::format(".TP\n.B {}\n{} See \\fB{}\\fR(1).\n", plain(below), plain(row->help) + ".", plain(page_name(name)));
  }
  return text;
}

std::string page(const CommandRow& command, const std::vector<CommandRow>& table) {
  std::string upper = page_name(command.name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text = fmt::format(".TH {} 1 \"\" \"nestor\" \"User commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n", upper,
                                 plain(page_name(command.name)), plain(command.help), plain(synopsis(command)));
  if (!command.commands.empty()) text += ".SH COMMANDS\n" + commands_text(command, table);
  text += ".SH OPTIONS\n" + options_text(command);
  if (!command.footer.empty()) text += ".SH NOTES\n.nf\n" + plain(command.footer) + ".fi\n";
  text += ".SH EXIT STATUS\n.nf\n";
  text +=
      "0 done, 1 bad input, 2 a bug in nestor, 3 no kernel found, 4 the device failed, 5 a check failed, 130 interrupted\n.fi\n";
  return text;
}

}  // namespace

void add_manual(CLI::App& app, Action& run) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("manual", "Print the manual page of nestor, or of one of its commands");
  command->add_option("COMMAND", *words, "the words of a command, e.g. tune, or db export (default: nestor itself)");
  command->footer("examples:\n  nestor manual | man -l -\n  nestor manual db export | man -l -\n");
  command->callback([&app, words, &run] {
    run = [&app, words] {
      const std::vector<CommandRow> table = option_table(app);
      const std::string name = fmt::format("{}", fmt::join(*words, " "));
      const auto row = std::find_if(table.begin(), table.end(), [&](const CommandRow& other) { return other.name == name; });
      std::vector<std::string> names;
      for (const CommandRow& known : table) names.push_back(known.name);
      if (row == table.end()) user_error("there is no command '{}'{}", name, did_you_mean(name, names));
      print(page(*row, table));
      return kOk;
    };
  });
}

}  // namespace nestor::cli
