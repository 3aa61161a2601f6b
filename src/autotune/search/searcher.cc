// Exhaustive, random and evolutionary search.
#include "autotune/search/searcher.h"

#include <algorithm>
#include <set>

namespace nestor {
namespace {

/// splitmix64: the same sequence on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }
  bool chance(int of) { return below(of) == 0; }

 private:
  std::uint64_t state_;
};

/// Defaults first, no point twice; subclasses say what follows.
class BasicSearcher : public Searcher {
 public:
  explicit BasicSearcher(const Space& space) : space_(space), defaults_(space.defaults()) {
    defaults_.insert(defaults_.begin() + (defaults_.empty() ? 0 : 1), space.baseline());
  }

  std::optional<Point> propose() final {
    while (next_default_ < defaults_.size()) {
      const Point& point = defaults_[next_default_++];
      if (seen_.insert(point).second) return point;
    }
    return propose_more();
  }

  void report(const Point& point, std::optional<double> ms) override {
    seen_.insert(point);
    learn(point, ms);
  }

 protected:
  virtual std::optional<Point> propose_more() = 0;
  virtual void learn(const Point&, std::optional<double>) {}
  const std::vector<Point>& defaults() const { return defaults_; }
  bool is_new(const Point& point) { return seen_.insert(point).second; }
  bool all_seen() const { return static_cast<double>(seen_.size()) >= point_count(space_); }

  Point random_point(Random& random) const {
    Point point;
    for (const Parameter& parameter : space_.parameters())
      point.push_back(random.below(static_cast<int>(parameter.choices.size())));
    return point;
  }

  /// The first unseen point in counting order: the way out when random draws hit only seen ones.
  std::optional<Point> first_unseen() {
    Point point(space_.parameters().size(), 0);
    do {
      if (is_new(point)) return point;
    } while (advance(point));
    return std::nullopt;
  }

  /// Counts up, the last parameter fastest; false after the last point.
  bool advance(Point& point) const {
    for (std::size_t k = point.size(); k-- > 0;) {
      if (++point[k] < static_cast<int>(space_.parameters()[k].choices.size())) return true;
      point[k] = 0;
    }
    return false;
  }

  const Space& space_;

 private:
  std::vector<Point> defaults_;
  std::size_t next_default_ = 0;
  std::set<Point> seen_;
};

class ExhaustiveSearcher : public BasicSearcher {
 public:
  explicit ExhaustiveSearcher(const Space& space) : BasicSearcher(space), point_(space.parameters().size(), 0) {}

 private:
  std::optional<Point> propose_more() override {
    while (!done_) {
      Point point = point_;
      done_ = !advance(point_);
      if (is_new(point)) return point;
    }
    return std::nullopt;
  }

  Point point_;
  bool done_ = false;
};

constexpr int kDraws = 200;

class RandomSearcher : public BasicSearcher {
 public:
  RandomSearcher(const Space& space, std::uint64_t seed) : BasicSearcher(space), random_(seed) {}

 private:
  std::optional<Point> propose_more() override {
    if (all_seen()) return std::nullopt;
    for (int draw = 0; draw < kDraws; ++draw) {
      Point point = random_point(random_);
      if (is_new(point)) return point;
    }
    return first_unseen();
  }

  Random random_;
};

/// Steady state: parents are drawn by tournament from the fastest so far; a child is one of them with few coordinates
/// changed (mostly to neighbours), or a mix of two. Now and then a fresh point near a default keeps the search from settling.
class EvolutionarySearcher : public BasicSearcher {
 public:
  EvolutionarySearcher(const Space& space, std::uint64_t seed) : BasicSearcher(space), random_(seed) {}

 private:
  struct Individual {
    double ms;
    Point point;
    bool operator<(const Individual& other) const { return ms != other.ms ? ms < other.ms : point < other.point; }
  };
  static constexpr int kPopulation = 16;
  static constexpr int kWarmUp = 6;

  void learn(const Point& point, std::optional<double> ms) override {
    if (!ms) return;
    population_.insert({*ms, point});
    if (population_.size() > kPopulation) population_.erase(std::prev(population_.end()));
  }

  std::optional<Point> propose_more() override {
    if (all_seen()) return std::nullopt;
    for (int draw = 0; draw < kDraws; ++draw) {
      const bool fresh = population_.empty() || random_draws_ < kWarmUp || random_.chance(10);
      Point point = fresh ? sketch() : child(draw);
      if (!is_new(point)) continue;
      random_draws_ += fresh ? 1 : 0;
      return point;
    }
    return first_unseen();
  }

  /// A default with a third of its coordinates drawn anew: sensible structure, and not what was tried before.
  Point sketch() {
    Point point = random_point(random_);
    if (defaults().empty()) return point;
    const Point& base = defaults()[random_.below(static_cast<int>(defaults().size()))];
    for (std::size_t k = 0; k < point.size(); ++k) {
      if (!random_.chance(3)) point[k] = base[k];
    }
    return point;
  }

  const Point& parent() {
    const int count = static_cast<int>(population_.size());
    const int position = std::min({random_.below(count), random_.below(count), random_.below(count)});
    return std::next(population_.begin(), position)->point;
  }

  /// The more draws failed, the more coordinates change.
  Point child(int draw) {
    Point point = parent();
    if (random_.chance(3)) {
      const Point& other = parent();
      for (std::size_t k = 0; k < point.size(); ++k) {
        if (random_.chance(2)) point[k] = other[k];
      }
    }
    const int changes = 1 + random_.below(2) + draw / 40;
    for (int change = 0; change < changes; ++change) mutate(point);
    return point;
  }

  void mutate(Point& point) {
    if (point.empty()) return;
    // Parameters without a choice would waste the draw.
    for (int attempt = 0; attempt < 8; ++attempt) {
      const int k = random_.below(static_cast<int>(point.size()));
      const int count = static_cast<int>(space_.parameters()[k].choices.size());
      if (count < 2) continue;
      if (random_.chance(3)) {
        point[k] = random_.below(count);
      } else {
        point[k] = std::clamp(point[k] + (random_.chance(2) ? 1 : -1), 0, count - 1);
      }
      return;
    }
  }

  Random random_;
  int random_draws_ = 0;
  std::set<Individual> population_;
};

}  // namespace

std::unique_ptr<Searcher> make_searcher(SearcherKind kind, const Space& space, std::uint64_t seed) {
  switch (kind) {
    case SearcherKind::exhaustive:
      return std::make_unique<ExhaustiveSearcher>(space);
    case SearcherKind::random:
      return std::make_unique<RandomSearcher>(space, seed);
    case SearcherKind::evolutionary:
      break;
  }
  return std::make_unique<EvolutionarySearcher>(space, seed);
}

}  // namespace nestor
