// Loads and stores of a block: tensors, workspace, shared memory and registers, one element or 16 bytes at once.
#include "codegen/gpu/kernel/workspace.h"
#include "codegen/gpu/simt/emit/block_emitter.h"

#include "support/error.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <fmt/format.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

using llvm::Value;

bool is_16_bit(ElementType type) { return type == ElementType::f16 || type == ElementType::bf16; }

/// Elements that one access of at most 16 bytes moves.
int piece_width(ElementType type, int width) { return std::min<int>(width, static_cast<int>(16 / size_in_bytes(type))); }

}  // namespace

/// The constant comes last, so that it becomes part of the instruction and neighbouring places share one register.
Value* BlockEmitter::shared_address(llvm::Type* type, std::int64_t bytes, Value* index) {
  Value* place = b_.CreateInBoundsGEP(type, shared_, {index});
  return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), place, static_cast<std::uint64_t>(bytes));
}

Value* BlockEmitter::address(const TileAccess& access) {
  const Buffer& buffer = plan_->buffer(access.buffer);
  const Placement* place = plan_->placement(access.buffer);
  llvm::Type* type = element_of(buffer);
  const auto rank = access.index.size();
  Value* offset = b_.getInt64(0);
  Value* stride = b_.getInt64(1);
  for (std::size_t k = rank; k-- > 0;) {
    if (place != nullptr) {
      stride = b_.getInt64(static_cast<std::uint64_t>(place->strides[k]));
    } else if (buffer.memory == Memory::argument && k + 1 < rank) {
      stride = arguments_.strides.at({access.buffer, static_cast<int>(k)});
    } else if (buffer.memory == Memory::workspace && k + 1 < rank) {
      stride = b_.CreateNSWMul(stride, integer(held_extent(buffer, k + 1)));
    }
    offset = b_.CreateNSWAdd(b_.CreateNSWMul(integer(access.index[k]), stride), offset);
  }
  if (place != nullptr) return shared_address(type, place->offset, offset);
  Value* base = nullptr;
  if (buffer.memory == Memory::argument) {
    base = arguments_.pointers.at(access.buffer);
  } else {
    base = b_.CreateInBoundsGEP(b_.getInt8Ty(), arguments_.workspace, {integer(arguments_.workspace_offsets.at(access.buffer))});
  }
  Value* found = b_.CreateInBoundsGEP(type, base, {offset});
  return wanted_ == nullptr ? found : b_.CreateSelect(wanted_, found, base);
}

Value* BlockEmitter::load_element(const TileAccess& access) {
  const Buffer& buffer = plan_->buffer(access.buffer);
  auto* result = b_.CreateAlignedLoad(element_of(buffer), address(access), llvm::Align(size_in_bytes(buffer.type)));
  if (buffer.memory == Memory::argument && buffer.role == TensorRole::input) {
    result->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
  }
  return from_element(b_, result, buffer.type);
}

/// 16 bytes of an input that nobody reads again: they take no room in the first cache.
std::vector<Value*> BlockEmitter::load_once(Value* pointer, llvm::Type* word) {
  llvm::Type* i32 = b_.getInt32Ty();
  auto* type = llvm::FunctionType::get(llvm::StructType::get(i32, i32, i32, i32), {pointer->getType()}, false);
  auto* code = llvm::InlineAsm::get(type, "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l", false);
  Value* loaded = b_.CreateCall(type, code, {pointer});
  std::vector<Value*> words;
  words.reserve(4);
  for (unsigned k = 0; k < 4; ++k) words.push_back(b_.CreateBitCast(b_.CreateExtractValue(loaded, {k}), word));
  return words;
}

/// The words of an input by one load, which LLVM does not take apart.
std::vector<Value*> BlockEmitter::load_whole(Value* pointer, llvm::Type* type, std::uint64_t bytes) {
  const auto intrinsic =
      type->getScalarType()->isFloatTy() ? llvm::Intrinsic::nvvm_ldg_global_f : llvm::Intrinsic::nvvm_ldg_global_i;
  Value* loaded =
      b_.CreateIntrinsic(intrinsic, {type, pointer->getType()}, {pointer, b_.getInt32(static_cast<std::uint32_t>(bytes))});
  std::vector<Value*> words;
  const unsigned count = llvm::cast<llvm::FixedVectorType>(type)->getNumElements();
  for (std::uint64_t k = 0; k < count; ++k) words.push_back(b_.CreateExtractElement(loaded, k));
  return words;
}

