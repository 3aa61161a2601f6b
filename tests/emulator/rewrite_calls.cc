// What stands for the assembly and the intrinsics that the GPU back end emits.
#include "emulator/instructions.h"
#include "emulator/rewrite.h"
#include "support/elements.h"
#include "support/error.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace nestor::emulation {
namespace {

using Values = std::vector<llvm::Value*>;

float reciprocal(float x) { return 1.0F / x; }
float reciprocal_root(float x) { return 1.0F / std::sqrt(x); }
/// Subnormal arguments and results count as zero.
float exp2_flushed(float x) {
  const auto flushed = [](float value) { return std::fpclassify(value) == FP_SUBNORMAL ? 0.0F : value; };
  return flushed(std::exp2(flushed(x)));
}
float log2_of(float x) { return std::log2(x); }
float tanh_of(float x) { return std::tanh(x); }
std::uint16_t to_bf16(float x) { return testing::to_bf16(x); }
std::uint16_t to_f16(float x) { return testing::to_f16(x); }

/// The 16-bit number between 0 and x that is next to x, from the nearest one: infinities come from infinities alone.
std::uint16_t toward_zero(float x, std::uint16_t nearest, float value) {
  return std::fabs(value) > std::fabs(x) ? static_cast<std::uint16_t>(nearest - 1) : nearest;
}
std::uint16_t to_bf16_toward_zero(float x) {
  const std::uint16_t nearest = to_bf16(x);
  return toward_zero(x, nearest, testing::from_bf16(nearest));
}
std::uint16_t to_f16_toward_zero(float x) {
  const std::uint16_t nearest = to_f16(x);
  return toward_zero(x, nearest, testing::from_f16(nearest));
}

/// The number behind `word` in assembly: of "bar.sync $0, 256;" behind "$0, ".
int number_behind(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) internal_error("emulator: no {} in {}", word, text);
  return std::atoi(text.c_str() + at + word.size());
}

/// What has no results: which function stands for assembly that holds `part`. Its operands are passed on, with the site behind them.
struct Plain {
  const char* part;
  const char* function;
};
constexpr Plain kPlain[] = {
    {"mbarrier.init.shared::cta.b64", "prepare_barrier"},
    {"mbarrier.arrive.expect_tx.shared::cta.b64", "expect_bytes"},
    {"mbarrier.arrive.shared::cluster.b64", "arrive_in_block"},
    {"mbarrier.arrive.shared::cta.b64", "arrive"},
    {"mbarrier.try_wait.parity.shared::cta.b64", "wait_phase"},
    {"st.shared.b32", "store_word"},
    {"st.shared.b16", "store_half"},
    {"@p st.global.u32 [$0], 0", "reset_counter"},
    {"wgmma.fence", "products_fence"},
    {"wgmma.commit_group", "products_commit"},
};

/// What orders, without operands and without a site.
constexpr Plain kBare[] = {{"fence.mbarrier_init", "fence_inits"},
                           {"fence.proxy.async", "fence_async"},
                           {"cp.async.bulk.commit_group", "commit_stores"},
                           {"cp.async.commit_group", "commit_pieces"},
                           {"prefetch.tensormap", nullptr},
                           {"griddepcontrol.", nullptr}};  // kernels run one after the other here

class Assembly {
 public:
  Assembly(Calls& calls, llvm::CallInst& call, const std::string& text)
      : calls_(calls), b_(calls.builder()), call_(call), text_(text), args_(call.arg_begin(), call.arg_end()) {}

  void replace() {
    if (text_.empty()) return pin();
    for (const char* copy : {"mov.b16 $0, $1;", "mov.b32 $0, $1;", "mov.b64 $0, $1;"}) {
      if (starts(copy)) return call_.replaceAllUsesWith(args_[0]);
    }
    if (starts("div.full.f32")) return call_.replaceAllUsesWith(b_.CreateFDiv(args_[0], args_[1]));
    if (starts("tanh.approx.f32")) return call_.replaceAllUsesWith(calls_.call("tanh", b_.getFloatTy(), args_));
    if (has("wgmma.mma_async")) return product();
    if (products() || copies() || barriers() || memory() || warps()) return;
    internal_error("emulator: unknown assembly {}", text_);
  }

