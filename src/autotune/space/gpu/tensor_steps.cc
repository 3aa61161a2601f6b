// Steps and limits of candidates on tensor cores.
#include "autotune/space/gpu/tensor_steps.h"

#include "autotune/space/axes.h"
#include "codegen/gpu/target/block_registers.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/op_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <utility>

namespace nestor {
namespace {

constexpr std::int64_t kOperandBytes = 2;
/// First compute capability whose products take operands from shared memory and run while their group goes on.
constexpr int kGroupProducts = 90;
constexpr std::int64_t kSwizzledElements = 64;  ///< of 16 bits: tiles in shared memory have rows of a multiple of these
constexpr std::int64_t kBarrierBytes = 2048;    ///< barriers and what alignment costs
constexpr std::int64_t kWideRows = 128;         ///< elements of 16 bits from which blocks in pairs are a likely choice
/// Of longest_first: among items that differ in their rows alone.
constexpr int kInnermost = 4;
/// Registers that values of rows and conditions of several chains take: ptxas 12.9 needs them beside fragments for products of 64 and 128
/// columns to run without spills, and not one after the other.
constexpr std::int64_t kBesideChains = 40;
constexpr std::int64_t kMostChainColumns = 112;  ///< of a likely choice of chains: masks of wider tiles spill
constexpr int kDoublings = 8;                    ///< of terms, before their extremum is moved
constexpr std::int64_t kFewestColumns = 64;      ///< of a likely choice: narrower tiles leave tensor cores waiting

/// Registers of a thread that fragments may fill: what a thread's share leaves beside addresses and temporaries. With several groups
/// the copying one keeps few of its own; before compute capability 9.0 there is none.
std::int64_t fragment_registers(const TensorChoice& choice, int sm) {
  constexpr int kPlenty = 200;
  const bool moves = sm >= kGroupProducts && choice.groups > 1;
  const int threads = nvptx::kGroupThreads * choice.groups + (sm >= kGroupProducts ? nvptx::kWarpThreads : 0);
  const int copying = nvptx::copying_registers(choice.groups, choice.persistent);
  const int registers = moves ? nvptx::computing_registers(choice.groups, choice.residents, copying)
                              : std::min(nvptx::starting_registers(threads, choice.residents), nvptx::kMostRegisters);
  return registers - (registers > kPlenty ? 16 : 24);
}

bool is_half(ElementType type) { return type == ElementType::f16 || type == ElementType::bf16; }

/// Rows of a pack that leave the fewest places empty, as many as one may have.
int fullest_pack(const TensorAxes& axes) {
  const auto extent = static_cast<unsigned>(std::clamp<std::int64_t>(axes.pack_extent, 1, nvptx::kMostPacked));
  return axes.pack < 0 ? 1 : static_cast<int>(std::bit_ceil(extent));
}

/// Axes that the indices of an access follow, in their order; -1: none.
std::vector<int> axes_of(const Unit& unit, const Access& access) {
  std::vector<int> axes;
  for (const auto& dim : followed_dims(access)) {
    axes.push_back(dim && static_cast<std::size_t>(*dim) < unit.axes.size() ? unit.axes[static_cast<std::size_t>(*dim)] : -1);
  }
  return axes;
}

bool has(const std::vector<int>& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

std::optional<TensorAxes> axes_of_product(const Nest& nest, const Unit& unit, const Statement& statement,
                                          const Cluster& cluster) {
  if (statement.reduction != ReductionOp::add) return std::nullopt;
  const auto pair = nvptx::factors(statement.value);
  if (!pair) return std::nullopt;
  const Access &a = statement.reads[static_cast<std::size_t>(pair->first)],
               &b = statement.reads[static_cast<std::size_t>(pair->second)];
  for (const Access* access : {&a, &b}) {
    if (nest.tensor(access->tensor).role != TensorRole::input || !is_half(nest.tensor(access->tensor).type)) return std::nullopt;
  }
  const std::vector<int> in_a = axes_of(unit, a), in_b = axes_of(unit, b), written = axes_of(unit, statement.write);
  if (written.empty()) return std::nullopt;
  TensorAxes result;
  result.stream = written.back();
  for (const int axis : written) {
    if (axis == result.stream || !has(cluster.axes, axis) || (has(in_a, axis) && has(in_b, axis))) continue;
    result.pack = std::exchange(result.row, axis);
  }
  if (result.row < 0 || !has(cluster.stream_axes, result.stream)) return std::nullopt;
  for (std::size_t k = 0; k < unit.axes.size(); ++k) {
    if (unit.reduced[k]) result.inner = unit.extents[k];
    if (unit.axes[k] == result.row) result.row_extent = unit.extents[k];
    if (unit.axes[k] == result.pack) result.pack_extent = unit.extents[k];
  }
  if (result.pack_extent == 1) result.pack = -1;
  return result;
}

/// Of a product of two inputs that is summed into a temporary, whose terms come tile by tile.
std::optional<TensorAxes> axes_of_sum(const Nest& nest, const Unit& unit, const Statement& statement, const Cluster& cluster) {
  const auto pair = statement.reduction == ReductionOp::add ? nvptx::factors(statement.value) : std::nullopt;
  if (!pair || nest.tensor(statement.write.tensor).role != TensorRole::temporary) return std::nullopt;
  const Access &a = statement.reads[static_cast<std::size_t>(pair->first)],
               &b = statement.reads[static_cast<std::size_t>(pair->second)];
  for (const Access* access : {&a, &b}) {
    if (nest.tensor(access->tensor).role != TensorRole::input || !is_half(nest.tensor(access->tensor).type)) return std::nullopt;
  }
  const std::vector<int> in_a = axes_of(unit, a), in_b = axes_of(unit, b), written = axes_of(unit, statement.write);
  TensorAxes result;
  for (std::size_t k = 0; k < unit.axes.size(); ++k) {
    const int axis = unit.axes[k];
    const bool of_a = has(in_a, axis), of_b = has(in_b, axis);
    if (unit.reduced[k]) {
      if (result.stream >= 0 || !of_a || !of_b) return std::nullopt;
      result.stream = axis;
      result.inner = unit.extents[k];
    } else if (of_a != of_b && has(cluster.axes, axis)) {
      // The innermost of those that one operand alone has: what is left of them are other rows or columns, in blocks of their own.
      (axis == written.back() ? result.column : result.row) = axis;
      (axis == written.back() ? result.column_extent : result.row_extent) = unit.extents[k];
    }
  }
  const bool apart = result.row >= 0 && result.column >= 0 && has(in_a, result.row) != has(in_a, result.column);
  return apart && result.stream >= 0 ? std::optional(result) : std::nullopt;
}

/// Those of all products of the cluster, which must be the same ones.
std::optional<TensorAxes> axes_of_sums(const Nest& nest, const NestStructure& structure, const Cluster& cluster) {
  std::optional<TensorAxes> common;
  std::set<std::string> rows, columns;  // tensors that tiles of rows and of columns come from
  int products = 0;
  for (const int u : cluster.units) {
    const Unit& unit = structure.units[u];
    for (const std::string& name : unit.statements) {
      const Statement& statement = nest.statement(name);
      const auto pair = statement.reduction == ReductionOp::add ? nvptx::factors(statement.value) : std::nullopt;
      if (!pair) continue;
      const auto axes = axes_of_sum(nest, unit, statement, cluster);
      if (!axes) return std::nullopt;
      if (common && (axes->row != common->row || axes->column != common->column || axes->stream != common->stream))
        return std::nullopt;
      common = axes;
      ++products;
      for (const int ordinal : {pair->first, pair->second}) {
        const Access& read = statement.reads[static_cast<std::size_t>(ordinal)];
        (has(axes_of(unit, read), axes->row) ? rows : columns).insert(read.tensor);
      }
    }
  }
  if (!common) return std::nullopt;
  common->first_products = products;
  common->row_operands.assign(rows.size(), 1);
  common->streamed_operands.assign(columns.size(), 1);
  return common;
}

/// Elements of an access beside the loops that all units share and the streamed one.
std::int64_t width_of(const NestStructure& structure, const Cluster& cluster, const TensorAxes& tiled,
                      const std::vector<int>& axes) {
  std::int64_t width = 1;
  for (const int axis : axes) {
    if (axis >= 0 && axis != tiled.stream && !has(cluster.axes, axis))
      width *= structure.axes[static_cast<std::size_t>(axis)].extent;
  }
  return width;
}

/// Functions in an evaluation that few units compute, for which multiplications of others can stand in.
int functions_of(const ScalarExpr& value) {
  static const std::set<ScalarOp> kFunctions{ScalarOp::exp,  ScalarOp::exp2, ScalarOp::log,   ScalarOp::pow,
                                             ScalarOp::sqrt, ScalarOp::erf,  ScalarOp::rsqrt, ScalarOp::tanh};
  int functions = 0;
  value.visit([&](const ScalarExpr& expr) { functions += kFunctions.count(expr.op()) != 0 ? 1 : 0; });
  return functions;
}

/// Notes what the tiles of a product hold.
void add_tiles(const Nest& nest, const NestStructure& structure, const Cluster& cluster, const Unit& unit,
               const Statement& statement, std::set<std::string>& seen, TensorAxes& result) {
  const auto pair = statement.reduction == ReductionOp::add ? nvptx::factors(statement.value) : std::nullopt;
  if (!pair) {
    if (has(unit.axes, result.row) && has(unit.axes, result.stream)) result.functions += functions_of(statement.value);
    for (const Access& read : statement.reads) {
      const std::vector<int> axes = axes_of(unit, read);
      const Tensor& tensor = nest.tensor(read.tensor);
      if (tensor.role == TensorRole::input && is_half(tensor.type) && !axes.empty() && axes.back() == result.stream &&
          has(axes, result.row))
        ++result.tile_operands;
    }
    return;
  }
  const auto is_input = [&](int ordinal) {
    return nest.tensor(statement.reads[static_cast<std::size_t>(ordinal)].tensor).role == TensorRole::input;
  };
  const bool of_inputs = is_input(pair->first) && is_input(pair->second);
  for (const int ordinal : {pair->first, pair->second}) {
    const Access& read = statement.reads[static_cast<std::size_t>(ordinal)];
    const std::vector<int> axes = axes_of(unit, read);
    const std::int64_t width = width_of(structure, cluster, result, axes);
    if (!is_input(ordinal)) {
      result.register_operands += has(axes, result.stream) ? 1 : 0;
    } else if (has(axes, result.stream)) {
      // Products of one kind share the tile that they read at the same indices.
      if (seen.insert(fmt::format("{} {} {}", read.tensor, fmt::join(axes, ","), of_inputs)).second)
        result.streamed_operands.push_back(width);
    } else if (seen.insert(read.tensor).second) {
      result.row_operands.push_back(width);
    }
  }
  const std::vector<int> written = axes_of(unit, statement.write);
  if (has(written, result.stream)) {
    ++result.first_products;
  } else {
    result.sums.push_back(width_of(structure, cluster, result, written));
  }
}

}  // namespace

std::optional<TensorAxes> tensor_axes(const Nest& nest, const NestStructure& structure, const Cluster& cluster) {
  for (const int u : cluster.units) {
    const Unit& unit = structure.units[u];
    for (const std::string& name : unit.statements) {
      auto axes = axes_of_product(nest, unit, nest.statement(name), cluster);
      if (!axes) continue;
      std::set<std::string> seen;
      for (const int other : cluster.units) {
        const Unit& all = structure.units[other];
        for (const std::string& statement : all.statements)
          add_tiles(nest, structure, cluster, all, nest.statement(statement), seen, *axes);
      }
      return axes;
    }
  }
  return axes_of_sums(nest, structure, cluster);
}

bool several_chains(const TensorAxes& axes) { return axes.first_products > 1 && axes.register_operands > 1; }

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

namespace {

/// The choice's columns, and operands held in registers, as far as they fit: fewer columns where they do not. False: none do.
bool make_fit(const TensorAxes& axes, const GpuLimits& limits, TensorChoice& choice) {
  if (choice.hold && !tensor_infeasible(axes, choice, limits).empty()) choice.hold = false;
  for (; choice.columns >= kFewestColumns; choice.columns -= 16) {
    if (tensor_infeasible(axes, choice, limits).empty()) return true;
  }
  return false;
}

/// 128 rows a block, whose warps take 16 or 32 each, as in FlashAttention-2 (T. Dao, 2023, arXiv:2307.08691); tiles as small as leaves room
/// for another block beside.
std::vector<std::map<std::string, std::int64_t>> choices_of_single_warps(const TensorAxes& axes, const GpuLimits& limits) {
  std::vector<std::map<std::string, std::int64_t>> choices;
  for (const bool longest : {false, true}) {
    for (const int slots : {1, 2}) {
      for (const int groups : {1, 2}) {
        for (const std::int64_t columns :
             axes.inner <= 64 ? std::vector<std::int64_t>{64, 128} : std::vector<std::int64_t>{64, 32}) {
          const TensorChoice choice{
              .groups = groups, .row_tiles = 3 - groups, .columns = columns, .slots = slots, .hold = axes.inner <= 64};
          if (!tensor_infeasible(axes, choice, limits).empty()) continue;
          choices.push_back({{"groups", groups},
                             {"row_tiles", choice.row_tiles},
                             {"columns", columns},
                             {"slots", slots},
                             {"hold", choice.hold},
                             {"descending", longest},
                             {"longest_first", longest}});
        }
      }
    }
  }
  return choices;
}

}  // namespace

namespace {

/// Wide blocks, which read each element of memory for most products; narrower ones where those would leave multiprocessors idle. Rows of
/// blocks first, then columns, with tiles for a pair of blocks or one.
std::vector<std::map<std::string, std::int64_t>> choices_of_sums(const TensorAxes& axes, const GpuLimits& limits) {
  struct Shape {
    int groups, row_tiles;
    std::int64_t columns;
  };
  const bool pairs = limits.sm >= kGroupProducts;
  const std::vector<Shape> shapes = pairs ? std::vector<Shape>{{2, 1, 256}, {2, 1, 192}, {2, 1, 128}, {1, 1, 128}, {1, 1, 64}}
                                          : std::vector<Shape>{{2, 1, 128}, {2, 2, 64}, {2, 1, 64}, {1, 1, 64}};
  std::vector<std::map<std::string, std::int64_t>> choices, for_fewer;
  for (const Shape& shape : shapes) {
    TensorChoice choice{.groups = shape.groups,
                        .row_tiles = shape.row_tiles,
                        .columns = shape.columns,
                        .depth = pairs ? 64 : 32,
                        .slots = 5,
                        .overlap = pairs ? 1 : 0};
    while (choice.slots > 2 && !tensor_infeasible(axes, choice, limits).empty()) --choice.slots;
    if (!tensor_infeasible(axes, choice, limits).empty()) continue;
    const auto blocks = [&](std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; };
    const bool idle = blocks(axes.row_extent, choice.rows()) * blocks(axes.column_extent, choice.columns) < limits.units;
    for (const bool persistent : pairs && !idle ? std::vector<bool>{true, false} : std::vector<bool>{false}) {
      for (const int together : pairs && !idle ? std::vector<int>{2, 1} : std::vector<int>{1}) {
        for (const int longest : {0, 2}) {
          std::map<std::string, std::int64_t> values{
              {"groups", shape.groups}, {"row_tiles", shape.row_tiles}, {"columns", shape.columns}, {"depth", choice.depth},
              {"slots", choice.slots},  {"overlap", choice.overlap},    {"longest_first", longest}};
          if (pairs) values.insert({{"persistent", persistent}, {"multicast", together}});
          (idle ? for_fewer : choices).push_back(std::move(values));
        }
      }
    }
  }
  // The most blocks first where there are too few.
  choices.insert(choices.end(), for_fewer.rbegin(), for_fewer.rend());
  return choices;
}

}  // namespace

std::vector<std::map<std::string, std::int64_t>> likely_tensor_choices(const TensorAxes& axes, const GpuLimits& limits) {
  if (axes.column >= 0) return choices_of_sums(axes, limits);
  if (limits.sm < kGroupProducts) return choices_of_single_warps(axes, limits);
  std::vector<std::map<std::string, std::int64_t>> choices;
  std::set<std::map<std::string, std::int64_t>> seen;
  const std::vector<int> most_groups = axes.inner <= 64 ? std::vector<int>{3, 2} : std::vector<int>{2};
  const auto add = [&](TensorChoice choice) {
    if (!make_fit(axes, limits, choice)) return;
    // Wide rows have more sums to correct than terms in a tile.
    if (axes.inner > kWideRows) choice.rescale = kDoublings;
    std::map<std::string, std::int64_t> values{
        {"groups", choice.groups},         {"columns", choice.columns},       {"slots", choice.slots},
        {"overlap", choice.overlap},       {"turns", choice.turns},           {"hold", choice.hold},
        {"stagger", choice.stagger},       {"persistent", choice.persistent}, {"claims", choice.claims},
        {"multicast", choice.cluster},     {"descending", choice.descending}, {"longest_first", choice.longest_first},
        {"polynomial", choice.polynomial}, {"rescale", choice.rescale}};
    if (axes.pack >= 0) values["pack"] = choice.pack;
    if (choice.residents > 1) values["residents"] = choice.residents;
    if (seen.insert(values).second) choices.push_back(values);
  };
  // More functions than the exponential of an element keep the units for them busy longer than the products take.
  const auto add_with_polynomial = [&](TensorChoice choice) {
    add(choice);
    if (axes.functions <= axes.register_operands) return;
    choice.polynomial = 8;
    add(choice);
  };
  // Few rows: one group, whose tile packs fill as far as they can. Then what streams through the block takes the time: small blocks, with
  // many tiles under way.
  for (const int residents : {2, 1}) {
    for (const int slots : {4, 2}) {
      for (const std::int64_t columns : {128, 64}) {
        if (axes.row_extent < nvptx::kGroupRows)
          add({.groups = 1,
               .columns = columns,
               .slots = slots,
               .overlap = 1,
               .pack = fullest_pack(axes),
               .residents = residents});
      }
    }
  }
  // Wide tiles of columns, then narrow ones. `cut`: for a mask that cuts some items.
  const auto add_both = [&](int overlap, bool turns, bool persistent, bool cut, int groups) {
    const bool by_chain = overlap > 1, wide_rows = axes.inner > 128;
    TensorChoice choice{.groups = groups,
                        .columns = by_chain    ? kMostChainColumns
                                   : wide_rows ? 80
                                               : 128,
                        .overlap = overlap,
                        .turns = turns,
                        .stagger = true,
                        .descending = cut,
                        .longest_first = cut ? kInnermost : 0,
                        .persistent = persistent,
                        .claims = persistent};
    // A third group leaves no registers for operands that stay.
    choice.hold = groups < 3 && persistent && !by_chain;
    add_with_polynomial(choice);
    choice.columns = cut || by_chain || wide_rows ? 64 : 160;
    choice.slots = cut && axes.inner <= 64 ? 4 : 2;
    choice.hold = by_chain || (choice.hold && cut);
    choice.longest_first = cut ? 2 : 0;
    add_with_polynomial(choice);
  };
  // Independent chains first, which cover each other's products without groups that take turns.
  for (const int overlap : several_chains(axes) ? std::vector<int>{3, 2, 1} : std::vector<int>{1}) {
    for (const bool turns : {true, false}) {
      if (turns && overlap == 3) continue;
      for (const bool persistent : {false, true}) {
        // Rising order for work that is the same in all items, falling order where a mask cuts some: there narrow tiles waste less.
        for (const bool cut : {false, true}) {
          for (const int groups : overlap > 1 ? std::vector<int>{2} : most_groups)
            add_both(overlap, turns, persistent, cut, groups);
        }
      }
    }
  }
  // Wide rows: what one block reads of keys and values for its rows comes near what the L2 cache can give, and a pair needs half of it.
  for (const bool cut : {false, true}) {
    for (const bool persistent : {false, true}) {
      for (const bool turns : {true, false}) {
        if (axes.inner < kWideRows) break;
        add({.groups = 2,
             .columns = axes.inner > 128 ? 80
                        : cut            ? 128
                                         : 160,
             .overlap = 1,
             .turns = turns,
             .stagger = true,
             .descending = cut,
             .longest_first = cut ? kInnermost : 0,
             .persistent = persistent,
             .cluster = 2});
      }
    }
  }
  return choices;
}

namespace {

/// Why a block of rows and columns does not fit, whose terms are streamed.
std::string sum_infeasible(const TensorAxes& axes, const TensorChoice& choice, const GpuLimits& limits) {
  const std::int64_t left = fragment_registers(choice, limits.sm),
                     registers = axes.first_products * choice.row_tiles * choice.columns / 2;
  if (registers > left)
    return fmt::format("sums need {} registers of a thread, {} groups leave {}", registers, choice.groups, left);
  const std::int64_t depth = nvptx::round_up(choice.depth, kSwizzledElements),
                     columns = nvptx::round_up(choice.columns, kSwizzledElements);
  const std::int64_t lines = std::ssize(axes.row_operands) * choice.rows() + std::ssize(axes.streamed_operands) * columns;
  const std::int64_t bytes = kOperandBytes * (choice.slots * lines * depth + choice.rows() * columns) + kBarrierBytes;
  const std::int64_t share = (limits.shared_bytes + nvptx::kReservedBytes) / choice.residents - nvptx::kReservedBytes;
  if (bytes > share) return fmt::format("tiles need {} bytes of shared memory, a block has {}", bytes, share);
  return {};
}

}  // namespace

std::string tensor_infeasible(const TensorAxes& axes, const TensorChoice& choice, const GpuLimits& limits) {
  if (axes.column >= 0) return sum_infeasible(axes, choice, limits);
  if (choice.cluster > 1 && axes.streamed_operands.empty()) return "blocks of a cluster would share no tiles";
  if (choice.pack > 1 && axes.pack < 0) return "rows of one loop alone share what products multiply them with";
  const auto total = [](const std::vector<std::int64_t>& widths, auto&& each) {
    return std::accumulate(widths.begin(), widths.end(), std::int64_t{0},
                           [&](std::int64_t sum, std::int64_t width) { return sum + each(width); });
  };
  // A group has half a value of 64 rows and one column for each thread: what products leave, the 16-bit form of what is multiplied
  // again, sums, and operands that are held.
  // Chain by chain, only those under way have the former, and one has the latter.
  const bool by_chain = choice.overlap > 1;
  if (by_chain && !several_chains(axes)) return "products can overlap chain by chain only where there are several chains of them";
  const int products = by_chain ? std::min(axes.first_products, choice.overlap - 1) : axes.first_products;
  const int operands = by_chain ? 1 : axes.register_operands;
  const std::int64_t beside = by_chain ? kBesideChains : 0;
  const std::int64_t registers =
      beside + choice.row_tiles * (choice.columns / 2 * products + choice.columns / 4 * operands +
                                   total(axes.sums, [](std::int64_t width) { return width / 2; }) +
                                   (choice.hold ? total(axes.row_operands, [](std::int64_t width) { return width / 4; }) : 0));
  const std::int64_t left = fragment_registers(choice, limits.sm);
  if (registers > left)
    return fmt::format("fragments need {} registers of a thread, {} groups in {} blocks leave {}", registers, choice.groups,
                       choice.residents, left);
  const auto row_bytes = [](std::int64_t width) { return nvptx::round_up(width, kSwizzledElements) * kOperandBytes; };
  // A resident block has a place of its own for the result where there is room, else that of an operand that is not held in registers.
  const std::int64_t result =
      choice.persistent && !axes.sums.empty() ? row_bytes(*std::max_element(axes.sums.begin(), axes.sums.end())) : 0;
  const std::int64_t others = choice.rows() * total(axes.row_operands, row_bytes) +
                              choice.slots * choice.columns * total(axes.streamed_operands, row_bytes) +
                              choice.slots * choice.rows() * axes.tile_operands * row_bytes(choice.columns) + kBarrierBytes;
  const std::int64_t share = (limits.shared_bytes + nvptx::kReservedBytes) / choice.residents - nvptx::kReservedBytes;
  const bool borrows = limits.sm >= kGroupProducts && !choice.hold &&
                       std::any_of(axes.row_operands.begin(), axes.row_operands.end(),
                                   [&](std::int64_t width) { return row_bytes(width) >= result; });
  const std::int64_t bytes = others + (borrows && others + choice.rows() * result > share ? 0 : choice.rows() * result);
  if (bytes > share) return fmt::format("tiles need {} bytes of shared memory, a block has {}", bytes, share);
  return {};
}

}  // namespace nestor
