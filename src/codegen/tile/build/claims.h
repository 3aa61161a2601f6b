// Claims: what a finished program says of its buffers, for src/codegen/proof to prove.
#pragma once

#include "codegen/tile/build/staging.h"
#include "codegen/tile/places/storage.h"

#include <map>
#include <string>
#include <vector>

namespace nestor {

/// The buffers with scope and origin. `previous`: where previous leading values lie, by lead statement, as add_previous_values chose.
std::vector<Buffer> claimed_buffers(const ProgramPlan& plan, const Storage& storage,
                                    const std::map<std::string, Placement>& previous, const std::vector<StagePlan>& stages);

}  // namespace nestor
