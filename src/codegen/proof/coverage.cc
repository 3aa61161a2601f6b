// Coverage: the instances that a program runs are those of the nest, each once.
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/obligations.h"
#include "poly/isl/conjunction.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

namespace nestor::proof {
namespace {

class Coverage {
 public:
  Coverage(const ProgramModel& model, const Statement& statement) : model_(model), s_(statement) {}

  void prove() {
    const isl::set domain = s_.domain.intersect_params(model_.context());
    isl::set covered = domain.subtract(domain);
    for (const Run& run : model_.runs()) {
      if (run.statement != &s_) continue;
      separate_members(run);
      const isl::map runs = isl::manage(isl_map_from_multi_aff(run.instance.copy())).intersect_domain(run.instances);
      injective(run, runs);
      const isl::set instances = runs.range().coalesce();
      if (!instances.is_disjoint(covered))
        expect_empty(instances.intersect(covered), s_.dims,
                     fmt::format("{} runs instances of {} once more", title(run), s_.name));
      covered = covered.unite(instances).coalesce();
    }
    if (domain.is_subset(covered)) return;
    expect_empty(domain.subtract(covered), s_.dims, fmt::format("coverage: no op runs an instance of {}", s_.name));
  }

 private:
  /// Members lie in different parts of loops, or at different places: no point is two members'.
  void separate_members(const Run& run) const {
    isl::set seen = run.members.front().instances;
    for (std::size_t k = 1; k < run.members.size(); ++k) {
      const isl::set& own = run.members[k].instances;
      if (!own.is_disjoint(seen)) {
        expect_empty(own.intersect(seen), run.space().variables(),
                     fmt::format("coverage: {} runs an instance of {} in two parts of a loop", title(run), s_.name));
      }
      seen = seen.unite(own);
    }
  }

  /// Two points never run one instance.
  void injective(const Run& run, const isl::map& runs) const {
    const isl::map around = conjunction_around(runs);
    if (isl_map_is_injective(around.get()) == isl_bool_true || isl_map_is_injective(runs.get()) == isl_bool_true) return;
    const isl::map pairs = runs.apply_range(runs.reverse());
    const isl::map twice = pairs.subtract(isl::manage(isl_map_identity(isl_map_get_space(pairs.get()))));
    const std::vector<std::string>& names = run.space().variables();
    throw BrokenObligation(fmt::format("coverage: {} runs an instance of {} twice, for example {}", title(run), s_.name,
                                       sample_text(twice, names, names)));
  }

  const ProgramModel& model_;
  const Statement& s_;
};

}  // namespace

void prove_coverage(const Subject& subject) {
  for (const Statement& statement : subject.model.nest().statements) Coverage(subject.model, statement).prove();
}

}  // namespace nestor::proof
