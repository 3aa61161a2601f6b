// Operators by name: those built into this program, and nests in files.
#pragma once

#include "poly/nest/nest.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nestor {

/// An operator built into this program.
struct OperatorEntry {
  std::string op;
  std::vector<std::string> variants;  ///< element types or options, in the order of its definition; the first is the default
};

/// All of them, by name.
std::vector<OperatorEntry> builtin_operators();

/// The nest of `source`: the name of a built-in operator, or the path of a .nest.json file (anything with a slash or a
/// ".json" at its end). `variant` "": the first one. Throws UserError that lists what there is.
Nest load_operator(const std::string& source, const std::string& variant = "");

/// "rows (>= 1, default 4096), width (1..65536, fixed at compile time, default 1024)": for messages and help.
std::string describe_sizes(const Nest& nest);

/// The specialised sizes among `sizes`: those that tuning fixes in a kernel.
Sizes specialized_sizes(const Nest& nest, const Sizes& sizes);

/// The nest's JSON as one line, as the database keeps it.
std::string nest_to_text(const Nest& nest);

/// Parses "rows=4096", "rows=4k" (times 1024) and "rows=1e6". Throws UserError when there is no name or the value is no integer.
std::pair<std::string, std::int64_t> parse_size(std::string_view text);

}  // namespace nestor
