// Check sizes: small sizes at which a kernel is compared in full, chosen so that all of its code runs.
#pragma once

#include "codegen/tile/tile_program.h"
#include "poly/nest/nest.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace nestor {

/// What each size of a kernel is divided by, compared in steps of, or cut into; sizes that only count iterations of a grid have none.
using SizePeriods = std::map<std::string, std::set<std::int64_t>>;
SizePeriods size_periods(const TileProgram& program);
std::string periods_to_text(const SizePeriods& periods);
/// Throws InternalError for other text.
SizePeriods periods_from_text(const std::string& text);

/// A kernel as its check needs to know it.
struct CheckedKernel {
  SizePeriods periods;
  std::map<std::string, std::int64_t> fixed_sizes;
  std::vector<SizeConstraint> valid;
};

struct CheckSizes {
  std::vector<Sizes> sizes;
  std::size_t varied = 0;              ///< of `sizes`, the ones with which all data sets are taken
  std::vector<std::string> dynamic{};  ///< sizes that may take other values
};

/// Sizes for a kernel of the definition `nest`; its fixed sizes stay, and so does its validity. A size with periods takes the values 1,
/// p - 1, p, p + 1, 2 p, 2 p + 1 and 3 p + 1 for its largest period p, and p, p + 1 for others, so that loops run 0, 1, 2, 3 and more times,
/// over full and partial tiles; other sizes are 1, 2 and 3. Values of several sizes are combined in turn, each with different ones of the
/// others. What takes the definition more than a fraction of a second is left out. Never empty: at worst `tuned` alone.
CheckSizes check_sizes(const CheckedKernel& kernel, const Nest& nest, const Sizes& tuned);

}  // namespace nestor
