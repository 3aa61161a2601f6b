// Throwing the failures of nestor/error.h with formatted messages.
#pragma once

#include "nestor/error.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace nestor {

/// Throws UserError with a formatted message.
template <class... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InternalError with a formatted message.
template <class... Args>
[[noreturn]] void internal_error(fmt::format_string<Args...> format, Args&&... args) {
  throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace nestor
