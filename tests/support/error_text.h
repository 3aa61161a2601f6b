// What a user reads when something is refused.
#pragma once

#include "support/error.h"

#include <gtest/gtest.h>

#include <string>

namespace nestor::test {

/// The message of the exception that `action` throws; a failure when it throws another, or none.
template <class Expected = UserError, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace nestor::test
