// Nest: what is to be computed, as polyhedra. Immutable once made; everything else is derived from it.
#pragma once

#include "nestor/types.h"
#include "poly/isl/context.h"
#include "poly/nest/scalar_expr.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// A symbolic size: a parameter of every isl object of the nest.
struct SizeParam {
  std::string name;
  std::int64_t min = 1;             ///< smallest value that makes sense
  std::optional<std::int64_t> max;  ///< largest, if bounded
  bool specialized = false;         ///< fixed when a kernel is compiled (a head size); else given at launch (a batch)
  std::int64_t default_value = 1;   ///< what `tune` takes when the user names no value
};

/// A scalar argument of the kernel (a scale, an epsilon).
struct ScalarParam {
  std::string name;
  ElementType type = ElementType::f32;
  double default_value = 0;
  /// Values that callers may give; rules rely on them.
  double minimum = -std::numeric_limits<double>::infinity(), maximum = std::numeric_limits<double>::infinity();
};

enum class TensorRole : std::uint8_t { input, output, temporary };
std::string_view to_string(TensorRole role);

/// A tensor; index order is outermost first, the last index is dense by default.
struct Tensor {
  std::string name;
  ElementType type;
  TensorRole role;
  std::vector<isl::pw_aff> shape;  ///< extents, each `[params] -> { [] : ... }` a function of the parameters alone
  /// Of an output: takes the place of the nest's tolerance.
  std::optional<double> tolerance{};
};

/// One access: `relation` is { Statement[dims] -> Tensor[index] }, single valued.
struct Access {
  std::string tensor;
  isl::map relation;
};

/// An assignment executed for every point of its domain: write = value, or write = write (+) value with a reduction.
struct Statement {
  std::string name;
  std::vector<std::string> dims;  ///< names of the domain's dimensions, outermost first
  isl::set domain;                ///< `[params] -> { name[dims] : ... }`, exact
  Access write;
  std::vector<Access> reads;         ///< without the read of the accumulator that a reduction implies
  std::vector<isl::pw_aff> indices;  ///< integers used as values: `{ name[dims] -> [affine] }`
  ScalarExpr value;
  std::optional<ReductionOp> reduction;
  /// Consecutive statements of one group have equal dims and share all their loops in the original order (the parts of
  /// a tuple definition); each other statement is a group of its own.
  int group = 0;
};

/// A nest: sizes with their context, tensors, and statements in original (textual) order. Each group of statements runs
/// to completion, in lexicographic order of its dims, before the next one starts.
struct Nest {
  std::string op;       ///< the operator's name, for people and for database look-ups only
  std::string variant;  ///< distinguishes element types and options of one operator, e.g. "bf16"
  std::vector<SizeParam> sizes;
  std::vector<ScalarParam> scalars;
  isl::set context;  ///< `[params] -> { : ... }`: sizes for which the definition holds
  std::vector<Tensor> tensors;
  std::vector<Statement> statements;
  /// Upper limit of what rounding may be granted with ordinary data: |result - reference| / (max(1, median |reference|) + |reference|).
  double tolerance = 1e-4;

  /// What holds for the output: its own tolerance, or the nest's.
  double tolerance_of(const std::string& output) const { return tensor(output).tolerance.value_or(tolerance); }

  const Tensor& tensor(const std::string& name) const;        ///< throws InternalError when absent
  const Statement& statement(const std::string& name) const;  ///< throws InternalError when absent
  const Statement* find_statement(const std::string& name) const;
  const Tensor* find_tensor(const std::string& name) const;
};

/// Checks the invariants above (names unique, spaces match, accesses single valued and inside their tensors, every
/// temporary element written before it is read); throws UserError naming the first offender.
void validate(const Nest& nest);

/// The nest with the given sizes fixed in its context. Throws UserError for an unknown size name, for a value below the
/// size's minimum, and for values outside the context.
Nest fix_sizes(const Nest& nest, const Sizes& values);

/// Checks that `values` gives every size of the nest a valid value (after filling defaults for missing ones) and returns
/// the complete set. Throws UserError as fix_sizes does.
Sizes complete_sizes(const Nest& nest, const Sizes& values);

/// Value of a pw_aff over parameters at the given sizes. Throws UserError when undefined there.
std::int64_t evaluate_at(const isl::pw_aff& function, const Sizes& sizes);

/// Shape of a tensor at the given sizes.
std::vector<std::int64_t> shape_at(const Tensor& tensor, const Sizes& sizes);

/// The statements and tensors, readable: one paragraph a statement.
std::string describe(const Nest& nest);

}  // namespace nestor
