// Accesses of one op as strided offsets; loads and stores of lanes.
#include "codegen/host/emit/op_context.h"

#include "support/error.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>

namespace nestor {

using llvm::Value;

namespace {

/// True when any lane of a mask is set.
Value* any(llvm::IRBuilderBase& b, Value* mask) { return mask->getType()->isVectorTy() ? b.CreateOrReduce(mask) : mask; }

}  // namespace

OpContext::OpContext(Frame& the_frame, const TileOp& the_op) : frame(the_frame), op(the_op) {
  for (const OpDim& dim : op.dims) bounds_.emplace_back(frame.integer(dim.lower), frame.integer(dim.upper));
  accesses_.push_back(bind(op.write));
  for (const TileAccess& read : op.reads) accesses_.push_back(bind(read));
}

std::optional<std::int64_t> OpContext::extent(int dim) const {
  const OpDim& d = op.dims[dim];
  if (const auto difference = (d.upper - d.lower).as_constant()) return difference;
  const auto low = constant_of(lower(dim)), high = constant_of(upper(dim));
  return low && high ? std::optional(*high - *low) : std::nullopt;
}

OpContext::Strided OpContext::bind(const TileAccess& access) {
  Strided out;
  out.source = &access;
  const BufferView& view = frame.buffers.at(access.buffer);
  llvm::IRBuilder<>& b = frame.b;
  for (const OpDim& dim : op.dims) {
    Value* stride = frame.i64(0);
    for (std::size_t k = 0; k < access.index.size(); ++k) {
      const auto coefficient = access.index[k].coefficient(dim.var);
      if (!coefficient) {
        stride = nullptr;
        break;
      }
      if (*coefficient != 0) stride = b.CreateNSWAdd(stride, b.CreateNSWMul(frame.i64(*coefficient), view.strides[k]));
    }
    out.stride.push_back(stride);
    out.affine = out.affine && stride != nullptr;
  }
  out.next = distance_to_next(access);
  out.offset = frame.i64(0);
  if (!out.affine) return out;
  for (std::size_t k = 0; k < access.index.size(); ++k) {
    IntExpr origin = access.index[k];
    for (const OpDim& dim : op.dims) origin = origin.substitute(dim.var, 0);
    out.offset = b.CreateNSWAdd(out.offset, b.CreateNSWMul(frame.integer(origin), view.strides[k]));
  }
  return out;
}

Value* OpContext::distance_to_next(const TileAccess& access) {
  if (frame.last_readers.count({&op, access.buffer}) == 0) return nullptr;
  const BufferView& view = frame.buffers.at(access.buffer);
  Value* distance = nullptr;
  for (std::size_t k = 0; k < access.index.size(); ++k) {
    const auto coefficient = access.index[k].coefficient(frame.next_var);
    if (!coefficient) return nullptr;
    if (*coefficient == 0) continue;
    Value* part = frame.b.CreateNSWMul(frame.i64(*coefficient * frame.next_step), view.strides[k]);
    distance = distance == nullptr ? part : frame.b.CreateNSWAdd(distance, part);
  }
  return distance;
}

OpContext::Motion OpContext::motion(int access, int dim) const {
  Value* stride = at(access).stride[dim];
  if (stride == nullptr) return Motion::irregular;
  const auto constant = constant_of(stride);
  if (constant && *constant == 0) return Motion::none;
  return constant && *constant == 1 ? Motion::unit : Motion::strided;
}

Value* OpContext::stride(int access, int dim) const { return at(access).stride[dim]; }
int OpContext::buffer(int access) const { return at(access).source->buffer; }
ElementType OpContext::type(int access) const { return frame.host.program.buffers[buffer(access)].type; }

void OpContext::open(int dim, Value* value) { move(dim, value, value); }

void OpContext::shift(int dim, std::int64_t distance) {
  Value* now = frame.variables.at(op.dims[dim].var);
  Value* by = frame.i64(distance);
  move(dim, distance == 0 ? now : frame.b.CreateNSWAdd(now, by), by);
}

void OpContext::move(int dim, Value* value, Value* distance) {
  std::vector<Value*> offsets;
  for (Strided& access : accesses_) {
    offsets.push_back(access.offset);
    Value* stride = access.stride[dim];
    if (!access.affine || constant_of(stride) == 0) continue;
    access.offset = frame.b.CreateNSWAdd(access.offset, frame.b.CreateNSWMul(distance, stride));
  }
  saved_.push_back(std::move(offsets));
  Value*& variable = frame.variables[op.dims[dim].var];
  shadowed_.push_back(variable);
  variable = value;
}

void OpContext::close(int dim) {
  for (std::size_t k = 0; k < accesses_.size(); ++k) accesses_[k].offset = saved_.back()[k];
  saved_.pop_back();
  const std::string& var = op.dims[dim].var;
  if (shadowed_.back() == nullptr) {
    frame.variables.erase(var);
  } else {
    frame.variables[var] = shadowed_.back();
  }
  shadowed_.pop_back();
}

Value* OpContext::element_address(int access, Value* offset) {
  llvm::Type* element = memory_type(frame.host.context(), type(access));
  return frame.b.CreateInBoundsGEP(element, frame.buffers.at(buffer(access)).base, offset);
}

Value* OpContext::offset_now(int access) {
  const Strided& a = at(access);
  if (a.affine) return a.offset;
  const BufferView& view = frame.buffers.at(a.source->buffer);
  Value* offset = frame.i64(0);
  for (std::size_t k = 0; k < a.source->index.size(); ++k) {
    offset = frame.b.CreateNSWAdd(offset, frame.b.CreateNSWMul(frame.integer(a.source->index[k]), view.strides[k]));
  }
  return offset;
}

Value* OpContext::offset_of_lane(int access, Lanes lanes, unsigned lane) {
  Value* stride = at(access).stride[lanes.dim];
  if (stride != nullptr) return frame.b.CreateNSWAdd(offset_now(access), frame.b.CreateNSWMul(stride, frame.i64(lane)));
  Value*& variable = frame.variables.at(op.dims[lanes.dim].var);
  Value* first = variable;
  variable = frame.b.CreateNSWAdd(first, frame.i64(lane));
  Value* offset = offset_now(access);
  variable = first;
  return offset;
}

Value* OpContext::address(int access) { return element_address(access, offset_now(access)); }

Value* OpContext::spare() {
  llvm::Module& module = frame.host.module;
  if (llvm::GlobalVariable* known = module.getNamedGlobal("nestor_spare")) return known;
  llvm::Type* type = llvm::ArrayType::get(llvm::Type::getInt64Ty(frame.host.context()), 16);
  auto* global = new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::PrivateLinkage,
                                          llvm::ConstantAggregateZero::get(type), "nestor_spare");
  global->setAlignment(llvm::Align(64));
  return global;
}