 private:
  bool starts(const char* part) const { return text_.rfind(part, 0) == 0; }
  bool has(const char* part) const { return text_.find(part) != std::string::npos; }
  llvm::Value* site() { return calls_.site(call_); }
  bool plain(const std::string& function, Values arguments) {
    arguments.push_back(site());
    calls_.call(function, arguments);
    return true;
  }
  /// The operands from `first` on in memory, four bytes each.
  llvm::Value* words(std::size_t first, std::size_t count) {
    llvm::Value* memory = calls_.scratch("words", 64);
    for (std::size_t k = 0; k < count; ++k) calls_.put(memory, 4 * static_cast<unsigned>(k), args_[first + k]);
    return memory;
  }
  unsigned parts() const { return llvm::cast<llvm::StructType>(call_.getType())->getNumElements(); }

  void pin() {
    llvm::Value* memory = calls_.scratch("registers", 4096);
    const bool floats = args_[0]->getType()->isFloatTy();
    if (!floats) {  // of integers nothing is under way
      if (args_.size() == 1) return call_.replaceAllUsesWith(args_[0]);
    }
    for (unsigned k = 0; k < args_.size(); ++k) calls_.put(memory, 4 * k, args_[k]);
    if (floats) calls_.call("settle_registers", {memory, calls_.number(static_cast<std::int64_t>(args_.size())), site()});
    calls_.results_from(call_, memory);
  }

  /// "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {sums}, first, $2, adds, 1, 1[, transposed], transposed;"
  void product() {
    const unsigned count = parts();
    const bool in_registers = args_[0]->getType()->isIntegerTy(32);
    const std::size_t operands = in_registers ? 5 : 2;
    const bool adds = args_.size() > operands;
    std::vector<int> flags;
    for (std::size_t at = text_.rfind('$'); at != std::string::npos;) {
      at = text_.find(", ", at + 1);
      if (at != std::string::npos) flags.push_back(std::atoi(text_.c_str() + at + 2));
    }
    if (flags.size() != (in_registers ? 4U : 5U)) internal_error("emulator: unknown form of {}", text_);
    const auto number = [](bool value) { return value ? 1U : 0U; };
    const std::vector<std::uint32_t> form{static_cast<std::uint32_t>(number_behind(text_, ".m64n")),
                                          number(has(".bf16.bf16 ")),
                                          number(in_registers),
                                          static_cast<std::uint32_t>(flags[0]),
                                          in_registers ? 0U : static_cast<std::uint32_t>(flags[3]),
                                          static_cast<std::uint32_t>(flags.back())};
    if (form[3] != number(adds)) internal_error("emulator: sums of {} come from nowhere", text_);
    llvm::Value *sums = calls_.scratch("registers", 4096), *first = calls_.scratch("words", 64);
    for (unsigned k = 0; adds && k < count; ++k) calls_.put(sums, 4 * k, args_[operands + k]);
    for (unsigned k = 0; k + 1 < operands; ++k) calls_.put(first, 4 * k, args_[k]);
    calls_.put(first, in_registers ? 16 : 8, args_[operands - 1]);
    const std::vector<std::uint32_t>& sources = calls_.sources[&call_];
    calls_.call("product", {calls_.constants(form), sums, first, calls_.constants(sources),
                            calls_.number(static_cast<std::int64_t>(sources.size())), site()});
    calls_.results_from(call_, sums);
  }

  bool products() {
    if (has("wgmma.wait_group")) return plain("products_wait", {calls_.number(number_behind(text_, "aligned "))});
    return false;
  }

  bool copies() {
    if (starts("createpolicy.fractional.L2::")) {  // of caches, which are not emulated
      call_.replaceAllUsesWith(llvm::ConstantInt::get(call_.getType(), 0));
      return true;
    }
    if (has("cp.async.bulk.tensor")) return has(".global.shared::cta") ? store_tile() : load_tile();
    if (has("cp.async.bulk.wait_group"))
      return plain("await_stores", {calls_.number(number_behind(text_, has(".read") ? "read " : "wait_group "))});
    if (has("cp.async.cg.shared.global [$0], [$1], 16, $2"))
      return plain("copy_piece", {args_[0], args_[1], args_[2], calls_.number(16)});
    if (has("cp.async.wait_group")) {
      calls_.call("await_pieces", {calls_.number(number_behind(text_, "wait_group "))});
      return true;
    }
    if (has("st.async.weak.shared::cluster"))
      return plain("send", {args_[0], args_[1], args_[2], words(3, args_.size() - 3),
                            calls_.number(static_cast<std::int64_t>(args_.size()) - 3)});
    return false;
  }

