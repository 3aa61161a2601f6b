// Reductions: that the combination of lanes, warps, groups and blocks has each thread's part once; fused reductions, whose lead is a warp's
// own value for a while.
#include "codegen/gpu/simt/proof/block_vectors.h"

#include <functional>
#include <map>
#include <set>

namespace nestor::nvptx {
namespace {

constexpr int kWarp = 32;

class ReductionProver {
 public:
  ReductionProver(BlockProof& proof, const BlockOp& op) : proof_(proof), op_(op), layout_(op.layout) {}

  void run() {
    if (op_.product) {
      if (op_.divided >= 0 || op_.fused || op_.deferred) proof_.fail("{} is combined in two ways", name());
      return;
    }
    if (op_.chosen) chosen();
    if (op_.scattered) scattered();
    if (op_.divided >= 0) divided();
    if (op_.reduces_columns()) columns();
    if ((op_.fused || op_.deferred) && !op_.reduces_columns()) proof_.fail("{} has no results of warps to combine", name());
    if (op_.gathers && !(op_.crosses_warps() && proof_.plan.cluster > 1)) proof_.fail("{} gathers results for nobody", name());
  }

 private:
  const std::string& name() const { return op_.op.name; }
  const OpDim& dim(int d) const { return proof_.dim(op_, d); }
  bool accumulates() const { return op_.op.reduction && op_.op.kind != OpKind::points; }

  /// Every dim that is not reduced is a row (of `rows_too`) or has one value: the thread's sum is of one element.
  void one_element(bool rows_too) {
    for (int d = 0; d < static_cast<int>(op_.op.dims.size()); ++d) {
      const bool row = rows_too && op_.roles[d] == DimRole::row;
      if (d != op_.column && !row && !dim(d).reduced && !has_one_value(dim(d)))
        proof_.fail("{} adds points of several {} into one sum", name(), dim(d).var);
    }
  }

  /// Lanes that have parts of a row are the neighbours that shuffles reach, warps those that a row's place has room for. Where groups divide
  /// the points of one element, all threads have parts of it.
  void columns() {
    if (!accumulates()) proof_.fail("{} runs point by point along columns that are spread", name());
    one_element(true);
    const bool all = op_.divides();
    const int lanes = all ? layout_.threads() : layout_.lanes;
    if (lanes <= kWarp ? !is_power_of_two(lanes) : lanes % kWarp != 0)
      proof_.fail("{}: shuffles do not combine the {} lanes of a row, each once", name(), lanes);
    if (lanes <= kWarp) return;
    if (proof_.plan.cluster > 1) {
      // A warp's lanes send its result to one block each; the first warp combines what the warps of its block have gathered.
      const bool one_row = all || layout_.groups == 1;
      if (proof_.plan.cluster > kWarp || (op_.gathers && (!one_row || proof_.plan.threads / kWarp > kWarp)))
        proof_.fail("{}: the results of warps do not reach all blocks", name());
      if (op_.gathers && proof_.plan.threads % kWarp != 0) proof_.fail("{}: some warps gather nothing", name());
      if (!op_.deferred && proof_.plan.exchange_offset < 0)
        proof_.fail("{}: the cluster's blocks have no place to exchange results", name());
    }
  }

  /// Groups take points in turn; lanes of one column lie in one warp at powers of two, or fill whole warps.
  void divided() {
    const int d = op_.divided;
    if (d >= static_cast<int>(op_.op.dims.size()) || op_.roles[d] != DimRole::serial || !dim(d).reduced || !accumulates() ||
        op_.column < 0 || !op_.rows.empty())
      return proof_.fail("{}: its points cannot be divided among groups", name());
    if (!op_.divides()) return;
    one_element(false);
    if (op_.reduces_columns()) return;  // columns()
    if (proof_.plan.cluster > 1) proof_.fail("{}: groups of several blocks divide a sum", name());
    if (layout_.lanes < kWarp && !is_power_of_two(layout_.lanes))
      proof_.fail("{}: shuffles do not combine groups of {} lanes", name(), layout_.lanes);
    if (layout_.lanes > kWarp && layout_.lanes % kWarp != 0)
      proof_.fail("{}: groups of {} lanes share warps", name(), layout_.lanes);
    if (!op_.column_bound() || !op_.unroll_columns) proof_.fail("{}: a thread has no place for the sums of its columns", name());
  }

