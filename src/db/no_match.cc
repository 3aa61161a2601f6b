// Records are narrowed by one thing after the other until none is left.
#include "db/no_match.h"

#include "db/lookup.h"
#include "support/words/nearest_word.h"
#include "support/words/printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace nestor {
namespace {

using Records = std::vector<const Database::ProblemSummary*>;

std::vector<std::string> distinct(const Records& records, const std::function<std::string(const Database::ProblemSummary&)>& of) {
  std::vector<std::string> found;
  for (const auto* entry : records) {
    std::string text = of(*entry);
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(std::move(text));
  }
  return found;
}

std::string list(std::vector<std::string> words) {
  constexpr std::size_t kMost = 12;
  if (words.size() > kMost) {
    words.resize(kMost);
    words.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string device_name(const DeviceIdentity& device) { return fmt::format("{} ({})", device.name, device.arch); }

std::string sizes_of(const Sizes& sizes) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : sizes) parts.push_back(fmt::format("{}={}", name, value));
  return parts.empty() ? "no sizes" : list(parts);
}

/// The record whose sizes are nearest.
const Database::ProblemSummary& nearest(const Records& records, const Sizes& sizes) {
  const auto far = [&](const Database::ProblemSummary& entry) {
    return size_distance(sizes, entry.problem.sizes).value_or(std::numeric_limits<double>::infinity());
  };
  return **std::min_element(records.begin(), records.end(), [&](const auto* a, const auto* b) { return far(*a) < far(*b); });
}

/// Whether a record is of the kind of one of the devices; of any where there are none.
bool is_for(const Database::ProblemSummary& entry, const std::vector<DeviceIdentity>& devices) {
  const auto same_kind = [&](const DeviceIdentity& device) { return device.kind == entry.device.kind; };
  return devices.empty() || std::any_of(devices.begin(), devices.end(), same_kind);
}

std::string reason_in_words(const std::vector<Database::ProblemSummary>& records, const Asked& asked) {
  if (records.empty()) return "there are no records at all";
  Records left;
  left.reserve(records.size());
  for (const auto& entry : records) left.push_back(&entry);
  const auto keep = [&](const auto& fits) {
    Records kept;
    std::copy_if(left.begin(), left.end(), std::back_inserter(kept), [&](const auto* entry) { return fits(*entry); });
    const bool any = !kept.empty();
    if (any) left = std::move(kept);
    return any;
  };
  if (!asked.op.empty() && !keep([&](const auto& entry) { return entry.problem.op == asked.op; })) {
    const auto known = distinct(left, [](const auto& entry) { return entry.problem.op; });
    return fmt::format("no record is of an operator '{}'{}", asked.op, did_you_mean(asked.op, known));
  }
  const std::string op = left.front()->problem.op;
  if (!asked.variant.empty() && !keep([&](const auto& entry) { return entry.problem.variant == asked.variant; })) {
    return fmt::format("no record of {} is of the variant '{}': there are {}", op, asked.variant,
                       list(distinct(left, [](const auto& entry) { return entry.problem.variant; })));
  }
  if (!asked.digest.empty() && !keep([&](const auto& entry) { return entry.problem.nest_digest == asked.digest; }))
    return fmt::format("no record is of the nest {}, though there are some of other definitions", asked.digest);
  const auto served = [](const auto& entry) { return entry.ok > 0; };
  if (!keep(served))
    return fmt::format("no trial of {} ({}) was correct, or none is checked yet", op, left.front()->problem.variant);
  if (!keep([&](const auto& entry) { return is_for(entry, asked.devices); })) {
    return fmt::format("no kernel of {} is for {}: there are some for {}", op, device_name(asked.devices.front()),
                       list(distinct(left, [](const auto& entry) { return device_name(entry.device); })));
  }
  const auto& near = nearest(left, asked.sizes);
  return fmt::format(
      "kernels of {} are there, measured at {} on {} at the nearest, but none is valid for {} on the device asked for", op,
      sizes_of(near.problem.sizes), device_name(near.device), sizes_of(asked.sizes));
}

}  // namespace

std::string why_no_match(const std::vector<Database::ProblemSummary>& records, const Asked& asked) {
  std::string reason = reason_in_words(records, asked);
  if (const std::int64_t damaged = asked.damaged ? asked.damaged() : 0; damaged > 0)
    reason += fmt::format("; {} damaged: `nestor db check` says which",
                          damaged == 1 ? std::string("a record is") : fmt::format("{} records are", damaged));
  return printable(reason);  // it has names of foreign records
}

}  // namespace nestor
