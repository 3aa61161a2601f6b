// Placement of buffers: by the parallel loops that use them.
#include "codegen/host/emit/memory_layout.h"

#include <algorithm>

namespace nestor {
namespace {

constexpr std::int64_t kStackBuffer = 16 << 10;     ///< larger buffers go to scratch memory
constexpr std::int64_t kStackFunction = 128 << 10;  ///< bytes of buffers on the stack of one function
constexpr std::int64_t kAlignment = 64;

using Uses = std::map<const TileNode*, std::set<int>>;

void collect(const TileNode& node, const TileNode* region, Uses& uses) {
  if (region == nullptr && is_parallel_loop(node)) region = &node;
  if (node.kind == TileNode::Kind::op) {
    uses[region].insert(node.op.write.buffer);
    for (const TileAccess& read : node.op.reads) uses[region].insert(read.buffer);
  }
  for (const TileTree& child : node.children) collect(*child, region, uses);
}

IntExpr round_up(const IntExpr& value, std::int64_t step) { return floor_div(value + IntExpr(step - 1), step) * IntExpr(step); }

/// Row-major strides, the last extent padded.
void set_dense(const Buffer& buffer, BufferPlace& place) {
  IntExpr stride = 1;
  place.strides.assign(buffer.extents.size(), IntExpr(1));
  for (std::size_t k = buffer.extents.size(); k-- > 0;) {
    place.strides[k] = stride;
    const bool last = k + 1 == buffer.extents.size();
    stride = stride * (last ? round_up(buffer.extents[k], std::max(buffer.pad, 1)) : buffer.extents[k]);
  }
  place.elements = stride;
}

IntExpr bytes_of(const Buffer& buffer, const BufferPlace& place) {
  return round_up(place.elements * IntExpr(static_cast<std::int64_t>(size_in_bytes(buffer.type))), kAlignment);
}

}  // namespace

bool is_parallel_loop(const TileNode& node) {
  return node.kind == TileNode::Kind::loop && (node.loop_kind == LoopKind::parallel || node.loop_kind == LoopKind::gpu_block);
}

MemoryLayout lay_out_memory(const TileProgram& program) {
  MemoryLayout layout;
  if (program.root) collect(*program.root, nullptr, layout.used);
  layout.used[nullptr];
  std::map<const TileNode*, std::int64_t> stack;
  int argument = 0, strides = 0;
  for (std::size_t k = 0; k < program.buffers.size(); ++k) {
    const Buffer& buffer = program.buffers[k];
    BufferPlace place;
    if (buffer.memory == Memory::argument) {
      place.argument = argument++;
      place.first_stride = strides;
      strides += static_cast<int>(buffer.extents.size());
      layout.places.push_back(std::move(place));
      continue;
    }
    set_dense(buffer, place);
    std::vector<const TileNode*> regions;
    for (const auto& [region, used] : layout.used) {
      if (used.count(static_cast<int>(k)) != 0) regions.push_back(region);
    }
    const bool outside = std::find(regions.begin(), regions.end(), nullptr) != regions.end();
    const bool is_private = buffer.memory == Memory::scratch && !regions.empty() && (regions.size() == 1 || !outside);
    const TileNode* region = regions.size() == 1 ? regions[0] : nullptr;
    const IntExpr bytes = bytes_of(buffer, place);
    const auto constant = bytes.as_constant();
    if (regions.size() == 1 && is_private && constant && *constant <= kStackBuffer &&
        stack[region] + *constant <= kStackFunction) {
      place.where = BufferPlace::Where::stack;
      stack[region] += *constant;
    } else if (is_private && !outside) {
      // Several regions (the parts of a specialised loop) each have their own copy, at the same place.
      place.where = BufferPlace::Where::task;
      place.offset = IntExpr(0);
      for (const TileNode* user : regions) place.offset = max(place.offset, layout.task_bytes.try_emplace(user, 0).first->second);
      for (const TileNode* user : regions) layout.task_bytes.at(user) = place.offset + bytes;
    } else {
      place.where = BufferPlace::Where::workspace;
      place.offset = layout.workspace_bytes;
      layout.workspace_bytes = layout.workspace_bytes + bytes;
    }
    layout.places.push_back(std::move(place));
  }
  return layout;
}

}  // namespace nestor
