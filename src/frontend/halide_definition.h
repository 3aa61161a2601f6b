// An operator as its author writes it in Halide.
#pragma once

#include <Halide.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// A symbolic size. Param<int>s that are not listed as sizes or scalars of a definition are refused.
struct HalideSize {
  Halide::Param<int> param;                        ///< its name becomes the size's name
  std::int64_t default_value = 1;                  ///< what `tune` takes when the user names no value
  std::int64_t min = 1;                            ///< smallest value that makes sense
  std::optional<std::int64_t> max = std::nullopt;  ///< largest, if bounded
  bool specialized = false;                        ///< fixed when a kernel is compiled
};

/// A scalar argument: a Param<float> or Param<int> that occurs in values only, never in an index or a bound.
struct HalideScalar {
  Halide::Expr param;
  double default_value = 0;
};

/// A result. `extents` are affine in the sizes, in Halide's order (innermost first); each index starts at 0.
/// The components of a tuple share the box; their tensors are named `<func>_0`, `<func>_1`, ...
struct HalideOutput {
  Halide::Func func;
  std::vector<Halide::Expr> extents;
};

/// Declares the box of an input, in Halide's order. Needed only where the part that is read (the default) is smaller than
/// the tensor that callers hold, or where the definition mentions `dim(k).extent()`.
struct HalideInput {
  Halide::ImageParam param;
  std::vector<Halide::Expr> extents;
};

/// An operator as its author writes it.
struct HalideDefinition {
  std::string op = {};
  std::string variant = {};
  std::vector<HalideOutput> outputs = {};
  std::vector<HalideInput> inputs = {};
  std::vector<HalideSize> sizes = {};
  std::vector<HalideScalar> scalars = {};
  std::vector<Halide::Expr> require = {};  ///< affine facts about the sizes, e.g. keys >= queries
  double tolerance = 1e-4;                 ///< see Nest::tolerance
};

}  // namespace nestor
