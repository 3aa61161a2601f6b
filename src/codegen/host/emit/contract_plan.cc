// Orientation and blocking of contractions. Blocking after K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", ACM TOMS 34(3), 2008: a depth block of B's panel stays in L1, a block of A's rows in L2.
#include "codegen/host/emit/contract_plan.h"

#include "codegen/tile/analysis/conditions.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

/// Blocks kept in caches. Measured with AVX-512 on a Sapphire Rapids.
struct BlockLimits {
  std::int64_t depth;          ///< in vectors
  std::int64_t elements_of_b;  ///< of its panels
  std::int64_t rows;
};
constexpr BlockLimits kInPlace{32, 128 << 10, 36};
/// A is packed again for each block of columns, so that these are wider.
constexpr BlockLimits kPackedA{16, 256 << 10, 144};
constexpr std::int64_t kBlockRowsOfTile = 144;  ///< where B is packed again for each block of rows
constexpr std::int64_t kUnknown = 1 << 20;      ///< stands for an extent without a known bound
constexpr std::int64_t kTypical = 512;          ///< what tile sizes are judged by where extents are larger or unknown
constexpr double kCyclesOfTile = 90;            ///< measured on a Sapphire Rapids
constexpr double kDelayOfLoad = 0.1;
constexpr int kMostRowsInPlace = 8;
constexpr double kFewPoints = 512;  ///< rows x columns x depth
constexpr std::int64_t kLeastDepthOfFetch = 128;

class Planner {
 public:
  explicit Planner(const OpContext& context) : c_(context), op_(context.op) {}

  std::optional<ContractPlan> run() {
    if (!op_.contraction) return std::nullopt;
    plan_.a = op_.contraction->a;
    plan_.b = op_.contraction->b;
    plan_.scale = op_.contraction->scale;
    if (!affine()) return std::nullopt;
    orient();
    if (!classify() || is_small() || !split_guards()) return std::nullopt;
    block_depth();
    shape();
    choose_panels();
    return plan_;
  }

 private:
  const OpDim& dim(int k) const { return op_.dims[k]; }
  int dims() const { return static_cast<int>(op_.dims.size()); }
  bool moves(int access, int k) const { return c_.motion(access, k) != OpContext::Motion::none; }
  std::int64_t size(int k) const {
    const auto exact = c_.extent(k);
    return exact ? *exact : dim(k).max_extent.value_or(kUnknown);
  }
  bool has_size(int k) const { return c_.extent(k) || dim(k).max_extent; }

  bool affine() const {
    for (int k = 0; k < dims(); ++k) {
      for (const int access : {OpContext::kWrite, plan_.a, plan_.b}) {
        if (c_.motion(access, k) == OpContext::Motion::irregular) return false;
      }
    }
    return true;
  }

  /// Kept dims that move only one of the reads and have more than one value.
  std::vector<int> exclusive(int access, int other) const {
    std::vector<int> out;
    for (int k = 0; k < dims(); ++k) {
      if (!dim(k).reduced && moves(access, k) && !moves(other, k) && moves(OpContext::kWrite, k) && size(k) > 1) out.push_back(k);
    }
    return out;
  }

  bool has_unit_write(const std::vector<int>& candidates) const {
    return std::any_of(candidates.begin(), candidates.end(),
                       [&](int k) { return c_.motion(OpContext::kWrite, k) == OpContext::Motion::unit; });
  }

  /// Columns are vectors, so the dense index of C must move with b.
  void orient() {
    if (has_unit_write(exclusive(plan_.a, plan_.b)) && !has_unit_write(exclusive(plan_.b, plan_.a))) std::swap(plan_.a, plan_.b);
  }

  bool classify() {
    const auto rows = exclusive(plan_.a, plan_.b), columns = exclusive(plan_.b, plan_.a);
    if (rows.empty() || columns.empty()) return false;
    const auto larger = [&](int x, int y) { return size(x) < size(y); };
    plan_.row = *std::max_element(rows.begin(), rows.end(), larger);
    plan_.column = *std::max_element(columns.begin(), columns.end(), [&](int x, int y) {
      const bool unit_x = c_.motion(OpContext::kWrite, x) == OpContext::Motion::unit,
                 unit_y = c_.motion(OpContext::kWrite, y) == OpContext::Motion::unit;
      return unit_x != unit_y ? unit_y : larger(x, y);
    });
    for (int k = 0; k < dims(); ++k) {
      if (!dim(k).reduced) {
        if (k != plan_.row && k != plan_.column) plan_.outer.push_back(k);
      } else if (plan_.depth < 0 || size(k) >= size(plan_.depth)) {
        if (plan_.depth >= 0) plan_.outer_depth.push_back(plan_.depth);
        plan_.depth = k;
      } else {
        plan_.outer_depth.push_back(k);
      }
    }
    if (plan_.depth < 0) return false;
    // Without an iteration of these loops nothing would start the accumulators.
    return std::all_of(plan_.outer_depth.begin(), plan_.outer_depth.end(), [&](int k) { return c_.extent(k).value_or(0) > 0; });
  }

  /// Packing takes longer than such a product.
  bool is_small() const {
    double points = 1;
    for (const int k : {plan_.row, plan_.column, plan_.depth}) points *= static_cast<double>(size(k));
    return points <= kFewPoints;
  }

