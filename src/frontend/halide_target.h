// The processor that Halide's own JIT may compile for.
#pragma once

#include <Halide.h>

namespace nestor {

/// This processor, as Halide's environment variables have it. Halide infers Sapphire Rapids from AVX512-BF16, and LLVM then uses
/// 16-bit floating point that Zen 4, Zen 5 and many virtual machines lack: that feature is left out where the processor lacks it.
Halide::Target halide_jit_target();

}  // namespace nestor
