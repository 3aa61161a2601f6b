// Places in shared memory: what lives at the same time, and within the block's bytes.
#include "codegen/gpu/simt/proof/block_proof.h"

#include <map>

namespace nestor::nvptx {
namespace {

/// Bytes that something has while the ops first .. last of the tree run.
struct ByteSpan {
  std::string what;
  std::int64_t low = 0, bytes = 0;
  int first = 1 << 30, last = -1;
};

class PlaceProver {
 public:
  explicit PlaceProver(BlockProof& proof) : proof_(proof), plan_(proof.plan) {
    for (int k = 0; k < static_cast<int>(proof.sites.size()); ++k) positions_[proof.sites[k].op] = k;
  }

  void run() {
    buffers();
    of_threads();
    for (int k = 0; k < static_cast<int>(plan_.ops.size()); ++k) of_op(k);
    exchange();
    for (std::size_t a = 0; a < places_.size(); ++a) {
      const ByteSpan& place = places_[a];
      if (place.low < 0 || place.low % 16 != 0 || place.low + place.bytes > plan_.shared_bytes)
        proof_.fail("{} ({} bytes from {}) is not within the block's {} bytes of shared memory", place.what, place.bytes,
                    place.low, plan_.shared_bytes);
      for (std::size_t b = a + 1; b < places_.size(); ++b) apart(place, places_[b]);
    }
  }

 private:
  /// The ops of the outermost loop around an op live together: what one iteration leaves the next may read.
  void live(ByteSpan& place, int op) const {
    const auto& around = proof_.site(op).around;
    const auto loop = std::find_if(around.begin(), around.end(), [](const BlockNode* node) { return is_loop(*node); });
    for (const OpSite& site : proof_.sites) {
      const bool together = site.op == op || (loop != around.end() &&
                                              std::find(site.around.begin(), site.around.end(), *loop) != site.around.end());
      if (!together) continue;
      place.first = std::min(place.first, positions_.at(site.op));
      place.last = std::max(place.last, positions_.at(site.op));
    }
  }
  void always(ByteSpan& place) const {
    place.first = 0;
    place.last = static_cast<int>(proof_.sites.size());
  }

  void buffers() {
    for (const auto& [buffer, placement] : plan_.placements) {
      if (placement.kind != Placement::Kind::shared) continue;
      ByteSpan place{plan_.buffer(buffer).name, placement.offset, placement.bytes};
      for (const OpSite& site : proof_.sites) {
        const TileOp& op = proof_.op(site.op).op;
        const bool touches =
            op.write.buffer == buffer ||
            std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return read.buffer == buffer; });
        if (touches) live(place, site.op);
      }
      strides(buffer, placement);
      places_.push_back(place);
    }
  }

  /// No two elements at one address, all within the bytes.
  void strides(int id, const Placement& place) {
    const Buffer& buffer = plan_.buffer(id);
    const auto bytes = static_cast<std::int64_t>(size_in_bytes(buffer.type));
    std::int64_t below = 1;  // elements from the first to the last one of the indices further in
    if (place.strides.size() != buffer.extents.size()) return proof_.fail("{} has no stride for each index", buffer.name);
    for (std::size_t k = buffer.extents.size(); k-- > 0;) {
      const auto extent = buffer.extents[k].as_constant();
      if (!extent) return proof_.fail("{} in shared memory has no constant size", buffer.name);
      if (*extent > 1 && place.strides[k] < below) return proof_.fail("elements of {} share an address", buffer.name);
      below += std::max<std::int64_t>(*extent - 1, 0) * place.strides[k];
    }
    if (below * bytes > place.bytes)
      proof_.fail("{} has {} bytes of shared memory and needs {}", buffer.name, place.bytes, below * bytes);
  }

