// Runs tile programs as unkindly as their meaning allows: parallel iterations backwards, every value of an op before its first store,
// scratch memory poisoned where it is private. What a back end may assume of a program must survive this.
#pragma once

#include "codegen/tile/tile_program.h"
#include "support/error.h"

#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace nestor::testing {

using Variables = std::map<std::string, std::int64_t>;

class TileAdversary {
 public:
  /// Sees every point at which an op computes its value, with all loop variables.
  using Observer = std::function<void(const TileOp&, const Variables&)>;

  TileAdversary(const TileProgram& program, const Sizes& sizes, std::map<std::string, std::vector<double>>& memory,
                Observer observer = {})
      : program_(program), observer_(std::move(observer)), variables_(sizes.begin(), sizes.end()) {
    for (const auto& [name, value] : program.fixed_sizes) variables_[name] = value;
    for (const Buffer& buffer : program.buffers) {
      Data data;
      std::int64_t count = 1;
      for (const IntExpr& extent : buffer.extents) {
        data.extents.push_back(value(extent));
        count *= data.extents.back();
      }
      data.owned.assign(buffer.memory == Memory::argument ? 0 : static_cast<std::size_t>(count), kPoison);
      data.values = buffer.memory == Memory::argument ? &memory.at(buffer.name) : nullptr;
      buffers_.push_back(std::move(data));
    }
  }

  void run() { run(*program_.root); }

 private:
  static constexpr double kPoison = std::numeric_limits<double>::quiet_NaN();

  struct Data {
    std::vector<std::int64_t> extents;
    std::vector<double> owned;
    std::vector<double>* values = nullptr;
    std::vector<double>& all() { return values != nullptr ? *values : owned; }
  };

  std::int64_t value(const IntExpr& expr) const {
    return expr.evaluate([&](const std::string& name) {
      const auto found = variables_.find(name);
      if (found == variables_.end()) internal_error("variable {} has no value", name);
      return found->second;
    });
  }

  double& element(const TileAccess& access) {
    Data& data = buffers_.at(static_cast<std::size_t>(access.buffer));
    std::int64_t linear = 0;
    for (std::size_t k = 0; k < access.index.size(); ++k) {
      const std::int64_t index = value(access.index[k]);
      if (index < 0 || index >= data.extents[k])
        internal_error("index {} of {} is {}, outside [0, {})", k, program_.buffers[static_cast<std::size_t>(access.buffer)].name,
                       index, data.extents[k]);
      linear = linear * data.extents[k] + index;
    }
    return data.all().at(static_cast<std::size_t>(linear));
  }

  static void collect(const TileNode& node, std::set<int>& buffers) {
    if (node.kind == TileNode::Kind::op) {
      buffers.insert(node.op.write.buffer);
      for (const TileAccess& read : node.op.reads) buffers.insert(read.buffer);
    }
    for (const TileTree& child : node.children) collect(*child, buffers);
  }

  static int uses(const TileNode& node, int buffer) {
    int count = 0;
    if (node.kind == TileNode::Kind::op) {
      count += node.op.write.buffer == buffer ? 1 : 0;
      for (const TileAccess& read : node.op.reads) count += read.buffer == buffer ? 1 : 0;
    }
    for (const TileTree& child : node.children) count += uses(*child, buffer);
    return count;
  }

  /// Scratch that nothing outside of the loop touches is private to its iterations.
  void poison_private(const TileNode& loop) {
    std::set<int> inside;
    collect(loop, inside);
    for (const int k : inside) {
      if (program_.buffers[static_cast<std::size_t>(k)].memory != Memory::scratch) continue;
      if (uses(loop, k) != uses(*program_.root, k)) continue;
      std::vector<double>& values = buffers_[static_cast<std::size_t>(k)].owned;
      std::fill(values.begin(), values.end(), kPoison);
    }
  }

  void run(const TileNode& node) {
    if (node.kind == TileNode::Kind::op) return run_op(node.op);
    if (node.kind == TileNode::Kind::condition && value(node.condition) == 0) return;
    if (node.kind == TileNode::Kind::loop) return run_loop(node);
    for (const TileTree& child : node.children) run(*child);
  }

