// Memory that ops of one kernel write and read: each thread reads what it has written itself.
#include "codegen/gpu/mma/proof/point_sets.h"
#include "codegen/proof/model/outcome.h"

#include <isl/map.h>

#include <optional>

namespace nestor::nvptx {
namespace {

class MemoryChecker {
 public:
  explicit MemoryChecker(TensorProof& proof) : proof_(proof) {}

  void run() {
    const int count = static_cast<int>(proof_.plan.ops.size());
    for (int r = 0; r < count; ++r) {
      const TensorOp& reader = proof_.op(r);
      for (std::size_t k = 0; k < reader.op.reads.size(); ++k) {
        const int buffer = reader.op.reads[k].buffer;
        // What circular buffers hold is refused by prove_operands.
        if (proof_.plan.fragments.contains(buffer)) continue;
        for (int w = 0; w < count; ++w) {
          if (proof_.op(w).op.write.buffer == buffer) check(r, reader.op.reads[k], w);
        }
      }
    }
  }

 private:
  /// A thread of its own for each row and column.
  static bool is_shared_out(const TensorOp& op) {
    return op.row >= 0 && op.column >= 0 && op.kind != TensorOp::Kind::product && !op.through_shared;
  }

  void check(int reader, const TileAccess& read, int writer) {
    if (!points_) points_.emplace(proof_);
    const isl::map reads = points_->reached(reader, points_->of(reader).points, read),
                   writes = points_->reached(writer, points_->of(writer).points, proof_.op(writer).op.write);
    isl::map meetings = reads.apply_range(writes.reverse());
    if (is_shared_out(proof_.op(reader)) && is_shared_out(proof_.op(writer)))
      meetings = meetings.subtract(in_one_thread(meetings));
    if (!proof::is_empty(meetings))
      proof_.fail("{} reads {} where other threads of the same kernel write it, in {}", proof_.op(reader).op.name,
                  proof_.plan.buffer(read.buffer).name, proof_.op(writer).op.name);
  }

  /// The pairs of points in the same place, row and column.
  static isl::map in_one_thread(isl::map pairs) {
    for (const int at : {kPlace, kTileRow, kTileColumn})
      pairs = isl::manage(isl_map_equate(pairs.release(), isl_dim_in, at, isl_dim_out, at));
    return pairs;
  }

  TensorProof& proof_;
  std::optional<PointReader> points_;  ///< few kernels have such reads
};

}  // namespace

void prove_memory(TensorProof& proof) {
  try {
    MemoryChecker(proof).run();
  } catch (const proof::OpenObligation& open) {
    proof.fail("reads of memory that the kernel writes: {}", open.what());
  }
}

}  // namespace nestor::nvptx
