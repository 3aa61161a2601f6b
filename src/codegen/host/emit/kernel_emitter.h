// A tile program as one LLVM module: the entry point, and one outlined function for each parallel loop.
#pragma once

#include "codegen/host/emit/frame.h"
#include "codegen/host/emit/memory_layout.h"

namespace nestor {

/// Emits the kernel into `host.module`; returns the bytes of workspace it needs, over sizes.
IntExpr emit_kernel(HostModule& host);

}  // namespace nestor
