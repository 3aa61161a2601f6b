// Claims: what a finished program says of its buffers, for src/codegen/proof to prove.
#pragma once

#include "codegen/tile/staging.h"
#include "codegen/tile/storage.h"

#include <map>
#include <string>
#include <vector>

namespace nestor {

/// The buffers with scope and origin. `previous`: buffers of previous leading values by lead statement, as add_previous_values made them.
std::vector<Buffer> claimed_buffers(const ProgramPlan& plan, const Storage& storage, const std::map<std::string, int>& previous,
                                    const std::vector<StagePlan>& stages);

}  // namespace nestor
