// Packing: strided matrices of any stored type become dense f32 panels, by vectors where either index is dense.
#include "codegen/host/emit/microkernel.h"

#include <fmt/format.h>

#include <llvm/IR/Constants.h>

#include <numeric>
#include <vector>

namespace nestor {
namespace {

using llvm::Value;

class Packer {
 public:
  Packer(HostModule& host, llvm::Function* function, const PackShape& shape)
      : f_(host, function), b_(f_.b), shape_(shape), real_(b_.getFloatTy()), stored_(memory_type(host.context(), shape.type)) {
    const auto arg = [&](unsigned k) { return function->getArg(k); };
    panels_ = arg(0), source_ = arg(1), across_ = arg(2), along_ = arg(3), count_ = arg(4), depth_ = arg(5);
  }

  void emit() {
    const std::int64_t panel = shape_.panel;
    f_.loop(f_.i64(0), count_, panel, [&](Value* first) {
      valid_ = f_.minimum(b_.CreateNSWSub(count_, first), f_.i64(panel));
      to_ = at(real_, panels_, b_.CreateNSWMul(first, depth_));
      from_ = at(stored_, source_, b_.CreateNSWMul(first, across_));
      emit_panel();
    });
    b_.CreateRetVoid();
  }

 private:
  Value* at(llvm::Type* type, Value* base, Value* index) { return b_.CreateInBoundsGEP(type, base, index); }
  unsigned groups() const { return (static_cast<unsigned>(shape_.panel) + shape_.width - 1) / shape_.width; }

  void emit_panel() {
    switch (shape_.dense) {
      case PackShape::Dense::across: {
        Value* whole = b_.CreateICmpSGE(valid_, f_.i64(shape_.panel));
        const bool even = static_cast<unsigned>(shape_.panel) % shape_.width == 0;
        const auto by_element = [&] { elements(f_.i64(0)); };
        if (even) return f_.branch(whole, [&] { across(false); }, by_element);
        if (shape_.type != ElementType::f32 || !f_.host.shape.masked) return by_element();
        return across(true);
      }
      case PackShape::Dense::along:
        return along();
      case PackShape::Dense::neither:
        return elements(f_.i64(0));
    }
  }

  Value* to_f32(Value* value) {
    return emit_cast(b_, f_.host.math, to_register(b_, value, shape_.type), shape_.type, ElementType::f32);
  }

  llvm::FixedVectorType* vector_of(llvm::Type* element) { return llvm::FixedVectorType::get(element, shape_.width); }

  Value* load_vector(Value* from) {
    return to_f32(b_.CreateAlignedLoad(vector_of(stored_), from, llvm::Align(size_in_bytes(shape_.type))));
  }

  void store_vector(Value* value, Value* k, unsigned group) {
    Value* offset =
        b_.CreateNSWAdd(b_.CreateNSWMul(k, f_.i64(shape_.panel)), f_.i64(static_cast<std::int64_t>(group) * shape_.width));
    b_.CreateAlignedStore(value, at(real_, to_, offset), llvm::Align(4));
  }

  /// Dense across the panel: one row of vectors for each k. An uneven panel overlaps the next row, which is written later.
  void across(bool masked) {
    std::vector<Value*> masks;
    for (unsigned g = 0; masked && g < groups(); ++g) {
      masks.push_back(
          first_lanes(b_, b_.CreateNSWSub(valid_, f_.i64(static_cast<std::int64_t>(g) * shape_.width)), shape_.width));
    }
    f_.loop(f_.i64(0), depth_, 1, [&](Value* k) {
      Value* row = at(stored_, from_, b_.CreateNSWMul(k, along_));
      for (unsigned g = 0; g < groups(); ++g) {
        Value* from = at(stored_, row, f_.i64(static_cast<std::int64_t>(g) * shape_.width));
        if (!masked) {
          store_vector(load_vector(from), k, g);
          continue;
        }
        llvm::Type* type = vector_of(stored_);
        store_vector(b_.CreateMaskedLoad(type, from, llvm::Align(4), masks[g], llvm::Constant::getNullValue(type)), k, g);
      }
    });
  }

