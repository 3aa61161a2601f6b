// What stands behind the public Nest.
#pragma once

#include "nestor/nest.h"
#include "poly/nest/nest.h"

namespace nestor::api {

struct Nest::Impl {
  nestor::Nest nest;  ///< as defined, sizes not fixed
};

}  // namespace nestor::api
