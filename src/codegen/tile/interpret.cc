// The meaning of a tile program, executed point by point in double. Names are looked up once, before anything runs; what is linear along
// an op's innermost dim, once for all points along it.
#include "codegen/tile/tile_program.h"

#include "codegen/tile/int_code.h"
#include "poly/nest/scalar_semantics.h"
#include "poly/nest/scalar_share.h"

#include <algorithm>
#include <array>
#include <limits>

namespace nestor {
namespace {

struct BufferData {
  std::vector<std::int64_t> extents;
  std::vector<double>* values = nullptr;
  std::vector<double> owned;
};

/// A node of a scalar expression: what nestor::evaluate means by it, with a function for each operation.
struct Value {
  ScalarOp op = ScalarOp::constant;
  ElementType type = ElementType::f32;
  ElementType operand = ElementType::f32;  ///< type of the first argument
  double number = 0;
  int ordinal = -1;
  double (*unary)(double) = nullptr;
  double (*binary)(double, double) = nullptr;
  std::array<int, 3> args{};  ///< among the op's values
};

struct ReachedElement {
  int buffer = -1;
  std::vector<IntCode> index;
  /// Along the innermost dim: the first element, and how far the next one is. nullptr: the index says for each point.
  double* first = nullptr;
  std::int64_t stride = 0;
};

struct Dim {
  int slot = 0;
  IntCode lower, upper;
  bool reduced = false;
};

struct Op {
  const TileOp* meant = nullptr;
  std::vector<Dim> dims;
  std::vector<IntCode> outer_guard, guard;  ///< all must hold; the outer ones do not depend on the innermost dim
  bool left_out = false;                    ///< an outer one does not hold
  ReachedElement write;
  std::vector<ReachedElement> reads;
  std::vector<IntCode> indices;
  std::vector<Value> values;  ///< arguments first, the op's own last
};

struct Node {
  TileNode::Kind kind = TileNode::Kind::sequence;
  int slot = 0;
  IntCode lower, upper, condition;
  std::int64_t step = 1;
  std::vector<Node> children;
  Op op;
};

class Compiler {
 public:
  Compiler(const TileProgram& program, const std::map<std::string, double>& scalars, VariableSlots& slots)
      : program_(program), scalars_(scalars), slots_(slots) {}

  Node node(const TileNode& from) {
    Node made{from.kind,
              from.kind == TileNode::Kind::loop ? slots_.of(from.var) : 0,
              code(from.lower),
              code(from.upper),
              code(from.condition),
              from.step,
              {},
              {}};
    for (const TileTree& child : from.children) made.children.push_back(node(*child));
    if (from.kind == TileNode::Kind::op) made.op = op(from.op);
    return made;
  }

 private:
  IntCode code(const IntExpr& expr) { return {expr, slots_}; }

  ReachedElement access(const TileAccess& from) {
    ReachedElement made;
    made.buffer = from.buffer;
    for (const IntExpr& index : from.index) made.index.push_back(code(index));
    return made;
  }

  Op op(const TileOp& from) {
    Op made;
    made.meant = &from;
    made.write = access(from.write);
    for (const OpDim& dim : from.dims) made.dims.push_back({slots_.of(dim.var), code(dim.lower), code(dim.upper), dim.reduced});
    for (IntCode& part : code(from.guard).conjuncts())
      (made.dims.empty() || part.uses(made.dims.back().slot) ? made.guard : made.outer_guard).push_back(std::move(part));
    for (const TileAccess& read : from.reads) made.reads.push_back(access(read));
    for (const IntExpr& index : from.indices) made.indices.push_back(code(index));
    std::map<const void*, int> known;
    add(from.value, made.values, known);
    return made;
  }

  /// Where the expression is among the values; a node that is shared is there once.
  int add(const ScalarExpr& expr, std::vector<Value>& values, std::map<const void*, int>& known) {
    if (const auto found = known.find(node_identity(expr)); found != known.end()) return found->second;
    Value made{expr.op(), expr.type(), expr.type(), 0, expr.ordinal()};
    if (expr.op() == ScalarOp::constant) made.number = semantics::constant_value(expr.type(), expr.number());
    if (expr.op() == ScalarOp::scalar) {
      made.op = ScalarOp::constant;
      made.number = semantics::constant_value(expr.type(), scalar(expr.name()));
    }
    const std::size_t count = expr.args().size();
    for (std::size_t k = 0; k < count; ++k) made.args.at(k) = add(expr.args()[k], values, known);
    if (count > 0) made.operand = expr.args()[0].type();
    if (count == 1 && expr.op() != ScalarOp::cast) {
      semantics::with_unary(expr.op(), made.operand,
                            [&](auto f) { made.unary = [](double a) -> double { return decltype(f){}(a); }; });
    } else if (count == 2) {
      semantics::with_binary(expr.op(), made.operand,
                             [&](auto f) { made.binary = [](double a, double b) -> double { return decltype(f){}(a, b); }; });
    }
    values.push_back(made);
    return known[node_identity(expr)] = static_cast<int>(values.size()) - 1;
  }

