// Registers for fragments, shared memory for tiles.
#include "codegen/gpu/target/tensor_block.h"

#include "codegen/gpu/target/block_registers.h"
#include "support/rounding.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr int kAddressRegisters = 56;       ///< of a computing thread, beside fragments
constexpr int kCopyingWithoutSpills = 56;   ///< of a thread that copies in a block that stays
constexpr std::int64_t kPartsInTurn = 2;    ///< of a result: while one leaves, the next is written
constexpr std::int64_t kBarrierArea = 512;  ///< bytes of shared memory for barriers come in multiples of these
/// Registers that values of rows and conditions of several chains take: ptxas 12.9 needs them beside fragments for products of 64 and 128
/// columns to run without spills, and not one after the other.
constexpr std::int64_t kBesideChains = 40;

/// Registers of a thread for sums, operands made from fragments, and operands that are held: half a value of 64 rows and one column.
/// Chain by chain, products of operands in shared memory have sums of those chains that are under way alone, and one has an operand.
std::int64_t fragment_registers(const TensorBlock& block) {
  std::int64_t count = 0, sums = 0, operands = 0;
  for (const BlockProduct& product : block.products) {
    const std::int64_t sum = round_up(product.columns, kSumColumns) / 2, operand = round_up(product.terms, kTerms) / 4;
    if (block.chains == 0) {
      count += sum + operand;
    } else if (product.terms == 0) {
      sums = std::max(sums, block.chains * sum);
    } else {
      count += sum;
      operands = std::max(operands, operand);
    }
  }
  count += sums + operands;
  for (const BlockTile& tile : block.tiles) count += tile.held ? round_up(tile.columns, kTerms) / 4 : 0;
  return count * block.row_tiles;
}

/// What a thread's share of the registers leaves for fragments. With several warpgroups the copying one keeps few of its own; without
/// products of warpgroups there is none.
std::int64_t registers_left(const TensorBlock& block, const NvptxTarget& target) {
  constexpr int kPlenty = 200, kBeside = 24, kBesidePlenty = 16;
  const bool copier = has_group_products(target);
  const int threads = kWarpgroupThreads * block.warpgroups + (copier ? kWarpThreads : 0);
  const int share = copier && block.warpgroups > 1 ? computing_registers(block.warpgroups, block.blocks_per_unit,
                                                                         copying_registers(block.warpgroups, block.persistent))
                                                   : std::min(starting_registers(threads, block.blocks_per_unit), kMostRegisters);
  return share - (share > kPlenty ? kBesidePlenty : kBeside);
}

/// Gives tiles and results their places, one after the other.
class Layout {
 public:
  Layout(const TensorBlock& block, const NvptxTarget& target) : block_(block), target_(target) {}

  SharedPlaces run() {
    for (const BlockTile& tile : block_.tiles) {
      places_.tiles.push_back(end_);
      end_ += round_up(tile.bytes(), kTileAlignment) * tile.stages;
    }
    lent_.assign(block_.tiles.size(), false);
    for (const BlockResult& result : block_.results) places_.results.push_back(place(result));
    places_.barriers = end_;
    places_.bytes = bytes_with(end_);
    places_.scheduler = end_ + barrier_bytes() - std::int64_t{kWorkTileStages} * kWorkTileBytes;
    return std::move(places_);
  }

  bool have_room(std::int64_t bytes) const {
    return block_.blocks_per_unit * (bytes + kReservedBytes) <= target_.shared_limit + kReservedBytes;
  }

 private:
  /// Two for each slot, and the numbers of claimed work tiles behind them.
  std::int64_t barrier_bytes() const {
    if (!has_group_products(target_)) return 0;
    std::int64_t stages = block_.scheduler ? kWorkTileStages : 0;
    for (const BlockTile& tile : block_.tiles) stages += tile.stages;
    return round_up(2 * kBarrierBytes * stages + (block_.scheduler ? kWorkTileStages * kWorkTileBytes : 0), kBarrierArea);
  }

  /// Of a block whose tiles end at `end`: the first one may start anywhere within an alignment of what the block was given.
  std::int64_t bytes_with(std::int64_t end) const { return end + barrier_bytes() + kTileAlignment; }

