// Digests of rows that have one beside a trial's.
#pragma once

#include <cstdint>
#include <string>

namespace nestor {

std::string nest_seal(const std::string& digest, const std::string& json);
std::string pin_seal(std::int64_t trial_id);

}  // namespace nestor
