// TensorView: an argument as a tensor map describes it, and which arguments bulk tensor copies can take at all.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace nestor {

/// Bytes that addresses and strides of what tensor maps describe are multiples of.
inline constexpr std::int64_t kTensorMapAlignment = 16;

/// An argument as the driver is told of it: innermost dimension first, unused entries 0. What makes two maps of a parameter
/// differ.
struct TensorView {
  static constexpr std::size_t kRank = 5;
  std::array<std::uint64_t, 2 * kRank> words{};  ///< address, extents, byte strides of all dimensions but the innermost
  std::uint64_t& address() { return words[0]; }
  std::uint64_t* extents() { return &words[1]; }
  std::uint64_t* byte_strides() { return &words[1 + kRank]; }
};

/// Where an argument lies at a launch.
struct TensorPlace {
  const std::string& name;
  int element_bytes;
  std::uint64_t address;
  std::span<const std::int64_t> extents;  ///< at most TensorView::kRank
  const std::int64_t* strides;            ///< elements, one an extent, outermost first
  bool written = false;                   ///< copies store to it
};

/// `order`: the dimensions, outermost first. Throws UserError, naming the argument, for what bulk copies cannot do: an address or a
/// stride (of a dimension with more than one index) that is no multiple of 16 bytes, strides of 2^40 bytes or more, a last stride
/// other than 1, extents outside 1 to 2^32 - 1; of what is written, rows that are no multiple of 16 bytes: hardware (seen on an H200)
/// writes 16 bytes at a time, beyond the end of a row as well. Allocates nothing otherwise.
TensorView tensor_view(const TensorPlace& tensor, std::span<const int> order);

}  // namespace nestor
