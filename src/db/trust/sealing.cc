// Digests of nests and pins.
#include "db/trust/sealing.h"

#include "db/trust/blake2b.h"

namespace nestor {

std::string nest_seal(const std::string& digest, const std::string& json) {
  return Blake2b().add("nest").add(digest).add(json).hex();
}

std::string pin_seal(std::int64_t trial_id) { return Blake2b().add("pin").add(trial_id).hex(); }

}  // namespace nestor
