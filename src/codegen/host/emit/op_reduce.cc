// reduce: accumulators in registers, over vectors of the reduced dim (several, to hide latency) or of a kept one.
#include "codegen/host/emit/op_lowering.h"
#include "codegen/host/emit/op_nest.h"
#include "codegen/tile/analysis/conditions.h"

#include "support/error.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <numeric>

namespace nestor {
namespace {

using llvm::Value;

class ReduceLowering {
 public:
  ReduceLowering(Frame& frame, const TileOp& op) : f_(frame), op_(op), context_(frame, op), type_(op.value.type()) {
    std::vector<int> dims(op.dims.size());
    std::iota(dims.begin(), dims.end(), 0);
    vector_ = choose_vector(context_, dims, wished_vectors(op));
    const bool vector_kept = vector_.dim >= 0 && !op.dims[vector_.dim].reduced;
    const auto add = [&](bool reduced) {
      for (const int dim : dims) {
        if (op.dims[dim].reduced == reduced && dim != vector_.dim) order_.push_back(dim);
      }
    };
    add(false);
    if (vector_kept) order_.push_back(vector_.dim);
    kept_ = order_.size();
    add(true);
    if (vector_.dim >= 0 && !vector_kept) order_.push_back(vector_.dim);
    guards_ = split_guard(with_stored_where(op), order_, vector_.dim);
    std::copy_if(guards_.lanes.begin(), guards_.lanes.end(), std::back_inserter(stored_lanes_),
                 [&](const IntExpr& part) { return !uses_reduced(op, part); });
  }

  void run() {
    guarded(guards_.before, [&] { kept_level(0); });
  }

 private:
  struct Accumulator {
    llvm::AllocaInst* memory;
    unsigned width;
  };

  /// What dims that are not reduced decide of the guard becomes parts of their own: they are tested before anything is stored.
  static TileOp with_stored_where(const TileOp& op) {
    TileOp result = op;
    const std::vector<IntExpr> known = conjuncts(op.guard);
    for (const IntExpr& part : conjuncts(stored_where(op))) {
      const bool is_known =
          std::any_of(known.begin(), known.end(), [&](const IntExpr& other) { return other.str() == part.str(); });
      if (!is_known && !op.initialize) result.guard = part && result.guard;
    }
    return result;
  }

  /// Lanes of a vector of kept dims whose results are stored: `mask`, and what the guard says of them.
  Value* stored_lanes(Lanes lanes, Value* mask) {
    Value* chosen = op_.initialize ? nullptr : context_.condition(stored_lanes_, lanes);
    if (chosen == nullptr || mask == nullptr) return chosen == nullptr ? mask : chosen;
    return f_.b.CreateAnd(chosen, mask);
  }

  void guarded(const std::vector<IntExpr>& parts, const std::function<void()>& then) {
    Value* condition = context_.condition(parts, {});
    f_.branch(condition == nullptr ? f_.b.getTrue() : condition, then);
  }

  void kept_level(std::size_t level) {
    if (level == kept_) return row_results(-1, 1);
    const int dim = order_[level];
    Range range = range_of(context_, dim, guards_.levels[level].bounds);
    if (level + 1 == kept_ && goes_in_rows(dim)) range = whole_row_blocks(dim, range);
    if (dim == vector_.dim) {
      vector_loop(context_, vector_, range, [&](Value* at, Lanes lanes, unsigned count, Value* mask) {
        context_.open(dim, f_.b.CreateNSWAdd(range.lower, at));
        several_results(lanes, count, mask);
        context_.close(dim);
      });
      return;
    }
    f_.loop(
        f_.i64(0), range.count, 1,
        [&](Value* at) {
          context_.open(dim, f_.b.CreateNSWAdd(range.lower, at));
          guarded(guards_.levels[level].conditions, [&] { kept_level(level + 1); });
          context_.close(dim);
        },
        unroll_of(op_.dims[dim]));
  }

  // Accumulators are stack slots; promotion to registers makes them loop-carried values.
  Accumulator accumulator(unsigned width, Value* start) {
    llvm::Type* element = register_type(f_.host.context(), type_);
    llvm::Type* type = width == 1 ? element : llvm::FixedVectorType::get(element, width);
    const Accumulator out{f_.entry_alloca(type), width};
    f_.b.CreateStore(splat_to(f_.b, start, width), out.memory);
    return out;
  }

