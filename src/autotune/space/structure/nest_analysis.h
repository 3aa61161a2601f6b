// Analysis of a nest: the axes that its loops run along, its loop groups, and axes over parts. Derived from accesses alone.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "poly/schedule/schedule.h"

namespace nestor {

/// Axes and loop groups of the nest of `base` (a schedule with algebra steps alone).
NestStructure analyse(const Schedule& base, const Sizes& sizes);

}  // namespace nestor
