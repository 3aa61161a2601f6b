// An operator's definition at given sizes, with random inputs: what every contender of a race computes.
#pragma once

#include "race.h"

#include "frontend/halide_frontend.h"
#include "nestor/types.h"

#include <map>

namespace nestor::bench {

class Problem {
 public:
  /// f32 variants; sizes that are not given take their defaults. Throws UserError for unknown names.
  Problem(const std::string& op, const std::string& variant, const Sizes& sizes);

  /// Inputs by name, filled with random numbers in [-1, 1).
  const std::map<std::string, Halide::Buffer<>>& inputs() const { return inputs_; }
  /// Results by name, memory of the calling process.
  std::map<std::string, Halide::Buffer<>>& outputs() { return outputs_; }
  std::size_t output_elements() const;
  const Sizes& sizes() const { return sizes_; }
  double tolerance() const { return definition_.tolerance; }

  /// The definition scheduled by one of Halide's autoschedulers, compiled for this machine.
  Prepared prepare_halide(const std::string& scheduler, int threads);
  std::vector<std::span<const float>> results();

 private:
  void set_scalar(const HalideScalar& scalar);
  int value_of(const Halide::Expr& extent) const;
  void fill(HalideInput& input);
  void reserve(HalideOutput& output);

  HalideDefinition definition_;
  Sizes sizes_;
  std::map<std::string, Halide::Buffer<>> inputs_, outputs_;
  std::vector<Halide::Buffer<>> results_;  ///< in the definition's order
};

}  // namespace nestor::bench
