// Values of a tensor plan in double, as its fragments and tiles hold them: copies, products, elementwise ops, reductions of rows, stores
// and the rounding of operands, for one group of warps at one moment. What is read from the wrong place is an exception.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/llvm/int_emit.h"
#include "codegen/tile/analysis/conditions.h"
#include "poly/nest/scalar_semantics.h"
#include "support/elements.h"
#include "support/error.h"
#include "support/tensor/event_walk.h"

#include <fmt/format.h>
#include <cmath>

#include <algorithm>
#include <limits>

namespace nestor::testing {

class TensorValues {
 public:
  using Values = EventValues;
  using Elements = std::vector<double>;

  /// What surrounds an event: values of loops and sizes, and whether masks are applied.
  struct Moment {
    const Values& values;
    bool masked = true;
  };
  /// A group of warps.
  struct Group {
    std::map<int, Elements> tiles;        ///< by buffer: [rows][columns], or [rows][4] without columns: one value a thread
    std::map<int, Elements> operands;     ///< by op: [rows][k]
    std::map<int, Elements> held;         ///< by circular buffer: the group's [rows][64 * column_blocks]
    std::map<int, const Elements*> read;  ///< by circular buffer: the block's tile that the op reads now
    int first_row = 0;                    ///< of the block
  };

  TensorValues(const nvptx::TensorPlan& plan, const Sizes& sizes, const std::map<std::string, double>& scalars,
               std::map<std::string, std::vector<double>>& memory, bool round_operands)
      : plan_(plan), sizes_(sizes.begin(), sizes.end()), scalars_(scalars), memory_(memory), round_operands_(round_operands) {
    for (const auto& [name, value] : plan.program->fixed_sizes) sizes_[name] = value;
    for (std::size_t b = 0; b < plan.program->buffers.size(); ++b) {
      for (const IntExpr& extent : plan.program->buffers[b].extents)
        extents_[static_cast<int>(b)].push_back(value_at(extent, sizes_));
    }
  }

  static constexpr int kQuad = 4;
  static std::size_t elements_of(const nvptx::CircularBuffer& ring) {
    return static_cast<std::size_t>(ring.rows * row_elements(ring));
  }

  /// The share of a tile that `block` copies; all of it where none is shared. As a tensor copy: what lies outside of the argument is 0.
  void fill(int block, const nvptx::CircularBuffer& info, Elements& tile, const Values& values) {
    const bool columns = info.shares_columns();
    const int share = info.blocks > 1 ? block : 0, width = info.copied_blocks() * nvptx::kBlockColumns;
    const int first_row = columns ? 0 : share * info.copied_rows(), first_column = columns ? share * width : 0;
    std::vector<std::int64_t> origin;
    for (const IntExpr& index : info.origin) origin.push_back(value_at(index, values));
    if (info.own_index >= 0)
      origin[static_cast<std::size_t>(info.own_index)] += std::int64_t{block} * plan_.packs() * info.row_stride;
    for (int row = first_row; row < first_row + info.copied_rows(); ++row) {
      for (int column = first_column; column < first_column + width; ++column) {
        std::vector<std::int64_t> index = origin;
        index[static_cast<std::size_t>(info.row_index)] += (info.pack_index < 0 ? row : row / plan_.pack) * info.row_stride;
        if (info.pack_index >= 0) index[static_cast<std::size_t>(info.pack_index)] += row % plan_.pack * info.pack_stride;
        index.back() += column;
        const double* element = find(info.buffer, index);
        tile[static_cast<std::size_t>(row * row_elements(info) + column)] = element == nullptr ? 0 : *element;
      }
    }
  }

  /// The group's rows of a tile into registers; `own`: the group's number in its block.
  void hold(int own, Group& group, int r, const Elements& tile) const {
    const auto share = static_cast<std::ptrdiff_t>(group_rows()) * row_elements(ring(r));
    group.held[r].assign(tile.begin() + own * share, tile.begin() + (own + 1) * share);
  }