/// `width` elements as they lie in memory: 16-bit ones in 32-bit words, two each.
std::vector<Value*> BlockEmitter::load_words(const TileAccess& access, int width) {
  const Buffer& buffer = plan_->buffer(access.buffer);
  const bool halves = is_16_bit(buffer.type);
  const int piece = piece_width(buffer.type, width), words = halves ? piece / 2 : piece;
  llvm::Type* word = halves ? b_.getInt32Ty() : type_of(buffer);
  llvm::Type* type = words == 1 ? word : llvm::FixedVectorType::get(word, static_cast<unsigned>(words));
  Value* base = address(access);
  std::vector<Value*> values;
  for (int start = 0; start < width; start += piece) {
    Value* pointer = start == 0 ? base : b_.CreateConstInBoundsGEP1_64(type_of(buffer), base, static_cast<std::uint64_t>(start));
    if (buffer.streaming && buffer.role == TensorRole::input && words == 4) {
      for (Value* loaded : load_once(pointer, word)) values.push_back(loaded);
      continue;
    }
    const auto bytes = static_cast<std::uint64_t>(piece) * size_in_bytes(buffer.type);
    const bool is_input = buffer.memory == Memory::argument && buffer.role == TensorRole::input;
    if (whole_loads_ && is_input && words > 1) {
      for (Value* loaded : load_whole(pointer, type, bytes)) values.push_back(loaded);
      continue;
    }
    auto* loaded = b_.CreateAlignedLoad(type, pointer, llvm::Align(bytes));
    if (is_input) {
      loaded->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
    }
    for (int k = 0; k < words; ++k)
      values.push_back(words == 1 ? loaded : b_.CreateExtractElement(loaded, static_cast<std::uint64_t>(k)));
  }
  return values;
}

std::vector<Value*> BlockEmitter::elements_of(const std::vector<Value*>& words, ElementType type) {
  if (!is_16_bit(type)) return words;
  llvm::Type* element = register_type(b_.getContext(), type);
  std::vector<Value*> values;
  for (Value* word : words) {
    values.push_back(b_.CreateBitCast(b_.CreateTrunc(word, b_.getInt16Ty()), element));
    values.push_back(b_.CreateBitCast(b_.CreateTrunc(b_.CreateLShr(word, 16), b_.getInt16Ty()), element));
  }
  return values;
}

/// Elements as words, the bits as they are: the opposite of elements_of.
std::vector<Value*> BlockEmitter::packed(const std::vector<Value*>& values, ElementType type) {
  if (!is_16_bit(type)) return values;
  std::vector<Value*> words;
  const auto bits = [&](std::size_t e) { return b_.CreateZExt(b_.CreateBitCast(values[e], b_.getInt16Ty()), b_.getInt32Ty()); };
  for (std::size_t e = 0; e + 1 < values.size(); e += 2) words.push_back(b_.CreateOr(bits(e), b_.CreateShl(bits(e + 1), 16)));
  return words;
}

/// The elements of 4 or 16 bytes of shared memory.
std::vector<Value*> BlockEmitter::load_piece(Value* address, ElementType type, int bytes) {
  llvm::Type* word = is_16_bit(type) ? b_.getInt32Ty() : register_type(b_.getContext(), type);
  const llvm::Align align(static_cast<std::uint64_t>(bytes));
  if (bytes == 4) return elements_of({b_.CreateAlignedLoad(word, address, align)}, type);
  Value* loaded = b_.CreateAlignedLoad(llvm::FixedVectorType::get(word, 4), address, align);
  std::vector<Value*> words;
  words.reserve(4);
  for (std::uint64_t k = 0; k < 4; ++k) words.push_back(b_.CreateExtractElement(loaded, k));
  return elements_of(words, type);
}

/// Where a slot of a tile outside of the registers is: neighbouring threads' pieces lie next to each other.
Value* BlockEmitter::outside_address(int buffer, int element) {
  const std::int64_t byte = element * static_cast<std::int64_t>(size_in_bytes(plan_->buffer(buffer).type));
  Value* own = b_.CreateNSWMul(b_.CreateZExt(own_thread_, b_.getInt64Ty()), b_.getInt64(16));
  return shared_address(b_.getInt8Ty(), plan_->placements.at(buffer).outside_offset + byte / 16 * 16 * plan_->threads + byte % 16,
                        own);
}

std::vector<Value*> BlockEmitter::load_outside(const TileAccess& access, int width, Slot slot) {
  const ElementType type = plan_->buffer(access.buffer).type;
  const int piece = piece_width(type, 16);
  const bool pieces = lies_as_held(type) && plan_->placement(access.buffer)->by_column && width % piece == 0 &&
                      slot_number(access, slot, 0) % piece == 0;
  std::vector<Value*> values;
  for (int e = 0; e < width; e += pieces ? piece : 1) {
    Value* address = outside_address(access.buffer, slot_number(access, slot, e));
    if (!pieces) {
      Value* loaded = b_.CreateAlignedLoad(element_type(b_.getContext(), type), address, llvm::Align(size_in_bytes(type)));
      values.push_back(from_element(b_, loaded, type));
      continue;
    }
    const std::vector<Value*> loaded = load_piece(address, type, 16);
    values.insert(values.end(), loaded.begin(), loaded.end());
  }
  return values;
}

