// Launches beside the tile program.
#include "codegen/gpu/simt/proof/launch_check.h"

#include "codegen/gpu/simt/proof/block_paths.h"
#include "codegen/tile/analysis/conditions.h"
#include "codegen/tile/analysis/tile_rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace nestor::nvptx {
namespace {

/// A loop of the launcher or the program is sequential; one over blocks is not.
struct Level {
  PathLoop loop;
  bool blocks = false;
  IntExpr count;                      ///< of a loop over blocks: as the plan has it
  std::vector<std::string> merged{};  ///< loops of the program that it says it stands for; empty: itself
};

struct LaunchedOp {
  TileOp op;
  std::size_t kernel = 0;
  std::vector<Level> levels;
  std::vector<IntExpr> conditions;
};

void split_conjunction(const IntExpr& expr, std::vector<IntExpr>& parts) {
  if (expr.op() == IntOp::logical_and) {
    for (const IntExpr& arg : expr.args()) split_conjunction(arg, parts);
  } else {
    parts.push_back(expr);
  }
}

IntExpr trip_count(const IntExpr& lower, const IntExpr& upper, std::int64_t step) {
  const IntExpr extent = upper - lower;
  return max(step == 1 ? extent : floor_div(extent + IntExpr(step - 1), step), 0);
}

/// Ops below a tree, with the levels around them.
void collect(const TileTree& tree, LaunchedOp& around, std::vector<LaunchedOp>& ops) {
  const bool loop = tree->kind == TileNode::Kind::loop;
  if (tree->kind == TileNode::Kind::op) {
    LaunchedOp leaf = around;
    leaf.op = tree->op;
    for (const OpDim& dim : tree->op.dims)
      leaf.levels.push_back({{dim.var, dim.lower, dim.upper, 1, nullptr, dim.reduced, false}, false, {}});
    ops.push_back(std::move(leaf));
    return;
  }
  const std::size_t conditions = around.conditions.size();
  if (loop)
    around.levels.push_back(
        {{tree->var, tree->lower, tree->upper, tree->step, tree.get(), false, false}, is_block_loop(*tree), {}, tree->merged});
  if (tree->kind == TileNode::Kind::condition) split_conjunction(tree->condition, around.conditions);
  for (const TileTree& child : tree->children) collect(child, around, ops);
  if (loop) around.levels.pop_back();
  around.conditions.resize(conditions);
}

constexpr std::size_t kMostAddends = 256;  ///< of a sum that launches take part by part

/// No more than one beyond kMostAddends: an addend that is shared many times over stands for very many.
void split_sum(const ScalarExpr& value, std::vector<ScalarExpr>& addends) {
  if (addends.size() > kMostAddends) return;
  if (value.op() != ScalarOp::add) return addends.push_back(value);
  for (const ScalarExpr& arg : value.args()) split_sum(arg, addends);
}

/// The program's op as launches take it that begin with `have`: itself, or, of a sum of several addends that `have` is not, one op for each in
/// their order. In place of a sum that goes on, the first of these may start another buffer, that of `have`, in which they add up (adds_parts).
std::vector<TileOp> parts_of_op(const TileOp& want, const TileOp& have) {
  const bool sums = want.kind == OpKind::reduce && want.reduction == ReductionOp::add && !want.fill;
  if (!sums) return {want};
  std::vector<ScalarExpr> addends;
  split_sum(want.value, addends);
  if (addends.size() < 2 || addends.size() > kMostAddends || have.value.equals(want.value)) return {want};
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

/// Is `add` the map that adds the elements which `first`, the first of such parts, has started to another buffer's of the same indices? It runs
/// over all of them, and where the guard of `first` holds, if that tells no terms apart; elements without terms are 0.
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

class LaunchProver {
 public:
  explicit LaunchProver(const LaunchPlan& plan) : plan_(plan) {}

  std::vector<std::string> run() {
    LaunchedOp around;
    collect(plan_.program.root, around, wanted_);
    around = {};
    visit(plan_.launches, around);
    match();
    for (const auto& [scratch, origin] : moved_) moved_buffer(scratch, origin);
    return problems_;
  }

 private:
  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // ---- the launches' ops

  void visit(const std::vector<LaunchNode>& nodes, LaunchedOp& around) {
    for (const LaunchNode& node : nodes) {
      if (node.kind == LaunchNode::Kind::loop) {
        around.levels.push_back({{node.var, node.lower, node.upper, 1, &node, false, false}, false, {}});
        visit(node.children, around);
        around.levels.pop_back();
        continue;
      }
      for (std::size_t k = 0; k < plan_.kernels.size(); ++k) {
        if (plan_.kernels[k].symbol == node.symbol) of_kernel(k, node, around);
      }
    }
  }

  void of_kernel(std::size_t number, const LaunchNode& node, LaunchedOp around) {
    const KernelPlan& kernel = plan_.kernels[number];
    around.kernel = number;
    launch_loops(kernel, around);
    IntExpr blocks(1);
    for (const GridLoop& loop : kernel.grid) {
      blocks = blocks * loop.count;
      around.levels.push_back({{loop.var, loop.lower, {}, loop.step, &loop, false, false}, true, loop.count});
    }
    IntExpr grid = node.grid[0];
    const int cluster = kernel.shape.cluster;
    if (kernel.shape.persistent > 0) blocks = min(blocks, resident_clusters(kernel.shape));
    if (cluster > 1) {
      const bool times = grid.op() == IntOp::mul && grid.args()[1].is_constant(cluster);
      if (!times && !grid.as_constant()) return fail("{}: its blocks are no clusters of {}", kernel.symbol, cluster);
      if (times) grid = IntExpr(grid.args()[0]);
      if (!times) blocks = blocks * IntExpr(cluster);
    }
    const bool conditional = grid.op() == IntOp::select;
    if (!same_expr(kernel.condition, conditional ? grid.args()[0] : IntExpr()))
      fail("{} is not launched behind the condition that it relies on", kernel.symbol);
    if (conditional) {
      split_conjunction(grid.args()[0], around.conditions);
      if (!grid.args()[2].is_constant(0)) fail("{} runs where its condition does not hold", kernel.symbol);
      grid = IntExpr(grid.args()[1]);
    }
    if (!same_expr(grid, blocks)) fail("{}: {} blocks are not those of its grid, {}", kernel.symbol, grid.str(), blocks.str());
    if (node.cluster[0] != cluster) fail("{}: clusters of {} blocks are launched", kernel.symbol, node.cluster[0]);
    collect(kernel.body, around, launched_);
  }

  /// Clusters that run at once on `kUnits` multiprocessors; one on a device that is smaller than a cluster, lest nothing runs.
  static IntExpr resident_clusters(const GridShape& shape) {
    const IntExpr all = floor_div(IntExpr(shape.persistent) * IntExpr::variable(kUnits), shape.cluster);
    return shape.persistent >= shape.cluster ? all : max(all, IntExpr(1));
  }

  /// A kernel's plan relies on the bounds of the loops around its launches.
  void launch_loops(const KernelPlan& kernel, const LaunchedOp& around) {
    const bool same =
        std::equal(kernel.launch_loops.begin(), kernel.launch_loops.end(), around.levels.begin(), around.levels.end(),
                   [](const LaunchLoop& a, const Level& b) {
                     return a.var == b.loop.var && same_expr(a.lower, b.loop.lower) && same_expr(a.upper, b.loop.upper);
                   });
    if (!same) fail("{} is not launched in the loops that it relies on", kernel.symbol);
  }

  // ---- op by op

  void match() {
    std::size_t at = 0;
    std::vector<Found> found;
    for (std::size_t k = 0; k < launched_.size(); ++k) {
      const LaunchedOp& op = launched_[k];
      const bool here = at < wanted_.size() && op.op.name == wanted_[at].op.name;
      if (here) {
        const std::vector<LaunchedOp> parts = parts_of(wanted_[at++], k);
        const bool apart = parts.front().op.initialize && !wanted_[at - 1].op.initialize;
        for (const LaunchedOp& part : parts) {
          compare(part, launched_[k], apart);
          found.push_back({part, &launched_[k++], at});
        }
        if (!is_sum_of(wanted_[at - 1], parts, k)) --k;
      } else if (!is_store(op.op)) {
        return fail("{} is not the program's next op", op.op.name);
      }
    }
    if (at < wanted_.size()) return fail("{} is not launched", wanted_[at].op.name);
    for (std::size_t k = 1; k < found.size(); ++k) {
      const auto& [first, first_op, first_number] = found[k - 1];
      const auto& [second, second_op, second_number] = found[k];
      const std::size_t want = sequential(first, second), have = sequential(*first_op, *second_op);
      // Parts of one sum may share loops over its terms, too: all that either has.
      const bool in_loops = first_number == second_number && have > want && have == depth(*first_op) && have == depth(*second_op);
      if (want != have && !in_loops) fail("{} and {} do not share the loops of the program", first.op.name, second.op.name);
    }
  }

  /// An op of the program, or a part of it, what is launched for it, and its number.
  struct Found {
    LaunchedOp want;
    const LaunchedOp* have;
    std::size_t number;
  };

  // ---- sums of several products, one op for each

  /// The program's op as the ops from launched number `first` on take it.
  std::vector<LaunchedOp> parts_of(const LaunchedOp& want, std::size_t first) const {
    std::vector<LaunchedOp> parts;
    for (TileOp& op : parts_of_op(want.op, launched_[first].op)) {
      parts.push_back(want);
      parts.back().op = std::move(op);
    }
    return first + parts.size() > launched_.size() ? std::vector{want} : parts;
  }

  /// Is launched op number `at` the map that adds what the parts have summed up to where the program's op sums? Fails where there should be
  /// one and is none.
  bool is_sum_of(const LaunchedOp& want, const std::vector<LaunchedOp>& parts, std::size_t at) {
    if (parts.size() < 2 || !parts.front().op.initialize || want.op.initialize) return false;
    const int own = parts.front().op.write.buffer;
    const LaunchedOp& first = launched_[at - parts.size()];
    const bool there = at < launched_.size();
    const LaunchedOp& add = launched_[there ? at : at - 1];
    const bool same_loops =
        add.kernel == first.kernel && sequential(first, add) == depth(add) && depth(add) == depth(first) &&
        add.levels.size() - add.op.dims.size() == first.levels.size() - first.op.dims.size() &&
        std::equal(add.conditions.begin(), add.conditions.end(), first.conditions.begin(), first.conditions.end(), same_expr);
    const auto users =
        std::count_if(launched_.begin(), launched_.end(), [&](const LaunchedOp& op) { return touches(op.op, own); });
    if (!there || !same_loops || !adds_parts(first.op, add.op) || own == want.op.write.buffer ||
        plan_.program.buffers[static_cast<std::size_t>(own)].memory != Memory::scratch ||
        users != static_cast<std::ptrdiff_t>(parts.size()) + 1) {
      fail("{}: the sum of its parts is not added up once, over the elements that it has", want.op.name);
      return false;
    }
    access(want.op.name, want.op.write, first.op, add.op.write);
    return true;
  }

  /// A copy from a buffer that was added to what it stands for.
  bool is_store(const TileOp& op) const {
    return op.kind == OpKind::copy && op.reads.size() == 1 && !op.guard.defined() && moved_.count(op.reads[0].buffer) != 0;
  }

  /// Sequential loops of the program around both: how many.
  static std::size_t sequential(const LaunchedOp& a, const LaunchedOp& b) {
    std::size_t count = 0;
    for (std::size_t k = 0; k < a.levels.size() && k < b.levels.size(); ++k) {
      if (a.levels[k].loop.node == nullptr || a.levels[k].loop.node != b.levels[k].loop.node) break;
      count += a.levels[k].blocks ? 0 : std::max<std::size_t>(a.levels[k].merged.size(), 1);
    }
    return count;
  }

  /// `apart`: is it a part of a sum that each iteration starts anew, and adds up?
  void compare(LaunchedOp want, LaunchedOp have, bool apart) {
    std::vector<const Level*> left;
    for (const Level& level : have.levels) left.push_back(&level);
    const auto take = [&](const std::string& var) {
      const auto found = std::find_if(left.begin(), left.end(), [&](const Level* level) { return level->loop.var == var; });
      const Level* level = found == left.end() ? nullptr : *found;
      if (level != nullptr) left.erase(found);
      return level;
    };
    for (const Level& level : have.levels) {
      if (level.merged.empty()) continue;
      if (!is_merged(want, level)) return fail("{}: {} is not the loops that it stands for", want.op.name, level.loop.var);
      take(level.loop.var);
    }
    for (std::size_t k = 0; k < want.levels.size(); ++k) {
      const PathLoop loop = want.levels[k].loop;
      if (const Level* trips = take(loop.var + "_trip"); trips != nullptr) {
        const IntExpr value = loop.lower + IntExpr(loop.step) * IntExpr::variable(trips->loop.var);
        if (!trips->loop.lower.is_constant(0) || !same_expr(trips->loop.upper, trip_count(loop.lower, loop.upper, loop.step)))
          fail("{}: {} has other trips", want.op.name, loop.var);
        put(want, loop.var, value);
        continue;
      }
      const Level* tiles = take(loop.var + "_tile");
      const Level* rest = take(loop.var);
      if (rest == nullptr && tiles == nullptr && loop.node == nullptr && affine_of(loop.upper - loop.lower) == Affine{{}, 1}) {
        put(want, loop.var, loop.lower);
        continue;
      }
      const auto same = [&] {
        return tiles == nullptr ? same_values(want.levels[k].loop, *rest) : is_tiled(want.levels[k].loop, *tiles, rest->loop);
      };
      if (rest == nullptr || !(same() || (test_bounds(want, k) && same())))
        fail("{}: {} takes other values", want.op.name, loop.var);
    }
    for (const Level* level : left) fail("{} runs again for each {}", want.op.name, level->loop.var);
    if (!want.op.fill && !have.op.fill) {  // what an op tests may be around it
      for (LaunchedOp* side : {&want, &have}) test_outside(*side);
    }
    conditions(want, have);
    content(want.op, have.op, apart);
  }

  /// The guard as conditions around the op.
  static void test_outside(LaunchedOp& op) {
    if (op.op.guard.defined()) split_conjunction(std::exchange(op.op.guard, {}), op.conditions);
  }

  /// One side of a loop's bounds: the constant among its terms stays, the others are conditions of the op. False: there is none, or nothing
  /// else.
  static bool test_terms(LaunchedOp& op, const std::string& var, IntExpr& bound, bool lower) {
    std::vector<IntExpr> terms;
    split_terms(bound, lower ? IntOp::max : IntOp::min, terms);
    const auto constant =
        std::find_if(terms.begin(), terms.end(), [](const IntExpr& term) { return term.as_constant().has_value(); });
    if (terms.size() < 2 || constant == terms.end()) return false;
    const IntExpr value = IntExpr::variable(var);
    for (auto term = terms.begin(); term != terms.end(); ++term) {
      if (term == constant) continue;
      op.conditions.push_back(lower ? IntExpr::make(IntOp::ge, {value, *term})
                                    : IntExpr::make(IntOp::ge, {*term - IntExpr(1), value}));
    }
    bound = *constant;
    return true;
  }

  /// max(a, b) <= v < min(c, d) is a <= v < c where v >= b and v < d: the constant bounds stay. False: there is nothing else.
  static bool test_bounds(LaunchedOp& op, std::size_t level) {
    PathLoop& loop = op.levels[level].loop;
    const bool below = test_terms(op, loop.var, loop.lower, true), above = test_terms(op, loop.var, loop.upper, false);
    return below || above;
  }

  /// Does the loop run through the program's loops that it names, in their order? Then they have its values in `want`, and are no levels
  /// of it any more.
  static bool is_merged(LaunchedOp& want, const Level& level) {
    std::vector<std::size_t> places;
    for (std::size_t k = 0; k < want.levels.size(); ++k) {
      const Level& each = want.levels[k];
      if (places.size() < level.merged.size() && each.loop.var == level.merged[places.size()] && !each.blocks &&
          each.loop.step == 1)
        places.push_back(k);
    }
    if (places.size() != level.merged.size() || places.size() < 2 || level.loop.step != 1) return false;
    std::vector<PathLoop> loops;
    for (const std::size_t place : places) {
      const PathLoop& loop = want.levels[place].loop;
      const bool constant = loop.lower.as_constant() && loop.upper.as_constant();
      const bool inner = place != places.front(), known = level.loop.lower.as_constant() && level.loop.upper.as_constant();
      if (!constant && (inner || known)) test_bounds(want, place);
      loops.push_back(want.levels[place].loop);
    }
    std::int64_t first = 0, count = 1;                            // of what is inside of the loop at hand
    std::vector<std::pair<std::int64_t, std::int64_t>> inside{};  // innermost first
    for (std::size_t k = loops.size(); k-- > 1;) {
      const auto lower = loops[k].lower.as_constant(), upper = loops[k].upper.as_constant();
      if (!lower || !upper || *lower >= *upper) return false;
      first = *lower * count;
      count *= *upper - *lower;
      inside.emplace_back(first, count);
    }
    const PathLoop& outer = loops.front();
    if (!same_expr(level.loop.lower, outer.lower * IntExpr(count)) || !same_expr(level.loop.upper, outer.upper * IntExpr(count)))
      return false;
    IntExpr at = IntExpr::variable(level.loop.var);
    for (std::size_t k = 0; k < loops.size(); ++k) {
      const bool last = k + 1 == loops.size();
      const auto [from, steps] = last ? std::pair<std::int64_t, std::int64_t>{0, 1} : inside[loops.size() - 2 - k];
      put(want, loops[k].var, last ? at : floor_div(at, steps));
      if (!last) at = mod(at, steps) + IntExpr(from);
    }
    std::erase_if(want.levels, [&](const Level& each) {
      return std::find(level.merged.begin(), level.merged.end(), each.loop.var) != level.merged.end();
    });
    return true;
  }

  static void put(LaunchedOp& op, const std::string& var, const IntExpr& value) {
    const auto with = [&](const IntExpr& expr) { return expr.defined() ? expr.substitute(var, value) : expr; };
    op.op = rewrite(op.op, with);
    for (Level& level : op.levels) {
      if (level.loop.var == var) continue;
      level.loop.lower = with(level.loop.lower);
      level.loop.upper = with(level.loop.upper);
    }
    for (IntExpr& condition : op.conditions) condition = with(condition);
  }

  static bool same_values(const PathLoop& want, const Level& have) {
    if (!same_expr(want.lower, have.loop.lower) || want.step != have.loop.step) return false;
    if (!have.count.defined()) return same_expr(want.upper, have.loop.upper);
    return same_expr(have.count, trip_count(want.lower, want.upper, want.step));
  }

  /// Tiles of a dim over blocks, and what a block has of it.
  static bool is_tiled(const PathLoop& want, const Level& tiles, const PathLoop& rest) {
    const std::int64_t tile = tiles.loop.step;
    const IntExpr first = IntExpr::variable(tiles.loop.var), end = first + IntExpr(tile);
    const Affine length = affine_of(want.upper) - affine_of(want.lower);
    const bool whole = length.is_constant() && length.constant % tile == 0;
    return tiles.count.defined() && want.step == 1 && rest.step == 1 && same_expr(tiles.loop.lower, want.lower) &&
           same_expr(tiles.count, max(floor_div(want.upper - want.lower + IntExpr(tile - 1), tile), 0)) &&
           same_expr(rest.lower, first) && (same_expr(rest.upper, min(end, want.upper)) || (whole && same_expr(rest.upper, end)));
  }

  void conditions(const LaunchedOp& want, const LaunchedOp& have) {
    std::vector<IntExpr> left = have.conditions;
    for (const IntExpr& condition : want.conditions) {
      const auto found =
          std::find_if(left.begin(), left.end(), [&](const IntExpr& other) { return same_expr(other, condition); });
      if (found == left.end()) return fail("{} runs where {} does not hold", want.op.name, condition.str());
      left.erase(found);
    }
    if (!left.empty()) fail("{} does not run where {} fails", want.op.name, left.front().str());
  }

  /// write = write (+) value as a map, where every point has an element of its own.
  static TileOp elementwise(TileOp op) {
    // An index that moves with this dim and with no other one.
    const auto own_index = [&](const OpDim& dim) {
      return has_one_value(dim) || std::any_of(op.write.index.begin(), op.write.index.end(), [&](const IntExpr& index) {
               return index.coefficient(dim.var).value_or(0) != 0 &&
                      std::none_of(op.dims.begin(), op.dims.end(), [&](const OpDim& other) {
                        return other.var != dim.var && !has_one_value(other) && index.uses(other.var);
                      });
             });
    };
    if (!op.reduction || op.initialize || op.kind != OpKind::reduce || !std::all_of(op.dims.begin(), op.dims.end(), own_index))
      return op;
    op.value = ScalarExpr::make(combiner(*op.reduction),
                                {ScalarExpr::read(static_cast<int>(op.reads.size()), op.value.type()), op.value});
    op.reads.push_back(op.write);
    op.reduction.reset();
    return op;
  }

  void content(const TileOp& given, const TileOp& have, bool apart) {
    const TileOp want = have.reduction ? given : elementwise(given);
    const bool same_fill = want.fill == have.fill || (want.fill && have.fill && *want.fill == *have.fill);
    const bool restarts = want.initialize && !apart && std::any_of(want.dims.begin(), want.dims.end(), [&](const OpDim& dim) {
                            return dim.reduced && !has_one_value(dim) &&
                                   std::none_of(have.dims.begin(), have.dims.end(),
                                                [&](const OpDim& other) { return other.var == dim.var && other.reduced; });
                          });
    if (!same_expr(want.guard, have.guard) || want.reduction != have.reduction || want.initialize != have.initialize ||
        !same_fill || !want.value.equals(have.value) || want.reads.size() != have.reads.size() || restarts ||
        !std::equal(want.indices.begin(), want.indices.end(), have.indices.begin(), have.indices.end(), same_expr))
      return fail("{} is another op than the program's", want.name);
    access(want.name, want.write, have, have.write);
    for (std::size_t k = 0; k < want.reads.size(); ++k) access(want.name, want.reads[k], have, have.reads[k]);
  }

  // ---- moved buffers

  /// What an element of a moved buffer stands for.
  struct Origin {
    int buffer = -1;
    std::vector<Affine> index;  ///< over "#0", "#1", ...: its own indices
    bool operator==(const Origin& other) const = default;
  };

  void access(const std::string& name, const TileAccess& want, const TileOp& have_op, const TileAccess& have) {
    if (have.buffer == want.buffer) {
      if (!same_access(want, have)) fail("{} touches another element of {}", name, plan_.program.buffers[want.buffer].name);
      return;
    }
    const std::optional<Origin> origin = origin_of(have_op, want, have);
    if (!origin) return fail("{}: elements of a moved buffer are not told apart", name);
    const auto [known, added] = moved_.try_emplace(have.buffer, *origin);
    if (!(known->second == *origin))
      fail("{} finds another element where {} was moved", name, plan_.program.buffers[want.buffer].name);
  }

  /// `place`, as a function of the indices of `own`, each of which runs with one dim of the op.
  std::optional<Origin> origin_of(const TileOp& op, const TileAccess& place, const TileAccess& own) const {
    Origin origin;
    origin.buffer = place.buffer;
    std::vector<IntExpr> index = place.index;
    const Buffer& buffer = plan_.program.buffers[own.buffer];
    for (std::size_t p = 0; p < own.index.size(); ++p) {
      const OpDim* along = nullptr;
      for (const OpDim& dim : op.dims) {
        if (own.index[p].coefficient(dim.var) == 1) along = &dim;
      }
      if (along == nullptr) {
        if (!own.index[p].is_constant(0) || !buffer.extents[p].is_constant(1)) return std::nullopt;
        continue;
      }
      // own = var + rest, so var = #p - rest.
      const IntExpr rest = own.index[p].substitute(along->var, IntExpr(0));
      for (IntExpr& expr : index) expr = expr.substitute(along->var, IntExpr::variable("#" + std::to_string(p)) - rest);
    }
    for (const IntExpr& expr : index) {
      Affine form = affine_of(expr);
      for (const OpDim& dim : op.dims) {
        if (form.terms.count(dim.var) != 0 && !has_one_value(dim)) return std::nullopt;
      }
      origin.index.push_back(std::move(form));
    }
    return origin;
  }

  static bool touches(const TileOp& op, int buffer) {
    return op.write.buffer == buffer ||
           std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
  }

  /// First written, then used, then stored: over the same elements, with nothing else at its place meanwhile.
  void moved_buffer(int scratch, const Origin& origin) {
    const std::string& name = plan_.program.buffers[scratch].name;
    const LaunchedOp *first = nullptr, *store = nullptr;
    bool direct = false;  // the place itself is touched since the first op
    for (const LaunchedOp& op : launched_) {
      if (touches(op.op, scratch) && store != nullptr) return fail("{} is used after it was stored", name);
      if (first == nullptr && touches(op.op, scratch)) {
        first = &op;
        // A sum that starts anew writes its elements before it adds to them.
        const bool adds = op.op.reduction && !op.op.initialize;
        if (op.op.write.buffer != scratch || adds || op.op.guard.defined()) return fail("{} is used before it is written", name);
        continue;
      }
      if (first != nullptr && op.kernel != first->kernel && touches(op.op, scratch))
        return fail("{} is used by two kernels", name);
      const bool stores = is_store(op.op) && op.op.reads[0].buffer == scratch && op.op.write.buffer == origin.buffer;
      if (stores && first != nullptr) {
        store = &op;
        if (direct) fail("{} is stored where something else was written meanwhile", name);
        if (!same_box(*first, op) || origin_of(op.op, op.op.write, op.op.reads[0]) != origin ||
            sequential(*first, op) != depth(op))
          fail("not all that {} holds is stored at its place", name);
      } else if (first != nullptr && op.kernel == first->kernel && store == nullptr) {
        direct = direct || touches(op.op, origin.buffer);
      }
    }
    if (store == nullptr && used_elsewhere(origin.buffer)) fail("{} is not stored", name);
  }

  /// Sequential loops around an op.
  static std::size_t depth(const LaunchedOp& op) { return sequential(op, op); }

  bool used_elsewhere(int buffer) const {
    return plan_.program.buffers[buffer].memory == Memory::argument ||
           std::any_of(launched_.begin(), launched_.end(), [&](const LaunchedOp& op) { return touches(op.op, buffer); });
  }

  /// Does `b` run over the elements that `a` writes?
  static bool same_box(const LaunchedOp& a, const LaunchedOp& b) {
    std::vector<const OpDim*> first, second;
    for (const OpDim& dim : a.op.dims) {
      if (!has_one_value(dim) && !(a.op.initialize && dim.reduced)) first.push_back(&dim);
    }
    for (const OpDim& dim : b.op.dims) {
      if (!has_one_value(dim)) second.push_back(&dim);
    }
    return std::equal(first.begin(), first.end(), second.begin(), second.end(), [](const OpDim* x, const OpDim* y) {
      return same_expr(x->lower, y->lower) && same_expr(x->upper, y->upper);
    });
  }

  const LaunchPlan& plan_;
  std::vector<LaunchedOp> wanted_, launched_;
  std::map<int, Origin> moved_;  ///< by buffer
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> check_launches(const LaunchPlan& plan) { return LaunchProver(plan).run(); }

}  // namespace nestor::nvptx
