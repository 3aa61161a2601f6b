// Built-in operators, files, records and random nests.
#include "soak/source.h"

#include "api/operators.h"
#include "db/records/record_reader.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/nests/random_nests.h"
#include "support/nests/random_operators.h"

#include <algorithm>
#include <fstream>
#include <map>

namespace nestor::soak {
namespace {

// Weights of all sources of one kind together: operators are many, random nests one source.
constexpr int kOperatorWeight = 120, kFileWeight = 30, kRandomOperatorWeight = 45, kRandomNestWeight = 35, kRecordWeight = 120;

int share(int weight, std::size_t count) { return std::max(1, weight / static_cast<int>(std::max<std::size_t>(count, 1))); }

bool is_asked(const std::vector<std::string>& asked, const std::string& op, const std::string& variant) {
  return asked.empty() || std::any_of(asked.begin(), asked.end(),
                                      [&](const std::string& name) { return name == op || name == op + ":" + variant; });
}

void add_operators(const SourceOptions& options, std::vector<Source>& sources) {
  std::vector<Source> found;
  for (const OperatorEntry& entry : builtin_operators()) {
    for (const std::string& variant : entry.variants) {
      if (!is_asked(options.operators, entry.op, variant)) continue;
      const std::string op = entry.op;
      found.push_back(
          {fmt::format("{} ({})", op, variant), 1, true, [op, variant](std::uint64_t) { return load_operator(op, variant); }});
    }
  }
  for (const std::string& name : options.operators) {
    const bool known = std::any_of(found.begin(), found.end(), [&](const Source& source) {
      return source.name.starts_with(name.substr(0, name.find(':')) + " ");
    });
    if (!known) user_error("there is no operator {}", name);
  }
  for (Source& source : found) {
    source.weight = share(kOperatorWeight, found.size());
    sources.push_back(std::move(source));
  }
}

void add_records(const std::string& path, std::vector<Source>& sources) {
  std::ifstream in(path, std::ios::binary);
  if (!in) user_error("cannot read {}", path);
  RecordReader reader(in);
  while (const auto read = reader.next()) {
    const Record& record = *read;
    if (record.trial.status != TrialStatus::ok) continue;
    const std::string json = record.nest_json;
    Source source{
        fmt::format("record of {} ({}) at {}", record.problem.op, record.problem.variant, canonical_sizes(record.problem.sizes)),
        1, false, [json](std::uint64_t) { return nest_from_json(nlohmann::json::parse(json)); }};
    source.steps.push_back(nlohmann::json::parse(record.trial.steps));
    source.sizes = record.problem.sizes;
    sources.push_back(std::move(source));
  }
}

Nest random_nest_of(std::uint64_t seed) {
  // Some draws have no instance at all, or use a tensor in a way that no nest may.
  for (std::uint64_t attempt = 0;; ++attempt) {
    legality::Random random(seed + attempt * 1'000'003);
    try {
      Nest nest = legality::runnable_nest(legality::random_nest(random));
      validate(nest);
      return nest;
    } catch (const UserError&) {
      if (attempt == 100) throw;
    }
  }
}

}  // namespace

std::vector<Source> make_sources(const SourceOptions& options) {
  std::vector<Source> sources;
  if (options.builtin) add_operators(options, sources);
  for (const std::string& file : options.files) {
    sources.push_back(
        {"file " + file, share(kFileWeight, options.files.size()), true, [file](std::uint64_t) { return load_operator(file); }});
  }
  const std::size_t before = sources.size();
  for (const std::string& file : options.records) add_records(file, sources);
  for (std::size_t k = before; k < sources.size(); ++k) sources[k].weight = share(kRecordWeight, sources.size() - before);
  if (options.random) {
    sources.push_back({"random operators", kRandomOperatorWeight, true,
                       [](std::uint64_t seed) { return samples::RandomOperator(seed).draw(); }});
    sources.push_back({"random nests", kRandomNestWeight, false, random_nest_of});
  }
  if (sources.empty()) user_error("there is nothing to draw from: no operators, files, records or random nests");
  return sources;
}

}  // namespace nestor::soak