void BlockEmitter::store_outside(const TileAccess& access, const std::vector<Value*>& values, Slot slot) {
  const ElementType type = plan_->buffer(access.buffer).type;
  const auto piece = static_cast<std::size_t>(piece_width(type, 16));
  const bool pieces = lies_as_held(type) && plan_->placement(access.buffer)->by_column && values.size() % piece == 0 &&
                      static_cast<std::size_t>(slot_number(access, slot, 0)) % piece == 0;
  for (std::size_t e = 0; e < values.size(); e += pieces ? piece : 1) {
    Value* address = outside_address(access.buffer, slot_number(access, slot, static_cast<int>(e)));
    if (!pieces) {
      b_.CreateAlignedStore(to_element(b_, values[e], type), address, llvm::Align(size_in_bytes(type)));
      continue;
    }
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(e);
    const std::vector<Value*> words = packed({first, first + static_cast<std::ptrdiff_t>(piece)}, type);
    Value* vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(words[0]->getType(), 4));
    for (std::uint64_t k = 0; k < 4; ++k) vector = b_.CreateInsertElement(vector, words[k], k);
    b_.CreateAlignedStore(vector, address, llvm::Align(16));
  }
}

std::vector<Value*> BlockEmitter::load_vector(const TileAccess& access, int width) {
  return elements_of(load_words(access, width), plan_->buffer(access.buffer).type);
}

/// Of whole pieces of memory the elements at the read's offset: other reads load the same pieces, and LLVM keeps one load.
std::vector<Value*> BlockEmitter::load_strided(TileAccess access, const StridedRead& run, int width) {
  access.index.back() = access.index.back() - IntExpr(run.offset);
  const std::vector<Value*> all = load_vector(access, run.stride * width);
  std::vector<Value*> values;
  for (int e = 0; e < width; ++e) values.push_back(all[static_cast<std::size_t>(e * run.stride + run.offset)]);
  return values;
}

void BlockEmitter::at_element(const BlockOp& op, int element, const Body& body) {
  if (element == 0) return body();
  const std::string& column = op.op.dims[op.column].var;
  Value* first = environment_.at(column);
  environment_[column] = b_.CreateNSWAdd(first, b_.getInt64(static_cast<std::uint64_t>(element)));
  body();
  environment_[column] = first;
}

std::vector<Value*> BlockEmitter::load(const BlockOp& op, const TileAccess& access, bool vector, int width, Slot slot) {
  if (vector && width > 1) return load_vector(access, width);
  if (const Placement* place = plan_->placement(access.buffer); place != nullptr && place->outside)
    return load_outside(access, width, slot);
  std::vector<Value*> values;
  const bool along = width > 1 && uses_any(access, op.op.dims[op.column].var);
  for (int e = 0; e < width; ++e) {
    if (plan_->in_registers(access)) {
      values.push_back(b_.CreateLoad(type_of(plan_->buffer(access.buffer)), register_slot(access, slot, e)));
    } else if (e > 0 && !along) {
      values.push_back(values.front());
    } else {
      at_element(op, e, [&] { values.push_back(load_element(access)); });
    }
  }
  return values;
}

int BlockEmitter::slot_number(const TileAccess& access, Slot slot, int element) {
  const Placement& place = *plan_->placement(access.buffer);
  const int row = place.by_row ? slot.row : 0, column = place.by_column ? slot.column + element : 0;
  if (row >= place.row_slots || column >= place.column_slots) {
    internal_error("register tile {} has no slot {}, {}", plan_->buffer(access.buffer).name, row, column);
  }
  return row * place.column_slots + column;
}

Value* BlockEmitter::register_slot(const TileAccess& access, Slot slot, int element) {
  Value*& storage = registers_[{access.buffer, slot_number(access, slot, element)}];
  if (storage == nullptr) storage = entry_alloca(type_of(plan_->buffer(access.buffer)), plan_->buffer(access.buffer).name);
  return storage;
}

std::vector<Value*> BlockEmitter::convert(const std::vector<Value*>& values, ElementType from, ElementType to) {
  std::vector<Value*> result;
  result.reserve(values.size());
  for (Value* value : values) result.push_back(emit_cast(b_, math_, value, from, to));
  return result;
}

