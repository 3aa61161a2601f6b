// SIMT emulator: runs the LLVM IR of GPU kernels on the CPU. Each GPU thread is a fiber; barriers and shuffles are the points where
// fibers wait for each other, and the order in which they run between such points is random, so that a missing barrier shows.
// Asynchronous copies happen at once or as late as they may, at random; asynchronous stores to other blocks arrive one by one, later,
// in random order. Shared memory starts out as NaNs. Threads that wait at different barriers for ever are reported.
#pragma once

#include "support/elements.h"
#include "support/error.h"
#include "support/simt_launch.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/ReplaceConstant.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

namespace nestor::testing {

constexpr std::size_t kSharedBytes = 256 * 1024;
constexpr std::size_t kSharedAlignment = 1024;

/// A barrier in shared memory, in its 8 bytes. Bytes may arrive before they are expected.
struct EmulatedBarrier {
  std::int32_t bytes;  ///< still to come in this phase
  std::int16_t phase;
  std::int8_t arrivals, pending;  ///< of each phase; still to come in this one

  void settle() {
    if (pending != 0 || bytes != 0) return;
    ++phase;
    pending = arrivals;
  }
};
static_assert(sizeof(EmulatedBarrier) == 8);

/// The threads of one block, or of a cluster of blocks, as fibers.
class Fibers {
 public:
  enum class State { ready, barrier, phase, shuffle, done };
  /// An asynchronous store under way.
  struct Message {
    char* to;
    EmulatedBarrier* barrier;
    std::uint32_t bits;
  };
  static Fibers& current() {
    static Fibers fibers;
    return fibers;
  }

  /// `threads` of each of `cluster` blocks from number `block` on, of `blocks` in all.
  void run(int threads, int cluster, std::int64_t block, std::int64_t blocks, std::mt19937& random,
           const std::function<void()>& body) {
    fibers_.resize(static_cast<std::size_t>(threads) * static_cast<std::size_t>(cluster));
    threads_ = threads;
    block_ = block;
    blocks_ = blocks;
    body_ = &body;
    random_ = &random;
    for (Fiber& fiber : fibers_) start(fiber);
    std::vector<int> order(fibers_.size());
    for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int>(k);
    messages_.clear();
    while (!all(State::done)) {
      std::shuffle(order.begin(), order.end(), random);
      bool progress = false;
      // Some warps stay behind, so that they come apart as far as barriers allow.
      const std::uint32_t behind = random();
      for (int k : order) {
        if (fibers_[static_cast<std::size_t>(k)].state != State::ready) continue;
        progress = true;
        if ((behind >> (k / 32 % 32) & 1) != 0) continue;
        running_ = k;
        swapcontext(&scheduler_, &fibers_[static_cast<std::size_t>(k)].context);
      }
      progress = deliver(random) || progress;
      progress = release() || progress;
      if (!progress)
        throw InternalError("threads of one block wait for each other for ever: a barrier or shuffle is not reached by all");
    }
    if (!messages_.empty()) throw InternalError("a cluster ends while stores to its blocks are under way");
  }

  static std::int32_t thread() { return current().running_ % current().threads_; }
  static std::int32_t rank() { return current().running_ / current().threads_; }
  static std::int32_t block() { return static_cast<std::int32_t>(current().block_) + rank(); }
  static std::int32_t blocks() { return static_cast<std::int32_t>(current().blocks_); }
  static void barrier() { current().wait(State::barrier); }
  static void copy(char* to, const char* from, std::int32_t bytes) { copy_with_zeros(to, from, bytes, 0); }
  static void copy_with_zeros(char* to, const char* from, std::int32_t bytes, std::int32_t zeros) {
    const Copy copy{to, from, bytes, zeros};
    if ((*current().random_)() % 2 == 0) {
      copy.run();
    } else {
      current().mine().open.push_back(copy);
    }
  }
  static void commit() { current().mine().groups.push_back(std::exchange(current().mine().open, {})); }
  /// Until at most so many groups of copies are under way.
  static void await_copies(std::int32_t groups) {
    Fiber& me = current().mine();
    for (; me.groups.size() > static_cast<std::size_t>(groups); me.groups.erase(me.groups.begin())) {
      for (const Copy& copy : me.groups.front()) copy.run();
    }
  }
  static void send(const Message& message) { current().messages_.push_back(message); }
  /// Until the phase of that parity is over.
  static void wait_phase(const EmulatedBarrier* barrier, int parity) {
    Fiber& me = current().mine();
    me.barrier = barrier;
    me.parity = parity;
    current().wait(State::phase);
  }
  /// Words that a thread shows to the others of its warp.
  using Words = std::array<std::uint32_t, 6>;
  /// Shows `own`, and returns what each lane of the warp has shown, when all have.
  static std::array<const Words*, 32> exchange(const Words& own) {
    Fibers& all = current();
    Fiber& me = all.mine();
    me.published[me.phase & 1] = own;
    const std::size_t phase = me.phase++ & 1, first = static_cast<std::size_t>(all.running_) / 32 * 32;
    all.wait(State::shuffle);
    std::array<const Words*, 32> shown{};
    for (std::size_t lane = 0; lane < shown.size(); ++lane) shown[lane] = &all.fibers_[first + lane].published[phase];
    return shown;
  }
  static std::int32_t lane() { return current().running_ % 32; }

