// Fission from the inside out, and marks on the loops that it makes. Each step is proved by applying it.
#include "autotune/space/distribution.h"

#include "autotune/space/structure/try_steps.h"
#include "poly/isl/isl_tools.h"
#include "support/rounding.h"

#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <any>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

namespace nestor {
namespace {

constexpr int kFinding = 1;                ///< number of the form among the findings about a fusion group
constexpr double kPointsOfARegion = 4096;  ///< fewer are not worth the start of a parallel region
constexpr double kLargeShare = 0.25;       ///< of the largest statement's points, from which another one counts as large

/// Has each statement of the loop group one value of the loop? Such a loop says in what order statements stand, no more.
bool is_constant(const Nest& nest, const LoopGroup& loop_group, int position) {
  return std::all_of(loop_group.statements.begin(), loop_group.statements.end(), [&](const std::string& name) {
    isl_val* value = isl_set_plain_get_val_if_fixed(nest.statement(name).domain.get(), isl_dim_set, position);
    const bool fixed = isl_val_is_int(value) == isl_bool_true;
    isl_val_free(value);
    return fixed;
  });
}

bool is_legal(const Schedule& base, const NestStructure& structure, const FusionGroup& group, const GroupForm& form) {
  GroupPlan plan = probe_plan(group);
  plan.form = form;
  plan.order = form.outside;
  const std::vector<int> independent = independent_axes(group, form);
  for (const int axis : independent) plan.tile[axis] = 8;
  plan.parallel = static_cast<int>(independent.size());
  return try_steps(base, group_steps(structure, group, plan).steps).has_value();
}

std::optional<GroupForm> find_form(const Schedule& base, const NestStructure& structure, const FusionGroup& group) {
  const auto loop_group = [&](int u) -> const LoopGroup& { return structure.loop_groups[static_cast<std::size_t>(u)]; };
  const bool several =
      std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) { return loop_group(u).statements.size() > 1; });
  std::vector<int> serial = serial_axes(group), independent;
  if (group.part || (!several && !has_steps_of_points(group))) return std::nullopt;
  // Such a loop outside of all others would run a statement's steps before another one's.
  const auto orders_statements = [&](int axis) {
    return std::all_of(group.loop_groups.begin(), group.loop_groups.end(),
                       [&](int u) { return is_constant(base.nest(), loop_group(u), loop_group(u).position_of(axis)); });
  };
  std::erase_if(serial, orders_statements);
  if (serial.empty()) return std::nullopt;
  const auto form_of = [&] {
    GroupForm form{GroupForm::Kind::distributed, {}, independent};
    form.outside.insert(form.outside.end(), serial.begin(), serial.end());
    return form;
  };
  if (!is_legal(base, structure, group, form_of())) return std::nullopt;
  for (std::size_t k = 0; k < group.axes.size(); ++k) {
    if (!group.parallel[k] || orders_statements(group.axes[k])) continue;
    independent.push_back(group.axes[k]);
    if (!is_legal(base, structure, group, form_of())) independent.pop_back();
  }
  if (!several && independent.empty()) return std::nullopt;
  return form_of();
}

/// A statement's own loops, outermost first.
struct OwnLoops {
  std::vector<std::string> names;
  std::vector<std::int64_t> extents;  ///< at the sizes tuned for; a loop within tiles counts whole
  double points() const {
    return std::accumulate(extents.begin(), extents.end(), 1.0,
                           [](double product, std::int64_t extent) { return product * static_cast<double>(extent); });
  }
};

class Distribution {
 public:
  Distribution(Schedule schedule, const GroupSteps& shared, const Sizes& sizes)
      : schedule_(std::move(schedule)), shared_(shared), sizes_(sizes) {}

  std::vector<Step> take_steps() { return std::move(steps_); }

  /// Cuts between the loop group's statements, the last first; loops outside of depth `kept` stay whole.
  void cut(const LoopGroup& loop_group, std::size_t kept) {
    for (std::size_t k = loop_group.statements.size(); k-- > 1;) {
      const std::string& statement = loop_group.statements[k];
      const std::vector<std::string> own = schedule_.loops_of(statement);
      for (std::size_t depth = depth_shared(statement, loop_group.statements[k - 1]); depth-- > kept;) {
        if (stays_in_step(loop_group, own[depth]) || !apply(make_step("fission", {own[depth], statement}))) break;
      }
    }
  }

