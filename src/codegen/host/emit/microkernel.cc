// A register-blocked product: broadcasts of A times vectors of B into accumulators that stay in registers.
#include "codegen/host/emit/microkernel.h"

#include <fmt/format.h>

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <vector>

namespace nestor {
namespace {

using llvm::Value;

constexpr int kDepthUnroll = 4;

class Microkernel {
 public:
  Microkernel(HostModule& host, llvm::Function* function, const MicrokernelShape& shape)
      : f_(host, function),
        b_(f_.b),
        shape_(shape),
        real_(b_.getFloatTy()),
        vector_(llvm::FixedVectorType::get(real_, shape.width)) {
    const auto arg = [&](unsigned k) { return function->getArg(k); };
    a_ = arg(0), a_stride_ = arg(1), bp_ = arg(2), b_stride_ = arg(3), c_ = arg(4), c_stride_ = arg(5);
    depth_ = arg(6), rows_ = arg(7), columns_ = arg(8), scale_ = arg(9), accumulate_ = arg(10);
  }

  void emit() {
    for (int i = 0; i < shape_.rows * shape_.vectors; ++i) {
      sums_.push_back(f_.entry_alloca(vector_));
      b_.CreateStore(llvm::Constant::getNullValue(vector_), sums_.back());
    }
    find_rows();
    if (shape_.fetches_c) fetch_results();
    Value* unrolled = b_.CreateAnd(depth_, f_.i64(-kDepthUnroll));
    f_.loop(f_.i64(0), unrolled, kDepthUnroll, [&](Value* k) { steps(k, kDepthUnroll); });
    f_.loop(unrolled, depth_, 1, [&](Value* k) { steps(k, 1); });
    Value* whole = b_.CreateAnd(b_.CreateICmpSGE(rows_, f_.i64(shape_.rows)),
                                b_.CreateICmpSGE(columns_, f_.i64(first_column(shape_.vectors))));
    f_.branch(whole, [&] { write_whole(); }, [&] { write_part(); });
    b_.CreateRetVoid();
  }

 private:
  Value* at(Value* base, Value* index) { return b_.CreateInBoundsGEP(real_, base, index); }
  Value* at(Value* base, std::int64_t index) { return at(base, f_.i64(index)); }
  std::int64_t first_column(int v) const { return std::int64_t{shape_.width} * v; }  ///< of a vector
  llvm::AllocaInst* sum(int row, int v) { return sums_.at(static_cast<std::size_t>(row) * shape_.vectors + v); }
  Value* get(llvm::AllocaInst* memory) { return b_.CreateLoad(vector_, memory); }

  /// Rows beyond the last one repeat it: their sums are not stored.
  void find_rows() {
    if (shape_.packed_a) return;
    Value* last = b_.CreateNSWSub(rows_, f_.i64(1));
    for (int i = 0; i < shape_.rows; ++i) {
      Value* row = i == 0 ? f_.i64(0) : f_.minimum(f_.i64(i), last);
      row_.push_back(at(a_, b_.CreateNSWMul(row, a_stride_)));
    }
  }

  /// Rows and columns that are not there do no harm.
  void fetch_results() {
    each([&](int i, int v) {
      Value* offset = b_.CreateAdd(b_.CreateMul(f_.i64(i), c_stride_), f_.i64(first_column(v)));
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                         {b_.CreateGEP(real_, c_, offset), b_.getInt32(0), b_.getInt32(2), b_.getInt32(1)});
    });
  }

  void steps(Value* k, int count) {
    const std::int64_t panel = first_column(shape_.vectors);
    Value* a_block = shape_.packed_a ? at(a_, b_.CreateNSWMul(k, f_.i64(shape_.rows))) : nullptr;
    Value* b_block = at(bp_, b_.CreateNSWMul(k, shape_.packed_b ? f_.i64(panel) : b_stride_));
    for (int step = 0; step < count; ++step) {
      std::vector<Value*> columns;
      columns.reserve(static_cast<std::size_t>(shape_.vectors));
      for (int v = 0; v < shape_.vectors; ++v) {
        columns.push_back(b_.CreateAlignedLoad(vector_, at(b_block, first_column(v)), llvm::Align(4)));
      }
      for (int i = 0; i < shape_.rows; ++i) {
        Value* from = shape_.packed_a ? at(a_block, static_cast<std::int64_t>(step) * shape_.rows + i) : at(at(row_[i], k), step);
        Value* element = b_.CreateVectorSplat(shape_.width, b_.CreateLoad(real_, from));
        for (int v = 0; v < shape_.vectors; ++v) {
          Value* added = b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {vector_}, {element, columns[v], get(sum(i, v))});
          b_.CreateStore(added, sum(i, v));
        }
      }
      if (step + 1 < count) b_block = at(b_block, shape_.packed_b ? f_.i64(panel) : b_stride_);
    }
  }