  double scalar(const std::string& name) const {
    if (const auto found = scalars_.find(name); found != scalars_.end()) return found->second;
    for (const ScalarParam& param : program_.scalars) {
      if (param.name == name) return param.default_value;
    }
    internal_error("tile program {}: scalar {} has no value", program_.name, name);
  }

  const TileProgram& program_;
  const std::map<std::string, double>& scalars_;
  VariableSlots& slots_;
};

class Interpreter {
 public:
  Interpreter(const TileProgram& program, const Sizes& sizes, const std::map<std::string, double>& scalars,
              std::map<std::string, std::vector<double>>& memory)
      : program_(program) {
    VariableSlots slots;
    root_ = Compiler(program, scalars, slots).node(*program.root);
    Sizes known = sizes;
    for (const auto& [name, size] : program.fixed_sizes) known[name] = size;
    for (const Buffer& buffer : program.buffers) {
      std::vector<IntCode>& extents = extents_.emplace_back();
      for (const IntExpr& extent : buffer.extents) extents.emplace_back(extent, slots);
    }
    for (const auto& [name, size] : known) slots.of(name);
    variables_.assign(slots.size(), kNoValue);
    for (const auto& [name, size] : known) variables_[slots.of(name)] = size;
    buffers_.resize(program.buffers.size());
    for (std::size_t k = 0; k < buffers_.size(); ++k) allocate(k, memory);
  }

  void run() { run(root_); }

 private:
  std::int64_t value(const IntCode& code) const { return code.evaluate(variables_.data()); }

  void allocate(std::size_t k, std::map<std::string, std::vector<double>>& memory) {
    const Buffer& buffer = program_.buffers[k];
    BufferData& data = buffers_[k];
    std::int64_t count = 1;
    for (const IntCode& extent : extents_[k]) {
      data.extents.push_back(value(extent));
      count *= data.extents.back();
    }
    if (buffer.memory == Memory::argument) {
      const auto given = memory.find(buffer.name);
      if (given == memory.end() || given->second.size() != static_cast<std::size_t>(count))
        user_error("argument {} must have {} elements", buffer.name, count);
      data.values = &given->second;
    } else {
      data.owned.assign(static_cast<std::size_t>(count), std::numeric_limits<double>::quiet_NaN());
      data.values = &data.owned;
    }
  }

  double& element(const ReachedElement& access) {
    if (access.first != nullptr) return access.first[access.stride * step_];
    BufferData& data = buffers_[access.buffer];
    std::int64_t linear = 0;
    for (std::size_t k = 0; k < access.index.size(); ++k) {
      const std::int64_t index = value(access.index[k]);
      if (index < 0 || index >= data.extents[k]) {
        internal_error("tile program {}: index {} of {} is {}, outside [0, {})", program_.name, k,
                       program_.buffers[access.buffer].name, index, data.extents[k]);
      }
      linear = linear * data.extents[k] + index;
    }
    return (*data.values)[linear];
  }

  /// Readies an access for `count` points along the innermost dim: linear and inside at both ends, it is inside between them.
  void follow(ReachedElement& access, int slot, std::int64_t count) {
    constexpr std::int64_t kWorthIt = 4;
    access.first = nullptr;
    if (count < kWorthIt) return;
    BufferData& data = buffers_[access.buffer];
    std::int64_t linear = 0, stride = 0;
    for (std::size_t k = 0; k < access.index.size(); ++k) {
      const auto line = access.index[k].along(slot, variables_.data());
      const std::int64_t extent = data.extents[k];
      const auto inside = [&](std::int64_t index) { return index >= 0 && index < extent; };
      std::int64_t last = 0;
      if (!line || !inside(line->now) || __builtin_mul_overflow(line->step, count - 1, &last) ||
          __builtin_add_overflow(line->now, last, &last) || !inside(last))
        return;
      linear = linear * extent + line->now;
      stride = stride * extent + line->step;
    }
    access.first = &(*data.values)[linear];
    access.stride = stride;
  }

