// LackOfResources: what this machine cannot give now, as opposed to input that is wrong.
#pragma once

#include "nestor/error.h"

namespace nestor {

/// Memory, threads, processes or files that are not to be had here: it says nothing about the input's being right, and nothing was done.
class LackOfResources : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace nestor
