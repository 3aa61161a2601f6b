// Touchers and meetings: accesses of a block plan's ops with the threads that make them, and pairs of these.
#pragma once

#include "codegen/gpu/simt/proof/block_proof.h"

namespace nestor::nvptx {

/// One access of an op and the threads that make it.
struct Toucher {
  enum class Rows : std::uint8_t { by_row, all, first };             ///< groups: that of the row, all, the first
  enum class Columns : std::uint8_t { by_column, all, first, any };  ///< lanes; any: whichever thread of the block
  const OpSite* site = nullptr;
  const TileAccess* access = nullptr;
  bool writes = false;
  Rows rows = Rows::all;
  Columns columns = Columns::all;
  bool kept_only = false;  ///< made once for all points that differ in reduced dims alone
};

struct Meeting {
  /// What must differ for the meeting to count: rows or columns, threads, blocks; nothing: any meeting counts.
  enum class Apart : std::uint8_t { point, thread, block, nothing };
  const Toucher* a = nullptr;
  const Toucher* b = nullptr;
  Apart apart = Apart::thread;
  std::size_t shared = 0;              ///< nodes around both, from the outermost one, whose variables have the same values
  const BlockNode* carried = nullptr;  ///< loop around both of which b is at a later iteration; null: none
};

}  // namespace nestor::nvptx
