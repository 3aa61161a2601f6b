// RecipeLauncher: a launch recipe's kernels and formulas made ready, so that a launch allocates nothing.
#pragma once

#include "device/cuda_module.h"
#include "device/size_formula.h"
#include "device/tensor_map.h"
#include "device/work_counter.h"
#include "support/launch_recipe.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nestor {

/// Values of one launch, in the recipe's order. They need to live only until launch() returns.
struct LaunchValues {
  std::span<void* const> pointers;        ///< device address of each argument's first element
  std::span<const std::int64_t> strides;  ///< all arguments' in turn, one entry an index, in elements
  std::span<const std::int64_t> sizes;    ///< as RecipeLauncher::size_names()
  std::span<const double> scalars;        ///< converted to each scalar's own type
  void* workspace = nullptr;              ///< workspace_bytes(sizes) bytes; 256-byte aligned
};

/// A module's kernels with the recipe that says how to launch them. Safe to use from several threads.
class RecipeLauncher {
 public:
  static constexpr std::size_t kValues = 64;   ///< sizes, loops and the number of multiprocessors
  static constexpr std::size_t kParams = 128;  ///< of one kernel
  static constexpr std::size_t kMaps = 32;     ///< different tensor maps of all kernels

  /// Looks up the kernels and prepares them (shared memory, clusters). Throws UserError when the recipe contradicts itself or
  /// asks for what the device has not, CudaError when the module lacks a kernel.
  RecipeLauncher(std::shared_ptr<const CudaModule> module, const LaunchRecipe& recipe);

  const CudaModule& module() const { return *module_; }
  const std::vector<std::string>& size_names() const { return sizes_; }
  /// Throws UserError when it does not fit or is negative.
  std::int64_t workspace_bytes(std::span<const std::int64_t> sizes) const;

  /// Launches all kernels in `stream` (nullptr: the legacy default stream) and returns at once. A grid of 0 skips its kernel.
  /// Throws UserError, before anything is launched, for a grid that is negative or too large for the device or not a multiple
  /// of its cluster, and for an argument that a kernel about to be launched needs a tensor map of (TensorMapMaker::make) and
  /// that cannot have one. Neither allocates nor waits; can be captured into a graph.
  void launch(const LaunchValues& values, cuda::Stream stream) const;

  /// Each kernel of the recipe once, in order.
  std::span<const CudaFunction> functions() const { return functions_; }

 private:
  struct Param {
    KernelParam::Kind kind;
    ElementType type = ElementType::f32;  // scalar
    std::size_t index = 0;                // into pointers, strides, values, scalars or maps
  };
  struct Step {
    bool loop = false;
    // kernel
    CudaFunction function;
    std::vector<SizeFormula> grid;
    std::array<unsigned, 3> block{}, cluster{};
    unsigned shared_bytes = 0;
    bool programmatic = false;
    std::int64_t most_blocks = 0;  // along x, of resident blocks; 0: no limit
    std::vector<Param> params;
    std::vector<std::size_t> maps;  // that it needs
    // loop
    std::size_t variable = 0;
    std::vector<SizeFormula> bounds;
    std::vector<Step> body;
  };
  struct Map {
    TensorMapMaker maker;
    std::size_t argument = 0, first_stride = 0;
    // of a tensor in the workspace
    std::vector<SizeFormula> offset = {};  // one, or none: an argument
    std::vector<SizeFormula> strides = {};
  };
  class Compiler;
  class Run;

  std::shared_ptr<const CudaModule> module_;
  std::vector<std::string> sizes_;
  SizeFormula workspace_;
  std::vector<Step> steps_;
  std::vector<CudaFunction> functions_;
  std::vector<Map> maps_;
  std::unique_ptr<const WorkCounters> counters_;  // nullptr: no kernel has one
  bool single_ = false;                           // one kernel, no loop: the check of grids needs no pass of its own
};

}  // namespace nestor