Value* OpContext::load_raw(int access, Value* offset, Value* mask) {
  Value* from = element_address(access, offset);
  // A masked-out element may lie anywhere: read a constant instead.
  if (mask != nullptr) from = frame.b.CreateSelect(mask, from, spare());
  llvm::LoadInst* load = frame.b.CreateLoad(memory_type(frame.host.context(), type(access)), from);
  frame.tag(load, buffer(access));
  return load;
}

Value* OpContext::load_unit(int access, Lanes lanes, Value* mask) {
  const ElementType element = type(access);
  llvm::Type* vector = llvm::FixedVectorType::get(memory_type(frame.host.context(), element), lanes.width);
  Value* from = address(access);
  const llvm::Align alignment(size_in_bytes(element));
  llvm::Instruction* load = nullptr;
  if (mask == nullptr || !mask->getType()->isVectorTy()) {
    if (mask != nullptr) from = frame.b.CreateSelect(mask, from, spare());
    load = frame.b.CreateAlignedLoad(vector, from, alignment);
  } else {
    load = frame.b.CreateMaskedLoad(vector, from, alignment, mask, llvm::Constant::getNullValue(vector));
  }
  frame.tag(load, buffer(access));
  return to_register(frame.b, load, element);
}

// Vectors are put together in memory form: CPUs without F16C have no vectors of halves.
Value* OpContext::load_lanes_apart(int access, Lanes lanes, Value* mask) {
  const ElementType element = type(access);
  Value* result = llvm::PoisonValue::get(llvm::FixedVectorType::get(memory_type(frame.host.context(), element), lanes.width));
  for (unsigned lane = 0; lane < lanes.width; ++lane) {
    Value* bit = mask != nullptr && mask->getType()->isVectorTy() ? frame.b.CreateExtractElement(mask, lane) : mask;
    result = frame.b.CreateInsertElement(result, load_raw(access, offset_of_lane(access, lanes, lane), bit), lane);
  }
  return to_register(frame.b, result, element);
}

Value* OpContext::load(int access, Lanes lanes, Value* mask) {
  const Motion how = lanes.width == 1 ? Motion::none : motion(access, lanes.dim);
  if (how == Motion::none)
    return to_register(frame.b,
                       load_raw(access, offset_now(access), mask == nullptr || mask == tail_mask ? nullptr : any(frame.b, mask)),
                       type(access));
  if (how == Motion::unit) return load_unit(access, lanes, mask);
  return load_lanes_apart(access, lanes, mask);
}

void OpContext::store_raw(Value* value, Value* offset) {
  llvm::StoreInst* store = frame.b.CreateStore(value, element_address(kWrite, offset));
  frame.tag(store, buffer(kWrite));
}

