// Reads operators, sizes, databases and measuring options from the command line.
#include "cli/arguments/operator_args.h"

#include "api/operators.h"
#include "support/error.h"
#include "support/words/nearest_word.h"
#include "support/words/printable.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

namespace nestor::cli {
namespace {

std::string operator_help() {
  std::vector<std::string> names;
  for (const OperatorEntry& entry : builtin_operators()) names.push_back(entry.op);
  return fmt::format("built-in operator ({}) or path to a .nest.json file", fmt::join(names, ", "));
}

/// The subcommand that `args` names, or null. Only `db` has subcommands of its own, and none of those takes sizes.
const CLI::App* subcommand_of(const CLI::App& app, const std::vector<std::string>& args) {
  for (std::size_t k = 1; k < args.size(); ++k) {
    if (args[k].starts_with("-")) continue;
    const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    const auto found =
        std::find_if(commands.begin(), commands.end(), [&](const CLI::App* c) { return c->get_name() == args[k]; });
    return found == commands.end() ? nullptr : *found;
  }
  return nullptr;
}

/// What begins like a number is one, right or wrong, and no option.
bool is_number(const std::string& text) {
  const std::size_t first = text.find_first_not_of("+-");
  return first != std::string::npos && first <= 1 && std::isdigit(static_cast<unsigned char>(text[first])) != 0;
}

}  // namespace

CLI::Validator positive_number() {
  const auto complaint = [](const std::string& text) {
    double number = 0;
    const bool positive = CLI::detail::lexical_cast(text, number) && number > 0;
    return positive ? std::string() : fmt::format("'{}' is not a number above 0", text);
  };
  return {complaint, "POSITIVE"};
}

CLI::Validator whole_number_between(std::uint64_t least, std::uint64_t most) {
  const auto complaint = [least, most](const std::string& text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = error == std::errc{} && end == text.data() + text.size() && number >= least && number <= most;
    return whole ? std::string() : fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
  };
  return {complaint, "WHOLE"};
}

CLI::Validator one_of(const std::vector<std::string>& words, Meant meant) {
  const auto complaint = [words, meant](const std::string& text) {
    const bool known = std::find(words.begin(), words.end(), text) != words.end();
    return known ? std::string() : fmt::format("'{}' is none of {}{}", text, fmt::join(words, ", "), meant(text, words));
  };
  return {complaint, fmt::format("{{{}}}", fmt::join(words, ","))};
}

CLI::Validator trial_number() { return whole_number_between(1, std::numeric_limits<std::int64_t>::max()); }

void OperatorArgs::add_to(CLI::App& command, bool required) {
  command_ = &command;
  auto* op = command.add_option("OP", source, operator_help());
  if (required) op->required();
  command.add_option("--variant,--dtype", variant,
                     "element type or other variant of the operator, e.g. f32, f16, bf16 (default: its first)");
  command
      .add_option("--sizes", size_texts,
                  "sizes as name=value,...; --<name> <value> does the same, e.g. --rows 4096 (others: defaults)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->take_all();
}

namespace {

/// Which other commands have such an option; empty: none has.
std::string others_with_option(const CLI::App* command, std::string name) {
  if (command == nullptr || command->get_parent() == nullptr) return "";
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<std::string> others;
  for (const CLI::App* other : command->get_parent()->get_subcommands([](const CLI::App*) { return true; })) {
    if (other != command && other->get_option_no_throw("--" + name) != nullptr) others.push_back(other->get_name());
  }
  if (others.empty()) return "";
  return fmt::format(", and --{} is no option of nestor {}, but of {}", name, command->get_name(), fmt::join(others, ", "));
}

/// Refuses another value of what has one.
template <typename Values, typename Value>
void put_once(Values& values, const std::string& name, Value value, const char* what, const Nest& nest) {
  const auto [before, is_new] = values.emplace(name, value);
  if (!is_new && before->second != value)
    user_error("{} {} of {} is given as {} and as {}: give it once", what, name, nest.op, before->second, value);
}

}  // namespace

Nest OperatorArgs::load() const { return load_operator(source, variant); }

Sizes OperatorArgs::sizes(const Nest& nest) const {
  std::vector<std::string> options;
  if (command_ != nullptr) {
    for (const CLI::Option* option : command_->get_options([](const CLI::Option*) { return true; })) {
      for (const std::string& name : option->get_lnames()) options.push_back(name);
    }
  }
  Sizes given;
  for (const std::string& text : size_texts) {
    // The name first: of an option that was misspelt the value is no size.
    std::string name = text.substr(0, text.find('='));
    if (name.empty() || name.size() == text.size()) parse_size(text);  // says how a size is written
    std::replace(name.begin(), name.end(), '-', '_');
    const bool known =
        std::any_of(nest.sizes.begin(), nest.sizes.end(), [&](const SizeParam& size) { return size.name == name; });
    if (!known) {
      std::vector<std::string> words;
      for (const SizeParam& size : nest.sizes) words.push_back(size.name);
      // What was meant as an option of the command comes here as well.
      for (const std::string& option : options) words.push_back("--" + option);
      const auto nearest = nearest_word(name, words), option = nearest_word("--" + name, words);
      const std::string& meant = nearest ? *nearest : option.value_or("");
      user_error("{} has no size '{}'{}; its sizes are {}", nest.op, name,
                 meant.empty() ? others_with_option(command_, name) : "; did you mean '" + meant + "'?", describe_sizes(nest));
    }
    put_once(given, name, parse_size(text).second, "size", nest);
  }
  return complete_sizes(nest, given);
}

void DatabaseArgs::add_to(CLI::App& command) {
  command.add_option("--db", path, "tuning database (default: $NESTOR_DB, else ~/.local/share/nestor/tuning.db)");
  command.add_option("--system-db", system_path, "read-only database consulted after it");
}

std::string DatabaseArgs::resolved_path() const { return path.empty() ? Database::default_path() : path; }

std::string DatabaseArgs::resolved_system_path() const {
  if (!system_path.empty()) return system_path;
  const std::string system = Database::default_system_path();
  std::error_code ignored;
  return std::filesystem::exists(system, ignored) && system != (path.empty() ? Database::default_path_if_any() : path) ? system
                                                                                                                       : "";
}

std::string DatabaseArgs::usable_path() const {
  const std::string system = resolved_system_path();
  const bool chosen = !path.empty() || std::getenv("NESTOR_DB") != nullptr;
  if (chosen || system.empty()) return resolved_path();
  try {
    // Without a home there is no path at all.
    std::string file = resolved_path();
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) Database::open(file);
    return file;
  } catch (const UserError& error) {
    fmt::print(stderr, "nestor: warning: {}; this run keeps its trials in memory alone, beside the system database {}\n",
               printable(error.what(), true), system);
    return kInMemory;
  }
}

Database DatabaseArgs::open(bool read_only) const {
  DatabaseOptions options;
  options.read_only = read_only;
  options.system_path = resolved_system_path();
  const std::string file = usable_path();
  std::error_code ignored;
  if (read_only && path.empty() && file != kInMemory && !std::filesystem::exists(file, ignored)) Database::open(file);
  return Database::open(file, options);
}

void MeasureArgs::add_to(CLI::App& command) {
  command.add_option("--target", target,
                     "device to measure on: host, cuda, cuda:1, cuda/sm_80 (kernels of compute capability 8.0) (default: the "
                     "first GPU, else the host)");
  command.add_option("--gpus", gpus, "GPUs that measure at once, counted from the target's")->check(CLI::Range(1, 64));
  command.add_option("--threads", options.threads, "threads of a kernel on the host (default: all cores)")
      ->check(CLI::Range(0, 4096));
  command
      .add_option("--run-timeout", options.run_timeout_s,
                  "seconds that checking and timing one schedule may take (default: 30 on the host, 12 on a GPU)")
      ->check(positive_number());
  command.add_option("--set", scalar_texts, "scalar arguments as name=value,..., e.g. --set eps=1e-6 (others: defaults)")
      ->delimiter(',');
}

MeasureOptions MeasureArgs::resolve() const {
  MeasureOptions resolved = options;
  resolved.target = target_from(target, gpus);
  return resolved;
}

MeasureOptions MeasureArgs::resolve(const Nest& nest) const {
  MeasureOptions resolved = resolve();
  std::vector<std::string> known;
  known.reserve(nest.scalars.size());
  for (const ScalarParam& scalar : nest.scalars) known.push_back(scalar.name);
  for (const std::string& text : scalar_texts) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals == std::string::npos || std::find(known.begin(), known.end(), name) == known.end()) {
      user_error("'{}' sets no scalar of {}: write name=value; its scalars are {}{}", text, nest.op,
                 known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), did_you_mean(name, known));
    }
    char* end = nullptr;
    const double value = std::strtod(text.c_str() + equals + 1, &end);
    if (end == text.c_str() + equals + 1 || *end != '\0')
      user_error("scalar {}: '{}' is not a number", name, text.substr(equals + 1));
    put_once(resolved.scalars, name, value, "scalar", nest);
  }
  return resolved;
}

std::vector<std::string> rewrite_size_options(const CLI::App& app, std::vector<std::string> args) {
  const CLI::App* command = subcommand_of(app, args);
  if (command == nullptr || command->get_option_no_throw("--sizes") == nullptr) return args;
  std::vector<std::string> rewritten;
  for (std::size_t k = 0; k < args.size(); ++k) {
    const std::string name = args[k].substr(0, args[k].find('='));
    const bool is_size = name.starts_with("--") && name.size() > 2 && command->get_option_no_throw(name) == nullptr &&
                         app.get_option_no_throw(name) == nullptr;
    if (!is_size) {
      rewritten.push_back(args[k]);
      continue;
    }
    std::string assignment = args[k].substr(2);
    if (name.size() == args[k].size()) {
      const bool has_value = k + 1 < args.size() && (!args[k + 1].starts_with("-") || is_number(args[k + 1]));
      if (!has_value)
        user_error("{} is no option of 'nestor {}', and as a size it needs a value: {} 1024", name, command->get_name(), name);
      assignment += "=" + args[++k];
    }
    rewritten.push_back("--sizes=" + assignment);
  }
  return rewritten;
}

}  // namespace nestor::cli
