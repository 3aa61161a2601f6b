// Runs a tensor plan without a GPU: the roles of a block take their events in random order, as far as barriers allow, and every value is
// computed in double where the plan says, operands rounded to 16 bits when asked. What a GPU would get wrong silently is an exception
// here: a slot overwritten while a product reads it, a sum read before its product has ended, a barrier that nobody completes.
#pragma once

#include "codegen/llvm/int_emit.h"
#include "codegen/nvptx/tensor_plan.h"
#include "support/elements.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <random>

namespace nestor::testing {

struct TensorRun {
  bool round_operands = true;  ///< fragments become 16-bit operands, as on the GPU
  int blocks = 3;              ///< of a persistent grid
  unsigned seed = 1;           ///< of the order in which roles go on
};

class TensorInterpreter {
 public:
  /// `memory`: dense row-major values of each argument by name; sizes complete.
  TensorInterpreter(const nvptx::TensorPlan& plan, const Sizes& sizes, const std::map<std::string, double>& scalars,
                    std::map<std::string, std::vector<double>>& memory, const TensorRun& options)
      : plan_(plan),
        sizes_(sizes.begin(), sizes.end()),
        scalars_(scalars),
        memory_(memory),
        options_(options),
        random_(options.seed) {
    for (const auto& [name, value] : plan.program->fixed_sizes) sizes_[name] = value;
    for (std::size_t b = 0; b < plan.program->buffers.size(); ++b) {
      for (const IntExpr& extent : plan.program->buffers[b].extents)
        extents_[static_cast<int>(b)].push_back(value(extent, sizes_));
    }
  }

  void run() {
    std::int64_t count = 1;
    for (const nvptx::GridLoop& loop : plan_.kernel->grid) count *= value(loop.count, sizes_);
    const std::int64_t blocks = plan_.persistent() ? std::min<std::int64_t>(options_.blocks, count) : count;
    for (std::int64_t block = 0; block < blocks; ++block) {
      std::vector<Values> items;
      for (std::int64_t item = block; item < count; item += blocks) items.push_back(coordinates(item));
      run_block(items);
    }
  }

 private:
  using Values = std::map<std::string, std::int64_t>;
  using Kind = nvptx::Event::Kind;

  struct TraceEntry {
    nvptx::Event event{};
    Values values;
    bool masked = true;
    bool starts_item = false;  ///< instead of the event: nothing lives on from the item before
  };
  struct Tile {
    std::int64_t position = -1;
    std::vector<double> elements;  ///< [rows][64 * column_blocks]
  };
  struct RingState {
    std::vector<Tile> slots;
    std::int64_t loaded = 0;
    bool slot_is_free = false;  ///< the producer has waited for it
  };
  struct Flight {
    int op;
    std::int64_t a_position, b_position;
  };
  /// A group of warps (or the producer, with nothing but a trace).
  struct Role {
    std::vector<TraceEntry> trace;
    std::size_t at = 0;
    std::map<int, std::vector<double>> tiles;  ///< by buffer: [rows][columns], or [rows][4] without columns: one value a thread
    std::map<int, std::vector<double>> operands;  ///< by op: [rows][k]
    std::map<int, std::vector<double>> held;      ///< by ring: the group's [rows][64 * column_blocks]
    std::map<int, std::int64_t> released;
    std::map<int, bool> arrived;  ///< ring's tile has been waited for
    std::deque<Flight> flight;
    bool has_turn = false;
  };

  static constexpr int kQuad = 4;
  int group_rows() const { return plan_.row_tiles * nvptx::kGroupRows; }
  const nvptx::TensorOp& op(int k) const { return plan_.ops.at(static_cast<std::size_t>(k)); }
  const nvptx::Ring& ring(int k) const { return plan_.rings.at(static_cast<std::size_t>(k)); }
  static int row_elements(const nvptx::Ring& ring) { return ring.column_blocks() * nvptx::kBlockColumns; }

  [[noreturn]] void fail(const std::string& what) const { internal_error("tensor plan of {}: {}", plan_.program->name, what); }

  static std::int64_t value(const IntExpr& expr, const Values& values) {
    return expr.evaluate([&](const std::string& name) {
      const auto found = values.find(name);
      if (found == values.end()) internal_error("tensor plan: variable {} has no value", name);
      return found->second;
    });
  }