  /// Marks loops of the large statements.
  void mark(const LoopGroup& loop_group, const DistributedLoops& wanted) {
    std::vector<OwnLoops> all;
    double largest = 0;
    for (const std::string& name : loop_group.statements) {
      all.push_back(own_loops(loop_group, name));
      largest = std::max(largest, all.back().points());
    }
    for (OwnLoops& own : all) {
      if (own.points() < kLargeShare * largest) continue;
      if (wanted.tasks > 1 && largest >= kPointsOfARegion) cut_into_tasks(own, wanted.tasks);
      mark_vectors(own, wanted);
    }
  }

 private:
  bool apply(const Step& step) {
    auto next = try_step(schedule_, step);
    if (!next) return false;
    schedule_ = std::move(*next);
    steps_.push_back(step);
    return true;
  }

  /// Is the loop one over steps of elementwise values? What a step has for itself, as a force, would else be stored for all steps.
  bool stays_in_step(const LoopGroup& loop_group, const std::string& loop) const {
    const Nest& nest = schedule_.nest();
    const auto found = std::find(loop_group.loops.begin(), loop_group.loops.end(), loop);
    const auto reduces = [&](const std::string& name) { return nest.statement(name).reduction.has_value(); };
    return found != loop_group.loops.end() &&
           !is_constant(nest, loop_group, static_cast<int>(found - loop_group.loops.begin())) &&
           std::none_of(loop_group.statements.begin(), loop_group.statements.end(), reduces) &&
           !try_step(schedule_, make_step("parallel", {loop}));
  }

  /// How many loops two statements share.
  std::size_t depth_shared(const std::string& one, const std::string& other) const {
    const std::vector<std::string> a = schedule_.loops_of(one), b = schedule_.loops_of(other);
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }

  OwnLoops own_loops(const LoopGroup& loop_group, const std::string& statement) const {
    const std::vector<std::string>& inner = shared_.inner.at(loop_group.first);
    const std::vector<std::string> all = schedule_.loops_of(statement);
    std::size_t common = all.size() - inner.size();
    for (const std::string& other : loop_group.statements) {
      if (other != statement) common = std::max(common, depth_shared(statement, other));
    }
    OwnLoops own;
    for (std::size_t k = common; k < all.size(); ++k) {
      // Fission renames loops; before it they were those of the loop group, or what a tile has of them.
      const std::string& was = inner[k - (all.size() - inner.size())];
      for (std::size_t dim = 0; dim < loop_group.loops.size(); ++dim) {
        if (was != loop_group.loops[dim] && was != loop_group.loops[dim] + "_i") continue;
        own.names.push_back(all[k]);
        own.extents.push_back(extent_of(statement, dim));
      }
    }
    return own;
  }

  std::int64_t extent_of(const std::string& statement, std::size_t dim) const {
    const isl::set fixed = at_sizes(schedule_.nest().statement(statement).domain, sizes_);
    if (fixed.is_empty()) return 0;
    const auto [low, high] = dim_range(fixed, static_cast<int>(dim));
    return high - low + 1;
  }

  /// The outermost loop that can run in parallel and has an iteration for each task, or the longest one: a stretch a task.
  void cut_into_tasks(OwnLoops& own, int tasks) {
    std::vector<std::size_t> places(own.names.size());
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
      return std::min<std::int64_t>(own.extents[a], tasks) > std::min<std::int64_t>(own.extents[b], tasks);
    });
    for (const std::size_t k : places) {
      if (own.extents[k] < 2) return;
      const std::string outer = own.names[k] + "_t", inner = own.names[k] + "_p";
      const Schedule before = schedule_;
      const std::size_t count = steps_.size();
      if (apply(make_step("split", {own.names[k], ceil_div(own.extents[k], tasks), outer, inner})) &&
          hoist(own.names, k, outer, inner) && apply(make_step("parallel", {outer}))) {
        own.names[k] = inner;
        return;
      }
      schedule_ = before;
      steps_.resize(count);
    }
  }

  bool hoist(std::vector<std::string> loops, std::size_t place, const std::string& outer, const std::string& inner) {
    if (place == 0) return true;
    loops[place] = inner;
    loops.insert(loops.begin(), outer);
    return apply(make_step("reorder", {loops.begin(), loops.end()}));
  }

  void mark_vectors(const OwnLoops& own, const DistributedLoops& wanted) {
    std::vector<std::string> long_loops;
    for (std::size_t k = 0; k < own.names.size(); ++k) {
      if (own.extents[k] > 1) long_loops.push_back(own.names[k]);
    }
    if (wanted.vector > 0 && !long_loops.empty()) apply(make_step("vectorize", {long_loops.back(), wanted.vector}));
    if (wanted.unroll > 0 && long_loops.size() > 1)
      apply(make_step("unroll", {long_loops[long_loops.size() - 2], wanted.unroll}));
  }

  Schedule schedule_;
  const GroupSteps& shared_;
  const Sizes& sizes_;
  std::vector<Step> steps_;
};

}  // namespace

