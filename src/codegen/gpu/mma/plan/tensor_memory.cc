// Reads of memory that the kernel itself writes.
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/tile/analysis/affine.h"
#include "support/error.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace nestor::nvptx {
namespace {

/// Indices of an op's access as functions of its place in a tile; nullopt: it has no row or no column, so no thread of its own.
std::optional<std::vector<IntExpr>> indices_of_place(const TensorOp& op, const TileAccess& access) {
  if (op.row < 0 || op.column < 0) return std::nullopt;
  std::vector<IntExpr> indices;
  for (IntExpr index : access.index) {
    for (const auto& [dim, name] : {std::pair{op.row, "place.row"}, {op.column, "place.column"}, {op.pack, "place.pack"}}) {
      if (dim >= 0) index = index.substitute(op.op.dims[static_cast<std::size_t>(dim)].var, IntExpr::variable(name));
    }
    indices.push_back(std::move(index));
  }
  return indices;
}

/// Does the thread that writes an element, and no copy in its stead, read it?
bool reads_own_elements(const TensorOp& reader, const TileAccess& read, const TensorOp& writer) {
  if (writer.through_shared || writer.kind != TensorOp::Kind::store) return false;
  const auto from = indices_of_place(reader, read), to = indices_of_place(writer, writer.op.write);
  return from && to && std::equal(from->begin(), from->end(), to->begin(), to->end(), [](const IntExpr& a, const IntExpr& b) {
           return affine_of(a) == affine_of(b);
         });
}

}  // namespace

void check_memory(const TensorPlan& plan) {
  for (const TensorOp& reader : plan.ops) {
    for (std::size_t k = 0; k < reader.op.reads.size(); ++k) {
      const TileAccess& read = reader.op.reads[k];
      const Buffer& buffer = plan.buffer(read.buffer);
      if (buffer.memory == Memory::scratch) continue;
      const bool copied = reader.read_rings.contains(static_cast<int>(k));  // by another thread, ahead of time
      for (const TensorOp& writer : plan.ops) {
        if (writer.op.write.buffer != read.buffer || (!copied && reads_own_elements(reader, read, writer))) continue;
        user_error(
            "Kernel '{}' cannot use tensor cores: {} reads {} where other threads of the same kernel write it: compute it in a "
            "kernel of its own before.",
            plan.program->name, reader.op.name, buffer.name);
      }
    }
  }
}

}  // namespace nestor::nvptx
