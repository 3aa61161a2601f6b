// Substitution, initialisation folding, and the context as launch constraints.
#include "codegen/tile/build/program_passes.h"

#include "codegen/tile/analysis/tile_rewrite.h"
#include "codegen/tile/build/op_builder.h"
#include "codegen/tile/places/isl_convert.h"
#include "codegen/tile/seldom_sum.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/substitution.h"

#include <isl/constraint.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <set>

namespace nestor {
namespace {

void substitute(TileAccess& access, const std::string& variable, const IntExpr& value) {
  for (IntExpr& index : access.index) index = index.substitute(variable, value);
}

bool same_text(const std::vector<IntExpr>& a, const std::vector<IntExpr>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const IntExpr& x, const IntExpr& y) { return x.str() == y.str(); });
}

bool initializes(const TileOp& init, const TileOp& op) {
  if (!op.reduction || op.initialize || (op.kind != OpKind::reduce && op.kind != OpKind::contract)) return false;
  if (!init.reads.empty() || !is_constant_value(init.value, neutral_element(*op.reduction, op.value.type()))) return false;
  return starts_elements(init, op);
}

/// The reduction runs the instances of `init` as well: those at its kept dims.
void claim_start(TileOp& op, const TileOp& init) {
  op.claim.start = init.claim.statement;
  op.claim.started = init.claim.instance;
  std::map<std::string, IntExpr> dims;
  std::size_t next = 0;
  for (const OpDim& dim : op.dims) {
    if (!dim.reduced) dims.emplace(init.dims[next++].var, IntExpr::variable(dim.var));
  }
  for (IntExpr& value : op.claim.started) value = substitute_all(value, dims);
}

/// A sum of products, or of several in each term, whose terms come in tiles: on tensor cores a loop over the tiles stays, and what starts the sum
/// stands before it.
bool sums_tiles(const TileOp& op) {
  const bool products =
      op.kind == OpKind::contract || (op.kind == OpKind::reduce && contractions_of(op.value, op.reduction).size() > 1);
  return products && std::count_if(op.dims.begin(), op.dims.end(), [](const OpDim& dim) {
                       const auto length = (dim.upper - dim.lower).as_constant();
                       return dim.reduced && (!length || *length != 1);
                     }) > 1;
}

bool follows(const TileAccess& access, const OpDim& dim) {
  return std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) { return index.uses(dim.var); });
}

/// Are its terms added up where a condition on each result holds, and has it rows and columns? On tensor cores that is a sum of few elements into
/// a tile, which something else has started.
bool sums_few_elements(const TileOp& op) {
  const auto sum = seldom_sum_of(op.value, op.reduction);
  const auto kept = std::count_if(op.dims.begin(), op.dims.end(), [](const OpDim& dim) { return !dim.reduced; });
  if (!sum || kept < 2 || kept == static_cast<std::ptrdiff_t>(op.dims.size())) return false;
  bool reads = false, fits = true;
  sum->condition.visit([&](const ScalarExpr& node) {
    if (node.op() != ScalarOp::read) return;
    reads = true;
    const TileAccess& access = op.reads[static_cast<std::size_t>(node.ordinal())];
    for (const OpDim& dim : op.dims) fits = fits && !(dim.reduced && follows(access, dim));
  });
  return reads && fits;
}

/// Leaves out the op's dim of one value.
void drop_dim(TileOp& op, const OpDim& dim) {
  std::erase_if(op.dims, [&](const OpDim& other) { return other.var == dim.var; });
  substitute_variable(op, dim.var, dim.lower);
}

/// The op without reduced dims of one value that none of its indices follows, as the taps of a convolution of 1 x 1 are.
TileOp without_single_terms(const TileOp& op) {
  TileOp result = op;
  for (const OpDim& dim : op.dims) {
    const auto is_followed = [&](const TileAccess& access) { return follows(access, dim); };
    const bool single = (dim.upper - dim.lower).is_constant(1);
    if (!dim.reduced || !single || is_followed(op.write) || std::any_of(op.reads.begin(), op.reads.end(), is_followed)) continue;
    drop_dim(result, dim);
  }
  return result;
}

bool uses_blocks(const TileNode& node) {
  return node.loop_kind == LoopKind::gpu_block ||
         std::any_of(node.children.begin(), node.children.end(), [](const TileTree& child) { return uses_blocks(*child); });
}

int count_ops(const TileNode& node) {
  int count = node.kind == TileNode::Kind::op ? 1 : 0;
  for (const TileTree& child : node.children) count += count_ops(*child);
  return count;
}

/// A serial loop around several ops, as the steps of a recurrence are.
bool has_steps(const TileNode& node) {
  return node.kind == TileNode::Kind::loop && node.loop_kind == LoopKind::serial && count_ops(node) > 1;
}

