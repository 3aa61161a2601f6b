// The small passes: whole terms of products, sums that stay in lanes.
#include "codegen/gpu/mma/plan/plan_passes.h"

#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/conditions.h"
#include "codegen/tile/analysis/mask_cnf.h"
#include "support/error.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

void mark_loop_ops(const TileTree& tree, bool inside, std::vector<bool>& in_loop) {
  if (tree->kind == TileNode::Kind::op) in_loop.push_back(inside);
  for (const TileTree& child : tree->children) mark_loop_ops(child, inside || tree->kind == TileNode::Kind::loop, in_loop);
}

/// Names in masks of what moves the indices of a circular buffer: its rows, and its dense elements; "": nothing that masks know.
struct Movers {
  const char *rows, *dense;
};

/// Of the first operand's tile all is known, of the second's its terms alone. `by_free`: memory runs along rows or columns, not along terms.
Movers movers_of_first(bool by_free) { return by_free ? Movers{kColumn, kRow} : Movers{kRow, kColumn}; }
Movers movers_of_second(bool by_free) { return by_free ? Movers{kColumn, ""} : Movers{"", kColumn}; }

/// What is never negative at rows that a product has: how far the ends of its rows and packs are, from both sides.
std::vector<Affine> ends_of_rows(const TensorOp& op) {
  std::vector<Affine> ends;
  for (const auto& [dim, name] : {std::pair(op.row, kRow), std::pair(op.pack, kPack)}) {
    if (dim < 0) continue;
    ends.push_back(affine_of(IntExpr::variable(name)));
    std::vector<IntExpr> uppers;
    split_terms(op.op.dims[static_cast<std::size_t>(dim)].upper, IntOp::min, uppers);
    for (const IntExpr& upper : uppers) ends.push_back(affine_of(upper - IntExpr(1) - IntExpr::variable(name)));
  }
  return ends;
}

/// Is it a number that is not negative, and so many times one of `ends`?
bool never_negative(const Affine& gap, const std::vector<Affine>& ends) {
  if (gap.is_constant()) return gap.constant >= 0;
  return std::any_of(ends.begin(), ends.end(), [&](const Affine& end) {
    Affine rest = gap;
    for (int times = 0; times < kMostStride && !rest.is_constant(); ++times) rest = rest - end;
    return rest.is_constant() && rest.constant >= 0;
  });
}

/// Forms that are negative where the distance is, and nowhere else: as it is, and with one of its quotients multiplied out, such as the bounds
/// of taps that lie apart have them.
std::vector<Affine> forms_of(const IntExpr& distance) {
  std::vector<Affine> forms{affine_of(distance)};
  for (const IntExpr& quotient : quotients_in(distance)) {
    const Affine as_term = affine_of(quotient), &plain = forms.front();
    const auto known = plain.terms.find(as_term.terms.begin()->first);
    if (known == plain.terms.end() || std::abs(known->second) != 1) continue;
    const std::int64_t sign = known->second, divisor = *quotient.args()[1].as_constant();
    // n / d + m < 0 where n + d m < 0, and m - n / d < 0 where d m + d - 1 - n < 0.
    Affine rest = plain;
    rest.terms.erase(known->first);
    const Affine dividend = affine_of(quotient.args()[0]);
    rest = scaled(rest, divisor);
    if (sign < 0) rest.constant += divisor - 1;
    forms.push_back(rest - scaled(dividend, -sign));
  }
  return forms;
}