void OpContext::store(Value* value, Lanes lanes, Value* mask, bool nontemporal) {
  if (lanes.width == 1) {
    frame.branch(mask == nullptr ? frame.b.getTrue() : mask,
                 [&] { store_raw(to_memory(frame.b, value, type(kWrite)), offset_now(kWrite)); });
    return;
  }
  value = splat_to(frame.b, to_memory(frame.b, value, type(kWrite)), lanes.width);
  if (motion(kWrite, lanes.dim) == Motion::unit) {
    const llvm::Align alignment(nontemporal ? size_in_bytes(type(kWrite)) * lanes.width : size_in_bytes(type(kWrite)));
    llvm::Instruction* store = nullptr;
    if (mask != nullptr) {
      store = frame.b.CreateMaskedStore(value, address(kWrite), alignment, splat_to(frame.b, mask, lanes.width));
    } else {
      store = frame.b.CreateAlignedStore(value, address(kWrite), alignment);
      if (nontemporal) {
        llvm::Metadata* one = llvm::ConstantAsMetadata::get(frame.b.getInt32(1));
        store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(frame.host.context(), {one}));
        frame.streamed = true;
      }
    }
    frame.tag(store, buffer(kWrite));
    return;
  }
  for (unsigned lane = 0; lane < lanes.width; ++lane) {
    Value* bit = mask == nullptr                 ? frame.b.getTrue()
                 : mask->getType()->isVectorTy() ? frame.b.CreateExtractElement(mask, lane)
                                                 : mask;
    Value* offset = offset_of_lane(kWrite, lanes, lane);
    Value* one = frame.b.CreateExtractElement(value, lane);
    frame.branch(bit, [&] { store_raw(one, offset); });
  }
}

void OpContext::prefetch(Lanes lanes, unsigned count) {
  constexpr std::int64_t kLine = 64;
  constexpr std::int64_t kFarthest = 32 << 10;  // what lies beyond would be lost again before it is needed
  llvm::IRBuilder<>& b = frame.b;
  for (int r = 0; r < static_cast<int>(op.reads.size()); ++r) {
    if (at(r).next == nullptr || motion(r, lanes.dim) != Motion::unit) continue;
    const auto bytes = static_cast<std::int64_t>(size_in_bytes(type(r)));
    Value* distance = b.CreateNSWMul(at(r).next, frame.i64(bytes));
    Value* far = b.CreateICmpUGT(distance, frame.i64(kFarthest));
    Value* ahead = b.CreateGEP(b.getInt8Ty(), address(r), b.CreateSelect(far, frame.i64(0), distance));
    for (std::int64_t line = 0; line < bytes * lanes.width * count; line += kLine) {
      Value* wanted = b.CreateConstGEP1_64(b.getInt8Ty(), ahead, static_cast<std::uint64_t>(line));
      b.CreateIntrinsic(llvm::Intrinsic::prefetch, {b.getPtrTy()}, {wanted, b.getInt32(0), b.getInt32(3), b.getInt32(1)});
    }
  }
}

Value* OpContext::value(Lanes lanes, Value* mask, ElementType wanted) {
  llvm::IRBuilder<>& b = frame.b;
  std::map<std::pair<int, Value*>, Value*> loaded;
  ScalarLeaves leaves;
  leaves.read = [&](int ordinal, Value* needed) {
    Value*& known = loaded[{ordinal, needed}];
    if (known == nullptr) known = load(ordinal, lanes, needed);
    return known;
  };
  leaves.index = [&](int ordinal) {
    const std::string var = lanes.dim < 0 ? std::string() : op.dims[lanes.dim].var;
    return emit_int32_lanes(b, op.indices[ordinal], frame.lookup(), {var, lanes.width});
  };
  leaves.scalar = [&](const std::string& name, ElementType type) -> Value* {
    const auto& scalars = frame.host.program.scalars;
    const auto found = std::find_if(scalars.begin(), scalars.end(), [&](const ScalarParam& s) { return s.name == name; });
    if (found == scalars.end()) internal_error("op {} uses the scalar {}, which the program does not have", op.name, name);
    Value* slot =
        b.CreateConstInBoundsGEP1_64(b.getDoubleTy(), frame.scalars, static_cast<std::uint64_t>(found - scalars.begin()));
    Value* number = frame.invariant_load(b.getDoubleTy(), slot);
    if (found->type == ElementType::i32)
      return emit_cast(b, frame.host.math, b.CreateFPToSI(number, b.getInt32Ty()), ElementType::i32, type);
    return emit_cast(b, frame.host.math, b.CreateFPTrunc(number, b.getFloatTy()), ElementType::f32, type);
  };
  Value* result = emit_scalar(b, frame.host.math, op.value, leaves, lanes.width, mask);
  return emit_cast(b, frame.host.math, result, op.value.type(), wanted);
}

Value* OpContext::condition(const std::vector<IntExpr>& parts, Lanes lanes) {
  Value* all = nullptr;
  const std::string var = lanes.dim < 0 ? std::string() : op.dims[lanes.dim].var;
  for (const IntExpr& part : parts) {
    Value* one = splat_to(frame.b, emit_condition_lanes(frame.b, part, frame.lookup(), {var, lanes.width}), lanes.width);
    all = all == nullptr ? one : frame.b.CreateAnd(all, one);
  }
  return all;
}

}  // namespace nestor