/// Ops without dims of one value, which say in what order statements of a step stand: sums are products then, and maps start them. Where
/// blocks of a GPU are used, those in steps alone, and none on tensor cores, whose plans leave them out themselves.
TileTree without_single_dims(const TileTree& tree, bool in_steps) {
  TileNode node = *tree;
  if (grid_shape(node.knobs).warpgroups > 0) return tree;
  for (TileTree& child : node.children) child = without_single_dims(child, in_steps || has_steps(node));
  for (std::size_t k = node.op.dims.size(); in_steps && k-- > 0;) {
    const OpDim dim = node.op.dims[k];
    if (!(dim.upper - dim.lower).is_constant(1)) continue;
    drop_dim(node.op, dim);
    classify(node.op);
  }
  return std::make_shared<const TileNode>(std::move(node));
}

/// On tensor cores, sums that are products of matrices but for terms of one value become such products, and what writes elements at any
/// index, each once, works on whole tiles.
TileTree with_products(const TileTree& node, bool on_tensor_cores = false) {
  on_tensor_cores = on_tensor_cores || grid_shape(node->knobs).warpgroups > 0;
  TileNode out = *node;
  for (TileTree& child : out.children) child = with_products(child, on_tensor_cores);
  if (on_tensor_cores && node->kind == TileNode::Kind::op && node->op.kind == OpKind::reduce) {
    TileOp op = without_single_terms(node->op);
    classify(op);
    if (op.kind == OpKind::contract) out.op = std::move(op);
  }
  if (on_tensor_cores && node->kind == TileNode::Kind::op && node->op.kind == OpKind::points) classify(out.op, true);
  return std::make_shared<const TileNode>(std::move(out));
}

bool touches(const TileOp& op, int buffer) {
  return op.write.buffer == buffer ||
         std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
}

/// The op that starts the elements of `op`, behind which only ops of other buffers stand; the end: there is none.
std::vector<TileTree>::iterator start_of(const TileOp& op, std::vector<TileTree>& before) {
  for (auto at = before.end(); at != before.begin();) {
    --at;
    if ((*at)->kind != TileNode::Kind::op) break;
    if (initializes((*at)->op, op)) return at;
    if (touches((*at)->op, op.write.buffer)) break;
  }
  return before.end();
}

TileTree fold_initializations(const TileTree& node, bool on_tensor_cores = false) {
  if (node->kind == TileNode::Kind::op) return node;
  TileNode out = *node;
  out.children.clear();
  on_tensor_cores = on_tensor_cores || grid_shape(node->knobs).warpgroups > 0;
  for (const TileTree& child : node->children) {
    TileTree folded = fold_initializations(child, on_tensor_cores);
    if (node->kind == TileNode::Kind::sequence && folded->kind == TileNode::Kind::op &&
        !(on_tensor_cores && (sums_tiles(folded->op) || sums_few_elements(folded->op)))) {
      if (const auto start = start_of(folded->op, out.children); start != out.children.end()) {
        TileNode merged = *folded;
        merged.op.initialize = true;
        claim_start(merged.op, (*start)->op);
        out.children.erase(start);
        folded = std::make_shared<const TileNode>(std::move(merged));
      }
    }
    out.children.push_back(std::move(folded));
  }
  return std::make_shared<const TileNode>(std::move(out));
}

/// Serial loops that run exactly once, whatever the sizes: their variables and what those are. Only where that holds of all loops
/// over a variable, as buffers have copies for each value of it.
class SingleIterations {
 public:
  explicit SingleIterations(TileProgram& program) : program_(program) {}

  /// Puts the bodies in place of the loops: what one of them makes may then be read after it.
  void drop() {
    find(*program_.root);
    for (const std::string& var : others_) values_.erase(var);
    if (values_.empty()) return;
    program_.root = without(program_.root);
    for (Buffer& buffer : program_.buffers) {
      for (const auto& [var, value] : values_) {
        std::erase(buffer.scope, var);
        for (IntExpr& index : buffer.origin) index = index.substitute(var, value);
      }
    }
  }

 private:
  void find(const TileNode& node) {
    if (node.kind == TileNode::Kind::loop) {
      const bool serial = node.loop_kind == LoopKind::serial || node.loop_kind == LoopKind::unroll;
      const auto length = (node.upper - node.lower).as_constant();
      // A value over other variables would have to be followed through their own values.
      const bool single = serial && length && *length >= 1 && *length <= node.step && node.lower.as_constant();
      if (!single || !values_.try_emplace(node.var, node.lower).first->second.is_constant(node.lower.value()))
        others_.insert(node.var);
    }
    for (const TileTree& child : node.children) find(*child);
  }

  IntExpr without(IntExpr expr) const {
    for (const auto& [var, value] : values_) expr = expr.substitute(var, value);
    return expr;
  }

  TileTree without(const TileTree& tree) const {
    auto result = std::make_shared<TileNode>(*tree);
    for (TileTree& child : result->children) child = without(child);
    if (tree->kind == TileNode::Kind::op) {
      for (const auto& [var, value] : values_) substitute_variable(result->op, var, value);
    } else if (tree->kind == TileNode::Kind::condition) {
      result->condition = without(tree->condition);
      nvptx::drop_if_true(*result);
    } else if (tree->kind == TileNode::Kind::loop) {
      result->lower = without(tree->lower);
      result->upper = without(tree->upper);
      if (values_.count(tree->var) != 0) result->kind = TileNode::Kind::sequence;
    }
    return result;
  }