  /// Dense along the depth: blocks of width x width are transposed in registers.
  void along() {
    Value* blocks = b_.CreateAnd(depth_, f_.i64(-static_cast<std::int64_t>(shape_.width)));
    Value* last = b_.CreateNSWSub(valid_, f_.i64(1));
    f_.loop(f_.i64(0), blocks, shape_.width, [&](Value* k) {
      // Groups from the last to the first, so that what one writes beyond the panel's row is overwritten by right values.
      for (unsigned g = groups(); g-- > 0;) {
        std::vector<Value*> rows;
        for (unsigned r = 0; r < shape_.width; ++r) {
          const std::int64_t row = static_cast<std::int64_t>(g) * shape_.width + r;
          if (row >= shape_.panel) {
            rows.push_back(llvm::PoisonValue::get(vector_of(real_)));
            continue;
          }
          Value* start = b_.CreateNSWMul(f_.minimum(f_.i64(row), last), across_);
          rows.push_back(load_vector(at(stored_, from_, b_.CreateNSWAdd(start, k))));
        }
        transpose(rows);
        for (unsigned r = 0; r < shape_.width; ++r) store_vector(rows[r], b_.CreateNSWAdd(k, f_.i64(r)), g);
      }
    });
    elements(blocks);
  }

  /// Butterflies: after the step of size s, blocks of s x s are swapped across the diagonal.
  void transpose(std::vector<Value*>& rows) {
    const unsigned width = shape_.width;
    for (unsigned s = width / 2; s >= 1; s /= 2) {
      std::vector<int> low(width), high(width);
      for (unsigned lane = 0; lane < width; ++lane) {
        const bool upper = (lane & s) != 0;
        low[lane] = static_cast<int>(upper ? width + lane - s : lane);
        high[lane] = static_cast<int>(upper ? width + lane : lane + s);
      }
      for (unsigned r = 0; r < width; ++r) {
        if ((r & s) != 0) continue;
        Value* first = rows[r];
        Value* second = rows[r + s];
        rows[r] = b_.CreateShuffleVector(first, second, low);
        rows[r + s] = b_.CreateShuffleVector(first, second, high);
      }
    }
  }

  void elements(Value* start) {
    Value* last = b_.CreateNSWSub(valid_, f_.i64(1));
    f_.loop(start, depth_, 1, [&](Value* k) {
      Value* column = b_.CreateNSWMul(k, along_);
      f_.loop(f_.i64(0), f_.i64(shape_.panel), 1, [&](Value* r) {
        Value* from = at(stored_, from_, b_.CreateNSWAdd(column, b_.CreateNSWMul(f_.minimum(r, last), across_)));
        Value* offset = b_.CreateNSWAdd(b_.CreateNSWMul(k, f_.i64(shape_.panel)), r);
        b_.CreateStore(to_f32(b_.CreateLoad(stored_, from)), at(real_, to_, offset));
      });
    });
  }

  Frame f_;
  llvm::IRBuilder<>& b_;
  PackShape shape_;
  llvm::Type* real_;
  llvm::Type* stored_;
  Value *panels_, *source_, *across_, *along_, *count_, *depth_;
  Value *valid_ = nullptr, *to_ = nullptr, *from_ = nullptr;
};

}  // namespace

llvm::Function* packer(HostModule& host, const PackShape& shape) {
  const char* dense = shape.dense == PackShape::Dense::across  ? "across"
                      : shape.dense == PackShape::Dense::along ? "along"
                                                               : "strided";
  const std::string name = fmt::format("pack_{}_{}x{}_{}", to_string(shape.type), shape.panel, shape.width, dense);
  llvm::Function*& known = host.helpers[name];
  if (known != nullptr) return known;
  llvm::Type* pointer = llvm::PointerType::getUnqual(host.context());
  llvm::Type* i64 = llvm::Type::getInt64Ty(host.context());
  llvm::FunctionType* type =
      llvm::FunctionType::get(llvm::Type::getVoidTy(host.context()), {pointer, pointer, i64, i64, i64, i64}, false);
  known = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, host.module);
  known->addFnAttr(llvm::Attribute::NoInline);
  known->addParamAttr(0, llvm::Attribute::NoAlias);
  known->addParamAttr(1, llvm::Attribute::NoAlias);
  Packer(host, known, shape).emit();
  return known;
}

}  // namespace nestor
