// The plan's tree beside the kernel's body: the same ops at the same iterations, in an order that keeps what depends on each other.
#include "codegen/gpu/simt/proof/block_paths.h"
#include "poly/nest/composite_correction.h"
#include "support/substitution.h"

#include <deque>
#include <map>
#include <set>

namespace nestor::nvptx {
namespace {

/// One op of the body and those of the plan that compute it.
struct Match {
  OpPath body, plan;
  int position = -1;   ///< of the plan's op in the tree; -1: left out
  bool moved = false;  ///< a copy made once for all trips, or ahead
  bool missing() const { return position < 0; }
};

class TreeProver {
 public:
  explicit TreeProver(BlockProof& proof) : proof_(proof) {}

  void run() {
    match();
    if (!proof_.good()) return;
    for (const Match& match : matches_) match.missing() ? left_out(match) : content(match);
    copies_ahead();
    work_tiles();
    order();
  }

 private:
  const std::string& name(const Match& match) const { return match.body.op->name; }
  const BlockOp& op(const Match& match) const { return proof_.op(match.plan.number); }

  bool is_lasting(int op) const { return proof_.plan.lasting.count(proof_.op(op).op.write.buffer) != 0; }

  /// The n-th op of the body with this name and element is the n-th of the plan.
  void match() {
    std::vector<bool> taken(proof_.sites.size(), false);
    for (OpPath& body : body_paths(proof_.plan.kernel->body)) {
      Match match;
      std::string difference;
      for (std::size_t k = 0; k < proof_.sites.size() && match.missing(); ++k) {
        const BlockOp& candidate = proof_.op(proof_.sites[k].op);
        if (taken[k] || candidate.ahead != 0 || candidate.op.name != body.op->name ||
            candidate.op.write.buffer != body.op->write.buffer)
          continue;
        OpPath plan = plan_path(proof_, proof_.sites[k]);
        const bool lasting = is_lasting(proof_.sites[k].op);
        OpPath terms = body;
        difference = candidate.prefix ? as_prefix(*candidate.prefix, terms) : "";
        if (difference.empty()) difference = path_difference(terms, plan, 0, lasting);
        if (!difference.empty()) continue;
        body = std::move(terms);
        taken[k] = true;
        match.plan = std::move(plan);
        match.position = static_cast<int>(k);
        match.moved = lasting || is_ahead(candidate.op.write.buffer);
      }
      if (match.missing() && !difference.empty()) proof_.fail("{}: {}", body.op->name, difference);
      match.body = std::move(body);
      matches_.push_back(std::move(match));
    }
    for (std::size_t k = 0; k < taken.size(); ++k) {
      const BlockOp& extra = proof_.op(proof_.sites[k].op);
      if (!taken[k] && extra.ahead == 0) proof_.fail("{} is not in the kernel's body", extra.op.name);
    }
    for (const Match& match : matches_) {
      if (match.missing()) removed_.insert(match.body.op->write.buffer);
    }
  }

  /// The path of the body's op to its terms, where the plan has prefix sums.
  std::string as_prefix(const PrefixPlan& prefix, OpPath& path) {
    TileOp terms;
    if (std::string why = prefix_difference(proof_, *path.op, prefix, terms); !why.empty()) return why;
    prefix_terms_.push_back(std::move(terms));
    path.op = &prefix_terms_.back();
    std::erase_if(path.loops, [](const PathLoop& loop) { return loop.node == nullptr; });
    for (const OpDim& dim : path.op->dims) path.loops.push_back({dim.var, dim.lower, dim.upper, 1, nullptr, dim.reduced, false});
    return "";
  }

  bool is_ahead(int buffer) const {
    return std::any_of(proof_.plan.ops.begin(), proof_.plan.ops.end(),
                       [&](const BlockOp& op) { return op.ahead > 0 && op.op.write.buffer == buffer; });
  }

  // ---- what an op does

  void content(const Match& match) {
    const TileOp &body = *match.body.op, &plan = *match.plan.op;
    const bool same_fill = body.fill == plan.fill || (body.fill && plan.fill && *body.fill == *plan.fill);
    if (body.kind != plan.kind || !same_expr(body.guard, plan.guard) || !same_access(body.write, plan.write) ||
        body.reduction != plan.reduction || body.initialize != plan.initialize || !same_fill)
      return proof_.fail("{} is another op than the body's", name(match));
    if (!std::equal(body.indices.begin(), body.indices.end(), plan.indices.begin(), plan.indices.end(), same_expr))
      return proof_.fail("{} has other numbers as values", name(match));
    dims(match);
    reads(match);
    if (match.moved) moved(match);
  }

