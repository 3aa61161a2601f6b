// Finds which argument of which step the cursor stands at.
#include "cli/explorer/word_completion.h"

#include "poly/algebra/all_rules.h"
#include "poly/schedule/order/loop_tree.h"
#include "poly/schedule/steps/step_table.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

namespace nestor::cli {
namespace {

/// "loop", "factor", ... of "loop, factor[, width]"; the last one is "..." where any number may follow.
std::vector<std::string> kinds_of(std::string arguments) {
  std::erase_if(arguments, [](char c) { return c == '[' || c == ']' || c == ' '; });
  std::vector<std::string> kinds;
  std::istringstream in(arguments);
  for (std::string kind; std::getline(in, kind, ',');) {
    const bool repeats = kind.ends_with("...");
    if (repeats) kind.resize(kind.size() - 3);
    if (!kind.empty()) kinds.push_back(kind);
    if (repeats) kinds.emplace_back("...");
  }
  return kinds;
}

/// "tile(x, y, xo, ...)" and "skew(x, y, factor)" have loops there as well.
bool is_loop(const std::string& kind) {
  static const std::set<std::string> kKinds{"loop", "x", "y", "outermost", "innermost", "consumer_loop"};
  return kKinds.contains(kind);
}

std::vector<std::string> targets_of(const Nest& nest, const std::string& rule, std::size_t index) {
  std::set<std::string> found;
  for (const RuleMatch& match : find_matches(nest)) {
    if (match.rule == rule && index < match.target.size()) found.insert(match.target[index]);
  }
  return {found.begin(), found.end()};
}

std::vector<std::string> words_for(const Schedule& schedule, const std::string& kind, const std::vector<std::string>& given) {
  std::vector<std::string> words;
  if (is_loop(kind)) return loop_names(schedule.tree());
  if (kind == "statement") {
    for (const Statement& statement : schedule.nest().statements) words.push_back(statement.name);
  } else if (kind == "tensor") {
    for (const Tensor& tensor : schedule.nest().tensors) words.push_back(tensor.name);
  } else if (kind == "rule") {
    for (const Rule& rule : rules()) words.push_back(rule.name);
  } else if (kind == "target" && !given.empty()) {
    return targets_of(schedule.nest(), given.front(), given.size() - 1);
  }
  return words;
}

/// The kind of argument `index`; "" beyond the last.
std::string kind_at(const std::vector<std::string>& kinds, std::size_t index) {
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k] == "...") return k > 0 ? kinds[k - 1] : "";
    if (k == index) return kinds[k];
  }
  return "";
}

}  // namespace

Completion complete_argument(const Schedule& schedule, const std::string& line) {
  constexpr const char* kSeparators = "( \t,";
  const std::size_t name_end = line.find_first_of(kSeparators);
  const auto& table = step_help();
  const auto step =
      std::find_if(table.begin(), table.end(), [&](const StepHelp& known) { return known.name == line.substr(0, name_end); });
  if (name_end == std::string::npos || step == table.end()) return {};
  std::vector<std::string> given;
  std::size_t start = line.find_first_not_of(kSeparators, name_end);
  while (start != std::string::npos) {
    const std::size_t end = line.find_first_of(kSeparators, start);
    if (end == std::string::npos) break;
    given.push_back(line.substr(start, end - start));
    start = line.find_first_not_of(kSeparators, end);
  }
  if (start == std::string::npos) start = line.size();
  const std::vector<std::string> kinds = kinds_of(step->arguments);
  Completion found{start, words_that_begin(words_for(schedule, kind_at(kinds, given.size()), given), line.substr(start)), ""};
  const bool brackets = line[name_end] == '(', last = kind_at(kinds, given.size() + 1).empty();
  found.behind = !brackets ? (last ? "" : " ") : last ? ")" : ", ";
  if (step->arguments.find("...") != std::string::npos || (brackets && step->arguments.find('[') != std::string::npos))
    found.behind = "";  // the list may end here
  return found;
}

std::vector<std::string> words_that_begin(const std::vector<std::string>& words, const std::string& typed) {
  std::vector<std::string> found, by_last_part;
  for (const std::string& word : words) {
    if (word.starts_with(typed)) found.push_back(word);
    const std::size_t dot = word.rfind('.');
    if (dot != std::string::npos && word.compare(dot + 1, typed.size(), typed) == 0) by_last_part.push_back(word);
  }
  if (found.empty()) found = by_last_part;
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> files_that_begin(const std::string& typed) {
  namespace fs = std::filesystem;
  const std::size_t slash = typed.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : typed.substr(0, slash + 1);
  const std::string begin = typed.substr(folder.size());
  std::vector<std::string> found;
  std::error_code failure;
  fs::directory_iterator at(folder.empty() ? "." : folder, failure);
  for (; !failure && at != fs::directory_iterator(); at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(begin) || (begin.empty() && name.starts_with("."))) continue;
    std::error_code ignored;
    found.push_back(folder + name + (at->is_directory(ignored) ? "/" : ""));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace nestor::cli
