// The three kinds of failure, as every layer and the public API throw them.
#pragma once

#include "nestor/export.h"

#include <stdexcept>

namespace nestor {

/// Base of everything Nestor throws. `what()` is a complete sentence for a person.
class NESTOR_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bad input: the message says what was wrong, where, and what would be right.
class NESTOR_API UserError : public Error {
 public:
  using Error::Error;
};

/// A bug in Nestor: the message carries what is needed to reproduce it.
class NESTOR_API InternalError : public Error {
 public:
  using Error::Error;
};

/// The device or its driver failed: the message carries the call, its error name and the kernel.
class NESTOR_API DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace nestor
