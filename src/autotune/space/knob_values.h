// Values of knobs by name: between parameters of a space and grids.
#pragma once

#include "autotune/space/space.h"
#include "support/knobs.h"

namespace nestor {

/// The knobs that `values` names; the others as on a loop that says nothing.
GridShape shape_of(const NamedValues& values);

/// Inverse: the value of every knob.
NamedValues values_of(const GridShape& shape);

}  // namespace nestor
