// Group by group: products on tensor cores, rows over blocks or threads.
#include "autotune/space/nest/nest_candidate.h"

#include "autotune/space/distribution.h"
#include "autotune/space/gpu/column_strips.h"
#include "autotune/space/gpu/scattered_sums.h"
#include "autotune/space/gpu/tensor_fit.h"
#include "autotune/space/gpu/tensor_guesses.h"
#include "autotune/space/gpu/transposed_rows.h"
#include "autotune/space/group_choice.h"
#include "autotune/space/product_points.h"
#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/window_points.h"
#include "support/knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kFewestColumns = 8;    ///< of f32: 32 bytes
constexpr std::int64_t kRowsOfShortSums = 8;  ///< of which a block takes 128 columns
constexpr int kCombiningThreads = 512;        ///< of a block that combines parts, each thread a few of them
constexpr int kPrefixThreads = 128;           ///< of a block that keeps rows of running sums
constexpr int kRecurringThreads = 64;         ///< of a block whose threads each go through all steps
constexpr int kSummingThreads = 256;          ///< of a block that adds up a few parts of each of many sums

Fusion fusion_of(const NamedValues& values) { return kFusions.at(static_cast<std::size_t>(value_or(values, "fusion", 0))); }

}  // namespace

NestCandidate::NestCandidate(const CandidateFacts& facts, RuleVariants& variants, const NamedValues& values)
    : facts_(facts),
      variants_(variants),
      values_(values),
      tensor_(tensor_choice(values)),
      rules_(rule_choice()),
      chosen_(variants.at(rules_)),
      groups_(variants.fusion_groups(chosen_, fusion_of(values), on_tensor_cores())),
      main_(&variants.heaviest(chosen_, fusion_of(values), on_tensor_cores())) {}

RuleChoice NestCandidate::rule_choice() const {
  RuleChoice choice;
  for (const std::string& rule : facts_.rules) {
    if (value_or(values_, "rule." + rule, 0)) choice.rules.insert(rule);
  }
  choice.split = static_cast<int>(value_or(values_, "split_axis", -1));
  if (choice.split >= 0) choice.parts = value_or(values_, "num_splits", 0);
  // Tiles of a part's terms are whole: copies bring zeros beyond the end of an operand, not beyond that of a part.
  const bool sums = choice.split >= 0 && facts_.streams_terms && on_tensor_cores();
  if (sums && choice.split == facts_.columns) {
    choice.tile = tensor_.columns;
    choice.parts = 0;
  } else if (sums && choice.split == facts_.terms) {
    choice.multiple = tensor_.depth;
  } else if (choice.split >= 0 && !on_tensor_cores()) {
    choice.multiple = value_or(values_, "part_tile", 1);
  }
  const int now = choice.split < 0 ? -1 : variants_.axis_after(choice.rules, facts_.usual_rules, choice.split);
  if (now >= 0) choice.split = now;
  return choice;
}

Candidate NestCandidate::build() {
  candidate_.steps = chosen_.rules;
  candidate_.least_ms = facts_.scalar_floor_ms;
  if (on_tensor_cores() && tensor_.rescale > 0 && rules_.split < 0)
    candidate_.steps = with_threshold(std::move(candidate_.steps), facts_.may_stay_behind, tensor_.rescale);
  if (main_->part && main_->at_front &&
      !tensor_axes(variants_.nest(chosen_), chosen_.structure, *main_, facts_.limits.gpu ? facts_.limits.gpu->sm : 0)) {
    candidate_.infeasible = "parts of rows are for products on tensor cores";
    return std::move(candidate_);
  }
  if (rules_.tile > 0 && !main_->tile_is_part) {
    candidate_.infeasible = "what tiles have of rows is no part of them";
    return std::move(candidate_);
  }
  for (const FusionGroup& group : groups_) {
    candidate_.infeasible = add(group);
    if (!candidate_.infeasible.empty()) return std::move(candidate_);
  }
  if (value_or(values_, kShapeBesideParameter, 0) > 0 && !shaped_beside_) {
    candidate_.infeasible = "no product beside the main one has another shape";
    return std::move(candidate_);
  }
  if (facts_.limits.gpu && parts_rows_from_sums()) candidate_.cut = true;
  if (facts_.limits.gpu ? gpu_choice(values_).streaming_outputs : value_or(values_, "streaming", 0) != 0) {
    for (const Tensor& tensor : facts_.nest.tensors) {
      if (tensor.role == TensorRole::output) candidate_.steps.push_back(make_step("streaming", {tensor.name}));
    }
  }
  return std::move(candidate_);
}

