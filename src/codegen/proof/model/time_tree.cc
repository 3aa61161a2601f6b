// Alignment of loop parts by the keys of what they contain.
#include "codegen/proof/model/time_tree.h"

#include "codegen/proof/model/int_sets.h"
#include "codegen/proof/model/outcome.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <set>

namespace nestor::proof {
namespace {

/// A loop or an op with the conditions between it and the loop around it.
struct Item {
  TileTree node;
  std::vector<IntExpr> conditions;
};

void flatten(const TileTree& node, std::vector<IntExpr> conditions, std::vector<Item>& out) {
  if (node->kind == TileNode::Kind::loop || node->kind == TileNode::Kind::op) {
    out.push_back({node, std::move(conditions)});
    return;
  }
  if (node->kind == TileNode::Kind::condition) conditions.push_back(node->condition);
  for (const TileTree& child : node->children) flatten(child, conditions, out);
}

/// One or several items that take one place in a sequence: an op, or the parts of a loop.
struct Unit {
  std::string key;
  std::vector<Item> items;
  std::vector<isl::set> iterations;  ///< of each part: { [loops around, loop] }
};

/// The body of a loop, or of one part of it, or the whole program.
struct Body {
  std::vector<TileTree> children;
  isl::set around;  ///< { [loops around] }
};

isl::set lifted(const isl::set& set) { return isl::manage(isl_set_add_dims(set.copy(), isl_dim_set, 1)); }

/// { [.., v] -> [.., w] : equal before, w <= v }
isl::map not_after(const isl::space& space) {
  const int last = static_cast<int>(isl_space_dim(space.get(), isl_dim_set)) - 1;
  isl_map* map = isl_map_universe(isl_space_map_from_set(space.copy()));
  for (int k = 0; k < last; ++k) map = isl_map_equate(map, isl_dim_in, k, isl_dim_out, k);
  return isl::manage(isl_map_order_ge(map, isl_dim_in, last, isl_dim_out, last));
}

/// Every iteration of the earlier parts comes before every one of `later`, at equal loops around.
bool runs_after(const std::vector<isl::set>& earlier, const isl::set& later) {
  const isl::map order = not_after(later.space());
  return std::all_of(earlier.begin(), earlier.end(),
                     [&](const isl::set& part) { return is_empty(order.intersect_domain(part).intersect_range(later)); });
}

class TimeReader {
 public:
  explicit TimeReader(const isl::set& context) : context_(context) {}

  std::vector<TimeSlot> run(const TileTree& root) {
    const isl::set all = IntSpace({}, context_).universe().intersect_params(context_);
    read({Body{{root}, all}}, {}, {});
    return std::move(slots_);
  }

 private:
  void read(const std::vector<Body>& bodies, const std::vector<TimeLoop>& loops, const std::vector<int>& positions) {
    std::vector<std::vector<Unit>> units;
    units.reserve(bodies.size());
    for (const Body& body : bodies) units.push_back(units_of(body, loops));
    const std::vector<std::string> order = common_order(units);
    for (std::size_t position = 0; position < order.size(); ++position) {
      std::vector<int> here = positions;
      here.push_back(static_cast<int>(position));
      read_unit(order[position], bodies, units, loops, here);
    }
  }

  void read_unit(const std::string& key, const std::vector<Body>& bodies, const std::vector<std::vector<Unit>>& units,
                 const std::vector<TimeLoop>& loops, const std::vector<int>& positions) {
    TimeSlot slot{key, loops, positions, {}};
    std::vector<Body> inside;
    TimeLoop loop;
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      const auto unit = std::find_if(units[b].begin(), units[b].end(), [&](const Unit& u) { return u.key == key; });
      if (unit == units[b].end()) continue;
      for (std::size_t k = 0; k < unit->items.size(); ++k) {
        const Item& item = unit->items[k];
        if (item.node->kind == TileNode::Kind::op) {
          slot.ops.push_back({&item.node->op, reached(item, bodies[b], loops)});
        } else {
          loop = {0, item.node->var, item.node->loop_kind};
          inside.push_back({item.node->children, unit->iterations[k]});
        }
      }
    }
    if (!slot.ops.empty()) slots_.push_back(std::move(slot));
    if (inside.empty()) return;
    loop.id = next_loop_++;
    std::vector<TimeLoop> deeper = loops;
    deeper.push_back(loop);
    read(inside, deeper, positions);
  }

  static std::vector<std::string> variables(const std::vector<TimeLoop>& loops) {
    std::vector<std::string> names;
    names.reserve(loops.size() + 1);
    for (const TimeLoop& loop : loops) names.push_back(loop.var);
    return names;
  }

  isl::set reached(const Item& item, const Body& body, const std::vector<TimeLoop>& loops) const {
    const IntSpace space(variables(loops), context_);
    isl::set result = body.around;
    for (const IntExpr& condition : item.conditions) result = result.intersect(space.where(condition));
    return result.coalesce();
  }