  /// Terms that are left out are the neutral element: a condition of theirs compares the dim's index with a number that they have in common.
  void chosen() {
    const ChosenTerm& term = *op_.chosen;
    const bool alone = op_.column < 0 || !dim(op_.column).reduced;
    if (!is_of_op(term) || !accumulates() || !alone || op_.divided >= 0 || op_.prefix || op_.op.guard.defined() ||
        !op_.window.empty() || op_.roles[term.dim] != DimRole::serial || !dim(term.dim).reduced)
      return proof_.fail("{}: a thread does not choose among its terms", name());
    const Affine place = affine_of(op_.op.indices[term.index]);
    for (const OpDim& each : op_.op.dims) {
      if (!each.reduced) continue;
      const bool own = &each == &op_.op.dims[term.dim];
      if (own ? !moves_by_one(place, each.var) : op_.op.indices[term.index].uses(each.var))
        return proof_.fail("{}: terms along {} have no places of their own", name(), each.var);
      if (dim(term.dim).lower.uses(each.var) || dim(term.dim).upper.uses(each.var))
        return proof_.fail("{}: its terms end where others say", name());
    }
    if (is_nonlinear(place)) return proof_.fail("{}: several of its terms may have one place", name());
    if (follows_terms(term.place)) return proof_.fail("{}: its terms do not agree which of them counts", name());
    leaves_out_neutral(term);
  }

  /// A term belongs to one sum, or to none, along a dim whose sums are one thread's each: that of all dims alike which has the element by the
  /// layout, in memory. Terms of others are the neutral element there.
  void scattered() {
    const ChosenTerm& term = *op_.scattered;
    if (!is_of_op(term) || !accumulates() || op_.chosen || op_.reduces_columns() || op_.divided >= 0 || op_.prefix ||
        op_.op.guard.defined() || !op_.window.empty() || dim(term.dim).reduced || proof_.plan.cluster > 1)
      return proof_.fail("{}: a thread does not look for the terms of its sums", name());
    const bool of_rows = op_.roles[term.dim] == DimRole::row;
    if (op_.rows.size() != (of_rows ? 1 : 0) || (of_rows && layout_.run != 1) || proof_.plan.threads % kWarp != 0)
      return proof_.fail("{}: a thread cannot tell which sums along {} are its own", name(), dim(term.dim).var);
    const OpDim& own = op_.op.dims[term.dim];
    const Affine place = affine_of(op_.op.indices[term.index]);
    if (!moves_by_one(place, own.var) || is_nonlinear(place)) return proof_.fail("{}: several sums may have one place", name());
    for (const OpDim& each : op_.op.dims) {
      if (&each == &own) continue;
      if (!each.reduced && op_.op.indices[term.index].uses(each.var))
        return proof_.fail("{}: sums along {} have places, too", name(), each.var);
      if (each.lower.uses(own.var) || each.upper.uses(own.var) || own.lower.uses(each.var) || own.upper.uses(each.var))
        return proof_.fail("{}: which terms there are hangs on their sum", name());
      const bool of_lanes = op_.column >= 0 && op_.column != term.dim;
      if (of_lanes && (each.lower.uses(dim(op_.column).var) || each.upper.uses(dim(op_.column).var)))
        return proof_.fail("{}: threads of a warp have other terms", name());
    }
    if (op_.column >= 0 && op_.column != term.dim &&
        follows(term.place, [&](const OpDim& each) { return &each == &dim(op_.column); }))
      return proof_.fail("{}: threads of a warp look for other places", name());
    if (follows(term.place, [&](const OpDim& each) { return &each == &own; }))
      return proof_.fail("{}: sums do not agree whose a term is", name());
    const auto in_memory = [&](const TileAccess& access) { return !proof_.plan.in_registers(access); };
    if (!in_memory(op_.op.write) || !std::all_of(op_.op.reads.begin(), op_.op.reads.end(), in_memory))
      return proof_.fail("{}: registers have no places that data says", name());
    if (proof_.plan.buffer(op_.op.write.buffer).type != op_.sum_type())
      return proof_.fail("{}: its sums are rounded at each term", name());
    leaves_out_neutral(term);
  }

  bool is_of_op(const ChosenTerm& term) const {
    return term.dim >= 0 && term.dim < static_cast<int>(op_.op.dims.size()) && term.index >= 0 &&
           term.index < static_cast<int>(op_.op.indices.size());
  }

  static bool moves_by_one(const Affine& place, const std::string& var) {
    const auto found = place.terms.find(var);
    return found != place.terms.end() && (found->second == 1 || found->second == -1);
  }

  static bool is_nonlinear(const Affine& place) {
    return std::any_of(place.terms.begin(), place.terms.end(), [](const auto& each) { return each.first.starts_with('['); });
  }

  void leaves_out_neutral(const ChosenTerm& term) {
    const ScalarExpr& value = op_.op.value;
    const bool neutral = value.op() == ScalarOp::select &&
                         value.args()[2].is_constant(neutral_element(*op_.op.reduction, op_.sum_type())) &&
                         asks_for(value.args()[0], term);
    if (!neutral) proof_.fail("{}: terms that are left out may count", name());
  }

