// Abstract execution of one iteration: which values are known, and which tiles stay as they are.
#include "codegen/gpu/mma/values/hidden_iterations.h"

#include "codegen/gpu/mma/values/hidden_values.h"
#include "codegen/tile/analysis/affine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace nestor::nvptx {
namespace {

bool reads_buffer(const TileOp& op, int buffer) {
  return std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
}

class Iteration {
 public:
  Iteration(const TileProgram& program, const std::string& var, const std::vector<TileOp>& ops, std::size_t begin,
            std::size_t end)
      : program_(program), var_(var), ops_(ops), begin_(begin), end_(end) {}

  HiddenIteration run() {
    HiddenIteration result;
    Possible number = Possible::anything();
    number.nan = false;
    extremum_ = number;
    const std::map<std::size_t, Possible> hidden = pass(false);
    result.why = why_;
    result.finite = finite_;
    if (!result.why.empty()) return result;
    extremum_ = Possible::anything();
    const std::map<std::size_t, Possible> with_nan = pass(false);
    extremum_ = Possible::exactly(std::nan(""));
    const std::map<std::size_t, Possible> seen = pass(true);
    for (const auto& [k, term] : hidden) {
      const bool always = with_nan.at(k).is(neutral(ops_[k]));
      if (!always && !seen.at(k).only_nan())
        result.why = fmt::format("{} may miss a NaN of an extremum that it follows", ops_[k].name);
    }
    return result;
  }

 private:
  struct State {
    Possible value = Possible::anything();
    bool written = false;
    int copy_of = -1;
  };

  static double neutral(const TileOp& op) { return neutral_element(*op.reduction, op.value.type()); }
  const Buffer& buffer(int k) const { return program_.buffers[static_cast<std::size_t>(k)]; }
  static bool is_extremum(const TileOp& op) { return op.reduction == ReductionOp::max || op.reduction == ReductionOp::min; }

  void refuse(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }

  /// Terms of the reductions that go on from iteration to iteration, by op. `holds`: where block tests hold, else where they fail.
  std::map<std::size_t, Possible> pass(bool holds) {
    states_.clear();
    extrema_.clear();
    why_.clear();
    finite_.clear();
    std::map<std::size_t, Possible> terms;
    for (std::size_t k = begin_; k < end_; ++k) {
      const TileOp& op = ops_[k];
      if (buffer(op.write.buffer).memory != Memory::scratch) {
        refuse(fmt::format("{} stores to memory", op.name));
      } else if (op.reduction) {
        reduce(k, op, holds, terms);
      } else {
        write(op, holds);
      }
    }
    return terms;
  }

  bool is_private(int buffer) const {
    const std::vector<std::string>& scope = this->buffer(buffer).scope;
    return std::find(scope.begin(), scope.end(), var_) != scope.end();
  }

  void reduce(std::size_t k, const TileOp& op, bool holds, std::map<std::size_t, Possible>& terms) {
    const int result = op.write.buffer;
    const Possible term = possible_term(op, value_of(op, holds));
    const bool none = term.is(neutral(op));
    if (op.initialize || is_private(result)) {
      State& state = states_[result];
      state = {none && (op.initialize || (state.written && state.value.is(neutral(op)))) ? term : Possible::anything(), true};
      if (!op.initialize || is_private(result)) return;
      return refuse(fmt::format("{} starts anew", op.name));
    }
    terms[k] = term;
    if (!none) refuse(fmt::format("{} has terms that change it", op.name));
    if (is_extremum(op) && starts_from_number(result)) extrema_.insert(result);
  }

  /// Is it no NaN before the loop?
  bool starts_from_number(int result) const {
    bool started = false;
    for (std::size_t k = 0; k < begin_; ++k) {
      if (ops_[k].write.buffer != result) continue;
      if (ops_[k].value.op() != ScalarOp::constant || std::isnan(ops_[k].value.number())) return false;
      started = true;
    }
    return started;
  }

