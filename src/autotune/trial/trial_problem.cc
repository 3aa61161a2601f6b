// Sizes completed and fixed.
#include "autotune/trial/trial_problem.h"

#include "poly/nest/nest_json.h"

namespace nestor {
namespace {

Sizes sizes_to_fix(const Nest& nest, const Sizes& sizes, bool all, const std::set<std::string>& also) {
  Sizes fixed;
  for (const SizeParam& size : nest.sizes) {
    if (all || size.specialized || also.contains(size.name)) fixed[size.name] = sizes.at(size.name);
  }
  return fixed;
}

}  // namespace

TrialProblem trial_problem(const Nest& nest, const Sizes& sizes, bool fix_all_sizes, const std::set<std::string>& also) {
  const Sizes complete = complete_sizes(nest, sizes);
  const Sizes fixed = sizes_to_fix(nest, complete, fix_all_sizes, also);
  Nest start = fix_sizes(nest, fixed);
  auto schedules = std::make_shared<BaseSchedules>(start);
  return {nest, complete, fixed, std::move(start), digest(nest), std::move(schedules)};
}

}  // namespace nestor
