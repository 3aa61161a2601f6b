// One exchange for a composite reduction (docs/algebra.md): the threads of a warp reduce the lead, m, among themselves; mediators and
// the follower, r, work with the value of their own warp; then the pairs (m, r) of all warps meet once and are combined by the
// product of the composite, (m1, r1) (m2, r2) = (m, c(m1, m) r1 + c(m2, m) r2). Without it, all warps meet for m and again for r.
//
// Right because a warp's columns are a part of the reduction's points like any other: within them mediators and the follower see
// the lead's value over that part, which is what the composite allows, and nobody else does.
#include "codegen/gpu/simt/plan/block_plan.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "poly/nest/composite_correction.h"
#include "support/substitution.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>

namespace nestor::nvptx {
namespace {

bool is_op(const BlockNode& node) { return node.kind == TileNode::Kind::op && node.op >= 0; }

/// Is it a sequence and nothing else?
bool is_plain_sequence(const BlockNode& node) {
  return node.kind == TileNode::Kind::sequence && !node.commit && node.advance < 0;
}

/// Sequences within sequences become one.
void flatten(BlockNode& node) {
  for (BlockNode& child : node.children) flatten(child);
  if (!is_plain_sequence(node)) return;
  std::vector<BlockNode> children;
  for (BlockNode& child : node.children) {
    if (is_plain_sequence(child)) {
      std::move(child.children.begin(), child.children.end(), std::back_inserter(children));
    } else {
      children.push_back(std::move(child));
    }
  }
  node.children = std::move(children);
}

bool reads(const BlockOp& op, int buffer) {
  return std::any_of(op.op.reads.begin(), op.op.reads.end(), [&](const TileAccess& access) { return access.buffer == buffer; });
}

bool touches(const BlockOp& op, int buffer) { return op.op.write.buffer == buffer || reads(op, buffer); }

bool is_mediator(const Composite& composite, const std::string& name) {
  return std::find(composite.mediators.begin(), composite.mediators.end(), name) != composite.mediators.end();
}

/// Places of the lead and of its only follower among the children, where there is nothing but ops from one to the other.
struct Pair {
  std::size_t lead, follower;
};
std::optional<Pair> find_pair(const BlockPlan& plan, const Composite& composite, const std::vector<BlockNode>& children) {
  if (composite.followers.size() != 1) return std::nullopt;
  std::optional<std::size_t> lead;
  for (std::size_t k = 0; k < children.size(); ++k) {
    if (!is_op(children[k])) {
      lead.reset();
      continue;
    }
    const std::string& name = plan.ops[children[k].op].op.name;
    if (name == composite.lead) lead = k;
    if (lead && name == composite.followers.front().statement) return Pair{*lead, k};
  }
  return std::nullopt;
}

/// Moves ops that read the lead's final value from before the follower to behind it, where nothing between forbids that.
void move_behind(BlockPlan& plan, const Composite& composite, std::vector<BlockNode>& children) {
  const auto pair = find_pair(plan, composite, children);
  if (!pair) return;
  const int buffer = plan.ops[children[pair->lead].op].op.write.buffer;
  std::size_t end = pair->follower;
  for (std::size_t k = pair->follower; k-- > pair->lead + 1;) {
    const BlockOp& op = plan.ops[children[k].op];
    if (!reads(op, buffer) || is_mediator(composite, op.op.name)) continue;
    const bool free = std::all_of(children.begin() + static_cast<std::ptrdiff_t>(k) + 1,
                                  children.begin() + static_cast<std::ptrdiff_t>(end) + 1,
                                  [&](const BlockNode& other) { return are_independent(op, plan.ops[other.op]); });
    if (!free) continue;
    std::rotate(children.begin() + static_cast<std::ptrdiff_t>(k), children.begin() + static_cast<std::ptrdiff_t>(k) + 1,
                children.begin() + static_cast<std::ptrdiff_t>(end) + 1);
    --end;
  }
}

bool counts_points(const Composite& composite) {
  bool counts = false;
  const auto look = [&](const ScalarExpr& node) {
    counts =
        counts || (node.op() == ScalarOp::scalar && (node.name() == "n" || node.name() == "n_old" || node.name() == "n_total"));
  };
  composite.view.visit(look);
  composite.followers.front().correction.visit(look);
  return counts;
}

bool same(const std::vector<IntExpr>& a, const std::vector<IntExpr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const IntExpr& x, const IntExpr& y) { return x.str() == y.str(); });
}