  /// A group's rows of an operand that stays for the work tile are read by that group alone: when they are done with, the same place takes its
  /// rows of a result that leaves once, at the end. In resident blocks the next work tile's operand would have to wait until the result has
  /// left, so that they have a place of its own where there is room. A result that finds no room leaves in parts.
  std::int64_t place(const BlockResult& result) {
    const std::int64_t width = has_group_products(target_) ? result.block_columns : kBlockColumns;
    const std::int64_t blocks = ceil_div(result.columns, width), bytes = blocks * block_.rows() * width * 2;
    const std::int64_t one = bytes / blocks * block_.work_tiles;
    places_.result_blocks.push_back(blocks);
    // Rows of other blocks have other lengths: a group's rows would lie over those of another group.
    const bool may_borrow = result.leaves_last && block_.work_tiles == 1 && width == kBlockColumns &&
                            (!block_.persistent || (has_group_products(target_) && !have_room(bytes_with(end_ + bytes))));
    for (std::size_t t = 0; may_borrow && t < block_.tiles.size(); ++t) {
      const BlockTile& tile = block_.tiles[t];
      if (!tile.lends || lent_[t] || (block_.persistent && tile.held) || tile.bytes() < bytes) continue;
      lent_[t] = true;
      return places_.tiles[t];
    }
    std::int64_t& parts = places_.result_blocks.back();
    for (const std::int64_t fewer : {kPartsInTurn, std::int64_t{1}}) {
      if (has_group_products(target_) && fewer < parts && !have_room(bytes_with(end_ + parts * one))) parts = fewer;
    }
    return std::exchange(end_, end_ + parts * one);
  }

  const TensorBlock& block_;
  const NvptxTarget& target_;
  SharedPlaces places_;
  std::vector<bool> lent_;  ///< tiles, to a result
  std::int64_t end_ = 0;
};

std::string tile_refusal(const TensorBlock& block, const NvptxTarget& target) {
  for (const BlockTile& tile : block.tiles) {
    if (tile.blocks > 1 && !tile.shares_columns() && tile.rows % (std::int64_t{kSwizzleRows} * tile.blocks) != 0)
      return fmt::format(
          "{} blocks of a cluster cannot share out {} with {} rows of {} elements: choose a multiple of {} rows, or a smaller "
          "cluster",
          tile.blocks, tile.what, tile.rows, tile.columns, kSwizzleRows * tile.blocks);
    if (has_group_products(target) && tile.copied_rows() > kMostCopiedRows)
      return fmt::format("{} has {} rows, and a tensor copy moves {} at most: choose smaller tiles", tile.what,
                         tile.copied_rows(), kMostCopiedRows);
  }
  return "";
}

}  // namespace

TensorNeeds estimate(const TensorBlock& block, const NvptxTarget& target) {
  TensorNeeds needs;
  needs.registers = fragment_registers(block);
  needs.registers_left = registers_left(block, target) - (block.chains > 0 ? kBesideChains : 0);
  if (needs.registers > needs.registers_left)
    needs.spills = fmt::format("fragments need {} registers of a thread, {} warpgroups in {} blocks leave {}", needs.registers,
                               block.warpgroups, block.blocks_per_unit, needs.registers_left);
  Layout layout(block, target);
  needs.places = layout.run();
  needs.refusal = tile_refusal(block, target);
  if (!needs.refusal.empty()) return needs;
  if (needs.places.bytes > target.shared_limit) {
    needs.refusal =
        fmt::format("it needs {} bytes of shared memory for its tiles, and a block has {}: choose smaller tiles or fewer stages",
                    needs.places.bytes, target.shared_limit);
  } else if (!layout.have_room(needs.places.bytes)) {
    needs.refusal = fmt::format(
        "{} blocks of {} bytes of shared memory do not fit the {} bytes of a multiprocessor: choose smaller tiles, fewer stages "
        "or "
        "fewer blocks",
        block.blocks_per_unit, needs.places.bytes + kReservedBytes, target.shared_limit + kReservedBytes);
  }
  return needs;
}

std::pair<int, int> moved_registers(const TensorBlock& block) {
  const auto left = [&](int copying) { return computing_registers(block.warpgroups, block.blocks_per_unit, copying); };
  // Blocks that stay keep more while they copy, as far as the others can spare them.
  const bool spared = fragment_registers(block) + kAddressRegisters <= left(kCopyingWithoutSpills);
  const bool more = block.persistent && block.warpgroups < 3 && spared;
  const int copying = more ? kCopyingWithoutSpills : copying_registers(block.warpgroups, block.persistent);
  return {copying, left(copying)};
}

}  // namespace nestor::nvptx
