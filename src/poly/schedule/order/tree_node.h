// The loop tree of a schedule: its nodes, the kinds of loops, and what loops ask of a machine.
#pragma once

#include "support/knobs.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// How the iterations of a loop are executed. gpu_block: one block an iteration; gpu_lane: spread over
/// the lanes of a warp.
enum class LoopKind : std::uint8_t { serial, parallel, vectorize, unroll, gpu_block, gpu_lane };
std::string_view to_string(LoopKind kind);

/// Node of the loop tree. Children of a sequence run in order; a loop has one child; a leaf is one statement.
struct TreeNode {
  enum class Kind : std::uint8_t { sequence, loop, leaf };
  Kind kind;
  std::string name;  ///< loop: its unique name; leaf: the statement
  LoopKind loop_kind = LoopKind::serial;
  std::int64_t factor = 0;  ///< vector width or unroll factor; 0: left to the back end
  bool specialized = false;
  LoopKnobs knobs;  ///< of a loop that is spread over blocks: what the machine is asked for
  std::vector<std::shared_ptr<const TreeNode>> children;
};
using Tree = std::shared_ptr<const TreeNode>;

}  // namespace nestor
