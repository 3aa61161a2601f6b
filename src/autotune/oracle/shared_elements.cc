// What one element needs, level by level, in forked processes.
#include "autotune/oracle/shared_elements.h"

#include "support/system/child_processes.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <unordered_set>

namespace nestor {
namespace {

constexpr double kAlone = 1e6;  ///< elementary evaluations (a few nanoseconds each) that are not worth a fork
constexpr double kMostEvaluations = 4e9;
constexpr std::size_t kRun = 16;  ///< neighbours that one process computes: they lie beside each other in memory
constexpr int kMostDepth = 64;
constexpr double kPatience = 2;  ///< processes that do not stop by themselves are ended after so many times as long

using Clock = std::chrono::steady_clock;

bool follows(const Reference::Element& before, const Reference::Element& here) {
  return here.tensor == before.tensor && here.version == before.version && here.linear == before.linear + 1;
}

/// What many elements need, each once. Of neighbours in a row, those between two others are looked at where one in their middle needs
/// something new: a row of a product needs one row of its first factor, and all of the second.
class NeedsOfMany {
 public:
  NeedsOfMany(Reference& reference, std::size_t most) : reference_(reference), most_(most) {}

  /// Of the elements from place `first` on, until there are enough. The place of the first one that was not looked at.
  std::size_t collect(const std::vector<Reference::Element>& elements, std::size_t first) {
    while (first < elements.size() && found_.size() < most_) {
      std::size_t end = first + 1;
      while (end < elements.size() && follows_in_row(elements[end - 1], elements[end])) ++end;
      // Where some rows needed nothing new, few of the next are looked at: what is missed is computed by who needs it.
      const bool looks = rows_without_ < kFewRows || rows_without_ % kOneOf == 0;
      if (looks && reference_.needs_others(elements[first])) {
        const std::size_t before = found_.size();
        add(elements[first]);
        if (end - first > 1) add(elements[end - 1]);
        add_between(elements, first, end - 1);
        rows_without_ = found_.size() > before ? 0 : rows_without_ + 1;
      } else {
        ++rows_without_;
      }
      first = end;
    }
    return first;
  }

  std::vector<Reference::Element> take() {
    std::sort(found_.begin(), found_.end());
    return std::move(found_);
  }

 private:
  bool follows_in_row(const Reference::Element& before, const Reference::Element& here) const {
    return follows(before, here) && here.linear % std::max<std::int64_t>(reference_.row_length(here.tensor), 1) != 0;
  }

  /// Was something of it new?
  bool add(const Reference::Element& element) {
    const std::size_t before = found_.size();
    for (const Reference::Element& each : reference_.needed(element, most_).elements) {
      const std::uint64_t key = (static_cast<std::uint64_t>(each.linear) << 18U) |
                                (static_cast<std::uint64_t>(each.tensor) << 6U) | static_cast<std::uint64_t>(each.version);
      if (seen_.insert(key).second) found_.push_back(each);
    }
    return found_.size() > before;
  }

  void add_between(const std::vector<Reference::Element>& elements, std::size_t low, std::size_t high) {
    if (high - low < 2 || found_.size() >= most_) return;
    const std::size_t middle = low + (high - low) / 2;
    if (!add(elements[middle])) return;
    add_between(elements, low, middle);
    add_between(elements, middle, high);
  }

  static constexpr int kFewRows = 4, kOneOf = 32;