/// Where the condition fails, does the tile lie before or beyond its argument, at rows that the product has? Copies bring zeros from there.
bool leaves_argument(const TensorPlan& plan, const TensorOp& op, const CircularBuffer& ring, const Movers& movers,
                     const IntExpr& condition) {
  const std::vector<IntExpr> alternatives = alternatives_of(condition);
  const std::vector<Affine> ends = ends_of_rows(op);
  std::vector<Affine> failing;  // forms that are all below 0 there
  for (const IntExpr& alternative : alternatives) {
    const std::vector<Affine> forms = forms_of(alternative);
    failing.insert(failing.end(), forms.begin(), forms.end());
  }
  const auto fails_before = [&](const Affine& distance) {  // it is negative wherever the condition fails
    return std::any_of(failing.begin(), failing.end(), [&](const Affine& form) {
      // k f is -k at most where f is negative, so that k f + g is negative for g < k.
      for (std::int64_t k = 1; k <= kMostStride; ++k) {
        Affine gap = scaled(form, k) - distance;
        gap.constant += k - 1;
        if (never_negative(gap, ends)) return true;
      }
      return false;
    });
  };
  const int dense = static_cast<int>(ring.origin.size()) - 1;
  for (int p = 0; p <= dense; ++p) {
    const char* mover = p == ring.row_index ? movers.rows : p == ring.pack_index ? kPack : p == dense ? movers.dense : nullptr;
    if (mover != nullptr && *mover == 0) continue;
    const IntExpr& origin = ring.origin[static_cast<std::size_t>(p)];
    const int stride = p == ring.row_index ? ring.row_stride : p == ring.pack_index ? ring.pack_stride : 1;
    const IntExpr index = mover == nullptr ? origin : origin + IntExpr(stride) * IntExpr::variable(mover);
    const IntExpr& extent = plan.buffer(ring.buffer).extents[static_cast<std::size_t>(p)];
    if (fails_before(affine_of(index)) || fails_before(affine_of(extent - IntExpr(1) - index))) return true;
  }
  return false;
}

/// What gives a product's tile its values before it adds to them, if that is no product.
const TensorOp* start_of(const TensorPlan& plan, const TensorOp& product) {
  const TensorOp* start = nullptr;
  for (const TensorOp& op : plan.ops) {
    if (&op == &product) return product.op.initialize ? nullptr : start;
    if (op.op.write.buffer == product.op.write.buffer && op.kind == TensorOp::Kind::map) start = &op;
  }
  return nullptr;
}

bool has_condition(const TensorOp& op, const IntExpr& condition) {
  return std::any_of(op.memory_mask.begin(), op.memory_mask.end(),
                     [&](const IntExpr& has) { return has.str() == condition.str(); });
}

/// A product adds to all columns of its tile.
void require_all_started(const TensorPlan& plan, const TensorOp& product, const TensorOp& start) {
  if (start.column < 0 || start.op.fill || !start.op.guard.defined()) return;
  if (start.op.guard.uses(start.op.dims[static_cast<std::size_t>(start.column)].var))
    user_error("Kernel '{}' cannot use tensor cores: {} adds to columns of its tile that {} leaves out.", plan.program->name,
               product.op.name, start.op.name);
}

}  // namespace

/// Copies bring zeros from before and beyond an argument, and nothing else is left out of a tile: a product with both operands in shared
/// memory adds up whole tiles of what its sum is over. What meets zeros of one operand alone has to be finite, also at rows that have a start
/// and no terms. A product that goes on over iterations needs no test then.
void require_whole_terms(TensorPlan& plan) {
  const TensorOp* before = nullptr;
  bool starts = false;  // the sum, at once or by products directly before
  for (TensorOp& op : plan.ops) {
    const bool goes_on = before != nullptr && before->kind == TensorOp::Kind::product && op.kind == TensorOp::Kind::product &&
                         before->op.write.buffer == op.op.write.buffer;
    starts = op.op.initialize || (starts && goes_on);
    before = &op;
    if (op.kind != TensorOp::Kind::product || op.a_ring < 0) continue;
    const CircularBuffer &a = plan.circular_buffers[static_cast<std::size_t>(op.a_ring)],
                         &b = plan.circular_buffers[static_cast<std::size_t>(op.b_ring)];
    for (const IntExpr& condition : op.mask) {
      if (!condition.uses(kColumn) && starts) continue;  // other rows have no sum
      const bool leaves_a = leaves_argument(plan, op, a, movers_of_first(op.a_by_row), condition),
                 leaves_b = leaves_argument(plan, op, b, movers_of_second(op.b_by_column), condition);
      if (leaves_a && leaves_b) continue;
      if (!leaves_a && !leaves_b)
        user_error("Kernel '{}' cannot use tensor cores: {} adds up a part of its tile of {}, and not up to the end of {}: {}.",
                   plan.program->name, op.op.name, plan.buffer(a.buffer).name, plan.buffer(a.buffer).name, condition.str());
      op.zeros_meet[leaves_a ? op.b_ring : op.a_ring].push_back(condition);
    }
    if (!op.op.initialize) op.mask.clear();
    if (const TensorOp* start = start_of(plan, op)) {
      require_all_started(plan, op, *start);
      for (const IntExpr& condition : op.memory_mask) {
        if (condition.uses(kColumn) || has_condition(*start, condition)) continue;
        const bool leaves_a = leaves_argument(plan, op, a, movers_of_first(op.a_by_row), condition),
                   leaves_b = leaves_argument(plan, op, b, movers_of_second(op.b_by_column), condition);
        if (leaves_a != leaves_b) op.zeros_meet[leaves_a ? op.b_ring : op.a_ring].push_back(condition);
      }
    }
  }
}

