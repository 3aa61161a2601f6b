// The public options and report of tuning, for a nest that is already read.
#pragma once

#include "nestor/tune.h"
#include "poly/nest/nest.h"

namespace nestor {

/// Tunes `nest`, as defined and with no size fixed. Throws as the public call does.
TuneReport tune_nest(const Nest& nest, const TuneOptions& options);

}  // namespace nestor
