// Nest <-> JSON, and the digest that identifies an operator everywhere.
#pragma once

#include "poly/nest/nest.h"

#include <nlohmann/json.hpp>

#include <string>

namespace nestor {

/// Format version written into, and required of, nest files.
inline constexpr int kNestFormat = 1;

/// Complete JSON of the nest; isl objects as text.
nlohmann::json nest_to_json(const Nest& nest);

/// Parses and validates. Throws UserError naming the offending key or isl text.
Nest nest_from_json(const nlohmann::json& json);

/// Reads a `.nest.json` file. Throws UserError when it cannot be read or is not a nest.
Nest load_nest(const std::string& path);

/// 32 hexadecimal digits (XXH3-128 of a canonical form that does not depend on isl's printer: constraints are
/// normalised and sorted). Equal across processes and machines.
std::string digest(const Nest& nest);

}  // namespace nestor
