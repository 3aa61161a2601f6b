// Steps as text and as JSON, and the table of all steps.
#include <algorithm>
#include <cctype>
#include <charconv>

#include "poly/schedule/steps/editor.h"
#include "support/error.h"

namespace nestor {
namespace {

std::string argument_text(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

bool is_integer(const std::string& text) {
  const std::size_t start = text.starts_with('-') ? 1 : 0;
  return text.size() > start && std::all_of(text.begin() + static_cast<std::ptrdiff_t>(start), text.end(),
                                            [](unsigned char c) { return std::isdigit(c) != 0; });
}

nlohmann::json argument_from(const std::string& text, const std::string& whole) {
  if (!is_integer(text)) return text;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) user_error("step `{}`: the number {} is too large", whole, text);
  return value;
}

std::string trimmed(const std::string& text) {
  const auto space = [](unsigned char c) { return std::isspace(c) != 0; };
  const auto begin = std::find_if_not(text.begin(), text.end(), space);
  const auto end = std::find_if_not(text.rbegin(), text.rend(), space).base();
  return begin < end ? std::string(begin, end) : std::string();
}

std::vector<std::string> split_at(const std::string& text, const std::string& separators) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words = split_at(text, " \t\r\n,");
  std::erase_if(words, [](const std::string& word) { return word.empty(); });
  return words;
}

}  // namespace

const std::vector<ScheduleEditor::Entry>& ScheduleEditor::entries() {
  using E = ScheduleEditor;
  static const std::vector<Entry> table{
      {"apply_rule", "rule, target...", "rewrite the nest by an algebra rule; before any other step", &E::apply_rule},
      {"split", "loop, factor, outer, inner", "loop = factor*outer + inner, 0 <= inner < factor", &E::split},
      {"tile", "x, y, xo, yo, xi, yi, fx, fy", "split x and y, then reorder to xo, yo, xi, yi", &E::tile},
      {"reorder", "outermost, ..., innermost", "permute loops of one perfect chain", &E::reorder},
      {"fuse_with", "loop, consumer_loop", "make two loops of one body one loop, named as the second", &E::fuse_with},
      {"compute_at", "statement, loop", "fuse the statement's loops, from the outside in, until it is inside loop",
       &E::compute_at},
      {"fission", "loop, statement", "cut the loop's body before the statement; the later loop gets \"_f\" appended",
       &E::fission},
      {"skew", "x, y, factor", "y' = y + factor*x, for x outside y", &E::skew},
      {"shift", "statement, loop, distance", "run the statement `distance` iterations later in loop", &E::shift},
      {"reverse", "loop", "run the loop backwards", &E::reverse},
      {"parallel", "loop", "run iterations as parallel tasks", &E::parallel},
      {"vectorize", "loop[, width]", "run iterations in vector lanes", &E::vectorize},
      {"unroll", "loop[, factor]", "unroll the loop", &E::unroll},
      {"serial", "loop", "run iterations one after the other again", &E::serial},
      {"gpu_blocks", "loop, ...", "one GPU block for each iteration", &E::gpu_blocks},
      {"gpu_warps", "loop", "spread iterations over the warps of a block", &E::gpu_warps},
      {"gpu_lanes", "loop", "spread iterations over the lanes of a warp", &E::gpu_lanes},
      {"gpu_threads", "loop, count", "threads of a block of this grid", &E::gpu_threads},
      {"cluster", "loop, blocks", "so many GPU blocks take one iteration together", &E::cluster},
      {"persistent", "loop, blocks", "so many GPU blocks a multiprocessor, each taking iterations in turn", &E::persistent},
      {"tensor_cores", "loop, groups[, slots]",
       "products on tensor cores, operands rounded to 16 bits: groups of four warps, slots for the tiles of each operand",
       &E::tensor_cores},
      {"overlap", "loop[, chains]",
       "products that only the next iteration needs run beside its first ones; independent chains of products one by one, the "
       "first products of so many under way",
       &E::overlap},
      {"turns", "loop", "groups issue their products in turn", &E::turns},
      {"hold", "loop", "a first operand that stays for the whole iteration is held in registers", &E::hold},
      {"residents", "loop, blocks", "so many blocks of this grid shall fit a multiprocessor at once", &E::residents},
      {"claims", "loop", "resident blocks claim their next iteration from a counter instead of going round", &E::claims},
      {"stagger", "loop", "slots are given back in the middle of the exponentials behind their product", &E::stagger},
      {"polynomial", "loop, sixteenths", "so many sixteenths of a tile's exponentials are computed by a polynomial",
       &E::polynomial},
      {"stage", "tensor, loop, memory[, slots]", "copy what an iteration of loop reads of tensor to scratch, shared or registers",
       &E::stage},
      {"specialize", "loop", "separate full tiles from partial ones", &E::specialize},
      {"streaming", "tensor", "accesses to an input or output touched once bypass the caches", &E::streaming},
  };
  return table;
}

const std::vector<StepHelp>& step_help() {
  static const std::vector<StepHelp> help = [] {
    std::vector<StepHelp> list;
    for (const ScheduleEditor::Entry& entry : ScheduleEditor::entries())
      list.push_back({entry.name, entry.arguments, entry.help});
    return list;
  }();
  return help;
}

std::string describe(const Step& step) {
  std::string text = step.name + "(";
  for (std::size_t k = 0; k < step.args.size(); ++k) text += (k > 0 ? ", " : "") + argument_text(step.args[k]);
  return text + ")";
}

nlohmann::json step_to_json(const Step& step) { return {{"name", step.name}, {"args", step.args}}; }

Step step_from_json(const nlohmann::json& json) {
  if (json.is_string()) return parse_step(json.get<std::string>());
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) {
    user_error("a step must be an object with a string \"name\" and an array \"args\", not {}", json.dump());
  }
  Step step{json["name"].get<std::string>(), {}};
  const nlohmann::json args = json.value("args", nlohmann::json::array());
  if (!args.is_array()) user_error("step `{}`: \"args\" must be an array, not {}", step.name, args.dump());
  for (const nlohmann::json& arg : args) {
    if (!arg.is_string() && !arg.is_number_integer()) {
      user_error("step `{}`: an argument must be a string or an integer, not {}", step.name, arg.dump());
    }
    step.args.push_back(arg);
  }
  return step;
}

Step parse_step(const std::string& text) {
  const std::string whole = trimmed(text);
  const std::size_t name_end = std::min(whole.find_first_of("( \t,"), whole.size());
  Step step{whole.substr(0, name_end), {}};
  if (step.name.empty()) user_error("`{}` is no step: write name(argument, ...), for example split(i, 32, io, ii)", whole);
  const std::string rest = trimmed(whole.substr(name_end));
  std::vector<std::string> parts;
  if (rest.starts_with('(')) {
    if (!rest.ends_with(')') || rest.find(')') != rest.size() - 1)
      user_error("step `{}`: the argument list must end in one ')'", whole);
    const std::string inner = trimmed(rest.substr(1, rest.size() - 2));
    if (!inner.empty()) parts = split_at(inner, ",");
    for (std::string& part : parts) part = trimmed(part);
  } else {
    parts = words_of(rest);
  }
  for (const std::string& part : parts) {
    if (part.empty()) user_error("step `{}`: an argument is empty", whole);
    if (part.find_first_of("() \t") != std::string::npos) user_error("step `{}`: `{}` is no argument", whole, part);
    step.args.push_back(argument_from(part, whole));
  }
  return step;
}

}  // namespace nestor
