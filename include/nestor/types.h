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

/// Storage type of a tensor element, and type of a scalar value. A `boolean` takes one byte, of which any that is not 0 is read as true
/// and 1 is written. `i64` is a type of inputs alone: its values are those of i32, the nearest one where an element does not fit.
enum class ElementType : std::uint8_t { f32, f16, bf16, i32, boolean, i64 };

/// Name as used in JSON, on the command line and in the database: "f32", "f16", "bf16", "i32", "bool", "i64".
NESTOR_API std::string_view to_string(ElementType type);

/// Inverse of to_string; nullopt when `name` is none of the names above.
NESTOR_API std::optional<ElementType> element_type_from(std::string_view name);

/// Bytes of one stored element.
NESTOR_API std::size_t size_in_bytes(ElementType type);

/// Values of named sizes, in elements, for example {"rows": 4096, "cols": 1024}.
using Sizes = std::map<std::string, std::int64_t>;

}  // namespace nestor
