// Names of loop kinds.
#include "poly/schedule/order/tree_node.h"

namespace nestor {

std::string_view to_string(LoopKind kind) {
  switch (kind) {
    case LoopKind::serial:
      return "serial";
    case LoopKind::parallel:
      return "parallel";
    case LoopKind::vectorize:
      return "vectorize";
    case LoopKind::unroll:
      return "unroll";
    case LoopKind::gpu_block:
      return "gpu_block";
    case LoopKind::gpu_lane:
      return "gpu_lane";
  }
  return "serial";
}

}  // namespace nestor
