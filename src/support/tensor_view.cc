// The rules of bulk tensor copies for addresses, extents and strides.
#include "support/tensor_view.h"

#include "support/error.h"

namespace nestor {
namespace {

constexpr std::int64_t kLargestExtent = (std::int64_t{1} << 32) - 1;
constexpr std::int64_t kStrideLimit = std::int64_t{1} << 40;  // bytes

std::uint64_t byte_stride(const TensorPlace& tensor, std::size_t dim) {
  const std::int64_t stride = tensor.strides[dim], most = kStrideLimit / tensor.element_bytes - 1;
  if (stride < 0 || stride > most)
    user_error("tensor \"{}\" is copied by tensor maps: its stride {} must be 0 to {} elements (less than 2^40 bytes), not {}",
               tensor.name, dim, most, stride);
  if (stride * tensor.element_bytes % kTensorMapAlignment != 0)
    user_error("tensor \"{}\" is copied by tensor maps: its stride {} must be a multiple of {} elements ({} bytes), not {}",
               tensor.name, dim, kTensorMapAlignment / tensor.element_bytes, kTensorMapAlignment, stride);
  return static_cast<std::uint64_t>(stride * tensor.element_bytes);
}

}  // namespace

TensorView tensor_view(const TensorPlace& tensor, std::span<const int> order) {
  const std::size_t rank = tensor.extents.size();
  TensorView view;
  view.address() = tensor.address;
  if (tensor.address % kTensorMapAlignment != 0)
    user_error("tensor \"{}\" is copied by tensor maps: its address must be a multiple of {} bytes, but {:#x} is not",
               tensor.name, kTensorMapAlignment, tensor.address);
  // Innermost first. A dimension of one index is never stepped along: it takes the stride of the dimension inside it.
  std::uint64_t inner = 0;
  for (std::size_t k = 0; k < rank; ++k) {
    const auto dim = static_cast<std::size_t>(order[rank - 1 - k]);
    const std::int64_t extent = tensor.extents[dim];
    if (extent < 1 || extent > kLargestExtent)
      user_error("tensor \"{}\" is copied by tensor maps: its extent {} must be 1 to {}, not {}", tensor.name, dim,
                 kLargestExtent, extent);
    view.extents()[k] = static_cast<std::uint64_t>(extent);
    if (k == 0) {
      if (extent > 1 && tensor.strides[dim] != 1)
        user_error("tensor \"{}\" is copied by tensor maps: its last stride must be 1, not {}", tensor.name, tensor.strides[dim]);
      const std::int64_t bytes = extent * tensor.element_bytes;
      if (tensor.written && bytes % kTensorMapAlignment != 0)
        user_error("tensor \"{}\" is written by tensor maps: its extent {} must be a multiple of {} elements ({} bytes), not {}",
                   tensor.name, dim, kTensorMapAlignment / tensor.element_bytes, kTensorMapAlignment, extent);
      inner = static_cast<std::uint64_t>((bytes + kTensorMapAlignment - 1) / kTensorMapAlignment * kTensorMapAlignment);
      continue;
    }
    if (extent > 1) inner = byte_stride(tensor, dim);
    view.byte_strides()[k - 1] = inner;
  }
  return view;
}

}  // namespace nestor
