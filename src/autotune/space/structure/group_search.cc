// Fusion groups, their parallel loops and their skewed forms, each proved by applying the steps.
#include "autotune/space/structure/group_search.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/product_chains.h"
#include "autotune/space/structure/try_steps.h"
#include "codegen/tile/contraction.h"
#include "support/error.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace nestor {
namespace {

class GroupFinder {
 public:
  /// `moves_starts`: accumulators may start later than they do, with what is added to them.
  GroupFinder(const Schedule& base, const NestStructure& structure, const std::vector<int>& loop_groups, Fusion fusion,
              bool moves_starts)
      : base_(base),
        structure_(structure),
        loop_groups_(loop_groups),
        fusion_(fusion),
        alike_(fusion == Fusion::alike || fusion == Fusion::rows),
        moves_starts_(moves_starts && alike_) {
    if (fusion == Fusion::connected || fusion == Fusion::rows) find_components();
  }

  std::vector<FusionGroup> find() {
    std::vector<FusionGroup> fusion_groups;
    const int count = static_cast<int>(loop_groups_.size());
    taken_.assign(loop_groups_.size(), false);
    for (int first = 0; first < count;) {
      if (taken_[static_cast<std::size_t>(first)] || waits(first)) {
        ++first;
        continue;
      }
      int last = end_of_run(first);
      FusionGroup group = group_of(first, last);
      // The longest run is tried first, since it mostly is legal; what is not legal as a whole is grown loop group by loop group.
      const bool whole = last - first == 1 || (legal(group) && keeps_parallel(group));
      if (!whole && can_keep_prefixes(group)) {
        group = without_prefixes(group);
      } else if (!whole && can_keep_neighbours(group, first, last)) {
        group.axes.pop_back();
      } else if (!whole) {
        int grown = first + 1;
        while (grown < last && legal(group_of(first, grown + 1)) && keeps_parallel(group_of(first, grown + 1))) ++grown;
        last = grown;
        group = group_of(first, last);
      }
      if (const int shorter = without_starts(first, before_stored_reads(first, last)); shorter < last) {
        last = shorter;
        group = group_of(first, last);
      }
      join_waiting(group, first, last, fusion_groups);
      first = last;
      alike_ ? gather(group, first, fusion_groups) : gather_sums(group, first);
      complete(group);
      fusion_groups.push_back(std::move(group));
    }
    return fusion_groups;
  }

 private:
  /// Without the axes along which members have running sums.
  FusionGroup without_prefixes(FusionGroup group) const {
    for (const int u : group.loop_groups)
      std::erase(group.axes, axis_of_prefixes(base_.nest(), structure_, structure_.loop_groups[static_cast<std::size_t>(u)]));
    return group;
  }

  /// Do members read running sums at other places than their own, so that a block has to keep whole rows of them?
  bool can_keep_prefixes(const FusionGroup& group) const {
    if (fusion_ != Fusion::maximal) return false;
    const FusionGroup rows = without_prefixes(group);
    return !rows.axes.empty() && rows.axes.size() < group.axes.size() && legal(rows);
  }

  /// Do definitions of the run first .. last - 1 read other places of rows than their own, as steps of a wavelet do, and nothing else that is
  /// not theirs, so that a block may keep whole rows?
  bool can_keep_neighbours(const FusionGroup& group, int first, int last) const {
    if (fusion_ != Fusion::maximal || group.axes.size() < 2 || reduces(group)) return false;
    FusionGroup rows = group;
    rows.axes.pop_back();
    return keeps_rows(first, last - 1, rows.axes) && legal(rows) && keeps_parallel(rows);
  }

  /// Behind the last place that the run from `first` may have. What a group before has stands between for nothing.
  int end_of_run(int first) const {
    int last = first + 1;
    for (int place = last; place < static_cast<int>(loop_groups_.size()); ++place) {
      if (taken_[static_cast<std::size_t>(place)]) continue;
      if (!extends(first, place)) break;
      last = place + 1;
    }
    return last;
  }

  /// Behind the last place of the run first .. last - 1 that reads nothing which a guarded product before it stores: parts of it, which the
  /// next product multiplies, go along rows of memory in a kernel of their own.
  int before_stored_reads(int first, int last) const {
    while (alike_ && last - first > 1 && reads_stored_sums(base_.nest(), structure_, group_of(first, last).loop_groups)) --last;
    return last;
  }

  /// Behind the last place of the run first .. last - 1 that starts no sum of a run behind: it goes with what is added to it. So a kernel
  /// of products has nothing else to start.
  int without_starts(int first, int last) const {
    bool products = false;
    for (int place = first; place < last; ++place)
      products = products || multiplies(base_.nest(), structure_, {loop_groups_[place]});
    if (!products) return last;
    const auto starts_later = [&](int place) {
      return writes_constants(place) && !taken_[static_cast<std::size_t>(place)] && !shares_tensor(first, place) &&
             user_of(place, last) >= 0;
    };
    while (last - first > 1 && starts_later(last - 1)) --last;
    return last;
  }

