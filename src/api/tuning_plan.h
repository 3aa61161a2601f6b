// Plans: lists of problems that many machines tune, each its share.
#pragma once

#include "db/records/trial_record.h"
#include "poly/nest/nest.h"

#include <cstddef>
#include <iosfwd>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

struct PlannedProblem {
  std::shared_ptr<const Nest> nest;  ///< as defined, sizes not fixed
  ProblemKey key;                    ///< with every size
};

/// Problems in order, none twice.
class TuningPlan {
 public:
  /// Adds a problem unless it is there. Throws UserError for sizes that the nest does not take.
  void add(const std::shared_ptr<const Nest>& nest, const Sizes& sizes);
  const std::vector<PlannedProblem>& problems() const { return problems_; }

 private:
  std::vector<PlannedProblem> problems_;
  std::set<std::string> known_;
  std::map<std::shared_ptr<const Nest>, std::string> digests_;
};

/// JSON lines (docs/schemas/plan.schema.json): each nest once, before its first problem. So plans are joined by putting one behind the other.
void write_plan(const TuningPlan& plan, std::ostream& out);

/// Throws UserError with the line's number. A problem whose nest is not in the plan is of a built-in operator, which has the digest that the
/// line gives, if it gives one.
TuningPlan read_plan(std::istream& in);
/// The same of a file, or of standard input for "-"; messages begin with its name.
TuningPlan load_plan(const std::string& path);

/// One of `count` shares, counted from 0.
struct Shard {
  std::size_t index = 0, count = 1;
};
/// "2/8" is the third of eight. Throws UserError for other text.
Shard shard_from(std::string_view text);
/// Problems index, index + count, ...: neighbours in a grid cost about the same, so shares do as well.
std::vector<PlannedProblem> share_of(const TuningPlan& plan, const Shard& shard);

/// Every combination of values of sizes; those not named take their default. `texts`: "rows=1k", "rows=1k..16k" (doubling),
/// "rows=64..256+64" (in steps); text without "=" is another value of the size before it. Combinations that the nest does not take are left
/// out and counted. Throws UserError for text of another form, unknown sizes, and when no combination is left.
struct SizeGrid {
  std::vector<Sizes> points;
  std::size_t left_out = 0;
};
SizeGrid size_grid(const Nest& nest, const std::vector<std::string>& texts);

}  // namespace nestor
