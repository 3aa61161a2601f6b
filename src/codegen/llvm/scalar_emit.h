// Scalar expressions to LLVM IR, for one value or for the lanes of a vector. Shared by every LLVM back end.
#pragma once

#include "codegen/llvm/math_emit.h"
#include "poly/nest/scalar_expr.h"

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <string>

namespace nestor {

/// IR type of a value of `type` in a register: float, half, i16 (bits of a bf16), i32 (of an i64 too), i1.
llvm::Type* register_type(llvm::LLVMContext& context, ElementType type);

/// Do elements of `type` lie in memory as in registers? Truth values take bytes, and an i64 is wider than its value.
bool lies_as_held(ElementType type);
/// IR type of an element in memory: register_type, or i8 of a truth value, or i64.
llvm::Type* element_type(llvm::LLVMContext& context, ElementType type);
/// From element_type to register_type and back, for one value or by lane.
llvm::Value* from_element(llvm::IRBuilderBase& b, llvm::Value* element, ElementType type);
llvm::Value* to_element(llvm::IRBuilderBase& b, llvm::Value* value, ElementType type);

/// Supplies the leaves. A leaf that is the same in all lanes may be one value instead of a vector: what depends only on
/// such leaves is then computed once.
struct ScalarLeaves {
  /// Element of access `ordinal` in its register type. `mask` (i1 or vector of i1; null: all lanes) says which lanes are
  /// needed: others may lie outside the tensor and must not be loaded; their value does not matter.
  std::function<llvm::Value*(int ordinal, llvm::Value* mask)> read;
  std::function<llvm::Value*(int ordinal)> index;                                 ///< i32
  std::function<llvm::Value*(const std::string& name, ElementType type)> scalar;  ///< in its register type
};

/// Value of `expr` in its register type: a vector of `width` lanes, or one value when width is 1 or no leaf differs between
/// lanes. Shared subexpressions are emitted once. `active` (i1, vector of i1 or null): lanes whose reads are allowed.
llvm::Value* emit_scalar(llvm::IRBuilderBase& b, const MathEmitter& math, const ScalarExpr& expr, const ScalarLeaves& leaves,
                         unsigned width = 1, llvm::Value* active = nullptr);

/// Converts between element types as ScalarOp::cast does.
llvm::Value* emit_cast(llvm::IRBuilderBase& b, const MathEmitter& math, llvm::Value* value, ElementType from, ElementType to);

/// `a op b` for values of `type` (f32 or i32).
llvm::Value* emit_combine(llvm::IRBuilderBase& b, const MathEmitter& math, ReductionOp op, ElementType type, llvm::Value* a,
                          llvm::Value* c);

/// A constant of `type`, correctly rounded.
llvm::Constant* scalar_constant(llvm::LLVMContext& context, ElementType type, double number);

/// `condition ? yes : no` by lane; halves are moved as bits, since not every target has vectors of them.
llvm::Value* emit_choice(llvm::IRBuilderBase& b, llvm::Value* condition, llvm::Value* yes, llvm::Value* no);

/// `value` in all `width` lanes, unless it is a vector already or width is 1.
llvm::Value* splat_to(llvm::IRBuilderBase& b, llvm::Value* value, unsigned width);

}  // namespace nestor
