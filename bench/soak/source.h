// Sources: where the nests of a soak come from.
#pragma once

#include "poly/nest/nest.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nestor::soak {

/// One place that nests come from.
struct Source {
  std::string name;                              ///< "attention (f16)", "file x.nest.json", "random operators"
  int weight = 1;                                ///< how often it is drawn, against the others
  bool has_space = true;                         ///< candidates are also drawn from its space, not by random steps alone
  std::function<Nest(std::uint64_t seed)> nest;  ///< `seed` chooses among several nests
  /// Steps of stored trials, as trial_steps_json writes them; empty: steps are drawn.
  std::vector<nlohmann::json> steps = {};
  Sizes sizes = {};  ///< with `steps`: at which they were tuned
};

struct SourceOptions {
  std::vector<std::string> operators;  ///< "attention", "attention:causal.f16"; empty: all that are built in
  std::vector<std::string> files;      ///< *.nest.json
  std::vector<std::string> records;    ///< *.jsonl: stored trials, whose steps are taken
  bool builtin = true;                 ///< the operators
  bool random = true;                  ///< random nests and random operators
};

/// Throws UserError for a name or a file that is none.
std::vector<Source> make_sources(const SourceOptions& options);

}  // namespace nestor::soak