  /// Adds later runs with the same parallel loops that sum up the same input. They may need nothing of what stands between, such as the
  /// combining of parts.
  void gather(FusionGroup& group, int next, std::vector<FusionGroup>& alone) {
    for (int place = next; place < static_cast<int>(loop_groups_.size());) {
      if (taken_[static_cast<std::size_t>(place)]) {
        ++place;
        continue;
      }
      const int end = end_of_run(place);
      const FusionGroup run = group_of(place, end);
      FusionGroup more = group;
      more.loop_groups.insert(more.loop_groups.end(), run.loop_groups.begin(), run.loop_groups.end());
      if (points_of(run.heaviest) > points_of(more.heaviest)) more.heaviest = run.heaviest;
      more.axes = common_axes(structure_, more.loop_groups, more.heaviest);
      more.at_front = true;
      const bool alike = more.axes.size() == group.axes.size() && run.axes.size() == group.axes.size();
      if (alike && reduces(group) && reduces(run) && reads_same_input(group, run) && share_tiles(more) && legal(more)) {
        group = std::move(more);
        std::fill(taken_.begin() + place, taken_.begin() + end, true);
        join_waiting(group, place, end, alone);
      }
      place = end;
    }
  }

  /// Adds later sums over nothing but what the group has made, where they have its parallel loops: a kernel further back would go through all of
  /// it once more.
  void gather_sums(FusionGroup& group, int next) {
    if (fusion_ == Fusion::none || multiplies(base_.nest(), structure_, group.loop_groups)) return;
    for (int place = next; place < static_cast<int>(loop_groups_.size()); ++place) {
      if (taken_[static_cast<std::size_t>(place)] || !sums_up(group, place)) continue;
      std::vector<int> places{place};
      for (int start = next; start < place; ++start) {
        if (!taken_[static_cast<std::size_t>(start)] && writes_constants(start) && user_of(start, start + 1) == place)
          places.insert(places.begin(), start);
      }
      FusionGroup more = group;
      for (const int each : places) more.loop_groups.push_back(loop_groups_[static_cast<std::size_t>(each)]);
      more.axes = common_axes(structure_, more.loop_groups, more.heaviest);
      more.at_front = true;
      if (more.axes.size() != group.axes.size() || !legal(more) || !keeps_parallel(more)) continue;
      group = std::move(more);
      for (const int each : places) taken_[static_cast<std::size_t>(each)] = true;
    }
  }

