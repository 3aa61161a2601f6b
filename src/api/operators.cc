// Looks operators up among the embedded nests, or loads them from files.
#include "api/operators.h"

#include "autotune/space/gpu/known_sizes.h"
#include "poly/nest/nest_json.h"
#include "support/embedded_nests.h"
#include "support/error.h"
#include "support/words/nearest_word.h"
#include "support/words/whole_number.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace nestor {
namespace {

bool is_path(const std::string& source) { return source.find('/') != std::string::npos || source.ends_with(".json"); }

Nest load_file(const std::string& path, const std::string& variant) {
  Nest nest = load_nest(path);
  if (!variant.empty() && variant != nest.variant) {
    user_error("{} defines the variant '{}' of {}, not '{}'", path, nest.variant, nest.op, variant);
  }
  return nest;
}

const OperatorEntry& find_operator(const std::vector<OperatorEntry>& operators, const std::string& name) {
  for (const OperatorEntry& entry : operators) {
    if (entry.op == name) return entry;
  }
  std::vector<std::string> names;
  names.reserve(operators.size());
  for (const OperatorEntry& entry : operators) names.push_back(entry.op);
  user_error("there is no operator '{}'{}; built in are {}; any other operator can be given as a path to its .nest.json file",
             name, did_you_mean(name, names), fmt::join(names, ", "));
}

}  // namespace

std::vector<OperatorEntry> builtin_operators() {
  std::vector<OperatorEntry> operators;
  for (const EmbeddedNest& nest : embedded_nests()) {
    auto entry = std::find_if(operators.begin(), operators.end(), [&](const OperatorEntry& e) { return e.op == nest.op; });
    if (entry == operators.end()) entry = operators.insert(operators.end(), {std::string(nest.op), {}});
    entry->variants.emplace_back(nest.variant);
  }
  std::sort(operators.begin(), operators.end(), [](const OperatorEntry& a, const OperatorEntry& b) { return a.op < b.op; });
  return operators;
}

namespace {

Nest nest_of(const std::string& source, const std::string& variant) {
  if (is_path(source)) return load_file(source, variant);
  const std::vector<OperatorEntry> operators = builtin_operators();
  const OperatorEntry& entry = find_operator(operators, source);
  const std::string& wanted = variant.empty() ? entry.variants.front() : variant;
  for (const EmbeddedNest& nest : embedded_nests()) {
    if (nest.op == source && nest.variant == wanted) return nest_from_json(nlohmann::json::parse(nest.json));
  }
  user_error("{} does not take '{}'{}; it takes {}", source, wanted, did_you_mean(wanted, entry.variants),
             fmt::join(entry.variants, ", "));
}

}  // namespace

Nest load_operator(const std::string& source, const std::string& variant) {
  Nest nest = nest_of(source, variant);
  specialize_product_sizes(nest);
  return nest;
}

std::string describe_sizes(const Nest& nest) {
  std::vector<std::string> sizes;
  for (const SizeParam& size : nest.sizes) {
    const std::string range = size.max ? fmt::format("{}..{}", size.min, *size.max) : fmt::format(">= {}", size.min);
    sizes.push_back(fmt::format("{} ({}{}, default {})", size.name, range, size.specialized ? ", fixed when compiled" : "",
                                size.default_value));
  }
  return sizes.empty() ? "none" : fmt::format("{}", fmt::join(sizes, ", "));
}

Sizes specialized_sizes(const Nest& nest, const Sizes& sizes) {
  Sizes fixed;
  for (const SizeParam& size : nest.sizes) {
    if (size.specialized) fixed[size.name] = sizes.at(size.name);
  }
  return fixed;
}

std::string nest_to_text(const Nest& nest) { return nest_to_json(nest).dump(); }

std::pair<std::string, std::int64_t> parse_size(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    user_error("'{}' is no size: write name=value, for example rows=4096", text);
  }
  const std::string_view digits = text.substr(equals + 1);
  const auto value = whole_number(digits);
  if (!value) {
    user_error("size {}: '{}' is not an integer of 64 bits; write 4096, 4k (times 1024; M and G likewise) or 1e6",
               text.substr(0, equals), digits.size() > 64 ? std::string(digits.substr(0, 64)) + "..." : std::string(digits));
  }
  return {std::string(text.substr(0, equals)), *value};
}

}  // namespace nestor