  /// Dims that are left keep their order and meaning; a sum that starts anew has its reduced dims to itself.
  void dims(const Match& match) {
    const TileOp &body = *match.body.op, &plan = *match.plan.op;
    std::size_t at = 0;
    for (const OpDim& dim : body.dims) {
      const bool here = at < plan.dims.size() && plan.dims[at].var == dim.var;
      if (here && plan.dims[at].reduced != dim.reduced) proof_.fail("{}: {} is summed over, or not", name(match), dim.var);
      if (!here && dim.reduced && plan.initialize) proof_.fail("{} starts its sum again for each {}", name(match), dim.var);
      at += here ? 1 : 0;
    }
    if (at != plan.dims.size()) proof_.fail("{}: its dims have changed places", name(match));
  }

  void reads(const Match& match) {
    const TileOp &body = *match.body.op, &plan = *match.plan.op;
    const std::size_t extra = std::count_if(body.reads.begin(), body.reads.end(),
                                            [&](const TileAccess& read) { return removed_.count(read.buffer) != 0; });
    if (plan.reads.size() != body.reads.size() + extra) return proof_.fail("{} reads something else", name(match));
    std::map<int, int> lead_reads;  // by ordinal of a read of what is left out: that of the lead
    for (std::size_t k = 0; k < body.reads.size(); ++k) {
      const bool reused = removed_.count(body.reads[k].buffer) != 0;
      if (reused) lead_reads[static_cast<int>(k)] = static_cast<int>(body.reads.size() + lead_reads.size());
      if (!reused && !same_access(body.reads[k], plan.reads[k])) return proof_.fail("{} reads something else", name(match));
    }
    if (!plan.value.equals(expected_value(match, lead_reads))) proof_.fail("{} has another value than in the body", name(match));
    for (const auto& [read, lead] : lead_reads) reused_read(match, read, lead);
  }

  /// The fused reduction between whose ops this one stands, behind the lead; null: none.
  const FusedReduction* fused_around(const Match& match) const {
    for (const OpSite& site : proof_.sites) {
      const BlockOp& follower = proof_.op(site.op);
      if (!follower.fused) continue;
      const OpSite& lead = proof_.site(follower.fused->lead);
      const auto place = [&](const OpSite& at) { return static_cast<int>(&at - proof_.sites.data()); };
      if (site.around == proof_.sites[match.position].around && match.position > place(lead) && match.position <= place(site))
        return &*follower.fused;
    }
    return nullptr;
  }

  const Composite* composite_of_reuse(int buffer) const {
    const auto found = reused_.find(buffer);
    return found == reused_.end() ? nullptr : found->second;
  }

  /// The body's value, seen as the rule of a fused reduction shows the lead.
  ScalarExpr expected_value(const Match& match, const std::map<int, int>& lead_reads) {
    const FusedReduction* fused = fused_around(match);
    return match.body.op->value.rewrite([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::read) return node;
      const int buffer = match.body.op->reads[node.ordinal()].buffer;
      const auto lead = lead_reads.find(node.ordinal());
      if (lead != lead_reads.end()) return corrected(match, node, lead->second, buffer);
      if (fused == nullptr || buffer != proof_.op(fused->lead).op.write.buffer) return node;
      return substitute_scalars(fused->view, {{"m", node}, {"n", ScalarExpr::constant(static_cast<double>(fused->points))}});
    });
  }

  ScalarExpr corrected(const Match& match, const ScalarExpr& node, int lead_read, int buffer) {
    const Composite* composite = reuse_of(buffer);
    if (composite == nullptr) return node;
    const ScalarExpr final_lead = ScalarExpr::read(lead_read, ElementType::f32);
    const ScalarExpr own_lead = op(match).warp_lead >= 0 ? ScalarExpr::scalar(kWarpLead, ElementType::f32) : final_lead;
    return substitute_scalars(settled_correction(*composite), {{"r", node}, {"m_old", own_lead}, {"m_new", final_lead}});
  }

  // ---- terms that are computed once

  /// The composite whose mediator has the terms of an op that was left out.
  const Composite* reuse_of(int buffer) {
    if (const Composite* known = composite_of_reuse(buffer)) return known;
    for (const Match& match : matches_) {
      if (!match.missing() || match.body.op->write.buffer != buffer) continue;
      for (const Composite& composite : proof_.plan.program->composites) {
        if (composite.followers.size() == 1 && mediator_of(match, composite) != nullptr) return reused_[buffer] = &composite;
      }
    }
    return nullptr;
  }

