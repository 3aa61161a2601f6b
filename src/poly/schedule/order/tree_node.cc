// Names of loop kinds, and grids as text.
#include "poly/schedule/order/tree_node.h"

#include <fmt/ranges.h>

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
    case LoopKind::gpu_warp:
      return "gpu_warp";
    case LoopKind::gpu_lane:
      return "gpu_lane";
  }
  return "serial";
}

std::string GridShape::str() const {
  std::vector<std::string> parts;
  if (threads != 0) parts.push_back(fmt::format("{} threads", threads));
  if (cluster > 1) parts.push_back(fmt::format("clusters of {} blocks", cluster));
  if (persistent > 0) parts.push_back(fmt::format("{} resident blocks", persistent));
  if (groups > 0) parts.push_back(fmt::format("{} groups on tensor cores, {} slots", groups, slots));
  if (overlap == 1) parts.emplace_back("products overlap");
  if (overlap > 1) parts.push_back(fmt::format("products overlap, chain by chain, {} under way", overlap - 1));
  if (turns != 0) parts.emplace_back("groups in turn");
  if (hold != 0) parts.emplace_back("first operands in registers");
  if (residents > 0) parts.push_back(fmt::format("{} blocks a multiprocessor", residents));
  if (claims != 0) parts.emplace_back("iterations claimed");
  if (stagger != 0) parts.emplace_back("slots given back amid exponentials");
  if (polynomial > 0) parts.push_back(fmt::format("{}/16 of exponentials by polynomial", polynomial));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace nestor