  void run(Node& node) {
    switch (node.kind) {
      case TileNode::Kind::op:
        run_op(node.op);
        return;
      case TileNode::Kind::condition:
        if (value(node.condition) == 0) return;
        break;
      case TileNode::Kind::loop:
        run_loop(node);
        return;
      case TileNode::Kind::sequence:
        break;
    }
    for (Node& child : node.children) run(child);
  }

  void run_loop(Node& node) {
    const std::int64_t lower = value(node.lower), upper = value(node.upper);
    for (std::int64_t i = lower; i < upper; i += node.step) {
      variables_[node.slot] = i;
      for (Node& child : node.children) run(child);
    }
  }

  void run_op(Op& op) {
    const TileOp& meant = *op.meant;
    if (meant.initialize) {
      const double neutral = neutral_element(*meant.reduction, meant.value.type());
      for_each_point(op, 0, true, [&] { element(op.write) = neutral; });
    }
    for_each_point(op, 0, false, [&] { run_point(op); });
  }

  /// Visits the box in lexicographic order; with `kept_only`, reduced dims stay at their lower bound.
  template <class F>
  void for_each_point(Op& op, std::size_t k, bool kept_only, const F& visit) {
    if (k == op.dims.size()) {
      visit();
      return;
    }
    const Dim& dim = op.dims[k];
    const std::int64_t lower = value(dim.lower);
    const std::int64_t upper = kept_only && dim.reduced ? lower + 1 : value(dim.upper);
    if (lower >= upper) return;
    const bool innermost = k + 1 == op.dims.size();
    if (innermost && !start_line(op, lower, upper - lower, kept_only)) return;
    for (std::int64_t i = lower; i < upper; ++i) {
      variables_[dim.slot] = i;
      if (innermost) step_ = i - lower;
      for_each_point(op, k + 1, kept_only, visit);
    }
  }

  /// Before `count` points along the innermost dim, of which only the element written counts where `kept_only`; false: none does anything.
  bool start_line(Op& op, std::int64_t lower, std::int64_t count, bool kept_only) {
    const int slot = op.dims.back().slot;
    variables_[slot] = lower;
    if (!kept_only) {
      op.left_out = !holds(op.outer_guard);
      if (op.left_out && !op.meant->fill) return false;
      if (!op.left_out) {
        for (ReachedElement& read : op.reads) follow(read, slot, count);
      }
    }
    follow(op.write, slot, count);
    return true;
  }

  bool holds(const std::vector<IntCode>& conditions) const {
    return std::all_of(conditions.begin(), conditions.end(), [&](const IntCode& condition) { return value(condition) != 0; });
  }

  double evaluate(const Op& op, const Value& expr) {
    const auto below = [&](std::size_t k) { return evaluate(op, op.values[static_cast<std::size_t>(expr.args[k])]); };
    switch (expr.op) {
      case ScalarOp::constant:
        return expr.number;
      case ScalarOp::index:
        return static_cast<double>(value(op.indices[expr.ordinal]));
      case ScalarOp::read:
        return element(op.reads[expr.ordinal]);
      case ScalarOp::cast:
        return semantics::cast_value(expr.type, expr.operand, below(0));
      // Only the chosen side is evaluated: the other may read outside its tensor.
      case ScalarOp::select:
        return below(0) != 0 ? below(1) : below(2);
      case ScalarOp::logical_and:
        return below(0) != 0 && below(1) != 0 ? 1 : 0;
      case ScalarOp::logical_or:
        return below(0) != 0 || below(1) != 0 ? 1 : 0;
      default:
        return expr.unary ? expr.unary(below(0)) : expr.binary(below(0), below(1));
    }
  }

  void run_point(const Op& op) {
    const TileOp& meant = *op.meant;
    if (op.left_out || !holds(op.guard)) {
      if (meant.fill) element(op.write) = *meant.fill;
      return;
    }
    const double term = evaluate(op, op.values.back());
    double& target = element(op.write);
    const ElementType type = op.values.back().type;
    const double result = meant.reduction ? semantics::combine(*meant.reduction, type, target, term) : term;
    target = semantics::stored_value(program_.buffers[op.write.buffer].type, type, result);
  }

  const TileProgram& program_;
  Node root_;
  std::vector<std::vector<IntCode>> extents_;  ///< of each buffer
  std::vector<std::int64_t> variables_;
  std::vector<BufferData> buffers_;
  std::int64_t step_ = 0;  ///< along the innermost dim
};

}  // namespace

void interpret(const TileProgram& program, const Sizes& sizes, const std::map<std::string, double>& scalars,
               std::map<std::string, std::vector<double>>& memory) {
  Interpreter(program, sizes, scalars, memory).run();
}

}  // namespace nestor
