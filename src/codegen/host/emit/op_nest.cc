// Loops of one op: guards as bounds, choice of the vector dim, vector loops with their rests.
#include "codegen/host/emit/op_nest.h"
#include "codegen/tile/analysis/conditions.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>
#include <set>

namespace nestor {

using llvm::Value;

GuardLevels split_guard(const TileOp& op, const std::vector<int>& order, int vector_dim) {
  GuardLevels out;
  out.levels.resize(order.size());
  for (const IntExpr& part : conjuncts(op.guard)) {
    int level = -1;
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (part.uses(op.dims[order[k]].var)) level = static_cast<int>(k);
    }
    if (level < 0) {
      out.before.push_back(part);
      continue;
    }
    const int dim = order[level];
    const std::string& var = op.dims[dim].var;
    const IntExpr distance = comparison_distance(part);
    const auto factor = distance.defined() ? distance.coefficient(var) : std::nullopt;
    const bool linear = factor && *factor != 0 && (part.op() != IntOp::eq || std::abs(*factor) == 1);
    const bool uses_lanes = vector_dim >= 0 && part.uses(op.dims[vector_dim].var);
    auto& at = out.levels[level];
    if (uses_lanes && (dim != vector_dim || !linear)) {
      out.lanes.push_back(part);
    } else if (linear) {
      at.bounds.push_back(part);
    } else {
      at.conditions.push_back(part);
    }
  }
  return out;
}

namespace {

/// factor*x + rest >= 0, as a bound of x: `low` for positive factors, else the (exclusive) `high`.
void tighten(Frame& f, std::int64_t factor, const IntExpr& rest, Value*& low, Value*& high) {
  if (factor > 0) {
    low = f.maximum(low, f.integer(IntExpr(0) - floor_div(rest, factor)));
  } else {
    high = f.minimum(high, f.integer(floor_div(rest, -factor) + IntExpr(1)));
  }
}

}  // namespace

Range range_of(OpContext& context, int dim, const std::vector<IntExpr>& bounds) {
  Frame& f = context.frame;
  Value* low = context.lower(dim);
  if (bounds.empty()) {
    if (const auto extent = context.extent(dim)) return {low, f.i64(std::max<std::int64_t>(*extent, 0))};
    return {low, f.maximum(f.b.CreateNSWSub(context.upper(dim), low), f.i64(0))};
  }
  Value* high = context.upper(dim);
  const std::string& var = context.op.dims[dim].var;
  for (const IntExpr& part : bounds) {
    const IntExpr distance = comparison_distance(part);
    const std::int64_t factor = distance.coefficient(var).value_or(0);
    const IntExpr rest = distance.substitute(var, 0);
    tighten(f, factor, rest, low, high);
    if (part.op() == IntOp::eq) tighten(f, -factor, IntExpr(0) - rest, low, high);
  }
  // An empty range may lie outside the box; its start must not, since a fill writes on both sides of it.
  low = f.minimum(low, f.maximum(context.upper(dim), context.lower(dim)));
  return {low, f.maximum(f.b.CreateNSWSub(high, low), f.i64(0))};
}

namespace {

/// Does the access stay where it is while the op sums up: a load or a store for each sum, not for each term?
bool once_a_sum(const OpContext& context, int access) {
  bool sums = false;
  for (std::size_t dim = 0; dim < context.op.dims.size(); ++dim) {
    if (!context.op.dims[dim].reduced) continue;
    if (context.motion(access, static_cast<int>(dim)) != OpContext::Motion::none) return false;
    sums = true;
  }
  return sums;
}

/// How well lanes along the dim suit the op's accesses; those that are made once a sum count `of_sums` times.
double score_of(const OpContext& context, int dim, double of_sums) {
  double score = 0;
  const auto add = [&](int access, double unit, double none, double strided) {
    const double times = once_a_sum(context, access) ? of_sums : 1;
    switch (context.motion(access, dim)) {
      case OpContext::Motion::unit:
        score += times * unit;
        break;
      case OpContext::Motion::none:
        score += times * none;
        break;
      case OpContext::Motion::strided:
        score += times * strided;
        break;
      case OpContext::Motion::irregular:
        score += times * (strided - 1);
        break;
    }
  };
  for (std::size_t r = 0; r < context.op.reads.size(); ++r) add(static_cast<int>(r), 2, 0.5, -2);
  if (!context.op.dims[dim].reduced) add(OpContext::kWrite, 3, -100, -2);
  return score;
}

bool tail_by_mask(const OpContext& context, int dim) {
  const HostShape& shape = context.frame.host.shape;
  const auto fits = [&](int access) {
    const OpContext::Motion motion = context.motion(access, dim);
    if (motion == OpContext::Motion::none) return true;
    const std::size_t bytes = size_in_bytes(context.type(access));
    return motion == OpContext::Motion::unit && (bytes == 4 ? shape.masked : bytes == 2 && shape.masked16);
  };
  for (std::size_t r = 0; r < context.op.reads.size(); ++r) {
    if (!fits(static_cast<int>(r))) return false;
  }
  return fits(OpContext::kWrite);
}

/// A sum has some terms: what is loaded or stored once for all of them hardly tells which dim has the better lanes.
constexpr double kOfSums = 0.25;

/// Is a vector worth its gathered lanes?
bool worth_it(const TileOp& op, double score) { return score > 0 || wished_vectors(op) < 4; }

}  // namespace

