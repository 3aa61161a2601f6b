// Event trace: the events of one role of a tensor plan, laid out straight for one work tile, with what each of them costs.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "nestor/types.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// Values of sizes and grid variables.
using TraceValues = std::map<std::string, std::int64_t>;

/// The grid's middle block at these sizes. Throws UserError when a bound needs a value that is not there.
TraceValues middle_block(const nvptx::TensorPlan& plan, const Sizes& sizes);

/// Events in order, loops unrolled. Throws UserError when there are more than 60,000, or a bound needs a value that is not there.
std::vector<nvptx::Event> trace_of(const nvptx::EventNode& role, const TraceValues& values);

/// Clocks that an event keeps its role, and the unit behind it, busy: estimates from the rates of a multiprocessor, one warpgroup alone.
struct EventCost {
  double role = 0;  ///< of the warpgroup or warp
  double unit = 0;  ///< of the tensor cores (product) or of the copies (load)
};
EventCost cost_of(const nvptx::TensorPlan& plan, const nvptx::Event& event);

/// Clocks from the start of a copy to its first bytes.
inline constexpr double kCopyLatency = 700;

}  // namespace nestor
