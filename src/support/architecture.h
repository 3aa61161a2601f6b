// What a kernel's architecture string asks of a device, and what this CPU is.
#pragma once

#include <string>
#include <string_view>

namespace nestor {

/// True when a kernel compiled for `architecture` can run on a device of `kind` ("host" or "cuda") and `arch`; else `why`
/// (if given) says what is missing.
/// host: "x86-64:<cpu>:<features>", features as LLVM writes them ("+avx2,-avx512f"); they are asked of the CPU this process
/// runs on. cuda: PTX for "sm_90" runs on sm_90 and newer, for "sm_90a" on sm_90 alone.
bool can_run(std::string_view architecture, std::string_view kind, std::string_view arch, std::string* why = nullptr);

/// Name of this CPU's microarchitecture as LLVM calls it ("znver3", "skylake-avx512"); the instruction set level
/// ("x86-64-v3") for CPUs not known by name.
std::string host_cpu_name();

}  // namespace nestor