  Values coordinates(std::int64_t item) const {
    Values values = sizes_;
    for (std::size_t k = plan_.kernel->grid.size(); k-- > 0;) {
      const nvptx::GridLoop& loop = plan_.kernel->grid[k];
      const std::int64_t count = value(loop.count, sizes_);
      values[loop.var] = value(loop.lower, sizes_) + loop.step * (item % count);
      item /= count;
    }
    return values;
  }

  // ---- roles

  void flatten(const nvptx::EventNode& node, Values& values, bool masked, std::vector<TraceEntry>& trace) const {
    using NodeKind = nvptx::EventNode::Kind;
    const auto children = [&](bool mask) {
      for (const nvptx::EventNode& child : node.children) flatten(child, values, mask, trace);
    };
    if (node.kind == NodeKind::event) return trace.push_back({node.event, values, masked, false});
    if (node.kind == NodeKind::condition) {
      if (value(node.condition, values) != 0) children(masked);
      return;
    }
    if (node.kind == NodeKind::sequence && node.var.empty()) return children(masked);
    const Values around = values;
    const std::int64_t lower = value(node.lower, values);
    const std::int64_t upper = node.kind == NodeKind::loop ? value(node.upper, values) : lower + 1;
    for (std::int64_t i = lower; i < upper; ++i) {
      values[node.var] = i;
      children(node.masked);
    }
    values = around;
  }

  Role role_of(const nvptx::EventNode& program, const std::vector<Values>& items) const {
    Role role;
    for (Values values : items) {
      role.trace.push_back({{}, values, true, true});
      flatten(program, values, true, role.trace);
    }
    return role;
  }

  void run_block(const std::vector<Values>& items) {
    rings_.clear();
    for (const nvptx::Ring& ring : plan_.rings) rings_.push_back({std::vector<Tile>(static_cast<std::size_t>(ring.slots))});
    producer_ = role_of(plan_.producer, items);
    groups_.assign(static_cast<std::size_t>(plan_.groups), role_of(plan_.consumer, items));
    groups_.front().has_turn = true;
    const std::size_t count = groups_.size() + 1;
    std::vector<std::size_t> order(count);
    for (std::size_t k = 0; k < count; ++k) order[k] = k;
    for (bool moved = true; moved;) {
      moved = false;
      std::shuffle(order.begin(), order.end(), random_);
      for (const std::size_t k : order) {
        // A role that goes on goes some way, so that it comes ahead of the others by different distances.
        for (int steps = std::uniform_int_distribution<int>(1, 40)(random_); steps > 0; --steps) {
          const bool went = k < groups_.size() ? step(static_cast<int>(k)) : step_producer();
          if (!went) break;
          moved = true;
        }
      }
    }
    check_ends();
  }

  void check_ends() const {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const Role& role = groups_[g];
      if (role.at < role.trace.size())
        fail(fmt::format("group {} waits for ever at event {} of {}", g, role.at, role.trace.size()));
      if (!role.flight.empty()) fail("a product is never waited for");
      for (std::size_t r = 0; r < rings_.size(); ++r) {
        const auto found = role.released.find(static_cast<int>(r));
        if ((found == role.released.end() ? 0 : found->second) != rings_[r].loaded)
          fail("a tile is loaded that nobody reads, or left unread");
      }
    }
    if (producer_.at < producer_.trace.size()) fail("the producer waits for ever");
  }

  bool step_producer() {
    if (producer_.at == producer_.trace.size()) return false;
    const TraceEntry& entry = producer_.trace[producer_.at];
    if (!entry.starts_item) {
      const int r = entry.event.ring;
      RingState& state = rings_.at(static_cast<std::size_t>(r));
      if (entry.event.kind == Kind::wait_empty) {
        const std::int64_t needed = state.loaded - ring(r).slots + 1;
        if (std::any_of(groups_.begin(), groups_.end(), [&](Role& role) { return role.released[r] < needed; })) return false;
        state.slot_is_free = true;
      } else if (entry.event.kind == Kind::load) {
        if (!std::exchange(state.slot_is_free, false)) fail("a tile is loaded into a slot that may still be read");
        load(r, entry.values);
      } else {
        fail("the producer does what only consumers do");
      }
    }
    ++producer_.at;
    return true;
  }

