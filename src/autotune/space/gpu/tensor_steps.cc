// Parameters of candidates on tensor cores, and their steps.
#include "autotune/space/gpu/tensor_steps.h"

#include "autotune/space/knob_values.h"
#include "codegen/gpu/target/block_registers.h"
#include "codegen/tile/analysis/op_shape.h"
#include "poly/schedule/steps/step_table.h"
#include "support/rounding.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace nestor {

int fullest_pack(const TensorAxes& axes) {
  const auto extent = static_cast<unsigned>(std::clamp<std::int64_t>(axes.pack_extent, 1, nvptx::kMostPacked));
  return axes.pack < 0 ? 1 : static_cast<int>(std::bit_ceil(extent));
}

std::vector<Parameter> tensor_parameters(const TensorAxes& axes, int sm, bool rescale) {
  using Values = std::vector<std::int64_t>;
  const bool mma = sm < kGroupProducts;
  std::vector<Parameter> parameters;
  const auto add = [&](const char* name, Values values) {
    if (!values.empty()) parameters.push_back({name, std::move(values)});
  };
  const auto add_knob = [&](const char* name) { add(name, mma ? knob_named(name).searched_mma : knob_named(name).searched); };
  add_knob("warpgroups");
  add("row_tiles", {1, 2});
  Values columns =
      mma ? Values{32, 48, 64, 80, 96, 112, 128, 160} : Values{48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256};
  if (axes.column >= 0 && !mma) columns.insert(columns.begin(), {16, 32});
  if (axes.column < 0 && !mma && axes.stream_extent <= 32) columns.insert(columns.begin(), 32);
  add("columns", std::move(columns));
  add_knob("stages");
  if (axes.column >= 0 && !mma) parameters.back().choices.assign(kSumStages.begin(), kSumStages.end());
  add_knob("intra_warpgroup_overlap");
  if (!several_chains(axes)) std::erase_if(parameters.back().choices, [](std::int64_t value) { return value > 1; });
  add_knob("ping_pong");
  if (axes.column >= 0) add_knob("ping_pong_tiles");
  add_knob("a_from_registers");
  add("descending", {0, 1});
  add("longest_first", {0, 1, 2, 3, 4});
  add_knob("early_release");
  add_knob("exp2_polynomial");
  if (axes.wide_operands > 0) add_knob("operand_halves");
  add("rescale", rescale ? Values{0, kDoublings} : Values{0});
  add("unroll", {1, 2});
  add_knob("min_blocks");
  add_knob("dynamic_scheduler");
  if (axes.column >= 0) add_knob("raster_group");
  add("depth", axes.column >= 0 ? Values{64, 32, 128, 256} : Values{64});
  if (!mma && axes.pack >= 0) {
    Values packs{1};
    while (packs.back() < fullest_pack(axes)) packs.push_back(2 * packs.back());
    add("pack_gqa", packs);
  }
  if (may_have_few_rows(axes, sm)) add("few_rows", {0, round_up(axes.row_extent, std::int64_t{nvptx::kSumColumns})});
  return parameters;
}

bool may_have_few_rows(const TensorAxes& axes, int sm) {
  return sm >= kGroupProducts && axes.column >= 0 && axes.pack < 0 && axes.chunk_axis < 0 && !axes.whole_rows &&
         !axes.cut_columns && axes.row_extent <= kMostFewRows && axes.column_extent >= nvptx::kWarpgroupRows;
}

TensorChoice tensor_choice(const NamedValues& values) {
  TensorChoice choice;
  choice.grid = shape_of(values);
  choice.row_tiles = static_cast<int>(value_or(values, "row_tiles", 1));
  choice.columns = value_or(values, "columns", 128);
  choice.depth = value_or(values, "depth", 64);
  choice.descending = value_or(values, "descending", 0) != 0;
  choice.longest_first = static_cast<int>(value_or(values, "longest_first", 0));
  choice.rescale = static_cast<int>(value_or(values, "rescale", 0));
  choice.unroll = static_cast<int>(value_or(values, "unroll", 1));
  choice.pack_gqa = static_cast<int>(value_or(values, "pack_gqa", 1));
  // What has no effect is left out, so that equal candidates have equal steps.
  GridShape& grid = choice.grid;
  grid.threads = 0;
  grid.cluster = std::min(grid.cluster, kMostMulticast);
  if (grid.warpgroups < 2 || grid.persistent == 0) grid.ping_pong_tiles = 0;
  if (grid.warpgroups < 2 || grid.ping_pong_tiles != 0) grid.ping_pong = 0;
  if (grid.intra_warpgroup_overlap == 0) grid.early_release = 0;
  const int blocks = std::max(grid.min_blocks, 1);
  grid.min_blocks = grid.persistent == 0 && blocks > 1 ? blocks : 0;
  grid.persistent = grid.persistent > 0 ? blocks : 0;
  choice.streaming_inputs = (value_or(values, "streaming", 0) & 2) != 0;
  choice.few_rows = static_cast<int>(value_or(values, "few_rows", 0));
  grid.swap_ab = choice.few_rows > 0 ? 1 : 0;
  if (choice.few_rows > 0) {
    choice.row_tiles = static_cast<int>(
        std::max<std::int64_t>(choice.columns / (std::int64_t{nvptx::kWarpgroupRows} * std::max(grid.warpgroups, 1)), 1));
    choice.pack_gqa = 1;
    grid.cluster = 1;
    grid.ping_pong = grid.ping_pong_tiles = 0;
  }
  if (grid.persistent == 0 || grid.cluster > 1 || grid.ping_pong_tiles != 0) grid.dynamic_scheduler = 0;
  return choice;
}

