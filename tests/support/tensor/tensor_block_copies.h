// Copies by all threads of a block, as sm_80 has them: each group of threads copies its part of a tile, knows of its own copies by batches,
// and of those of others by barriers alone. Says so when a tile may be read before all of it has arrived, or a stage be overwritten while it
// may be read, in whatever order groups run: by the barriers between, not by what happened.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

class BlockCopies {
 public:
  using Tile = std::size_t;  ///< what tells tiles apart
  explicit BlockCopies(int groups) : groups_(static_cast<std::size_t>(groups)) {}

  void copy(int group, int ring, int stage, Tile tile) {
    Stage& place = stage_at(ring, stage);
    // Other threads of the same group read and copy, too.
    for (const int read : place.last_read) {
      if (read >= of(group).barriers) fault_ = "a stage is overwritten while it may be read";
    }
    place.parts[static_cast<std::size_t>(group)] = {tile, kUnderWay};
    of(group).open.emplace_back(ring, stage);
  }
  void commit(int group) { of(group).batches.push_back(std::exchange(of(group).open, {})); }
  void wait(int group, int count) {
    Group& own = of(group);
    for (; static_cast<int>(own.batches.size()) > count; own.batches.pop_front()) {
      for (const auto& [ring, stage] : own.batches.front())
        stage_at(ring, stage).parts[static_cast<std::size_t>(group)].arrived = own.barriers;
    }
  }
  /// The group has come to its next barrier. True: so have the others, and it may pass.
  bool arrive(int group) {
    const int next = of(group).reached = of(group).barriers + 1;
    return std::all_of(groups_.begin(), groups_.end(), [&](const Group& other) { return other.reached >= next; });
  }
  void pass(int group) { of(group).barriers = of(group).reached; }
  Tile read(int group, int ring, int stage) {
    Stage& place = stage_at(ring, stage);
    place.last_read[static_cast<std::size_t>(group)] = of(group).barriers;
    for (const Part& part : place.parts) {
      if (part.arrived == kUnderWay || part.arrived >= of(group).barriers) fault_ = "a tile is read before all of it has arrived";
      if (part.tile != place.parts.front().tile) fault_ = "a tile is read in part";
    }
    return place.parts.front().tile;
  }
  const std::string& fault() const { return fault_; }

 private:
  static constexpr int kUnderWay = -1;
  struct Part {
    Tile tile = 0;
    int arrived = kUnderWay;  ///< behind how many barriers its copier has waited for it
  };
  struct Stage {
    std::vector<Part> parts;     ///< by group
    std::vector<int> last_read;  ///< behind how many barriers, by group
  };
  using Batch = std::vector<std::pair<int, int>>;
  struct Group {
    int barriers = 0, reached = 0;
    Batch open;
    std::deque<Batch> batches;
  };

  Group& of(int group) { return groups_[static_cast<std::size_t>(group)]; }
  Stage& stage_at(int ring, int stage) {
    Stage& place = stages_[{ring, stage}];
    place.parts.resize(groups_.size());
    place.last_read.resize(groups_.size(), -1);
    return place;
  }

  std::vector<Group> groups_;
  std::map<std::pair<int, int>, Stage> stages_;
  std::string fault_;
};

}  // namespace nestor::testing
