// Composites proved anew, as their rules would find them now.
#include "poly/algebra/reprove.h"

#include <algorithm>
#include <optional>
#include <set>

#include "poly/algebra/analysis/infinite_rows.h"
#include "poly/algebra/rules/moments.h"
#include "poly/algebra/rules/online.h"
#include "poly/algebra/rules/rule_list.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {
namespace {

bool exists(const Nest& nest, const Composite& composite) {
  const auto missing = [&](const std::string& name) { return nest.find_statement(name) == nullptr; };
  return !missing(composite.lead) && std::none_of(composite.mediators.begin(), composite.mediators.end(), missing) &&
         std::none_of(composite.followers.begin(), composite.followers.end(),
                      [&](const Follower& f) { return missing(f.statement); });
}

/// Leaves the mediators that some follower reads, also through others; false where what is left is read by others too.
bool keep_needed_mediators(const Nest& nest, Composite& composite) {
  std::set<std::string> members, needed;
  for (const Follower& follower : composite.followers) members.insert(follower.statement);
  const auto reads_of = [&](const std::string& name) {
    for (const Access& read : nest.statement(name).reads) needed.insert(read.tensor);
  };
  std::for_each(members.begin(), members.end(), reads_of);
  std::vector<std::string> kept;
  for (auto mediator = composite.mediators.rbegin(); mediator != composite.mediators.rend();
       ++mediator) {  // the last reads others
    if (needed.count(nest.statement(*mediator).write.tensor) == 0) continue;
    reads_of(*mediator);
    kept.insert(kept.begin(), *mediator);
  }
  composite.mediators = kept;
  members.insert(kept.begin(), kept.end());
  return std::all_of(kept.begin(), kept.end(), [&](const std::string& mediator) {
    const auto readers = readers_of(nest, nest.statement(mediator).write.tensor);
    return std::all_of(readers.begin(), readers.end(), [&](const Statement* reader) { return members.count(reader->name) > 0; });
  });
}

/// The composite as the rule would find it now, with the followers that it had.
std::optional<Composite> proved_again(const Nest& nest, const Composite& old) {
  if (!exists(nest, old)) return std::nullopt;
  std::optional<Composite> fresh;
  if (old.rule == online_rule().name) {
    const auto plan = analyse_online(nest, old.lead);
    const bool exact = plan && !(plan->masked && infinite_rows_show(nest, *plan, true, nullptr));
    if (exact && (old.threshold == 0 || objection_to_threshold(nest, *plan).empty()))
      fresh = online_composite(nest, *plan, old.threshold);
  } else if (old.rule == moments_rule().name) {
    if (const auto plan = analyse_moments(nest, old.lead)) fresh = moments_composite(*plan);
  }
  if (!fresh) return std::nullopt;
  std::erase_if(fresh->followers, [&](const Follower& follower) {
    return std::none_of(old.followers.begin(), old.followers.end(),
                        [&](const Follower& f) { return f.statement == follower.statement; });
  });
  return fresh->followers.empty() || !keep_needed_mediators(nest, *fresh) ? std::nullopt : fresh;
}

}  // namespace

std::vector<Composite> reprove(const Nest& nest, const std::vector<Composite>& composites) {
  std::vector<Composite> kept;
  for (const Composite& composite : composites) {
    if (const auto again = proved_again(nest, composite)) kept.push_back(*again);
  }
  return kept;
}

}  // namespace nestor
