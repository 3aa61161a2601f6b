// Registers for fragments, shared memory for tiles.
#include "autotune/space/gpu/tensor_fit.h"

#include "codegen/gpu/target/block_registers.h"
#include "codegen/tile/analysis/affine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace nestor {
namespace {

constexpr std::int64_t kOperandBytes = 2;
constexpr std::int64_t kSwizzledElements = 64;  ///< of 16 bits: tiles in shared memory have rows of a multiple of these
constexpr std::int64_t kBarrierBytes = 2048;    ///< barriers and what alignment costs
/// Registers that values of rows and conditions of several chains take: ptxas 12.9 needs them beside fragments for products of 64 and 128
/// columns to run without spills, and not one after the other.
constexpr std::int64_t kBesideChains = 40;

/// Registers of a thread that fragments may fill: what a thread's share leaves beside addresses and temporaries. With several groups
/// the copying one keeps few of its own; before compute capability 9.0 there is none.
std::int64_t fragment_registers(const TensorChoice& choice, int sm) {
  constexpr int kPlenty = 200;
  const bool moves = sm >= kGroupProducts && choice.grid.warpgroups > 1;
  const int threads = nvptx::kWarpgroupThreads * choice.grid.warpgroups + (sm >= kGroupProducts ? nvptx::kWarpThreads : 0);
  const int copying = nvptx::copying_registers(choice.grid.warpgroups, choice.persistent());
  const int registers = moves
                            ? nvptx::computing_registers(choice.grid.warpgroups, choice.grid.blocks_per_unit(), copying)
                            : std::min(nvptx::starting_registers(threads, choice.grid.blocks_per_unit()), nvptx::kMostRegisters);
  return registers - (registers > kPlenty ? 16 : 24);
}

/// Why a block of rows and columns does not fit, whose terms are streamed.
std::string sum_infeasible(const TensorAxes& axes, const TensorChoice& choice, const GpuLimits& limits) {
  const std::int64_t left = fragment_registers(choice, limits.sm),
                     registers = axes.first_products * choice.row_tiles * choice.columns / 2;
  if (registers > left)
    return fmt::format("sums need {} registers of a thread, {} warpgroups leave {}", registers, choice.grid.warpgroups, left);
  const std::int64_t depth = nvptx::round_up(choice.depth, kSwizzledElements),
                     columns = nvptx::round_up(choice.columns, kSwizzledElements);
  const std::int64_t lines = std::ssize(axes.row_operands) * choice.rows() + std::ssize(axes.streamed_operands) * columns;
  const std::int64_t bytes = kOperandBytes * (choice.grid.stages * lines * depth + choice.rows() * columns) + kBarrierBytes;
  const std::int64_t share =
      (limits.shared_bytes + nvptx::kReservedBytes) / choice.grid.blocks_per_unit() - nvptx::kReservedBytes;
  if (bytes > share) return fmt::format("tiles need {} bytes of shared memory, a block has {}", bytes, share);
  return {};
}

}  // namespace

std::string tensor_infeasible(const TensorAxes& axes, const TensorChoice& choice, const GpuLimits& limits) {
  if (axes.column >= 0) return sum_infeasible(axes, choice, limits);
  if (choice.grid.cluster > 1 && axes.streamed_operands.empty()) return "blocks of a cluster would share no tiles";
  if (choice.pack_gqa > 1 && axes.pack < 0) return "rows of one loop alone share what products multiply them with";
  const auto total = [](const std::vector<std::int64_t>& widths, auto&& each) {
    return std::accumulate(widths.begin(), widths.end(), std::int64_t{0},
                           [&](std::int64_t sum, std::int64_t width) { return sum + each(width); });
  };
  // A group has half a value of 64 rows and one column for each thread: what products leave, the 16-bit form of what is multiplied
  // again, sums, and operands that are held.
  // Chain by chain, only those under way have the former, and one has the latter.
  const bool by_chain = choice.grid.intra_warpgroup_overlap > 1;
  if (by_chain && !several_chains(axes)) return "products can overlap chain by chain only where there are several chains of them";
  const int products = by_chain ? std::min(axes.first_products, choice.grid.intra_warpgroup_overlap - 1) : axes.first_products;
  const int operands = by_chain ? 1 : axes.register_operands;
  const std::int64_t beside = by_chain ? kBesideChains : 0;
  const std::int64_t registers =
      beside +
      choice.row_tiles *
          (choice.columns / 2 * products + choice.columns / 4 * operands +
           total(axes.sums, [](std::int64_t width) { return width / 2; }) +
           (choice.grid.a_from_registers != 0 ? total(axes.row_operands, [](std::int64_t width) { return width / 4; }) : 0));
  const std::int64_t left = fragment_registers(choice, limits.sm);
  if (registers > left)
    return fmt::format("fragments need {} registers of a thread, {} warpgroups in {} blocks leave {}", registers,
                       choice.grid.warpgroups, choice.grid.blocks_per_unit(), left);
  const auto row_bytes = [](std::int64_t width) { return nvptx::round_up(width, kSwizzledElements) * kOperandBytes; };
  // A resident block has a place of its own for the result where there is room, else that of an operand that is not held in registers.
  const std::int64_t result =
      choice.persistent() && !axes.sums.empty() ? row_bytes(*std::max_element(axes.sums.begin(), axes.sums.end())) : 0;
  const std::int64_t others = choice.rows() * total(axes.row_operands, row_bytes) +
                              choice.grid.stages * choice.columns * total(axes.streamed_operands, row_bytes) +
                              choice.grid.stages * choice.rows() * axes.tile_operands * row_bytes(choice.columns) + kBarrierBytes;
  const std::int64_t share =
      (limits.shared_bytes + nvptx::kReservedBytes) / choice.grid.blocks_per_unit() - nvptx::kReservedBytes;
  const bool borrows = limits.sm >= kGroupProducts && choice.grid.a_from_registers == 0 &&
                       std::any_of(axes.row_operands.begin(), axes.row_operands.end(),
                                   [&](std::int64_t width) { return row_bytes(width) >= result; });
  const std::int64_t bytes = others + (borrows && others + choice.rows() * result > share ? 0 : choice.rows() * result);
  if (bytes > share) return fmt::format("tiles need {} bytes of shared memory, a block has {}", bytes, share);
  return {};
}

}  // namespace nestor