  /// Are there sums at the place, no products of matrices, of what the group writes and of nothing else?
  bool sums_up(const FusionGroup& group, int place) const {
    const std::vector<std::string>& names = statements_at(place);
    if (is_of_products(place)) return false;
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      const Statement& sum = base_.nest().statement(name);
      return sum.reduction &&
             std::all_of(sum.reads.begin(), sum.reads.end(), [&](const Access& read) { return writes(group, read.tensor); }) &&
             !sum.reads.empty();
    });
  }

  bool writes(const FusionGroup& group, const std::string& tensor) const {
    return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
      const std::vector<std::string>& names = structure_.loop_groups[static_cast<std::size_t>(u)].statements;
      return std::any_of(names.begin(), names.end(),
                         [&](const std::string& name) { return base_.nest().statement(name).write.tensor == tensor; });
    });
  }

  /// An accumulator that starts before what else stands between, such as parts, starts where it is added to: with that run.
  bool waits(int place) {
    if (!moves_starts_ || !starts(place)) return false;
    const int user = user_of(place, place + 1);
    if (user < 0 || starts(user)) return false;
    waiting_.emplace_back(place, user);
    return true;
  }

  /// Those that wait for one of the places first .. last - 1 join the group that has it, or become groups before it.
  void join_waiting(FusionGroup& group, int first, int last, std::vector<FusionGroup>& alone) {
    const auto is_for = [&](const auto& each) { return each.second >= first && each.second < last; };
    for (const auto& each : waiting_) {
      if (!is_for(each) || join(group, each.first)) continue;
      alone.push_back(single(each.first));
      complete(alone.back());
    }
    std::erase_if(waiting_, is_for);
  }

  FusionGroup single(int place) const {
    FusionGroup group;
    group.heaviest = loop_groups_[place];
    group.loop_groups = {loop_groups_[place]};
    group.axes = common_axes(structure_, group.loop_groups, group.heaviest);
    return group;
  }

  /// Puts the loop group at the place in front; false, and the group is the same: they share fewer loops, or none legally.
  bool join(FusionGroup& group, int place) const {
    FusionGroup more = group;
    more.loop_groups.insert(more.loop_groups.begin(), loop_groups_[place]);
    more.axes = common_axes(structure_, more.loop_groups, more.heaviest);
    const bool alike = fusion_ == Fusion::rows || single(place).axes.size() == group.axes.size();
    if (!alike || more.axes.size() != group.axes.size() || !legal(more)) return false;
    group = std::move(more);
    return true;
  }

  const std::vector<std::string>& statements_at(int place) const {
    return structure_.loop_groups[static_cast<std::size_t>(loop_groups_[static_cast<std::size_t>(place)])].statements;
  }

  /// Does the loop group at the place just give temporaries a value?
  bool writes_constants(int place) const {
    const std::vector<std::string>& names = statements_at(place);
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      const Statement& start = base_.nest().statement(name);
      return !start.reduction && start.reads.empty() && base_.nest().tensor(start.write.tensor).role == TensorRole::temporary;
    });
  }

  /// Do products of matrices, or what starts their sums, stand at the place?
  bool is_of_products(int place) const {
    const Nest& nest = base_.nest();
    const std::vector<std::string>& names = statements_at(place);
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      const std::string& tensor = nest.statement(name).write.tensor;
      return std::any_of(nest.statements.begin(), nest.statements.end(),
                         [&](const Statement& other) { return other.write.tensor == tensor && multiplies_matrices(other); });
    });
  }

  /// Are these values what sums start from that are no products of matrices?
  bool starts(int place) const { return writes_constants(place) && !is_of_products(place); }

  /// The first place from `next` on that is not taken and touches what the loop group at `place` does; -1: there is none.
  int user_of(int place, int next) const {
    const std::set<std::string> own = tensors_of(place);
    for (int other = next; other < static_cast<int>(loop_groups_.size()); ++other) {
      const std::set<std::string> tensors = tensors_of(other);
      const bool uses = std::any_of(own.begin(), own.end(), [&](const auto& tensor) { return tensors.contains(tensor); });
      if (uses) return taken_[static_cast<std::size_t>(other)] ? -1 : other;
    }
    return -1;
  }

  double points_of(int loop_group) const { return structure_.loop_groups[static_cast<std::size_t>(loop_group)].points; }

  bool reduces(const FusionGroup& group) const {
    return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
      const std::vector<bool>& reduced = structure_.loop_groups[static_cast<std::size_t>(u)].reduced;
      return std::find(reduced.begin(), reduced.end(), true) != reduced.end();
    });
  }

  std::set<std::string> inputs_of(const FusionGroup& group) const {
    std::set<std::string> inputs;
    for (const int u : group.loop_groups) {
      for (const std::string& name : structure_.loop_groups[static_cast<std::size_t>(u)].statements) {
        for (const Access& read : base_.nest().statement(name).reads) {
          if (base_.nest().tensor(read.tensor).role == TensorRole::input) inputs.insert(read.tensor);
        }
      }
    }
    return inputs;
  }

  bool reads_same_input(const FusionGroup& a, const FusionGroup& b) const {
    const std::set<std::string> first = inputs_of(a), second = inputs_of(b);
    return std::any_of(first.begin(), first.end(), [&](const std::string& input) { return second.contains(input); });
  }

  bool extends(int first, int next) const {
    if (fusion_ == Fusion::none) return false;
    const auto before = group_of(first, next).axes;
    const auto after = group_of(first, next + 1).axes;
    // Chunks meet what adds them up, or its start.
    const int adder = alike_ && starts(next) ? user_of(next, next + 1) : next;
    if (alike_ && adder >= 0 && adds_chunks(first, adder))
      return !after.empty() && group_of(next, next + 1).axes.size() == after.size();
    const bool connected =
        !components_.empty() && components_[static_cast<std::size_t>(first)] == components_[static_cast<std::size_t>(next)];
    // Rows of two products that meet later stand together, too.
    if (fusion_ == Fusion::rows && connected && keeps_rows(first, next, after)) return true;
    if (fusion_ == Fusion::connected) {
      if (!connected) return false;
    } else if (fusion_ >= Fusion::related && fusion_ != Fusion::products && !shares_tensor(first, next)) {
      // A start by itself shares nothing: what is added to it does.
      const int user = moves_starts_ && starts(next) ? user_of(next, next + 1) : -1;
      if (user < 0 || !std::all_of(taken_.begin() + next + 1, taken_.begin() + user, std::identity()) ||
          !shares_tensor(first, fusion_ == Fusion::rows ? next : user, user))
        return false;
    }
    if (fusion_ == Fusion::products) return after.size() == before.size() || keeps_tiles(first, next, after);
    if (alike_ && (group_of(next, next + 1).axes.size() != after.size() || !share_tiles(group_of(first, next + 1)))) return false;
    if (fusion_ == Fusion::careful && reads_table(first, next, after) && !steps_on(first, next)) return false;
    if (begins_other_rows(first, next)) return false;
    return !after.empty() && (fusion_ == Fusion::maximal || after.size() == before.size() ||
                              (fusion_ == Fusion::careful && after.size() == before.size() - single_axes(first, next, after)));
  }

  /// How many axes of the run first .. next - 1 are not among the common ones, and have one place there, as where a recurrence starts.
  std::size_t single_axes(int first, int next, const std::vector<int>& common) const {
    const FusionGroup run = group_of(first, next);
    return static_cast<std::size_t>(std::count_if(run.axes.begin(), run.axes.end(), [&](int axis) {
      return std::find(common.begin(), common.end(), axis) == common.end() &&
             std::all_of(run.loop_groups.begin(), run.loop_groups.end(), [&](int u) {
               const LoopGroup& member = structure_.loop_groups[static_cast<std::size_t>(u)];
               return member.extents[static_cast<std::size_t>(member.position_of(axis))] == 1;
             });
    }));
  }

  /// Has the loop group at `next` a loop around the common ones that the run knows nothing of? Then what the run makes is a table for all of
  /// that loop's iterations (a window's sums for all frames), and blocks of the common loops would go through memory in strides.
  bool reads_table(int first, int next, const std::vector<int>& common) const {
    const LoopGroup& reader = structure_.loop_groups[static_cast<std::size_t>(loop_groups_[static_cast<std::size_t>(next)])];
    const auto is_of_run = [&](int axis) {
      for (int place = first; place < next; ++place) {
        const LoopGroup& member = structure_.loop_groups[static_cast<std::size_t>(loop_groups_[static_cast<std::size_t>(place)])];
        if (!taken_[static_cast<std::size_t>(place)] && member.position_of(axis) >= 0) return true;
      }
      return false;
    };
    // The outermost loop that both have, or that is this one's own.
    for (std::size_t k = 0; k < reader.axes.size(); ++k) {
      if (std::find(common.begin(), common.end(), reader.axes[k]) != common.end()) return false;
      if (!reader.reduced[k] && reader.extents[k] > 1 && !is_of_run(reader.axes[k])) return !common.empty();
    }
    return false;
  }

  /// Does the loop group at `next` write what one of first .. next - 1 writes, as steps of a recurrence do what it starts from?
  bool steps_on(int first, int next) const {
    const auto written_at = [&](int place) {
      std::set<std::string> tensors;
      for (const std::string& name : statements_at(place)) tensors.insert(base_.nest().statement(name).write.tensor);
      return tensors;
    };
    const std::set<std::string> own = written_at(next);
    for (int place = first; place < next; ++place) {
      const std::set<std::string> before = written_at(place);
      if (!taken_[static_cast<std::size_t>(place)] &&
          std::any_of(before.begin(), before.end(), [&](const std::string& tensor) { return own.contains(tensor); }))
        return true;
    }
    return false;
  }

  /// Axes along which an extremum of rows is searched and products of matrices sum at the places first .. last - 1: rows whose terms are relative to it.
  std::set<int> searched_and_summed(int first, int last) const {
    std::set<int> searched, summed;
    for (int place = first; place < last; ++place) {
      if (taken_[static_cast<std::size_t>(place)]) continue;
      const LoopGroup& loop_group =
          structure_.loop_groups[static_cast<std::size_t>(loop_groups_[static_cast<std::size_t>(place)])];
      for (const std::string& name : loop_group.statements) {
        const Statement& statement = base_.nest().statement(name);
        const bool extremum = statement.reduction == ReductionOp::max || statement.reduction == ReductionOp::min;
        if (!extremum && !multiplies_matrices(statement)) continue;
        for (std::size_t k = 0; k < loop_group.axes.size(); ++k) {
          if (loop_group.reduced[k]) (extremum ? searched : summed).insert(loop_group.axes[k]);
        }
      }
    }
    std::erase_if(searched, [&](int axis) { return !summed.contains(axis); });
    return searched;
  }

  /// Does something of the run first .. last - 1 combine parts?
  bool combines_parts(int first, int last) const {
    const std::vector<int> run = group_of(first, last).loop_groups;
    return std::any_of(structure_.parts.begin(), structure_.parts.end(), [&](const PartAxis& part) {
      return std::any_of(run.begin(), run.end(), [&](int u) {
        const LoopGroup& loop_group = structure_.loop_groups[static_cast<std::size_t>(u)];
        const int position = loop_group.position_of(part.axis);
        return position >= 0 && loop_group.reduced[static_cast<std::size_t>(position)];
      });
    });
  }

  /// Do such rows with columns of their own begin at the place, behind others, or what combines their parts, whose results it does not need?
  /// A kernel goes through the columns of one kind. What all of the run has as rows are no columns of it.
  bool begins_other_rows(int first, int next) const {
    if (!is_of_products(next) || (searched_and_summed(first, next).empty() && !combines_parts(first, next))) return false;
    std::set<int> known;
    std::set<std::string> computed;
    const FusionGroup run = group_of(first, next);
    for (const int u : run.loop_groups) {
      const LoopGroup& loop_group = structure_.loop_groups[static_cast<std::size_t>(u)];
      known.insert(loop_group.axes.begin(), loop_group.axes.end());
      for (const std::string& name : loop_group.statements) computed.insert(base_.nest().statement(name).write.tensor);
    }
    for (const int axis : run.axes) known.erase(axis);
    const std::set<std::string> touched = tensors_of(next);
    if (std::any_of(touched.begin(), touched.end(), [&](const std::string& tensor) { return computed.contains(tensor); }))
      return false;
    const std::set<int> later = searched_and_summed(next, static_cast<int>(loop_groups_.size()));
    const std::vector<int>& own =
        structure_.loop_groups[static_cast<std::size_t>(loop_groups_[static_cast<std::size_t>(next)])].axes;
    return std::any_of(own.begin(), own.end(), [&](int axis) { return later.contains(axis) && !known.contains(axis); });
  }

  /// Pairs of long common axes of which one operand of a product lacks the first and the other one the second: what tiles of it may have as
  /// sides.
  std::set<std::pair<int, int>> sides_of_tiles(int loop_group, const Statement& product, const std::vector<int>& common) const {
    const LoopGroup& own = structure_.loop_groups[static_cast<std::size_t>(loop_group)];
    const auto operands = unscaled_contraction_of(product);
    constexpr std::int64_t kLong = 32;
    std::set<std::pair<int, int>> sides;
    const auto is_long = [&](int axis) { return structure_.axes[static_cast<std::size_t>(axis)].extent >= kLong; };
    const auto lacks = [&](int ordinal, int axis) {
      const std::vector<int> axes = followed_axes(own, product.reads[static_cast<std::size_t>(ordinal)]);
      return std::find(axes.begin(), axes.end(), axis) == axes.end();
    };
    for (const int a : common) {
      for (const int b : common) {
        if (is_long(a) && is_long(b) && lacks(operands->a, a) && !lacks(operands->b, a) && lacks(operands->b, b) &&
            !lacks(operands->a, b))
          sides.insert(std::minmax(a, b));
      }
    }
    return sides;
  }

  /// Can all products of the group, where these have tiles along common axes, have tiles of the same sides? Products whose results have
  /// their axes in several orders cannot: one operand would be read anew for each element.
  bool share_tiles(const FusionGroup& group) const {
    std::optional<std::set<std::pair<int, int>>> shared;
    for (const int u : group.loop_groups) {
      for (const std::string& name : structure_.loop_groups[static_cast<std::size_t>(u)].statements) {
        const Statement& statement = base_.nest().statement(name);
        if (!multiplies_matrices(statement)) continue;
        std::set<std::pair<int, int>> sides = sides_of_tiles(u, statement, group.axes);
        if (sides.empty()) return true;
        if (shared) std::erase_if(sides, [&](const auto& each) { return !shared->contains(each); });
        shared = std::move(sides);
      }
    }
    return !shared || !shared->empty();
  }

  /// Has the run first .. next products, each with one of the common loops along results that one of its operands lacks?
  bool keeps_tiles(int first, int next, const std::vector<int>& common) const {
    bool products = false;
    for (const int u : group_of(first, next + 1).loop_groups) {
      const LoopGroup& loop_group = structure_.loop_groups[static_cast<std::size_t>(u)];
      for (const std::string& name : loop_group.statements) {
        const Statement& statement = base_.nest().statement(name);
        if (!multiplies_matrices(statement)) continue;
        products = true;
        const std::vector<int> results = followed_axes(loop_group, statement.write);
        const auto has = [](const std::vector<int>& axes, int axis) {
          return std::find(axes.begin(), axes.end(), axis) != axes.end();
        };
        const auto is_of_tiles = [&](int axis) {
          return has(results, axis) && std::any_of(statement.reads.begin(), statement.reads.end(), [&](const Access& read) {
                   return !has(followed_axes(loop_group, read), axis);
                 });
        };
        if (std::none_of(common.begin(), common.end(), is_of_tiles)) return false;
      }
    }
    return products;
  }

  /// Can a block keep rows of the run first .. next, which has no products? They are the points of the loops that are not common.
  bool keeps_rows(int first, int next, const std::vector<int>& common) const {
    // Blocks of a cluster share rows of one dim.
    constexpr double kLongestRow = 1 << 13, kLongestSharedRow = 1 << 15, kFewestRows = 256;
    double rows = common.empty() ? 0 : 1;
    for (const int axis : common) rows *= static_cast<double>(structure_.axes[static_cast<std::size_t>(axis)].extent);
    if (rows < kFewestRows) return false;
    for (int place = first; place <= next; ++place) {
      if (taken_[static_cast<std::size_t>(place)]) continue;
      if (is_of_products(place)) return false;
      const LoopGroup& loop_group = structure_.loop_groups[static_cast<std::size_t>(loop_groups_[place])];
      const double longest = loop_group.axes.size() == common.size() + 1 ? kLongestSharedRow : kLongestRow;
      if (results_of(loop_group) > longest * rows) return false;
    }
    return true;
  }

  /// Does the loop group at `next` add up short sums of products that the run makes for it alone? In memory these would be many times the
  /// result.
  bool adds_chunks(int first, int next) const {
    constexpr double kShortSum = 64;
    const LoopGroup& adds = structure_.loop_groups[static_cast<std::size_t>(loop_groups_[static_cast<std::size_t>(next)])];
    const Nest& nest = base_.nest();
    const auto is_chunk = [&](const std::string& tensor) {
      for (int place = first; place < next; ++place) {
        const LoopGroup& made = structure_.loop_groups[static_cast<std::size_t>(loop_groups_[static_cast<std::size_t>(place)])];
        for (const std::string& name : made.statements) {
          if (nest.statement(name).write.tensor == tensor && multiplies_matrices(nest.statement(name)))
            return terms_of_sum(made) <= kShortSum && readers_of(nest, tensor).size() == 1;
        }
      }
      return false;
    };
    return std::any_of(adds.statements.begin(), adds.statements.end(), [&](const std::string& name) {
      const Statement& sum = nest.statement(name);
      return sum.reduction == ReductionOp::add && sum.value.op() == ScalarOp::read && is_chunk(sum.reads.front().tensor);
    });
  }

  /// Loop groups that computed tensors connect have one number.
  void find_components() {
    const std::vector<std::vector<int>> related = related_loop_groups(base_.nest(), structure_, loop_groups_);
    components_.resize(loop_groups_.size());
    for (std::size_t place = 0; place < loop_groups_.size(); ++place) {
      const auto has = [&](const std::vector<int>& each) {
        return std::find(each.begin(), each.end(), loop_groups_[place]) != each.end();
      };
      components_[place] = static_cast<int>(std::find_if(related.begin(), related.end(), has) - related.begin());
    }
  }

  std::set<std::string> tensors_of(int place) const { return nestor::tensors_of(base_.nest(), structure_, loop_groups_[place]); }

  /// Does the loop group at `next` touch a tensor that one of first .. next - 1 touches?
  bool shares_tensor(int first, int next) const { return shares_tensor(first, next, next); }

  /// Does the loop group at `reader` touch a tensor that one of first .. last - 1 touches?
  bool shares_tensor(int first, int last, int reader) const {
    const std::set<std::string> own = tensors_of(reader);
    for (int place = first; place < last; ++place) {
      const std::set<std::string> tensors = tensors_of(place);
      if (std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) { return own.contains(tensor); })) return true;
    }
    return false;
  }

  /// Of the loop groups at the places first .. last - 1 that no group before has.
  FusionGroup group_of(int first, int last) const {
    FusionGroup group;
    group.heaviest = loop_groups_[first];
    for (int place = first; place < last; ++place) {
      if (taken_[static_cast<std::size_t>(place)]) continue;
      const int u = loop_groups_[place];
      group.loop_groups.push_back(u);
      if (structure_.loop_groups[u].points > structure_.loop_groups[group.heaviest].points) group.heaviest = u;
    }
    group.axes = common_axes(structure_, group.loop_groups, group.heaviest);
    return group;
  }

  bool legal(const FusionGroup& group) const {
    return try_steps(base_, group_steps(structure_, group, probe_plan(group)).steps).has_value();
  }

  /// By common axis: are its iterations independent? Nothing where the axes cannot stand outside all others.
  std::optional<std::vector<bool>> parallel_axes(const FusionGroup& group) const {
    const GroupSteps probe = group_steps(structure_, group, probe_plan(group));
    const auto fused = try_steps(base_, probe.steps);
    if (!fused) return std::nullopt;
    std::vector<bool> parallel;
    for (const int axis : group.axes)
      parallel.push_back(try_step(*fused, make_step("parallel", {probe.outer.at(axis)})).has_value());
    return parallel;
  }

  /// Are the axis's iterations independent in the loop group by itself?
  bool parallel_alone(int u, int axis) const {
    const auto [known, added] = parallel_alone_.try_emplace({u, axis}, false);
    if (added) {
      FusionGroup own;
      own.loop_groups = {u};
      own.heaviest = u;
      own.axes = {axis};
      const auto found = parallel_axes(own);
      known->second = found && found->front();
    }
    return known->second;
  }

  /// Does a product's axis stay what it is alone, with many places for tiles? The steps of a recurrence beside it would be its own, and what has
  /// one place, as where a recurrence starts, would be in each tile.
  bool keeps_axis_of_product(const FusionGroup& group, int axis, bool parallel) const {
    return std::all_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
      if (!multiplies(base_.nest(), structure_, {u}) || !parallel_alone(u, axis)) return true;
      return parallel && std::none_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int other) {
               const LoopGroup& loop_group = structure_.loop_groups[static_cast<std::size_t>(other)];
               return loop_group.extents[static_cast<std::size_t>(loop_group.position_of(axis))] == 1 &&
                      structure_.axes[static_cast<std::size_t>(axis)].extent > 1;
             });
    });
  }

  /// Is each common axis parallel that is so in every loop group alone? One that copies what another has made into a later part of a tensor
  /// waits for it, where both share the loop. Fusion that asks for one loop alone takes that into account.
  bool keeps_parallel(const FusionGroup& group) const {
    if (fusion_ == Fusion::maximal || fusion_ == Fusion::prepared || fusion_ == Fusion::products) return true;
    const auto parallel = parallel_axes(group);
    for (std::size_t k = 0; k < group.axes.size(); ++k) {
      const int axis = group.axes[k];
      const bool stays = parallel && (*parallel)[k];
      const auto alone = [&](int u) { return parallel_alone(u, axis); };
      if (!stays && std::all_of(group.loop_groups.begin(), group.loop_groups.end(), alone)) return false;
      if (group.loop_groups.size() > 1 && !keeps_axis_of_product(group, axis, stays)) return false;
    }
    return true;
  }

  /// Parallel loops, tilability, stream axes and forms.
  void complete(FusionGroup& group) const {
    auto parallel = parallel_axes(group);
    // A loop that orders the statements of a step, and that sums do not follow, stands before some of the common ones.
    for (; !parallel && !group.axes.empty(); parallel = parallel_axes(group)) group.axes.pop_back();
    group.parallel = parallel.value_or(std::vector<bool>{});
    const bool all_parallel = std::all_of(group.parallel.begin(), group.parallel.end(), [](bool p) { return p; });
    group.tilable = all_parallel || group.axes.size() < 2 || tiles_legally(group, GroupForm{});
    group.forms.push_back({});
    if (!all_parallel && group.axes.size() >= 2) find_forms(group);
    find_reduction_axes(group);
  }

  bool tiles_legally(const FusionGroup& group, const GroupForm& form) const {
    GroupPlan plan = probe_plan(group);
    for (auto& [axis, tile] : plan.tile) tile = 8;
    plan.form = form;
    plan.parallel = form.kind == GroupForm::Kind::natural ? 0 : 1;
    return try_steps(base_, group_steps(structure_, group, plan).steps).has_value();
  }

  void find_forms(FusionGroup& group) const {
    const int outermost = group.axes.front();
    // A loop that is parallel as it is needs no wavefront.
    const bool some_parallel = std::find(group.parallel.begin(), group.parallel.end(), true) != group.parallel.end();
    for (std::size_t a = 0; a < group.axes.size() && !some_parallel; ++a) {
      for (std::size_t b = a + 1; b < group.axes.size(); ++b) {
        for (const std::int64_t factor : {1, 2}) {
          const GroupForm form{GroupForm::Kind::wavefront, {{group.axes[a], group.axes[b], factor}}};
          if (!wavefront_legal(group, form)) continue;
          group.forms.push_back(form);
          break;
        }
      }
    }
    for (const std::int64_t factor : {1, 2, 3}) {
      GroupForm form{GroupForm::Kind::time_tile, {}};
      for (std::size_t k = 1; k < group.axes.size(); ++k) form.skews.push_back({outermost, group.axes[k], factor});
      if (!tiles_legally(group, form)) continue;
      group.forms.push_back(form);
      break;
    }
    find_forms_inside(group);
  }

  /// Serial loops within the parallel ones; of two, wavefronts whose points are parallel.
  void find_forms_inside(FusionGroup& group) const {
    const std::vector<int> serial = serial_axes(group);
    if (serial.empty() || serial.size() == group.axes.size()) return;
    const auto scheduled = [&](const GroupForm& form) {
      GroupPlan plan = probe_plan(group);
      plan.form = form;
      plan.order = wavefront_order(group, form);
      for (auto& [axis, tile] : plan.tile) tile = 8;
      plan.parallel = static_cast<int>(plan.order.size());
      return try_steps(base_, group_steps(structure_, group, plan).steps);
    };
    if (const GroupForm form{GroupForm::Kind::inside, {}}; scheduled(form)) group.forms.push_back(form);
    if (serial.size() != 2) return;
    const LoopGroup& first = structure_.loop_groups[static_cast<std::size_t>(group.loop_groups.front())];
    for (const std::int64_t factor : {1, 2}) {
      const GroupForm form{GroupForm::Kind::inside, {{serial[0], serial[1], factor}}};
      const auto schedule = scheduled(form);
      const std::string& points = first.loops[static_cast<std::size_t>(first.position_of(serial[0]))];
      if (!schedule || !try_step(*schedule, make_step("parallel", {points}))) continue;
      group.forms.push_back(form);
      break;
    }
  }

  bool wavefront_legal(const FusionGroup& group, const GroupForm& form) const {
    GroupPlan plan = probe_plan(group);
    plan.form = form;
    plan.order = wavefront_order(group, form);
    plan.parallel = 1;
    return try_steps(base_, group_steps(structure_, group, plan).steps).has_value();
  }

  /// Reduced somewhere, and run along by several loop groups: worth sharing tile by tile.
  void find_reduction_axes(FusionGroup& group) const {
    for (std::size_t axis = 0; axis < structure_.axes.size(); ++axis) {
      int users = 0;
      bool reduced = false;
      for (const int u : group.loop_groups) {
        const int position = structure_.loop_groups[u].position_of(static_cast<int>(axis));
        users += position >= 0 ? 1 : 0;
        reduced = reduced || (position >= 0 && structure_.loop_groups[u].reduced[position]);
      }
      if (users >= 2 && reduced) group.reduction_axes.push_back(static_cast<int>(axis));
    }
  }

  const Schedule& base_;
  const NestStructure& structure_;
  const std::vector<int>& loop_groups_;
  const Fusion fusion_;
  const bool alike_;
  const bool moves_starts_;
  std::vector<bool> taken_;                                     ///< by place: a group before has it, though others stand between
  std::vector<std::pair<int, int>> waiting_;                    ///< places of starts, and those of who adds to them first
  std::vector<int> components_;                                 ///< by place, for Fusion::connected and Fusion::rows
  mutable std::map<std::pair<int, int>, bool> parallel_alone_;  ///< of a loop group along an axis
};

}  // namespace