  /// What reductions multiply by 0 is 0 where it is finite.
  Possible possible_term(const TileOp& op, const ScalarExpr& value) {
    if (value.op() == ScalarOp::mul) {
      for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
        const ScalarExpr& other = value.args()[1 - side];
        if (!possible(op, value.args()[side]).is(0)) continue;
        bool memory = true;
        other.visit([&](const ScalarExpr& node) {
          if (node.op() == ScalarOp::read) memory = memory && buffer(buffer_of(op, node)).memory != Memory::scratch;
        });
        if (!memory) continue;
        other.visit([&](const ScalarExpr& node) {
          if (node.op() == ScalarOp::read) finite_.insert(buffer_of(op, node));
        });
        return Possible::exactly(0);
      }
    }
    return possible(op, value);
  }

  static int buffer_of(const TileOp& op, const ScalarExpr& read) {
    return op.reads[static_cast<std::size_t>(read.ordinal())].buffer;
  }

  Possible possible(const TileOp& op, const ScalarExpr& value) const {
    return possible_values(value, program_.scalars,
                           [&](int read) { return state_of(op.reads[static_cast<std::size_t>(read)].buffer); });
  }

  Possible state_of(int buffer) const {
    const auto found = states_.find(buffer);
    if (found != states_.end() && found->second.written) return found->second.value;
    return extrema_.contains(buffer) ? extremum_ : Possible::anything();
  }

  void write(const TileOp& op, bool holds) {
    const ScalarExpr value = value_of(op, holds);
    const int result = op.write.buffer;
    if (!holds && keeps(op, value)) return;
    Possible found = possible(op, value);
    // An extremum that is NaN is so because of a point.
    if (op.fill && !holds) found = found.either(Possible::exactly(*op.fill));
    State& state = states_[result];
    int copied = -1;
    if (value.op() == ScalarOp::read && !op.guard.defined()) {
      const TileAccess& read = op.reads[static_cast<std::size_t>(value.ordinal())];
      const auto known = states_.find(read.buffer);
      if (same_element(read, op.write) && (known == states_.end() || !known->second.written)) copied = read.buffer;
    }
    state = {state.written ? state.value.either(found) : found, true, state.written ? -1 : copied};
    if (!is_private(result) && copied < 0) refuse(fmt::format("{} changes {}", op.name, buffer(result).name));
    if (!is_private(result) && copied >= 0 && is_read_outside(result))
      refuse(fmt::format("{} is read behind the loop", buffer(result).name));
  }

  bool is_read_outside(int buffer) const {
    for (std::size_t k = 0; k < ops_.size(); ++k) {
      if ((k < begin_ || k >= end_) && reads_buffer(ops_[k], buffer)) return true;
    }
    // Or before it is written.
    for (std::size_t k = begin_; k < end_ && ops_[k].write.buffer != buffer; ++k) {
      if (reads_buffer(ops_[k], buffer)) return true;
    }
    return false;
  }

  /// Is the value what the element holds, as itself, as a copy of it, or as a choice between such?
  bool keeps(const TileOp& op, const ScalarExpr& value) const {
    if (value.op() == ScalarOp::select) return keeps(op, value.args()[1]) && keeps(op, value.args()[2]);
    if (value.op() != ScalarOp::read) return false;
    const TileAccess& read = op.reads[static_cast<std::size_t>(value.ordinal())];
    if (!same_element(read, op.write)) return false;
    const auto copy = states_.find(read.buffer);
    return read.buffer == op.write.buffer ||
           (copy != states_.end() && copy->second.copy_of == op.write.buffer && !states_.contains(op.write.buffer));
  }

