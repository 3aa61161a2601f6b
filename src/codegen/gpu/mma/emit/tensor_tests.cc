// Masks of fragments as code: which elements of a thread are points of an op.
#include "codegen/gpu/mma/emit/tensor_emitter.h"
#include "codegen/tile/analysis/conditions.h"
#include "codegen/tile/analysis/mask_cnf.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>
#include <set>

namespace nestor::nvptx {
namespace {

constexpr std::int64_t kFar = 1 << 30;  ///< beyond any distance within a tile

}  // namespace

TensorEmitter::LinearMask TensorEmitter::linear_mask(const IntExpr& distance) {
  LinearMask mask;
  const auto rows = distance.coefficient(kRow), columns = distance.coefficient(kColumn);
  if (!rows || !columns) return mask;
  Value* base = integer(distance);
  Value* low = b_.getInt64(static_cast<std::uint64_t>(-kFar));
  Value* high = b_.getInt64(static_cast<std::uint64_t>(kFar));
  base = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, base, low);
  base = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, base, high);
  // Hidden, or LLVM compares 64 bits for every element instead.
  mask.base = ptx_.opaque(b_.CreateTrunc(base, b_.getInt32Ty()));
  mask.row_slope = *rows;
  mask.column_slope = *columns;
  return mask;
}

TensorEmitter::ClauseTest TensorEmitter::clause_test(const IntExpr& clause) {
  ClauseTest test;
  test.clause = &clause;
  test.equality = clause.op() == IntOp::eq;
  for (const IntExpr& distance : test.equality ? std::vector{comparison_distance(clause)} : alternatives_of(clause)) {
    const LinearMask mask = linear_mask(distance);
    if (mask.base == nullptr) {
      test.alternatives.clear();
      return test;
    }
    test.alternatives.push_back(mask);
    if (mask.column_slope == 0) continue;
    test.mixed = test.mixed || (test.slope != 0 && test.slope != mask.column_slope);
    test.slope = mask.column_slope;
  }
  return test;
}

TensorEmitter::Tests TensorEmitter::masks(const TensorOp& op, const std::vector<IntExpr>& conditions) {
  Tests tests;
  set_point(op, {});
  environment_[kRow] = row_at({});
  environment_[kColumn] = column_at({});
  environment_[kPack] = place_in_pack();
  for (const IntExpr& condition : conditions) tests.clauses.push_back(clause_test(condition));
  return tests;
}

llvm::Value* TensorEmitter::distance_at(const LinearMask& mask, int row) {
  return b_.CreateAdd(mask.base, constant(static_cast<int>(mask.row_slope * row)));
}

/// The largest distance, at the row and column 0, of the clause's alternatives with this column slope. An alternative without one
/// decides for the whole row: it is beyond any border of a column, on one side or the other.
llvm::Value* TensorEmitter::largest_at(const ClauseTest& test, std::int64_t slope, int row) {
  Value* largest = nullptr;
  for (const LinearMask& mask : test.alternatives) {
    if (mask.column_slope != slope && mask.column_slope != 0) continue;
    Value* distance = distance_at(mask, row);
    if (mask.column_slope != slope)
      distance = b_.CreateSelect(b_.CreateICmpSGE(distance, constant(0)), constant(static_cast<int>(kFar)),
                                 constant(static_cast<int>(-kFar)));
    largest = largest == nullptr ? distance : b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, largest, distance);
  }
  return largest;
}

/// The least distance of the bounds with this column slope, at the row and column 0; below any border where a bound without column slope
/// fails, if this is the first slope.
llvm::Value* TensorEmitter::row_bound(Tests& tests, std::int64_t slope, int row) {
  Value*& cached = tests.bounds[{slope, row}];
  if (cached != nullptr) return cached;
  const auto first = std::find_if(tests.clauses.begin(), tests.clauses.end(),
                                  [](const ClauseTest& test) { return test.is_bound() && test.slope != 0; });
  Value* least = nullptr;
  for (const ClauseTest& test : tests.clauses) {
    if (!test.is_bound() || test.slope != slope) continue;
    Value* distance = largest_at(test, slope, row);
    least = least == nullptr ? distance : b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, least, distance);
  }
  for (const ClauseTest& test : tests.clauses) {
    if (first->slope != slope || !test.is_bound() || test.slope != 0) continue;
    Value* holds = b_.CreateICmpSGE(largest_at(test, 0, row), constant(0));
    least = b_.CreateSelect(holds, least, constant(static_cast<int>(-2 * kFar)));
  }
  return cached = ptx_.opaque(least);
}

/// A clause with several column slopes: one comparison for each of them.
llvm::Value* TensorEmitter::mixed_test(Tests& tests, const ClauseTest& test, int row, int column) {
  std::set<std::int64_t> slopes;
  for (const LinearMask& mask : test.alternatives) {
    if (mask.column_slope != 0) slopes.insert(mask.column_slope);
  }
  Value* any = nullptr;
  for (const std::int64_t slope : slopes) {
    Value*& largest = tests.parts[{test.clause, slope, row}];
    if (largest == nullptr) largest = ptx_.opaque(largest_at(test, slope, row));
    Value* holds = b_.CreateICmpSGE(largest, constant(static_cast<int>(-slope * column)));
    any = any == nullptr ? holds : b_.CreateOr(any, holds);
  }
  return any;
}

llvm::Value* TensorEmitter::inside(const TensorOp& op, Tests& tests, const FragmentPlace& place) {
  Value* result = nullptr;
  const auto also = [&](Value* holds) { result = result == nullptr ? holds : b_.CreateAnd(result, holds); };
  std::set<std::int64_t> slopes;
  for (const ClauseTest& test : tests.clauses) {
    if (test.is_bound() && test.slope != 0) slopes.insert(test.slope);
  }
  const int row = row_distance(place), column = 8 * place.pair + place.element;
  for (const std::int64_t slope : slopes)
    also(b_.CreateICmpSGE(row_bound(tests, slope, row), constant(static_cast<int>(-slope * column))));
  for (const ClauseTest& test : tests.clauses) {
    if (test.is_bound() && (test.slope != 0 || !slopes.empty())) continue;
    if (test.mixed) {
      also(mixed_test(tests, test, row, column));
    } else if (test.alternatives.size() == 1) {
      const LinearMask& mask = test.alternatives.front();
      Value* border = constant(static_cast<int>(-(mask.row_slope * row + mask.column_slope * column)));
      also(test.equality ? b_.CreateICmpEQ(mask.base, border) : b_.CreateICmpSGE(mask.base, border));
    } else if (!test.alternatives.empty()) {
      also(b_.CreateICmpSGE(largest_at(test, 0, row), constant(0)));
    } else {
      set_point(op, place);
      environment_[kRow] = row_at(place);
      environment_[kColumn] = column_at(place);
      also(emit_condition(b_, *test.clause, [&](const std::string& name) { return lookup(name); }));
    }
  }
  return result;
}

}  // namespace nestor::nvptx
