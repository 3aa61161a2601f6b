// copy, map and points: loops over the box with the vector dim innermost, the guard as loop bounds, fill outside it.
#include "codegen/host/emit/op_lowering.h"
#include "codegen/host/emit/op_nest.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <numeric>

namespace nestor {
namespace {

using llvm::Value;

class MapLowering {
 public:
  MapLowering(Frame& frame, const TileOp& op) : f_(frame), op_(op), context_(frame, op) {
    std::vector<int> dims(op.dims.size());
    std::iota(dims.begin(), dims.end(), 0);
    const bool ordered = op.kind == OpKind::points;
    std::vector<int> candidates = dims;
    // Points run in lexicographic order: only an innermost loop without dependences may be taken several at a time.
    if (ordered) candidates = !dims.empty() && op.dims.back().parallel ? std::vector<int>{dims.back()} : std::vector<int>{};
    vector_ = choose_vector(context_, candidates, wished_vectors(op));
    order_ = dims;
    if (vector_.dim >= 0 && !ordered) {
      order_.erase(std::find(order_.begin(), order_.end(), vector_.dim));
      order_.push_back(vector_.dim);
    }
    guards_ = split_guard(op, order_, vector_.dim);
  }

  void run() { guarded(guards_.before, 0); }

 private:
  bool fills() const { return op_.fill.has_value() && !op_.reduction; }

  /// Runs the loops from `level` where all of `parts` hold, and fills elsewhere.
  void guarded(const std::vector<IntExpr>& parts, std::size_t level) {
    Value* condition = context_.condition(parts, {});
    if (condition == nullptr) return run_level(level);
    f_.branch(
        condition, [&] { run_level(level); },
        fills() ? std::function<void()>([&] { fill_from(level); }) : std::function<void()>());
  }

  void run_level(std::size_t level) {
    if (level == order_.size()) return point({}, nullptr, false);
    const int dim = order_[level];
    const Range range = range_of(context_, dim, guards_.levels[level].bounds);
    if (fills() && !guards_.levels[level].bounds.empty()) {
      fill_range(level, context_.lower(dim), range.lower);
      fill_range(level, f_.b.CreateNSWAdd(range.lower, range.count), context_.upper(dim));
    }
    if (dim == vector_.dim) return vectors(range);
    f_.loop(
        f_.i64(0), range.count, 1,
        [&](Value* at) {
          context_.open(dim, f_.b.CreateNSWAdd(range.lower, at));
          guarded(guards_.levels[level].conditions, level + 1);
          context_.close(dim);
        },
        unroll_of(op_.dims[dim]));
  }

  void vectors(const Range& range) {
    const Buffer& target = f_.host.program.buffers[op_.write.buffer];
    const bool unit = context_.motion(OpContext::kWrite, vector_.dim) == OpContext::Motion::unit;
    if (!target.streaming || !unit || op_.reduction) return vectors(range, false);
    const std::uint64_t bytes = size_in_bytes(target.type) * vector_.width;
    if (bytes < 16) return vectors(range, false);
    context_.open(vector_.dim, range.lower);
    Value* address = f_.b.CreatePtrToInt(context_.address(OpContext::kWrite), f_.b.getInt64Ty());
    context_.close(vector_.dim);
    Value* aligned = f_.b.CreateICmpEQ(f_.b.CreateAnd(address, bytes - 1), f_.b.getInt64(0));
    f_.branch(aligned, [&] { vectors(range, true); }, [&] { vectors(range, false); });
  }

  void vectors(const Range& range, bool nontemporal) {
    vector_loop(context_, vector_, range, [&](Value* at, Lanes lanes, unsigned count, Value* mask) {
      context_.open(lanes.dim, f_.b.CreateNSWAdd(range.lower, at));
      body(lanes, count, mask, nontemporal && lanes.width > 1);
      context_.close(lanes.dim);
    });
  }