  Value* read(const Accumulator& a) { return f_.b.CreateLoad(a.memory->getAllocatedType(), a.memory); }
  Value* combine(Value* a, Value* c) { return emit_combine(f_.b, f_.host.math, *op_.reduction, type_, a, c); }
  Value* neutral() { return scalar_constant(f_.host.context(), type_, neutral_element(*op_.reduction, type_)); }

  void accumulate(const Accumulator& into, Lanes lanes, Value* mask, bool neutral_outside) {
    Value* term = splat_to(f_.b, context_.value(lanes, mask, type_), lanes.width);
    if (neutral_outside) term = f_.b.CreateSelect(mask, term, splat_to(f_.b, neutral(), lanes.width));
    f_.b.CreateStore(combine(read(into), term), into.memory);
  }

  Value* old_value(Lanes lanes, Value* mask) {
    return emit_cast(f_.b, f_.host.math, context_.load(OpContext::kWrite, lanes, mask), context_.type(OpContext::kWrite), type_);
  }

  void write(Value* value, Lanes lanes, Value* mask) {
    context_.store(emit_cast(f_.b, f_.host.math, value, type_, context_.type(OpContext::kWrite)), lanes, mask);
  }

  /// Kept dims are vectors: `count` of them accumulate side by side over the reduced loops.
  void several_results(Lanes lanes, unsigned count, Value* mask) {
    std::vector<Accumulator> parts;
    const auto each = [&](const std::function<void(std::size_t)>& body) {
      for (unsigned k = 0; k < count; ++k) {
        context_.shift(lanes.dim, static_cast<std::int64_t>(k) * lanes.width);
        body(k);
        context_.close(lanes.dim);
      }
    };
    each([&](std::size_t) {
      parts.push_back(accumulator(lanes.width, op_.initialize ? neutral() : old_value(lanes, stored_lanes(lanes, mask))));
    });
    reduced_level(kept_, [&] {
      each([&](std::size_t k) {
        Value* chosen = context_.condition(guards_.lanes, lanes);
        if (chosen == nullptr) return accumulate(parts[k], lanes, mask, false);
        accumulate(parts[k], lanes, mask == nullptr ? chosen : f_.b.CreateAnd(chosen, mask), true);
      });
    });
    each([&](std::size_t k) { write(read(parts[k]), lanes, stored_lanes(lanes, mask)); });
  }

  /// Are several values of the innermost kept dim worth reducing side by side? Several rows are several streams for the
  /// hardware prefetchers, and what does not move with the rows is loaded once for all of them.
  bool goes_in_rows(int dim) const {
    if (vector_.dim < 0 || !op_.dims[vector_.dim].reduced || op_.guard.defined()) return false;
    const auto extent = context_.extent(dim);
    if ((extent && *extent < kRows) || wished_vectors(op_) < 4) return false;
    for (int access = OpContext::kWrite; access < static_cast<int>(op_.reads.size()); ++access) {
      if (context_.motion(access, dim) == OpContext::Motion::irregular) return false;
    }
    return context_.motion(OpContext::kWrite, dim) != OpContext::Motion::none;
  }

  /// Emits all whole blocks of rows; returns what is left of the range.
  Range whole_row_blocks(int dim, const Range& range) {
    Value* whole = f_.b.CreateAnd(range.count, f_.i64(-kRows));
    f_.loop(f_.i64(0), whole, kRows, [&](Value* at) {
      context_.open(dim, f_.b.CreateNSWAdd(range.lower, at));
      row_results(dim, kRows);
      context_.close(dim);
    });
    return {f_.b.CreateNSWAdd(range.lower, whole), f_.b.CreateNSWSub(range.count, whole)};
  }

