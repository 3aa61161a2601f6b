// TransposedRows: groups that read memory along one axis and write it along another, or the same elements for each point of an axis.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// Elements next to each other in memory: along which axis they are written, and along which other one `tensors` are read.
struct TransposedRows {
  int written = -1, read = -1;
  std::vector<std::string> tensors;
};

/// Of a group whose statements sum nothing up, where both axes are common ones.
std::optional<TransposedRows> transposed_rows(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// The common axis along which a group that sums reads memory, where it sums across (sums of columns); -1: there is none.
int axis_of_column_sums(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// The common axis, not the one along memory, for each point of which a sum reads all elements of its largest operand again: heads that
/// mix scores of other heads. -1: there is none.
int axis_of_repeated_reads(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// The common axis along memory of a group whose every sum has few terms for each of its elements (the taps of a convolution of single
/// channels, a pool): threads share elements, not terms. -1: there is none.
int axis_of_short_sums(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// The axis of the places of running sums (of prefix_dim()) of the group; -1: it has none.
int axis_of_prefixes(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// Sums over short runs of memory and over something else as well, as of a group's channels at all places of an image: the run is too short
/// for the threads of a block, and those beside it belong to other sums.
struct ShortRuns {
  int run = -1;     ///< the reduced axis along memory
  int beside = -1;  ///< the axis before it in memory, whose sums lie next to each other
};

/// Of the statement that has the most points; nothing where it is no such sum.
std::optional<ShortRuns> short_runs(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

/// Values for a group that reads memory along one axis and writes it along another: square tiles.
NamedValues values_of_transposed(const NestStructure& structure, const FusionGroup& group, const TransposedRows& rows);
/// The same for a group that sums across memory along the axis: narrow blocks of many threads, so many that all units work.
NamedValues values_of_column_sums(const NestStructure& structure, const FusionGroup& group, int axis, const GpuLimits& limits);
/// The same for short sums along the axis: some elements for each thread, of `rows` positions of the axis before it.
NamedValues values_of_short_sums(const NestStructure& structure, const FusionGroup& group, int axis, std::int64_t rows);
/// The same for running sums along the axis, of which a block has whole rows, with so many threads.
NamedValues values_of_prefixes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int axis,
                               std::int64_t threads);
/// Does a sum of the group read other elements of what it writes?
bool solves_system(const Nest& nest, const NestStructure& structure, const FusionGroup& group);
/// The same for a recurrence in the form, of which a block has an element for each of so many threads. Of triangular systems, loops that the group does
/// not share count as well.
NamedValues values_of_recurrence(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                 const GroupForm& form, std::int64_t threads);
/// The same for parts of sums over short runs: a block takes all of those that lie next to each other.
NamedValues values_of_short_runs(const NestStructure& structure, const FusionGroup& group, const std::string& beside);
/// The same where each point of the axis repeats reads: a block takes some of them.
NamedValues values_of_repeated_reads(const NestStructure& structure, const FusionGroup& group, int axis);

/// The same for a group of rows beside others with products on tensor cores, or beside the heaviest work: the first likely shape.
NamedValues values_beside_products(const NestStructure& structure, const FusionGroup& group, const GpuLimits& limits);

}  // namespace nestor