std::vector<FiniteOperand> finite_operands(const TensorPlan& plan) {
  std::vector<FiniteOperand> needed;
  const auto need = [&](const TensorOp& op, int ring, const std::vector<std::string>& cuts) {
    if (cuts.empty()) return;
    const Buffer& buffer = plan.buffer(plan.circular_buffers[static_cast<std::size_t>(ring)].buffer);
    needed.push_back({op.op.name, buffer.tensor,
                      fmt::format("{} multiplies whole tiles of {} by {} that are 0 where {} fails", op.op.name, buffer.name,
                                  op.a_ring < 0 ? "weights" : "elements", fmt::join(cuts, " and "))});
  };
  for (const TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::product) continue;
    std::vector<std::string> cuts;
    if (op.a_ring < 0) {
      const CircularBuffer& ring = plan.circular_buffers[static_cast<std::size_t>(op.b_ring)];
      for (const IntExpr& condition : op.mask) {
        if (!leaves_argument(plan, op, ring, movers_of_second(op.b_by_column), condition)) cuts.push_back(condition.str());
      }
      need(op, op.b_ring, cuts);
    }
    for (const auto& [ring, conditions] : op.zeros_meet) {
      cuts.clear();
      for (const IntExpr& condition : conditions) cuts.push_back(condition.str());
      need(op, ring, cuts);
    }
  }
  for (const VisitedLoop& loop : plan.visited) {
    for (const TensorOp& op : plan.ops) {
      for (const TileAccess& read : op.op.reads) {
        if (op.op.reduction && loop.finite.contains(read.buffer))
          needed.push_back({op.op.name, plan.buffer(read.buffer).tensor,
                            fmt::format("{} would multiply {} by 0 where data hides whole tiles, which are gone past", op.op.name,
                                        plan.buffer(read.buffer).name)});
      }
    }
  }
  return needed;
}

/// A sum over columns, one value a row, may stay in four parts while it is only added to and scaled.
void plan_sums(TensorPlan& plan, const TileTree& tree) {
  std::vector<bool> in_loop;
  mark_loop_ops(tree, false, in_loop);
  for (auto& [buffer, fragment] : plan.fragments) {
    if (fragment.columns > 0) continue;
    bool reduced = false, fits = true;
    for (std::size_t k = 0; k < plan.ops.size(); ++k) {
      const TileOp& op = plan.ops[k].op;
      const bool writes = op.write.buffer == buffer;
      const bool reads =
          std::any_of(op.reads.begin(), op.reads.end(), [&, b = buffer](const TileAccess& r) { return r.buffer == b; });
      if (writes && plan.ops[k].kind == TensorOp::Kind::reduce) {
        fits = fits && op.reduction == ReductionOp::add && in_loop[k];
        reduced = true;
      } else if (writes) {
        fits = fits && (writes_zero(op) || scales(op, buffer));
      } else if (reads) {
        fits = fits && !in_loop[k];
      }
    }
    fragment.thread_sums = reduced && fits;
  }
}

}  // namespace nestor::nvptx