unsigned wished_vectors(const TileOp& op) {
  int heavy = 0, nodes = 0;
  op.value.visit([&](const ScalarExpr& node) {
    ++nodes;
    switch (node.op()) {
      case ScalarOp::exp:
      case ScalarOp::exp2:
      case ScalarOp::log:
        heavy += 1;
        break;
      case ScalarOp::tanh:
      case ScalarOp::erf:
      case ScalarOp::log1p:
      case ScalarOp::expm1:
      case ScalarOp::atan:
        heavy += 2;
        break;
      case ScalarOp::pow:
      case ScalarOp::sin:
      case ScalarOp::cos:
        heavy += 4;
        break;
      default:
        break;
    }
  });
  if (heavy >= 4 || nodes > 64) return 1;
  return heavy > 0 || nodes > 16 ? 2 : 4;
}

std::int64_t unroll_of(const OpDim& dim) {
  return dim.kind == LoopKind::unroll ? (dim.factor > 0 ? std::min<std::int64_t>(dim.factor, 16) : 4) : 1;
}

VectorChoice choose_vector(const OpContext& context, const std::vector<int>& candidates, unsigned vectors) {
  const HostShape& shape = context.frame.host.shape;
  VectorChoice choice;
  double best = 0;
  std::int64_t requested = 0;
  for (const int dim : candidates) {
    const OpDim& d = context.op.dims[dim];
    if (!d.reduced && context.motion(OpContext::kWrite, dim) == OpContext::Motion::none) continue;
    const auto extent = d.max_extent ? d.max_extent : context.extent(dim);
    if (extent && *extent <= 1) continue;
    const bool asked = d.kind == LoopKind::vectorize;
    if (!asked && !worth_it(context.op, score_of(context, dim, 1))) continue;
    const double score = asked ? 1000 : score_of(context, dim, kOfSums);
    if (choice.dim >= 0 && score < best) continue;
    choice.dim = dim;
    best = score;
    requested = d.kind == LoopKind::vectorize ? d.factor : 0;
  }
  if (choice.dim < 0) return choice;
  const OpDim& d = context.op.dims[choice.dim];
  choice.width = shape.width;
  choice.count = vectors;
  if (requested >= 2) {
    const auto power = std::bit_floor(static_cast<std::uint64_t>(std::min(requested, std::int64_t{8} * shape.width)));
    choice.width = static_cast<unsigned>(std::min<std::uint64_t>(shape.width, power));
    choice.count = static_cast<unsigned>(power / choice.width);
  }
  const auto extent = d.max_extent ? d.max_extent : context.extent(choice.dim);
  if (extent) {
    choice.width = std::min(
        choice.width, static_cast<unsigned>(std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(*extent, 64)))));
    while (choice.count > 1 && static_cast<std::int64_t>(choice.width) * choice.count > *extent) choice.count /= 2;
  }
  choice.masked = tail_by_mask(context, choice.dim);
  return choice;
}

void vector_loop(OpContext& context, const VectorChoice& choice, const Range& range, const VectorBody& body) {
  Frame& f = context.frame;
  const Lanes vector{choice.dim, choice.width}, single{choice.dim, 1};
  const auto down_to = [&](std::int64_t block) { return f.b.CreateAnd(range.count, f.i64(-block)); };
  Value* done = f.i64(0);
  if (choice.count > 1) {
    const std::int64_t block = static_cast<std::int64_t>(choice.width) * choice.count;
    Value* end = down_to(block);
    f.loop(done, end, block, [&](Value* at) { body(at, vector, choice.count, nullptr); });
    done = end;
  }
  Value* end = down_to(choice.width);
  f.loop(done, end, choice.width, [&](Value* at) { body(at, vector, 1, nullptr); });
  if (!choice.masked) {
    f.loop(end, range.count, 1, [&](Value* at) { body(at, single, 1, nullptr); });
    return;
  }
  const auto left_in = constant_of(range.count);
  if (left_in && *left_in % choice.width == 0) return;
  f.branch(f.b.CreateICmpSLT(end, range.count), [&] {
    Value* mask = first_lanes(f.b, f.b.CreateNSWSub(range.count, end), choice.width);
    context.tail_mask = mask;
    body(end, vector, 1, mask);
    context.tail_mask = nullptr;
  });
}

}  // namespace nestor