  /// A product of tiles in shared memory; `a` null: its first operand is in registers.
  void multiply(int own, Group& group, int number, const Elements* a, const Elements& b) {
    const nvptx::TensorOp& op = this->op(number);
    Elements& sums = group.tiles[op.op.write.buffer];
    if (op.op.initialize) sums.assign(static_cast<std::size_t>(group_rows() * op.n), 0);
    if (sums.size() != static_cast<std::size_t>(group_rows() * op.n)) fail(op.op.name + " adds to a tile that has no value");
    const int width = row_elements(ring(op.b_ring));
    for (int row = 0; row < group_rows(); ++row) {
      for (int k = 0; k < op.k; ++k) {
        const double factor = first_operand(own, group, number, a, row, k);
        for (int n = 0; n < op.n; ++n)
          sums[static_cast<std::size_t>(row * op.n + n)] +=
              factor * b[static_cast<std::size_t>(op.b_by_column ? k * width + n : n * width + k)];
      }
    }
  }

  void narrow(int g, Group& group, int k, const Moment& now) {
    const nvptx::TensorOp& op = this->op(k);
    const int buffer = op.op.reads[static_cast<std::size_t>(op.form.a)].buffer;
    const Mask mask(now.masked && op.mask_a ? op.mask : std::vector<IntExpr>{}, now.values, plan_.pack);
    Elements operand;
    for (int row = 0; row < group_rows(); ++row) {
      for (int column = 0; column < op.k; ++column) {
        double element = fragment(group, buffer, row, column, lane_of(column));
        if (!mask.holds(g * group_rows() + row, column)) element = 0;
        operand.push_back(round_operands_ ? rounded(element, op.product_type) : element);
      }
    }
    group.operands[k] = std::move(operand);
  }

  void compute(int g, Group& group, const nvptx::TensorOp& op, const Moment& now) {
    if (op.kind == nvptx::TensorOp::Kind::map) return map(g, group, op, now);
    if (op.kind == nvptx::TensorOp::Kind::reduce) return reduce(g, group, op, now);
    if (op.kind == nvptx::TensorOp::Kind::store) return store(g, group, op, now);
    if (op.kind == nvptx::TensorOp::Kind::seldom) return seldom(g, group, op, now);
    fail("a product is computed, not issued");
  }

  /// The four threads' parts of a row's sum become the whole of it.
  static void quad_reduction(Group& group, int buffer) {
    for (std::size_t row = 0; row < group.tiles.at(buffer).size(); row += kQuad) sum_quad(group.tiles.at(buffer), row);
  }

 private:
  int group_rows() const { return plan_.row_tiles * nvptx::kWarpgroupRows; }
  const nvptx::TensorOp& op(int k) const { return plan_.ops.at(static_cast<std::size_t>(k)); }
  const nvptx::CircularBuffer& ring(int k) const { return plan_.circular_buffers.at(static_cast<std::size_t>(k)); }
  static int row_elements(const nvptx::CircularBuffer& ring) { return ring.column_blocks() * nvptx::kBlockColumns; }

  [[noreturn]] void fail(const std::string& what) const { internal_error("tensor plan of {}: {}", plan_.program->name, what); }

  /// The element of an argument; null outside of it.
  double* find(int buffer, const std::vector<std::int64_t>& index) {
    std::int64_t linear = 0;
    for (std::size_t k = 0; k < index.size(); ++k) {
      if (index[k] < 0 || index[k] >= extents_.at(buffer)[k]) return nullptr;
      linear = linear * extents_.at(buffer)[k] + index[k];
    }
    return &memory_.at(plan_.buffer(buffer).name).at(static_cast<std::size_t>(linear));
  }

  double first_operand(int own, const Group& group, int number, const Elements* a, int row, int k) const {
    const nvptx::TensorOp& op = this->op(number);
    if (op.a_ring < 0) return group.operands.at(number)[static_cast<std::size_t>(row * op.k + k)];
    const int width = row_elements(ring(op.a_ring));
    if (a == nullptr) return group.held.at(op.a_ring)[static_cast<std::size_t>(row * width + k)];
    const int line = own * group_rows() + row;
    return (*a)[static_cast<std::size_t>(op.a_by_row ? k * width + line : line * width + k)];
  }

