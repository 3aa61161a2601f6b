// Public API: an operator as its author writes it in Halide, and the nest that it denotes. CMake target Nestor::halide.
//
//   nestor::HalideDefinition definition;
//   definition.op = "scale";
//   definition.variant = "f32";
//   definition.outputs = {{out, {width, rows}}};               // Func, extents: innermost first, as everywhere in Halide
//   definition.sizes = {{.param = width}, {.param = rows}};    // Param<int>s
//   const nestor::Nest nest = nestor::extract_nest(definition);
#pragma once

#include "nestor/error.h"
#include "nestor/export.h"
#include "nestor/nest.h"

#include <Halide.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// A symbolic size. Param<int>s that are not listed as sizes or scalars of a definition are refused.
struct HalideSize {
  Halide::Param<int> param;                        ///< its name becomes the size's name
  std::int64_t default_value = 1;                  ///< in elements: what `tune` takes when the user names no value
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
  std::string op = {};       ///< name under which kernels are stored and queried
  std::string variant = {};  ///< options and element type, e.g. "f32" or "causal.bf16"; queried with the name
  std::vector<HalideOutput> outputs = {};
  std::vector<HalideInput> inputs = {};
  std::vector<HalideSize> sizes = {};
  std::vector<HalideScalar> scalars = {};
  std::vector<Halide::Expr> require = {};  ///< affine facts about the sizes, e.g. keys >= queries
  /// Upper limit of what rounding may be granted: abs(result - reference) / (m + abs(reference)), m the mean of the output's
  /// abs(reference), at least 1.
  double tolerance = 1e-4;
};

}  // namespace nestor

namespace nestor_api {

/// The nest that the definition denotes. Halide's schedules on the Funcs are ignored; nothing is compiled. Tensors and dims
/// are in outermost-first order, the reverse of Halide's. A Func's pure definition becomes the statement `<func>_init` (just
/// `<func>` without updates), its updates `<func>`, `<func>_1`, ... Throws UserError naming the Func, the expression and the
/// reason: an index, bound or `where` that is not affine or depends on data; extern definitions; Params that are not listed;
/// types other than f32, f16, bf16, i32; reads outside a declared input; an output whose box is missing or not completely
/// written. What Halide itself refuses, while Funcs are defined, it tells in its own way.
NESTOR_API Nest extract_nest(const nestor::HalideDefinition& definition);

}  // namespace nestor_api
