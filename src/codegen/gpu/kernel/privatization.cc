// Finding temporaries that a block has for itself, and rewriting what touches them.
#include "codegen/gpu/kernel/privatization.h"

#include "codegen/gpu/kernel/part_sums.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/conditions.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "codegen/tile/build/op_builder.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

namespace nestor::nvptx {
namespace {

TileOp without_single_values(TileOp op) {
  for (std::size_t d = op.dims.size(); d-- > 0;) {
    const OpDim dim = op.dims[d];
    if (exact_extent(dim) != 1) continue;
    op.dims.erase(op.dims.begin() + static_cast<std::ptrdiff_t>(d));
    op = rewrite(op, [&](const IntExpr& expr) { return expr.substitute(dim.var, dim.lower); });
    classify(op);
  }
  return op;
}

TileTree simplified(const TileTree& tree) {
  auto result = std::make_shared<TileNode>(*tree);
  if (tree->kind == TileNode::Kind::op) result->op = without_single_values(tree->op);
  for (TileTree& child : result->children) child = simplified(child);
  return result;
}

/// One access of an op in the block.
struct OpAccess {
  const TileOp* op;
  const TileAccess* access;
  bool writes;
  bool in_loop;
};

void collect(const TileTree& tree, int buffer, bool in_loop, std::vector<OpAccess>& touches) {
  if (tree->kind == TileNode::Kind::op) {
    for (const TileAccess& read : tree->op.reads) {
      if (read.buffer == buffer) touches.push_back({&tree->op, &read, false, in_loop});
    }
    if (tree->op.write.buffer == buffer) touches.push_back({&tree->op, &tree->op.write, true, in_loop});
  }
  const bool inside = in_loop || tree->kind != TileNode::Kind::sequence;
  for (const TileTree& child : tree->children) collect(child, buffer, inside, touches);
}

/// Where an index starts in a block, and the dim of the access's op that runs from there; -1: none does.
struct IndexOrigin {
  IntExpr origin;
  int dim = -1;
};

std::optional<IndexOrigin> place_of(const TileOp& op, const IntExpr& index) {
  IndexOrigin place{index, -1};
  for (int d = 0; d < static_cast<int>(op.dims.size()); ++d) {
    const std::string& var = op.dims[d].var;
    if (!index.uses(var)) continue;
    if (place.dim >= 0 || index.coefficient(var) != 1) return std::nullopt;
    place = {index.substitute(var, IntExpr(0)), d};
  }
  return place;
}

std::optional<std::vector<IndexOrigin>> places_of(const OpAccess& touch) {
  std::vector<IndexOrigin> places;
  for (const IntExpr& index : touch.access->index) {
    const auto place = place_of(*touch.op, index);
    if (!place) return std::nullopt;
    places.push_back(*place);
  }
  return places;
}

/// Is `a` at most `b` at all sizes, which are positive?
bool at_most(const IntExpr& a, const IntExpr& b, const std::vector<std::string>& sizes) {
  const Affine more = affine_of(b - a);
  return more.constant >= 0 && std::all_of(more.terms.begin(), more.terms.end(), [&](const auto& term) {
           return term.second >= 0 && std::find(sizes.begin(), sizes.end(), term.first) != sizes.end();
         });
}

/// Are the values of `dim` among those of `all`, whose bounds follow variables of another op? `named`: what they are in the dim's.
bool within(const OpDim& dim, OpDim all, const std::map<std::string, std::string>& named, const std::vector<std::string>& sizes) {
  for (const auto& [theirs, own] : named) {
    all.lower = all.lower.substitute(theirs, IntExpr::variable(own));
    all.upper = all.upper.substitute(theirs, IntExpr::variable(own));
  }
  if (!never_negative(dim) || (!all.lower.is_constant(0) && affine_of(dim.lower) != affine_of(all.lower))) return false;
  std::vector<IntExpr> uppers, wanted;
  split_terms(dim.upper, IntOp::min, uppers);
  split_terms(all.upper, IntOp::min, wanted);
  return std::all_of(wanted.begin(), wanted.end(), [&](const IntExpr& want) {
    return std::any_of(uppers.begin(), uppers.end(), [&](const IntExpr& has) { return at_most(has, want, sizes); });
  });
}

class Mover {
 public:
  Mover(TileTree body, TileProgram& program) : body_(std::move(body)), program_(program) {}