/// Are rows in kernels of their own, apart from sums over them, which a block might keep if it knew their length?
bool NestCandidate::parts_rows_from_sums() const {
  const Fusion fusion = fusion_of(values_);
  if (fusion != Fusion::none && fusion != Fusion::alike) return false;
  const RuleVariant& whole = variants_.at({rules_.rules});
  return axis_of_column_sums(variants_.nest(whole), whole.structure, variants_.heaviest(whole, Fusion::none)) < 0;
}

bool NestCandidate::multiplies(const FusionGroup& group) const {
  return nestor::multiplies(variants_.nest(chosen_), chosen_.structure, group.loop_groups);
}

/// Points of the group's largest loop group.
double NestCandidate::points_of_all(const FusionGroup& group) const {
  return chosen_.structure.loop_groups[static_cast<std::size_t>(group.heaviest)].points;
}

/// Do few threads, of all that the chip has, go through many points each? Steps of a recurrence leave them no choice.
bool NestCandidate::leaves_units_idle(const GpuGroup& part, const GpuChoice& choice) const {
  if (!serial_axes(part.group).empty()) return false;
  constexpr double kThreads = 512;  // of a unit
  constexpr double kMany = 64;
  const double blocks = points_of_all(part.group) / std::max(points_of_block(part), 1.0);
  const double threads = blocks * choice.grid.threads * choice.grid.cluster;
  return threads < kThreads * facts_.limits.gpu->units && points_of_all(part.group) > kMany * threads;
}

bool NestCandidate::sums_up(const FusionGroup& group) const {
  return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
    const std::vector<bool>& reduced = chosen_.structure.loop_groups[static_cast<std::size_t>(u)].reduced;
    return std::find(reduced.begin(), reduced.end(), true) != reduced.end();
  });
}

/// Is combining parts the largest of what the group does?
bool NestCandidate::mostly_combines(const FusionGroup& group) const {
  double combined = 0, other = 0;
  for (const int u : group.loop_groups) {
    const LoopGroup& loop_group = chosen_.structure.loop_groups[static_cast<std::size_t>(u)];
    const bool combines = std::any_of(chosen_.structure.parts.begin(), chosen_.structure.parts.end(),
                                      [&](const PartAxis& part) { return loop_group.position_of(part.axis) >= 0; });
    double& most = combines ? combined : other;
    most = std::max(most, loop_group.points);
  }
  return combined >= other;
}

/// Products of groups beside the main one get tensor cores as well, unless those combine parts.
std::optional<TensorAxes> NestCandidate::axes_of(const FusionGroup& group) const {
  if (!on_tensor_cores() || combines(group)) return std::nullopt;
  return tensor_axes(variants_.nest(chosen_), chosen_.structure, group, facts_.limits.gpu->sm);
}

/// Blocks may be placed before the kernel before ends, be that one of this launch or another in the stream.
void NestCandidate::place_early(GridShape& grid) const {
  const auto& gpu = facts_.limits.gpu;
  grid.programmatic_launch = gpu && gpu->sm >= knob_named("programmatic_launch").least_sm ? 1 : 0;
}

/// The group's steps; why there are none, or "". What is beside the main group is fused less where its blocks do not fit: at last each
/// statement has kernels of its own.
std::string NestCandidate::add(const FusionGroup& group) {
  if (adds_product_apart(group) || adds_parallel_parts(group) || adds_unrelated_parts(group)) return "";
  std::string why = add_whole(group);
  if (why.empty() || !facts_.limits.gpu || is_main(group) || group.part) return why;
  for (const Fusion fusion : {Fusion::careful, Fusion::alike, Fusion::none}) {
    if (add_cut(variants_.cut_groups(chosen_, group, fusion)).empty()) return "";
  }
  return why;
}