  /// One event of a group; false: it has to wait.
  bool step(int g) {
    Role& role = groups_[static_cast<std::size_t>(g)];
    if (role.at == role.trace.size()) return false;
    const TraceEntry& entry = role.trace[role.at];
    if (entry.starts_item) {
      if (!role.flight.empty()) fail("a product lives on after its item");
      role.tiles.clear();
      role.operands.clear();
      role.held.clear();
    } else if (!run_event(g, role, entry)) {
      return false;
    }
    ++role.at;
    return true;
  }

  bool run_event(int g, Role& role, const TraceEntry& entry) {
    const nvptx::Event& event = entry.event;
    switch (event.kind) {
      case Kind::wait_full:
        if (rings_.at(static_cast<std::size_t>(event.ring)).loaded <= role.released[event.ring]) return false;
        role.arrived[event.ring] = true;
        return true;
      case Kind::release:
        for (const Flight& flying : role.flight) {
          if (op(flying.op).a_ring == event.ring && flying.a_position == role.released[event.ring])
            fail("a tile is released under a product");
          if (op(flying.op).b_ring == event.ring && flying.b_position == role.released[event.ring])
            fail("a tile is released under a product");
        }
        ++role.released[event.ring];
        role.arrived[event.ring] = false;
        return true;
      case Kind::product:
        issue(role, event.op);
        return true;
      case Kind::wait_products:
        while (static_cast<int>(role.flight.size()) > event.count) land(g, role);
        return true;
      case Kind::compute:
        compute(g, role, op(event.op), entry);
        return true;
      case Kind::narrow:
        narrow(g, role, event.op, entry);
        return true;
      case Kind::finish_sums:
        for (std::size_t row = 0; row < role.tiles.at(event.ring).size(); row += kQuad) sum_quad(role.tiles.at(event.ring), row);
        return true;
      case Kind::take_registers:
        take_registers(g, role, event.ring);
        return true;
      case Kind::wait_turn:
        return std::exchange(role.has_turn, false);
      case Kind::pass_turn: {
        Role& next = groups_[static_cast<std::size_t>((g + 1) % plan_.groups)];
        if (next.has_turn) fail("a turn is passed twice");
        next.has_turn = true;
        return true;
      }
      case Kind::wait_empty:
      case Kind::load:
        break;
    }
    fail("a consumer does what only the producer does");
  }

  // ---- tiles in shared memory

  /// As a tensor copy: what lies outside of the argument is 0.
  void load(int r, const Values& values) {
    const nvptx::Ring& info = ring(r);
    RingState& state = rings_[static_cast<std::size_t>(r)];
    Tile& tile = state.slots[static_cast<std::size_t>(state.loaded % info.slots)];
    tile.position = state.loaded++;
    tile.elements.clear();
    std::vector<std::int64_t> origin;
    for (const IntExpr& index : info.origin) origin.push_back(value(index, values));
    for (int row = 0; row < info.rows; ++row) {
      for (int column = 0; column < row_elements(info); ++column) {
        std::vector<std::int64_t> index = origin;
        index[static_cast<std::size_t>(info.row_index)] += row;
        index.back() += column;
        const double* element = find(info.buffer, index);
        tile.elements.push_back(element == nullptr ? 0 : *element);
      }
    }
  }

  /// The element of an argument; null outside of it.
  double* find(int buffer, const std::vector<std::int64_t>& index) {
    std::int64_t linear = 0;
    for (std::size_t k = 0; k < index.size(); ++k) {
      if (index[k] < 0 || index[k] >= extents_.at(buffer)[k]) return nullptr;
      linear = linear * extents_.at(buffer)[k] + index[k];
    }
    return &memory_.at(plan_.buffer(buffer).name).at(static_cast<std::size_t>(linear));
  }

  const std::vector<double>& tile_at(int r, std::int64_t position) const {
    const Tile& tile = rings_[static_cast<std::size_t>(r)].slots[static_cast<std::size_t>(position % ring(r).slots)];
    if (tile.position != position) fail("a slot is overwritten while a product reads it");
    return tile.elements;
  }

