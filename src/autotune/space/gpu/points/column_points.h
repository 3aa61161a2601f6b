// Likely points of sums across memory, over short runs of it, and of few results.
#pragma once

#include "autotune/space/gpu/points/point_source.h"

#include <cstdint>

namespace nestor {

/// Sums across memory: where they are most of the work, where they are not, or where they are products for each place along it.
enum class ColumnSums : std::uint8_t { heaviest, lighter, products };

/// Sums across memory (statistics of channels that lie last), each statement in kernels of its own: whole, then in parts so that
/// few columns keep all units busy. Parts whose sums read the same points again are short enough for the first cache at first.
void add_column_values(const GpuPointSource& source, const std::set<std::string>& rules, ColumnSums kind,
                       std::vector<NamedValues>& points);

/// Sums across memory and what is made of them, in one kernel.
void add_strips(const GpuPointSource& source, const std::set<std::string>& rules, std::vector<NamedValues>& points);

/// Sums over short runs of memory, in parts along the other axes that they sum over.
void add_short_runs(const GpuPointSource& source, const std::set<std::string>& rules, std::vector<NamedValues>& points);

/// Sums with few results, such as one number of all that there is: parts keep all units busy, a block for each.
void add_few_results(const GpuPointSource& source, const std::set<std::string>& rules, std::vector<NamedValues>& points);

}  // namespace nestor
