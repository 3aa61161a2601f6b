// Passes that order a tensor plan's work: events of every role, copies, stores and places in shared memory.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

namespace nestor::nvptx {

void plan_events(TensorPlan& plan, const TileTree& tree);  ///< both roles' programs
void plan_copies(TensorPlan& plan);                        ///< mma: one program of both
void plan_stores(TensorPlan& plan);                        ///< tiles that leave through shared memory
void plan_test_reads(TensorPlan& plan);                    ///< what column tests read, ahead of their ops
void place_rings(TensorPlan& plan, const NvptxTarget& target);

}  // namespace nestor::nvptx
