// Emulated assembly of tensor kernels of compute capability 8.0: what a warp does together (ldmatrix, mma.sync), copies with zeros behind
// them, and accesses that name their memory. Layouts of fragments as in NVIDIA's PTX manual (mma.m16n8k16). For simt_emulator.h.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace nestor::testing {
namespace emulated {

/// `bytes` of shared memory of this block, which must be aligned to as many.
inline char* shared_at(std::uint32_t address, std::size_t bytes) {
  if (address % bytes != 0) throw InternalError("emulator: a shared address is not aligned");
  char* at = in_block(address, Fibers::rank());
  if (at + bytes > shared() + kSharedBytes) throw InternalError("emulator: an address beyond the shared memory");
  return at;
}

inline void copy_piece(std::uint32_t to, const char* from, std::int32_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) throw InternalError("emulator: a global address is not aligned");
  if (bytes < 0 || bytes > 16) throw InternalError("emulator: a copy of another size than 0 to 16 bytes");
  Fibers::copy_with_zeros(shared_at(to, 16), from, bytes, 16 - bytes);
}

inline void warp_barrier() { Fibers::exchange({}); }

/// The eight rows of a matrix come from all 32 banks at once.
inline void check_banks(const std::array<const Fibers::Words*, 32>& addresses, int matrix) {
  unsigned seen = 0;
  for (int row = 0; row < 8; ++row) seen |= 1U << ((*addresses[static_cast<std::size_t>(8 * matrix + row)])[0] / 16 % 8);
  if (seen != 0xff) throw InternalError("emulator: rows of ldmatrix lie in the same banks");
}

/// ldmatrix: lane l gives the address of row l%8 of matrix l/8; a thread gets neighbours of row lane/4, or of a column where `transposed`.
inline void load_matrices(std::uint32_t address, std::int32_t count, std::int32_t transposed, std::uint32_t* words) {
  const auto shown = Fibers::exchange({address});
  const int lane = Fibers::lane();
  for (int matrix = 0; matrix < count; ++matrix) {
    check_banks(shown, matrix);
    std::uint16_t pair[2];
    for (int e = 0; e < 2; ++e) {
      const int row = transposed != 0 ? lane % 4 * 2 + e : lane / 4, column = transposed != 0 ? lane / 4 : lane % 4 * 2 + e;
      const char* line = shared_at((*shown[static_cast<std::size_t>(8 * matrix + row)])[0], 16);
      std::memcpy(&pair[e], line + 2 * column, 2);
    }
    words[matrix] = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
  }
}

/// sums += a b, of a warp: words 0 to 3 are a's, 4 and 5 b's.
inline void mma(std::int32_t bf16, const std::uint32_t* operands, float* sums) {
  Fibers::Words own;
  std::copy_n(operands, own.size(), own.begin());
  const auto shown = Fibers::exchange(own);
  const auto element = [&](int lane, int word, int half) {
    const std::uint32_t bits = (*shown[static_cast<std::size_t>(lane)])[static_cast<std::size_t>(word)];
    const auto part = static_cast<std::uint16_t>(bits >> (16 * half));
    return read_element(reinterpret_cast<const char*>(&part), bf16 != 0 ? ElementType::bf16 : ElementType::f16);
  };
  const int lane = Fibers::lane();
  for (int s = 0; s < 4; ++s) {
    const int column = lane % 4 * 2 + s % 2;
    double sum = sums[s];
    for (int k = 0; k < 16; ++k) {
      const double a = element(lane / 4 * 4 + k % 8 / 2, s / 2 + 2 * (k / 8), k % 2);
      sum += a * element(column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
    }
    sums[s] = static_cast<float>(sum);
  }
}

inline void store_word(std::uint32_t to, std::uint32_t word) { std::memcpy(shared_at(to, 4), &word, 4); }
inline void store_half(std::uint32_t to, std::uint16_t half) { std::memcpy(shared_at(to, 2), &half, 2); }
inline void load_piece(std::uint32_t from, std::uint32_t* words) { std::memcpy(words, shared_at(from, 16), 16); }
inline void store_piece(char* to, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d, std::int32_t wanted) {
  if (wanted == 0) return;
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) throw InternalError("emulator: a global address is not aligned");
  const std::uint32_t words[4] = {a, b, c, d};
  std::memcpy(to, words, sizeof words);
}
inline void store_global_word(char* to, std::uint32_t word, std::int32_t wanted) {
  if (wanted != 0) std::memcpy(to, &word, 4);
}
inline void store_global_half(char* to, std::uint16_t half, std::int32_t wanted) {
  if (wanted != 0) std::memcpy(to, &half, 2);
}

}  // namespace emulated

/// Calls `function` with the operands as they are, after `more`.
inline llvm::Value* call_helper(llvm::Module& module, llvm::IRBuilder<>& b, const char* function,
                                const std::vector<llvm::Value*>& args) {
  std::vector<llvm::Type*> types;
  for (const llvm::Value* arg : args) types.push_back(arg->getType());
  return b.CreateCall(module.getOrInsertFunction(function, llvm::FunctionType::get(b.getVoidTy(), types, false)), args);
}

