// Axes first, then those over parts.
#include "autotune/space/structure/nest_analysis.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/part_axes.h"
#include "poly/isl/context.h"

namespace nestor {

NestStructure analyse(const Schedule& base, const Sizes& sizes) {
  return isl_guarded("aligning the loops of the statements", [&] {
    NestStructure structure = find_axes(base.nest(), sizes);
    find_part_axes(base.nest(), structure);
    return structure;
  });
}

}  // namespace nestor
