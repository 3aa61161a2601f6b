// Waits for products, and releases of the tiles that ended products held.
#include "codegen/gpu/mma/pipeline/in_flight.h"

namespace nestor::nvptx {

std::set<int> HeldTiles::of(int op) const {
  const TensorOp& product = plan_.ops[static_cast<std::size_t>(op)];
  std::set<int> circular_buffers;
  for (const int ring : {product.a_ring, product.b_ring}) {
    if (ring >= 0 && plan_.circular_buffers[static_cast<std::size_t>(ring)].streamed) circular_buffers.insert(ring);
  }
  return circular_buffers;
}

bool HeldTiles::take(int ring) {
  if (left_[ring] > 0) return false;
  left_[ring] = static_cast<int>(readers(ring).size());
  return true;
}

std::vector<int> HeldTiles::readers(int ring) const {
  std::vector<int> ops;
  for (int k = 0; k < static_cast<int>(plan_.ops.size()); ++k) {
    if (plan_.ops[static_cast<std::size_t>(k)].kind == TensorOp::Kind::product && of(k).count(ring) != 0) ops.push_back(k);
  }
  return ops;
}

void InFlight::settle(int buffer) {
  for (std::size_t k = ops_.size(); k-- > 0;) {
    if (plan_.ops[static_cast<std::size_t>(ops_[k])].op.write.buffer == buffer) return end(k + 1);
  }
}

void InFlight::end(std::size_t count) {
  if (count == 0) return;
  out_.push_back(event_node(Event::Kind::wait_products, -1, -1, static_cast<int>(ops_.size() - count)));
  for (std::size_t k = 0; k < count; ++k) {
    for (const int ring : held_.of(ops_[k])) {
      if (held_.leave(ring)) out_.push_back(event_node(Event::Kind::release, ops_[k], ring));
    }
  }
  ops_.erase(ops_.begin(), ops_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace nestor::nvptx
