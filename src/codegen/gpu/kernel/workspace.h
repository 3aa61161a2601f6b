// The workspace: where buffers that all blocks share lie in the memory that the launcher brings.
#pragma once

#include "codegen/tile/tile_program.h"

#include <map>

namespace nestor::nvptx {

/// Elements that a workspace buffer has room for along an index: the last one is padded.
IntExpr held_extent(const Buffer& buffer, std::size_t index);

/// Strides of a workspace buffer in elements, one for each index but the last, which is dense.
std::vector<IntExpr> workspace_strides(const Buffer& buffer);

/// Offset of each workspace buffer in bytes, over size parameters; each a multiple of 64.
std::map<int, IntExpr> workspace_layout(const TileProgram& program, IntExpr& total);

}  // namespace nestor::nvptx
