// What the parts of a proof know of a plan: where ops stand, their variables, bounds of distances.
#include "codegen/gpu/simt/proof/block_proof.h"

#include "support/error.h"

namespace nestor::nvptx {
namespace {

void collect_sites(const BlockNode& node, std::vector<const BlockNode*>& around, std::vector<OpSite>& sites) {
  if (node.kind == TileNode::Kind::op) {
    sites.push_back({node.op, around});
    return;
  }
  const bool binds = node.kind != TileNode::Kind::sequence;
  if (binds) around.push_back(&node);
  for (const BlockNode& child : node.children) collect_sites(child, around, sites);
  if (binds) around.pop_back();
}

}  // namespace

bool is_name(const BlockNode& node) { return node.kind == TileNode::Kind::loop && node.once; }
bool is_loop(const BlockNode& node) { return node.kind == TileNode::Kind::loop && !node.once; }

bool has_one_value(const OpDim& dim) { return affine_of(dim.upper) - affine_of(dim.lower) == Affine{{}, 1}; }

std::optional<std::int64_t> distance_bound(const IntExpr& lower, const IntExpr& upper) {
  const auto either = [](std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
    if (!a || !b) return a ? a : b;
    return std::optional(std::min(*a, *b));
  };
  if (upper.op() == IntOp::min) return either(distance_bound(lower, upper.args()[0]), distance_bound(lower, upper.args()[1]));
  if (upper.op() == IntOp::max) {
    const auto a = distance_bound(lower, upper.args()[0]), b = distance_bound(lower, upper.args()[1]);
    return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
  }
  if (lower.op() == IntOp::max) return either(distance_bound(lower.args()[0], upper), distance_bound(lower.args()[1], upper));
  const Affine distance = affine_of(upper) - affine_of(lower);
  if (distance.is_constant()) return distance.constant;
  if (upper.op() == IntOp::sub) return distance_bound(lower + upper.args()[1], upper.args()[0]);
  if (upper.op() != IntOp::add) return std::nullopt;
  return either(distance_bound(lower - upper.args()[1], upper.args()[0]),
                distance_bound(lower - upper.args()[0], upper.args()[1]));
}

BlockProof::BlockProof(const BlockPlan& of) : plan(of) {
  std::vector<const BlockNode*> around;
  collect_sites(plan.root, around, sites);
}

const OpSite& BlockProof::site(int op) const {
  for (const OpSite& site : sites) {
    if (site.op == op) return site;
  }
  internal_error("a block plan has no op {}", op);
}

bool BlockProof::is_grid_variable(const std::string& name) const {
  return std::any_of(plan.kernel->grid.begin(), plan.kernel->grid.end(), [&](const GridLoop& loop) { return loop.var == name; });
}

std::vector<Axis> BlockProof::axes(const OpSite& site) const {
  std::vector<Axis> result;
  const auto add_grid = [&](const GridLoop& loop, const BlockNode* node) {
    result.push_back({Axis::Kind::grid, loop.var, loop.lower, loop.lower + IntExpr(loop.step) * loop.count, loop.step, node, -1});
  };
  if (!persistent()) {
    for (const GridLoop& loop : plan.kernel->grid) add_grid(loop, nullptr);
  }
  for (const BlockNode* node : site.around) {
    if (node->kind != TileNode::Kind::loop) continue;
    if (persistent() && (node->var == kTrip || node->var == kWorkTile)) continue;
    if (persistent() && is_name(*node) && is_grid_variable(node->var)) {
      for (const GridLoop& loop : plan.kernel->grid) {
        if (loop.var == node->var) add_grid(loop, node);
      }
      continue;
    }
    const auto kind = is_name(*node) ? Axis::Kind::name : Axis::Kind::loop;
    result.push_back({kind, node->var, node->lower, node->upper, node->step, node, -1});
  }
  const TileOp& tile = op(site.op).op;
  for (int d = 0; d < static_cast<int>(tile.dims.size()); ++d) {
    const OpDim& dim = tile.dims[d];
    result.push_back({Axis::Kind::dim, dim.var, dim.lower, dim.upper, 1, nullptr, d});
  }
  return result;
}

std::int64_t slots_of(const BlockOp& op, std::int64_t rows) {
  const std::int64_t at_once = std::int64_t{op.layout.groups} * op.layout.run;
  return (std::max<std::int64_t>(rows, 1) + at_once - 1) / at_once * op.layout.run;
}

}  // namespace nestor::nvptx
