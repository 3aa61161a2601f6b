// PTX instructions as inline assembly.
#include "codegen/gpu/ptx/ptx_emit.h"

#include "support/error.h"

#include <fmt/format.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

namespace nestor::nvptx {
namespace {

/// "{$3, $4, $5}"
std::string operand_list(std::size_t first, std::size_t count) {
  std::string text = "{";
  for (std::size_t k = 0; k < count; ++k) text += fmt::format("{}${}", k > 0 ? ", " : "", first + k);
  return text + "}";
}

/// `constraint` so many times, with commas.
std::string repeated(std::string_view constraint, std::size_t count) {
  std::string text;
  for (std::size_t k = 0; k < count; ++k) text += fmt::format("{}{}", k > 0 ? "," : "", constraint);
  return text;
}

void append(std::string& constraints, const std::string& more) {
  if (more.empty()) return;
  constraints += constraints.empty() ? more : "," + more;
}

/// Constraints that tie operands to the results 0, 1, ..., count - 1.
std::string tied(std::size_t count) {
  std::string text;
  for (std::size_t k = 0; k < count; ++k) append(text, std::to_string(k));
  return text;
}

}  // namespace

llvm::CallInst* PtxEmitter::assembly(llvm::Type* result, std::string_view text, std::string constraints,
                                     const Values& arguments) {
  append(constraints, "~{memory}");
  std::vector<llvm::Type*> types;
  for (Value* argument : arguments) types.push_back(argument->getType());
  auto* type = llvm::FunctionType::get(result, types, false);
  llvm::CallInst* call = b_.CreateCall(type, llvm::InlineAsm::get(type, text, constraints, true), arguments);
  call->addFnAttr(llvm::Attribute::Convergent);
  call->addFnAttr(llvm::Attribute::NoUnwind);
  return call;
}

PtxEmitter::Values PtxEmitter::results(llvm::CallInst* call, std::size_t count) {
  Values values;
  for (unsigned k = 0; k < count; ++k) values.push_back(b_.CreateExtractValue(call, k));
  return values;
}

void PtxEmitter::launch_dependents() { assembly(nothing(), "griddepcontrol.launch_dependents;", "", {}); }
void PtxEmitter::wait_for_kernel_before() { assembly(nothing(), "griddepcontrol.wait;", "", {}); }

void PtxEmitter::mbarrier_init(Value* barrier, int count) {
  assembly(nothing(), "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r",
           {barrier, b_.getInt32(static_cast<std::uint32_t>(count))});
}

void PtxEmitter::fence_mbarrier_init() { assembly(nothing(), "fence.mbarrier_init.release.cluster;", "", {}); }

void PtxEmitter::mbarrier_expect(Value* barrier, Value* bytes) {
  assembly(nothing(), "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r", {barrier, bytes});
}

void PtxEmitter::mbarrier_arrive(Value* barrier, Value* predicate) {
  assembly(nothing(), "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $1, 0;\n\t@p mbarrier.arrive.shared::cta.b64 _, [$0];\n\t}", "r,r",
           {barrier, b_.CreateZExt(predicate, b_.getInt32Ty())});
}

// The loop stays inside the assembly, so that the code around it remains one block for LLVM and ptxas.
void PtxEmitter::mbarrier_wait(Value* barrier, Value* parity) {
  assembly(
      nothing(),
      "{\n\t.reg .pred p;\n\tAGAIN:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n\t@p bra DONE;\n\tbra AGAIN;\n\t"
      "DONE:\n\t}",
      "r,r", {barrier, parity});
}

void PtxEmitter::mbarrier_arrive_at(Value* barrier, Value* rank, Value* predicate) {
  assembly(nothing(),
           "{\n\t.reg .pred p;\n\t.reg .b32 there;\n\tsetp.ne.b32 p, $2, 0;\n\t@p mapa.shared::cluster.u32 there, $0, $1;\n\t@p "
           "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}",
           "r,r,r", {barrier, rank, b_.CreateZExt(predicate, b_.getInt32Ty())});
}

void PtxEmitter::cluster_barrier() {
  assembly(nothing(), "barrier.cluster.arrive.relaxed;\n\tbarrier.cluster.wait.acquire;", "", {});
}

void PtxEmitter::named_barrier_sync(Value* id, int threads) {
  assembly(nothing(), fmt::format("bar.sync $0, {};", threads), "r", {id});
}

void PtxEmitter::named_barrier_arrive(Value* id, int threads) {
  assembly(nothing(), fmt::format("bar.arrive $0, {};", threads), "r", {id});
}

void PtxEmitter::fence_async_proxy() { assembly(nothing(), "fence.proxy.async.shared::cta;", "", {}); }

void PtxEmitter::set_max_registers(int count, bool increase) {
  assembly(nothing(), fmt::format("setmaxnreg.{}.sync.aligned.u32 {};", increase ? "inc" : "dec", count), "", {});
}

PtxEmitter::Value* PtxEmitter::opaque(Value* word) { return moved(word, "mov.b32 $0, $1;", "=r,r"); }

PtxEmitter::Value* PtxEmitter::opaque_wide(Value* word) { return moved(word, "mov.b64 $0, $1;", "=l,l"); }

PtxEmitter::Value* PtxEmitter::moved(Value* word, const char* text, const char* constraints) {
  auto* type = llvm::FunctionType::get(word->getType(), {word->getType()}, false);
  llvm::CallInst* call = b_.CreateCall(type, llvm::InlineAsm::get(type, text, constraints, false), {word});
  call->setDoesNotAccessMemory();
  return call;
}

PtxEmitter::Value* PtxEmitter::atomic_increment(Value* counter) {
  return assembly(b_.getInt32Ty(), "atom.global.add.u32 $0, [$1], 1;", "=r,l", {counter});
}

void PtxEmitter::reset_counter(Value* counter, Value* condition) {
  assembly(nothing(), "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $1, 0;\n\t@p st.global.u32 [$0], 0;\n\t}", "l,r",
           {counter, b_.CreateZExt(condition, b_.getInt32Ty())});
}

PtxEmitter::Value* PtxEmitter::load_word(Value* shared) {
  return assembly(b_.getInt32Ty(), "ld.shared.u32 $0, [$1];\n\tbar.warp.sync -1;", "=r,r", {shared});
}

PtxEmitter::Value* PtxEmitter::evict_first() {
  auto* type = llvm::FunctionType::get(b_.getInt64Ty(), false);
  llvm::CallInst* call =
      b_.CreateCall(type, llvm::InlineAsm::get(type, "createpolicy.fractional.L2::evict_first.b64 $0, 1.0;", "=l", false));
  call->setDoesNotAccessMemory();
  return call;
}

void PtxEmitter::load_tile(Value* shared, Value* map, const Values& coordinates, Value* barrier, int blocks, bool read_once) {
  Values arguments{shared, map};
  arguments.insert(arguments.end(), coordinates.begin(), coordinates.end());
  arguments.push_back(barrier);
  const std::size_t rank = coordinates.size();
  std::string marks, operands, constraints = "r,l," + repeated("r", rank + 1);
  const auto add = [&](const char* mark, const char* constraint, Value* value) {
    marks += mark;
    operands += fmt::format(", ${}", arguments.size());
    constraints += constraint;
    arguments.push_back(value);
  };
  if (blocks > 1) add(".multicast::cluster", ",h", b_.getInt16(static_cast<std::uint16_t>((1U << blocks) - 1)));
  if (read_once) add(".L2::cache_hint", ",l", evict_first());
  assembly(
      nothing(),
      fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{} [$0], [$1, {}], [${}]{};",
                  rank, marks, operand_list(2, rank), 2 + rank, operands),
      constraints, arguments);
}

