// Conflict picture: where an illegal step would put the two instances that forbid it.
#pragma once

#include "nestor/types.h"
#include "poly/schedule/order/illegal_step.h"

#include <string>

namespace nestor {

/// The two instances in loops of the order that the step would give, at complete `sizes`: a table of the loops around them, and where there
/// is room the iterations of two loops, with A at what must come first and B at what must come later. At most `width` columns (0: 80), but
/// for names that are longer. Says so where nothing breaks at these sizes.
std::string conflict_picture(const OrderConflict& conflict, const Sizes& sizes, int width);

}  // namespace nestor