/// A product beside the main group, in a kernel of its own on tensor cores, where the group as a whole has no place there.
bool NestCandidate::adds_product_apart(const FusionGroup& group) {
  if (!on_tensor_cores() || is_main(group) || group.part || combines(group) || !multiplies(group) || axes_of(group)) return false;
  for (const Fusion fusion : {Fusion::careful, Fusion::alike}) {
    const std::vector<FusionGroup>& groups = variants_.cut_groups(chosen_, group, fusion);
    const bool finds =
        std::any_of(groups.begin(), groups.end(), [&](const FusionGroup& each) { return axes_of(each).has_value(); });
    if (finds && adds_in_parts(groups)) return true;
  }
  return false;
}

/// Parts of a group beside the main one with a parallel loop each that the group has not, as one statement waits for another along it.
bool NestCandidate::adds_parallel_parts(const FusionGroup& group) {
  if (!facts_.limits.gpu || is_main(group) || group.part || group.loop_groups.size() < 2) return false;
  const std::vector<int> serial = serial_axes(group);
  if (serial.empty()) return false;
  const std::vector<FusionGroup>& groups = variants_.cut_groups(chosen_, group, Fusion::careful);
  const bool gains = std::any_of(serial.begin(), serial.end(), [&](int axis) {
    return std::none_of(groups.begin(), groups.end(), [&](const FusionGroup& each) {
      const std::vector<int> own = serial_axes(each);
      return std::find(own.begin(), own.end(), axis) != own.end();
    });
  });
  return gains && adds_in_parts(groups);
}

/// Statements of a group beside the main one that have nothing to do with each other, as copies of two operands, and that have more loops
/// apart than together.
bool NestCandidate::adds_unrelated_parts(const FusionGroup& group) {
  if (!facts_.limits.gpu || is_main(group) || group.part || group.loop_groups.size() < 2) return false;
  const std::vector<FusionGroup>& groups = variants_.unrelated_groups(chosen_, group);
  const bool gains = groups.size() > 1 && std::any_of(groups.begin(), groups.end(), [&](const FusionGroup& each) {
                       return each.axes.size() > group.axes.size();
                     });
  return gains && adds_in_parts(groups);
}

/// Cuts a group that has room as it is.
bool NestCandidate::adds_in_parts(const std::vector<FusionGroup>& groups) {
  const bool cut = candidate_.cut;
  if (!add_cut(groups).empty()) return false;
  candidate_.cut = cut;
  return true;
}

std::string NestCandidate::add_cut(const std::vector<FusionGroup>& groups) {
  if (groups.size() < 2) return "one group";
  const Candidate before = candidate_;
  for (const FusionGroup& each : groups) {
    if (std::string why = add(each); !why.empty()) {
      candidate_ = before;
      return why;
    }
  }
  candidate_.cut = true;
  return "";
}

std::string NestCandidate::add_whole(const FusionGroup& group) {
  if (const auto axes = axes_of(group)) return add_products(group, *axes);
  GroupShape shape = shape_of(group, values_);
  if (std::string why = make_shape(group, shape); !why.empty()) return why;
  add_shape(group, shape);
  return "";
}

std::string NestCandidate::add_products(const FusionGroup& group, const TensorAxes& axes) {
  if (rules_.split >= 0 && rows_follow_stream(variants_.nest(chosen_), chosen_.structure, group, axes))
    return "tiles of a part have other rows than its sums";
  // Tiles that are parts have the same columns in all kernels.
  TensorChoice choice = is_main(group) || group.tile_is_part ? tensor_ : choice_beside(axes);
  place_early(choice.grid);
  if (std::string why = tensor_infeasible(axes, choice, *facts_.limits.gpu); !why.empty()) return why;
  GroupPlan plan = tensor_plan(group, axes, choice);
  if ((!group.part || group.tile_is_part) && plan.reduction_axis >= 0)
    plan.reduction_groups = variants_.reduction_groups(chosen_, group, plan.reduction_axis);
  append(tensor_steps(group_steps(chosen_.structure, group, plan), axes, choice));
  candidate_.least_ms = 0;
  return "";
}