  /// All values first: the stores of one vector then cannot delay the loads of the next.
  void body(Lanes lanes, unsigned count, Value* mask, bool nontemporal) {
    if (lanes.width > 1 && mask == nullptr) context_.prefetch(lanes, count);
    if (count == 1 || !guards_.lanes.empty()) {
      for (unsigned k = 0; k < count; ++k) {
        context_.shift(lanes.dim, static_cast<std::int64_t>(k) * lanes.width);
        point(lanes, mask, nontemporal);
        context_.close(lanes.dim);
      }
      return;
    }
    std::vector<Value*> values;
    for (unsigned k = 0; k < count; ++k) {
      context_.shift(lanes.dim, static_cast<std::int64_t>(k) * lanes.width);
      values.push_back(result(lanes, mask));
      context_.close(lanes.dim);
    }
    for (unsigned k = 0; k < count; ++k) {
      context_.shift(lanes.dim, static_cast<std::int64_t>(k) * lanes.width);
      context_.store(values[k], lanes, mask, nontemporal);
      context_.close(lanes.dim);
    }
  }

  /// The value to store, in the register form of the written buffer.
  Value* result(Lanes lanes, Value* mask) {
    const ElementType stored = context_.type(OpContext::kWrite);
    if (!op_.reduction) return context_.value(lanes, mask, stored);
    const ElementType type = op_.value.type();
    Value* old = emit_cast(f_.b, f_.host.math, context_.load(OpContext::kWrite, lanes, mask), stored, type);
    Value* term = context_.value(lanes, mask, type);
    old = splat_to(f_.b, old, lanes.width);
    return emit_cast(f_.b, f_.host.math,
                     emit_combine(f_.b, f_.host.math, *op_.reduction, type, old, splat_to(f_.b, term, lanes.width)), type,
                     stored);
  }

  /// One point, or one vector of points, with the part of the guard that differs between lanes.
  void point(Lanes lanes, Value* mask, bool nontemporal) {
    Value* chosen = context_.condition(guards_.lanes, lanes);
    if (chosen == nullptr) return context_.store(result(lanes, mask), lanes, mask, nontemporal);
    Value* active = mask == nullptr ? chosen : f_.b.CreateAnd(chosen, mask);
    if (fills()) {
      Value* value = splat_to(f_.b, result(lanes, active), lanes.width);
      Value* other = splat_to(f_.b, fill_value(), lanes.width);
      return context_.store(emit_choice(f_.b, chosen, value, other), lanes, mask, nontemporal);
    }
    Value* any = active->getType()->isVectorTy() ? f_.b.CreateOrReduce(active) : active;
    f_.branch(any, [&] { context_.store(result(lanes, active), lanes, active); });
  }

  Value* fill_value() { return scalar_constant(f_.host.context(), context_.type(OpContext::kWrite), op_.fill.value_or(0)); }

  void fill_from(std::size_t level) {
    if (level == order_.size()) return context_.store(fill_value(), {}, nullptr);
    const Range range = range_of(context_, order_[level], {});
    fill_range(level, range.lower, f_.b.CreateNSWAdd(range.lower, range.count));
  }

  /// The fill value for order_[level] in [low, high) and every value of the dims inside.
  void fill_range(std::size_t level, Value* low, Value* high) {
    const int dim = order_[level];
    const Range range{low, f_.maximum(f_.b.CreateNSWSub(high, low), f_.i64(0))};
    if (dim == vector_.dim) {
      VectorChoice simple = vector_;
      simple.count = 1;
      vector_loop(context_, simple, range, [&](Value* at, Lanes lanes, unsigned, Value* mask) {
        context_.open(dim, f_.b.CreateNSWAdd(range.lower, at));
        context_.store(fill_value(), lanes, mask);
        context_.close(dim);
      });
      return;
    }
    f_.loop(f_.i64(0), range.count, 1, [&](Value* at) {
      context_.open(dim, f_.b.CreateNSWAdd(range.lower, at));
      fill_from(level + 1);
      context_.close(dim);
    });
  }

  Frame& f_;
  const TileOp& op_;
  OpContext context_;
  VectorChoice vector_;
  std::vector<int> order_;
  GuardLevels guards_;
};

}  // namespace

void lower_map(Frame& frame, const TileOp& op) { MapLowering(frame, op).run(); }

}  // namespace nestor
