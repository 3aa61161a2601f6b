// Suggestions: the steps that are legal on a schedule now, and what records, the search and the back end say of their worth.
#pragma once

#include "api/explore/known_plans.h"
#include "autotune/target/measure_options.h"
#include "poly/schedule/schedule.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nestor {

/// A step that is legal, with a guess of its worth.
struct Suggestion {
  Step step;
  PlanSource source = PlanSource::idea;
  double ms = 0;      ///< median of the trial that goes on so; 0: none does
  std::string guess;  ///< in words; "": nothing is known
};

struct SuggestRequest {
  std::string only = {};                                  ///< steps of this name alone; "": all
  double time_s = 5;                                      ///< for trying; what is not tried is counted
  const std::atomic<bool>* stop = nullptr;                ///< ends it early
  std::function<void(const std::string&)> progress = {};  ///< told what is being done, several times a second
};

struct SuggestionList {
  std::vector<Suggestion> legal;  ///< best guess first
  int refused = 0;                ///< steps that were tried and are illegal
  int untried = 0;                ///< for lack of time
};

/// Suggests steps for schedules of one problem. Remembers the space of its search, whose derivation takes seconds for large nests.
class Suggester {
 public:
  /// `nest` as defined; `sizes` complete. `database`: path whose records are asked; it need not exist.
  Suggester(Nest nest, Sizes sizes, MeasureOptions options, std::string database);
  ~Suggester();
  Suggester(Suggester&&) noexcept;

  /// Every suggestion was proved legal. Throws UserError when the database cannot be read, or the target is not here.
  SuggestionList suggest(const Schedule& schedule, const SuggestRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nestor