  bool load_tile() {
    const auto rank = static_cast<std::size_t>(number_behind(text_, "tensor."));
    const bool multicast = has(".multicast::cluster");
    llvm::Value* blocks = multicast ? b_.CreateZExt(args_[3 + rank], b_.getInt32Ty()) : calls_.number(0);
    return plain("load_tile", {args_[0], args_[1], words(2, rank), args_[2 + rank], blocks});
  }

  bool store_tile() {
    const auto rank = static_cast<std::size_t>(number_behind(text_, "tensor."));
    return plain("store_tile", {args_[0], words(1, rank), args_[1 + rank]});
  }

  bool barriers() {
    if (has("barrier.cluster.arrive")) {
      plain("cluster_arrive", {calls_.number(has("arrive.relaxed") ? 1 : 0)});
      if (has("barrier.cluster.wait")) plain("cluster_wait", {});
      return true;
    }
    if (starts("bar.sync")) return plain("barrier_sync", {args_[0], calls_.number(number_behind(text_, "$0, "))});
    if (starts("bar.arrive")) return plain("barrier_arrive", {args_[0], calls_.number(number_behind(text_, "$0, "))});
    if (starts("setmaxnreg"))
      return plain("set_registers", {calls_.number(number_behind(text_, "u32 ")), calls_.number(has(".inc.") ? 1 : 0)});
    for (const auto& [part, function] : kBare) {
      if (!starts(part)) continue;
      if (function != nullptr) calls_.call(function, {});
      return true;
    }
    return false;
  }

  bool memory() {
    if (has("atom.global.add.u32 $0, [$1], 1")) {
      call_.replaceAllUsesWith(calls_.call("add_to_counter", b_.getInt32Ty(), {args_[0], site()}));
      return true;
    }
    if (has("ld.shared.u32 $0, [$1]")) {
      call_.replaceAllUsesWith(calls_.call("load_word", b_.getInt32Ty(), {args_[0], site()}));
      if (has("bar.warp.sync")) plain("warp_barrier", {});
      return true;
    }
    const bool global = starts("ld.global.nc.L1::no_allocate.v4.b32");
    if (global || has("ld.shared.v4.b32")) {
      llvm::Value* to = calls_.scratch("words", 64);
      plain(global ? "load_global" : "load_piece", {args_[0], to});
      calls_.results_from(call_, to);
      return true;
    }
    const bool always = starts("st.global.cs.v4.b32");
    if (always || has("@p st.global.v4.b32"))
      return plain("store_global", {args_[0], words(1, 4), calls_.number(16), always ? calls_.number(1) : args_[5]});
    if (has("@p st.global.b32")) return plain("store_global", {args_[0], words(1, 1), calls_.number(4), args_[2]});
    if (has("@p st.global.b8 ")) return plain("store_global", {args_[0], words(1, 1), calls_.number(1), args_[2]});
    if (has("@p st.global.b16")) return plain("store_global", {args_[0], words(1, 1), calls_.number(2), args_[2]});
    for (const auto& [part, function] : kPlain) {
      if (has(part)) return plain(function, args_);
    }
    return false;
  }

  bool warps() {
    if (has("ldmatrix.sync.aligned.m8n8")) {
      llvm::Value* to = calls_.scratch("words", 64);
      plain("load_matrices", {args_[0], calls_.number(parts()), calls_.number(has(".trans") ? 1 : 0), to});
      calls_.results_from(call_, to);
      return true;
    }
    if (has("stmatrix.sync.aligned.m8n8.x4")) return plain("store_matrices", {args_[0], words(1, 4)});
    if (has("mma.sync.aligned.m16n8k16.row.col.f32")) {
      llvm::Value *operands = words(0, 6), *sums = calls_.scratch("registers", 4096);
      for (unsigned k = 0; k < 4; ++k) calls_.put(sums, 4 * k, args_[6 + k]);
      plain("multiply", {calls_.number(has("bf16") ? 1 : 0), operands, sums});
      calls_.results_from(call_, sums);
      return true;
    }
    return false;
  }

  Calls& calls_;
  llvm::IRBuilder<>& b_;
  llvm::CallInst& call_;
  const std::string& text_;
  const Values args_;
};

}  // namespace

void replace_assembly(Calls& calls, llvm::CallInst& call, const std::string& text) { Assembly(calls, call, text).replace(); }