std::vector<int> independent_axes(const FusionGroup& group, const GroupForm& form) {
  std::vector<int> axes = form.outside;
  for (const int serial : serial_axes(group)) std::erase(axes, serial);
  return axes;
}

bool has_steps_of_points(const FusionGroup& group) {
  const std::vector<int> serial = serial_axes(group);
  return !serial.empty() && serial.size() < group.axes.size() && serial.front() == group.axes.front() &&
         std::none_of(
             group.forms.begin(), group.forms.end(), [](const GroupForm& form) { return form.kind == GroupForm::Kind::inside; });
}

const std::optional<GroupForm>& distributed_form(RuleVariants& variants, const RuleVariant& variant, const FusionGroup& group) {
  std::any& known = variants.finding(group, kFinding);
  if (!known.has_value()) known = find_form(variants.base(variant), variant.structure, group);
  return *std::any_cast<std::optional<GroupForm>>(&known);
}

std::vector<Step> distribution_steps(const Schedule& base, const NestStructure& structure, const FusionGroup& group,
                                     const GroupPlan& plan, const GroupSteps& shared, const Sizes& sizes,
                                     const DistributedLoops& wanted) {
  auto schedule = try_steps(base, shared.steps);
  if (!schedule) return {};
  const std::vector<int> serial = serial_axes(group);
  const auto is_serial = [&](int axis) { return std::find(serial.begin(), serial.end(), axis) != serial.end(); };
  const bool distributed = plan.form.kind == GroupForm::Kind::distributed;
  const auto outermost = std::find_if(plan.order.begin(), plan.order.end(), is_serial);
  const std::size_t kept = distributed ? static_cast<std::size_t>(outermost - plan.order.begin()) + 1 : plan.order.size();
  Distribution distribution(std::move(*schedule), shared, sizes);
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = structure.loop_groups[static_cast<std::size_t>(u)];
    distribution.cut(loop_group, kept);
    distribution.mark(loop_group, wanted);
  }
  return distribution.take_steps();
}

std::vector<NamedValues> likely_distributions(RuleVariants& variants, const RuleVariant& usual, std::int64_t processors,
                                              const NamedValues& first) {
  constexpr std::int64_t kIterations = 0, kInside = -1;
  const auto axis_of = [&](int number) -> const Axis& { return usual.structure.axes[static_cast<std::size_t>(number)]; };
  std::vector<NamedValues> found;
  for (const Fusion fusion : {Fusion::none, Fusion::careful, Fusion::maximal}) {
    std::vector<std::vector<int>> around;  // independent axes of each group that has such a form
    std::int64_t most = 0;                 // of their iterations
    for (const FusionGroup& group : variants.fusion_groups(usual, fusion)) {
      const auto& form = distributed_form(variants, usual, group);
      if (!form) continue;
      around.push_back(independent_axes(group, *form));
      std::int64_t iterations = 1;
      for (const int number : around.back()) iterations *= axis_of(number).extent;
      most = std::max(most, iterations);
    }
    if (around.empty()) continue;
    for (const std::int64_t each : {2 * most <= processors ? kInside : 1, std::int64_t{4}, kIterations}) {
      NamedValues values = first;
      values["form"] = kDistributedForm;
      values["fusion"] = place_of(fusion);
      for (const std::vector<int>& axes : around) {
        std::int64_t left = each == kIterations ? INT64_MAX : each * processors;
        for (const int number : axes) {
          const Axis& axis = axis_of(number);
          const std::int64_t tile = left <= 1 || axis.extent == 1 ? 0 : std::max<std::int64_t>(axis.extent / left, 1);
          values["tile." + axis.name] = tile;
          if (tile > 0) left = each == kIterations ? 1 : ceil_div(left, ceil_div(axis.extent, tile));
        }
      }
      found.push_back(std::move(values));
    }
  }
  return found;
}

}  // namespace nestor
