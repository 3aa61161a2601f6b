// LaunchPlan: a launch recipe made ready to check and prepare launches without allocating.
#pragma once

#include "device/size_formula.h"
#include "nestor/runtime.h"
#include "support/launch_recipe.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// A checked launch, as a device takes it. Lives on the stack of launch().
struct PreparedLaunch {
  std::array<void*, LaunchLimits::kTensors> pointers;
  std::array<std::uint64_t, LaunchLimits::kTensors> bytes;   ///< from each pointer to the end of its last element; 0: no element
  std::array<std::int64_t, LaunchLimits::kStrides> strides;  ///< all tensors' in turn
  std::array<std::int64_t, LaunchLimits::kSizes> sizes;      ///< recipe order, then fixed sizes that are no parameters
  std::array<double, LaunchLimits::kScalars> scalars;        ///< recipe order
  std::int64_t workspace_bytes = 0;
};

class LaunchPlan {
 public:
  /// `title` names the kernel in messages. Throws UserError when the recipe contradicts itself or is too large.
  LaunchPlan(const LaunchRecipe& recipe, std::string title);

  /// Checks everything that Kernel::launch promises to check; throws UserError naming the first thing wrong.
  void prepare(std::span<const TensorArg> tensors, std::span<const NamedSize> sizes, std::span<const NamedScalar> scalars,
               PreparedLaunch& out) const;

  const std::string& title() const { return title_; }
  std::size_t tensor_count() const { return tensors_.size(); }
  const std::string& tensor_name(std::size_t tensor) const { return tensors_[tensor].name; }

 private:
  struct Tensor {
    std::string name;
    ElementType type;
    bool output;
    std::vector<SizeFormula> shape;
  };
  struct Scalar {
    std::string name;
    ElementType type;
    double default_value, minimum, maximum;
  };
  struct Fixed {
    std::size_t size;
    std::int64_t value;
  };
  /// First and last byte that a tensor's elements touch; empty when it has no element.
  struct Extent {
    std::uintptr_t begin = 0, end = 0;
  };

  void fill_sizes(std::span<const NamedSize> given, PreparedLaunch& out) const;
  void fill_scalars(std::span<const NamedScalar> given, PreparedLaunch& out) const;
  Extent check_tensor(const Tensor& tensor, const TensorArg& arg, std::span<const std::int64_t> sizes,
                      std::int64_t* strides) const;
  void check_strides(const Tensor& tensor, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) const;
  void check_overlaps(std::span<const Extent> extents, const PreparedLaunch& launch) const;
  /// Extents and strides in bytes of a tensor of the launch along its dims of several elements.
  std::vector<std::pair<std::int64_t, std::int64_t>> dims_of(std::size_t tensor, const PreparedLaunch& launch) const;
  /// Do all elements of both tensors lie in columns of their own, of rows that lie equally far apart?
  bool lie_in_own_columns(std::size_t a, std::size_t b, std::span<const Extent> extents, const PreparedLaunch& launch) const;

  std::string title_;
  std::vector<std::string> names_;  ///< sizes of the recipe, then fixed sizes that are no parameters
  std::vector<Fixed> fixed_;
  std::vector<Tensor> tensors_;
  std::vector<Scalar> scalars_;
  std::vector<CompiledConstraint> constraints_;
  SizeFormula workspace_;
};

}  // namespace nestor
