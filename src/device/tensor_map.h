// Tensor maps: the descriptions of arguments that bulk tensor copies read. The driver encodes one when an argument's address,
// extents or strides change; until then a launch finds it again.
#pragma once

#include "device/cuda.h"
#include "device/size_formula.h"
#include "support/launch_recipe.h"
#include "support/tensor_view.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nestor {

/// The last maps of a parameter. Safe to use from several threads: they share it without locks, and one that finds an entry
/// being written does without.
class TensorMapCache {
 public:
  bool find(const TensorView& view, cuda::TensorMap& map) const;
  void store(const TensorView& view, const cuda::TensorMap& map);

 private:
  // A view has one place only: what was stored last is found.
  static constexpr int kPlaceBits = 3;
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> version{0};  // 0: empty; odd: being written
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<decltype(TensorView::words)>> view{};
    std::array<std::atomic<std::uint64_t>, std::extent_v<decltype(cuda::TensorMap::words)>> map{};
  };
  static std::size_t place(const TensorView& view);
  std::array<Entry, std::size_t{1} << kPlaceBits> entries_;
};

/// Makes the map of one argument, or of a tensor in the workspace, for each launch. Safe to use from several threads.
class TensorMapMaker {
 public:
  /// `param` is of kind tensor_map, for `argument`, or for a tensor in the workspace that `argument` describes; `sizes` names the
  /// values that make() is given. Throws UserError when the parameter contradicts itself or its argument, or when the driver or
  /// the device has no tensor maps.
  TensorMapMaker(const CudaDevice& device, const ArgumentSpec& argument, const KernelParam& param,
                 std::span<const std::string> sizes);

  bool makes(const KernelParam& param) const;

  /// The argument's map; `data`: its address, `strides`: its strides in elements, outermost first. Throws UserError for what
  /// bulk copies cannot do (support/tensor_view.h). Asks the driver only when the cache has no such map; allocates nothing, takes no lock.
  void make(const void* data, const std::int64_t* strides, std::span<const std::int64_t> sizes, cuda::TensorMap& map) const;

 private:
  void check_box() const;
  void check_strides() const;
  int reach(std::size_t dim) const;
  void check_order() const;
  TensorView view_of(const void* data, const std::int64_t* strides, std::span<const std::int64_t> sizes) const;
  void encode(TensorView view, cuda::TensorMap& map) const;

  const CudaDevice* device_;
  int argument_;
  std::string name_;
  int element_bytes_, type_;
  bool written_;
  std::vector<SizeFormula> shape_;
  std::vector<int> box_;
  int swizzle_;
  std::vector<int> element_strides_;  ///< one a dimension
  std::vector<int> order_;            ///< of dimensions, outermost first; the dense one is the last
  std::unique_ptr<TensorMapCache> cache_;
};

/// Throws UserError unless kernels with tensor maps can run: compute capability 9.0, and a driver that encodes maps.
void require_tensor_maps(const CudaDriver& driver, const CudaIdentity& device);

}  // namespace nestor
