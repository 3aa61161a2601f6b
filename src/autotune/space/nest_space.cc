// The space of a nest: parameters from its structure, and steps from parameters.
#include "autotune/space/nest_space.h"

#include "autotune/space/cluster_steps.h"
#include "autotune/space/nest_structure.h"
#include "autotune/space/part_axes.h"
#include "autotune/space/rule_steps.h"
#include "autotune/space/tensor_steps.h"
#include "db/host_device.h"
#include "support/error.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

namespace nestor {
namespace {

constexpr std::int64_t kFloatBytes = 4;
constexpr std::int64_t kWarp = 32;
constexpr int kCombiningThreads = 512;         ///< of a block that combines parts, each thread a few of them
constexpr std::int64_t kCombinedColumns = 32;  ///< elements whose parts one block combines, by default
constexpr std::array<Fusion, 3> kFusions{Fusion::none, Fusion::careful, Fusion::maximal};

/// The rules of a variant: which ones are applied wherever they match, and the axis whose reductions are cut into parts.
struct RuleChoice {
  std::set<std::string> rules;
  int split = -1;  ///< an axis of the nest after the rules; -1: none
  std::int64_t parts = 0;
  auto operator<=>(const RuleChoice& other) const = default;
};

/// The nest after one choice of rules, with its clusters for each way of fusing.
struct Variant {
  std::vector<Step> rules;
  NestStructure structure;
  std::map<Fusion, std::vector<Cluster>> clusters;
  std::map<std::pair<const Cluster*, int>, std::vector<int>> stream_groups;
};

class NestSpace : public Space {
 public:
  NestSpace(BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits)
      : schedules_(schedules), sizes_(sizes), limits_(limits) {
    for (const std::string& rule : matching_rules(schedules)) {
      if (rule == kSplittingRule) continue;
      rules_.push_back(rule);
      if (enabled_by_default(rule)) usual_rules_.insert(rule);
    }
    make_parameters(variant({usual_rules_}));
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  Point baseline() const override;
  std::vector<Point> defaults() const override;
  Candidate candidate(const Point& point) const override;

 private:
  using Values = std::map<std::string, std::int64_t>;

  void add(std::string name, std::vector<std::int64_t> choices) { parameters_.push_back({std::move(name), std::move(choices)}); }
  void make_parameters(const Variant& usual);
  std::vector<std::int64_t> tile_choices(std::int64_t extent, bool leading) const;
  void add_splits(const Variant& usual);
  const Variant& variant(const RuleChoice& choice) const;
  const std::vector<Cluster>& clusters(const Variant& variant, Fusion fusion) const;
  const std::vector<int>& stream_groups(const Variant& variant, const Cluster& cluster, int stream) const;
  std::optional<ClusterPlan> plan_for(const Variant& variant, const Cluster& cluster, const Values& values, bool combines) const;
  std::int64_t footprint(const Variant& variant, const Cluster& cluster, const ClusterPlan& plan) const;
  void mark_inner(const Variant& variant, const Cluster& cluster, const ClusterSteps& shape, const Values& values,
                  std::vector<Step>& steps) const;
  Values default_values() const;
  std::vector<Point> gpu_defaults() const;
  bool has_tensor_cores() const { return limits_.gpu && limits_.gpu->sm == 90; }
  std::optional<TensorAxes> tensor_axes_of(const Variant& variant, const Cluster& cluster) const;
  std::string add_tensor_steps(const Variant& variant, const Cluster& cluster, const TensorAxes& axes, const TensorChoice& choice,
                               std::vector<Step>& steps) const;
  void add_gpu_points(const RuleChoice& choice, std::vector<Point>& points) const;
  void add_tensor_points(std::vector<Point>& points) const;
  std::vector<int> meeting_axes(const std::set<std::string>& rules) const;
  int units() const { return limits_.gpu ? limits_.gpu->units : limits_.threads; }
  std::int64_t output_bytes() const;
  Point point_of(const Values& values) const;

  BaseSchedules& schedules_;
  const Sizes sizes_;
  const SpaceLimits limits_;
  std::vector<std::string> rules_;
  std::set<std::string> usual_rules_;
  std::vector<Parameter> parameters_;
  mutable std::map<RuleChoice, Variant> variants_;
};

/// The cluster whose largest unit has most instances.
const Cluster& heaviest(const std::vector<Cluster>& clusters, const NestStructure& structure) {
  return *std::max_element(clusters.begin(), clusters.end(), [&](const Cluster& a, const Cluster& b) {
    return structure.units[a.heaviest].points < structure.units[b.heaviest].points;
  });
}

const Variant& NestSpace::variant(const RuleChoice& choice) const {
  const auto known = variants_.find(choice);
  if (known != variants_.end()) return known->second;
  Variant made;
  if (choice.split < 0) {
    made.rules = rule_steps(schedules_, choice.rules);
  } else {
    const Variant& whole = variant({choice.rules});
    made.rules = split_steps(schedules_, whole.rules, whole.structure, choice.split, choice.parts);
  }
  made.structure = analyse(schedules_.base(made.rules), sizes_);
  return variants_.emplace(choice, std::move(made)).first->second;
}

const std::vector<Cluster>& NestSpace::clusters(const Variant& variant, Fusion fusion) const {
  // Filled on demand: legality is proved by applying steps, and most choices of rules are never looked at.
  auto& known = const_cast<Variant&>(variant).clusters;
  const auto found = known.find(fusion);
  if (found != known.end()) return found->second;
  const Schedule& base = schedules_.base(variant.rules);
  std::optional<std::vector<Cluster>> parts;
  if (fusion != Fusion::none) parts = find_part_clusters(base, variant.structure, fusion);
  return known.emplace(fusion, parts ? std::move(*parts) : find_clusters(base, variant.structure, fusion)).first->second;
}

const std::vector<int>& NestSpace::stream_groups(const Variant& variant, const Cluster& cluster, int stream) const {
  auto& known = const_cast<Variant&>(variant).stream_groups;
  const auto found = known.find({&cluster, stream});
  if (found != known.end()) return found->second;
  return known
      .emplace(std::pair{&cluster, stream},
               find_stream_groups(schedules_.base(variant.rules), variant.structure, cluster, stream))
      .first->second;
}

std::vector<std::int64_t> NestSpace::tile_choices(std::int64_t extent, bool leading) const {
  std::vector<std::int64_t> choices{0, 1};
  const std::int64_t most = leading ? 8 : 512;
  for (std::int64_t tile = 2; tile <= most && tile < extent; tile *= 2) choices.push_back(tile);
  return choices;
}

/// Reductions cut into parts: along which axis, and into how many, a few for more parallelism or some for each processor.
void NestSpace::add_splits(const Variant& usual) {
  std::vector<std::int64_t> axes{-1};
  std::int64_t longest = 1;
  for (const int axis : splittable_axes(schedules_, usual.rules, usual.structure)) {
    axes.push_back(axis);
    longest = std::max(longest, usual.structure.axes[axis].extent);
  }
  std::set<std::int64_t> parts;
  for (const std::int64_t few : {2, 4, 8, 16, 32}) parts.insert(few);
  for (const std::int64_t together : {2, 4, 8}) parts.insert(units() / together);
  for (const std::int64_t each : {1, 2, 3, 4, 6, 8, 12, 16}) parts.insert(each * units());
  std::erase_if(parts, [&](std::int64_t count) { return count < 2 || 2 * count > longest; });
  if (axes.size() == 1 || parts.empty()) return;
  add("split", axes);
  add("parts", {parts.begin(), parts.end()});
}

void NestSpace::make_parameters(const Variant& usual) {
  for (const std::string& rule : rules_) add("rule." + rule, {1, 0});
  add_splits(usual);
  std::vector<std::int64_t> fusions;
  std::size_t most_forms = 1, most_outer = 1;
  std::map<int, bool> tiled;  // axis -> is it always followed by two more common axes
  std::set<int> streams;
  for (std::size_t f = 0; f < kFusions.size(); ++f) {
    const auto& groups = clusters(usual, kFusions[f]);
    const bool same = f > 0 && groups.size() == clusters(usual, kFusions[f - 1]).size();
    if (!same) fusions.push_back(static_cast<std::int64_t>(f));
    for (const Cluster& cluster : groups) {
      most_forms = std::max(most_forms, cluster.forms.size());
      most_outer = std::max(most_outer, cluster.axes.size());
      streams.insert(cluster.stream_axes.begin(), cluster.stream_axes.end());
      for (std::size_t k = 0; k < cluster.axes.size(); ++k) {
        const bool leading = k + 2 < cluster.axes.size();
        const auto [known, added] = tiled.emplace(cluster.axes[k], leading);
        known->second = known->second && leading;
      }
    }
  }
  add("fusion", fusions);
  const auto count_up = [](std::int64_t from, std::size_t count) {
    std::vector<std::int64_t> values(count);
    for (std::size_t k = 0; k < count; ++k) values[k] = from + static_cast<std::int64_t>(k);
    return values;
  };
  if (most_forms > 1) add("form", count_up(0, most_forms));
  for (const auto& [axis, leading] : tiled) {
    add("tile." + usual.structure.axes[axis].name, tile_choices(usual.structure.axes[axis].extent, leading));
  }
  if (most_outer > 1) add("order", count_up(0, std::min<std::size_t>(most_outer, 3)));
  if (!streams.empty()) {
    std::vector<std::int64_t> choices{-1};
    std::int64_t longest = 1;
    for (const int axis : streams) {
      choices.push_back(axis);
      longest = std::max(longest, usual.structure.axes[axis].extent);
    }
    add("stream", choices);
    std::vector<std::int64_t> tiles;
    for (std::int64_t tile = 16; tile <= 1024 && tile < longest; tile *= 2) tiles.push_back(tile);
    if (tiles.empty()) tiles.push_back(1);
    add("stream_tile", tiles);
  }
  if (limits_.gpu) {
    for (Parameter& parameter : gpu_parameters(*limits_.gpu)) parameters_.push_back(std::move(parameter));
    if (has_tensor_cores()) {
      const auto& groups = clusters(usual, Fusion::maximal);
      if (tensor_axes_of(usual, heaviest(groups, usual.structure))) {
        for (Parameter& parameter : tensor_parameters()) parameters_.push_back(std::move(parameter));
      }
    }
    add("specialize", {0, 1});
    return;
  }
  if (limits_.threads > 1) add("parallel", count_up(0, std::min<std::size_t>(most_outer, 3) + 1));
  add("vector", {0, limits_.vector_elements, 2 * limits_.vector_elements});
  add("unroll", {0, 2, 4, 8});
  add("specialize", {0, 1});
  add("streaming", {0, 1});
}

/// `combines`: the cluster is what clusters over parts leave. Its units have to be together, or they are in the way.
std::optional<ClusterPlan> NestSpace::plan_for(const Variant& variant, const Cluster& cluster, const Values& values,
                                               bool combines) const {
  ClusterPlan plan;
  if (cluster.part) {
    plan = probe_plan(cluster);
    plan.parallel = limits_.gpu || limits_.threads > 1 ? 1 : 0;
    return plan;
  }
  const auto form = static_cast<std::size_t>(value_or(values, "form", 0));
  plan.form = form < cluster.forms.size() ? cluster.forms[form] : cluster.forms.front();
  // A grid is one row of blocks, whatever loops it stands for.
  plan.parallel = limits_.gpu           ? static_cast<int>(cluster.axes.size())
                  : limits_.threads > 1 ? static_cast<int>(value_or(values, "parallel", 1))
                                        : 0;
  std::vector<int> axes = wavefront_order(cluster, plan.form);
  const bool natural = plan.form.kind == ClusterForm::Kind::natural;
  for (const int axis : axes) {
    const auto position = std::find(cluster.axes.begin(), cluster.axes.end(), axis) - cluster.axes.begin();
    const bool serial = !cluster.parallel[static_cast<std::size_t>(position)];
    std::int64_t tile = value_or(values, "tile." + variant.structure.axes[axis].name, 1);
    if (tile > 1 && tile >= variant.structure.axes[axis].extent) tile = 0;
    if (tile == 0 && combines) tile = kCombinedColumns;
    // Loops that carry dependences stay whole and outside unless a skew made tiles of them legal.
    if (plan.form.kind == ClusterForm::Kind::wavefront || (natural && serial && !cluster.tilable)) tile = 1;
    if (plan.form.kind == ClusterForm::Kind::time_tile && tile < 2)
      tile = std::min<std::int64_t>(16, variant.structure.axes[axis].extent);
    if (tile == 0) continue;
    plan.order.push_back(axis);
    plan.tile[axis] = tile;
  }
  if (natural && cluster.tilable && plan.order.size() > 1) {
    // 1: the two innermost swapped; 2: the innermost first.
    const std::int64_t order = value_or(values, "order", 0);
    if (order == 1) std::swap(plan.order.back(), plan.order[plan.order.size() - 2]);
    if (order == 2) std::rotate(plan.order.begin(), plan.order.end() - 1, plan.order.end());
  }
  const int stream = static_cast<int>(value_or(values, "stream", -1));
  if (natural && std::find(cluster.stream_axes.begin(), cluster.stream_axes.end(), stream) != cluster.stream_axes.end()) {
    const std::int64_t tile = value_or(values, "stream_tile", 64);
    if (tile < variant.structure.axes[stream].extent) {
      plan.stream = stream;
      plan.stream_tile = tile;
      plan.stream_groups = stream_groups(variant, cluster, stream);
      if (std::all_of(plan.stream_groups.begin(), plan.stream_groups.end(), [](int g) { return g < 0; })) plan.stream = -1;
    }
  }
  return plan;
}

/// Bytes of temporaries that one tile of the cluster holds, each index counted with its tile or its whole extent.
std::int64_t NestSpace::footprint(const Variant& variant, const Cluster& cluster, const ClusterPlan& plan) const {
  const Nest& nest = schedules_.base(variant.rules).nest();
  std::map<std::string, std::int64_t> bytes;
  for (const int u : cluster.units) {
    const Unit& unit = variant.structure.units[u];
    for (const std::string& name : unit.statements) {
      const Statement& statement = nest.statement(name);
      const Tensor& tensor = nest.tensor(statement.write.tensor);
      if (tensor.role != TensorRole::temporary) continue;
      std::int64_t elements = 1;
      for (std::size_t k = 0; k < unit.axes.size(); ++k) {
        if (unit.reduced[k] || (cluster.part && cluster.part->whole == unit.axes[k])) continue;
        std::int64_t extent = unit.extents[k];
        const auto tile = plan.tile.find(unit.axes[k]);
        if (tile != plan.tile.end()) extent = std::min(extent, tile->second);
        if (unit.axes[k] == plan.stream) extent = std::min(extent, plan.stream_tile);
        elements *= std::max<std::int64_t>(extent, 1);
      }
      bytes[tensor.name] = std::max(bytes[tensor.name], elements * kFloatBytes);
    }
  }
  std::int64_t total = 0;
  for (const auto& [tensor, size] : bytes) total += size;
  return total;
}

/// Requests on the loops that stay with the heaviest unit alone.
void NestSpace::mark_inner(const Variant& variant, const Cluster& cluster, const ClusterSteps& shape, const Values& values,
                           std::vector<Step>& steps) const {
  const Unit& unit = variant.structure.units[cluster.heaviest];
  const std::vector<std::string>& inner = shape.inner.at(unit.first);
  const auto is_free = [&](const std::string& loop) {
    for (std::size_t k = 0; k < unit.loops.size(); ++k) {
      if (loop != unit.loops[k] && loop != unit.loops[k] + "_i") continue;
      if (cluster.part && cluster.part->axis == unit.axes[k]) return false;
      const auto common = std::find(cluster.axes.begin(), cluster.axes.end(), unit.axes[k]);
      const bool serial =
          common != cluster.axes.end() && !cluster.parallel[static_cast<std::size_t>(common - cluster.axes.begin())];
      return !unit.reduced[k] && !serial;
    }
    return false;
  };
  std::vector<std::string> free;
  std::copy_if(inner.begin(), inner.end(), std::back_inserter(free), is_free);
  const std::int64_t vector = value_or(values, "vector", 0), unroll = value_or(values, "unroll", 0);
  if (vector > 0 && !free.empty()) steps.push_back(make_step("vectorize", {free.back(), vector}));
  if (unroll > 0 && free.size() > 1) steps.push_back(make_step("unroll", {free[free.size() - 2], unroll}));
}

std::optional<TensorAxes> NestSpace::tensor_axes_of(const Variant& variant, const Cluster& cluster) const {
  return tensor_axes(schedules_.base(variant.rules).nest(), variant.structure, cluster);
}

/// Steps of the heaviest cluster on tensor cores; why there are none, or "".
std::string NestSpace::add_tensor_steps(const Variant& variant, const Cluster& cluster, const TensorAxes& axes,
                                        const TensorChoice& choice, std::vector<Step>& steps) const {
  if (std::string why = tensor_infeasible(axes, choice, limits_.gpu->shared_bytes); !why.empty()) return why;
  ClusterPlan plan = tensor_plan(cluster, axes, choice);
  plan.stream_groups = stream_groups(variant, cluster, plan.stream);
  const std::vector<Step> more = tensor_steps(cluster_steps(variant.structure, cluster, plan), axes, choice);
  steps.insert(steps.end(), more.begin(), more.end());
  return "";
}

Candidate NestSpace::candidate(const Point& point) const {
  Candidate candidate;
  const Values values = named_values(*this, point);
  RuleChoice rules;
  for (const std::string& rule : rules_) {
    if (value_or(values, "rule." + rule, 0)) rules.rules.insert(rule);
  }
  rules.split = static_cast<int>(value_or(values, "split", -1));
  if (rules.split >= 0) rules.parts = value_or(values, "parts", 0);
  const Variant& chosen = variant(rules);
  candidate.steps = chosen.rules;
  const auto fusion = kFusions.at(static_cast<std::size_t>(value_or(values, "fusion", 0)));
  const std::vector<Cluster>& parts = clusters(chosen, fusion);
  const Cluster* main = &heaviest(parts, chosen.structure);
  const TensorChoice on_tensor_cores = tensor_choice(values);
  for (const Cluster& cluster : parts) {
    const auto axes = &cluster == main && on_tensor_cores.groups > 0 ? tensor_axes_of(chosen, cluster) : std::nullopt;
    if (axes) {
      candidate.infeasible = add_tensor_steps(chosen, cluster, *axes, on_tensor_cores, candidate.steps);
      if (!candidate.infeasible.empty()) return candidate;
      continue;
    }
    GpuChoice on_gpu = gpu_choice(values);
    // Beside blocks that run over parts, what is left to do is to combine their results.
    const bool combines = main->part && &cluster != main;
    if (combines) on_gpu = {.threads = kCombiningThreads};
    const auto plan = plan_for(chosen, cluster, values, combines);
    const bool shared = !plan->order.empty();
    const GpuCluster part{schedules_.base(chosen.rules).nest(), chosen.structure, cluster, *plan, sizes_};
    if (limits_.gpu && !combines) {
      candidate.infeasible = gpu_infeasible(part, on_gpu, *limits_.gpu);
      if (!candidate.infeasible.empty()) return candidate;
    }
    const std::int64_t bytes = !limits_.gpu && shared && cluster.units.size() > 1 ? footprint(chosen, cluster, *plan) : 0;
    if (bytes > limits_.scratch_bytes) {
      candidate.infeasible =
          fmt::format("one tile holds {} KiB of temporaries, more than {} KiB", bytes >> 10, limits_.scratch_bytes >> 10);
      return candidate;
    }
    ClusterSteps shape = cluster_steps(chosen.structure, cluster, *plan);
    if (limits_.gpu) {
      const std::vector<Step> steps = gpu_steps(part, shape, on_gpu);
      candidate.steps.insert(candidate.steps.end(), steps.begin(), steps.end());
    } else {
      candidate.steps.insert(candidate.steps.end(), shape.steps.begin(), shape.steps.end());
      mark_inner(chosen, cluster, shape, values, candidate.steps);
    }
    // Every specialised loop triples the versions of the program: only the one that matters.
    if (&cluster == main && value_or(values, "specialize", 0)) {
      for (const auto& [axis, loop] : shape.outer) {
        if (plan->tile.at(axis) > 1) candidate.steps.push_back(make_step("specialize", {loop}));
      }
      for (const std::string& loop : shape.stream_loops) {
        if (plan->stream_tile > 1) candidate.steps.push_back(make_step("specialize", {loop}));
      }
    }
  }
  if (limits_.gpu ? gpu_choice(values).streaming_outputs : value_or(values, "streaming", 0) != 0) {
    for (const Tensor& tensor : schedules_.nest().tensors) {
      if (tensor.role == TensorRole::output) candidate.steps.push_back(make_step("streaming", {tensor.name}));
    }
  }
  return candidate;
}

Point NestSpace::point_of(const Values& values) const {
  Point point;
  for (const Parameter& parameter : parameters_) {
    // The nearest choice: a default need not know which sizes are too large for this problem.
    const std::int64_t wanted = value_or(values, parameter.name, parameter.choices.front());
    const auto best = std::min_element(parameter.choices.begin(), parameter.choices.end(), [&](std::int64_t a, std::int64_t b) {
      return std::abs(a - wanted) < std::abs(b - wanted);
    });
    point.push_back(static_cast<int>(best - parameter.choices.begin()));
  }
  return point;
}

/// No rules, nothing fused or tiled; the outermost parallel loop of each statement runs in parallel.
Point NestSpace::baseline() const {
  Values values;
  for (const Parameter& parameter : parameters_) {
    const bool tile = parameter.name.starts_with("tile.");
    values[parameter.name] = parameter.name == "parallel" || tile                      ? 1
                             : parameter.name == "stream" || parameter.name == "split" ? -1
                                                                                       : 0;
  }
  if (limits_.gpu) values["threads"] = GpuChoice{}.threads;
  return point_of(values);
}

std::int64_t NestSpace::output_bytes() const {
  std::int64_t total = 0;
  for (const Tensor& tensor : schedules_.nest().tensors) {
    if (tensor.role != TensorRole::output) continue;
    std::int64_t bytes = static_cast<std::int64_t>(size_in_bytes(tensor.type));
    for (const std::int64_t extent : shape_at(tensor, sizes_)) bytes *= extent;
    total += bytes;
  }
  return total;
}

/// Tiles that keep one task's temporaries in the private cache, streaming long reductions.
NestSpace::Values NestSpace::default_values() const {
  Values values;
  for (const std::string& rule : rules_) values["rule." + rule] = usual_rules_.contains(rule);
  const Variant& usual = variant({usual_rules_});
  values["split"] = -1;
  values["fusion"] = static_cast<std::int64_t>(Fusion::maximal);
  values["parallel"] = 3;
  const auto& groups = clusters(usual, Fusion::maximal);
  const Cluster* main = &heaviest(groups, usual.structure);
  const Unit& heavy = usual.structure.units[main->heaviest];
  const auto axis_value = [&](int axis, std::int64_t tile) { values["tile." + usual.structure.axes[axis].name] = tile; };
  for (const int axis : main->axes) axis_value(axis, 1);
  if (main->axes.empty()) return values;
  const int last = main->axes.back();
  // Elements that one iteration of the last common loop works on.
  const double inner = points_per_item(usual.structure, *main);
  const bool contracts = std::find(heavy.reduced.begin(), heavy.reduced.end(), true) != heavy.reduced.end();
  const std::int64_t few_rows = static_cast<std::int64_t>(std::max(1.0, 8192 / std::max(inner, 1.0)));
  values["stream_tile"] = 64;
  values["streaming"] = output_bytes() > limits_.shared_cache_bytes / 2;
  const bool long_stream = !main->stream_axes.empty() && inner > 16384;
  if (long_stream) values["stream"] = main->stream_axes.front();
  if (inner > 1) axis_value(last, contracts && inner >= 64 && main->axes.size() > 1 ? 64 : few_rows);
  if (contracts && !long_stream && main->axes.size() > 1) {
    axis_value(last, 128);
    axis_value(main->axes[main->axes.size() - 2], 64);
  }
  // The last loop is the innermost one of all: whole rows stay inside for vectors.
  if (inner <= 1) axis_value(last, 0);
  return values;
}

/// Axes along which sums in parts meet work on the items that they are sums of: one reading of an item serves both.
std::vector<int> NestSpace::meeting_axes(const std::set<std::string>& rules) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [](const Parameter& p) { return p.name == "split"; });
  std::vector<int> meeting;
  if (found == parameters_.end()) return meeting;
  for (const std::int64_t axis : found->choices) {
    if (axis < 0) continue;
    const Variant& split = variant({rules, static_cast<int>(axis), std::max(units(), 2)});
    const Cluster& main = heaviest(clusters(split, Fusion::maximal), split.structure);
    const bool meets = main.part && std::any_of(main.units.begin(), main.units.end(), [&](int u) {
                         const Unit& unit = split.structure.units[u];
                         const int whole = unit.position_of(main.part->whole);
                         return whole >= 0 && !unit.reduced[whole];
                       });
    if (meets) meeting.push_back(static_cast<int>(axis));
  }
  return meeting;
}

/// Rows that stay on chip, a share of elements for each thread, in likely shapes and residences of blocks.
void NestSpace::add_gpu_points(const RuleChoice& choice, std::vector<Point>& points) const {
  const Variant& variant = this->variant(choice);
  const auto& groups = clusters(variant, Fusion::maximal);
  const Cluster* main = &heaviest(groups, variant.structure);
  for (GpuShape shape : likely_shapes(points_per_item(variant.structure, *main), *limits_.gpu)) {
    // A block over a part takes its items one at a time: narrow ones by few threads, and there is room for more blocks.
    if (main->part) shape.threads = std::max<std::int64_t>(shape.threads / shape.rows, kWarp);
    for (const GpuResidence& residence : likely_residences(shape, *limits_.gpu)) {
      Values values;
      for (const std::string& rule : rules_) values["rule." + rule] = choice.rules.contains(rule);
      for (const Parameter& parameter : parameters_) {
        if (parameter.name.starts_with("tile.")) values[parameter.name] = main->part ? kCombinedColumns : 1;
      }
      if (!main->axes.empty() && !main->part) values["tile." + variant.structure.axes[main->axes.back()].name] = shape.rows;
      values["split"] = choice.split;
      const std::int64_t resident = resident_blocks(shape, *limits_.gpu);
      values["parts"] = units() * (residence.persistent > 0 ? resident : std::max<std::int64_t>(resident / 2, 1)) / shape.cluster;
      values["fusion"] = static_cast<std::int64_t>(Fusion::maximal);
      values["stream"] = -1;
      values["threads"] = shape.threads;
      values["cluster"] = shape.cluster;
      values["staging"] = static_cast<std::int64_t>(residence.staging);
      values["streaming"] = 0;
      values["persistent"] = main->part ? 0 : residence.persistent;
      values["ahead"] = main->part && residence.ahead == 0 ? 2 : residence.ahead;
      points.push_back(point_of(values));
    }
  }
}

/// Products on tensor cores, where there are any.
void NestSpace::add_tensor_points(std::vector<Point>& points) const {
  const Variant& usual = variant({usual_rules_});
  const auto axes =
      has_tensor_cores() ? tensor_axes_of(usual, heaviest(clusters(usual, Fusion::maximal), usual.structure)) : std::nullopt;
  if (!axes) return;
  for (Values values : likely_tensor_choices(axes->inner)) {
    for (const std::string& rule : rules_) values["rule." + rule] = usual_rules_.contains(rule);
    values["fusion"] = static_cast<std::int64_t>(Fusion::maximal);
    values["split"] = -1;
    points.push_back(point_of(values));
  }
}

/// Blocks that run over a part of the points each where sums over many items have such parts; else first without composites,
/// whose single pass is for rows that do not fit.
std::vector<Point> NestSpace::gpu_defaults() const {
  std::vector<Point> points;
  add_tensor_points(points);
  RuleChoice simple{usual_rules_};
  std::erase_if(simple.rules, [](const std::string& rule) { return makes_composites(rule); });
  for (const int axis : meeting_axes(simple.rules)) add_gpu_points({simple.rules, axis, std::max(units(), 2)}, points);
  add_gpu_points(simple, points);
  if (simple.rules != usual_rules_) add_gpu_points({usual_rules_}, points);
  return points;
}

std::vector<Point> NestSpace::defaults() const {
  if (limits_.gpu) return gpu_defaults();
  std::vector<Point> points;
  const Values first = default_values();
  points.push_back(point_of(first));
  const auto changed = [&](const Values& changes) {
    Values values = first;
    for (const auto& [name, value] : changes) values[name] = value;
    points.push_back(point_of(values));
  };
  for (const int axis : meeting_axes(usual_rules_)) changed({{"split", axis}, {"parts", 4 * units()}});
  changed({{"streaming", 1 - value_or(first, "streaming", 0)}});
  changed({{"specialize", 1}});
  changed({{"stream_tile", 128}});
  changed({{"fusion", static_cast<std::int64_t>(Fusion::careful)}, {"stream", -1}});
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == "form") {
      for (const std::int64_t form : parameter.choices) changed({{"form", form}});
    }
  }
  return points;
}

}  // namespace

std::unique_ptr<Space> make_nest_space(BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits) {
  return std::make_unique<NestSpace>(schedules, sizes, limits);
}

SpaceLimits gpu_space_limits(int sm, std::int64_t shared_bytes, int units) {
  SpaceLimits limits;
  limits.gpu = GpuLimits{};
  limits.gpu->sm = sm;
  limits.gpu->shared_bytes = shared_bytes;
  limits.gpu->units = units;
  return limits;
}

SpaceLimits host_space_limits(int threads) {
  SpaceLimits limits;
  limits.threads = threads > 0 ? threads : host_threads();
  const long private_cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (private_cache > 0) limits.scratch_bytes = 2 * private_cache;
  const long shared_cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (shared_cache > 0) limits.shared_cache_bytes = shared_cache;
  return limits;
}

}  // namespace nestor
