// Parameters of candidates on tensor cores, and their steps.
#include "autotune/space/gpu/tensor_steps.h"

#include "codegen/gpu/target/block_registers.h"
#include "codegen/tile/analysis/op_shape.h"

#include <algorithm>
#include <bit>
#include <string>

namespace nestor {

int fullest_pack(const TensorAxes& axes) {
  const auto extent = static_cast<unsigned>(std::clamp<std::int64_t>(axes.pack_extent, 1, nvptx::kMostPacked));
  return axes.pack < 0 ? 1 : static_cast<int>(std::bit_ceil(extent));
}

std::vector<Parameter> tensor_parameters(const TensorAxes& axes, int sm, bool rescale) {
  const std::vector<std::int64_t> overlap =
      several_chains(axes) && sm >= kGroupProducts ? std::vector<std::int64_t>{0, 1, 2, 3} : std::vector<std::int64_t>{0, 1};
  const std::vector<std::int64_t> depths =
      axes.column >= 0 ? std::vector<std::int64_t>{64, 32, 128} : std::vector<std::int64_t>{64};
  const std::vector<std::int64_t> thresholds = rescale ? std::vector<std::int64_t>{0, kDoublings} : std::vector<std::int64_t>{0};
  if (sm < kGroupProducts) {
    return {{"groups", {0, 1, 2, 3}},
            {"row_tiles", {1, 2}},
            {"columns", {32, 48, 64, 80, 96, 112, 128, 160}},
            {"slots", {1, 2, 3}},
            {"overlap", overlap},
            {"hold", {0, 1}},
            {"descending", {0, 1}},
            {"longest_first", {0, 1, 2, 3, 4}},
            {"rescale", thresholds},
            {"unroll", {1, 2}},
            {"depth", depths}};
  }
  std::vector<Parameter> parameters{{"groups", {0, 1, 2, 3}},
                                    {"row_tiles", {1, 2}},
                                    {"columns", {48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256}},
                                    {"slots", {2, 3, 4}},
                                    {"overlap", overlap},
                                    {"turns", {0, 1}},
                                    {"hold", {0, 1}},
                                    {"descending", {0, 1}},
                                    {"longest_first", {0, 1, 2, 3, 4}},
                                    {"stagger", {0, 1}},
                                    {"polynomial", {0, 1, 2, 4, 6, 8, 10, 12}},
                                    {"rescale", thresholds},
                                    {"unroll", {1, 2}},
                                    {"residents", {1, 2, 3, 4}},
                                    {"claims", {0, 1}},
                                    {"multicast", {1, 2}},
                                    {"depth", depths}};
  if (axes.pack >= 0) {
    std::vector<std::int64_t> packs{1};
    while (packs.back() < fullest_pack(axes)) packs.push_back(2 * packs.back());
    parameters.push_back({"pack", packs});
  }
  return parameters;
}

TensorChoice tensor_choice(const std::map<std::string, std::int64_t>& values) {
  TensorChoice choice;
  choice.groups = static_cast<int>(value_or(values, "groups", 0));
  choice.row_tiles = static_cast<int>(value_or(values, "row_tiles", 1));
  choice.columns = value_or(values, "columns", 128);
  choice.slots = static_cast<int>(value_or(values, "slots", 2));
  choice.depth = value_or(values, "depth", 64);
  choice.overlap = static_cast<int>(value_or(values, "overlap", 0));
  choice.turns = value_or(values, "turns", 0) != 0 && choice.groups > 1;
  choice.hold = value_or(values, "hold", 0) != 0;
  choice.descending = value_or(values, "descending", 0) != 0;
  choice.longest_first = static_cast<int>(value_or(values, "longest_first", 0));
  choice.stagger = value_or(values, "stagger", 0) != 0 && choice.overlap > 0;
  choice.polynomial = static_cast<int>(value_or(values, "polynomial", 0));
  choice.rescale = static_cast<int>(value_or(values, "rescale", 0));
  choice.unroll = static_cast<int>(value_or(values, "unroll", 1));
  choice.persistent = value_or(values, "persistent", 0) > 0;
  choice.cluster = static_cast<int>(value_or(values, "multicast", 1));
  choice.claims = choice.persistent && choice.cluster == 1 && value_or(values, "claims", 0) != 0;
  choice.residents = static_cast<int>(value_or(values, "residents", 1));
  choice.pack = static_cast<int>(value_or(values, "pack", 1));
  return choice;
}

ClusterPlan tensor_plan(const Cluster& cluster, const TensorAxes& axes, const TensorChoice& choice) {
  ClusterPlan plan = probe_plan(cluster);
  plan.form = cluster.forms.front();
  plan.tile[axes.row] = choice.rows() * choice.cluster / choice.pack;
  if (choice.pack > 1) plan.tile[axes.pack] = choice.pack;
  plan.parallel = static_cast<int>(plan.order.size());
  if (choice.longest_first > 0) {
    std::erase(plan.order, axes.row);
    plan.order.insert(plan.order.begin() + std::min<std::ptrdiff_t>(choice.longest_first - 1, std::ssize(plan.order)), axes.row);
  }
  plan.stream = axes.stream;
  plan.stream_tile = axes.column >= 0 ? choice.depth : choice.columns;
  if (axes.column >= 0) plan.tile[axes.column] = choice.columns;
  return plan;
}

std::vector<Step> tensor_steps(const ClusterSteps& shape, const TensorAxes& axes, const TensorChoice& choice) {
  std::vector<Step> steps;
  std::vector<std::string> grid;
  const std::string& rows = shape.outer.at(axes.row);
  for (const Step& step : shape.steps) {
    if (step.name != "parallel") {
      steps.push_back(step);
      continue;
    }
    grid.push_back(step.args.at(0).get<std::string>());
    if (choice.longest_first > 0 && grid.back() == rows) steps.push_back(make_step("reverse", {rows}));
    steps.push_back(make_step("gpu_blocks", {grid.back()}));
  }
  if (grid.empty()) return shape.steps;
  if (choice.descending) {
    for (const std::string& stream : shape.stream_loops) steps.push_back(make_step("reverse", {stream}));
  }
  if (choice.unroll > 1) {
    for (const std::string& stream : shape.stream_loops) steps.push_back(make_step("unroll", {stream, choice.unroll}));
  }
  const std::string& loop = grid.front();
  steps.push_back(make_step("tensor_cores", {loop, choice.groups, choice.slots}));
  if (choice.overlap == 1) steps.push_back(make_step("overlap", {loop}));
  if (choice.overlap > 1) steps.push_back(make_step("overlap", {loop, choice.overlap - 1}));
  if (choice.turns) steps.push_back(make_step("turns", {loop}));
  if (choice.hold) steps.push_back(make_step("hold", {loop}));
  if (choice.stagger) steps.push_back(make_step("stagger", {loop}));
  if (choice.polynomial > 0) steps.push_back(make_step("polynomial", {loop, choice.polynomial}));
  if (choice.persistent || choice.residents > 1)
    steps.push_back(make_step(choice.persistent ? "persistent" : "residents", {loop, choice.residents}));
  if (choice.cluster > 1) steps.push_back(make_step("cluster", {loop, choice.cluster}));
  if (choice.claims) steps.push_back(make_step("claims", {loop}));
  return steps;
}

}  // namespace nestor