  /// Every part must concern outer dims only, or be a bound of one dim of the product given the outer ones.
  bool split_guards() {
    const auto add_bounds = [&](int k, std::vector<IntExpr>& bounds) {
      std::vector<int> with = plan_.outer;
      with.push_back(k);
      const GuardLevels levels = split_guard(op_, with, -1);
      bounds = levels.levels.back().bounds;
      return levels.levels.back().conditions.empty();
    };
    for (const IntExpr& part : conjuncts(op_.guard)) {
      int inner = 0;
      for (const int k : {plan_.row, plan_.column, plan_.depth}) inner += part.uses(dim(k).var) ? 1 : 0;
      const bool crosses =
          std::any_of(plan_.outer_depth.begin(), plan_.outer_depth.end(), [&](int k) { return part.uses(dim(k).var); });
      if (inner > 1 || crosses) return false;
    }
    plan_.outer_guards = split_guard(outer_part(), plan_.outer, -1);
    return add_bounds(plan_.row, plan_.row_bounds) && add_bounds(plan_.column, plan_.column_bounds) &&
           add_bounds(plan_.depth, plan_.depth_bounds);
  }

  /// The op with only those parts of its guard that no dim of the product decides.
  TileOp outer_part() const {
    TileOp out = op_;
    out.guard = IntExpr();
    for (const IntExpr& part : conjuncts(op_.guard)) {
      bool inner = false;
      for (const int k : {plan_.row, plan_.column, plan_.depth}) inner = inner || part.uses(dim(k).var);
      if (!inner) out.guard = out.guard.defined() ? out.guard && part : part;
    }
    return out;
  }

  const BlockLimits& limits() const { return plan_.pack_a ? kPackedA : kInPlace; }

  /// A is read in place where its rows are dense. A depth that fits half more than a block is one block.
  void block_depth() {
    plan_.pack_a = c_.type(plan_.a) != ElementType::f32 || c_.motion(plan_.a, plan_.depth) != OpContext::Motion::unit;
    plan_.width = c_.frame.host.shape.width;
    const std::int64_t depth = size(plan_.depth), most = limits().depth * plan_.width;
    plan_.block_depth = has_size(plan_.depth) && depth <= most * 3 / 2 ? std::max<std::int64_t>(depth, 1) : most;
  }

  /// Estimated cycles of rows x vectors tiles over the whole product: two fused multiply-adds or two to three loads a cycle, and what
  /// it takes to start a tile and to store its sums. More rows in place than address registers are slower.
  double cost(int rows, int vectors) const {
    const double width = plan_.width;
    const auto tiles = [&](int k, double tile) { return std::ceil(static_cast<double>(std::min(size(k), kTypical)) / tile); };
    const double row_tiles = tiles(plan_.row, rows), column_tiles = tiles(plan_.column, vectors * width);
    const double multiply = rows * vectors / 2.0, load = (rows + vectors) / 2.0, latency = 4.0;
    const double step =
        std::max({multiply, load, latency}) * (1 + 0.02 * std::max(0, 12 - rows * vectors)) + kDelayOfLoad * (rows + vectors);
    const double addresses = !plan_.pack_a && rows > kMostRowsInPlace ? 1.05 : 1;
    return row_tiles * column_tiles * (static_cast<double>(plan_.block_depth) * step * addresses + kCyclesOfTile);
  }

  /// The register tile: accumulators, one row of B and one element of A must fit the registers.
  void shape() {
    const int registers = static_cast<int>(c_.frame.host.shape.registers);
    const int wanted_vectors =
        dim(plan_.column).kind == LoopKind::vectorize ? static_cast<int>(dim(plan_.column).factor / plan_.width) : 0;
    const int wanted_rows = dim(plan_.row).kind == LoopKind::unroll ? static_cast<int>(dim(plan_.row).factor) : 0;
    double best = std::numeric_limits<double>::infinity();
    for (int vectors = 4; vectors >= 1; --vectors) {
      for (int rows = 14; rows >= 1; --rows) {
        if (rows * vectors + vectors + 1 > registers) continue;
        double estimate = cost(rows, vectors);
        if (vectors == wanted_vectors) estimate *= 0.5;
        if (rows == wanted_rows) estimate *= 0.5;
        if (estimate >= best) continue;
        best = estimate;
        plan_.rows = rows;
        plan_.vectors = vectors;
      }
    }
  }

  void choose_panels() {
    const std::int64_t columns = size(plan_.column), depth = size(plan_.depth), rows = size(plan_.row);
    // B is read in place when its rows are dense, end at a panel's edge, and are few enough to stay cached.
    const bool b_plain = c_.type(plan_.b) == ElementType::f32 && c_.motion(plan_.b, plan_.column) == OpContext::Motion::unit;
    const bool even = c_.extent(plan_.column) && plan_.column_bounds.empty() && columns % plan_.panel_columns() == 0;
    plan_.pack_b = !(b_plain && even && columns * depth <= 32768);
    plan_.direct_c =
        c_.type(OpContext::kWrite) == ElementType::f32 && c_.motion(OpContext::kWrite, plan_.column) == OpContext::Motion::unit;
    plan_.fetch_c = plan_.block_depth >= kLeastDepthOfFetch;
    const auto up = [](std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; };
    const std::int64_t most_columns = limits().elements_of_b / plan_.block_depth;
    plan_.block_columns = up(has_size(plan_.column) ? std::min(columns, most_columns) : most_columns, plan_.panel_columns());
    const std::int64_t most_rows = plan_.direct_c ? limits().rows : kBlockRowsOfTile;
    plan_.block_rows = up(has_size(plan_.row) ? std::min(rows, most_rows) : most_rows, plan_.rows);
  }

  const OpContext& c_;
  const TileOp& op_;
  ContractPlan plan_;
};

}  // namespace

std::optional<ContractPlan> plan_contract(const OpContext& context) { return Planner(context).run(); }

}  // namespace nestor
