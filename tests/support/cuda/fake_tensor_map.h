// Tensor maps of the fake driver: what they were made of, checked as the CUDA driver API reference says.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace nestor::testing {

/// What a fake CUtensorMap holds: the arguments of cuTensorMapEncodeTiled, in its order (innermost dimension first).
struct FakeTensorMap {
  std::uint64_t address = 0;
  std::array<std::uint64_t, 4> byte_strides{};  ///< of all dimensions but the innermost
  std::array<std::uint32_t, 5> extents{};
  std::array<std::uint16_t, 5> box{};
  std::array<std::uint8_t, 5> element_strides{};
  std::uint8_t type = 0, rank = 0, swizzle = 0, l2_promotion = 0;
  std::uint8_t magic = kMagic;
  static constexpr std::uint8_t kMagic = 0x7a;
  friend bool operator==(const FakeTensorMap&, const FakeTensorMap&) = default;
};
static_assert(sizeof(FakeTensorMap) <= 128);

/// True when the driver would take these. `type`, `swizzle`, ...: numbers of the driver's enumerations; no interleave.
inline bool encode_fake_tensor_map(int type, unsigned rank, std::uint64_t address, const std::uint64_t* extents,
                                   const std::uint64_t* byte_strides, const unsigned* box, const unsigned* element_strides,
                                   int swizzle, int l2_promotion, FakeTensorMap& out) {
  constexpr std::array kBytes{1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // by CUtensorMapDataType
  constexpr std::array kSpans{0, 32, 64, 128};                         // by CUtensorMapSwizzle
  if (type < 0 || type >= static_cast<int>(kBytes.size()) || rank < 1 || rank > 5 || address % 16 != 0) return false;
  if (swizzle < 0 || swizzle > 3 || l2_promotion < 0 || l2_promotion > 3) return false;
  for (unsigned d = 0; d < rank; ++d) {
    if (extents[d] < 1 || extents[d] >> 32 != 0 || box[d] < 1 || box[d] > 256) return false;
    if (element_strides[d] < 1 || element_strides[d] > 8) return false;
    if (d > 0 && (byte_strides[d - 1] % 16 != 0 || byte_strides[d - 1] >> 40 != 0)) return false;
  }
  const unsigned inner = box[0] * static_cast<unsigned>(kBytes[static_cast<std::size_t>(type)]);
  const auto span = static_cast<unsigned>(kSpans[static_cast<std::size_t>(swizzle)]);
  if (inner % 16 != 0 || (swizzle != 0 && inner > span)) return false;
  out = {};
  out.address = address;
  out.type = static_cast<std::uint8_t>(type);
  out.rank = static_cast<std::uint8_t>(rank);
  out.swizzle = static_cast<std::uint8_t>(swizzle);
  out.l2_promotion = static_cast<std::uint8_t>(l2_promotion);
  std::copy_n(extents, rank, out.extents.begin());
  std::copy_n(box, rank, out.box.begin());
  std::copy_n(element_strides, rank, out.element_strides.begin());
  std::copy_n(byte_strides, rank - 1, out.byte_strides.begin());
  return true;
}

}  // namespace nestor::testing
