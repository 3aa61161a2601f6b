// Plans as JSON lines, and shares of them.
#include "api/tuning_plan.h"

#include "api/operators.h"
#include "autotune/space/gpu/known_sizes.h"
#include "db/records/record.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/system/json_text.h"
#include "support/system/text_file.h"
#include "support/words/whole_number.h"

#include <algorithm>
#include <limits>
#include <map>
#include <ostream>
#include <sstream>

namespace nestor {
namespace {

constexpr int kPlanFormat = 1;
constexpr std::size_t kMostShards = 1'000'000;

using SharedNest = std::shared_ptr<const Nest>;

std::string text_at(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) user_error("\"{}\" must be a text", key);
  return found->get<std::string>();
}

Sizes sizes_from(const nlohmann::json& json) {
  const auto found = json.find("sizes");
  if (found == json.end()) return {};
  if (!found->is_object()) user_error("\"sizes\" must map names to integers");
  Sizes sizes;
  for (const auto& [name, value] : found->items()) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    if (!fits) user_error("size {} must be an integer of 64 bits, not {}", name, value.dump());
    sizes[name] = value.get<std::int64_t>();
  }
  return sizes;
}

/// Turns lines into problems; nests are remembered for lines that name them.
class PlanReader {
 public:
  void read(const std::string& line) {
    const nlohmann::json json = json_from_text(line, "the plan");
    if (!json.is_object()) user_error("a line of a plan is a JSON object");
    const auto format = json.find("format");
    if (format == json.end() || *format != kPlanFormat)
      user_error("\"format\" must be {}: a plan is what nestor plan writes, or a newer program wrote it", kPlanFormat);
    if (json.contains("nest")) return read_nest(json);
    if (!json.contains("problem")) user_error("the line has neither \"nest\" nor \"problem\"");
    read_problem(json.at("problem"));
  }
  TuningPlan take() { return std::move(plan_); }

 private:
  void read_nest(const nlohmann::json& json) {
    Nest nest = nest_from_json(json.at("nest"));
    specialize_product_sizes(nest);  // as wherever a nest is loaded
    const std::string made = digest(nest), given = text_at(json, "digest");
    if (made != given)
      user_error("the nest's digest is {}, not {}: the plan was altered, or another version made it", made, given);
    nests_.emplace(given, std::make_shared<const Nest>(std::move(nest)));
  }

  void read_problem(const nlohmann::json& json) {
    if (!json.is_object()) user_error("\"problem\" must be an object");
    plan_.add(nest_of(json), sizes_from(json));
  }

  SharedNest nest_of(const nlohmann::json& json) {
    const std::string op = text_at(json, "op"), variant = json.contains("variant") ? text_at(json, "variant") : "";
    const std::string wanted = json.contains("nest_digest") ? text_at(json, "nest_digest") : "";
    if (const auto found = nests_.find(wanted); found != nests_.end()) {
      const Nest& nest = *found->second;
      if (nest.op != op || nest.variant != variant)
        user_error("the nest {} is of {} ({}), not of {} ({})", wanted, nest.op, nest.variant, op, variant);
      return found->second;
    }
    SharedNest& nest = built_in_[{op, variant}];
    if (!nest) nest = std::make_shared<const Nest>(load_built_in(op, variant));
    if (!wanted.empty() && digest(*nest) != wanted) {
      user_error("the plan has no line with the nest {}, and {} of this program is the nest {}: make the plan with this program",
                 wanted, op, digest(*nest));
    }
    return nest;
  }

  static Nest load_built_in(const std::string& op, const std::string& variant) {
    // A plan from elsewhere does not name files of this machine.
    if (op.find('/') != std::string::npos || op.ends_with(".json"))
      user_error("'{}' is a path: a plan has the nest itself in a line, as nestor plan writes it", op);
    return load_operator(op, variant);
  }

  TuningPlan plan_;
  std::map<std::string, SharedNest> nests_;
  std::map<std::pair<std::string, std::string>, SharedNest> built_in_;
};

std::size_t shard_number(std::string_view text, std::string_view whole) {
  const auto number = whole_number(text);
  if (!number || *number < 0 || *number > static_cast<std::int64_t>(kMostShards))
    user_error("'{}' is no share: write k/n, from 0/8 to 7/8 for eight of them", whole);
  return static_cast<std::size_t>(*number);
}

}  // namespace

void TuningPlan::add(const std::shared_ptr<const Nest>& nest, const Sizes& sizes) {
  std::string& nest_digest = digests_[nest];
  if (nest_digest.empty()) nest_digest = digest(*nest);
  const ProblemKey key{nest->op, nest->variant, nest_digest, complete_sizes(*nest, sizes)};
  if (known_.insert(key.nest_digest + " " + canonical_sizes(key.sizes)).second) problems_.push_back({nest, key});
}

void write_plan(const TuningPlan& plan, std::ostream& out) {
  std::set<std::string> written;
  for (const PlannedProblem& problem : plan.problems()) {
    const ProblemKey& key = problem.key;
    if (written.insert(key.nest_digest).second) {
      const nlohmann::json line{{"format", kPlanFormat}, {"digest", key.nest_digest}, {"nest", nest_to_json(*problem.nest)}};
      out << line.dump() << '\n';
    }
    const nlohmann::json line{
        {"format", kPlanFormat},
        {"problem", {{"op", key.op}, {"variant", key.variant}, {"nest_digest", key.nest_digest}, {"sizes", key.sizes}}}};
    out << line.dump() << '\n';
  }
}

TuningPlan read_plan(std::istream& in) {
  PlanReader reader;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      reader.read(line);
    } catch (const UserError& error) {
      user_error("line {}: {}", number, error.what());
    }
  }
  return reader.take();
}

TuningPlan load_plan(const std::string& path) {
  std::istringstream in(text_of_file(path));
  const std::string name = path == "-" ? "standard input" : path;
  TuningPlan plan;
  try {
    plan = read_plan(in);
  } catch (const UserError& error) {
    user_error("{}, {}", name, error.what());
  }
  if (plan.problems().empty()) user_error("{} has no problem in it: make a plan with nestor plan", name);
  return plan;
}

Shard shard_from(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string_view count = slash < text.size() ? text.substr(slash + 1) : std::string_view();
  const Shard shard{shard_number(text.substr(0, slash), text), shard_number(count, text)};
  if (shard.count == 0 || shard.index >= shard.count) {
    const std::size_t n = shard.count;
    if (n <= 1) user_error("there is no share {}: write 0/4 for the first of four; all of a plan is 0/1", text);
    user_error("there is no share {}: shares are counted from 0, so {} are 0/{} to {}/{}", text, n, n, n - 1, n);
  }
  return shard;
}

std::vector<PlannedProblem> share_of(const TuningPlan& plan, const Shard& shard) {
  std::vector<PlannedProblem> share;
  for (std::size_t k = shard.index; k < plan.problems().size(); k += shard.count) share.push_back(plan.problems()[k]);
  return share;
}

}  // namespace nestor