  bool follows_terms(const ScalarExpr& expr) const {
    return follows(expr, [](const OpDim& each) { return each.reduced; });
  }

  /// May the number differ between points that differ in these dims alone?
  bool follows(const ScalarExpr& expr, const std::function<bool(const OpDim&)>& along) const {
    bool follows = expr.type() != ElementType::i32;
    const auto examine = [&](const IntExpr& index) {
      for (const OpDim& each : op_.op.dims) follows = follows || (along(each) && index.uses(each.var));
    };
    expr.visit([&](const ScalarExpr& node) {
      if (node.op() == ScalarOp::index) examine(op_.op.indices[node.ordinal()]);
      if (node.op() != ScalarOp::read) return;
      follows = follows || op_.op.reads[node.ordinal()].buffer == op_.op.write.buffer;
      for (const IntExpr& index : op_.op.reads[node.ordinal()].index) examine(index);
    });
    return follows;
  }

  /// Does the condition fail wherever the index is another number than the place?
  bool asks_for(const ScalarExpr& condition, const ChosenTerm& term) const {
    if (condition.op() == ScalarOp::logical_and)
      return asks_for(condition.args()[0], term) || asks_for(condition.args()[1], term);
    const auto is_index = [&](const ScalarExpr& side) { return side.op() == ScalarOp::index && side.ordinal() == term.index; };
    if (condition.op() != ScalarOp::eq) return false;
    const ScalarExpr &a = condition.args()[0], &b = condition.args()[1];
    return (is_index(a) && b.equals(term.place)) || (is_index(b) && a.equals(term.place));
  }

  BlockProof& proof_;
  const BlockOp& op_;
  const Layout& layout_;
};

bool means_warp_lead(const BlockOp& op) {
  bool found = false;
  op.op.value.visit(
      [&](const ScalarExpr& node) { found = found || (node.op() == ScalarOp::scalar && node.name() == kWarpLead); });
  return found;
}

/// Follows what is a warp's own value through the ops in the order of the tree.
class WarpValues {
 public:
  explicit WarpValues(BlockProof& proof) : proof_(proof) {}

  void run() {
    for (const OpSite& site : proof_.sites) {
      const BlockOp& op = proof_.op(site.op);
      if (op.deferred && !followed(site.op)) proof_.fail("{}: nothing combines the results of its warps", op.op.name);
      if (op.fused) pair(site.op);
    }
    // Twice: what an iteration leaves, the next one finds.
    for (int pass = 0; pass < 2 && proof_.good(); ++pass) {
      for (const OpSite& site : proof_.sites) visit(site.op);
    }
  }

 private:
  bool followed(int lead) const {
    return std::count_if(proof_.plan.ops.begin(), proof_.plan.ops.end(),
                         [&](const BlockOp& op) { return op.fused && op.fused->lead == lead; }) == 1;
  }

  const Composite* composite_of(const BlockOp& lead, const BlockOp& follower) const {
    for (const Composite& composite : proof_.plan.program->composites) {
      if (composite.lead == lead.op.name && composite.followers.size() == 1 &&
          composite.followers.front().statement == follower.op.name)
        return &composite;
    }
    return nullptr;
  }

  /// Both are whole sums over the same columns in the same threads, with their results in registers.
  void pair(int k) {
    const BlockOp& follower = proof_.op(k);
    const int l = follower.fused->lead;
    if (l < 0 || l >= static_cast<int>(proof_.plan.ops.size()) || l == k)
      return proof_.fail("{} follows no op", follower.op.name);
    const BlockOp& lead = proof_.op(l);
    const auto whole = [&](const BlockOp& op) {
      const Placement* place = proof_.plan.placement(op.op.write.buffer);
      return op.reduces_columns() && !op.divides() && op.layout.lanes > kWarp && op.op.initialize && !op.op.guard.defined() &&
             place != nullptr && place->kind == Placement::Kind::registers && op.sum_type() == ElementType::f32;
    };
    const bool alike = lead.layout == follower.layout && lead.unroll_rows == follower.unroll_rows &&
                       lead.row_bound() == follower.row_bound() && lead.rows.size() == follower.rows.size() &&
                       lead.column_bound() == follower.column_bound();
    const OpSite &first = proof_.site(l), &second = proof_.site(k);
    if (!lead.deferred || follower.deferred || lead.fused || !whole(lead) || !whole(follower) || !alike ||
        follower.op.reduction != ReductionOp::add || first.around != second.around)
      return proof_.fail("{} and {} cannot be combined as one", lead.op.name, follower.op.name);
    const Composite* composite = composite_of(lead, follower);
    if (composite == nullptr) return proof_.fail("no rule combines {} and {}", lead.op.name, follower.op.name);
    composites_[l] = composite;
    formulas(follower, *composite);
  }

