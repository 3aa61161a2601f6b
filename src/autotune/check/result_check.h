// The check of results in full: every output element at small sizes that reach all of a kernel's code, with several data sets.
#pragma once

#include "autotune/check/check_sizes.h"
#include "autotune/check/comparison.h"
#include "autotune/check/data_sets.h"
#include "autotune/oracle/sample_error.h"
#include "autotune/tensors/host_tensor.h"
#include "poly/nest/nest.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

class DefinitionCost;
class Reference;

/// Sizes and data with which a kernel runs once.
struct CheckCase {
  Sizes sizes;
  DataSet data;
  std::string str() const;  ///< "keys=65, queries=3; NaN in k"
};

/// What was compared.
struct CheckReport {
  std::string wrong;           ///< the first thing that was: where, and in which case; "": nothing
  double worst_error = 0;      ///< as a fraction of what is allowed
  bool lost_infinity = false;  ///< what was wrong is NaN in place of infinities, and nothing else
  Comparison compared;         ///< in all cases
  std::vector<CheckCase> cases;
  /// "12,345 elements (of 12 nothing is promised) at 9 sizes (keys 1..193, queries 1..129), 12 data sets; worst error 0.31 of what is allowed"
  std::string str() const;
};

/// What one run of a kernel came to, apart from its results.
struct CheckRun {
  bool refused = false;  ///< the launch needs other sizes (rows that are multiples of 16 bytes apart)
  std::string damage{};  ///< what it did that it must not, such as writing around an argument
};

/// Runs a kernel once on `tensors`, whose outputs are poisoned, and puts its results there.
using KernelRun = std::function<CheckRun(const Sizes& sizes, HostTensors& tensors)>;

/// Inputs and reference values of one problem's cases, each made once, when first needed, by all processors.
class ResultCheck {
 public:
  /// `definition`: the nest as defined, not as rewritten.
  ResultCheck(Nest definition, std::map<std::string, double> scalars, std::uint64_t seed);
  ~ResultCheck();
  ResultCheck(ResultCheck&&) noexcept;

  /// Every size with ordinary data, then one with all data sets. Says the first case that goes wrong. Sizes that a launch refuses are
  /// rounded up to multiples of 8, lengths of rows before others, or left out where that does not help.
  CheckReport run(const CheckSizes& sizes, const KernelRun& kernel);

  struct Expected {
    HostTensors inputs;  ///< outputs have a shape, no bytes
    std::vector<OracleSample> samples;
    Comparison compared;
  };
  const Expected& expected(const CheckCase& wanted);

 private:
  class Workers;
  /// Makes what `expected` gives for all of them.
  void prepare(const std::vector<CheckCase>& cases);
  struct Launched {
    CheckCase wanted;
    HostTensors tensors;  ///< inputs, and what the kernel made of the outputs
    CheckRun run;
    std::uint32_t generation = 0;  ///< of the poison that outputs had before
  };
  /// Nothing when the launch was refused.
  std::optional<Launched> launch(const CheckCase& wanted, const KernelRun& kernel);
  /// The same with ordinary data, at sizes rounded up where it is.
  std::optional<Launched> launch_near(const Sizes& sizes, const std::vector<std::string>& dynamic, const KernelRun& kernel);
  void compare(const std::vector<Launched>& all, CheckReport& report);
  /// Bytes that so many cases of the sizes keep together.
  std::int64_t bytes_of_cases(const Sizes& sizes, std::int64_t count) const;
  static bool has_room(std::int64_t bytes);
  /// Does one element take about a second, as a mean over an image of what is computed does, and its neighbours much less?
  bool costs_seconds(const Sizes& sizes);
  /// Is there memory for all of these at once?
  bool fit_together(const std::vector<Sizes>& cases) const;
  /// Elements that must stay finite: masked places of the input that has special values.
  ElementLists finite_at(const CheckCase& wanted);
  /// Those of `dynamic` that the last index of an argument depends on.
  std::vector<std::string> lengths_of_rows(const Sizes& sizes, const std::vector<std::string>& dynamic) const;
  std::optional<Sizes> rounded_up(Sizes sizes, const std::vector<std::string>& names) const;

  Nest definition_;
  std::map<std::string, double> scalars_;
  std::uint64_t seed_;
  std::uint32_t generation_ = 0;  ///< of the poison; another one each run
  std::map<std::string, Expected> expected_;
  bool keeps_ = true;                     ///< what is expected, for other kernels; false where memory is short
  std::unique_ptr<DefinitionCost> cost_;  ///< made when first needed
  std::unique_ptr<MaskedFactors> masked_;
  std::map<Sizes, ElementLists> masked_places_;
  std::unique_ptr<Workers> workers_;  ///< made when first needed
};

}  // namespace nestor