  void run_loop(const TileNode& node) {
    const bool tasks = node.loop_kind == LoopKind::parallel || node.loop_kind == LoopKind::gpu_block;
    const std::int64_t lower = value(node.lower), upper = value(node.upper);
    for (std::int64_t k = lower; k < upper; k += node.step) {
      variables_[node.var] = tasks ? lower + (upper - 1 - k) : k;
      if (tasks) poison_private(node);
      for (const TileTree& child : node.children) run(*child);
    }
    variables_.erase(node.var);
  }

  /// A store that waits for all values of its op.
  struct Pending {
    double* target;
    double result;
  };

  void run_op(const TileOp& op) {
    if (op.kind == OpKind::points) return run_points(op, 0);
    pending_.clear();
    run_kept(op, 0);
    for (const Pending& store : pending_) *store.target = store.result;
  }

  void each_value(const OpDim& dim, bool backwards, const std::function<void()>& body) {
    const std::int64_t lower = value(dim.lower), upper = value(dim.upper);
    for (std::int64_t k = lower; k < upper; ++k) {
      variables_[dim.var] = backwards ? lower + (upper - 1 - k) : k;
      body();
    }
    variables_.erase(dim.var);
  }

  /// Kept dims outside, each with its own accumulator; nothing is stored before all is computed.
  void run_kept(const TileOp& op, std::size_t k) {
    if (k < op.dims.size()) {
      if (op.dims[k].reduced) return run_kept(op, k + 1);
      return each_value(op.dims[k], true, [&] { run_kept(op, k + 1); });
    }
    if (!op.reduction) return run_plain(op);
    bool any = false;
    double sum = neutral_element(*op.reduction, op.value.type());
    run_reduced(op, 0, [&] {
      if (op.guard.defined() && value(op.guard) == 0) return;
      any = true;
      sum = combine(*op.reduction, sum, term(op));
    });
    if (!any && !op.initialize) return;
    double& target = element(op.write);
    pending_.push_back({&target, op.initialize ? sum : combine(*op.reduction, target, sum)});
  }

  void run_reduced(const TileOp& op, std::size_t k, const std::function<void()>& body) {
    if (k == op.dims.size()) return body();
    if (!op.dims[k].reduced) return run_reduced(op, k + 1, body);
    each_value(op.dims[k], true, [&] { run_reduced(op, k + 1, body); });
  }

  void run_plain(const TileOp& op) {
    if (op.guard.defined() && value(op.guard) == 0) {
      if (op.fill) pending_.push_back({&element(op.write), *op.fill});
      return;
    }
    const double result = term(op);
    pending_.push_back({&element(op.write), result});
  }

  double term(const TileOp& op) {
    if (observer_) observer_(op, variables_);
    return evaluate(
        op.value, [&](int k) { return element(op.reads[static_cast<std::size_t>(k)]); },
        [&](int k) { return value(op.indices[static_cast<std::size_t>(k)]); },
        [&](const std::string& name) { return scalar(name); });
  }

  double scalar(const std::string& name) const {
    for (const ScalarParam& param : program_.scalars) {
      if (param.name == name) return param.default_value;
    }
    internal_error("scalar {} has no value", name);
  }

  /// In order but for parallel dims; values of an innermost parallel dim are lanes, which load before they store.
  void run_points(const TileOp& op, std::size_t k) {
    if (k == op.dims.size()) {
      pending_.clear();
      point(op);
      return flush();
    }
    const OpDim& dim = op.dims[k];
    const bool parallel = dim.parallel && !dim.reduced;
    if (k + 1 < op.dims.size() || !parallel) return each_value(dim, parallel, [&] { run_points(op, k + 1); });
    pending_.clear();
    each_value(dim, true, [&] { point(op); });
    flush();
  }

  void point(const TileOp& op) {
    if (!op.reduction) return run_plain(op);
    if (op.guard.defined() && value(op.guard) == 0) return;
    const double next = term(op);
    double& target = element(op.write);
    pending_.push_back({&target, combine(*op.reduction, target, next)});
  }

  void flush() {
    for (const Pending& store : pending_) *store.target = store.result;
    pending_.clear();
  }

  const TileProgram& program_;
  Observer observer_;
  Variables variables_;
  std::vector<Data> buffers_;
  std::vector<Pending> pending_;
};

}  // namespace nestor::testing
