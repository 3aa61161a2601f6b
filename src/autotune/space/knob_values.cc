// Each knob of the table, read and written by its name.
#include "autotune/space/knob_values.h"

namespace nestor {

GridShape shape_of(const NamedValues& values) {
  GridShape shape;
  for (const KnobStep& step : knob_steps()) {
    for (const Knob& knob : step.knobs) shape.*knob.member = static_cast<int>(value_or(values, knob.name, knob.otherwise));
  }
  return shape;
}

NamedValues values_of(const GridShape& shape) {
  NamedValues values;
  for (const KnobStep& step : knob_steps()) {
    for (const Knob& knob : step.knobs) values.emplace(knob.name, shape.*knob.member);
  }
  return values;
}

}  // namespace nestor