void BlockEmitter::store(const BlockOp& op, const std::vector<Value*>& values, ElementType type, Slot slot) {
  const TileAccess& access = op.op.write;
  const Buffer& buffer = plan_->buffer(access.buffer);
  if (values.size() > 1 && op.write_vector) return store_vector(access, values, type);
  if (const Placement* place = plan_->placement(access.buffer); place != nullptr && place->outside)
    return store_outside(access, convert(values, type, buffer.type), slot);
  for (int e = 0; e < static_cast<int>(values.size()); ++e) {
    Value* value = emit_cast(b_, math_, values[e], type, buffer.type);
    if (plan_->in_registers(access)) {
      b_.CreateStore(value, register_slot(access, slot, e));
    } else {
      Value* element = to_element(b_, value, buffer.type);
      at_element(op, e, [&] { b_.CreateAlignedStore(element, address(access), llvm::Align(size_in_bytes(buffer.type))); });
    }
  }
}

void BlockEmitter::store_vector(const TileAccess& access, const std::vector<Value*>& values, ElementType type) {
  const Buffer& buffer = plan_->buffer(access.buffer);
  const bool halves = is_16_bit(buffer.type);
  std::vector<Value*> words;
  if (!halves) words = convert(values, type, buffer.type);
  if (halves && type == buffer.type) words = packed(values, type);
  for (std::size_t e = 0; halves && type != buffer.type && e + 1 < values.size(); e += 2) {
    const auto wide = convert({values[e], values[e + 1]}, type, ElementType::f32);
    words.push_back(buffer.type == ElementType::f16 ? math_.pack_f16(b_, wide[0], wide[1])
                                                    : math_.pack_bf16(b_, wide[0], wide[1]));
  }
  const auto piece = static_cast<std::size_t>(std::min<int>(4, static_cast<int>(words.size())));
  Value* base = address(access);
  for (std::size_t start = 0; start < words.size(); start += piece) {
    Value* pointer = start == 0 ? base : b_.CreateConstInBoundsGEP1_64(words[0]->getType(), base, start);
    if (buffer.streaming && piece == 4) {
      std::vector<Value*> operands{pointer};
      for (std::size_t k = 0; k < 4; ++k) operands.push_back(b_.CreateBitCast(words[start + k], b_.getInt32Ty()));
      auto* asm_type = llvm::FunctionType::get(
          b_.getVoidTy(), {pointer->getType(), b_.getInt32Ty(), b_.getInt32Ty(), b_.getInt32Ty(), b_.getInt32Ty()}, false);
      b_.CreateCall(asm_type,
                    llvm::InlineAsm::get(asm_type, "st.global.cs.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}", true),
                    operands);
      continue;
    }
    Value* vector = words[start];
    if (piece > 1) {
      vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(words[0]->getType(), static_cast<unsigned>(piece)));
      for (std::size_t k = 0; k < piece; ++k) vector = b_.CreateInsertElement(vector, words[start + k], k);
    }
    b_.CreateAlignedStore(vector, pointer, llvm::Align(4 * piece));
  }
}

std::vector<Value*> BlockEmitter::load_floats(Value* pointer, int width) {
  if (width == 1) return {b_.CreateAlignedLoad(b_.getFloatTy(), pointer, llvm::Align(4))};
  std::vector<Value*> values;
  for (int start = 0; start < width; start += 4) {
    const int piece = std::min(4, width - start);
    auto* type = llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(piece));
    Value* place = b_.CreateConstInBoundsGEP1_64(b_.getFloatTy(), pointer, static_cast<std::uint64_t>(start));
    Value* loaded = b_.CreateAlignedLoad(type, place, llvm::Align(4 * static_cast<std::uint64_t>(piece)));
    for (int k = 0; k < piece; ++k) values.push_back(b_.CreateExtractElement(loaded, static_cast<std::uint64_t>(k)));
  }
  return values;
}

void BlockEmitter::store_floats(Value* pointer, const std::vector<Value*>& values) {
  const std::size_t piece = std::min<std::size_t>(4, values.size());
  for (std::size_t start = 0; start < values.size(); start += piece) {
    Value* place = b_.CreateConstInBoundsGEP1_64(b_.getFloatTy(), pointer, start);
    if (piece == 1) {
      b_.CreateAlignedStore(values[start], place, llvm::Align(4));
      continue;
    }
    Value* vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(piece)));
    for (std::size_t k = 0; k < piece; ++k) vector = b_.CreateInsertElement(vector, values[start + k], k);
    b_.CreateAlignedStore(vector, place, llvm::Align(4 * piece));
  }
}

}  // namespace nestor::nvptx
