// Paths, and the loop of a resident block over its work tiles.
#include "codegen/gpu/simt/proof/block_paths.h"

#include <functional>
#include <map>

namespace nestor::nvptx {
namespace {

void collect(const TileTree& tree, OpPath& path, std::vector<OpPath>& paths) {
  if (tree->kind == TileNode::Kind::op) {
    OpPath leaf = path;
    leaf.op = &tree->op;
    for (const OpDim& dim : tree->op.dims) leaf.loops.push_back({dim.var, dim.lower, dim.upper, 1, nullptr, dim.reduced, false});
    paths.push_back(std::move(leaf));
    return;
  }
  if (tree->kind == TileNode::Kind::loop)
    path.loops.push_back({tree->var, tree->lower, tree->upper, tree->step, tree.get(), false, false});
  if (tree->kind == TileNode::Kind::condition) path.conditions.push_back(tree->condition);
  for (const TileTree& child : tree->children) collect(child, path, paths);
  if (tree->kind == TileNode::Kind::loop) path.loops.pop_back();
  if (tree->kind == TileNode::Kind::condition) path.conditions.pop_back();
}

bool names_trip(const BlockNode& node) { return is_name(node) && node.var == kTrip; }

/// Tests whether there is such a trip: part of a copy ahead, not of the body.
bool tests_trip(const BlockNode& node) {
  return node.condition.uses(kTrip) || (node.children.size() == 1 && names_trip(node.children[0]));
}

/// How many iterations a loop of the body has.
bool is_trip_count(const IntExpr& count, const PathLoop& loop) {
  const IntExpr extent = loop.upper - loop.lower;
  if (loop.step == 1) return same_expr(count, extent);
  return same_expr(count, floor_div(extent + IntExpr(loop.step - 1), loop.step));
}

/// What is left of a dim at one part of it, of at most `step` values.
PathLoop part_of(const PathLoop& whole, const PathLoop& part) {
  PathLoop rest = whole;
  rest.lower = whole.lower + IntExpr::variable(part.var);
  const IntExpr end = rest.lower + IntExpr(part.step);
  const Affine length = affine_of(whole.upper) - affine_of(whole.lower);
  rest.upper = length.is_constant() && length.constant % part.step == 0 ? end : min(end, whole.upper);
  return rest;
}

/// Do loops over parts, each of what the one before leaves, and what is left give the whole?
bool is_cut(PathLoop whole, const std::vector<const PathLoop*>& parts, const PathLoop& rest) {
  for (const PathLoop* part : parts) {
    const bool runs = part->lower.is_constant(0) && part->step >= 1 && same_expr(part->upper, whole.upper - whole.lower);
    if (!runs || whole.step != 1) return false;
    whole = part_of(whole, *part);
  }
  return rest.step == 1 && same_expr(rest.lower, whole.lower) && same_expr(rest.upper, whole.upper);
}

bool same_loop(const PathLoop& body, const PathLoop& plan, int ahead) {
  if (body.var != plan.var) return false;
  if (!plan.of_trips) return same_expr(body.lower, plan.lower) && same_expr(body.upper, plan.upper) && body.step == plan.step;
  const IntExpr trip = IntExpr::variable(kTrip) + IntExpr(ahead);
  return same_expr(plan.lower, body.lower + IntExpr(body.step) * trip) &&
         (!plan.upper.defined() || is_trip_count(plan.upper, body));
}

}  // namespace

bool same_expr(const IntExpr& a, const IntExpr& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return affine_of(a) == affine_of(b);
}

bool same_access(const TileAccess& a, const TileAccess& b) {
  return a.buffer == b.buffer && std::equal(a.index.begin(), a.index.end(), b.index.begin(), b.index.end(), same_expr);
}

std::vector<OpPath> body_paths(const TileTree& body) {
  OpPath path;
  std::vector<OpPath> paths;
  collect(body, path, paths);
  return paths;
}

OpPath plan_path(const BlockProof& proof, const OpSite& site) {
  OpPath path;
  path.op = &proof.op(site.op).op;
  path.number = site.op;
  const BlockNode* trips = nullptr;  // the loop over trips around, or the name of the first one
  for (const BlockNode* node : site.around) {
    if (node->kind == TileNode::Kind::condition) {
      if (!tests_trip(*node)) path.conditions.push_back(node->condition);
    } else if (node->var == kTrip) {
      trips = node;
    } else if (proof.persistent() && (node->var == kWorkTile || (is_name(*node) && proof.is_grid_variable(node->var)))) {
      continue;
    } else if (is_name(*node)) {
      const IntExpr count = trips != nullptr && is_loop(*trips) ? trips->upper : IntExpr();
      const PathLoop named{node->var, node->lower, count, 1, trips, false, true};
      // The inner name of a variable is the one that counts.
      const auto outer = std::find_if(path.loops.begin(), path.loops.end(),
                                      [&](const PathLoop& loop) { return loop.of_trips && loop.var == named.var; });
      if (outer != path.loops.end()) {
        *outer = named;
      } else {
        path.loops.push_back(named);
      }
    } else {
      path.loops.push_back({node->var, node->lower, node->upper, node->step, node, false, false});
    }
  }
  for (const OpDim& dim : path.op->dims) path.loops.push_back({dim.var, dim.lower, dim.upper, 1, nullptr, dim.reduced, false});
  return path;
}

std::string path_difference(const OpPath& body, const OpPath& plan, int ahead, bool may_leave_loops) {
  std::vector<const PathLoop*> left;
  for (const PathLoop& loop : plan.loops) left.push_back(&loop);
  const auto take = [&](const std::function<bool(const PathLoop&)>& fits) {
    const auto found = std::find_if(left.begin(), left.end(), [&](const PathLoop* loop) { return fits(*loop); });
    if (found == left.end()) return static_cast<const PathLoop*>(nullptr);
    const PathLoop* taken = *found;
    left.erase(found);
    return taken;
  };
  for (const PathLoop& loop : body.loops) {
    if (take([&](const PathLoop& other) { return same_loop(loop, other, ahead); }) != nullptr) continue;
    const PathLoop* rest = take([&](const PathLoop& other) { return other.var == loop.var && !other.of_trips; });
    std::vector<const PathLoop*> parts;
    for (const PathLoop* other : left) {
      if (rest != nullptr && other->node != nullptr && rest->lower.uses(other->var)) parts.push_back(other);
    }
    if (rest != nullptr && !parts.empty() && is_cut(loop, parts, *rest)) {
      std::erase_if(left, [&](const PathLoop* other) { return std::find(parts.begin(), parts.end(), other) != parts.end(); });
      continue;
    }
    if (rest == nullptr && may_leave_loops && loop.node != nullptr) continue;
    return fmt::format("{} takes other values", loop.var);
  }
  for (const PathLoop* loop : left) return fmt::format("it runs again for each {}", loop->var);
  if (!std::equal(body.conditions.begin(), body.conditions.end(), plan.conditions.begin(), plan.conditions.end(), same_expr))
    return "it stands behind other conditions";
  return "";
}

std::size_t common_loops(const OpPath& a, const OpPath& b) {
  std::size_t count = 0;
  while (count < a.loops.size() && count < b.loops.size() && a.loops[count].node != nullptr &&
         a.loops[count].node == b.loops[count].node)
    ++count;
  return count;
}

namespace {

IntExpr product_after(const std::vector<GridLoop>& grid, std::size_t k) {
  IntExpr product(1);
  for (std::size_t i = k + 1; i < grid.size(); ++i) product = product * grid[i].count;
  return product;
}

/// The coordinate of a work tile: its digit in the mixed radix of the grid's counts.
IntExpr coordinate(const std::vector<GridLoop>& grid, std::size_t k) {
  const IntExpr work_tile = IntExpr::variable(kWorkTile), after = product_after(grid, k);
  IntExpr digit = after.is_constant(1) ? work_tile : IntExpr::make(IntOp::floor_div, {work_tile, after});
  if (k > 0) digit = IntExpr::make(IntOp::mod, {digit, grid[k].count});
  return grid[k].lower + IntExpr(grid[k].step) * digit;
}

class WorkTileProver {
 public:
  explicit WorkTileProver(BlockProof& proof) : proof_(proof), grid_(proof.plan.kernel->grid) {}

