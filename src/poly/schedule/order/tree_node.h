// The loop tree of a schedule: its nodes, the kinds of loops, and how grids are given to blocks of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// How the iterations of a loop are executed. gpu_block: one block an iteration; gpu_warp, gpu_lane: spread over the
/// warps of a block, the lanes of a warp.
enum class LoopKind : std::uint8_t { serial, parallel, vectorize, unroll, gpu_block, gpu_warp, gpu_lane };
std::string_view to_string(LoopKind kind);

/// How the iterations of a gpu_block loop are given to blocks of threads. Changes no order: iterations are independent.
struct GridShape {
  int threads = 0;     ///< of a block, a multiple of 32; 0: left to the back end
  int cluster = 1;     ///< blocks that take one iteration together, a power of two
  int persistent = 0;  ///< blocks started for each multiprocessor, each taking iterations in turn; 0: one block an iteration
  int groups = 0;      ///< of four warps, which compute products on tensor cores with operands rounded to 16 bits; 0: none
  int slots = 2;       ///< tiles of an operand in shared memory at once, with groups
  int overlap = 0;     ///< 1: products that only the next iteration needs run beside its first ones; more: 1 + chains under way
  int turns = 0;       ///< 1: groups issue their products in turn, so that one computes while another multiplies
  int hold = 0;        ///< 1: a first operand that stays for the whole iteration is held in registers
  int residents = 0;   ///< blocks that a multiprocessor shall hold at once, which bounds their registers; 0: left to the back end
  int claims = 0;      ///< 1: resident blocks claim their next iteration from a counter instead of going round
  int stagger =
      0;  ///< 1: a slot is given back in the middle of the exponentials behind its product, so that waits stay behind them
  int polynomial = 0;  ///< sixteenths of the exponentials of a tile that are computed by a polynomial beside the function unit
  bool operator==(const GridShape& other) const = default;
  std::string str() const;  ///< "256 threads, clusters of 4 blocks"; empty when all is left to the back end
};

/// Node of the loop tree. Children of a sequence run in order; a loop has one child; a leaf is one statement.
struct TreeNode {
  enum class Kind : std::uint8_t { sequence, loop, leaf };
  Kind kind;
  std::string name;  ///< loop: its unique name; leaf: the statement
  LoopKind loop_kind = LoopKind::serial;
  std::int64_t factor = 0;  ///< vector width or unroll factor; 0: left to the back end
  bool specialized = false;
  GridShape grid;  ///< of a gpu_block loop
  std::vector<std::shared_ptr<const TreeNode>> children;
};
using Tree = std::shared_ptr<const TreeNode>;

}  // namespace nestor