/// For a group beside the main one: of the shapes that fit the one that the point asks for, or the last; or a choice that says why none does.
TensorChoice NestCandidate::choice_beside(const TensorAxes& axes) {
  const int halves = axes.wide_operands > 0 ? tensor_.grid.operand_halves : 0;
  const std::int64_t wanted = value_or(values_, kShapeBesideParameter, 0);
  TensorChoice last{.grid = {.warpgroups = 1}};
  std::set<NamedValues> seen;
  for (NamedValues values : likely_tensor_choices(axes, *facts_.limits.gpu)) {
    const TensorChoice choice = tensor_choice(values);
    if (choice.grid.operand_halves != halves || !tensor_infeasible(axes, choice, *facts_.limits.gpu).empty()) continue;
    // Other orders of the same tiles are no other shapes.
    for (const char* order : {"raster_group", "descending", "longest_first"}) values.erase(order);
    if (!seen.insert(std::move(values)).second) continue;
    last = choice;
    shaped_beside_ = shaped_beside_ || static_cast<std::int64_t>(seen.size()) > wanted;
    if (static_cast<std::int64_t>(seen.size()) > wanted) break;
  }
  return last;
}

NestCandidate::GroupShape NestCandidate::shape_of(const FusionGroup& group, NamedValues values) const {
  GroupShape shape{std::move(values), {}, {}};
  shape.on_gpu = gpu_choice(shape.values);
  if (combines(group)) shape.on_gpu = {.grid = {.threads = kCombiningThreads}};
  if (combines(group) && facts_.streams_terms && on_tensor_cores()) {
    // A few parts of many sums: threads take elements, not parts of one element.
    shape.on_gpu.grid.threads = kSummingThreads;
    // Of many parts, threads share those of an element again.
    const std::int64_t parts =
        main_->tile_is_part ? chosen_.structure.axes[static_cast<std::size_t>(main_->part->axis)].extent : 1;
    for (const auto& [name, tile] : tiles_of_few_parts(chosen_.structure, group, parts)) {
      if (value_or(shape.values, name, 0) == 0) shape.values[name] = tile;
    }
  }
  place_early(shape.on_gpu.grid);
  const bool scatters =
      value_or(values_, kScatterParameter, 0) != 0 && scatters_terms(variants_.nest(chosen_), chosen_.structure, group);
  shape.on_gpu.grid.scatter = scatters ? 1 : 0;
  shape.plan = plan_for(variants_, chosen_, group, shape.values, facts_.limits, combines(group));
  const bool parts_all = facts_.limits.gpu && !is_main(group) && group.loop_groups.size() > 1 && shape.plan.order.empty();
  if (parts_all && !group.axes.empty()) {
    // Without a common loop they would have kernels of their own.
    shape.values["tile." + chosen_.structure.axes[static_cast<std::size_t>(group.axes.front())].name] = 1;
    shape.plan = plan_for(variants_, chosen_, group, shape.values, facts_.limits, combines(group));
  }
  return shape;
}

