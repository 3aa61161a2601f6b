// Loops over doubles in versions for processors with AVX2: twice as many numbers at once. Results are the same: nothing is contracted.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define NESTOR_AVX2 __attribute__((target("avx2")))
#else
#define NESTOR_AVX2
#endif

namespace nestor {

inline bool has_avx2() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool known = __builtin_cpu_supports("avx2") != 0;
  return known;
#else
  return false;
#endif
}

}  // namespace nestor