  TileTree run() {
    for_each_op(program_.root, [&](const TileOp& op, bool) {
      count(op, uses_);
      names_.insert(op.name);
    });
    body_ = simplified(body_);
    move_all(false);
    for_each_op(body_, [&](const TileOp& op, bool) { count(op, kernel_); });
    return with_products_moved(body_);
  }

 private:
  /// Moves what it may of the body. `products`: only what products of matrices write.
  void move_all(bool products) {
    own_.clear();
    for_each_op(body_, [&](const TileOp& op, bool) { count(op, own_); });
    std::set<int> multiplied;
    for_each_op(body_, [&](const TileOp& op, bool) {
      if (sums_products(op)) multiplied.insert(op.write.buffer);
    });
    std::vector<TileTree> stores;
    for (const auto& [buffer, accesses] : own_) {
      if (program_.buffers[buffer].memory != Memory::workspace) continue;  // moved already, further inside
      const bool wanted = !products || (multiplied.contains(buffer) && kernel_.at(buffer) == accesses);
      if (wanted) move(buffer, stores);
    }
    if (stores.empty()) return;
    stores.insert(stores.begin(), body_);
    body_ = make_sequence(std::move(stores));
  }

  /// Sums of products that begin and end within a loop or under a condition are stored in there: tensor cores add up in registers alone.
  TileTree with_products_moved(const TileTree& tree) {
    if (tree->kind == TileNode::Kind::op) return tree;
    auto result = std::make_shared<TileNode>(*tree);
    for (TileTree& child : result->children) child = with_products_moved(child);
    if (tree->kind == TileNode::Kind::sequence) return result;
    body_ = make_sequence(std::move(result->children));
    move_all(true);
    result->children = {body_};
    return result;
  }

  static void count(const TileOp& op, std::map<int, int>& uses) {
    ++uses[op.write.buffer];
    for (const TileAccess& read : op.reads) ++uses[read.buffer];
  }

  void move(int buffer, std::vector<TileTree>& stores) {
    std::vector<OpAccess> touches;
    collect(body_, buffer, false, touches);
    const OpAccess& first = touches.front();  // a read of an op comes before its write
    const bool used_elsewhere = uses_[buffer] != own_[buffer];
    const bool adds = first.op->reduction && !first.op->initialize;
    if (!first.writes || adds || (first.in_loop && used_elsewhere)) return;
    if (used_elsewhere && !guards_elements(*first.op)) return;
    if (touches.size() == 1 && first.op->kind == OpKind::copy) return;  // what is stored has a place of its own already
    const auto places = places_of(first);
    if (!places ||
        !std::all_of(touches.begin(), touches.end(), [&](const OpAccess& touch) { return fits(touch, first, *places); }))
      return;
    const TileOp start = *first.op;
    if (stores_sum(start, touches)) {
      body_ = moved(without(body_, first.op), buffer, start.reads[0].buffer);
      if (used_elsewhere) stores.push_back(make_op(start));
      return;
    }
    const int scratch = add_scratch(buffer, start, *places);
    const TileAccess place = start.write;
    body_ = moved(body_, buffer, scratch);
    if (!used_elsewhere) return;
    TileOp store;
    store.kind = OpKind::copy;
    store.name = "store " + program_.buffers[buffer].tensor;
    std::copy_if(start.dims.begin(), start.dims.end(), std::back_inserter(store.dims), [&](const OpDim& dim) {
      return std::any_of(place.index.begin(), place.index.end(), [&](const IntExpr& index) { return index.uses(dim.var); });
    });
    store.guard = start.guard;
    store.write = place;
    store.reads = {element(start, place, scratch)};
    store.value = ScalarExpr::read(0, program_.buffers[buffer].type);
    stores.push_back(make_op(std::move(store)));
  }

  /// Does the op store what a loop has added up in registers (promote_to_registers), for readers alone? These read it where it is.
  bool stores_sum(const TileOp& op, const std::vector<OpAccess>& touches) const {
    const bool added = op.kind == OpKind::copy && op.reads.size() == 1 && !op.guard.defined() && !names_.contains(op.name);
    if (!added || uses_.contains(op.reads[0].buffer) || program_.buffers[op.reads[0].buffer].memory != Memory::scratch)
      return false;
    const std::vector<IntExpr>&sum = op.reads[0].index, own = element(op, op.write, op.reads[0].buffer).index;
    const auto same = [](const IntExpr& a, const IntExpr& b) { return affine_of(a) == affine_of(b); };
    return std::equal(sum.begin(), sum.end(), own.begin(), own.end(), same) &&
           std::count_if(touches.begin(), touches.end(), [](const OpAccess& touch) { return touch.writes; }) == 1;
  }