std::vector<int> find_reduction_groups(const Schedule& base, const NestStructure& structure, const FusionGroup& group,
                                       int reduction_axis) {
  GroupPlan plan = probe_plan(group);
  plan.reduction_axis = reduction_axis;
  // Tiles, so that loops inside the reduction loop are where candidates will have them.
  plan.reduction_tile = 4;
  plan.reduction_groups.assign(group.loop_groups.size(), -1);
  int next = 0;
  for (std::size_t k = 0; k < group.loop_groups.size(); ++k) {
    if (structure.loop_groups[group.loop_groups[k]].shared_position_of(reduction_axis) >= 0) plan.reduction_groups[k] = next++;
  }
  auto schedule = try_steps(base, group_steps(structure, group, plan).steps);
  std::vector<int> groups(group.loop_groups.size(), -1);
  if (!schedule) return groups;
  int number = -1;
  std::string last;
  for (std::size_t k = group.loop_groups.size(); k-- > 0;) {
    const LoopGroup& loop_group = structure.loop_groups[group.loop_groups[k]];
    const int position = loop_group.shared_position_of(reduction_axis);
    if (position < 0) continue;
    const std::string loop = loop_group.loops[position] + "_o";
    auto fused = last.empty() ? std::nullopt : try_step(*schedule, make_step("fuse_with", {loop, last}));
    if (fused) {
      schedule = std::move(fused);
    } else {
      ++number;
      last = loop;
    }
    groups[k] = number;
  }
  return groups;
}

std::int64_t place_of(Fusion fusion) {
  const auto* const found = std::find(kFusions.begin(), kFusions.end(), fusion);
  if (found == kFusions.end()) internal_error("fusion {} is no value of a parameter", static_cast<int>(fusion));
  return found - kFusions.begin();
}

std::vector<FusionGroup> find_fusion_groups(const Schedule& base, const NestStructure& structure, Fusion fusion) {
  std::vector<int> all(structure.loop_groups.size());
  std::iota(all.begin(), all.end(), 0);
  return GroupFinder(base, structure, all, fusion, true).find();
}

std::vector<FusionGroup> find_fusion_groups_of(const Schedule& base, const NestStructure& structure,
                                               const std::vector<int>& loop_groups, Fusion fusion) {
  return GroupFinder(base, structure, loop_groups, fusion, false).find();
}

}  // namespace nestor
