// One op for each product.
#include "codegen/gpu/kernel/part_sums.h"

#include "codegen/gpu/target/tensor_block.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "codegen/tile/build/op_builder.h"
#include "codegen/tile/contraction.h"
#include "support/error.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace nestor::nvptx {
namespace {

/// The addends of a value, in order.
std::vector<ScalarExpr> addends_of(const ScalarExpr& value) {
  if (value.op() != ScalarOp::add) return {value};
  std::vector<ScalarExpr> found = addends_of(value.args()[0]);
  for (ScalarExpr& addend : addends_of(value.args()[1])) found.push_back(std::move(addend));
  return found;
}

/// The op with one addend for its value, and what that reads.
TileOp with_addend(const TileOp& op, const ScalarExpr& addend) {
  TileOp result = op;
  result.reads.clear();
  result.value = addend.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read) return node;
    result.reads.push_back(op.reads[static_cast<std::size_t>(node.ordinal())]);
    return ScalarExpr::read(static_cast<int>(result.reads.size()) - 1, node.type());
  });
  classify(result);
  return result;
}

bool sums_several(const TileOp& op) {
  return op.kind == OpKind::reduce && op.value.op() == ScalarOp::add && !contractions_of(op.value, op.reduction).empty();
}

/// `before` += what stands at the same place of `apart`.
TileOp addition(const TileOp& sum, int apart) {
  TileOp op;
  op.kind = OpKind::map;
  op.name = sum.name + "_add";
  for (const OpDim& dim : sum.dims) {
    if (!dim.reduced) op.dims.push_back(dim);
  }
  const bool of_terms = std::any_of(sum.dims.begin(), sum.dims.end(), [&](const OpDim& dim) {
    return dim.reduced && sum.guard.defined() && sum.guard.uses(dim.var);
  });
  if (!of_terms) op.guard = sum.guard;
  op.write = sum.write;
  op.reads = {sum.write, {apart, sum.write.index}};
  op.value = ScalarExpr::make(ScalarOp::add, {ScalarExpr::read(0, ElementType::f32), ScalarExpr::read(1, ElementType::f32)});
  return op;
}

}  // namespace

bool sums_products(const TileOp& op) { return op.kind == OpKind::contract || sums_several(op); }

TileTree with_single_products(const TileTree& tree, TileProgram& program) {
  if (tree->kind != TileNode::Kind::op) {
    TileNode node = *tree;
    for (TileTree& child : node.children) child = with_single_products(child, program);
    return std::make_shared<const TileNode>(std::move(node));
  }
  if (!sums_several(tree->op)) return tree;
  TileOp sum = tree->op;
  // Of several dims of terms (taps) one is a tile's: each iteration of the others adds up its own.
  const auto is_term = [](const OpDim& dim) { return dim.reduced; };
  if (std::count_if(sum.dims.begin(), sum.dims.end(), is_term) > 1 && !sum.initialize) {
    const auto outermost = std::find_if(sum.dims.begin(), sum.dims.end(), is_term) - sum.dims.begin();
    return with_single_products(with_loop_over(sum, static_cast<int>(outermost)), program);
  }
  const Buffer& total = program.buffers[static_cast<std::size_t>(sum.write.buffer)];
  const bool apart = !sum.initialize && total.memory == Memory::scratch;
  const int buffer = apart ? static_cast<int>(program.buffers.size()) : sum.write.buffer;
  TileOp add;
  if (apart) {
    for (const OpDim& dim : sum.dims) {
      if (dim.reduced && extent_bound(dim).value_or(kMostPartTerms + 1) > kMostPartTerms)
        user_error(
            "Kernel '{}' cannot use tensor cores: {} adds up products of parts, {} terms at once at most: choose smaller tiles "
            "of {}",
            program.name, sum.name, kMostPartTerms, dim.var);
    }
    Buffer own = total;
    own.name += "_apart";
    add = addition(sum, buffer);
    program.buffers.push_back(std::move(own));
    sum.write.buffer = buffer;
    sum.initialize = true;
  }
  std::vector<TileTree> ops;
  for (const ScalarExpr& addend : addends_of(sum.value)) {
    ops.push_back(make_op(with_addend(sum, addend)));
    sum.initialize = false;
  }
  if (apart) ops.push_back(make_op(std::move(add)));
  return make_sequence(std::move(ops));
}

}  // namespace nestor::nvptx