  double tile_element(const Group& group, int r, int row, int column) const {
    return group.read.at(r)->at(static_cast<std::size_t>((row - group.first_row) * row_elements(ring(r)) + column));
  }

  static double rounded(double value, ElementType type) {
    char bytes[8] = {};
    write_element(bytes, type, value);
    return read_element(bytes, type);
  }

  static int lane_of(int column) { return column % 8 / 2; }

  double fragment(const Group& group, int buffer, int row, int column, int lane) const {
    const auto found = group.tiles.find(buffer);
    const std::string& name = plan_.buffer(buffer).name;
    if (found == group.tiles.end()) fail(name + " is read before it is written");
    const int columns = plan_.fragments.at(buffer).columns;
    if (columns > 0 && column >= columns) fail(name + " is read beyond its columns");
    return found->second.at(static_cast<std::size_t>(columns == 0 ? row * kQuad + lane : row * columns + column));
  }

  /// Conditions over a tile's row, its place in a pack of `pack`, and its column, with all else fixed.
  class Mask {
   public:
    Mask(const std::vector<IntExpr>& conditions, const Values& values, int pack) : pack_(pack) {
      for (const IntExpr& condition : conditions) {
        const IntExpr distance = comparison_distance(condition);
        const auto by_row = distance.defined() ? distance.coefficient(nvptx::kRow) : std::nullopt;
        const auto by_column = distance.defined() ? distance.coefficient(nvptx::kColumn) : std::nullopt;
        const auto by_place = distance.defined() ? distance.coefficient(nvptx::kPack) : std::nullopt;
        if (!by_row || !by_column || !by_place) {
          others_.push_back(condition);
          continue;
        }
        Values origin = values;
        origin[nvptx::kRow] = origin[nvptx::kColumn] = origin[nvptx::kPack] = 0;
        parts_.push_back({value_at(distance, origin), *by_row, *by_place, *by_column, condition.op() == IntOp::eq});
      }
      if (!others_.empty()) values_ = values;
    }
    bool holds(std::int64_t row, std::int64_t column) const {
      for (const IntExpr& condition : others_) {
        values_[nvptx::kRow] = row / pack_;
        values_[nvptx::kPack] = row % pack_;
        values_[nvptx::kColumn] = column;
        if (value_at(condition, values_) == 0) return false;
      }
      return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
        const std::int64_t distance =
            part.base + part.row_slope * (row / pack_) + part.place_slope * (row % pack_) + part.column_slope * column;
        return part.equality ? distance == 0 : distance >= 0;
      });
    }