  /// Slots and work tiles to come, each thread's own.
  void of_threads() {
    for (const auto& [buffer, place] : plan_.placements) {
      if (place.kind != Placement::Kind::registers) continue;
      const auto bytes = static_cast<std::int64_t>(size_in_bytes(plan_.buffer(buffer).type));
      const std::int64_t slots = std::int64_t{place.row_slots} * place.column_slots * bytes;
      if (place.outside) {
        places_.push_back(
            {"threads' own " + plan_.buffer(buffer).name, place.outside_offset, round_up(slots, 16) * plan_.threads});
        always(places_.back());
      }
      if (place.stages > 0) {
        if (place.outside || (place.piece != 4 && place.piece != 16) || place.piece % bytes != 0)
          proof_.fail("{} is copied ahead by pieces of {} bytes", plan_.buffer(buffer).name, place.piece);
        places_.push_back({"work tiles to come of " + plan_.buffer(buffer).name, place.stages_offset,
                           round_up(slots, place.piece) * plan_.threads * place.stages});
        always(places_.back());
      }
    }
  }

  void of_op(int k) {
    const BlockOp& op = proof_.op(k);
    // What an op puts there it reads itself, and nobody later.
    const auto add = [&](const std::string& what, std::int64_t offset, std::int64_t bytes) {
      places_.push_back({what + " of " + op.op.name, offset, bytes, positions_.at(k), positions_.at(k)});
    };
    if (op.product && !op.product->a_direct) add("first operand", op.product->a_offset, op.product->a_bytes(op.layout));
    if (op.product && !op.product->b_direct) add("second operand", op.product->b_offset, op.product->b_bytes(op.layout));
    const std::int64_t rows = op.unroll_rows ? slots_of(op, op.row_bound().value_or(1)) : 1;
    const std::int64_t word = op.fused ? 8 : 4;
    if (op.prefix_crosses_warps())
      add("sums of warps", op.partials_offset, op.layout.groups * op.prefix_chunks() * (op.layout.lanes / 32) * 4);
    if (op.crosses_warps() && (plan_.cluster == 1 || op.gathers)) {
      const std::int64_t warps = op.gathers ? plan_.threads / 32 : op.layout.threads() / 32;
      add("partial results", op.partials_offset, rows * warps * word);
    } else if (!op.product && op.crosses_groups() && !op.crosses_warps()) {
      const std::int64_t parts = op.layout.lanes <= 32 ? plan_.threads / 32 : op.layout.groups;
      add("partial sums", op.partials_offset, parts * round_up(op.column_bound().value_or(1), kPartialsPad) * 4);
    }
  }

  /// Two slots behind their barriers, each as large as any exchange needs.
  void exchange() {
    std::int64_t most = 0;
    for (const BlockOp& op : plan_.ops) {
      if (plan_.cluster == 1 || !op.crosses_warps()) continue;
      const std::int64_t rows = op.unroll_rows ? slots_of(op, op.row_bound().value_or(1)) : 1;
      const std::int64_t senders = op.gathers ? plan_.cluster : op.layout.threads() / 32;
      most = std::max(most, rows * senders * (op.fused ? 8 : 4));
    }
    if (most == 0) return;
    if (plan_.exchange_bytes < most || plan_.exchange_bytes % 16 != 0)
      proof_.fail("{} bytes for each exchange of the cluster's blocks, where {} are needed", plan_.exchange_bytes, most);
    places_.push_back(
        {"exchanges of the cluster", plan_.exchange_offset, kExchangeBarriers + kExchangeSlots * plan_.exchange_bytes});
    always(places_.back());
  }

  void apart(const ByteSpan& a, const ByteSpan& b) {
    const bool overlap = a.low < b.low + b.bytes && b.low < a.low + a.bytes;
    if (overlap && a.first <= b.last && b.first <= a.last)
      proof_.fail("{} and {} lie over each other in shared memory while both live", a.what, b.what);
  }

  BlockProof& proof_;
  const BlockPlan& plan_;
  std::map<int, int> positions_;  ///< of ops in the tree
  std::vector<ByteSpan> places_;
};

}  // namespace

void prove_places(BlockProof& proof) { PlaceProver(proof).run(); }

}  // namespace nestor::nvptx