  static TileTree without(const TileTree& tree, const TileOp* op) {
    auto result = std::make_shared<TileNode>(*tree);
    std::erase_if(result->children, [&](const TileTree& child) { return &child->op == op; });
    for (TileTree& child : result->children) child = without(child, op);
    return result;
  }

  /// Does the guard, if any, say which elements the op writes? Then others have no value, and stay as they are.
  static bool guards_elements(const TileOp& op) {
    if (!op.guard.defined()) return true;
    return std::all_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) {
      return !op.guard.uses(dim.var) ||
             std::any_of(op.write.index.begin(), op.write.index.end(), [&](const IntExpr& index) { return index.uses(dim.var); });
    });
  }

  /// Does the access stay among the elements that `first` writes?
  bool fits(const OpAccess& touch, const OpAccess& first, const std::vector<IndexOrigin>& all) const {
    const auto places = places_of(touch);
    if (!places || touch.in_loop < first.in_loop) return false;
    std::map<std::string, std::string> named;  // dims of the first op by the touch's
    for (std::size_t p = 0; p < all.size(); ++p) {
      if (all[p].dim >= 0 && (*places)[p].dim >= 0)
        named.emplace(first.op->dims[all[p].dim].var, touch.op->dims[(*places)[p].dim].var);
    }
    for (std::size_t p = 0; p < all.size(); ++p) {
      const IndexOrigin &own = (*places)[p], &written = all[p];
      if (affine_of(own.origin) != affine_of(written.origin) || (own.dim < 0) != (written.dim < 0)) return false;
      if (own.dim < 0) continue;
      const OpDim& dim = touch.op->dims[own.dim];
      const OpDim& start = first.op->dims[written.dim];
      if (!extent_bound(start) || !within(dim, start, named, program_.sizes)) return false;
    }
    return true;
  }

  int add_scratch(int buffer, const TileOp& start, const std::vector<IndexOrigin>& places) {
    const Buffer& place = program_.buffers[buffer];
    Buffer scratch;
    scratch.name = place.name + "_own";
    scratch.tensor = place.tensor;
    scratch.type = place.type;
    scratch.memory = Memory::scratch;
    for (const IndexOrigin& index : places)
      scratch.extents.emplace_back(index.dim < 0 ? 1 : *extent_bound(start.dims[index.dim]));
    program_.buffers.push_back(std::move(scratch));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  /// What an access of the op becomes: its dims alone.
  static TileAccess element(const TileOp& op, const TileAccess& access, int scratch) {
    TileAccess own{scratch, {}};
    for (const IntExpr& index : access.index) {
      const auto place = place_of(op, index);
      own.index.push_back(place->dim < 0 ? IntExpr(0) : IntExpr::variable(op.dims[place->dim].var));
    }
    return own;
  }

  static TileTree moved(const TileTree& tree, int buffer, int scratch) {
    auto result = std::make_shared<TileNode>(*tree);
    if (tree->kind == TileNode::Kind::op) {
      TileOp& op = result->op;
      for (TileAccess& read : op.reads) {
        if (read.buffer == buffer) read = element(op, read, scratch);
      }
      if (op.write.buffer == buffer) op.write = element(op, op.write, scratch);
    }
    for (TileTree& child : result->children) child = moved(child, buffer, scratch);
    return result;
  }

  TileTree body_;
  TileProgram& program_;
  std::set<std::string> names_;             ///< of the program's ops
  std::map<int, int> uses_, kernel_, own_;  ///< by buffer: accesses in the program, in the block and in the part of it at hand
};

}  // namespace

TileTree privatized(const TileTree& body, TileProgram& program) {
  bool any = false;
  for_each_op(body, [&](const TileOp& op, bool) { any = any || program.buffers[op.write.buffer].memory == Memory::workspace; });
  return any ? Mover(body, program).run() : body;
}

}  // namespace nestor::nvptx