  void take_registers(int g, Role& role, int r) {
    if (!role.arrived[r]) fail("a tile is read before it has arrived");
    const auto& all = tile_at(r, role.released[r]);
    const auto share = static_cast<std::ptrdiff_t>(group_rows()) * row_elements(ring(r));
    role.held[r].assign(all.begin() + g * share, all.begin() + (g + 1) * share);
  }

  // ---- products

  bool in_flight(const Role& role, int buffer) const {
    return std::any_of(role.flight.begin(), role.flight.end(),
                       [&](const Flight& f) { return op(f.op).op.write.buffer == buffer; });
  }

  void issue(Role& role, int k) {
    const nvptx::TensorOp& op = this->op(k);
    for (const int r : {op.a_ring, op.b_ring}) {
      if (r >= 0 && !ring(r).in_registers && !role.arrived[r]) fail(op.op.name + " reads a tile before it has arrived");
    }
    if (op.a_ring < 0 && role.operands.count(k) == 0) fail(op.op.name + " has no first operand yet");
    role.flight.push_back({k, op.a_ring < 0 ? -1 : role.released[op.a_ring], role.released[op.b_ring]});
  }

  double first_operand(int g, const Role& role, const Flight& flight, int row, int k) const {
    const nvptx::TensorOp& op = this->op(flight.op);
    if (op.a_ring < 0) return role.operands.at(flight.op)[static_cast<std::size_t>(row * op.k + k)];
    const int width = row_elements(ring(op.a_ring));
    if (ring(op.a_ring).in_registers) return role.held.at(op.a_ring)[static_cast<std::size_t>(row * width + k)];
    const int own = g * group_rows() + row;
    return tile_at(op.a_ring, flight.a_position)[static_cast<std::size_t>(op.a_by_row ? k * width + own : own * width + k)];
  }

  /// The oldest product ends. It is computed now, from what its operands hold now: the latest that the hardware may read them.
  void land(int g, Role& role) {
    const Flight flight = role.flight.front();
    role.flight.pop_front();
    const nvptx::TensorOp& op = this->op(flight.op);
    std::vector<double>& sums = role.tiles[op.op.write.buffer];
    if (op.op.initialize) sums.assign(static_cast<std::size_t>(group_rows() * op.n), 0);
    if (sums.size() != static_cast<std::size_t>(group_rows() * op.n)) fail(op.op.name + " adds to a tile that has no value");
    const std::vector<double>& b = tile_at(op.b_ring, flight.b_position);
    const int width = row_elements(ring(op.b_ring));
    for (int row = 0; row < group_rows(); ++row) {
      for (int k = 0; k < op.k; ++k) {
        const double a = first_operand(g, role, flight, row, k);
        for (int n = 0; n < op.n; ++n)
          sums[static_cast<std::size_t>(row * op.n + n)] +=
              a * b[static_cast<std::size_t>(op.b_by_column ? k * width + n : n * width + k)];
      }
    }
  }

  void narrow(int g, Role& role, int k, const TraceEntry& entry) {
    const nvptx::TensorOp& op = this->op(k);
    if (std::any_of(role.flight.begin(), role.flight.end(), [&](const Flight& f) { return f.op == k; }))
      fail("the first operand of " + op.op.name + " is overwritten while it multiplies");
    const int buffer = op.op.reads[static_cast<std::size_t>(op.form.a)].buffer;
    const Mask mask(entry.masked && op.mask_a ? op.mask : std::vector<IntExpr>{}, entry.values);
    std::vector<double> operand;
    for (int row = 0; row < group_rows(); ++row) {
      for (int column = 0; column < op.k; ++column) {
        double element = fragment(role, buffer, row, column, lane_of(column));
        if (!mask.holds(g * group_rows() + row, column)) element = 0;
        operand.push_back(options_.round_operands
                              ? rounded(element, *plan_.product_type.c_str() == 'f' ? ElementType::f16 : ElementType::bf16)
                              : element);
      }
    }
    role.operands[k] = std::move(operand);
  }

