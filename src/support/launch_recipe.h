// LaunchRecipe: all that a launcher must know about a compiled kernel. Written by code generation, stored in the database,
// read by the runtime.
#pragma once

#include "nestor/types.h"
#include "support/int_expr.h"

#include <nlohmann/json.hpp>

#include <array>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// A linear fact about sizes that a kernel needs: sum(coefficient * size) + constant >= 0, or == 0, or divisible.
struct SizeConstraint {
  std::map<std::string, std::int64_t> terms;
  std::int64_t constant = 0;
  bool equality = false;     ///< == 0 instead of >= 0
  std::int64_t modulus = 0;  ///< > 0: divisible by this (then `equality` is ignored)
  std::string str() const;
};

/// True when every constraint holds at `sizes`; else `why` (if given) names the first that fails.
bool is_valid_for(const std::vector<SizeConstraint>& valid, const Sizes& sizes, std::string* why = nullptr);

/// A tensor argument. Strides are given at launch, in elements; the last index is dense.
struct ArgumentSpec {
  std::string name;
  ElementType type;
  bool output = false;
  std::vector<IntExpr> shape;  ///< over size parameters
};

struct ScalarSpec {
  std::string name;
  ElementType type;
  double default_value = 0;
  double minimum = -std::numeric_limits<double>::infinity(), maximum = std::numeric_limits<double>::infinity();
};

/// Name under which a grid's formula finds the number of multiprocessors of the device it is launched on. The blocks of such a grid
/// take items in turn: no more of them are launched than can run at once.
inline constexpr const char* kUnits = "$units";

/// A tensor that kernels of a recipe leave in the workspace for others.
struct WorkspaceTensor {
  ElementType type = ElementType::f32;
  IntExpr offset{0};             ///< bytes from the workspace's base address, over size parameters
  std::vector<IntExpr> shape;    ///< over size parameters
  std::vector<IntExpr> strides;  ///< elements, over size parameters, one for each index but the last, which is dense
};

/// What one parameter of a GPU kernel is. pointer: address of argument `index`; stride: stride `dim` of argument `index`
/// (i64); size: size parameter `name` (i64); scalar: `name` in its own type; loop: enclosing launch loop `name` (i64);
/// workspace: base address of the workspace; tensor_map: a CUtensorMap of argument `index`, or of the tensor `held` in the
/// workspace (then `index` is -1), by value (128 bytes, 64-byte aligned); counter: address of 4 bytes, zero when the kernel
/// starts, which it must leave at zero when it ends. All kernels of a recipe share that counter, launches that may run at the
/// same time do not.
/// A tensor map has its tensor's dimensions (1 to 5), with the extents and strides of the launch; the last one is dense.
/// What a tile holds outside of the argument's extents reads as zero. Nothing is interleaved, L2 promotion
/// is 256 bytes. Element types: f16, bf16, f32.
struct KernelParam {
  enum class Kind : std::uint8_t { pointer, stride, size, scalar, loop, workspace, tensor_map, counter } kind;
  int index = 0;
  int dim = 0;
  std::string name;
  std::vector<int> box = {};  ///< tensor_map: elements of a tile, one entry a dimension, 1 to 256 each; the last one dense
  int swizzle = 0;            ///< tensor_map: bytes, 0 (none), 32, 64 or 128; the dense extent of the box is no longer than that
  /// tensor_map: the argument's dimensions in the order in which a tile has them in shared memory, and coordinates name them, outermost
  /// first; the dense one stays last. Empty: that of the argument.
  std::vector<int> order = {};
  /// tensor_map: of neighbouring elements of a tile, how far they lie apart in the argument, 1 to 8, one entry a dimension; 1 for the dense
  /// one. With them a box reaches over 256 elements of the argument at most. Empty: all are neighbours there, too.
  std::vector<int> element_strides = {};
  std::optional<WorkspaceTensor> held = {};  ///< tensor_map: in place of an argument
};

/// One step of a launch: a kernel, or a loop around further steps (for var = lower; var < upper; ++var).
struct LaunchNode {
  enum class Kind : std::uint8_t { kernel, loop } kind = Kind::kernel;
  // kernel
  std::string symbol;
  std::array<IntExpr, 3> grid{IntExpr(1), IntExpr(1), IntExpr(1)};  ///< over sizes, launch loops, kUnits; 0 skips the launch
  std::array<int, 3> block{1, 1, 1};
  std::array<int, 3> cluster{1, 1, 1};  ///< blocks a cluster; divides the grid
  std::int64_t shared_bytes = 0;
  bool programmatic = false;  ///< launched before the kernel before it has ended, for which its blocks wait at their start
  std::vector<KernelParam> params;
  // loop
  std::string var;
  IntExpr lower, upper;
  std::vector<LaunchNode> children;
};

struct LaunchRecipe {
  std::string target;                   ///< "host" or "nvptx"
  std::string symbol;                   ///< host: the entry point, see include/nestor/host_abi.h
  std::vector<ArgumentSpec> arguments;  ///< in the order of the nest's tensors
  std::vector<std::string> sizes;       ///< size parameters in argument order
  std::map<std::string, std::int64_t> fixed_sizes;
  std::vector<ScalarSpec> scalars;
  std::vector<SizeConstraint> valid;  ///< conjunction; includes the fixed sizes
  IntExpr workspace_bytes{0};         ///< over size parameters; 64-byte aligned memory, need not be initialised
  std::vector<LaunchNode> launches;   ///< GPU only
};

/// The most that a launch takes.
struct LaunchLimits {
  static constexpr std::size_t kTensors = 128, kStrides = 512, kSizes = 64, kScalars = 64;
  static constexpr std::size_t kRank = 16;  ///< indices of a tensor
};

/// Throws UserError if the recipe, which `title` names, has more than a launch takes.
void check_limits(const LaunchRecipe& recipe, const std::string& title);

nlohmann::json int_expr_to_json(const IntExpr& expr);
IntExpr int_expr_from_json(const nlohmann::json& json);
nlohmann::json recipe_to_json(const LaunchRecipe& recipe);
/// Throws UserError naming the offending key.
LaunchRecipe recipe_from_json(const nlohmann::json& json);

/// A kernel as compiled: code plus recipe. `code` is a relocatable ELF object (host) or PTX text (nvptx).
struct CompiledKernel {
  std::string architecture;  ///< "x86-64:<cpu>:<features>" or "sm_90"
  std::string code;
  LaunchRecipe recipe;
};

}  // namespace nestor
