// Integer expressions to LLVM IR, for one value or for the lanes of a vector. Shared by every LLVM back end.
#pragma once

#include "support/int_expr.h"

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <string>
#include <vector>

namespace nestor {

/// The i64 value of a variable; null when unknown (an InternalError names it).
using IntLookup = std::function<llvm::Value*(const std::string&)>;

/// `expr` as an i64.
llvm::Value* emit_int(llvm::IRBuilderBase& b, const IntExpr& expr, const IntLookup& lookup);

/// `expr != 0` as an i1. Comparisons and logic become i1 directly.
llvm::Value* emit_condition(llvm::IRBuilderBase& b, const IntExpr& expr, const IntLookup& lookup);

/// The variable that differs between the lanes of a vector: lane l has the value lookup(name) + l.
struct LaneVariable {
  std::string name;
  unsigned width = 1;
};

/// `expr` as <width x i32>, or as one i32 when no lane differs. Only for values that fit 32 bits (indices used as values).
llvm::Value* emit_int32_lanes(llvm::IRBuilderBase& b, const IntExpr& expr, const IntLookup& lookup, const LaneVariable& lane);

/// `expr != 0` as <width x i1>, or as one i1 when no lane differs. Comparisons linear in the lane variable cost one vector
/// comparison of 32-bit integers; others are computed lane by lane.
llvm::Value* emit_condition_lanes(llvm::IRBuilderBase& b, const IntExpr& expr, const IntLookup& lookup, const LaneVariable& lane);

}  // namespace nestor