  /// With block tests decided, and equal what has been copied of a value that has stayed.
  ScalarExpr value_of(const TileOp& op, bool holds) const {
    const ScalarExpr value = value_by_blocks(program_, op, holds);
    if (holds) return value;
    return value.rewrite([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::eq && node.args()[0].op() == ScalarOp::read && node.args()[1].op() == ScalarOp::read &&
          is_copy(op, node.args()[0], node.args()[1]))
        return ScalarExpr::constant(1, ElementType::boolean);
      if (node.op() != ScalarOp::mul) return without_constants(node);
      for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
        if (node.args()[side].is_constant(1)) return ScalarExpr(node.args()[1 - side]);
      }
      return node;
    });
  }

  bool is_copy(const TileOp& op, const ScalarExpr& a, const ScalarExpr& b) const {
    const TileAccess &first = op.reads[static_cast<std::size_t>(a.ordinal())],
                     &second = op.reads[static_cast<std::size_t>(b.ordinal())];
    const auto copies = [&](const TileAccess& copy, const TileAccess& of) {
      const auto found = states_.find(copy.buffer);
      return found != states_.end() && found->second.copy_of == of.buffer && !states_.contains(of.buffer);
    };
    return same_element(first, second) && (copies(first, second) || copies(second, first));
  }

  const TileProgram& program_;
  const std::string& var_;
  const std::vector<TileOp>& ops_;
  const std::size_t begin_, end_;
  Possible extremum_;
  std::map<int, State> states_;
  std::set<int> extrema_, finite_;
  std::string why_;
};

}  // namespace

bool same_element(const TileAccess& a, const TileAccess& b) {
  return a.index.size() == b.index.size() &&
         std::equal(a.index.begin(), a.index.end(), b.index.begin(),
                    [](const IntExpr& x, const IntExpr& y) { return affine_of(x) == affine_of(y); });
}

std::optional<BlockTest> block_test(const TileProgram& program, const TileOp& op, const ScalarExpr& node) {
  if (node.op() != ScalarOp::eq) return std::nullopt;
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    const ScalarExpr &element = node.args()[side], &index = node.args()[1 - side];
    if (element.op() != ScalarOp::read || index.op() != ScalarOp::index) continue;
    const TileAccess& read = op.reads[static_cast<std::size_t>(element.ordinal())];
    const IntExpr& block = op.indices[static_cast<std::size_t>(index.ordinal())];
    if (!program.buffers[static_cast<std::size_t>(read.buffer)].next_blocks || read.index.empty()) continue;
    if (affine_of(read.index.back()) == affine_of(block)) return BlockTest{element.ordinal(), block};
  }
  return std::nullopt;
}

ScalarExpr without_constants(const ScalarExpr& node) {
  const auto& args = node.args();
  const auto keep = [&](std::size_t constant, bool value) { return args[constant].is_constant(value ? 1 : 0); };
  switch (node.op()) {
    case ScalarOp::select:
      return keep(0, true) ? args[1] : keep(0, false) ? args[2] : node;
    case ScalarOp::add:
      return keep(1, false) ? args[0] : keep(0, false) ? args[1] : node;
    case ScalarOp::logical_and:
      return keep(0, true) || keep(1, false) ? args[1] : keep(1, true) || keep(0, false) ? args[0] : node;
    case ScalarOp::logical_or:
      return keep(0, false) || keep(1, true) ? args[1] : keep(1, false) || keep(0, true) ? args[0] : node;
    case ScalarOp::logical_not:
      return args[0].op() == ScalarOp::constant ? ScalarExpr::constant(keep(0, false) ? 1 : 0, ElementType::boolean) : node;
    default:
      return node;
  }
}

ScalarExpr value_by_blocks(const TileProgram& program, const TileOp& op, bool holds) {
  return op.value.rewrite([&](const ScalarExpr& node) {
    return block_test(program, op, node) ? ScalarExpr::constant(holds ? 1 : 0, ElementType::boolean) : without_constants(node);
  });
}

HiddenIteration hidden_iteration(const TileProgram& program, const std::string& var, const std::vector<TileOp>& ops,
                                 std::size_t begin, std::size_t end) {
  return Iteration(program, var, ops, begin, end).run();
}

}  // namespace nestor::nvptx
