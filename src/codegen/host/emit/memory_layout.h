// Where the buffers of a kernel lie: the caller's arguments, the workspace, the scratch of a parallel task, or the stack.
#pragma once

#include "codegen/tile/tile_program.h"

#include <map>
#include <set>
#include <vector>

namespace nestor {

/// A place of memory; `offset` in bytes, over sizes, 64-byte aligned.
struct BufferPlace {
  enum class Where : std::uint8_t { argument, workspace, task, stack } where = Where::argument;
  IntExpr offset{0};
  IntExpr elements{0};           ///< of the whole buffer; not for arguments
  std::vector<IntExpr> strides;  ///< in elements; not for arguments
  int argument = 0;              ///< position among the arguments
  int first_stride = 0;          ///< of an argument, in the launch's stride list
};

/// Layout of one program. A region is the outermost parallel loop of a task; ops outside regions have region null.
struct MemoryLayout {
  std::vector<BufferPlace> places;
  IntExpr workspace_bytes{0};                     ///< of buffers; temporary memory of ops comes after them
  std::map<const TileNode*, IntExpr> task_bytes;  ///< by region, likewise
  std::map<const TileNode*, std::set<int>> used;  ///< buffers that a region's code refers to
};

/// A loop whose iterations are tasks.
bool is_parallel_loop(const TileNode& node);

/// Throws InternalError for a buffer that is used in several parallel loops although it is private to one.
MemoryLayout lay_out_memory(const TileProgram& program);

}  // namespace nestor