 private:
  static constexpr std::size_t kStackBytes = 128 * 1024;
  struct Copy {
    char* to;
    const char* from;
    std::int32_t bytes, zeros;
    void run() const {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      std::memset(to + bytes, 0, static_cast<std::size_t>(zeros));
    }
  };
  struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    State state = State::done;
    Words published[2] = {};
    std::size_t phase = 0;
    std::vector<Copy> open;  ///< of no group yet
    std::vector<std::vector<Copy>> groups;
    const EmulatedBarrier* barrier = nullptr;  ///< waited for
    int parity = 0;
  };
  Fiber& mine() { return fibers_[static_cast<std::size_t>(running_)]; }

  void start(Fiber& fiber) {
    if (fiber.stack.empty()) fiber.stack.resize(kStackBytes);
    fiber.state = State::ready;
    fiber.open.clear();
    fiber.groups.clear();
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &scheduler_;
    makecontext(&fiber.context, &Fibers::entry, 0);
  }

  static void entry() {
    Fibers& all = current();
    (*all.body_)();
    all.fibers_[static_cast<std::size_t>(all.running_)].state = State::done;
  }

  void wait(State state) {
    Fiber& me = fibers_[static_cast<std::size_t>(running_)];
    me.state = state;
    swapcontext(&me.context, &scheduler_);
  }

  bool all(State state) const {
    return std::all_of(fibers_.begin(), fibers_.end(), [&](const Fiber& fiber) { return fiber.state == state; });
  }

  /// Lets some of the messages under way arrive, in any order.
  bool deliver(std::mt19937& random) {
    if (messages_.empty()) return false;
    std::shuffle(messages_.begin(), messages_.end(), random);
    for (std::size_t count = 1 + random() % messages_.size(); count > 0; --count) {
      const Message& message = messages_.back();
      std::memcpy(message.to, &message.bits, 4);
      message.barrier->bytes -= 4;
      message.barrier->settle();
      messages_.pop_back();
    }
    return true;
  }

  /// Lets go whoever waits for nobody any more.
  bool release() {
    if (all(State::barrier)) {
      for (Fiber& fiber : fibers_) fiber.state = State::ready;
      return true;
    }
    bool any = false;
    for (Fiber& fiber : fibers_) {
      if (fiber.state != State::phase || (fiber.barrier->phase & 1) == fiber.parity) continue;
      fiber.state = State::ready;
      any = true;
    }
    for (std::size_t warp = 0; warp < fibers_.size(); warp += 32) {
      const auto first = fibers_.begin() + static_cast<std::ptrdiff_t>(warp), last = first + 32;
      if (!std::all_of(first, last, [](const Fiber& fiber) { return fiber.state == State::shuffle; })) continue;
      std::for_each(first, last, [](Fiber& fiber) { fiber.state = State::ready; });
      any = true;
    }
    return any;
  }

  ucontext_t scheduler_;
  std::vector<Fiber> fibers_;
  std::vector<Message> messages_;
  std::int64_t block_ = 0, blocks_ = 0;
  int running_ = 0, threads_ = 1;
  std::mt19937* random_ = nullptr;
  const std::function<void()>* body_ = nullptr;
};

