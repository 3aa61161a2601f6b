// Storage: where each tensor of a plan lives, and how small its buffer may be.
#pragma once

#include "codegen/tile/places/plan.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// A tensor's buffer. One copy exists for each iteration of the `depth` outermost loops around its users.
struct Placement {
  int buffer = -1;  ///< index into TileProgram::buffers
  std::size_t depth = 0;
  std::vector<std::string> scope;  ///< names of those loops
  std::vector<isl::aff> origin;    ///< { [scope] -> [first element held] }, one an index
  isl::map held;                   ///< { [scope] -> Tensor[index] } elements the buffer has room for
};

struct Storage {
  std::vector<Buffer> buffers;
  std::map<std::string, Placement> tensors;
  std::map<std::pair<std::string, std::string>, Placement> staged;  ///< (statement, tensor) that it reads from a staged copy

  /// Where `statement` finds `tensor` when it reads it.
  const Placement& read_placement(const std::string& statement, const std::string& tensor) const;
};

/// Extents and origins of a buffer for `elements`, { [scope] -> Tensor[index] }; indices without a constant extent are
/// held whole when `whole_dims` allows it. Throws UserError otherwise.
Placement fit_buffer(const ProgramPlan& plan, const Tensor& tensor, const isl::map& elements, bool whole_dims, Buffer& buffer);

/// A buffer description of the tensor without extents.
Buffer buffer_for(const Tensor& tensor, Memory memory);

/// Arguments first, in the order of the nest's tensors; each temporary in the innermost scope that contains every flow
/// of values through it. Throws UserError when a temporary's size cannot be expressed.
Storage place_tensors(const ProgramPlan& plan);

}  // namespace nestor