  /// The results of `rows` consecutive values of `row_dim` (-1: of this one point); the reduced dim may be the vector one.
  void row_results(int row_dim, unsigned rows) {
    const bool vectors = vector_.dim >= 0;
    std::vector<std::vector<Accumulator>> parts(rows);
    std::vector<Accumulator> singles;
    const auto each_row = [&](const std::function<void(std::size_t)>& body) {
      for (unsigned row = 0; row < rows; ++row) {
        if (row_dim >= 0) context_.shift(row_dim, row);
        body(row);
        if (row_dim >= 0) context_.close(row_dim);
      }
    };
    // As many accumulators as hide the latency, over all rows.
    const unsigned most = rows == 1 ? vector_.count : std::min(vector_.count, 2U);
    each_row([&](std::size_t row) {
      for (unsigned k = 0; vectors && k < most; ++k) parts[row].push_back(accumulator(vector_.width, neutral()));
      singles.push_back(accumulator(1, op_.initialize ? neutral() : old_value({}, nullptr)));
    });
    if (!vectors) {
      reduced_level(kept_, [&] { accumulate(singles[0], {}, nullptr, false); });
      return write(read(singles[0]), {}, nullptr);
    }
    reduced_vectors_ = [&](Lanes lanes, unsigned count, Value* mask) {
      if (lanes.width > 1 && mask == nullptr) context_.prefetch(lanes, count);
      for (unsigned k = 0; k < count; ++k) {
        context_.shift(lanes.dim, static_cast<std::int64_t>(k) * lanes.width);
        each_row([&](std::size_t row) { reduced_vector(lanes.width == 1 ? singles[row] : parts[row][k % most], lanes, mask); });
        context_.close(lanes.dim);
      }
    };
    reduced_level(kept_, [] {});
    each_row([&](std::size_t row) { write(combine(horizontal(parts[row]), read(singles[row])), {}, nullptr); });
  }

  void reduced_vector(const Accumulator& into, Lanes lanes, Value* mask) {
    Value* chosen = context_.condition(guards_.lanes, lanes);
    if (chosen == nullptr) return accumulate(into, lanes, mask, mask != nullptr);
    Value* active = mask == nullptr ? chosen : f_.b.CreateAnd(chosen, mask);
    if (lanes.width == 1) return f_.branch(active, [&] { accumulate(into, lanes, nullptr, false); });
    f_.branch(f_.b.CreateOrReduce(active), [&] { accumulate(into, lanes, active, true); });
  }

  /// All lanes of all vectors combined, halving each time.
  Value* horizontal(const std::vector<Accumulator>& parts) {
    std::vector<Value*> values;
    values.reserve(parts.size());
    for (const Accumulator& part : parts) values.push_back(read(part));
    while (values.size() > 1) {
      for (std::size_t k = 0; k < values.size() / 2; ++k) values[k] = combine(values[k], values[k + values.size() / 2]);
      values.resize(values.size() / 2);
    }
    Value* rest = values[0];
    for (unsigned width = vector_.width / 2; width >= 1; width /= 2) {
      std::vector<int> low(width), high(width);
      std::iota(low.begin(), low.end(), 0);
      std::iota(high.begin(), high.end(), static_cast<int>(width));
      rest = combine(f_.b.CreateShuffleVector(rest, low), f_.b.CreateShuffleVector(rest, high));
    }
    return f_.b.CreateExtractElement(rest, std::uint64_t{0});
  }

  void reduced_level(std::size_t level, const std::function<void()>& body) {
    if (level == order_.size()) return body();
    const int dim = order_[level];
    const Range range = range_of(context_, dim, guards_.levels[level].bounds);
    if (dim == vector_.dim) {
      vector_loop(context_, vector_, range, [&](Value* at, Lanes lanes, unsigned count, Value* mask) {
        context_.open(dim, f_.b.CreateNSWAdd(range.lower, at));
        reduced_vectors_(lanes, count, mask);
        context_.close(dim);
      });
      return;
    }
    f_.loop(
        f_.i64(0), range.count, 1,
        [&](Value* at) {
          context_.open(dim, f_.b.CreateNSWAdd(range.lower, at));
          guarded(guards_.levels[level].conditions, [&] { reduced_level(level + 1, body); });
          context_.close(dim);
        },
        unroll_of(op_.dims[dim]));
  }

  static constexpr std::int64_t kRows = 4;

  Frame& f_;
  const TileOp& op_;
  OpContext context_;
  ElementType type_;
  VectorChoice vector_;
  std::vector<int> order_;  ///< kept dims, then reduced ones
  std::size_t kept_ = 0;
  GuardLevels guards_;
  std::vector<IntExpr> stored_lanes_;  ///< parts of it that decide which lanes of kept dims have results
  std::function<void(Lanes, unsigned, Value*)> reduced_vectors_;
};

}  // namespace

void lower_reduce(Frame& frame, const TileOp& op) {
  if (op.value.type() != ElementType::f32 && op.value.type() != ElementType::i32)
    internal_error("op {} reduces values of type {}", op.name, to_string(op.value.type()));
  ReduceLowering(frame, op).run();
}

}  // namespace nestor
