// Masked places: elements of inputs that a kernel may multiply by 0 for no other reason than a condition on indices (docs/values.md).
#pragma once

#include "codegen/proof/program_proof.h"
#include "poly/schedule/schedule.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// Tensors whose values must be finite in masked places for a kernel to give what the definition does: those that its program multiplies
/// by 0 (`proof`), that its products on tensor cores do (`products`), and that rules of `schedule` no longer multiply by 0. Sorted.
std::vector<std::string> finite_tensors(const Schedule& schedule, const ProgramProof& proof,
                                        const std::vector<std::string>& products);

/// Elements of inputs, as ascending linear numbers.
using ElementLists = std::map<std::string, std::vector<std::int64_t>>;

/// The masked places of `tensors` at `sizes`: elements that a reader meets at some point of the box around its domain that the domain lacks,
/// where the box goes on to the ends of what it reads and writes. For temporaries, what such elements are computed from.
ElementLists masked_places(const Schedule& schedule, const std::vector<std::string>& tensors, const Sizes& sizes);

/// What any kernel of a definition may need finite values of: factors of sums beside computed ones, in which a kernel can put zeros for points
/// that are left out, and beside those that end within a tile (rows around an image); and those that rules no longer multiply by 0. So, too, of
/// its simpler forms.
class MaskedFactors {
 public:
  explicit MaskedFactors(const Nest& definition);
  ElementLists at(const Sizes& sizes) const;

 private:
  struct Form {
    Schedule schedule;  ///< with those rules
    std::vector<std::string> tensors;
  };
  std::vector<Form> forms_;  ///< of the definition, and of what rules make of it
};

}  // namespace nestor