namespace emulated {
/// Shared memory of all blocks of a cluster, one after the other.
inline std::vector<char>& memory() {
  static std::vector<char> bytes;
  return bytes;
}
/// Where that starts: as aligned as any tile asks for.
inline char* first_shared() {
  const auto address = reinterpret_cast<std::uintptr_t>(memory().data());
  return memory().data() + ((address + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment - address);
}
inline char* shared() { return first_shared() + static_cast<std::size_t>(Fibers::rank()) * kSharedBytes; }
/// What `address` (its low half), in this block's shared memory, is in block `rank`'s.
inline char* in_block(std::uint32_t address, std::int32_t rank) {
  const std::uint32_t offset = address - static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(shared()));
  if (offset + 8 > kSharedBytes) throw InternalError("emulator: an address outside of the cluster's shared memory");
  return first_shared() + static_cast<std::size_t>(rank) * kSharedBytes + offset;
}
inline EmulatedBarrier* barrier_in_block(std::uint32_t address, std::int32_t rank) {
  return reinterpret_cast<EmulatedBarrier*>(in_block(address, rank));
}
inline void send(std::uint32_t address, std::int32_t rank, std::uint32_t barrier, std::uint32_t bits) {
  Fibers::send({in_block(address, rank), barrier_in_block(barrier, rank), bits});
}
inline void send_pair(std::uint32_t address, std::int32_t rank, std::uint32_t barrier, std::uint32_t low, std::uint32_t high) {
  send(address, rank, barrier, low);
  send(address + 4, rank, barrier, high);
}
inline void init_barrier(std::uint32_t barrier, std::int32_t arrivals) {
  const auto count = static_cast<std::int8_t>(arrivals);
  *barrier_in_block(barrier, Fibers::rank()) = {0, 0, count, count};
}
inline void expect_bytes(std::uint32_t address, std::int32_t bytes) {
  EmulatedBarrier* barrier = barrier_in_block(address, Fibers::rank());
  barrier->bytes += bytes;
  --barrier->pending;
  barrier->settle();
}
inline void wait_phase(std::uint32_t barrier, std::int32_t parity) {
  Fibers::wait_phase(barrier_in_block(barrier, Fibers::rank()), parity);
}
inline std::uint32_t word_of_lane(std::uint32_t value, std::int32_t lane) {
  return (*Fibers::exchange({value})[static_cast<std::size_t>(lane)])[0];
}
inline float shuffle_f32(std::int32_t, float value, std::int32_t distance, std::int32_t) {
  return std::bit_cast<float>(word_of_lane(std::bit_cast<std::uint32_t>(value), Fibers::lane() ^ distance));
}
inline std::int32_t shuffle_i32(std::int32_t, std::int32_t value, std::int32_t distance, std::int32_t) {
  return static_cast<std::int32_t>(word_of_lane(static_cast<std::uint32_t>(value), Fibers::lane() ^ distance));
}
inline std::int32_t shuffle_from(std::int32_t, std::int32_t value, std::int32_t lane, std::int32_t) {
  return static_cast<std::int32_t>(word_of_lane(static_cast<std::uint32_t>(value), lane));
}
inline bool vote_any(std::int32_t, bool value) {
  const auto shown = Fibers::exchange({value ? 1U : 0U});
  return std::any_of(shown.begin(), shown.end(), [](const Fibers::Words* words) { return (*words)[0] != 0; });
}
inline float reciprocal(float x) { return 1.0f / x; }
inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
/// Subnormal arguments and results count as zero.
inline float exp2_ftz(float x) {
  const auto flushed = [](float value) { return std::fpclassify(value) == FP_SUBNORMAL ? 0.0f : value; };
  return flushed(std::exp2(flushed(x)));
}
inline float log2(float x) { return std::log2(x); }
inline std::uint16_t bf16(float x) { return to_bf16(x); }
inline std::uint16_t f16(float x) { return to_f16(x); }
}  // namespace emulated

}  // namespace nestor::testing

#include "support/simt_warp_assembly.h"

