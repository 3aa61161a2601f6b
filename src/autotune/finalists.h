// Finalists: what other devices of the same model found fastest, to be measured again on one.
#pragma once

#include "db/database.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace nestor {

struct Finalist {
  std::string key;                             ///< trial_key of its steps
  std::map<std::string, std::int64_t> values;  ///< its point in the space, by name
};

/// The `most` fastest sound trials among those of other devices of that model which `device` has not measured (`measured`: keys), each
/// schedule once, the fastest first. Trials of other revisions, and those that nobody trusted vouches for, do not count.
std::vector<Finalist> finalists(const Database& database, const DeviceIdentity& device, const ProblemKey& problem,
                                const std::set<std::string>& measured, int most);

}  // namespace nestor