  /// The op that has the same terms with the running lead.
  const Match* mediator_of(const Match& left_out, const Composite& composite) const {
    const auto& names = composite.mediators;
    for (const Match& match : matches_) {
      const TileOp &a = *match.body.op, &b = *left_out.body.op;
      if (match.missing() || std::count(names.begin(), names.end(), a.name) == 0) continue;
      if (a.reduction || b.reduction || a.guard.defined() || b.guard.defined() || a.dims.size() != b.dims.size() ||
          a.reads.size() != b.reads.size() || a.indices.size() != b.indices.size() || !a.value.equals(b.value))
        continue;
      bool same = true;
      for (std::size_t d = 0; d < a.dims.size(); ++d)
        same = same && same_expr(a.dims[d].lower, b.dims[d].lower) && same_expr(a.dims[d].upper, b.dims[d].upper);
      for (std::size_t k = 0; k < a.reads.size(); ++k) same = same && same_access(a.reads[k], renamed(b.reads[k], b, a));
      for (std::size_t k = 0; k < a.indices.size(); ++k) same = same && same_expr(a.indices[k], renamed(b.indices[k], b, a));
      if (same) return &match;
    }
    return nullptr;
  }

  static IntExpr renamed(const IntExpr& expr, const TileOp& from, const TileOp& to) {
    std::map<std::string, IntExpr> dims;
    for (std::size_t d = 0; d < from.dims.size(); ++d) dims.emplace(from.dims[d].var, IntExpr::variable(to.dims[d].var));
    return substitute_all(expr, dims);
  }
  static TileAccess renamed(TileAccess access, const TileOp& from, const TileOp& to) {
    for (IntExpr& index : access.index) index = renamed(index, from, to);
    return access;
  }

  void left_out(const Match& match) {
    if (reuse_of(match.body.op->write.buffer) == nullptr) proof_.fail("{} is not in the plan", name(match));
    for (const Match& other : matches_) {
      if (&other != &match && other.body.op->write.buffer == match.body.op->write.buffer)
        proof_.fail("{} is left out, and its element is written by {}", name(match), name(other));
    }
  }

  /// In place of the element that was left out, the mediator's and the lead's at the same place.
  void reused_read(const Match& match, int read, int lead_read) {
    const TileAccess& old = match.body.op->reads[read];
    const Composite* composite = reuse_of(old.buffer);
    if (composite == nullptr) return;
    for (const Match& left_out : matches_) {
      if (!left_out.missing() || left_out.body.op->write.buffer != old.buffer) continue;
      const Match* mediator = mediator_of(left_out, *composite);
      const TileOp& terms = *mediator->body.op;
      const auto lead =
          std::find_if(matches_.begin(), matches_.end(), [&](const Match& m) { return name(m) == composite->lead; });
      const auto lead_access = std::find_if(terms.reads.begin(), terms.reads.end(), [&](const TileAccess& access) {
        return lead != matches_.end() && access.buffer == lead->body.op->write.buffer;
      });
      if (lead_access == terms.reads.end()) return proof_.fail("{}: {} does not read its lead", name(match), terms.name);
      const TileAccess place = renamed(left_out.body.op->write, *left_out.body.op, terms);
      std::map<std::string, IntExpr> point;
      for (std::size_t d = 0; d < place.index.size(); ++d) {
        if (place.index[d].op() == IntOp::variable) point.emplace(place.index[d].name(), old.index[d]);
      }
      const auto there = [&](TileAccess access) {
        for (IntExpr& index : access.index) index = substitute_all(index, point);
        return access;
      };
      const TileOp& plan = *match.plan.op;
      if (!same_access(plan.reads[read], there(terms.write)) || !same_access(plan.reads[lead_read], there(*lead_access)))
        proof_.fail("{} does not read the terms of {} at its own place", name(match), terms.name);
    }
  }

  // ---- copies that have moved

