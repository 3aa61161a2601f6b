// Column tests: votes over a tile's columns are of a condition that all rows share, are read at the iteration that needs them, and the value that
// is computed without the test is the op's where the condition has the usual outcome.
#include "codegen/gpu/mma/proof/tensor_proof.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

class ColumnChecker {
 public:
  ColumnChecker(TensorProof& proof, const TensorOp& op) : proof_(proof), op_(op), test_(*op.test) {}

  void run() {
    check_op();
    if (test_.condition.type() != ElementType::boolean || !occurs(op_.op.value)) fail("tests what its value does not ask");
    test_.condition.visit([&](const ScalarExpr& node) { check_leaf(node); });
    if (!same(known(op_.op.value), test_.value)) fail("computes another value without its test");
  }

 private:
  void fail(const char* what) { proof_.fail("{} {}", op_.op.name, what); }

  /// A warp computes the op twice, so nothing that it reads may be changed or given back by the first time.
  void check_op() {
    const bool in_place = std::any_of(op_.op.reads.begin(), op_.op.reads.end(),
                                      [&](const TileAccess& read) { return read.buffer == op_.op.write.buffer; });
    const auto fragment = proof_.plan.fragments.find(op_.op.write.buffer);
    const bool tile = fragment != proof_.plan.fragments.end() && fragment->second.columns > 0;
    if (op_.kind != TensorOp::Kind::map || op_.column < 0 || in_place || !tile || !op_.read_rings.empty())
      fail("has a column test, and is no map of a tile that can be computed twice");
  }

  /// All lanes read the same of memory that nobody writes, whatever their rows.
  void check_leaf(const ScalarExpr& node) {
    if (node.op() == ScalarOp::index && follows_rows(op_.op.indices[static_cast<std::size_t>(node.ordinal())]))
      fail("tests an index of its rows once for all of them");
    if (node.op() != ScalarOp::read) return;
    const TileAccess& access = op_.op.reads[static_cast<std::size_t>(node.ordinal())];
    if (proof_.plan.buffer(access.buffer).role != TensorRole::input) fail("tests what is no input");
    for (const TensorOp& writer : proof_.plan.ops) {
      if (writer.op.write.buffer == access.buffer) fail("tests what the kernel writes");
    }
    if (std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) { return follows_rows(index); }))
      fail("tests elements of its rows once for all of them");
  }

  bool follows_rows(const IntExpr& index) const {
    for (int d = 0; d < static_cast<int>(op_.op.dims.size()); ++d) {
      if (d != op_.column && index.uses(op_.op.dims[static_cast<std::size_t>(d)].var) &&
          exact_extent(op_.op.dims[static_cast<std::size_t>(d)]) != 1)
        return true;
    }
    return false;
  }

  bool occurs(const ScalarExpr& value) const {
    return value.equals(test_.condition) ||
           std::any_of(value.args().begin(), value.args().end(), [&](const ScalarExpr& arg) { return occurs(arg); });
  }

  static std::optional<bool> truth(const ScalarExpr& value) {
    if (value.op() != ScalarOp::constant || value.type() != ElementType::boolean) return std::nullopt;
    return value.number() != 0;
  }
  static ScalarExpr truth_value(bool value) { return ScalarExpr::constant(value ? 1 : 0, ElementType::boolean); }

  /// The value where the condition has the usual outcome.
  ScalarExpr known(const ScalarExpr& value) const {
    if (value.equals(test_.condition)) return truth_value(test_.usual);
    if (value.args().empty()) return value;
    std::vector<ScalarExpr> args;
    for (const ScalarExpr& arg : value.args()) args.push_back(known(arg));
    const std::optional<bool> first = truth(args[0]);
    if (value.op() == ScalarOp::select && first) return args[*first ? 1 : 2];
    if (value.op() == ScalarOp::logical_not && first) return truth_value(!*first);
    const bool is_and = value.op() == ScalarOp::logical_and;
    if (is_and || value.op() == ScalarOp::logical_or) {
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
        if (const auto side = truth(args[k])) return *side == is_and ? args[1 - k] : args[k];
      }
    }
    return value.with_args(std::move(args));
  }

  /// Equal values, but for sums with 0, which may be left out.
  static bool same(const ScalarExpr& a, const ScalarExpr& b) {
    if (a.op() == ScalarOp::add && !a.equals(b)) {
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
        if (a.args()[k].is_constant(0) && same(a.args()[1 - k], b)) return true;
      }
    }
    if (a.op() != b.op() || a.args().empty()) return a.equals(b);
    if (a.args().size() != b.args().size() || a.type() != b.type()) return false;
    return std::equal(a.args().begin(), a.args().end(), b.args().begin(), same);
  }

  TensorProof& proof_;
  const TensorOp& op_;
  const ColumnTest& test_;
};

/// What an op finds of its test has been read at the same iteration, in the same straight stretch of events.
void check_reads(TensorProof& proof, const RoleBlock& block) {
  std::map<int, const RoleStep*> last;
  for (const RoleStep& step : block.steps) {
    if (step.event.kind == Event::Kind::read_test) {
      last[step.event.op] = &step;
      continue;
    }
    if (step.event.kind != Event::Kind::compute || !proof.op(step.event.op).test) continue;
    const auto found = last.find(step.event.op);
    const auto value = [](const RoleStep& of) { return of.value.defined() ? of.value.str() : std::string(); };
    if (found == last.end() || found->second->var != step.var || value(*found->second) != value(step))
      proof.fail("{} does not find the test of its iteration", proof.op(step.event.op).op.name);
  }
}

}  // namespace

void prove_column_tests(TensorProof& proof) {
  for (const TensorOp& op : proof.plan.ops) {
    if (op.test) ColumnChecker(proof, op).run();
  }
  for (const RoleBlock& block : proof.consumer) check_reads(proof, block);
}

}  // namespace nestor::nvptx
