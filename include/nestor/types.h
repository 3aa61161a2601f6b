// Element types and their names: the vocabulary shared by every layer and by the public API.
#pragma once

#include "nestor/export.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace nestor {

/// Storage type of a tensor element, and type of a scalar value. `boolean` exists for values only.
enum class ElementType : std::uint8_t { f32, f16, bf16, i32, boolean };

/// Name as used in JSON, on the command line and in the database: "f32", "f16", "bf16", "i32", "bool".
NESTOR_API std::string_view to_string(ElementType type);

/// Inverse of to_string; nullopt when `name` is none of the names above.
NESTOR_API std::optional<ElementType> element_type_from(std::string_view name);

/// Bytes of one stored element.
NESTOR_API std::size_t size_in_bytes(ElementType type);

/// Values of named sizes, in elements, for example {"rows": 4096, "cols": 1024}.
using Sizes = std::map<std::string, std::int64_t>;

}  // namespace nestor