NamedValues values_of(const TensorChoice& choice) {
  NamedValues values{{"row_tiles", choice.row_tiles},
                     {"columns", choice.columns},
                     {"depth", choice.depth},
                     {"descending", choice.descending},
                     {"longest_first", choice.longest_first},
                     {"rescale", choice.rescale},
                     {"unroll", choice.unroll},
                     {"pack_gqa", choice.pack_gqa}};
  if (choice.few_rows > 0) values["few_rows"] = choice.few_rows;
  if (choice.streaming_inputs) values["streaming"] = 2;
  values.merge(values_of(choice.grid));
  values["min_blocks"] = choice.grid.blocks_per_unit();
  values["persistent"] = choice.persistent();
  return values;
}

GroupPlan tensor_plan(const FusionGroup& group, const TensorAxes& axes, const TensorChoice& choice) {
  GroupPlan plan = probe_plan(group);
  plan.form = group.forms.front();
  plan.tile[axes.row] = choice.rows() * choice.grid.cluster / choice.pack_gqa;
  if (choice.pack_gqa > 1) plan.tile[axes.pack] = choice.pack_gqa;
  // Blocks at work at once take tiles of one product, also where an index of products stands behind rows or columns.
  const int columns = group.tile_is_part ? group.part->axis : axes.column;
  if (axes.column >= 0)
    std::stable_partition(plan.order.begin(), plan.order.end(), [&](int axis) { return axis != axes.row && axis != columns; });
  plan.parallel = static_cast<int>(plan.order.size());
  if (choice.longest_first > 0) {
    std::erase(plan.order, axes.row);
    plan.order.insert(plan.order.begin() + std::min<std::ptrdiff_t>(choice.longest_first - 1, std::ssize(plan.order)), axes.row);
  }
  // A short sum that is known when compiling is one tile: no loop is left. Several products share the loops over taps around it.
  const bool one_tile =
      axes.column >= 0 && axes.fixed_inner && axes.inner <= choice.depth && (axes.taps == 1 || axes.first_products == 1);
  const bool chunks = axes.chunk_axis >= 0;
  plan.reduction_axis = chunks ? axes.chunk_axis : one_tile ? -1 : axes.reduction_axis;
  plan.reduction_tile = chunks ? 1 : axes.column >= 0 ? choice.depth : choice.columns;
  // Products with other taps than each other have loops of their own, once after the other, where a loop over tiles of terms is left.
  plan.sums_outside = axes.column >= 0 && axes.fixed_inner && !chunks && (axes.same_taps || axes.inner > choice.depth);
  plan.sums_apart = plan.sums_outside && !axes.same_taps;
  if (axes.column >= 0 && !group.tile_is_part && !axes.whole_rows) plan.tile[axes.column] = choice.columns;
  return plan;
}

std::vector<Step> tensor_steps(const GroupSteps& shape, const TensorAxes& axes, const TensorChoice& choice) {
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
    for (const std::string& reduction_loop : shape.reduction_loops) steps.push_back(make_step("reverse", {reduction_loop}));
  }
  if (choice.unroll > 1) {
    for (const std::string& reduction_loop : shape.reduction_loops)
      steps.push_back(make_step("unroll", {reduction_loop, choice.unroll}));
  }
  const bool all_rows = choice.rows() >= axes.row_extent * axes.pack_extent;
  for (const std::string& tensor : axes.streamed_inputs) {
    if (choice.streaming_inputs && all_rows) steps.push_back(make_step("streaming", {tensor}));
  }
  const std::vector<Step> knobs = steps_that_set(grid.front(), loop_knobs(choice.grid));
  steps.insert(steps.end(), knobs.begin(), knobs.end());
  return steps;
}

}  // namespace nestor