  Reference& reference_;
  std::size_t most_;
  int rows_without_ = 0;
  std::vector<Reference::Element> found_;
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace

SharedElements::SharedElements(Reference& reference, int processes, double most_seconds, const std::atomic<bool>* stop,
                               std::size_t most_elements)
    : reference_(reference),
      processes_(processes),
      most_seconds_(most_seconds),
      most_elements_(most_elements),
      stop_(stop),
      possible_(processes > 1 && reference.share_elements()) {}

bool SharedElements::prepare(const std::string& tensor, std::int64_t linear) {
  return possible_ && prepare(reference_.final_element(tensor, linear), 0, false);
}

bool SharedElements::prepare_all() {
  const auto start = Clock::now();
  bool forked = false;
  for (const Reference::Element& last : reference_.remembered_tensors()) {
    for (std::int64_t first = 0; first <= last.linear && possible_;) {
      if (std::chrono::duration<double>(Clock::now() - start).count() > most_seconds_) return forked;
      std::vector<Reference::Element> slice;
      for (; first <= last.linear && slice.size() < most_elements_; ++first) slice.push_back({last.tensor, last.version, first});
      forked = compute(slice) || forked;
    }
  }
  return forked;
}

bool SharedElements::prepare(const Reference::Element& element, int depth, bool takes_long) {
  if (depth > kMostDepth || (!takes_long && reference_.compute_within(element, kAlone))) return false;
  const auto start = Clock::now();
  bool forked = false, complete = false;
  std::size_t chunks = 0;
  while (possible_ && !complete && std::chrono::duration<double>(Clock::now() - start).count() < most_seconds_) {
    if (!prepare_some(element, depth, complete, chunks)) break;
    forked = true;
  }
  return forked;
}

bool SharedElements::prepare_some(const Reference::Element& element, int depth, bool& complete, std::size_t& chunks) {
  bool forked = false;
  const Reference::Needed needed = reference_.needed(element, most_elements_, chunks);
  const std::vector<Reference::Element>& all = needed.elements;
  complete = needed.complete;
  // One of each tensor first: what all of its elements need is computed for it, by all processes.
  for (std::size_t k = 0; k < all.size(); ++k) {
    const bool first = k == 0 || all[k].tensor != all[k - 1].tensor || all[k].version != all[k - 1].version;
    if (first && prepare(all[k], depth + 1, all.size() == 1)) forked = true;
  }
  std::vector<Reference::Element> left;
  std::copy_if(all.begin(), all.end(), std::back_inserter(left), [&](const auto& each) { return !reference_.known(each); });
  if (left.size() >= static_cast<std::size_t>(processes_)) return compute_all(left, depth + 1) || forked;
  for (const Reference::Element& each : left) {
    if (prepare(each, depth + 1, false)) forked = true;
  }
  return forked;
}

bool SharedElements::compute_run(const std::vector<Reference::Element>& elements, std::size_t first, std::size_t end) {
  while (first < end) {
    std::size_t beside = first + 1;
    while (beside < end && follows(elements[beside - 1], elements[beside])) ++beside;
    const bool products = reference_.compute_products(elements[first], static_cast<int>(beside - first), kMostEvaluations);
    for (; first < beside; ++first) {
      if (!products && !reference_.compute_within(elements[first], kMostEvaluations)) return false;
    }
  }
  return true;
}

bool SharedElements::compute_all(const std::vector<Reference::Element>& elements, int depth) {
  const auto start = Clock::now();
  bool forked = false;
  for (std::size_t first = 0; first < elements.size() && possible_;) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > most_seconds_) break;
    std::size_t end = elements.size();
    if (depth < kMostDepth) {
      NeedsOfMany needs(reference_, most_elements_);
      end = needs.collect(elements, first);
      const std::vector<Reference::Element> below = needs.take();
      if (below.size() >= static_cast<std::size_t>(processes_)) forked = compute_all(below, depth + 1) || forked;
    }
    std::vector<Reference::Element> left;
    for (; first < end; ++first) {
      if (!reference_.known(elements[first])) left.push_back(elements[first]);
    }
    if (!left.empty() && possible_) forked = compute(left) || forked;
  }
  return forked;
}

std::vector<std::size_t> SharedElements::runs_of(const std::vector<Reference::Element>& elements, std::size_t first,
                                                 std::size_t step) const {
  std::vector<std::size_t> runs;
  for (std::size_t k = first; k < elements.size(); k += step) runs.push_back(k);
  // Column by column: rows of a product share what their columns read.
  const auto column = [&](std::size_t k) {
    return elements[k].linear % std::max<std::int64_t>(reference_.row_length(elements[k].tensor), 1);
  };
  std::stable_sort(runs.begin(), runs.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(elements[a].tensor, elements[a].version, column(a)) <
           std::tuple(elements[b].tensor, elements[b].version, column(b));
  });
  return runs;
}

bool SharedElements::compute(const std::vector<Reference::Element>& elements) {
  const std::size_t run = std::clamp<std::size_t>(elements.size() / static_cast<std::size_t>(processes_), 1, kRun);
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  for (int p = 0; p < processes_; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      end_with_parent(parent);
      try {
        const auto start = Clock::now();
        for (const std::size_t k :
             runs_of(elements, static_cast<std::size_t>(p) * run, static_cast<std::size_t>(processes_) * run)) {
          const std::size_t end = std::min(k + run, elements.size());
          if (!compute_run(elements, k, end)) _exit(1);
          if (std::chrono::duration<double>(Clock::now() - start).count() > most_seconds_) break;
        }
        _exit(0);
      } catch (...) {
        _exit(1);
      }
    }
    if (child > 0) children.push_back(child);
  }
  const bool forked = !children.empty();
  // One that failed leaves its share to whoever needs it.
  possible_ = wait_for_children(std::move(children), kPatience * most_seconds_, stop_);
  return forked;
}

}  // namespace nestor
