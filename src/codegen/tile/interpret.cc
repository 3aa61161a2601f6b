// The meaning of a tile program, executed point by point in double.
#include "codegen/tile/tile_program.h"

#include "poly/nest/scalar_semantics.h"

#include <limits>
#include <numeric>

namespace nestor {
namespace {

struct BufferData {
  std::vector<std::int64_t> extents;
  std::vector<double>* values = nullptr;
  std::vector<double> owned;
};

class Interpreter {
 public:
  Interpreter(const TileProgram& program, const Sizes& sizes, const std::map<std::string, double>& scalars,
              std::map<std::string, std::vector<double>>& memory)
      : program_(program), variables_(sizes.begin(), sizes.end()), scalars_(scalars) {
    for (const auto& [name, value] : program.fixed_sizes) variables_[name] = value;
    buffers_.resize(program.buffers.size());
    for (std::size_t k = 0; k < buffers_.size(); ++k) allocate(program.buffers[k], buffers_[k], memory);
  }

  void run() { run(program_.root); }

 private:
  void allocate(const Buffer& buffer, BufferData& data, std::map<std::string, std::vector<double>>& memory) {
    std::int64_t count = 1;
    for (const IntExpr& extent : buffer.extents) {
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

  std::int64_t value(const IntExpr& expr) const {
    return expr.evaluate([&](const std::string& name) {
      const auto found = variables_.find(name);
      if (found == variables_.end()) internal_error("tile program {}: variable {} has no value", program_.name, name);
      return found->second;
    });
  }

  double& element(const TileAccess& access) {
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

  void run(const TileTree& node) {
    switch (node->kind) {
      case TileNode::Kind::op:
        run_op(node->op);
        return;
      case TileNode::Kind::condition:
        if (value(node->condition) == 0) return;
        break;
      case TileNode::Kind::loop:
        run_loop(*node);
        return;
      case TileNode::Kind::sequence:
        break;
    }
    for (const TileTree& child : node->children) run(child);
  }

  void run_loop(const TileNode& node) {
    const std::int64_t lower = value(node.lower), upper = value(node.upper);
    for (std::int64_t i = lower; i < upper; i += node.step) {
      variables_[node.var] = i;
      for (const TileTree& child : node.children) run(child);
    }
  }

  void run_op(const TileOp& op) {
    if (op.initialize) for_each_point(op, 0, true, [&] { element(op.write) = neutral_element(*op.reduction, op.value.type()); });
    for_each_point(op, 0, false, [&] { run_point(op); });
  }

  /// Visits the box in lexicographic order; with `kept_only`, reduced dims stay at their lower bound.
  template <class F>
  void for_each_point(const TileOp& op, std::size_t k, bool kept_only, const F& visit) {
    if (k == op.dims.size()) {
      visit();
      return;
    }
    const OpDim& dim = op.dims[k];
    const std::int64_t lower = value(dim.lower);
    const std::int64_t upper = kept_only && dim.reduced ? lower + 1 : value(dim.upper);
    for (std::int64_t i = lower; i < upper; ++i) {
      variables_[dim.var] = i;
      for_each_point(op, k + 1, kept_only, visit);
    }
  }

  void run_point(const TileOp& op) {
    if (op.guard.defined() && value(op.guard) == 0) {
      if (op.fill) element(op.write) = *op.fill;
      return;
    }
    const double term = evaluate(
        op.value, [&](int k) { return element(op.reads[k]); }, [&](int k) { return value(op.indices[k]); },
        [&](const std::string& name) { return scalar(name); });
    double& target = element(op.write);
    const ElementType type = op.value.type();
    const double result = op.reduction ? semantics::combine(*op.reduction, type, target, term) : term;
    target = semantics::stored_value(program_.buffers[op.write.buffer].type, type, result);
  }

  double scalar(const std::string& name) const {
    if (const auto found = scalars_.find(name); found != scalars_.end()) return found->second;
    for (const ScalarParam& param : program_.scalars) {
      if (param.name == name) return param.default_value;
    }
    internal_error("tile program {}: scalar {} has no value", program_.name, name);
  }

  const TileProgram& program_;
  std::map<std::string, std::int64_t> variables_;
  const std::map<std::string, double>& scalars_;
  std::vector<BufferData> buffers_;
};

}  // namespace

void interpret(const TileProgram& program, const Sizes& sizes, const std::map<std::string, double>& scalars,
               std::map<std::string, std::vector<double>>& memory) {
  Interpreter(program, sizes, scalars, memory).run();
}

}  // namespace nestor
