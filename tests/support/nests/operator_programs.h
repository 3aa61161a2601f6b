// Tile programs of the built-in operators at representative schedules, and what they compute at small, odd sizes.
#pragma once

#include "api/operators.h"
#include "autotune/oracle/oracle.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace nestor::testing {

/// Sizes that no tile divides, by the roles that names have in kernels/.
inline Sizes odd_operator_sizes(const Nest& nest) {
  static const Sizes known{{"batch", 1},  {"heads", 2},   {"queries", 11}, {"keys", 19},     {"head_dim", 3},
                           {"window", 5}, {"prefix", 7},  {"group", 2},    {"key_heads", 1}, {"rows", 7},
                           {"width", 37}, {"hidden", 21}, {"n", 19},       {"value_dim", 5}, {"dilation", 2},
                           {"steps", 3},  {"height", 13}, {"m", 9},        {"k", 11},        {"cols", 23}};
  Sizes sizes;
  for (const SizeParam& size : nest.sizes) {
    const auto found = known.find(size.name);
    sizes[size.name] = found == known.end() ? std::max<std::int64_t>(size.min, 9) : found->second;
  }
  return sizes;
}

/// What a definition computes at some sizes, by the oracle, and whether a program does.
class DefinitionResult {
 public:
  DefinitionResult(const Nest& nest, const Sizes& sizes)
      : nest_(nest), sizes_(sizes), arguments_(make_arguments(nest, sizes, 3)) {
    for (const ScalarParam& scalar : nest.scalars) scalars_[scalar.name] = scalar.default_value;
    for (const auto& [name, tensor] : arguments_) {
      for (std::int64_t k = 0; k < tensor.elements(); ++k) start_[name].push_back(tensor.get(k));
    }
    samples_ = reference_samples(nest, sizes, scalars_, arguments_, 1 << 20, 1);
  }

  /// Runs the program by its definition. Empty when it computes the same; else what is wrong.
  std::string difference(const TileProgram& program) const {
    auto memory = start_;
    try {
      interpret(program, sizes_, scalars_, memory);
    } catch (const Error& error) {
      return error.what();
    }
    for (const OracleSample& sample : samples_) {
      const double found = memory.at(sample.tensor)[static_cast<std::size_t>(sample.linear)];
      const bool same = (std::isnan(found) && std::isnan(sample.value)) || found == sample.value ||
                        std::fabs(found - sample.value) <= 1e-2 * nest_.tolerance * (1 + std::fabs(sample.value));
      if (!same) return fmt::format("{} at {} is {}, not {}", sample.tensor, sample.linear, found, sample.value);
    }
    return "";
  }
  const Sizes& sizes() const { return sizes_; }

 private:
  Nest nest_;
  Sizes sizes_;
  HostTensors arguments_;
  std::map<std::string, double> scalars_;
  std::map<std::string, std::vector<double>> start_;
  std::vector<OracleSample> samples_;
};

struct OperatorSchedule {
  std::string name;  ///< "softmax f32, best guess"
  Schedule schedule;
  TileProgram program;
};

/// One variant of an operator with its spaces for the host and for a GPU, which are derived once.
class OperatorSchedules {
 public:
  OperatorSchedules(const std::string& op, const std::string& variant)
      : title_(op + " " + variant), nest_(load_operator(op, variant)), sizes_(odd_operator_sizes(nest_)) {
    bases_ = std::make_unique<BaseSchedules>(nest_for_tuning(nest_, sizes_));
  }

  const Nest& nest() const { return nest_; }
  const Sizes& sizes() const { return sizes_; }

  /// The original order; with `guesses`, the best ones of host and GPU and `random_points` further legal points of each space.
  std::vector<OperatorSchedule> schedules(bool guesses, int random_points, std::uint64_t seed) {
    std::vector<OperatorSchedule> all;
    const Schedule original = bases_->replay({});
    all.push_back({title_ + ", original order", original, build_tile_program(original)});
    if (!guesses) return all;
    std::mt19937_64 random(seed);
    for (const bool gpu : {false, true}) {
      const auto space = make_nest_space(*bases_, sizes_, gpu ? gpu_space_limits(90, 227 << 10, 132) : host_space_limits(2));
      const std::string target = gpu ? "GPU" : "host";
      const std::vector<Point> points = space->defaults();
      for (std::size_t k = 0; k < std::min<std::size_t>(points.size(), 2); ++k) {
        if (add(*space, points[k], title_ + ", best guess of the " + target, all)) break;
      }
      int wanted = random_points;
      for (int attempt = 0; attempt < 20 * random_points && wanted > 0; ++attempt) {
        Point point;
        for (const Parameter& parameter : space->parameters())
          point.push_back(std::uniform_int_distribution<int>(0, static_cast<int>(parameter.choices.size()) - 1)(random));
        if (add(*space, point, fmt::format("{}, random point {} of the {}", title_, attempt, target), all)) --wanted;
      }
    }
    return all;
  }

 private:
  bool add(const Space& space, const Point& point, const std::string& name, std::vector<OperatorSchedule>& all) {
    const Candidate candidate = space.candidate(point);
    if (!candidate.infeasible.empty()) return false;
    try {
      const Schedule schedule = bases_->replay(candidate.steps);
      all.push_back({name, schedule, build_tile_program(schedule)});
      return true;
    } catch (const UserError&) {
      return false;
    }
  }

  std::string title_;
  Nest nest_;
  Sizes sizes_;
  std::unique_ptr<BaseSchedules> bases_;
};

}  // namespace nestor::testing
