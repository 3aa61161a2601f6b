// Points of a box that are in a domain, counted by sampling.
#include "autotune/space/work_floor.h"

#include "codegen/gpu/target/gpu_target.h"
#include "poly/isl/isl_tools.h"

#include <isl/point.h>
#include <isl/set.h>

#include <algorithm>
#include <random>
#include <vector>

namespace nestor {
namespace {

constexpr int kSamples = 500;
constexpr double kMargin = 0.1;  ///< of the box: exp(-2 * 500 * 0.1^2) < 1e-4
constexpr double kLanes = 128;   ///< f32 operations that a multiprocessor begins in a clock; 64 on some

/// The dims of a set without parameters, from the least to the greatest value of each.
class Box {
 public:
  explicit Box(const isl::set& set) : set_(set) {
    const int rank = set.is_empty() ? 0 : static_cast<int>(isl_set_dim(set.get(), isl_dim_set));
    points_ = set.is_empty() ? 0 : 1;
    for (int k = 0; k < rank; ++k) {
      const auto [low, high] = dim_range(set, k);
      ranges_.emplace_back(low, high);
      points_ *= static_cast<double>(high - low + 1);
    }
  }

  double points() const { return points_; }

  /// The share of the box's points that are in the set, less the margin.
  double least_share() const {
    std::mt19937_64 random(1);
    auto ranges = ranges_;
    int inside = 0;
    for (int sample = 0; sample < kSamples; ++sample) {
      isl_point* point = isl_point_zero(isl_set_get_space(set_.get()));
      for (int k = 0; k < static_cast<int>(ranges.size()); ++k) {
        const auto at = static_cast<long>(ranges[static_cast<std::size_t>(k)](random));
        point = isl_point_set_coordinate_val(point, isl_dim_set, k, isl_val_int_from_si(isl_set_get_ctx(set_.get()), at));
      }
      if (isl::manage(isl_set_from_point(point)).is_subset(set_)) ++inside;
    }
    return std::max(0.0, static_cast<double>(inside) / kSamples - kMargin);
  }

 private:
  isl::set set_;
  std::vector<std::uniform_int_distribution<std::int64_t>> ranges_;
  double points_ = 0;
};

}  // namespace

double least_instances(const Nest& nest, const Sizes& sizes) {
  std::vector<Box> boxes;
  for (const Statement& statement : nest.statements) boxes.emplace_back(at_sizes(statement.domain, sizes));
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.points() > b.points(); });
  double most = 0;
  for (const Box& box : boxes) {
    if ((1 - kMargin) * box.points() <= most) break;  // nor has any smaller one more
    most = std::max(most, box.points() * box.least_share());
  }
  return most;
}

double least_scalar_ms(double instances, int units) { return instances / (units * kLanes * nvptx::kClocksPerMs); }

}  // namespace nestor
