// Steps as text and as JSON.
#include "poly/schedule/order/step.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <utility>

#include "support/error.h"
#include "support/knobs.h"
#include "support/system/json_text.h"

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

/// The step as it is written today. Records and files have older spellings: those of the table of knobs, warps for lanes, and copies
/// that named a memory, which no back end read.
Step current_spelling(Step step) {
  for (const KnobStep& known : knob_steps()) {
    const auto is_name = [&](const char* name) { return step.name == name; };
    if (std::any_of(known.formerly.begin(), known.formerly.end(), is_name)) step.name = known.name;
  }
  if (step.name == "gpu_warps") step.name = "gpu_lanes";
  if (step.name == "stage" && step.args.size() > 2) {
    const nlohmann::json& memory = step.args[2];
    if (memory == "scratch" || memory == "shared" || memory == "registers") step.args.erase(step.args.begin() + 2);
  }
  return step;
}

}  // namespace

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
    if (arg.is_number_unsigned() && arg.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      user_error("step `{}`: the argument {} does not fit 64 bits", step.name, arg.get<std::uint64_t>());
    step.args.push_back(arg);
  }
  return current_spelling(std::move(step));
}

Step parse_step(const std::string& text) {
  const std::string whole = trimmed(text);
  if (const std::string readable = valid_utf8(whole); readable != whole) user_error("step `{}` is no text in UTF-8", readable);
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
  return current_spelling(std::move(step));
}

}  // namespace nestor
