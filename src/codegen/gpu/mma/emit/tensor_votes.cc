// Column tests as code: what they read, the votes of a warp, and maps in two forms.
#include "codegen/gpu/mma/emit/tensor_emitter.h"

#include "support/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

namespace nestor::nvptx {
namespace {

/// An element as it lies in memory, of which LLVM knows nothing: so it is loaded here, and not where it is needed.
llvm::Value* loaded_here(llvm::IRBuilder<>& b, PtxEmitter& ptx, llvm::Value* element) {
  llvm::Type* type = element->getType();
  const unsigned bits = type->getScalarSizeInBits();
  llvm::Value* word = b.CreateBitCast(element, b.getIntNTy(bits));
  if (bits == 64) return b.CreateBitCast(ptx.opaque_wide(word), type);
  word = ptx.opaque(b.CreateZExt(word, b.getInt32Ty()));
  return b.CreateBitCast(b.CreateTrunc(word, b.getIntNTy(bits)), type);
}

}  // namespace

/// Lane l reads for columns l, l + 32, ...; beyond the argument's end for the last column that there is.
void TensorEmitter::read_test(int k, bool masked) {
  const TensorOp& op = this->op(k);
  std::vector<std::map<int, Value*>> words;
  for (int column = 0; column < plan_->fragments.at(op.op.write.buffer).columns; column += kWarpThreads) {
    set_point(op, {});
    environment_[op.op.dims[static_cast<std::size_t>(op.column)].var] =
        b_.CreateNSWAdd(b_.CreateZExt(lane_, b_.getInt64Ty()), b_.getInt64(static_cast<std::uint64_t>(column)));
    std::map<int, Value*>& elements = words.emplace_back();
    op.test->condition.visit([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read || elements.contains(node.ordinal())) return;
      const TileAccess& access = op.op.reads[static_cast<std::size_t>(node.ordinal())];
      elements[node.ordinal()] =
          loaded_here(b_, ptx_, load_element(access, argument_address(access, masked || op.test->clamped)));
    });
  }
  test_elements_[k] = std::move(words);
}

/// Bit c % 32 of word c / 32: whether column c has the usual outcome.
TensorEmitter::Values TensorEmitter::usual_columns(int k) {
  const TensorOp& op = this->op(k);
  const auto found = test_elements_.find(k);
  if (found == test_elements_.end()) internal_error("tensor kernel: {} is tested before its test is read", op.op.name);
  Values votes;
  for (const std::map<int, Value*>& elements : found->second) {
    set_point(op, {});
    environment_[op.op.dims[static_cast<std::size_t>(op.column)].var] = b_.CreateNSWAdd(
        b_.CreateZExt(lane_, b_.getInt64Ty()), b_.getInt64(static_cast<std::uint64_t>(kWarpThreads) * votes.size()));
    ScalarLeaves leaves;
    leaves.read = [&](int read, Value*) {
      return from_element(b_, elements.at(read), plan_->buffer(op.op.reads[static_cast<std::size_t>(read)].buffer).type);
    };
    leaves.index = [&](int index) {
      return b_.CreateTrunc(integer(op.op.indices.at(static_cast<std::size_t>(index))), b_.getInt32Ty());
    };
    leaves.scalar = [&](const std::string& name, ElementType) { return arguments_.scalars.at(name); };
    Value* holds = emit_scalar(b_, math_, op.test->condition, leaves);
    if (!op.test->usual) holds = b_.CreateNot(holds);
    votes.push_back(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_ballot_sync, {}, {constant(-1), holds}));
  }
  return votes;
}

/// A map whose columns all have the usual outcome does without the test. Else it is computed once more, with the outcome of each column.
void TensorEmitter::tested_map(int k, bool masked) {
  const TensorOp& op = this->op(k);
  const Values votes = usual_columns(k);
  Value* all = votes.front();
  for (Value* vote : votes) all = b_.CreateAnd(all, vote);
  map(k, op.test->value, masked, true);
  Value* unusual = b_.CreateICmpNE(all, constant(-1));
  choose(unusual, [&] {
    column_votes_.clear();
    for (Value* vote : votes) column_votes_.push_back(b_.CreateLShr(vote, first_column_));
    const auto outcome = static_cast<int>(op.op.reads.size());  // a read of its own
    const ScalarExpr value = op.op.value.rewrite([&](const ScalarExpr& node) {
      return node.equals(op.test->condition) ? ScalarExpr::read(outcome, ElementType::boolean) : node;
    });
    map(k, value, masked, false);
  });
}

/// The outcome of the op's test in the column of a place.
llvm::Value* TensorEmitter::test_outcome(const TensorOp& op, const FragmentPlace& place) {
  const int column = 8 * place.pair + place.element;  // behind the thread's first
  Value* bit =
      b_.CreateAnd(column_votes_.at(static_cast<std::size_t>(column / kWarpThreads)), constant(1 << column % kWarpThreads));
  return op.test->usual ? b_.CreateICmpNE(bit, constant(0)) : b_.CreateICmpEQ(bit, constant(0));
}

}  // namespace nestor::nvptx