void PtxEmitter::store_tile(Value* map, const Values& coordinates, Value* shared) {
  Values arguments{map};
  arguments.insert(arguments.end(), coordinates.begin(), coordinates.end());
  arguments.push_back(shared);
  const std::size_t rank = coordinates.size();
  assembly(nothing(),
           fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group [$0, {}], [${}];", rank,
                       operand_list(1, rank), 1 + rank),
           "l," + repeated("r", rank + 1), arguments);
}

void PtxEmitter::commit_stores() { assembly(nothing(), "cp.async.bulk.commit_group;", "", {}); }

void PtxEmitter::wait_stores_read(int pending) {
  assembly(nothing(), fmt::format("cp.async.bulk.wait_group.read {};", pending), "", {});
}

void PtxEmitter::prefetch_map(Value* map) { assembly(nothing(), "prefetch.tensormap [$0];", "l", {map}); }

void PtxEmitter::wgmma_fence() { assembly(nothing(), "wgmma.fence.sync.aligned;", "", {}); }
void PtxEmitter::wgmma_commit() { assembly(nothing(), "wgmma.commit_group.sync.aligned;", "", {}); }
void PtxEmitter::wgmma_wait(int pending) {
  assembly(nothing(), fmt::format("wgmma.wait_group.sync.aligned {};", pending), "", {});
}

PtxEmitter::Values PtxEmitter::wgmma(int n, std::string_view type, const Values& sums, const Values& a, Value* b,
                                     bool transpose_a, bool transpose_b) {
  const auto count = static_cast<std::size_t>(n) / 2;
  const bool in_registers = a.size() == 4;
  std::string constraints = repeated("=f", count);
  append(constraints, in_registers ? "r,r,r,r,l" : "l,l");
  if (!sums.empty()) append(constraints, tied(count));
  Values arguments = a;
  arguments.push_back(b);
  arguments.insert(arguments.end(), sums.begin(), sums.end());
  const std::string first = in_registers ? operand_list(count, 4) : fmt::format("${}", count);
  const std::string transposes =
      in_registers ? fmt::format("{}", transpose_b ? 1 : 0) : fmt::format("{}, {}", transpose_a ? 1 : 0, transpose_b ? 1 : 0);
  const std::string text = fmt::format("wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {}, {}, ${}, {}, 1, 1, {};", n, type,
                                       type, operand_list(0, count), first, count + a.size(), sums.empty() ? 0 : 1, transposes);
  std::vector<llvm::Type*> types(count, b_.getFloatTy());
  return results(assembly(llvm::StructType::get(b_.getContext(), types), text, constraints, arguments), count);
}