/// Why the shape does not fit, or ""; of a group beside the main one it may become one of its own.
std::string NestCandidate::make_shape(const FusionGroup& group, GroupShape& shape) const {
  const Nest& nest = variants_.nest(chosen_);
  if (!facts_.limits.gpu) {
    const bool keeps_rows = !shape.plan.order.empty() && group.loop_groups.size() > 1;
    const std::int64_t bytes = keeps_rows ? scratch_bytes(nest, chosen_.structure, group, shape.plan) : 0;
    if (bytes <= facts_.limits.scratch_bytes) return "";
    return fmt::format("one tile holds {} KiB of temporaries, more than {} KiB", bytes >> 10, facts_.limits.scratch_bytes >> 10);
  }
  // What a block keeps of statements of a step is the plan's to say: it goes to memory where they have kernels of their own.
  if (combines(group) || distributes(group, shape.plan)) return "";
  const GpuLimits& gpu = *facts_.limits.gpu;
  const auto infeasible = [&] {
    return gpu_infeasible({nest, chosen_.structure, group, shape.plan, facts_.sizes}, shape.on_gpu, gpu);
  };
  // Where each statement has kernels of its own, one shape does not suit all of them. Nor does that of parts of sums suit what sums up nothing.
  const bool beside = (!main_->part || main_->tile_is_part || group.prepares || !sums_up(group)) &&
                      (!is_main(group) || fusion_of(values_) == Fusion::none);
  // Running sums in tiles that other groups are cut into would add up all that stands before each tile again.
  if (const int prefixes = beside && !is_main(group) ? axis_of_prefixes(nest, chosen_.structure, group) : -1; prefixes >= 0) {
    const GroupShape before = shape;
    shape = shape_of(group, values_of_prefixes(nest, chosen_.structure, group, prefixes, kPrefixThreads));
    if (infeasible().empty()) return "";
    shape = before;
  }
  if (beside && !is_main(group) && value_or(values_, kScatterParameter, 0) != 0) {
    if (const NamedValues values = values_of_scattered(nest, chosen_.structure, group, {.fewest = gpu.units}); !values.empty()) {
      const GroupShape before = shape;
      shape = shape_of(group, values);
      if (infeasible().empty()) return "";
      shape = before;
    }
  }
  // Each thread goes through the steps for elements of its own.
  const auto inside = std::find_if(group.forms.begin(), group.forms.end(),
                                   [](const GroupForm& form) { return form.kind == GroupForm::Kind::inside; });
  if (beside && !is_main(group) && on_tensor_cores() && inside != group.forms.end()) {
    const GroupShape before = shape;
    NamedValues values = values_of_recurrence(nest, chosen_.structure, group, *inside, kRecurringThreads);
    values["form"] = inside - group.forms.begin();
    shape = shape_of(group, std::move(values));
    if (infeasible().empty()) return "";
    shape = before;
  }
  // Sums of fewer columns than a sector of memory has read the rest of it for nothing.
  const int columns = axis_of_column_sums(nest, chosen_.structure, group);
  const auto tile = shape.plan.tile.find(columns);
  const bool narrow = beside && tile != shape.plan.tile.end() && tile->second > 0 && tile->second < kFewestColumns &&
                      chosen_.structure.axes[static_cast<std::size_t>(columns)].extent >= kFewestColumns;
  // Single rows of a large product would read all its columns for each.
  const std::vector<int> tiled = tiled_by_products(nest, chosen_.structure, group);
  const auto is_long = [&](int axis) { return chosen_.structure.axes[static_cast<std::size_t>(axis)].extent >= kWarp; };
  const auto is_single = [&](int axis) {
    const auto rows = shape.plan.tile.find(axis);
    return rows != shape.plan.tile.end() && rows->second == 1;
  };
  const bool single_rows = beside && !is_main(group) && std::all_of(tiled.begin(), tiled.end(), is_long) &&
                           std::any_of(tiled.begin(), tiled.end(), is_single);
  // Tiles of the main group may be single points here, of which each would have a block.
  const GpuGroup part{nest, chosen_.structure, group, shape.plan, facts_.sizes};
  const bool idle = beside && !is_main(group) &&
                    ((points_of_block(part) < kWarp && points_of_all(group) >= kWarp) || leaves_units_idle(part, shape.on_gpu));
  if (!narrow && !idle && !single_rows && (!beside || !on_tensor_cores())) {
    std::string why = infeasible();
    if (why.empty() || !beside) return why;
  }
  if (const auto rows = transposed_rows(nest, chosen_.structure, group)) {
    shape = shape_of(group, values_of_transposed(chosen_.structure, group, *rows));
    shape.on_gpu.transposed = rows->tensors;
    if (infeasible().empty()) return "";
  }
  const LoopGroup& heavy = chosen_.structure.loop_groups[static_cast<std::size_t>(group.heaviest)];
  if (const auto windows = multiplies(group) ? std::nullopt : windows_of(nest, heavy)) {
    for (NamedValues& values : likely_window_tiles(chosen_.structure, group, *windows)) {
      shape = shape_of(group, std::move(values));
      if (infeasible().empty()) return "";
    }
  }
  for (NamedValues& values : likely_product_tiles(nest, chosen_.structure, group, gpu)) {
    shape = shape_of(group, std::move(values));
    if (infeasible().empty()) return "";
  }
  if (columns >= 0) {
    shape = shape_of(group, values_of_column_sums(chosen_.structure, group, columns, gpu));
    if (infeasible().empty()) return "";
  }
  if (const int axis = axis_of_repeated_reads(nest, chosen_.structure, group); axis >= 0) {
    shape = shape_of(group, values_of_repeated_reads(chosen_.structure, group, axis));
    if (infeasible().empty()) return "";
  }
  if (const int axis = axis_of_short_sums(nest, chosen_.structure, group); axis >= 0) {
    shape = shape_of(group, values_of_short_sums(chosen_.structure, group, axis, kRowsOfShortSums));
    if (infeasible().empty()) return "";
  }
  if (const int axis = axis_of_weighted_columns(nest, chosen_.structure, group); axis >= 0) {
    shape = shape_of(group, values_of_column_sums(chosen_.structure, group, axis, gpu));
    if (infeasible().empty()) return "";
  }
  NamedValues values = values_beside_products(chosen_.structure, group, gpu);
  shape = shape_of(group, values);
  if (infeasible().empty()) return "";
  // Rows of several dims are kept by one block; a few points are left to one warp.
  values["cluster"] = 1;
  shape = shape_of(group, values);
  if (infeasible().empty()) return "";
  // Loops that are whole at these sizes may be longer in another launch: a tile of the last one, then of each but the first.
  for (std::size_t k = group.axes.size(); k-- > 1;) {
    const Axis& axis = chosen_.structure.axes[static_cast<std::size_t>(group.axes[k])];
    std::int64_t& tile = values["tile." + axis.name];
    if (axis.extent <= 1 || (tile > 0 && tile < axis.extent)) continue;
    tile = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(axis.extent - 1)));
    shape = shape_of(group, values);
    if (infeasible().empty()) return "";
  }
  values["threads"] = kWarp;
  shape = shape_of(group, std::move(values));
  return infeasible();
}

