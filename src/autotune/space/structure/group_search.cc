// Fusion groups, their parallel loops and their skewed forms, each proved by applying the steps.
#include "autotune/space/structure/group_search.h"

#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/try_steps.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>

namespace nestor {
namespace {

class GroupFinder {
 public:
  GroupFinder(const Schedule& base, const NestStructure& structure, const std::vector<int>& loop_groups, Fusion fusion)
      : base_(base), structure_(structure), loop_groups_(loop_groups), fusion_(fusion) {
    if (fusion == Fusion::connected) find_components();
  }

  std::vector<FusionGroup> find() {
    std::vector<FusionGroup> fusion_groups;
    const int count = static_cast<int>(loop_groups_.size());
    taken_.assign(loop_groups_.size(), false);
    for (int first = 0; first < count;) {
      if (taken_[static_cast<std::size_t>(first)]) {
        ++first;
        continue;
      }
      const int last = end_of_run(first);
      FusionGroup group = group_of(first, last);
      // The longest run is tried first, since it mostly is legal; what is not legal as a whole is grown loop group by loop group.
      if (last - first > 1 && !legal(group)) {
        int grown = first + 1;
        while (grown < last && legal(group_of(first, grown + 1))) ++grown;
        group = group_of(first, grown);
      }
      first += static_cast<int>(group.loop_groups.size());
      if (fusion_ == Fusion::alike) gather(group, first);
      complete(group);
      fusion_groups.push_back(std::move(group));
    }
    return fusion_groups;
  }

 private:
  /// Behind the last place that the run from `first` may have.
  int end_of_run(int first) const {
    int last = first + 1;
    while (last < static_cast<int>(loop_groups_.size()) && !taken_[static_cast<std::size_t>(last)] && extends(first, last))
      ++last;
    return last;
  }

  /// Adds later runs with the same parallel loops that sum up the same input. They may need nothing of what stands between, such as the
  /// combining of parts.
  void gather(FusionGroup& group, int next) {
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
      if (alike && reduces(group) && reduces(run) && reads_same_input(group, run) && legal(more)) {
        group = std::move(more);
        std::fill(taken_.begin() + place, taken_.begin() + end, true);
      }
      place = end;
    }
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
    if (fusion_ == Fusion::connected) {
      if (components_[static_cast<std::size_t>(first)] != components_[static_cast<std::size_t>(next)]) return false;
    } else if (fusion_ >= Fusion::related && !shares_tensor(first, next)) {
      return false;
    }
    if (fusion_ == Fusion::alike && group_of(next, next + 1).axes.size() != after.size()) return false;
    return !after.empty() && (fusion_ == Fusion::maximal || after.size() == before.size());
  }

  /// Loop groups that computed tensors connect have one number.
  void find_components() {
    components_.resize(loop_groups_.size());
    std::iota(components_.begin(), components_.end(), 0);
    std::map<std::string, int> users;  // a place that touches the tensor
    for (int place = 0; place < static_cast<int>(loop_groups_.size()); ++place) {
      for (const std::string& tensor : tensors_of(place)) {
        if (base_.nest().tensor(tensor).role == TensorRole::input) continue;
        const int other = users.emplace(tensor, place).first->second;
        const int from = components_[static_cast<std::size_t>(place)], to = components_[static_cast<std::size_t>(other)];
        std::replace(components_.begin(), components_.end(), from, to);
      }
    }
  }

  std::set<std::string> tensors_of(int place) const {
    std::set<std::string> tensors;
    for (const std::string& name : structure_.loop_groups[loop_groups_[place]].statements) {
      const Statement& statement = base_.nest().statement(name);
      tensors.insert(statement.write.tensor);
      for (const Access& read : statement.reads) tensors.insert(read.tensor);
    }
    return tensors;
  }

  /// Does the loop group touch a tensor that one of first .. next - 1 touches?
  bool shares_tensor(int first, int next) const {
    const std::set<std::string> own = tensors_of(next);
    for (int place = first; place < next; ++place) {
      const std::set<std::string> tensors = tensors_of(place);
      if (std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) { return own.contains(tensor); })) return true;
    }
    return false;
  }

  /// Of the loop groups at the places first .. last - 1.
  FusionGroup group_of(int first, int last) const {
    FusionGroup group;
    group.heaviest = loop_groups_[first];
    for (int place = first; place < last; ++place) {
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

  /// Parallel loops, tilability, stream axes and forms.
  void complete(FusionGroup& group) const {
    const GroupSteps probe = group_steps(structure_, group, probe_plan(group));
    const auto fused = try_steps(base_, probe.steps);
    for (const int axis : group.axes) {
      group.parallel.push_back(fused && try_step(*fused, make_step("parallel", {probe.outer.at(axis)})).has_value());
    }
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
  std::vector<bool> taken_;      ///< by place: a group before has it
  std::vector<int> components_;  ///< by place, for Fusion::connected
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
    if (structure.loop_groups[group.loop_groups[k]].position_of(reduction_axis) >= 0) plan.reduction_groups[k] = next++;
  }
  auto schedule = try_steps(base, group_steps(structure, group, plan).steps);
  std::vector<int> groups(group.loop_groups.size(), -1);
  if (!schedule) return groups;
  int number = -1;
  std::string last;
  for (std::size_t k = group.loop_groups.size(); k-- > 0;) {
    const LoopGroup& loop_group = structure.loop_groups[group.loop_groups[k]];
    const int position = loop_group.position_of(reduction_axis);
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

std::vector<FusionGroup> find_fusion_groups(const Schedule& base, const NestStructure& structure, Fusion fusion) {
  std::vector<int> all(structure.loop_groups.size());
  std::iota(all.begin(), all.end(), 0);
  return find_fusion_groups_of(base, structure, all, fusion);
}

std::vector<FusionGroup> find_fusion_groups_of(const Schedule& base, const NestStructure& structure,
                                               const std::vector<int>& loop_groups, Fusion fusion) {
  return GroupFinder(base, structure, loop_groups, fusion).find();
}

}  // namespace nestor
