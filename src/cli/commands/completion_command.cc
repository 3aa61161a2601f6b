// nestor completion: scripts that let a shell complete commands, options, operators and files.
#include "api/operators.h"
#include "cli/arguments/operator_args.h"
#include "cli/commands/commands.h"
#include "cli/commands/option_table.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

namespace nestor::cli {
namespace {

using Table = std::vector<CommandRow>;

bool takes_operator(const CommandRow& command) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [](const OptionRow& option) { return option.positional && option.names.front() == "OP"; });
}

std::string operator_words() {
  std::vector<std::string> words;
  for (const OperatorEntry& entry : builtin_operators()) words.push_back(entry.op);
  return fmt::format("{}", fmt::join(words, " "));
}

/// What may follow a command: its options, those of the program, commands below it, operators.
std::string words_after(const CommandRow& command, const CommandRow& program) {
  std::vector<std::string> words;
  for (const CommandRow* row : {&command, &program}) {
    for (const OptionRow& option : row->options) {
      if (!option.positional) words.insert(words.end(), option.names.begin(), option.names.end());
    }
    if (row == &program || command.name.empty()) break;
  }
  if (!command.name.empty()) words.emplace_back("--json");
  words.insert(words.end(), command.commands.begin(), command.commands.end());
  std::string text = fmt::format("{}", fmt::join(words, " "));
  return takes_operator(command) ? text + " " + operator_words() : text;
}

/// The words of a command up to the one that is typed, in bash and zsh alike.
constexpr const char* kBashHead = R"(# bash completion of nestor; made by `nestor completion bash`
_nestor() {
  local typed=${COMP_WORDS[COMP_CWORD]} command= k words=
  for ((k = 1; k < COMP_CWORD; ++k)); do
    case ${COMP_WORDS[k]} in
      -*) ;;
      *)
        if [[ -z $command ]]; then
          command=${COMP_WORDS[k]}
        elif [[ $command == db ]]; then
          command="db ${COMP_WORDS[k]}"
        fi
        ;;
    esac
  done
  case $command in
)";

std::string bash_script(const Table& table) {
  std::string text = kBashHead;
  for (const CommandRow& command : table)
    text += fmt::format("    '{}') words='{}' ;;\n", command.name, words_after(command, table.front()));
  return text + R"(  esac
  COMPREPLY=($(compgen -W "$words" -- "$typed"))
}
complete -o bashdefault -o default -F _nestor nestor
)";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// Inside '...' of a shell, and between brackets of _arguments.
std::string zsh_help(const std::string& text) {
  return replaced(replaced(replaced(replaced(text, "'", "'\\''"), "[", "("), "]", ")"), "\n", " ");
}

std::string zsh_arguments(const CommandRow& command) {
  std::string text = "_arguments";
  for (const OptionRow& option : command.options) {
    if (option.positional) continue;
    for (const std::string& name : option.names)
      text += fmt::format(" \\\n        '{}[{}]{}'", name, zsh_help(option.help), option.switched() ? "" : ":value:_files");
  }
  if (takes_operator(command))
    text += fmt::format(" \\\n        '1:operator:_alternative \"operators\\:operator\\:({})\" files\\:file\\:_files'",
                        operator_words());
  if (!command.commands.empty()) text += fmt::format(" \\\n        '1:command:({})'", fmt::join(command.commands, " "));
  return text + " \\\n        '*:file:_files'";
}

std::string zsh_script(const Table& table) {
  std::string text =
      "#compdef nestor\n# zsh completion of nestor; made by `nestor completion zsh`\n_nestor() {\n  local command= word\n"
      "  integer k\n  for ((k = 2; k < CURRENT; ++k)); do\n    word=$words[k]\n    [[ $word == -* ]] && continue\n"
      "    if [[ -z $command ]]; then command=$word\n    elif [[ $command == db ]]; then command=\"db $word\"\n    fi\n  done\n"
      "  local depth=${#${(z)command}}\n  words=(nestor \"${(@)words[2 + depth,-1]}\")\n  ((CURRENT -= depth))\n  case $command "
      "in\n";
  for (const CommandRow& command : table)
    text += fmt::format("    '{}')\n      {}\n      ;;\n", command.name, zsh_arguments(command));
  return text + "  esac\n}\n_nestor \"$@\"\n";
}

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(replaced(text, "\\", "\\\\"), "'", "\\'"), "\n", " ") + "'";
}

std::string fish_options(const CommandRow& command, const std::string& condition) {
  std::string text;
  for (const OptionRow& option : command.options) {
    if (option.positional) continue;
    for (const std::string& name : option.names) {
      const bool is_long = name.starts_with("--");
      text += fmt::format("complete -c nestor -n {} {} {}{} -d {}\n", fish_quoted(condition), is_long ? "-l" : "-s",
                          name.substr(is_long ? 2 : 1), option.switched() ? "" : " -r", fish_quoted(option.help));
    }
  }
  return text;
}

std::string fish_script(const Table& table) {
  std::string text = "# fish completion of nestor; made by `nestor completion fish`\n";
  const auto help_of = [&](const std::string& name) {
    return std::find_if(table.begin(), table.end(), [&](const CommandRow& row) { return row.name == name; })->help;
  };
  for (const CommandRow& command : table) {
    const std::size_t space = command.name.find(' ');
    std::string condition = "__fish_use_subcommand";
    if (!command.name.empty()) condition = "__fish_seen_subcommand_from " + command.name.substr(0, space);
    if (space != std::string::npos) condition += "; and __fish_seen_subcommand_from " + command.name.substr(space + 1);
    text += fish_options(command, condition);
    for (const std::string& below : command.commands) {
      const std::string name = command.name.empty() ? below : command.name + " " + below;
      text += fmt::format("complete -c nestor -f -n {} -a {} -d {}\n", fish_quoted(condition), below, fish_quoted(help_of(name)));
    }
    if (takes_operator(command))
      text += fmt::format("complete -c nestor -n {} -a {}\n", fish_quoted(condition), fish_quoted(operator_words()));
  }
  return text;
}

}  // namespace

void add_completion(CLI::App& app, Action& run) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes nestor's commands in a shell");
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(one_of({"bash", "zsh", "fish"}));
  command->footer(R"(examples:
  nestor completion bash > ~/.local/share/bash-completion/completions/nestor
  nestor completion zsh > ~/.zfunc/_nestor
  nestor completion fish > ~/.config/fish/completions/nestor.fish
)");
  command->callback([&app, shell, &run] {
    run = [&app, shell] {
      const Table table = option_table(app);
      print(*shell == "bash" ? bash_script(table) : *shell == "zsh" ? zsh_script(table) : fish_script(table));
      return kOk;
    };
  });
}

}  // namespace nestor::cli