void NestCandidate::add_shape(const FusionGroup& group, const GroupShape& shape) {
  GroupSteps steps = group_steps(chosen_.structure, group, shape.plan);
  if (facts_.limits.gpu) {
    const GpuGroup part{variants_.nest(chosen_), chosen_.structure, group, shape.plan, facts_.sizes};
    steps.steps = gpu_steps(part, steps, shape.on_gpu);
  }
  append(steps.steps);
  if (distributes(group, shape.plan) || distributes_inside(group, shape.plan))
    append(distributed_steps(group, shape.plan, steps));
  else if (!facts_.limits.gpu)
    append(inner_loop_steps(chosen_.structure, group, steps, values_));
  if (is_main(group) && value_or(values_, "specialize", 0)) specialise(steps, shape.plan);
}

/// Do statements of a step get loops of their own? On a GPU, where they would take turns at each point, one thread would do all of a step.
bool NestCandidate::distributes(const FusionGroup& group, const GroupPlan& plan) const {
  if (plan.form.kind == GroupForm::Kind::distributed) return true;
  return facts_.limits.gpu && plan.form.kind == GroupForm::Kind::natural && distributed_form(variants_, chosen_, group);
}

/// Has a group whose common loops are independent a recurrence inside of them, with several statements in a step?
bool NestCandidate::distributes_inside(const FusionGroup& group, const GroupPlan& plan) const {
  if (!facts_.limits.gpu || plan.form.kind != GroupForm::Kind::natural || group.loop_groups.size() < 2) return false;
  const std::vector<FusionGroup>& alone = variants_.fusion_groups(chosen_, Fusion::none);
  return std::any_of(alone.begin(), alone.end(), [&](const FusionGroup& each) {
    return each.loop_groups.size() == 1 &&
           std::find(group.loop_groups.begin(), group.loop_groups.end(), each.loop_groups.front()) != group.loop_groups.end() &&
           distributed_form(variants_, chosen_, each).has_value();
  });
}

/// Each statement's own loops within the shared ones; tasks there where none stand outside.
std::vector<Step> NestCandidate::distributed_steps(const FusionGroup& group, const GroupPlan& plan, const GroupSteps& shared) {
  const bool tasks_outside =
      std::any_of(shared.steps.begin(), shared.steps.end(), [](const Step& step) { return step.name == "parallel"; });
  DistributedLoops wanted;  // on a GPU threads share a statement's own loops
  if (!facts_.limits.gpu) {
    wanted = {.tasks = plan.parallel > 0 && !tasks_outside ? facts_.limits.threads : 0,
              .vector = value_or(values_, "vector", 0),
              .unroll = value_or(values_, "unroll", 0)};
  }
  return distribution_steps(variants_.base(chosen_), chosen_.structure, group, plan, shared, facts_.sizes, wanted);
}

/// Every specialised loop triples the versions of the program: only those of the main group.
void NestCandidate::specialise(const GroupSteps& steps, const GroupPlan& plan) {
  for (const auto& [axis, loop] : steps.outer) {
    if (plan.tile.at(axis) > 1) candidate_.steps.push_back(make_step("specialize", {loop}));
  }
  for (const std::string& loop : steps.reduction_loops) {
    if (plan.reduction_tile > 1) candidate_.steps.push_back(make_step("specialize", {loop}));
  }
}

}  // namespace nestor