/// Stack memory of the call's function for `count` values of `type`.
inline llvm::Value* stack_memory(llvm::CallInst& call, llvm::Type* type, unsigned count) {
  llvm::BasicBlock& entry = call.getFunction()->getEntryBlock();
  return llvm::IRBuilder<>(&entry, entry.begin()).CreateAlloca(llvm::ArrayType::get(type, count));
}

/// The values in `memory` as the call's result.
inline llvm::Value* result_from(llvm::IRBuilder<>& b, const llvm::CallInst& call, llvm::Type* type, llvm::Value* memory) {
  auto* whole = llvm::cast<llvm::StructType>(call.getType());
  llvm::Value* result = llvm::PoisonValue::get(whole);
  for (unsigned k = 0; k < whole->getNumElements(); ++k)
    result = b.CreateInsertValue(result, b.CreateLoad(type, b.CreateConstGEP1_32(type, memory, k)), {k});
  return result;
}

/// What stands for the assembly; null where it is none of these.
inline llvm::Value* replace_warp_assembly(llvm::Module& module, llvm::IRBuilder<>& b, llvm::CallInst& call,
                                          const std::string& text) {
  const std::vector<llvm::Value*> args(call.arg_begin(), call.arg_end());
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (text.empty()) {  // orders its operands, which are its results
    if (args.size() == 1) return args[0];
    llvm::Value* result = llvm::PoisonValue::get(call.getType());
    for (unsigned k = 0; k < args.size(); ++k) result = b.CreateInsertValue(result, args[k], {k});
    return result;
  }
  if (has("cp.async.cg.shared.global [$0], [$1], 16, $2")) return call_helper(module, b, "emulated_copy_piece", args);
  if (has("cp.async.commit_group")) return call_helper(module, b, "emulated_commit", {});
  if (has("cp.async.wait_group ")) {
    const int count = std::atoi(text.c_str() + text.find("wait_group ") + std::string("wait_group ").size());
    return call_helper(module, b, "emulated_await_copies", {b.getInt32(static_cast<std::uint32_t>(count))});
  }
  if (has("ldmatrix.sync.aligned.m8n8")) {
    llvm::Value* words = stack_memory(call, b.getInt32Ty(), 4);
    const unsigned count = llvm::cast<llvm::StructType>(call.getType())->getNumElements();
    call_helper(module, b, "emulated_load_matrices", {args[0], b.getInt32(count), b.getInt32(has(".trans") ? 1 : 0), words});
    return result_from(b, call, b.getInt32Ty(), words);
  }
  if (has("mma.sync.aligned.m16n8k16.row.col.f32")) {
    llvm::Value *operands = stack_memory(call, b.getInt32Ty(), 6), *sums = stack_memory(call, b.getFloatTy(), 4);
    for (unsigned k = 0; k < 6; ++k) b.CreateStore(args[k], b.CreateConstGEP1_32(b.getInt32Ty(), operands, k));
    for (unsigned k = 0; k < 4; ++k) b.CreateStore(args[6 + k], b.CreateConstGEP1_32(b.getFloatTy(), sums, k));
    call_helper(module, b, "emulated_mma", {b.getInt32(has("bf16") ? 1 : 0), operands, sums});
    return result_from(b, call, b.getFloatTy(), sums);
  }
  if (has("ld.shared.v4.b32")) {
    llvm::Value* words = stack_memory(call, b.getInt32Ty(), 4);
    call_helper(module, b, "emulated_load_piece", {args[0], words});
    return result_from(b, call, b.getInt32Ty(), words);
  }
  if (has("@p st.global.v4.b32")) return call_helper(module, b, "emulated_store_piece", args);
  if (has("@p st.global.b32")) return call_helper(module, b, "emulated_store_global_word", args);
  if (has("@p st.global.b16")) return call_helper(module, b, "emulated_store_global_half", args);
  if (has("st.shared.b32")) return call_helper(module, b, "emulated_store_word", args);
  if (has("st.shared.b16")) return call_helper(module, b, "emulated_store_half", args);
  return nullptr;
}

/// `add(name, function)` for each function that stands for assembly above.
template <class Add>
void add_warp_helpers(const Add& add) {
  add("emulated_copy_piece", &emulated::copy_piece);
  add("emulated_warp_barrier", &emulated::warp_barrier);
  add("emulated_load_matrices", &emulated::load_matrices);
  add("emulated_mma", &emulated::mma);
  add("emulated_store_word", &emulated::store_word);
  add("emulated_store_half", &emulated::store_half);
  add("emulated_load_piece", &emulated::load_piece);
  add("emulated_store_piece", &emulated::store_piece);
  add("emulated_store_global_word", &emulated::store_global_word);
  add("emulated_store_global_half", &emulated::store_global_half);
}

}  // namespace nestor::testing
