// Story of a schedule: the loop nest after every step, and why each step is legal.
#pragma once

#include "poly/schedule/schedule.h"

#include <nlohmann/json.hpp>

namespace nestor {

/// {"texts": [loop nest as text, each distinct one once], "start": index of the original order,
///  "steps": [{"step", "name", "text": index after it, "why", "facts": [dependences or the parts of a rule's proof]}]}.
/// Replays every step, which proves it again. Throws UserError when one is illegal.
nlohmann::json story_of(const Schedule& schedule);

/// Every dependence of the final order: {"kind", "source", "sink", "tensor", "text", "reduction"}.
nlohmann::json dependences_json(const Schedule& schedule);

}  // namespace nestor