/// Do both compute the same f32 value at each point of the same box?
bool same_terms(const TileOp& a, const TileOp& b) {
  const auto same_dim = [](const OpDim& x, const OpDim& y) { return same({x.lower, x.upper}, {y.lower, y.upper}); };
  const auto same_read = [](const TileAccess& x, const TileAccess& y) { return x.buffer == y.buffer && same(x.index, y.index); };
  return !a.reduction && !b.reduction && !a.guard.defined() && !b.guard.defined() && a.value.type() == ElementType::f32 &&
         a.value.equals(b.value) && same(a.indices, b.indices) &&
         std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(), same_dim) &&
         std::equal(a.reads.begin(), a.reads.end(), b.reads.begin(), b.reads.end(), same_read);
}

/// `op` with the lead's value in `buffer` as the composite shows it to mediators.
TileOp with_view(const Composite& composite, TileOp op, int buffer) {
  op.value = op.value.rewrite([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read || op.reads[node.ordinal()].buffer != buffer) return node;
    return substitute_scalars(composite.view, {{"m", node}});
  });
  return op;
}

/// Does the follower add up the very terms that the mediator writes? Then its correction is theirs.
bool sums(const TileOp& follower, const TileOp& mediator) {
  return follower.value.op() == ScalarOp::read && follower.reads[follower.value.ordinal()].buffer == mediator.write.buffer;
}