  void run() {
    int loops = 0;
    visit(proof_.plan.root, nullptr, loops);
    if (loops != (proof_.persistent() ? 1 : 0)) proof_.fail("{} loops over work tiles", loops);
  }

 private:
  void visit(const BlockNode& node, const BlockNode* trips, int& loops) {
    if (node.independent) {
      ++loops;
      const IntExpr first = IntExpr::variable(kBlockNumber), stride = IntExpr::variable(kBlockCount);
      const IntExpr total = IntExpr(1) * grid_total();
      const IntExpr count = IntExpr::make(IntOp::floor_div, {total - first + stride - IntExpr(1), stride});
      if (!proof_.persistent() || trips != nullptr || node.var != kTrip || !is_loop(node) || !node.lower.is_constant(0) ||
          node.step != 1 || !same_expr(node.upper, count))
        proof_.fail("a loop is not over the work tiles of a resident block");
    }
    if (node.kind == TileNode::Kind::loop && node.var == kTrip) trips = &node;
    if (proof_.persistent() && is_name(node) && node.var == kWorkTile) return work_tile(node, trips, loops);
    if (proof_.persistent() && proof_.is_grid_variable(node.var))
      proof_.fail("{} has a value that is not its work tile's", node.var);
    for (const BlockNode& child : node.children) visit(child, trips, loops);
  }

  IntExpr grid_total() const {
    IntExpr total(1);
    for (const GridLoop& loop : grid_) total = total * loop.count;
    return total;
  }

  /// Names of all coordinates follow that of the work tile.
  void work_tile(const BlockNode& node, const BlockNode* trips, int& loops) {
    if (trips == nullptr) return proof_.fail("a work tile without a trip");
    const BlockNode* inner = &node;
    for (std::size_t k = 0; k < grid_.size(); ++k) {
      const bool next = inner->children.size() == 1 && is_name(inner->children[0]) && inner->children[0].var == grid_[k].var;
      if (!next || !same_expr(inner->children[0].lower, coordinate(grid_, k)))
        return proof_.fail("{} is not the work tile's coordinate", grid_[k].var);
      inner = &inner->children[0];
    }
    for (const BlockNode& child : inner->children) visit(child, trips, loops);
  }

  BlockProof& proof_;
  const std::vector<GridLoop>& grid_;
};

}  // namespace

void prove_work_tiles(BlockProof& proof) { WorkTileProver(proof).run(); }

}  // namespace nestor::nvptx