  /// { [loops around, loop] } of a loop's iterations.
  isl::set iterations(const Item& item, const Body& body, const std::vector<TimeLoop>& loops) const {
    const TileNode& node = *item.node;
    std::vector<std::string> names = variables(loops);
    names.push_back(node.var);
    const IntSpace space(names, context_);
    const IntExpr v = IntExpr::variable(node.var);
    isl::set result = lifted(reached(item, body, loops));
    result = result.intersect(space.at_least(v, node.lower)).intersect(space.at_least(node.upper, v + IntExpr(1)));
    if (node.step < 1) throw BrokenObligation(fmt::format("loop {} has the step {}", node.var, node.step));
    if (node.step > 1) result = result.intersect(space.equal(mod(v - node.lower, node.step), IntExpr(0)));
    return busy(node, space, result).coalesce();
  }

  /// Iterations in which something runs: a part of a specialised loop may leave out others by a condition around its whole body.
  static isl::set busy(const TileNode& loop, const IntSpace& space, const isl::set& iterations) {
    std::vector<Item> items;
    for (const TileTree& child : loop.children) flatten(child, {}, items);
    isl::set found = iterations.subtract(iterations);
    for (const Item& item : items) {
      if (item.conditions.empty()) return iterations;
      isl::set reached = iterations;
      for (const IntExpr& condition : item.conditions) reached = reached.intersect(space.where(condition));
      found = found.unite(reached);
    }
    return found;
  }

  std::vector<Unit> units_of(const Body& body, const std::vector<TimeLoop>& loops) const {
    std::vector<Item> items;
    for (const TileTree& child : body.children) flatten(child, {}, items);
    std::vector<Unit> units;
    std::map<std::string, int> seen;
    for (const Item& item : items) {
      if (item.node->kind == TileNode::Kind::op) {
        units.push_back({unique(op_key(item.node->op), seen), {item}, {}});
        continue;
      }
      const isl::set here = iterations(item, body, loops);
      Unit* last = units.empty() ? nullptr : &units.back();
      if (last != nullptr && continues(*last, *item.node) && runs_after(last->iterations, here)) {
        last->items.push_back(item);
        last->iterations.push_back(here);
      } else {
        units.push_back(
            {unique(fmt::format("loop {} {}", to_string(item.node->loop_kind), item.node->var), seen), {item}, {here}});
      }
    }
    return units;
  }

  static bool continues(const Unit& unit, const TileNode& node) {
    const TileNode& first = *unit.items.front().node;
    return first.kind == TileNode::Kind::loop && first.var == node.var && first.loop_kind == node.loop_kind;
  }

  static std::string unique(const std::string& key, std::map<std::string, int>& seen) {
    const int count = seen[key]++;
    return count == 0 ? key : fmt::format("{} #{}", key, count);
  }

  /// An order of all keys that agrees with every body's. Bodies that contradict each other keep keys of their own.
  static std::vector<std::string> common_order(std::vector<std::vector<Unit>>& units) {
    std::vector<std::string> order;
    if (merge_orders(units, order)) return order;
    order.clear();
    for (std::size_t b = 0; b < units.size(); ++b) {
      for (Unit& unit : units[b]) {
        unit.key += fmt::format(" @{}", b);
        order.push_back(unit.key);
      }
    }
    return order;
  }

  /// Topological order of "comes directly before" over all bodies; false when there is a cycle.
  static bool merge_orders(const std::vector<std::vector<Unit>>& units, std::vector<std::string>& order) {
    std::vector<std::string> keys;
    std::map<std::string, std::set<std::string>> before;
    for (const auto& body : units) {
      for (std::size_t k = 0; k < body.size(); ++k) {
        if (before.try_emplace(body[k].key).second) keys.push_back(body[k].key);
        if (k > 0) before[body[k].key].insert(body[k - 1].key);
      }
    }
    std::set<std::string> placed;
    while (order.size() < keys.size()) {
      const auto next = std::find_if(keys.begin(), keys.end(), [&](const std::string& key) {
        return placed.count(key) == 0 && std::includes(placed.begin(), placed.end(), before[key].begin(), before[key].end());
      });
      if (next == keys.end()) return false;
      order.push_back(*next);
      placed.insert(*next);
    }
    return true;
  }

  isl::set context_;
  std::vector<TimeSlot> slots_;
  int next_loop_ = 0;
};

}  // namespace

bool is_task(LoopKind kind) { return kind == LoopKind::parallel || kind == LoopKind::gpu_block; }

bool is_concurrent(LoopKind kind) { return kind != LoopKind::serial && kind != LoopKind::unroll; }

std::string op_key(const TileOp& op) {
  return fmt::format("{} {} {} {} {}", static_cast<int>(op.claim.role), op.claim.statement, op.claim.lead, op.name,
                     op.claim.role == OpRole::stage ? op.write.buffer : 0);
}

std::vector<TimeSlot> read_time(const TileTree& root, const isl::set& context) { return TimeReader(context).run(root); }

}  // namespace nestor::proof