   private:
    int pack_;
    struct Part {
      std::int64_t base, row_slope, place_slope, column_slope;
      bool equality;
    };
    std::vector<Part> parts_;
    std::vector<IntExpr> others_;  ///< that are not linear comparisons
    mutable Values values_;        ///< for those, and the point that is asked for
  };

  /// The points of an op in a group of warps at one moment, one after the other: what all of them share is there once.
  class Points {
   public:
    Points(const TensorValues& all, int g, const nvptx::TensorOp& op, const Moment& now)
        : first_row_(g * all.group_rows()),
          pack_(all.plan_.pack),
          op_(op),
          memory_(op.memory_mask, now.values, all.plan_.pack),
          values_(now.values) {
      for (const OpDim& dim : op.op.dims) values_[dim.var] = value_at(dim.lower, now.values);
    }
    /// Sizes, loops and dims at a row and column.
    const Values& at(int row, int column) {
      const int work_tile_row = first_row_ + row;
      set(op_.row, work_tile_row / pack_);
      set(op_.pack, work_tile_row % pack_);
      set(op_.column, column);
      return values_;
    }
    /// Of a dim that has no role.
    void set_term(const std::string& var, std::int64_t value) { values_[var] = value; }
    bool in_memory(int row, int column) const { return memory_.holds(first_row_ + row, column); }

   private:
    void set(int dim, std::int64_t value) {
      if (dim >= 0) values_[op_.op.dims[static_cast<std::size_t>(dim)].var] = value;
    }
    int first_row_, pack_;
    const nvptx::TensorOp& op_;
    Mask memory_;
    Values values_;
  };

  double element(int g, const Group& group, const nvptx::TensorOp& op, Points& points, int row, int column, int lane) {
    return element(g, group, op, points, row, column, lane, op.op.value);
  }

  double element(int g, const Group& group, const nvptx::TensorOp& op, Points& points, int row, int column, int lane,
                 const ScalarExpr& value) {
    return evaluate(
        value,
        [&](int k) {
          const TileAccess& access = op.op.reads.at(static_cast<std::size_t>(k));
          if (const auto found = plan_.fragments.find(access.buffer); found != plan_.fragments.end()) {
            const double value = fragment(group, access.buffer, row, column, lane);
            const bool row = op.finite_rows && found->second.columns == 0 && std::isinf(value);
            return row && nvptx::value_without_points(plan_, access.buffer) == value ? 0 : value;
          }
          if (const auto ring = op.read_rings.find(k); ring != op.read_rings.end())
            return tile_element(group, ring->second, g * group_rows() + row, column);
          return points.in_memory(row, column) ? argument_at(access, points.at(row, column))
                                               : memory_.at(plan_.buffer(access.buffer).name).front();
        },
        [&](int k) { return value_at(op.op.indices.at(static_cast<std::size_t>(k)), points.at(row, column)); },
        [&](const std::string& name) { return scalars_.at(name); });
  }

  double& argument_at(const TileAccess& access, const Values& values) {
    std::vector<std::int64_t> index;
    for (const IntExpr& expr : access.index) index.push_back(value_at(expr, values));
    double* found = find(access.buffer, index);
    if (found == nullptr) fail(plan_.buffer(access.buffer).name + " is touched outside of its bounds");
    return *found;
  }

  static void sum_quad(std::vector<double>& values, std::size_t row) {
    const double sum = values[row] + values[row + 1] + values[row + 2] + values[row + 3];
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(row), kQuad, sum);
  }

  void map(int g, Group& group, const nvptx::TensorOp& op, const Moment& now) {
    const int buffer = op.op.write.buffer, columns = plan_.fragments.at(buffer).columns;
    const bool in_place =
        std::any_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
    const bool selects = now.masked && (op.select || op.keeps || (in_place && !op.outside));
    const Mask mask(selects ? op.mask : std::vector<IntExpr>{}, now.values, plan_.pack);
    Points points(*this, g, op, now);
    std::vector<double> values;
    for (int row = 0; row < group_rows(); ++row) {
      for (int k = 0; k < (columns == 0 ? kQuad : columns); ++k) {
        const int column = columns == 0 ? 0 : k, lane = columns == 0 ? k : lane_of(k);
        if (mask.holds(g * group_rows() + row, column)) {
          values.push_back(element(g, group, op, points, row, column, lane));
        } else {
          values.push_back(op.outside ? *op.outside : fragment(group, buffer, row, column, lane));
        }
      }
    }
    group.tiles[buffer] = std::move(values);
  }

  int columns_of(const nvptx::TensorOp& op) const {
    if (op.column < 0) return 1;
    return static_cast<int>(round_up(*nvptx::extent_bound(op.op.dims[static_cast<std::size_t>(op.column)]), 8));
  }

  void reduce(int g, Group& group, const nvptx::TensorOp& op, const Moment& now) {
    const int buffer = op.op.write.buffer;
    const bool in_lanes = plan_.fragments.at(buffer).thread_sums;
    const Mask mask(now.masked && op.select ? op.mask : std::vector<IntExpr>{}, now.values, plan_.pack);
    Points points(*this, g, op, now);
    const int columns = columns_of(op);
    const double neutral = neutral_element(*op.op.reduction, op.op.value.type());
    std::vector<double> values;
    for (int row = 0; row < group_rows(); ++row) {
      std::vector<double> totals(kQuad, neutral);
      for (int column = 0; column < columns; ++column) {
        if (!mask.holds(g * group_rows() + row, column)) continue;
        double& total = totals[static_cast<std::size_t>(lane_of(column))];
        total = semantics::combine(*op.op.reduction, op.op.value.type(), total,
                                   element(g, group, op, points, row, column, lane_of(column)));
      }
      double all = neutral;
      for (const double total : totals) all = semantics::combine(*op.op.reduction, op.op.value.type(), all, total);
      for (int lane = 0; lane < kQuad; ++lane) {
        const double old = op.op.initialize ? neutral : fragment(group, buffer, row, 0, lane);
        values.push_back(semantics::combine(*op.op.reduction, op.op.value.type(), old,
                                            in_lanes ? totals[static_cast<std::size_t>(lane)] : all));
      }
    }
    group.tiles[buffer] = std::move(values);
  }

  /// Terms are added up at points alone, and only where the condition says so.
  void seldom(int g, Group& group, const nvptx::TensorOp& op, const Moment& now) {
    const int columns = plan_.fragments.at(op.op.write.buffer).columns;
    Elements& tile = group.tiles.at(op.op.write.buffer);
    const OpDim& k = op.op.dims.at(static_cast<std::size_t>(op.form.k));
    Points points(*this, g, op, now);
    for (int row = 0; row < group_rows(); ++row) {
      for (int column = 0; column < columns_of(op); ++column) {
        const auto value = [&](const ScalarExpr& expr) {
          return element(g, group, op, points, row, column, lane_of(column), expr);
        };
        if ((value(op.seldom->condition) != 0) != op.seldom->adds) continue;
        const Values& values = points.at(row, column);
        bool point = !op.op.guard.defined() || value_at(op.op.guard, values) != 0;
        for (const int d : {op.row, op.column, op.pack}) {
          if (d < 0) continue;
          const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
          point = point && value_at(dim.lower, values) <= values.at(dim.var) && values.at(dim.var) < value_at(dim.upper, values);
        }
        const std::int64_t first = value_at(k.lower, values), end = point ? value_at(k.upper, values) : first;
        for (std::int64_t term = first; term < end; ++term) {
          points.set_term(k.var, term);
          tile[static_cast<std::size_t>(row * columns + column)] += value(op.seldom->term);
        }
      }
    }
  }

  void store(int g, const Group& group, const nvptx::TensorOp& op, const Moment& now) {
    const ElementType type = plan_.buffer(op.op.write.buffer).type;
    const Mask mask(op.through_shared ? std::vector<IntExpr>{} : op.memory_mask, now.values, plan_.pack);
    Points points(*this, g, op, now);
    const int columns = columns_of(op);
    for (int row = 0; row < group_rows(); ++row) {
      for (int column = 0; column < columns; ++column) {
        if (!mask.holds(g * group_rows() + row, column)) continue;
        const Values& values = points.at(row, column);
        std::vector<std::int64_t> index;
        for (const IntExpr& expr : op.op.write.index) index.push_back(value_at(expr, values));
        double* target = find(op.op.write.buffer, index);
        if (target == nullptr && op.through_shared) continue;  // left out by the copy
        if (target == nullptr) fail(op.op.name + " writes outside of its argument");
        *target = type == ElementType::f32 ? element(g, group, op, points, row, column, lane_of(column))
                                           : rounded(element(g, group, op, points, row, column, lane_of(column)), type);
      }
    }
  }

  const nvptx::TensorPlan& plan_;
  Values sizes_;
  const std::map<std::string, double>& scalars_;
  std::map<std::string, std::vector<double>>& memory_;
  bool round_operands_;
  std::map<int, std::vector<std::int64_t>> extents_;
};

}  // namespace nestor::testing