  /// A copy of an input that only it writes there; one made once is the same at every trip.
  void moved(const Match& match) {
    const TileOp& copy = *match.plan.op;
    const Buffer& to = proof_.plan.buffer(copy.write.buffer);
    const bool staged = copy.kind == OpKind::copy && copy.reads.size() == 1 && to.memory == Memory::scratch &&
                        proof_.plan.buffer(copy.reads[0].buffer).memory == Memory::argument;
    if (!staged) return proof_.fail("{} has moved and is no copy of an argument", name(match));
    for (const BlockOp& other : proof_.plan.ops) {
      if (other.op.write.buffer == copy.reads[0].buffer) proof_.fail("{} copies what {} writes", name(match), other.op.name);
      if (other.op.write.buffer == copy.write.buffer && other.op.name != copy.name)
        proof_.fail("{} and {} write {}", name(match), other.op.name, to.name);
    }
    for (const PathLoop& loop : match.body.loops) {
      const bool left = loop.node != nullptr && std::none_of(match.plan.loops.begin(), match.plan.loops.end(),
                                                             [&](const PathLoop& other) { return other.var == loop.var; });
      if (left && uses(copy, loop.var)) proof_.fail("{} is made once, and differs with {}", name(match), loop.var);
    }
    const auto& around = proof_.sites[match.position].around;
    const bool of_work_tile =
        std::any_of(around.begin(), around.end(), [](const BlockNode* node) { return node->var == kWorkTile; });
    for (const GridLoop& loop : proof_.plan.kernel->grid) {
      if (proof_.persistent() && !of_work_tile && uses(copy, loop.var))
        proof_.fail("{} is made once, and differs with {}", name(match), loop.var);
    }
  }

  static bool uses(const TileOp& op, const std::string& var) {
    const auto in = [&](const IntExpr& expr) { return expr.defined() && expr.uses(var); };
    const auto in_access = [&](const TileAccess& access) { return std::any_of(access.index.begin(), access.index.end(), in); };
    return in(op.guard) || in_access(op.write) || std::any_of(op.reads.begin(), op.reads.end(), in_access) ||
           std::any_of(op.indices.begin(), op.indices.end(), in) ||
           std::any_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) { return in(dim.lower) || in(dim.upper); });
  }

  /// Copies ahead are those of the body, so many trips early.
  void copies_ahead() {
    for (const OpSite& site : proof_.sites) {
      const BlockOp& early = proof_.op(site.op);
      if (early.ahead == 0) continue;
      const auto own = std::find_if(matches_.begin(), matches_.end(), [&](const Match& match) {
        return !match.missing() && match.body.op->write.buffer == early.op.write.buffer && name(match) == early.op.name;
      });
      if (own == matches_.end()) return proof_.fail("{} is not in the kernel's body", early.op.name);
      const std::string difference = path_difference(own->body, plan_path(proof_, site), early.ahead, false);
      if (!difference.empty()) proof_.fail("{}, {} trips ahead: {}", early.op.name, early.ahead, difference);
      const TileOp& copy = *own->plan.op;
      if (early.op.reads.size() != 1 || !same_access(early.op.reads[0], copy.reads[0]) ||
          !same_access(early.op.write, copy.write))
        proof_.fail("{}, {} trips ahead, copies something else", early.op.name, early.ahead);
    }
  }

  /// The work tile around each op of a resident block is that of its trip.
  void work_tiles() {
    prove_work_tiles(proof_);
    if (!proof_.persistent()) return;
    for (const OpSite& site : proof_.sites) {
      const BlockNode* work_tile = nullptr;
      for (const BlockNode* node : site.around) work_tile = node->var == kWorkTile ? node : work_tile;
      const BlockOp& op = proof_.op(site.op);
      const IntExpr trip = IntExpr::variable(kTrip) + IntExpr(op.ahead);
      const IntExpr number = IntExpr::variable(kBlockNumber) + IntExpr::variable(kBlockCount) * trip;
      if (work_tile == nullptr ? !is_lasting(site.op) : !same_expr(work_tile->lower, number))
        proof_.fail("{} is not at the work tile of its trip", op.op.name);
    }
  }

  // ---- order

  void order() {
    for (std::size_t i = 0; i < matches_.size(); ++i) {
      for (std::size_t j = i + 1; j < matches_.size(); ++j) {
        const Match &a = matches_[i], &b = matches_[j];
        if (a.missing() || b.missing() || a.moved || b.moved) continue;
        if (a.position > b.position && meet(*a.plan.op, *b.plan.op))
          proof_.fail("{} comes after {}, which needs it before", name(a), name(b));
        if (common_loops(a.body, b.body) != common_loops(a.plan, b.plan))
          proof_.fail("{} and {} are in other loops together than in the body", name(a), name(b));
      }
    }
  }

  static bool meet(const TileOp& a, const TileOp& b) {
    const auto reads = [](const TileOp& op, int buffer) {
      return std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
    };
    return a.write.buffer == b.write.buffer || reads(a, b.write.buffer) || reads(b, a.write.buffer);
  }

  BlockProof& proof_;
  std::vector<Match> matches_;
  std::deque<TileOp> prefix_terms_;
  std::set<int> removed_;  ///< buffers whose op was left out
  std::map<int, const Composite*> reused_;
};

}  // namespace

void prove_tree(BlockProof& proof) { TreeProver(proof).run(); }

}  // namespace nestor::nvptx