const TileAccess* read_of(const TileOp& op, int buffer) {
  const auto found =
      std::find_if(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
  return found == op.reads.end() ? nullptr : &*found;
}

/// The terms with the lead's final value are those that a mediator left, corrected: readers of `same`, an op that computes them anew,
/// read the mediator's tile instead. Until the reduction is fused, both are equal and the correction is 1.
class TermReuse {
 public:
  TermReuse(BlockPlan& plan, const Composite& composite, const TileOp& mediator, const TileOp& same, int lead)
      : plan_(plan),
        composite_(composite),
        same_(same),
        terms_(with_dims_of(same, mediator)),
        lead_(read_of(same_, lead)),
        equal_(same_terms(terms_, same_) || same_terms(terms_, with_view(composite, same_, lead))) {}

  /// Nothing is changed where that is not possible.
  bool apply(int op) {
    const auto constant_or_dim = [&](const IntExpr& index) { return index.as_constant() || dim_named(index.str()); };
    const bool plain = std::all_of(same_.write.index.begin(), same_.write.index.end(), constant_or_dim);
    if (lead_ == nullptr || !plain || !equal_ || !is_tile(same_.write) || !is_tile(terms_.write)) return false;
    std::vector<BlockOp*> readers;
    for (int k = 0; k < static_cast<int>(plan_.ops.size()); ++k) {
      BlockOp& other = plan_.ops[k];
      if (k == op || !touches(other, same_.write.buffer)) continue;
      if (k < op || other.op.write.buffer == same_.write.buffer || other.op.reduction) return false;
      readers.push_back(&other);
    }
    for (BlockOp* reader : readers) redirect(*reader);
    return true;
  }

 private:
  bool is_tile(const TileAccess& access) const {
    const Buffer& buffer = plan_.buffer(access.buffer);
    return buffer.memory == Memory::scratch && buffer.type == ElementType::f32;
  }
  bool dim_named(const std::string& name) const {
    return std::any_of(same_.dims.begin(), same_.dims.end(), [&](const OpDim& dim) { return dim.var == name; });
  }

  void redirect(BlockOp& reader) const {
    const std::size_t reads = reader.op.reads.size();
    for (std::size_t k = 0; k < reads; ++k) {
      const TileAccess at = reader.op.reads[k];
      if (at.buffer != same_.write.buffer) continue;
      std::map<std::string, IntExpr> place;
      for (std::size_t d = 0; d < at.index.size(); ++d) {
        if (!same_.write.index[d].as_constant()) place.emplace(same_.write.index[d].str(), at.index[d]);
      }
      const auto there = [&](const IntExpr& expr) { return substitute_all(expr, place); };
      const auto row = static_cast<int>(reader.op.reads.size());
      reader.op.reads[k] = rewrite(terms_.write, there);
      reader.op.reads.push_back(rewrite(*lead_, there));
      reader.op.value = reader.op.value.rewrite([&](const ScalarExpr& node) {
        if (node.op() != ScalarOp::read || node.ordinal() != static_cast<int>(k)) return node;
        return substitute_scalars(settled_correction(composite_), {{"r", node},
                                                                   {"m_old", ScalarExpr::scalar(kWarpLead, ElementType::f32)},
                                                                   {"m_new", ScalarExpr::read(row, ElementType::f32)}});
      });
    }
    reader.read_vectors.assign(reader.op.reads.size(), false);
    reader.strided_reads.assign(reader.op.reads.size(), {});
  }

  BlockPlan& plan_;
  const Composite& composite_;
  const TileOp same_, terms_;  ///< the mediator by the names of the other's dims
  const TileAccess* lead_;
  const bool equal_;  ///< the mediator sees the lead itself, or as the composite shows it where a tile is not the whole row
};

/// Takes out ops behind the follower that compute a mediator's terms anew, with the lead's final value. Not where results are f32:
/// a factor more is a rounding more.
void reuse_terms(BlockPlan& plan, const Composite& composite, std::vector<BlockNode>& children) {
  const auto pair = find_pair(plan, composite, children);
  // Exponents that multiply the lead before they subtract it have limits of their own for it.
  const bool plain = composite.view.op() == ScalarOp::scalar || composite.view.args().back().op() == ScalarOp::constant;
  if (!pair || !has_half_arguments(*plan.program) || counts_points(composite) || !plain) return;
  const auto op_at = [&](std::size_t k) -> const TileOp& { return plan.ops[children[k].op].op; };
  const int lead = op_at(pair->lead).write.buffer;
  for (std::size_t k = pair->lead + 1; k < pair->follower; ++k) {
    if (!is_mediator(composite, op_at(k).name) || !sums(op_at(pair->follower), op_at(k))) continue;
    for (std::size_t later = children.size(); later-- > pair->follower + 1;) {
      if (!is_op(children[later]) || !read_of(op_at(later), lead)) continue;
      if (TermReuse(plan, composite, op_at(k), op_at(later), lead).apply(children[later].op))
        children.erase(children.begin() + static_cast<std::ptrdiff_t>(later));
    }
  }
}

bool means_warp_lead(const ScalarExpr& expr) {
  bool found = false;
  expr.visit([&](const ScalarExpr& node) { found = found || (node.op() == ScalarOp::scalar && node.name() == kWarpLead); });
  return found;
}

/// Ops in the order of the tree.
void renumber(BlockNode& node, const std::vector<BlockOp>& from, std::vector<BlockOp>& into) {
  if (is_op(node)) {
    into.push_back(from[node.op]);
    node.op = static_cast<int>(into.size()) - 1;
  }
  for (BlockNode& child : node.children) renumber(child, from, into);
}

void reorder(BlockPlan& plan) {
  std::vector<BlockOp> ordered;
  renumber(plan.root, plan.ops, ordered);
  plan.ops = std::move(ordered);
}

void for_each_sequence(BlockNode& node, const std::function<void(BlockNode&)>& visit) {
  for (BlockNode& child : node.children) for_each_sequence(child, visit);
  visit(node);
}

/// Points of the reduction: in all, and in each warp. Nothing where warps have unequal numbers, or numbers not known here.
std::optional<std::pair<std::int64_t, std::int64_t>> count_points(const BlockOp& op) {
  std::int64_t points = 1;
  for (const OpDim& dim : op.op.dims) {
    if (!dim.reduced) continue;
    const auto extent = exact_extent(dim);
    if (!extent) return std::nullopt;
    points *= *extent;
  }
  const std::int64_t columns = *exact_extent(op.op.dims[op.column]);
  if (columns % (std::int64_t{op.layout.lanes} * op.layout.vector) != 0) return std::nullopt;
  return std::pair{points, points / (op.layout.lanes / 32)};
}

class Joiner {
 public:
  Joiner(BlockPlan& plan, const Composite& composite) : plan_(plan), composite_(composite) {}

  void join(const BlockNode& sequence) {
    const auto pair = find_pair(plan_, composite_, sequence.children);
    if (!pair) return;
    const int lead = sequence.children[pair->lead].op, follower = sequence.children[pair->follower].op;
    if (!fit(lead, follower) || !is_private(sequence, *pair)) return;
    FusedReduction fused{lead, composite_.followers.front().correction, composite_.view, composite_.corrected_by(), 0};
    if (counts_points(composite_)) {
      const auto points = count_points(plan_.ops[follower]);
      if (!points) return;
      fused.points = points->second;
      for (ScalarExpr* expr : {&fused.correction, &fused.view, &fused.reference})
        *expr = substitute_scalars(*expr, {{"n_total", ScalarExpr::constant(static_cast<double>(points->first))}});
    }
    for (std::size_t k = pair->lead + 1; k <= pair->follower; ++k) apply_view(fused, plan_.ops[sequence.children[k].op]);
    plan_.ops[follower].fused = fused;
    plan_.ops[lead].deferred = true;
    for (BlockOp& op : plan_.ops) {
      if (means_warp_lead(op.op.value) && reads(op, plan_.ops[lead].op.write.buffer)) op.warp_lead = lead;
    }
  }

 private:
  /// Two whole reductions over the same columns, spread over the same warps, with results in registers.
  bool fit(int lead, int follower) const {
    const BlockOp &a = plan_.ops[lead], &b = plan_.ops[follower];
    const auto whole = [&](const BlockOp& op) {
      return op.crosses_warps() && op.op.reduction && op.op.initialize && !op.op.guard.defined() && op.divided < 0 &&
             plan_.in_registers(op.op.write) && op.sum_type() == ElementType::f32;
    };
    return whole(a) && whole(b) && b.op.reduction == ReductionOp::add && a.layout == b.layout && a.unroll_rows == b.unroll_rows &&
           a.row_bound() == b.row_bound() && a.rows.size() == b.rows.size() && a.column_bound() == b.column_bound();
  }

  /// Nobody but mediators and the follower sees what is a warp's own: the lead's value until the follower ends, and what mediators
  /// write. All of it is in registers of the threads that read it.
  bool is_private(const BlockNode& sequence, const Pair& pair) const {
    const BlockOp& lead = op_at(sequence, pair.lead);
    const int buffer = lead.op.write.buffer;
    std::vector<int> own;
    for (std::size_t k = pair.lead + 1; k < pair.follower; ++k) {
      const BlockOp& op = op_at(sequence, k);
      if (op.op.write.buffer == buffer) return false;
      if (is_mediator(composite_, op.op.name)) {
        if (!plan_.in_registers(op.op.write) || op.crosses_warps() || !(op.layout == lead.layout)) return false;
        own.push_back(op.op.write.buffer);
      } else if (reads(op, buffer)) {
        return false;
      }
    }
    const bool seen = std::any_of(plan_.ops.begin(), plan_.ops.end(), [&](const BlockOp& op) {
      const bool belongs = is_mediator(composite_, op.op.name) || op.op.name == composite_.followers.front().statement ||
                           means_warp_lead(op.op.value);
      return !belongs && std::any_of(own.begin(), own.end(), [&](int tile) { return touches(op, tile); });
    });
    bool written = false;
    return !seen && follow_write(plan_.root, buffer, written);
  }

  const BlockOp& op_at(const BlockNode& sequence, std::size_t child) const { return plan_.ops[sequence.children[child].op]; }

  /// Does every reader of the buffer come after a writer? Else it reads what the trip before left there.
  bool follow_write(const BlockNode& node, int buffer, bool& written) const {
    if (is_op(node)) {
      const BlockOp& op = plan_.ops[node.op];
      if (!written && reads(op, buffer)) return false;
      written = written || op.op.write.buffer == buffer;
    }
    return std::all_of(node.children.begin(), node.children.end(),
                       [&](const BlockNode& child) { return follow_write(child, buffer, written); });
  }

  /// What reads the lead sees it as the composite's view shows a warp's value.
  void apply_view(const FusedReduction& fused, BlockOp& op) const {
    const int buffer = plan_.ops[fused.lead].op.write.buffer;
    op.op.value = op.op.value.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read || op.op.reads[node.ordinal()].buffer != buffer) return node;
      return substitute_scalars(fused.view, {{"m", node}, {"n", ScalarExpr::constant(static_cast<double>(fused.points))}});
    });
  }

  BlockPlan& plan_;
  const Composite& composite_;
};

}  // namespace

