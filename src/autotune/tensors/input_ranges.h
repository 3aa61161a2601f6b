// Which numbers of an input a definition has results for: what stands under a root or a logarithm must not be negative. Which of them are places.
#pragma once

#include "poly/nest/nest.h"

#include <limits>
#include <map>
#include <string>

namespace nestor {

struct InputRange {
  bool nonnegative = false;
  double most = std::numeric_limits<double>::infinity();  ///< of the magnitude
  /// Of integers that are compared with indices: one beyond the last of these, a function of the sizes. Null: they are not.
  isl::pw_aff places;
  bool word = false;  ///< bits of an integer are told apart: any 32 of them, unless it is a place
  /// Integers or conditions that decide which values a large negative number hides, as masks do: neighbours are mostly alike.
  bool hides = false;
};

/// Of inputs of floats, by name: ranges that keep roots and logarithms of sums, products and quotients of inputs from NaN. What is not found
/// (a difference of two inputs under a root) is left as it is. Of inputs of integers: places and words. Inputs that are not named may be anything.
std::map<std::string, InputRange> input_ranges(const Nest& nest);

}  // namespace nestor
