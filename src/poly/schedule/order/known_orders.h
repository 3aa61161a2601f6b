// KnownOrders: what the legality check has answered, for all schedules that come of one nest.
#pragma once

#include <isl/cpp.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nestor {

/// A search asks much again: rules leave most dependences as they are, and steps most loops. A question is a text of all that its answer hangs on;
/// relations and sets have numbers in it. One thread at a time.
class KnownOrders {
 public:
  /// The same for equal maps.
  std::size_t number_of(const isl::map& map);
  std::optional<bool> answer(const std::string& question) const;
  void note(const std::string& question, bool answer);

 private:
  std::map<std::uint32_t, std::vector<std::pair<isl::map, std::size_t>>> numbers_;  ///< by isl's hash
  std::size_t count_ = 0;
  std::unordered_map<std::string, bool> answers_;
};

}  // namespace nestor
