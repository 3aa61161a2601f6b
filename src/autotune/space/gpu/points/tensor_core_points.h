// Likely points of products on tensor cores.
#pragma once

#include "autotune/space/gpu/points/point_source.h"

namespace nestor {

/// Products on tensor cores, choice by choice. Where small weights may vanish in f16, and do in the data of the check, all guesses
/// of a choice may be wrong: those with parts of such weights come in turns with them.
void add_products(const GpuPointSource& source, std::vector<NamedValues>& points);

/// The first guesses of a product that is computed again: its statistics in parts of the streamed columns, then its results, which
/// are stored by the kernel that computes it. Sums of more terms take longer twice than through memory.
void add_products_again(const GpuPointSource& source, std::vector<NamedValues>& points);

/// The first guesses where a product's rows are summed up: each of its tiles leaves a part of the reductions along its columns, so
/// that what is reduced need not go to memory. Where columns are summed up, too, a product for each, unless its terms take longer
/// than the way through memory.
void add_parts_of_tiles(const GpuPointSource& source, std::vector<NamedValues>& points);

}  // namespace nestor
