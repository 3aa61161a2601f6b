// Masks of fragments as code: which elements of a thread are points of an op.
#include "codegen/nvptx/tensor_emitter.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>
#include <set>

namespace nestor::nvptx {
namespace {

constexpr std::int64_t kFar = 1 << 30;  ///< beyond any distance within a tile

}  // namespace

TensorEmitter::Tests TensorEmitter::masks(const TensorOp& op, const std::vector<IntExpr>& conditions) {
  Tests tests;
  set_point(op, {});
  environment_[kRow] = row_at({});
  environment_[kColumn] = column_at({});
  for (const IntExpr& condition : conditions) {
    LinearMask mask;
    mask.condition = &condition;
    const bool linear = condition.op() == IntOp::ge || condition.op() == IntOp::gt || condition.op() == IntOp::eq;
    const IntExpr distance = linear ? comparison_distance(condition) : IntExpr();
    const auto rows = linear ? distance.coefficient(kRow) : std::nullopt;
    const auto columns = linear ? distance.coefficient(kColumn) : std::nullopt;
    if (rows && columns) {
      Value* base = integer(distance);
      Value* low = b_.getInt64(static_cast<std::uint64_t>(-kFar));
      Value* high = b_.getInt64(static_cast<std::uint64_t>(kFar));
      base = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, base, low);
      base = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, base, high);
      // Hidden, or LLVM compares 64 bits for every element instead.
      mask.base = ptx_.opaque(b_.CreateTrunc(base, b_.getInt32Ty()));
      mask.row_slope = *rows;
      mask.column_slope = *columns;
      mask.equality = condition.op() == IntOp::eq;
    }
    tests.masks.push_back(mask);
  }
  return tests;
}

/// The least distance of the bounds with this column slope, at the row and column 0; below any border where a bound without column slope
/// fails, if this is the first slope.
llvm::Value* TensorEmitter::row_bound(Tests& tests, std::int64_t slope, const Place& place) {
  const int row = place.tile * kGroupRows + 8 * place.half;
  Value*& cached = tests.bounds[{slope, row}];
  if (cached != nullptr) return cached;
  const auto at_row = [&](const LinearMask& mask) {
    return b_.CreateAdd(mask.base, constant(static_cast<int>(mask.row_slope * row)));
  };
  const auto first = std::find_if(tests.masks.begin(), tests.masks.end(),
                                  [](const LinearMask& mask) { return mask.is_bound() && mask.column_slope != 0; });
  Value* least = nullptr;
  for (const LinearMask& mask : tests.masks) {
    if (!mask.is_bound() || mask.column_slope != slope) continue;
    least = least == nullptr ? at_row(mask) : b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, least, at_row(mask));
  }
  for (const LinearMask& mask : tests.masks) {
    if (first->column_slope != slope || !mask.is_bound() || mask.column_slope != 0) continue;
    Value* holds = b_.CreateICmpSGE(at_row(mask), constant(0));
    least = b_.CreateSelect(holds, least, constant(static_cast<int>(-2 * kFar)));
  }
  return cached = ptx_.opaque(least);
}

llvm::Value* TensorEmitter::inside(const TensorOp& op, Tests& tests, const Place& place) {
  Value* result = nullptr;
  const auto also = [&](Value* holds) { result = result == nullptr ? holds : b_.CreateAnd(result, holds); };
  std::set<std::int64_t> slopes;
  for (const LinearMask& mask : tests.masks) {
    if (mask.is_bound() && mask.column_slope != 0) slopes.insert(mask.column_slope);
  }
  const int row = place.tile * kGroupRows + 8 * place.half, column = 8 * place.pair + place.element;
  for (const std::int64_t slope : slopes)
    also(b_.CreateICmpSGE(row_bound(tests, slope, place), constant(static_cast<int>(-slope * column))));
  for (const LinearMask& mask : tests.masks) {
    if (mask.is_bound() && (mask.column_slope != 0 || !slopes.empty())) continue;
    if (mask.base != nullptr) {
      Value* border = constant(static_cast<int>(-(mask.row_slope * row + mask.column_slope * column)));
      also(mask.equality ? b_.CreateICmpEQ(mask.base, border) : b_.CreateICmpSGE(mask.base, border));
      continue;
    }
    set_point(op, place);
    environment_[kRow] = row_at(place);
    environment_[kColumn] = column_at(place);
    also(emit_condition(b_, *mask.condition, [&](const std::string& name) { return lookup(name); }));
  }
  return result;
}

}  // namespace nestor::nvptx