  static double rounded(double value, ElementType type) {
    char bytes[8] = {};
    write_element(bytes, type, value);
    return read_element(bytes, type);
  }

  // ---- values in fragments

  /// Conditions over a tile's row and column, with all else fixed.
  class Mask {
   public:
    Mask(const std::vector<IntExpr>& conditions, const Values& values) {
      for (const IntExpr& condition : conditions) {
        const IntExpr distance = comparison_distance(condition);
        if (!distance.defined()) internal_error("tensor plan: a mask is no comparison: {}", condition.str());
        Values origin = values;
        origin[nvptx::kRow] = origin[nvptx::kColumn] = 0;
        parts_.push_back({value(distance, origin), distance.coefficient(nvptx::kRow).value(),
                          distance.coefficient(nvptx::kColumn).value(), condition.op() == IntOp::eq});
      }
    }
    bool holds(std::int64_t row, std::int64_t column) const {
      return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
        const std::int64_t distance = part.base + part.row_slope * row + part.column_slope * column;
        return part.equality ? distance == 0 : distance >= 0;
      });
    }

   private:
    struct Part {
      std::int64_t base, row_slope, column_slope;
      bool equality;
    };
    std::vector<Part> parts_;
  };

  static int lane_of(int column) { return column % 8 / 2; }

  double fragment(const Role& role, int buffer, int row, int column, int lane) const {
    const auto found = role.tiles.find(buffer);
    const std::string& name = plan_.buffer(buffer).name;
    if (in_flight(role, buffer)) fail(name + " is used while a product writes it");
    if (found == role.tiles.end()) fail(name + " is read before it is written");
    const int columns = plan_.fragments.at(buffer).columns;
    if (columns > 0 && column >= columns) fail(name + " is read beyond its columns");
    return found->second.at(static_cast<std::size_t>(columns == 0 ? row * kQuad + lane : row * columns + column));
  }

  double element(int g, const Role& role, const nvptx::TensorOp& op, const TraceEntry& entry, int row, int column, int lane) {
    const auto point = [&] {
      Values values = entry.values;
      for (int d = 0; d < static_cast<int>(op.op.dims.size()); ++d) {
        const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
        values[dim.var] = d == op.row ? g * group_rows() + row : d == op.column ? column : value(dim.lower, entry.values);
      }
      return values;
    };
    return evaluate(
        op.op.value,
        [&](int k) {
          const TileAccess& access = op.op.reads.at(static_cast<std::size_t>(k));
          if (plan_.fragments.count(access.buffer) != 0) return fragment(role, access.buffer, row, column, lane);
          const bool inside = Mask(op.memory_mask, entry.values).holds(g * group_rows() + row, column);
          return inside ? argument_at(access, point()) : memory_.at(plan_.buffer(access.buffer).name).front();
        },
        [&](int k) { return value(op.op.indices.at(static_cast<std::size_t>(k)), point()); },
        [&](const std::string& name) { return scalars_.at(name); });
  }

  double& argument_at(const TileAccess& access, const Values& values) {
    std::vector<std::int64_t> index;
    for (const IntExpr& expr : access.index) index.push_back(value(expr, values));
    double* found = find(access.buffer, index);
    if (found == nullptr) fail(plan_.buffer(access.buffer).name + " is touched outside of its bounds");
    return *found;
  }

  void compute(int g, Role& role, const nvptx::TensorOp& op, const TraceEntry& entry) {
    if (in_flight(role, op.op.write.buffer)) fail(op.op.name + " writes what a product is still writing");
    if (op.kind == nvptx::TensorOp::Kind::map) return map(g, role, op, entry);
    if (op.kind == nvptx::TensorOp::Kind::reduce) return reduce(g, role, op, entry);
    if (op.kind == nvptx::TensorOp::Kind::store) return store(g, role, op, entry);
    fail("a product is computed, not issued");
  }

  void map(int g, Role& role, const nvptx::TensorOp& op, const TraceEntry& entry) {
    const int buffer = op.op.write.buffer, columns = plan_.fragments.at(buffer).columns;
    const bool in_place =
        std::any_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
    const bool selects = entry.masked && (op.select || (in_place && !op.outside));
    const Mask mask(selects ? op.mask : std::vector<IntExpr>{}, entry.values);
    std::vector<double> values;
    for (int row = 0; row < group_rows(); ++row) {
      for (int k = 0; k < (columns == 0 ? kQuad : columns); ++k) {
        const int column = columns == 0 ? 0 : k, lane = columns == 0 ? k : lane_of(k);
        if (mask.holds(g * group_rows() + row, column)) {
          values.push_back(element(g, role, op, entry, row, column, lane));
        } else {
          values.push_back(op.outside ? *op.outside : fragment(role, buffer, row, column, lane));
        }
      }
    }
    role.tiles[buffer] = std::move(values);
  }

  int columns_of(const nvptx::TensorOp& op) const {
    if (op.column < 0) return 1;
    return static_cast<int>(nvptx::round_up(*nvptx::extent_bound(op.op.dims[static_cast<std::size_t>(op.column)]), 8));
  }

  static void sum_quad(std::vector<double>& values, std::size_t row) {
    const double sum = values[row] + values[row + 1] + values[row + 2] + values[row + 3];
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(row), kQuad, sum);
  }

  void reduce(int g, Role& role, const nvptx::TensorOp& op, const TraceEntry& entry) {
    const int buffer = op.op.write.buffer;
    const bool in_lanes = plan_.fragments.at(buffer).lane_sums;
    const Mask mask(entry.masked && op.select ? op.mask : std::vector<IntExpr>{}, entry.values);
    const double neutral = neutral_element(*op.op.reduction, op.op.value.type());
    std::vector<double> values;
    for (int row = 0; row < group_rows(); ++row) {
      std::vector<double> totals(kQuad, neutral);
      for (int column = 0; column < columns_of(op); ++column) {
        if (!mask.holds(g * group_rows() + row, column)) continue;
        double& total = totals[static_cast<std::size_t>(lane_of(column))];
        total = combine(*op.op.reduction, total, element(g, role, op, entry, row, column, lane_of(column)));
      }
      double all = neutral;
      for (const double total : totals) all = combine(*op.op.reduction, all, total);
      for (int lane = 0; lane < kQuad; ++lane) {
        const double old = op.op.initialize ? neutral : fragment(role, buffer, row, 0, lane);
        values.push_back(combine(*op.op.reduction, old, in_lanes ? totals[static_cast<std::size_t>(lane)] : all));
      }
    }
    role.tiles[buffer] = std::move(values);
  }

  void store(int g, const Role& role, const nvptx::TensorOp& op, const TraceEntry& entry) {
    const ElementType type = plan_.buffer(op.op.write.buffer).type;
    const Mask mask(op.through_shared ? std::vector<IntExpr>{} : op.memory_mask, entry.values);
    for (int row = 0; row < group_rows(); ++row) {
      for (int column = 0; column < columns_of(op); ++column) {
        if (!mask.holds(g * group_rows() + row, column)) continue;
        Values values = entry.values;
        for (const OpDim& dim : op.op.dims) values[dim.var] = value(dim.lower, entry.values);
        if (op.row >= 0) values[op.op.dims[static_cast<std::size_t>(op.row)].var] = g * group_rows() + row;
        if (op.column >= 0) values[op.op.dims[static_cast<std::size_t>(op.column)].var] = column;
        std::vector<std::int64_t> index;
        for (const IntExpr& expr : op.op.write.index) index.push_back(value(expr, values));
        double* target = find(op.op.write.buffer, index);
        if (target == nullptr && op.through_shared) continue;  // left out by the copy
        if (target == nullptr) fail(op.op.name + " writes outside of its argument");
        *target = type == ElementType::f32 ? element(g, role, op, entry, row, column, lane_of(column))
                                           : rounded(element(g, role, op, entry, row, column, lane_of(column)), type);
      }
    }
  }

  const nvptx::TensorPlan& plan_;
  Values sizes_;
  const std::map<std::string, double>& scalars_;
  std::map<std::string, std::vector<double>>& memory_;
  TensorRun options_;
  std::mt19937 random_;
  std::map<int, std::vector<std::int64_t>> extents_;
  std::vector<RingState> rings_;
  Role producer_;
  std::vector<Role> groups_;
};

}  // namespace nestor::testing
