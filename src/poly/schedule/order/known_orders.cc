// Numbers of isl maps, by their hashes, and answers.
#include "poly/schedule/order/known_orders.h"

#include <isl/map.h>

#include <algorithm>

namespace nestor {

std::size_t KnownOrders::number_of(const isl::map& map) {
  auto& alike = numbers_[isl_map_get_hash(map.get())];
  const auto same = std::find_if(alike.begin(), alike.end(), [&](const auto& known) {
    return isl_map_plain_is_equal(known.first.get(), map.get()) == isl_bool_true;
  });
  if (same != alike.end()) return same->second;
  alike.emplace_back(map, count_);
  return count_++;
}

std::optional<bool> KnownOrders::answer(const std::string& question) const {
  const auto found = answers_.find(question);
  return found == answers_.end() ? std::nullopt : std::optional(found->second);
}

void KnownOrders::note(const std::string& question, bool answer) { answers_.emplace(question, answer); }

}  // namespace nestor
