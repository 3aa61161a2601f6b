// Extents and offsets of workspace buffers.
#include "codegen/gpu/kernel/workspace.h"

namespace nestor::nvptx {

IntExpr held_extent(const Buffer& buffer, std::size_t index) {
  const IntExpr& extent = buffer.extents[index];
  if (index + 1 < buffer.extents.size() || buffer.pad <= 1) return extent;
  return floor_div(extent + IntExpr(buffer.pad - 1), buffer.pad) * IntExpr(buffer.pad);
}

std::vector<IntExpr> workspace_strides(const Buffer& buffer) {
  std::vector<IntExpr> strides;
  IntExpr stride(1);
  for (std::size_t dim = buffer.extents.size(); dim-- > 1;) {
    stride = stride * held_extent(buffer, dim);
    strides.insert(strides.begin(), stride);
  }
  return strides;
}

std::map<int, IntExpr> workspace_layout(const TileProgram& program, IntExpr& total) {
  std::map<int, IntExpr> offsets;
  total = IntExpr(0);
  for (std::size_t k = 0; k < program.buffers.size(); ++k) {
    const Buffer& buffer = program.buffers[k];
    if (buffer.memory != Memory::workspace) continue;
    offsets[static_cast<int>(k)] = total;
    IntExpr count(1);
    for (std::size_t d = 0; d < buffer.extents.size(); ++d) count = count * held_extent(buffer, d);
    const IntExpr bytes = count * IntExpr(static_cast<std::int64_t>(size_in_bytes(buffer.type)));
    total = total + floor_div(bytes + IntExpr(63), 64) * IntExpr(64);
  }
  return offsets;
}

}  // namespace nestor::nvptx
