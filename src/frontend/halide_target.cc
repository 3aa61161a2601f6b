// What this processor really has, asked of itself.
#include "frontend/halide_target.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace nestor {
namespace {

bool has_avx512_fp16() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kFp16 = 1U << 23U;  // leaf 7, EDX
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kFp16) != 0;
#else
  return false;
#endif
}

}  // namespace

Halide::Target halide_jit_target() {
  Halide::Target target = Halide::get_jit_target_from_environment();
  if (!has_avx512_fp16()) target.set_feature(Halide::Target::AVX512_SapphireRapids, false);
  return target;
}

}  // namespace nestor
