// Addends, and what adds them up.
#include "codegen/gpu/simt/proof/launch_parts.h"

#include "codegen/gpu/simt/proof/block_paths.h"

#include <algorithm>
#include <utility>

namespace nestor::nvptx {
namespace {

void split_sum(const ScalarExpr& value, std::vector<ScalarExpr>& addends) {
  if (value.op() != ScalarOp::add) return addends.push_back(value);
  for (const ScalarExpr& arg : value.args()) split_sum(arg, addends);
}

}  // namespace

std::vector<TileOp> parts_of(const TileOp& want, const TileOp& have) {
  std::vector<ScalarExpr> addends;
  split_sum(want.value, addends);
  const bool sums = want.kind == OpKind::reduce && want.reduction == ReductionOp::add && !want.fill;
  if (!sums || addends.size() < 2 || have.value.equals(want.value)) return {want};
  const bool apart = have.initialize && !want.initialize;
  std::vector<TileOp> parts;
  for (const ScalarExpr& addend : addends) {
    TileOp part = want;
    part.reads.clear();
    part.value = addend.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read) return node;
      part.reads.push_back(want.reads[static_cast<std::size_t>(node.ordinal())]);
      return ScalarExpr::read(static_cast<int>(part.reads.size()) - 1, node.type());
    });
    part.initialize = parts.empty() && (apart || want.initialize);
    if (apart) part.write = have.write;
    parts.push_back(std::move(part));
  }
  return parts;
}

bool adds_parts(const TileOp& first, const TileOp& add) {
  std::vector<const OpDim*> kept;
  bool of_terms = false;
  for (const OpDim& dim : first.dims) {
    if (!dim.reduced) kept.push_back(&dim);
    of_terms = of_terms || (dim.reduced && first.guard.defined() && first.guard.uses(dim.var));
  }
  const auto same_dim = [](const OpDim* a, const OpDim& b) {
    return a->var == b.var && same_expr(a->lower, b.lower) && same_expr(a->upper, b.upper);
  };
  const ScalarExpr value =
      ScalarExpr::make(ScalarOp::add, {ScalarExpr::read(0, ElementType::f32), ScalarExpr::read(1, ElementType::f32)});
  return add.kind == OpKind::map && !add.reduction && !add.fill && add.value.equals(value) && add.reads.size() == 2 &&
         std::equal(kept.begin(), kept.end(), add.dims.begin(), add.dims.end(), same_dim) &&
         (of_terms ? !add.guard.defined() : same_expr(add.guard, first.guard)) && same_access(add.reads[0], add.write) &&
         same_access(add.reads[1], first.write) &&
         std::equal(add.write.index.begin(), add.write.index.end(), first.write.index.begin(), first.write.index.end(),
                    same_expr);
}

}  // namespace nestor::nvptx
