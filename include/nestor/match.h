// How good the answer of a look-up is: part of the public API and of the database.
#pragma once

#include "nestor/export.h"

#include <cstdint>
#include <string_view>

namespace nestor {

/// exact: measured on this device at the asked sizes. nearest: measured on this device at other sizes, the nearest among
/// kernels valid for the asked ones. other_device: as nearest, but measured on another device (it runs here; how fast is
/// not known). none: nothing fits.
enum class MatchKind : std::uint8_t { exact, nearest, other_device, none };

/// "exact", "nearest", "other device", "none".
NESTOR_API std::string_view to_string(MatchKind kind);

}  // namespace nestor
