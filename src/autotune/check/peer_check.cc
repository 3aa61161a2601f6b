// Block by block: bits first, then distances relative to the block.
#include "autotune/check/peer_check.h"

#include "autotune/oracle/error_sum.h"
#include "autotune/oracle/reference.h"
#include "db/devices/host_identity.h"
#include "support/debug.h"
#include "support/element_codec.h"
#include "support/error.h"
#include "support/threads/thread_pool.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace nestor {
namespace {

constexpr std::int64_t kBlock = 256;
constexpr std::int64_t kPart = kBlock * 1024;  ///< of a piece, compared by one thread
constexpr std::int64_t kMostBytes = 48 << 20, kPieces = 48;
constexpr std::size_t kMostSuspects = 16;
constexpr double kArbitrationCost = 2e9;

/// Elements of a block as numbers.
class Block {
 public:
  Block(const HostTensor& tensor, std::int64_t first, std::int64_t count) : count_(count) {
    for (std::int64_t k = 0; k < count; ++k) values_[k] = number(tensor, first + k);
  }
  double operator[](std::int64_t k) const { return values_[k]; }
  /// Root of the mean square of what is finite.
  double size() const {
    double sum = 0;
    for (std::int64_t k = 0; k < count_; ++k) sum += std::isfinite((*this)[k]) ? (*this)[k] * (*this)[k] : 0;
    return std::sqrt(sum / static_cast<double>(count_));
  }

 private:
  static double number(const HostTensor& tensor, std::int64_t linear) {
    if (tensor.type != ElementType::f16) return tensor.get(linear);
    std::uint16_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + 2 * linear, sizeof bits);
    return quick_half(bits);
  }
  std::array<double, kBlock> values_;
  std::int64_t count_;
};

std::vector<OutputPiece> choose_pieces(const HostTensor& output) {
  const std::int64_t total = output.elements();
  const auto width = static_cast<std::int64_t>(size_in_bytes(output.type));
  if (total * width <= kMostBytes) return {{output.name, 0, total}};
  const std::int64_t length = kMostBytes / kPieces / width / kBlock * kBlock;
  std::vector<OutputPiece> pieces;
  for (std::int64_t k = 0; k < kPieces; ++k) pieces.push_back({output.name, (total - length) / (kPieces - 1) * k, length});
  pieces.back().first = total - length;
  return pieces;
}

}  // namespace

PeerCheck::PeerCheck(const Nest& definition, Sizes sizes, std::map<std::string, double> scalars, std::uint64_t seed,
                     const std::vector<OracleSample>& samples)
    : definition_(definition), sizes_(std::move(sizes)), scalars_(std::move(scalars)), seed_(seed) {
  std::map<std::string, std::vector<const OracleSample*>> by_tensor;
  for (const OracleSample& sample : samples) by_tensor[sample.tensor].push_back(&sample);
  for (const auto& [name, found] : by_tensor) {
    const Tensor& tensor = definition.tensor(name);
    const HostTensor output{name, tensor.type, shape_at(tensor, sizes_), {}};
    if (static_cast<std::int64_t>(found.size()) >= output.elements()) continue;
    double squares = 0, spread = 0;
    for (const OracleSample* sample : found) squares += std::isfinite(sample->value) ? sample->value * sample->value : 0;
    const double around = std::sqrt(squares / static_cast<double>(found.size()));
    for (const OracleSample* sample : found) {
      const double allowed = 2 * (sample->bound + unit_roundoff(output.type) * std::fabs(sample->value));
      if (std::isfinite(allowed)) spread = std::max(spread, allowed / (std::fabs(sample->value) + around));
    }
    spread_[name] = spread;
    for (OutputPiece& piece : choose_pieces(output)) pieces_.push_back(std::move(piece));
  }
}

PeerCheck::~PeerCheck() = default;