  /// The composite's own formulas, with the number of points where they ask for it.
  void formulas(const BlockOp& follower, const Composite& composite) {
    const std::optional<double> total = points_of(follower);
    const auto with_total = [&](const ScalarExpr& expr) {
      return expr.rewrite([&](const ScalarExpr& node) {
        if (node.op() != ScalarOp::scalar || node.name() != "n_total" || !total) return node;
        return ScalarExpr::constant(*total);
      });
    };
    const FusedReduction& fused = *follower.fused;
    if (!fused.correction.equals(with_total(composite.followers.front().correction)) ||
        !fused.view.equals(with_total(composite.view)))
      proof_.fail("{} is not corrected as its rule says", follower.op.name);
    bool counts = false;
    const std::set<std::string> numbers{"n", "n_old", "n_total"};
    for (const ScalarExpr* expr : {&composite.view, &composite.followers.front().correction}) {
      expr->visit(
          [&](const ScalarExpr& node) { counts = counts || (node.op() == ScalarOp::scalar && numbers.count(node.name()) != 0); });
    }
    if (!counts) return;
    const std::int64_t each = std::int64_t{follower.layout.lanes} * follower.layout.vector;
    const auto columns = follower.column_bound();
    const bool equal = total && columns && *columns % each == 0;
    if (!equal || fused.points * (follower.layout.lanes / kWarp) != static_cast<std::int64_t>(*total))
      proof_.fail("{}: its warps have no {} points each", follower.op.name, fused.points);
  }

  std::optional<double> points_of(const BlockOp& op) const {
    std::int64_t points = 1;
    for (const OpDim& dim : op.op.dims) {
      const Affine length = affine_of(dim.upper) - affine_of(dim.lower);
      if (!dim.reduced) continue;
      if (!length.is_constant()) return std::nullopt;
      points *= length.constant;
    }
    return static_cast<double>(points);
  }

  /// Whose lead's value in each warp this op's reads are made from; -1: nobody's.
  void visit(int k) {
    const BlockOp& op = proof_.op(k);
    const int buffer = op.op.write.buffer;
    int lead = -1;
    for (const TileAccess& read : op.op.reads) {
      const auto found = own_.find(read.buffer);
      if (found != own_.end()) lead = found->second;
    }
    if (op.fused) {
      if (lead >= 0 && lead != op.fused->lead) proof_.fail("{} reads values of single warps", op.op.name);
      settle(op.fused->lead);
      own_.erase(buffer);
      return;
    }
    if (op.deferred) {
      own_[buffer] = k;
      open_.insert(k);
      return;
    }
    if (lead < 0) {
      own_.erase(buffer);
      if (means_warp_lead(op)) proof_.fail("{} corrects what no warp has of its own", op.op.name);
      return;
    }
    const Composite* composite = composites_.count(lead) != 0 ? composites_.at(lead) : nullptr;
    const bool mediates = composite != nullptr && open_.count(lead) != 0 && !op.crosses_warps() &&
                          proof_.plan.in_registers(op.op.write) && op.layout == proof_.op(lead).layout &&
                          std::count(composite->mediators.begin(), composite->mediators.end(), op.op.name) > 0;
    if (mediates) {
      own_[buffer] = lead;
      return;
    }
    // Behind the follower, with the correction from the warp's value to the final one.
    const bool corrected = open_.count(lead) == 0 && op.warp_lead == lead && means_warp_lead(op);
    if (!corrected)
      return proof_.fail("{} reads what single warps have made with their own value of {}", op.op.name, proof_.op(lead).op.name);
    own_.erase(buffer);
  }

  /// The lead has its final value in all threads from here on.
  void settle(int lead) {
    open_.erase(lead);
    own_.erase(proof_.op(lead).op.write.buffer);
  }

  BlockProof& proof_;
  std::map<int, const Composite*> composites_;  ///< by lead
  std::map<int, int> own_;                      ///< buffer: the lead whose warps' values its elements are made from
  std::set<int> open_;                          ///< leads before their follower's end
};

}  // namespace

void prove_reductions(BlockProof& proof) {
  for (const BlockOp& op : proof.plan.ops) ReductionProver(proof, op).run();
  const bool fused = std::any_of(proof.plan.ops.begin(), proof.plan.ops.end(), [](const BlockOp& op) {
    return op.fused || op.deferred || op.warp_lead >= 0 || means_warp_lead(op);
  });
  if (proof.good() && fused) WarpValues(proof).run();
}

}  // namespace nestor::nvptx
