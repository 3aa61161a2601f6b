// Checks what the driver would refuse of a recipe without saying why, then has it encode the map.
#include "device/tensor_map.h"

#include "support/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace nestor {
namespace {

constexpr int kLargestBox = 256, kLargestStride = 8;
constexpr int kFirstArchitecture = 90;

int driver_type(const ArgumentSpec& argument) {
  switch (argument.type) {
    case ElementType::f16:
      return cuda::kTensorMapF16;
    case ElementType::bf16:
      return cuda::kTensorMapBf16;
    case ElementType::f32:
      return cuda::kTensorMapF32;
    default:
      user_error("launch recipe: \"{}\" holds {}, but tensor maps are for f16, bf16 and f32", argument.name,
                 to_string(argument.type));
  }
}

// CU_TENSOR_MAP_SWIZZLE_*; -1: no swizzle has that span.
int driver_swizzle(int bytes) {
  constexpr std::array kSpans{0, 32, 64, 128};
  const auto found = std::find(kSpans.begin(), kSpans.end(), bytes);
  return found == kSpans.end() ? -1 : static_cast<int>(found - kSpans.begin());
}

}  // namespace

std::size_t TensorMapCache::place(const TensorView& view) {
  std::uint64_t sum = 0, factor = 1;
  for (const std::uint64_t word : view.words) sum += word * std::exchange(factor, factor + 2);
  return sum * 0x9e3779b97f4a7c15 >> (64 - kPlaceBits);  // 2^64 by the golden ratio: neighbours lie far apart
}

bool TensorMapCache::find(const TensorView& view, cuda::TensorMap& map) const {
  const Entry& entry = entries_[place(view)];
  const std::uint64_t version = entry.version.load(std::memory_order_acquire);
  if (version == 0 || version % 2 != 0) return false;
  for (std::size_t k = 0; k < entry.view.size(); ++k) {
    if (entry.view[k].load(std::memory_order_relaxed) != view.words[k]) return false;
  }
  for (std::size_t k = 0; k < entry.map.size(); ++k) map.words[k] = entry.map[k].load(std::memory_order_relaxed);
  // Nothing of the above was read after this: with the version unchanged, it is all of one store().
  std::atomic_thread_fence(std::memory_order_acquire);
  return entry.version.load(std::memory_order_relaxed) == version;
}

void TensorMapCache::store(const TensorView& view, const cuda::TensorMap& map) {
  Entry& entry = entries_[place(view)];
  std::uint64_t version = entry.version.load(std::memory_order_relaxed);
  if (version % 2 != 0 || !entry.version.compare_exchange_strong(version, version + 1, std::memory_order_acquire)) return;
  std::atomic_thread_fence(std::memory_order_release);  // who sees a word of this sees the odd version, too
  for (std::size_t k = 0; k < entry.view.size(); ++k) entry.view[k].store(view.words[k], std::memory_order_relaxed);
  for (std::size_t k = 0; k < entry.map.size(); ++k) entry.map[k].store(map.words[k], std::memory_order_relaxed);
  entry.version.store(version + 2, std::memory_order_release);
}

void require_tensor_maps(const CudaDriver& driver, const CudaIdentity& device) {
  if (device.sm < kFirstArchitecture)
    user_error("the kernel copies tiles by tensor maps, which need sm_{} or newer; {} is {}", kFirstArchitecture, device.name,
               device.arch());
  if (driver.api().tensor_map_encode_tiled == nullptr)
    user_error(
        "the kernel copies tiles by tensor maps, which this CUDA driver ({}.{}) cannot encode: it lacks the entry point "
        "cuTensorMapEncodeTiled, which drivers of CUDA 12.0 and newer have",
        driver.version() / 1000, driver.version() % 1000 / 10);
}