PtxEmitter::Value* PtxEmitter::descriptor(Value* address, int leading_stride, int stride) {
  Value* start = b_.CreateAnd(b_.CreateLShr(address, 4), b_.getInt32(0x3fff));
  const auto field = [](int bytes) { return static_cast<std::uint64_t>(bytes >> 4) & 0x3fff; };
  const std::uint64_t rest = field(leading_stride) << 16 | field(stride) << 32 | std::uint64_t{1} << 62;
  return b_.CreateOr(b_.CreateZExt(start, b_.getInt64Ty()), b_.getInt64(rest));
}

// Results tied to the wait itself would make LLVM copy registers before it, and ptxas then runs every product alone (C7514).
void PtxEmitter::pin(Values& values) {
  if (values.empty()) return;
  const std::string_view kind = values[0]->getType()->isFloatTy() ? "=f" : "=r";
  std::string constraints = repeated(kind, values.size());
  append(constraints, tied(values.size()));
  std::vector<llvm::Type*> types(values.size(), values[0]->getType());
  if (values.size() == 1) {
    values[0] = assembly(types[0], "", constraints, values);
    return;
  }
  values = results(assembly(llvm::StructType::get(b_.getContext(), types), "", constraints, values), values.size());
}

PtxEmitter::Values PtxEmitter::load_matrices(Value* address, int count, bool transposed) {
  const auto number = static_cast<std::size_t>(count);
  std::vector<llvm::Type*> types(number, b_.getInt32Ty());
  const std::string text = fmt::format("ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16 {}, [${}];", count,
                                       transposed ? ".trans" : "", operand_list(0, number), count);
  return results(assembly(llvm::StructType::get(b_.getContext(), types), text, repeated("=r", number) + ",r", {address}), number);
}

void PtxEmitter::store_matrices(Value* address, const Values& words) {
  if (words.size() != 4) internal_error("stmatrix stores four tiles, not {}", words.size());
  assembly(nothing(), "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", "r,r,r,r,r",
           {address, words[0], words[1], words[2], words[3]});
}

void PtxEmitter::copy_piece(Value* shared, Value* global, Value* bytes) {
  assembly(nothing(), "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r", {shared, global, bytes});
}

void PtxEmitter::commit_pieces() { assembly(nothing(), "cp.async.commit_group;", "", {}); }
void PtxEmitter::wait_pieces(int pending) { assembly(nothing(), fmt::format("cp.async.wait_group {};", pending), "", {}); }
void PtxEmitter::block_barrier() { b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {}); }
void PtxEmitter::warp_barrier() { b_.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {}, {b_.getInt32(~0U)}); }

// Without side effects: LLVM may leave out what nothing uses, and its operands order it.
PtxEmitter::Values PtxEmitter::mma(std::string_view type, const Values& sums, const Values& a, const Values& b) {
  const std::string text = fmt::format("mma.sync.aligned.m16n8k16.row.col.f32.{}.{}.f32 {}, {}, {}, {};", type, type,
                                       operand_list(0, 4), operand_list(4, 4), operand_list(8, 2), operand_list(10, 4));
  Values arguments = a;
  arguments.insert(arguments.end(), b.begin(), b.end());
  arguments.insert(arguments.end(), sums.begin(), sums.end());
  std::vector<llvm::Type*> types;
  for (const Value* argument : arguments) types.push_back(argument->getType());
  auto* result = llvm::StructType::get(b_.getContext(), std::vector<llvm::Type*>(4, b_.getFloatTy()));
  llvm::InlineAsm* code =
      llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", false);
  llvm::CallInst* call = b_.CreateCall(code->getFunctionType(), code, arguments);
  call->addFnAttr(llvm::Attribute::Convergent);
  call->addFnAttr(llvm::Attribute::NoUnwind);
  return results(call, 4);
}

void PtxEmitter::store_word(Value* shared, Value* word) { assembly(nothing(), "st.shared.b32 [$0], $1;", "r,r", {shared, word}); }

void PtxEmitter::store_half(Value* shared, Value* half) { assembly(nothing(), "st.shared.b16 [$0], $1;", "r,h", {shared, half}); }

PtxEmitter::Values PtxEmitter::load_piece(Value* shared) {
  std::vector<llvm::Type*> types(4, b_.getInt32Ty());
  return results(assembly(llvm::StructType::get(b_.getContext(), types), "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];",
                          "=r,=r,=r,=r,r", {shared}),
                 4);
}

void PtxEmitter::store_piece(Value* global, const Values& words, Value* predicate) {
  assembly(nothing(), "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $5, 0;\n\t@p st.global.v4.b32 [$0], {$1, $2, $3, $4};\n\t}",
           "l,r,r,r,r,r", {global, words[0], words[1], words[2], words[3], b_.CreateZExt(predicate, b_.getInt32Ty())});
}

}  // namespace nestor::nvptx