  TileProgram& program_;
  std::map<std::string, IntExpr> values_;
  std::set<std::string> others_;
};

struct ConstraintSink {
  std::vector<SizeConstraint> out;
  bool linear = true;
};

isl_stat add_constraint(isl_constraint* constraint, void* user) {
  auto* sink = static_cast<ConstraintSink*>(user);
  const isl::ctx ctx(isl_constraint_get_ctx(constraint));
  SizeConstraint fact;
  fact.equality = isl_constraint_is_equality(constraint) == isl_bool_true;
  const auto number = [](isl_val* value) {
    const std::int64_t n = isl_val_get_num_si(value);
    isl_val_free(value);
    return n;
  };
  fact.constant = number(isl_constraint_get_constant_val(constraint));
  for (int k = 0; k < isl_constraint_dim(constraint, isl_dim_param); ++k) {
    const std::int64_t c = number(isl_constraint_get_coefficient_val(constraint, isl_dim_param, k));
    if (c != 0) fact.terms[isl_constraint_get_dim_name(constraint, isl_dim_param, static_cast<unsigned>(k))] = c;
  }
  const int divs = isl_constraint_dim(constraint, isl_dim_div);
  for (int k = 0; k < divs; ++k) {
    const std::int64_t c = number(isl_constraint_get_coefficient_val(constraint, isl_dim_div, k));
    if (c == 0) continue;
    if (!fact.equality || fact.modulus != 0) sink->linear = false;
    fact.modulus = std::abs(c);
  }
  isl_constraint_free(constraint);
  sink->out.push_back(std::move(fact));
  return isl_stat_ok;
}

}  // namespace

bool is_constant_value(const ScalarExpr& expr, double value) {
  if (expr.op() == ScalarOp::cast) return is_constant_value(expr.args()[0], value);
  if (expr.op() == ScalarOp::neg) return is_constant_value(expr.args()[0], -value);
  return expr.op() == ScalarOp::constant && expr.number() == value;
}

bool starts_elements(const TileOp& init, const TileOp& op) {
  if (init.reduction || init.write.buffer != op.write.buffer || init.guard.defined() || op.guard.defined()) return false;
  if (std::any_of(init.reads.begin(), init.reads.end(), [&](const TileAccess& read) { return read.buffer == init.write.buffer; }))
    return false;
  std::vector<OpDim> kept;
  std::copy_if(op.dims.begin(), op.dims.end(), std::back_inserter(kept), [](const OpDim& d) { return !d.reduced; });
  if (kept.size() != init.dims.size()) return false;
  std::vector<IntExpr> renamed = init.write.index;
  std::map<std::string, IntExpr> dims;
  for (std::size_t k = 0; k < kept.size(); ++k) {
    if (!same_text({init.dims[k].lower, init.dims[k].upper}, {kept[k].lower, kept[k].upper})) return false;
    dims.emplace(init.dims[k].var, IntExpr::variable(kept[k].var));
  }
  for (IntExpr& index : renamed) index = substitute_all(index, dims);
  return same_text(renamed, op.write.index);
}

void substitute_variable(TileOp& op, const std::string& variable, const IntExpr& value) {
  for (OpDim& dim : op.dims) {
    dim.lower = dim.lower.substitute(variable, value);
    dim.upper = dim.upper.substitute(variable, value);
  }
  if (op.guard.defined()) op.guard = op.guard.substitute(variable, value);
  substitute(op.write, variable, value);
  for (TileAccess& read : op.reads) substitute(read, variable, value);
  for (IntExpr& index : op.indices) index = index.substitute(variable, value);
  for (IntExpr& dim : op.claim.instance) dim = dim.substitute(variable, value);
  for (IntExpr& dim : op.claim.started) dim = dim.substitute(variable, value);
}

std::vector<SizeConstraint> size_constraints(const isl::set& context) {
  const isl::set whole = context.coalesce();
  if (isl_set_n_basic_set(whole.get()) != 1)
    user_error("the context {} is not one conjunction of linear constraints", isl_set_to_str(whole.get()));
  isl_basic_set* basic = isl_set_simple_hull(whole.copy());
  ConstraintSink sink;
  isl_basic_set_foreach_constraint(basic, add_constraint, &sink);
  isl_basic_set_free(basic);
  if (!sink.linear) user_error("the context of the sizes has a constraint that is neither linear nor a divisibility");
  return sink.out;
}

TileProgram finish(TileProgram program) {
  program.root = without_single_dims(program.root, !uses_blocks(*program.root));
  program.root = fold_initializations(with_products(program.root));
  SingleIterations(program).drop();
  return program;
}

}  // namespace nestor
