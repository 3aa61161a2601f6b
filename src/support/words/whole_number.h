// Whole numbers as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace nestor {

/// "4096", "-3", "1e6" and "2.5e3" (where nothing is left behind the point), "4k", "2M", "1G" (1024, 1024 and 1024 times as many as the one
/// before); nothing for other text, and for what does not fit 64 bits.
std::optional<std::int64_t> whole_number(std::string_view text);

}  // namespace nestor