void replace_intrinsic(Calls& calls, llvm::CallInst& call, const std::string& name) {
  llvm::IRBuilder<>& b = calls.builder();
  const Values args(call.arg_begin(), call.arg_end());
  llvm::Value* site = calls.site(call);
  const auto is = [&](const char* other) { return name == other; };
  const auto math = [&](const char* function) { call.replaceAllUsesWith(calls.call(function, call.getType(), {args[0]})); };
  const auto number = [&](const char* function) { call.replaceAllUsesWith(calls.call(function, call.getType(), {})); };
  if (is("read.ptx.sreg.tid.x")) return number("thread_index");
  if (is("read.ptx.sreg.ctaid.x")) return number("block_index");
  if (is("read.ptx.sreg.nctaid.x")) return number("block_count");
  if (is("barrier0")) return void(calls.call("block_barrier", {site}));
  if (is("bar.warp.sync")) return void(calls.call("warp_barrier", {site}));
  if (is("barrier.cluster.arrive.aligned")) return void(calls.call("cluster_arrive", {calls.number(0), site}));
  if (is("barrier.cluster.arrive.relaxed.aligned")) return void(calls.call("cluster_arrive", {calls.number(1), site}));
  if (is("barrier.cluster.wait.aligned")) return void(calls.call("cluster_wait", {site}));
  if (is("cp.async.cg.shared.global.16")) return void(calls.call("copy_piece_to", {args[0], args[1], calls.number(16), site}));
  if (is("cp.async.ca.shared.global.4")) return void(calls.call("copy_piece_to", {args[0], args[1], calls.number(4), site}));
  if (is("cp.async.cg.shared.global.16.s"))
    return void(calls.call("copy_part_to", {args[0], args[1], args[2], calls.number(16), site}));
  if (is("cp.async.ca.shared.global.4.s"))
    return void(calls.call("copy_part_to", {args[0], args[1], args[2], calls.number(4), site}));
  if (is("cp.async.commit.group")) return void(calls.call("commit_pieces", {}));
  if (is("cp.async.wait.group")) return void(calls.call("await_pieces", {args[0]}));
  if (llvm::StringRef(name).starts_with("ldg.global.")) {  // a load like any other
    const llvm::DataLayout& layout = call.getModule()->getDataLayout();
    calls.call("access", {args[0], b.getInt64(layout.getTypeStoreSize(call.getType())), calls.number(0), site});
    const auto align = llvm::cast<llvm::ConstantInt>(args[1])->getZExtValue();
    return call.replaceAllUsesWith(b.CreateAlignedLoad(call.getType(), args[0], llvm::Align(align)));
  }
  if (llvm::StringRef(name).starts_with("shfl.sync.")) {
    if (!is("shfl.sync.bfly.f32") && !is("shfl.sync.bfly.i32") && !is("shfl.sync.idx.i32"))
      internal_error("emulator: unknown intrinsic {}", name);
    llvm::Value* bits = b.CreateBitCast(args[1], b.getInt32Ty());
    llvm::Value* result =
        calls.call("shuffle", b.getInt32Ty(), {bits, args[2], calls.number(is("shfl.sync.idx.i32") ? 0 : 1), site});
    return call.replaceAllUsesWith(b.CreateBitCast(result, call.getType()));
  }
  if (is("vote.any.sync")) {
    llvm::Value* result = calls.call("vote_any", b.getInt32Ty(), {b.CreateZExt(args[1], b.getInt32Ty()), site});
    return call.replaceAllUsesWith(b.CreateICmpNE(result, calls.number(0)));
  }
  if (is("vote.ballot.sync"))
    return call.replaceAllUsesWith(calls.call("vote_ballot", b.getInt32Ty(), {b.CreateZExt(args[1], b.getInt32Ty()), site}));
  if (is("rcp.approx.ftz.f") || is("rcp.approx.f")) return math("reciprocal");
  if (is("rsqrt.approx.f") || is("rsqrt.approx.ftz.f")) return math("reciprocal_root");
  if (is("ex2.approx.ftz.f")) return math("exp2");
  if (is("lg2.approx.f")) return math("log2");
  if (is("mul.rn.f")) return call.replaceAllUsesWith(b.CreateFMul(args[0], args[1]));  // no part of an fma
  if (is("saturate.f")) {                                                              // 0 for NaN
    llvm::Value* least = b.CreateMaxNum(args[0], llvm::ConstantFP::get(call.getType(), 0));
    return call.replaceAllUsesWith(b.CreateMinNum(least, llvm::ConstantFP::get(call.getType(), 1)));
  }
  const bool f16 = llvm::StringRef(name).starts_with("ff2f16x2.r");
  if (f16 || llvm::StringRef(name).starts_with("ff2bf16x2.r")) {
    const bool nearest = llvm::StringRef(name).ends_with(".rn");
    if (!nearest && !llvm::StringRef(name).ends_with(".rz")) internal_error("emulator: unknown intrinsic {}", name);
    const char* function = nearest ? (f16 ? "f16" : "bf16") : f16 ? "f16_toward_zero" : "bf16_toward_zero";
    llvm::Value* pair = llvm::PoisonValue::get(llvm::FixedVectorType::get(b.getInt16Ty(), 2));
    for (const std::uint64_t half : {0, 1})
      pair = b.CreateInsertElement(pair, calls.call(function, b.getInt16Ty(), {args[1 - half]}), half);
    return call.replaceAllUsesWith(b.CreateBitCast(pair, call.getType()));
  }
  if (is("f2bf16.rn"))
    return call.replaceAllUsesWith(b.CreateBitCast(calls.call("bf16", b.getInt16Ty(), {args[0]}), call.getType()));
  internal_error("emulator: unknown intrinsic llvm.nvvm.{}", name);
}