std::vector<PeerCheck::Suspect> PeerCheck::suspects(const OutputPiece& piece, const HostTensor& mine,
                                                    const HostTensor& peer) const {
  const std::int64_t parts = (piece.count + kPart - 1) / kPart;
  std::vector<std::vector<Suspect>> by_part(static_cast<std::size_t>(parts));
  for_each(*pool_, by_part.size(), [&](std::size_t k) {
    const std::int64_t first = static_cast<std::int64_t>(k) * kPart;
    by_part[k] = suspects_of_part({piece.tensor, piece.first + first, std::min(kPart, piece.count - first)}, mine, peer);
  });
  std::vector<Suspect> found;
  for (const auto& part : by_part) found.insert(found.end(), part.begin(), part.end());
  keep_worst(found);
  return found;
}

std::vector<PeerCheck::Suspect> PeerCheck::suspects_of_part(const OutputPiece& part, const HostTensor& mine,
                                                            const HostTensor& peer) const {
  std::vector<Suspect> found;
  const double spread = spread_.at(part.tensor);
  const std::size_t width = size_in_bytes(mine.type);
  for (std::int64_t first = part.first; first < part.first + part.count; first += kBlock) {
    const std::int64_t count = std::min(kBlock, part.first + part.count - first);
    const std::size_t offset = static_cast<std::size_t>(first) * width;
    if (std::memcmp(mine.bytes.data() + offset, peer.bytes.data() + offset, static_cast<std::size_t>(count) * width) == 0)
      continue;
    const Block a(mine, first, count), b(peer, first, count);
    const double around = std::min(a.size(), b.size());
    for (std::int64_t k = 0; k < count; ++k) {
      if (a[k] == b[k] || (std::isnan(a[k]) && std::isnan(b[k]))) continue;
      const double allowed = spread * (std::min(std::fabs(a[k]), std::fabs(b[k])) + around);
      const double distance = std::fabs(a[k] - b[k]);
      if (distance <= allowed) continue;
      found.push_back({std::isfinite(distance) ? distance / allowed : std::numeric_limits<double>::infinity(), first + k});
    }
  }
  keep_worst(found);
  return found;
}

void PeerCheck::keep_worst(std::vector<Suspect>& found) {
  const std::size_t most = std::min(found.size(), kMostSuspects);
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(most), found.end(),
                    [](const Suspect& x, const Suspect& y) { return x.score > y.score; });
  found.resize(most);
}

Reference& PeerCheck::reference() {
  if (!reference_) {
    const DebugTimer timer("inputs for what two kernels differ in");
    inputs_ = make_inputs(definition_, sizes_, seed_);
    reference_ = std::make_unique<Reference>(definition_, sizes_, scalars_, inputs_);
  }
  return *reference_;
}

std::string PeerCheck::compare(const HostTensors& results) {
  const DebugTimer timer("comparing with the last kernel");
  if (!pool_) pool_ = std::make_unique<ThreadPool>(host_threads());
  for (const OutputPiece& piece : pieces_) {
    if (!has_peer_) break;
    const HostTensor& mine = results.at(piece.tensor);
    for (const Suspect& suspect : suspects(piece, mine, peer_.at(piece.tensor))) {
      const auto exact = reference().bounded_value(piece.tensor, suspect.linear, kArbitrationCost + reference().spent());
      if (!exact) continue;
      const OracleSample sample{piece.tensor, suspect.linear, exact->value, exact->bound};
      if (error_fraction(mine, sample) > 1) return describe_error(mine, sample);
    }
  }
  keep(results);
  return "";
}

void PeerCheck::keep(const HostTensors& results) {
  for (const OutputPiece& piece : pieces_) {
    const HostTensor& from = results.at(piece.tensor);
    HostTensor& to = peer_.try_emplace(piece.tensor, HostTensor{from.name, from.type, from.shape, ByteBuffer(from.bytes.size())})
                         .first->second;
    const std::size_t width = size_in_bytes(from.type), offset = static_cast<std::size_t>(piece.first) * width;
    std::memcpy(to.bytes.data() + offset, from.bytes.data() + offset, static_cast<std::size_t>(piece.count) * width);
  }
  has_peer_ = true;
}

}  // namespace nestor