  Value* c_address(int row, int v) { return at(at(c_, b_.CreateNSWMul(f_.i64(row), c_stride_)), first_column(v)); }

  Value* scaled(Value* value) { return shape_.scaled ? b_.CreateFMul(value, b_.CreateVectorSplat(shape_.width, scale_)) : value; }

  void each(const std::function<void(int, int)>& body) {
    for (int i = 0; i < shape_.rows; ++i) {
      for (int v = 0; v < shape_.vectors; ++v) body(i, v);
    }
  }

  void write_whole() {
    each([&](int i, int v) { b_.CreateStore(scaled(get(sum(i, v))), sum(i, v)); });
    f_.branch(accumulate_, [&] {
      each([&](int i, int v) {
        Value* old = b_.CreateAlignedLoad(vector_, c_address(i, v), llvm::Align(4));
        b_.CreateStore(b_.CreateFAdd(old, get(sum(i, v))), sum(i, v));
      });
    });
    each([&](int i, int v) { b_.CreateAlignedStore(get(sum(i, v)), c_address(i, v), llvm::Align(4)); });
  }

  void write_part() {
    std::vector<Value*> masks;
    masks.reserve(static_cast<std::size_t>(shape_.vectors));
    for (int v = 0; v < shape_.vectors; ++v) {
      masks.push_back(first_lanes(b_, b_.CreateNSWSub(columns_, f_.i64(first_column(v))), shape_.width));
    }
    llvm::Constant* zero = llvm::Constant::getNullValue(vector_);
    for (int i = 0; i < shape_.rows; ++i) {
      f_.branch(b_.CreateICmpSGT(rows_, f_.i64(i)), [&] {
        for (int v = 0; v < shape_.vectors; ++v) {
          Value* mask = masks[v];
          Value* wanted = b_.CreateAnd(mask, b_.CreateVectorSplat(shape_.width, accumulate_));
          Value* old = b_.CreateMaskedLoad(vector_, c_address(i, v), llvm::Align(4), wanted, zero);
          b_.CreateMaskedStore(b_.CreateFAdd(old, scaled(get(sum(i, v)))), c_address(i, v), llvm::Align(4), mask);
        }
      });
    }
  }

  Frame f_;
  llvm::IRBuilder<>& b_;
  MicrokernelShape shape_;
  llvm::Type* real_;
  llvm::FixedVectorType* vector_;
  Value *a_, *a_stride_, *bp_, *b_stride_, *c_, *c_stride_, *depth_, *rows_, *columns_, *scale_, *accumulate_;
  std::vector<llvm::AllocaInst*> sums_;
  std::vector<Value*> row_;
};

}  // namespace

llvm::Function* microkernel(HostModule& host, const MicrokernelShape& shape) {
  const std::string name =
      fmt::format("product_{}x{}x{}{}{}{}{}", shape.rows, shape.vectors, shape.width, shape.packed_a ? "_a" : "",
                  shape.packed_b ? "_b" : "", shape.scaled ? "_s" : "", shape.fetches_c ? "_c" : "");
  llvm::Function*& known = host.helpers[name];
  if (known != nullptr) return known;
  llvm::Type* pointer = llvm::PointerType::getUnqual(host.context());
  llvm::Type* i64 = llvm::Type::getInt64Ty(host.context());
  llvm::FunctionType* type =
      llvm::FunctionType::get(llvm::Type::getVoidTy(host.context()),
                              {pointer, i64, pointer, i64, pointer, i64, i64, i64, i64, llvm::Type::getFloatTy(host.context()),
                               llvm::Type::getInt1Ty(host.context())},
                              false);
  known = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, host.module);
  known->addFnAttr(llvm::Attribute::NoInline);
  for (const unsigned k : {0U, 2U, 4U}) known->addParamAttr(k, llvm::Attribute::NoAlias);
  Microkernel(host, known, shape).emit();
  return known;
}

}  // namespace nestor