std::vector<std::pair<std::string, void*>> instruction_symbols() {
  std::vector<std::pair<std::string, void*>> symbols;
  const auto add = [&](const char* name, auto* function) {
    symbols.emplace_back(std::string("emulated_") + name, reinterpret_cast<void*>(function));
  };
#define NESTOR_ADD(function) add(#function, &function)
  NESTOR_ADD(thread_index);
  NESTOR_ADD(block_index);
  NESTOR_ADD(block_count);
  NESTOR_ADD(shared_memory);
  NESTOR_ADD(prepare_barrier);
  NESTOR_ADD(expect_bytes);
  NESTOR_ADD(arrive);
  NESTOR_ADD(arrive_in_block);
  NESTOR_ADD(wait_phase);
  NESTOR_ADD(fence_inits);
  NESTOR_ADD(fence_async);
  NESTOR_ADD(block_barrier);
  NESTOR_ADD(barrier_sync);
  NESTOR_ADD(barrier_arrive);
  NESTOR_ADD(cluster_arrive);
  NESTOR_ADD(cluster_wait);
  NESTOR_ADD(set_registers);
  NESTOR_ADD(access);
  NESTOR_ADD(load_word);
  NESTOR_ADD(load_piece);
  NESTOR_ADD(store_word);
  NESTOR_ADD(store_half);
  NESTOR_ADD(store_global);
  NESTOR_ADD(load_global);
  NESTOR_ADD(add_to_counter);
  NESTOR_ADD(reset_counter);
  NESTOR_ADD(shuffle);
  NESTOR_ADD(vote_any);
  NESTOR_ADD(vote_ballot);
  NESTOR_ADD(warp_barrier);
  NESTOR_ADD(load_matrices);
  NESTOR_ADD(store_matrices);
  NESTOR_ADD(multiply);
  NESTOR_ADD(copy_piece);
  NESTOR_ADD(copy_piece_to);
  NESTOR_ADD(copy_part_to);
  NESTOR_ADD(commit_pieces);
  NESTOR_ADD(await_pieces);
  NESTOR_ADD(send);
  NESTOR_ADD(load_tile);
  NESTOR_ADD(store_tile);
  NESTOR_ADD(commit_stores);
  NESTOR_ADD(await_stores);
  NESTOR_ADD(product);
  NESTOR_ADD(products_fence);
  NESTOR_ADD(products_commit);
  NESTOR_ADD(products_wait);
  NESTOR_ADD(settled);
  NESTOR_ADD(settle_registers);
  NESTOR_ADD(defined);
#undef NESTOR_ADD
  add("reciprocal", &reciprocal);
  add("reciprocal_root", &reciprocal_root);
  add("exp2", &exp2_flushed);
  add("log2", &log2_of);
  add("tanh", &tanh_of);
  add("f16", &to_f16);
  add("bf16", &to_bf16);
  add("f16_toward_zero", &to_f16_toward_zero);
  add("bf16_toward_zero", &to_bf16_toward_zero);
  return symbols;
}

}  // namespace nestor::emulation
