// Reductions whose points can be counted, and what their counts make of other sizes.
#pragma once

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor {

/// { element that the statement writes } -> number of values of each reduced dim, in their order, where the points added to an element are
/// all combinations of dense ranges: their number is the product. Empty where they are not.
std::vector<isl::pw_aff> dense_counts(const Nest& nest, const Statement& reduction);

/// The only element of a set of integers, whatever the sizes.
std::optional<std::int64_t> only_value(const isl::set& values);

/// A product of powers of sizes, each a function of an element, beside the counts of a reduction.
class SizeProduct {
 public:
  SizeProduct(isl::set elements, const std::vector<isl::pw_aff>& counts);

  /// `size`: { element -> [integer] }
  void multiply(const isl::map& size, int exponent);

  /// p where the product may be that of all counts to the power of p, times a number; 0 where none is.
  int power_of_counts() const;

  /// The product over that of all counts to the power of `power`, if it is a number.
  std::optional<double> over_counts(int power) const;

 private:
  /// Sizes that are the same function: how many counts they are, and their exponent in the product.
  struct Size {
    isl::map value;
    int counts = 0;
    int exponent = 0;
  };

  Size& find(const isl::map& value);
  std::optional<std::int64_t> constant(const Size& size) const;

  isl::set elements_;
  std::vector<Size> sizes_;
};

}  // namespace nestor