TensorMapMaker::TensorMapMaker(const CudaDevice& device, const ArgumentSpec& argument, const KernelParam& param,
                               std::span<const std::string> sizes)
    : device_(&device),
      argument_(param.index),
      name_(argument.name),
      element_bytes_(static_cast<int>(size_in_bytes(argument.type))),
      type_(driver_type(argument)),
      written_(argument.output),
      box_(param.box),
      swizzle_(param.swizzle),
      element_strides_(param.element_strides),
      order_(param.order) {
  for (const IntExpr& extent : argument.shape) shape_.emplace_back(extent, sizes);
  if (order_.empty()) {
    order_.resize(shape_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  if (element_strides_.empty()) element_strides_.assign(shape_.size(), 1);
  check_box();
  check_strides();
  check_order();
  require_tensor_maps(device.driver(), device.identity());
  cache_ = std::make_unique<TensorMapCache>();
}

void TensorMapMaker::check_box() const {
  const std::size_t rank = shape_.size();
  if (rank < 1 || rank > TensorView::kRank)
    user_error("launch recipe: \"{}\" has {} indices; a tensor map has 1 to {}", name_, rank, TensorView::kRank);
  if (box_.size() != rank)
    user_error("launch recipe: the box of \"{}\" has {} dimensions; the tensor has {}", name_, box_.size(), rank);
  for (const int extent : box_) {
    if (extent < 1 || extent > kLargestBox)
      user_error("launch recipe: the box of \"{}\" has {} elements along a dimension; 1 to {} are possible", name_, extent,
                 kLargestBox);
  }
  if (driver_swizzle(swizzle_) < 0)
    user_error("launch recipe: the swizzle of \"{}\" spans {} bytes; 0, 32, 64 and 128 are possible", name_, swizzle_);
  const int bytes = box_.back() * element_bytes_;
  if (bytes % kTensorMapAlignment != 0)
    user_error("launch recipe: the box of \"{}\" has {} dense bytes; they must be a multiple of {}", name_, bytes,
               kTensorMapAlignment);
  if (swizzle_ != 0 && bytes > swizzle_)
    user_error("launch recipe: the box of \"{}\" has {} dense bytes, more than its swizzle of {}", name_, bytes, swizzle_);
}

void TensorMapMaker::check_strides() const {
  if (element_strides_.size() != box_.size() || element_strides_.back() != 1)
    user_error("launch recipe: the element strides [{}] of \"{}\" must be one a dimension, 1 for the last",
               fmt::join(element_strides_, ", "), name_);
  for (std::size_t k = 0; k < box_.size(); ++k) {
    if (element_strides_[k] < 1 || element_strides_[k] > kLargestStride || reach(k) > kLargestBox)
      user_error(
          "launch recipe: the box of \"{}\" has {} elements with stride {} along a dimension; strides are 1 to {}, "
          "over {} elements at most",
          name_, box_[k], element_strides_[k], kLargestStride, kLargestBox);
  }
}

/// Elements of the argument between the first and the last of a box, both included.
int TensorMapMaker::reach(std::size_t dim) const { return (box_[dim] - 1) * element_strides_[dim] + 1; }

void TensorMapMaker::check_order() const {
  std::vector<int> sorted = order_, all(shape_.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all || order_.back() != all.back())
    user_error("launch recipe: the order [{}] of \"{}\" must name its dimensions 0 to {} once each, the last one last",
               fmt::join(order_, ", "), name_, all.back());
}

bool TensorMapMaker::makes(const KernelParam& param) const {
  const bool same_order = param.order.empty() ? std::is_sorted(order_.begin(), order_.end()) : param.order == order_;
  // Tensors in the workspace have no number, but names of their own.
  const bool same_tensor = param.index == argument_ && (argument_ >= 0 || param.name == name_);
  const bool plain = std::all_of(element_strides_.begin(), element_strides_.end(), [](int stride) { return stride == 1; });
  const bool same_strides = param.element_strides.empty() ? plain : param.element_strides == element_strides_;
  return same_tensor && param.box == box_ && param.swizzle == swizzle_ && same_order && same_strides;
}

void TensorMapMaker::make(const void* data, const std::int64_t* strides, std::span<const std::int64_t> sizes,
                          cuda::TensorMap& map) const {
  const TensorView view = view_of(data, strides, sizes);
  if (cache_->find(view, map)) return;
  encode(view, map);
  cache_->store(view, map);
}

TensorView TensorMapMaker::view_of(const void* data, const std::int64_t* strides, std::span<const std::int64_t> sizes) const {
  std::array<std::int64_t, TensorView::kRank> extents;
  for (std::size_t k = 0; k < shape_.size(); ++k) extents[k] = shape_[k].evaluate(sizes);
  return tensor_view(
      {name_, element_bytes_, reinterpret_cast<std::uint64_t>(data), {extents.data(), shape_.size()}, strides, written_}, order_);
}

void TensorMapMaker::encode(TensorView view, cuda::TensorMap& map) const {
  std::array<unsigned, TensorView::kRank> box{}, element_strides;
  element_strides.fill(1);
  for (std::size_t k = 0; k < order_.size(); ++k) {
    const auto dim = static_cast<std::size_t>(order_[order_.size() - 1 - k]);
    box[k] = static_cast<unsigned>(reach(dim));
    element_strides[k] = static_cast<unsigned>(element_strides_[dim]);
  }
  const CudaDriver& driver = device_->driver();
  const cuda::Result result = driver.api().tensor_map_encode_tiled(
      &map, type_, static_cast<unsigned>(box_.size()), reinterpret_cast<void*>(view.address()), view.extents(),
      view.byte_strides(), box.data(), element_strides.data(), cuda::kTensorMapNoInterleave, driver_swizzle(swizzle_),
      cuda::kTensorMapL2Promotion256, cuda::kTensorMapFillZero);
  if (result != cuda::kSuccess) driver.fail(result, "cuTensorMapEncodeTiled", {}, fmt::format("for tensor \"{}\"", name_));
}

}  // namespace nestor
