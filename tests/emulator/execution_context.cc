// Switches between stacks: by a few instructions on x86-64, by ucontext elsewhere.
#include "emulator/execution_context.h"

#include "support/error.h"

#include <sys/mman.h>

#include <cstring>

#if defined(__x86_64__)
// Registers that a call keeps (System V ABI) go to the stack that is left and come from the one that is taken.
asm(R"(
.text
.p2align 4
.globl nestor_switch_context
.type nestor_switch_context, @function
nestor_switch_context:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.size nestor_switch_context, .-nestor_switch_context
)");
extern "C" void nestor_switch_context(void** from, void* to);
#else
#include <ucontext.h>
#endif

namespace nestor::emulation {

Stacks::~Stacks() {
  if (memory_ != nullptr) munmap(memory_, count_ * kBytes);
}

void Stacks::reserve(std::size_t count) {
  if (count <= count_) return;
  if (memory_ != nullptr) munmap(memory_, count_ * kBytes);
  void* memory = mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) internal_error("emulator: no memory for the stacks of {} threads", count);
  memory_ = static_cast<char*>(memory);
  count_ = count;
}

#if defined(__x86_64__)

void switch_context(void** from, void* to) { nestor_switch_context(from, to); }

void* Stacks::start(std::size_t k, void (*entry)()) {
  constexpr std::size_t kKept = 6;
  // `entry` finds the stack as a call leaves it: 8 bytes beyond a multiple of 16.
  auto* top = reinterpret_cast<void**>(memory_ + (k + 1) * kBytes - 72);
  top[0] = nullptr;
  top[-1] = reinterpret_cast<void*>(entry);
  std::memset(top - 1 - kKept, 0, kKept * sizeof(void*));
  return top - 1 - kKept;
}

#else

void switch_context(void** from, void* to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}

void* Stacks::start(std::size_t k, void (*entry)()) {
  auto* context = reinterpret_cast<ucontext_t*>(memory_ + k * kBytes);
  getcontext(context);
  context->uc_stack.ss_sp = memory_ + k * kBytes + sizeof(ucontext_t);
  context->uc_stack.ss_size = kBytes - sizeof(ucontext_t);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}

#endif

}  // namespace nestor::emulation