namespace nestor::testing {

/// Kernels of one module of NVPTX IR, ready to run.
class SimtEmulator {
 public:
  explicit SimtEmulator(const std::string& ir) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto context = std::make_unique<llvm::LLVMContext>();
    llvm::SMDiagnostic diagnostic;
    auto module = llvm::parseAssemblyString(ir, diagnostic, *context);
    if (!module) throw InternalError("emulator: " + diagnostic.getMessage().str());
    jit_ = take(llvm::orc::LLJITBuilder().create());
    adapt(*module);
    define_helpers();
    check(jit_->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))));
  }

  void seed(unsigned value) { random_.seed(value); }

  void run(const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params) {
    auto kernel = take(jit_->lookup("run_" + node.symbol)).toPtr<void (*)(void**)>();
    if (node.shared_bytes > static_cast<std::int64_t>(kSharedBytes)) throw InternalError("emulator: too much shared memory");
    const int cluster = node.cluster[0];
    if (blocks % cluster != 0) throw InternalError("emulator: the grid has no whole number of clusters");
    for (std::int64_t block = 0; block < blocks; block += cluster) {
      emulated::memory().assign(kSharedBytes * static_cast<std::size_t>(cluster) + kSharedAlignment, '\xff');
      Fibers::current().run(node.block[0], cluster, block, blocks, random_, [&] { kernel(params.data()); });
      for (int rank = 0; rank < cluster; ++rank) {
        const char* begin = emulated::first_shared() + static_cast<std::ptrdiff_t>(kSharedBytes) * rank;
        const char* end = begin + static_cast<std::ptrdiff_t>(kSharedBytes);
        if (std::any_of(begin + node.shared_bytes, end, [](char c) { return c != '\xff'; })) {
          throw InternalError("kernel " + node.symbol + " writes beyond its shared memory");
        }
      }
    }
  }

 private:
  template <class T>
  static T take(llvm::Expected<T> value) {
    if (!value) throw InternalError("emulator: " + llvm::toString(value.takeError()));
    return std::move(*value);
  }
  static void check(llvm::Error error) {
    if (error) throw InternalError("emulator: " + llvm::toString(std::move(error)));
  }

  void adapt(llvm::Module& module) {
    module.setTargetTriple(jit_->getTargetTriple().str());
    module.setDataLayout(jit_->getDataLayout());
    llvm::IRBuilder<> b(module.getContext());
    std::vector<llvm::Function*> kernels;
    for (llvm::Function& function : module) {
      if (function.isDeclaration()) continue;
      function.setCallingConv(llvm::CallingConv::C);
      function.removeFnAttr("target-cpu");
      function.removeFnAttr("target-features");
      kernels.push_back(&function);
      std::vector<llvm::CallInst*> calls;
      for (llvm::Instruction& instruction : llvm::instructions(function)) {
        if (auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction)) calls.push_back(call);
      }
      for (llvm::CallInst* call : calls) replace(module, *call);
    }
    place_shared(module);
    for (llvm::Function* kernel : kernels) add_trampoline(module, *kernel);
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    if (llvm::verifyModule(module, &stream)) throw InternalError("emulator: " + problem);
  }

  /// Every kernel asks once where its block's shared memory is.
  static void place_shared(llvm::Module& module) {
    constexpr unsigned kSharedSpace = 3;
    llvm::GlobalVariable* shared = nullptr;
    for (llvm::GlobalVariable& global : module.globals()) {
      if (global.getAddressSpace() != kSharedSpace) continue;
      if (shared != nullptr) throw InternalError("emulator: two pieces of shared memory");
      shared = &global;
    }
    if (shared == nullptr) return;
    llvm::convertUsersOfConstantsToInstructions({shared});
    llvm::IRBuilder<> b(module.getContext());
    const auto base = module.getOrInsertFunction("emulated_shared", llvm::FunctionType::get(b.getPtrTy(), {}, false));
    std::map<llvm::Function*, llvm::Value*> places;
    for (llvm::Use& use : llvm::make_early_inc_range(shared->uses())) {
      llvm::Function* function = llvm::cast<llvm::Instruction>(use.getUser())->getFunction();
      llvm::Value*& place = places[function];
      if (place == nullptr) {
        b.SetInsertPoint(&function->getEntryBlock(), function->getEntryBlock().begin());
        place = b.CreateAddrSpaceCast(b.CreateCall(base), shared->getType());
      }
      use.set(place);
    }
    shared->eraseFromParent();
  }

  /// void run_<kernel>(void** params): loads each parameter and calls the kernel.
  static void add_trampoline(llvm::Module& module, llvm::Function& kernel) {
    llvm::IRBuilder<> b(module.getContext());
    auto* type = llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy()}, false);
    auto* function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, "run_" + kernel.getName().str(), module);
    b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function));
    std::vector<llvm::Value*> values;
    for (llvm::Argument& argument : kernel.args()) {
      llvm::Value* slot = b.CreateConstGEP1_64(b.getPtrTy(), function->getArg(0), argument.getArgNo());
      values.push_back(b.CreateLoad(argument.getType(), b.CreateLoad(b.getPtrTy(), slot)));
    }
    b.CreateCall(&kernel, values);
    b.CreateRetVoid();
  }

  void replace(llvm::Module& module, llvm::CallInst& call) {
    llvm::IRBuilder<> b(&call);
    llvm::Value* result = nullptr;
    if (const auto* assembly = llvm::dyn_cast<llvm::InlineAsm>(call.getCalledOperand())) {
      result = replace_assembly(module, b, call, assembly->getAsmString());
    } else if (const llvm::Function* callee = call.getCalledFunction();
               callee != nullptr && callee->getName().starts_with("llvm.nvvm.")) {
      result = replace_intrinsic(module, b, call, callee->getName().drop_front(10).str());
    } else {
      return;
    }
    if (!call.getType()->isVoidTy()) call.replaceAllUsesWith(result);
    call.eraseFromParent();
  }

  /// Assembly whose operands are 32-bit integers, by what it contains, and the function that stands for it.
  static constexpr std::pair<const char*, const char*> kSharedAssembly[] = {
      {"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32", "emulated_send"},
      {"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32", "emulated_send_pair"},
      {"mbarrier.init.shared::cta.b64", "emulated_init_barrier"},
      {"mbarrier.arrive.expect_tx.shared::cta.b64", "emulated_expect_bytes"},
      {"mbarrier.try_wait.parity.shared::cta.b64", "emulated_wait_phase"}};

  static llvm::Value* replace_assembly(llvm::Module& module, llvm::IRBuilder<>& b, llvm::CallInst& call,
                                       const std::string& text) {
    for (const auto& [part, function] : kSharedAssembly) {
      if (text.find(part) == std::string::npos) continue;
      const std::vector<llvm::Value*> args(call.arg_begin(), call.arg_end());
      auto* type = llvm::FunctionType::get(b.getVoidTy(), std::vector<llvm::Type*>(args.size(), b.getInt32Ty()), false);
      return b.CreateCall(module.getOrInsertFunction(function, type), args);
    }
    if (text.starts_with("fence.mbarrier_init")) return nullptr;
    if (llvm::Value* result = replace_warp_assembly(module, b, call, text); result != nullptr) return result;
    if (text.starts_with("ld.global.nc.L1::no_allocate.v4.b32")) {
      auto* vector = b.CreateAlignedLoad(llvm::FixedVectorType::get(b.getInt32Ty(), 4), call.getArgOperand(0), llvm::Align(16));
      llvm::Value* words = llvm::PoisonValue::get(call.getType());
      for (unsigned k = 0; k < 4; ++k) words = b.CreateInsertValue(words, b.CreateExtractElement(vector, k), {k});
      return words;
    }
    if (text.starts_with("mov.b32 $0, $1;")) return call.getArgOperand(0);
    if (text.starts_with("div.full.f32")) return b.CreateFDiv(call.getArgOperand(0), call.getArgOperand(1));
    if (text.starts_with("st.global.cs.v4.b32")) {
      llvm::Value* vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(b.getInt32Ty(), 4));
      for (unsigned k = 0; k < 4; ++k) vector = b.CreateInsertElement(vector, call.getArgOperand(k + 1), k);
      return b.CreateAlignedStore(vector, call.getArgOperand(0), llvm::Align(16));
    }
    throw InternalError("emulator: unknown assembly " + text);
  }

  static llvm::Value* replace_intrinsic(llvm::Module& module, llvm::IRBuilder<>& b, llvm::CallInst& call,
                                        const std::string& name) {
    const auto helper = [&](const char* function, llvm::Type* result, std::vector<llvm::Value*> args) {
      std::vector<llvm::Type*> types;
      for (llvm::Value* arg : args) types.push_back(arg->getType());
      return b.CreateCall(module.getOrInsertFunction(function, llvm::FunctionType::get(result, types, false)), args);
    };
    const std::vector<llvm::Value*> args(call.arg_begin(), call.arg_end());
    if (name == "read.ptx.sreg.tid.x") return helper("emulated_thread", b.getInt32Ty(), {});
    if (name == "read.ptx.sreg.ctaid.x") return helper("emulated_block", b.getInt32Ty(), {});
    if (name == "read.ptx.sreg.nctaid.x") return helper("emulated_blocks", b.getInt32Ty(), {});
    // An arrival without its wait lets nobody through; the wait is where all meet.
    if (name == "barrier.cluster.arrive.aligned" || name == "barrier.cluster.arrive.relaxed.aligned") return nullptr;
    if (name == "barrier.cluster.wait.aligned") return helper("emulated_barrier", b.getVoidTy(), {});
    if (name == "cp.async.cg.shared.global.16") return helper("emulated_copy", b.getVoidTy(), {args[0], args[1], b.getInt32(16)});
    if (name == "cp.async.ca.shared.global.4") return helper("emulated_copy", b.getVoidTy(), {args[0], args[1], b.getInt32(4)});
    if (name == "cp.async.commit.group") return helper("emulated_commit", b.getVoidTy(), {});
    if (name == "cp.async.wait.group") return helper("emulated_await_copies", b.getVoidTy(), {args[0]});
    if (name == "barrier0") return helper("emulated_barrier", b.getVoidTy(), {});
    if (name == "shfl.sync.bfly.f32") return helper("emulated_shuffle_f32", b.getFloatTy(), args);
    if (name == "bar.warp.sync") return helper("emulated_warp_barrier", b.getVoidTy(), {});
    if (name == "rcp.approx.ftz.f" || name == "rcp.approx.f") return helper("emulated_reciprocal", b.getFloatTy(), args);
    if (name == "shfl.sync.idx.i32") return helper("emulated_shuffle_from", b.getInt32Ty(), args);
    if (name == "shfl.sync.bfly.i32") return helper("emulated_shuffle_i32", b.getInt32Ty(), args);
    if (name == "vote.any.sync") return helper("emulated_vote_any", b.getInt1Ty(), args);
    if (name == "ex2.approx.ftz.f") return helper("emulated_exp2_ftz", b.getFloatTy(), args);
    if (name == "lg2.approx.f") return helper("emulated_log2", b.getFloatTy(), args);
    if (name == "rcp.approx.ftz.f") return b.CreateFDiv(llvm::ConstantFP::get(b.getFloatTy(), 1.0), args[0]);
    if (name == "rsqrt.approx.f") return helper("emulated_rsqrt", b.getFloatTy(), args);
    const bool f16 = name == "ff2f16x2.rn";
    if (f16 || name == "ff2bf16x2.rn") {
      const char* function = f16 ? "emulated_f16" : "emulated_bf16";
      llvm::Value* pair = llvm::PoisonValue::get(llvm::FixedVectorType::get(b.getInt16Ty(), 2));
      pair = b.CreateInsertElement(pair, helper(function, b.getInt16Ty(), {args[1]}), std::uint64_t{0});
      pair = b.CreateInsertElement(pair, helper(function, b.getInt16Ty(), {args[0]}), std::uint64_t{1});
      return b.CreateBitCast(pair, call.getType());
    }
    if (name == "f2bf16.rn") return b.CreateBitCast(helper("emulated_bf16", b.getInt16Ty(), args), call.getType());
    throw InternalError("emulator: unknown intrinsic llvm.nvvm." + name);
  }

  void define_helpers() {
    llvm::orc::SymbolMap symbols;
    const auto add = [&](const char* name, auto* function) {
      symbols[jit_->mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(function),
                                              llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    };
    add("emulated_thread", &Fibers::thread);
    add("emulated_block", &Fibers::block);
    add("emulated_blocks", &Fibers::blocks);
    add("emulated_shared", &emulated::shared);
    add("emulated_send", &emulated::send);
    add("emulated_send_pair", &emulated::send_pair);
    add("emulated_init_barrier", &emulated::init_barrier);
    add("emulated_expect_bytes", &emulated::expect_bytes);
    add("emulated_wait_phase", &emulated::wait_phase);
    add("emulated_barrier", &Fibers::barrier);
    add("emulated_copy", &Fibers::copy);
    add("emulated_commit", &Fibers::commit);
    add("emulated_await_copies", &Fibers::await_copies);
    add("emulated_shuffle_f32", &emulated::shuffle_f32);
    add("emulated_shuffle_i32", &emulated::shuffle_i32);
    add("emulated_vote_any", &emulated::vote_any);
    add("emulated_shuffle_from", &emulated::shuffle_from);
    add("emulated_reciprocal", &emulated::reciprocal);
    add_warp_helpers(add);
    add("emulated_rsqrt", &emulated::rsqrt);
    add("emulated_exp2_ftz", &emulated::exp2_ftz);
    add("emulated_log2", &emulated::log2);
    add("emulated_bf16", &emulated::bf16);
    add("emulated_f16", &emulated::f16);
    check(jit_->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))));
  }

  std::unique_ptr<llvm::orc::LLJIT> jit_;
  std::mt19937 random_;
};

}  // namespace nestor::testing