bool are_independent(const BlockOp& a, const BlockOp& b) {
  return !touches(b, a.op.write.buffer) && !reads(a, b.op.write.buffer);
}

TileOp with_dims_of(const TileOp& like, const TileOp& op) {
  std::map<std::string, IntExpr> dims;
  for (std::size_t d = 0; d < std::min(op.dims.size(), like.dims.size()); ++d)
    dims.emplace(op.dims[d].var, IntExpr::variable(like.dims[d].var));
  return rewrite(op, [&](const IntExpr& expr) { return substitute_all(expr, dims); });
}

void gather_followers(BlockPlan& plan) {
  if (plan.program->composites.empty()) return;
  flatten(plan.root);
  for (const Composite& composite : plan.program->composites)
    for_each_sequence(plan.root, [&](BlockNode& node) { move_behind(plan, composite, node.children); });
  reorder(plan);
  for (const Composite& composite : plan.program->composites)
    for_each_sequence(plan.root, [&](BlockNode& node) { reuse_terms(plan, composite, node.children); });
  reorder(plan);
}

void join_reductions(BlockPlan& plan) {
  for (const Composite& composite : plan.program->composites)
    for_each_sequence(plan.root, [&](BlockNode& node) { Joiner(plan, composite).join(node); });
  // Where that was not possible, all warps have the same value.
  for (BlockOp& op : plan.ops) {
    if (op.warp_lead >= 0 || !means_warp_lead(op.op.value)) continue;
    const int row = static_cast<int>(op.op.reads.size()) - 1;
    op.op.value = substitute_scalars(op.op.value, {{kWarpLead, ScalarExpr::read(row, ElementType::f32)}});
  }
}

}  // namespace nestor::nvptx
