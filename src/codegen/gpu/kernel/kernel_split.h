// Cutting a tile program into kernels.
#pragma once

#include "codegen/gpu/kernel/kernel_plan.h"

namespace nestor::nvptx {

LaunchPlan plan_launches(const TileProgram& program, int threads);

}  // namespace nestor::nvptx
