// Likely shapes of blocks and tiles, written as values of parameters.
#include "autotune/space/gpu_points.h"

#include "autotune/space/cluster_choice.h"
#include "autotune/space/rule_steps.h"
#include "autotune/space/tensor_steps.h"

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

constexpr std::int64_t kWarp = 32;

/// The rules of the choice, everything fused, no loop over tiles of a reduction.
NamedValues fused_values(const GpuPointSource& source, const RuleChoice& choice) {
  NamedValues values;
  for (const std::string& rule : source.rules) values["rule." + rule] = choice.rules.contains(rule);
  values["split"] = choice.split;
  values["fusion"] = static_cast<std::int64_t>(Fusion::maximal);
  values["stream"] = -1;
  return values;
}

/// Rows that stay on chip, a share of elements for each thread, in likely shapes and residences of blocks.
void add_row_values(const GpuPointSource& source, const RuleChoice& choice, std::vector<NamedValues>& points) {
  const GpuLimits& limits = source.limits;
  const RuleVariant& variant = source.variants.at(choice);
  const Cluster& main = source.variants.heaviest(variant, Fusion::maximal);
  for (GpuShape shape : likely_shapes(points_per_item(variant.structure, main), limits)) {
    // A block over a part takes its items one at a time: narrow ones by few threads, and there is room for more blocks.
    if (main.part) shape.threads = std::max<std::int64_t>(shape.threads / shape.rows, kWarp);
    for (const GpuResidence& residence : likely_residences(shape, limits)) {
      NamedValues values = fused_values(source, choice);
      for (const Parameter& parameter : source.parameters) {
        if (parameter.name.starts_with("tile.")) values[parameter.name] = main.part ? kCombinedColumns : 1;
      }
      if (!main.axes.empty() && !main.part) values["tile." + variant.structure.axes[main.axes.back()].name] = shape.rows;
      const std::int64_t resident = resident_blocks(shape, limits);
      const std::int64_t at_once = residence.persistent > 0 ? resident : std::max<std::int64_t>(resident / 2, 1);
      values["parts"] = limits.units * at_once / shape.cluster;
      values["threads"] = shape.threads;
      values["cluster"] = shape.cluster;
      values["staging"] = static_cast<std::int64_t>(residence.staging);
      values["streaming"] = 0;
      values["persistent"] = main.part ? 0 : residence.persistent;
      values["ahead"] = main.part && residence.ahead == 0 ? 2 : residence.ahead;
      points.push_back(std::move(values));
    }
  }
}

/// Products on tensor cores.
void add_tensor_values(const GpuPointSource& source, std::vector<NamedValues>& points) {
  if (!has_tensor_cores(source.limits)) return;
  const RuleChoice usual{source.usual_rules};
  const RuleVariant& variant = source.variants.at(usual);
  const std::optional<TensorAxes> axes =
      tensor_axes(source.variants.nest(variant), variant.structure, source.variants.heaviest(variant, Fusion::maximal));
  if (!axes) return;
  for (NamedValues values : likely_tensor_choices(*axes, source.limits)) {
    values.merge(fused_values(source, usual));
    points.push_back(std::move(values));
  }
}

}  // namespace

bool has_tensor_cores(const GpuLimits& limits) { return limits.sm >= 80; }

std::vector<NamedValues> likely_gpu_values(const GpuPointSource& source) {
  std::vector<NamedValues> points;
  add_tensor_values(source, points);
  RuleChoice simple{source.usual_rules};
  std::erase_if(simple.rules, [](const std::string& rule) { return makes_composites(rule); });
  const std::int64_t parts = std::max(source.limits.units, 2);
  for (const int axis : meeting_axes(source.variants, simple.rules, source.split_axes, parts)) {
    add_row_values(source, {simple.rules, axis, parts}, points);
  }
  add_row_values(source, simple, points);
  if (simple.rules != source.usual_rules) add_row_values(source, {source.usual_rules}, points);
  return points;
}

}  // namespace nestor
