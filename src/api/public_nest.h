// What stands behind the public Nest. Here nestor::Nest is the data, and nestor_api::Nest the handle.
#pragma once

#include "nestor/nest.h"
#include "poly/nest/nest.h"

namespace nestor_api {

struct Nest::Impl {
  nestor::Nest nest;  ///< as defined, sizes not fixed
};

/// The way of other public calls to it.
struct Internals {
  static const nestor::Nest& nest_of(const Nest& nest) { return nest.impl_->nest; }
};

}  // namespace nestor_api
