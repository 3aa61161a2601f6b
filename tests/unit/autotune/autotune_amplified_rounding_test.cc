// Recurrences that amplify rounding: limits of results follow what f32 makes of the definition itself, and no further.
#include "autotune/measure_schedules.h"
#include "autotune/oracle/oracle.h"
#include "autotune/oracle/reference.h"
#include "autotune/trial/trial_steps.h"
#include "support/nests/recurrence_nests.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nestor {
namespace {

using samples::number, samples::read, samples::operator*, samples::operator+, samples::operator-;

/// x[t + 1, s] = factor x[t, s] (1 - x[t, s]) from |sin(v[s])|: chaotic for a factor near 4, contractive for one below 3.
Nest logistic_map(double factor, std::int64_t times, std::int64_t width = 17) {
  const auto sine = samples::apply(ScalarOp::sin, read(0));
  return samples::NestBuilder("logistic", {{"times", times}, {"width", width}})
      .tensor("v", TensorRole::input, {"width"})
      .tensor("x", TensorRole::output, {"times", "width"})
      .statement("first[t, s] : t = 0 and 0 <= s < width", "x[t, s]", {"v[s]"}, sine * sine)
      .statement("later[t, s] : 0 <= t < times - 1 and 0 <= s < width", "x[t + 1, s]", {"x[t, s]"},
                 number(factor) * read(0) * (number(1) - read(0)))
      .build();
}

std::vector<OracleSample> samples_of(const Nest& nest) {
  const Sizes sizes = complete_sizes(nest, {});
  return reference_samples(nest, sizes, {}, make_inputs(nest, sizes, 3), 64, 3);
}

/// The largest limit of a row.
double limit_at(const std::vector<OracleSample>& samples, std::int64_t row, std::int64_t width = 17) {
  double most = 0;
  for (const OracleSample& sample : samples) {
    if (sample.linear / width == row) most = std::max(most, sample.bound);
  }
  return most;
}

TrialRecord measured(const Nest& nest) {
  MeasureOptions options;
  options.threads = 1;
  options.repetitions = 1;
  options.compile_timeout_s = options.run_timeout_s = 240;
  const Sizes sizes = complete_sizes(nest, {});
  return measure_schedule(Schedule(nest_for_tuning(nest, sizes)), nest, sizes, options);
}

TEST(AmplifiedRounding, AChaoticRecurrenceIsRightWhereAnyKernelWouldDiffer) {
  const Nest nest = logistic_map(3.99, 80);
  const auto samples = samples_of(nest);
  EXPECT_LT(limit_at(samples, 2), 1e-3) << "the first steps are held to what they are";
  EXPECT_GT(limit_at(samples, 70), 1) << "two roundings have nothing in common there";
  const TrialRecord trial = measured(nest);
  EXPECT_EQ(trial.status, TrialStatus::ok) << trial.reason;
  EXPECT_NE(trial.report.find("steps amplify rounding"), std::string::npos) << trial.report;
}

TEST(AmplifiedRounding, AContractiveRecurrenceIsHeldToItsToleranceInEachStep) {
  for (const double factor : {0.5, 2.0, 2.9}) {
    const Nest nest = logistic_map(factor, 600);
    const auto samples = samples_of(nest);
    ASSERT_FALSE(samples.empty());
    for (const OracleSample& sample : samples) EXPECT_LT(sample.bound, 0.02) << factor << " " << sample.linear;
    const TrialRecord trial = measured(nest);
    EXPECT_EQ(trial.status, TrialStatus::ok) << trial.reason;
    EXPECT_EQ(trial.report.find("steps amplify rounding"), std::string::npos) << trial.report;
  }
}

/// Estimates of errors overflow after some hundreds of steps; limits do not.
TEST(AmplifiedRounding, LongRecurrencesAreComparedToTheirEnd) {
  const Nest nest = samples::states(400, 24);
  const auto samples = samples_of(nest);
  const double last = limit_at(samples, 399, 24);
  EXPECT_GT(last, 0);
  EXPECT_LT(last, 0.5) << "of numbers up to 1";
}

/// What is wrong in a contractive recurrence is still seen: a limit that grows with the steps would hide it.
TEST(AmplifiedRounding, AWrongStepIsSeen) {
  const Nest nest = logistic_map(2.9, 300);
  Nest wrong = logistic_map(2.9 * 1.03, 300);
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_inputs(nest, sizes, 3);
  Reference other(wrong, sizes, {}, inputs);
  other.evaluate_all(1e9);
  int seen = 0, all = 0;
  for (const OracleSample& sample : samples_of(nest)) {
    ++all;
    seen += std::fabs(*other.value("x", sample.linear, 1e9) - sample.value) > sample.bound ? 1 : 0;
  }
  EXPECT_GT(seen, all / 2);
}

TEST(AmplifiedRounding, RoundedValuesAreThoseOfF32) {
  const Nest nest = logistic_map(3.7, 3);
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_inputs(nest, sizes, 3);
  Reference rounded(nest, sizes, {}, inputs);
  EXPECT_TRUE(rounded.recurrent());
  rounded.evaluate_rounded(1e9);
  for (std::int64_t k = 0; k < 3 * 17; ++k) {
    const double value = *rounded.value("x", k, 1e9);
    EXPECT_EQ(value, static_cast<double>(static_cast<float>(value)));
  }
  EXPECT_FALSE(Reference(samples::matmul(), complete_sizes(samples::matmul(), {}), {},
                         make_inputs(samples::matmul(), complete_sizes(samples::matmul(), {}), 3))
                   .recurrent());
}

/// h[t + 1] = 0.45331 h[t] + b, from the largest number of f32: where b makes up for what the factor takes, rounding decides about overflow.
TEST(AmplifiedRounding, NothingIsPromisedWhereRoundingMayOverflow) {
  const double largest = std::numeric_limits<float>::max();
  const auto limit_for = [&](double share) {
    const Nest nest =
        samples::NestBuilder("near_overflow", {{"times", 3}})
            .tensor("b", TensorRole::input, {"times"})
            .tensor("h", TensorRole::output, {"times"})
            .statement("first[t] : t = 0 and times > 0", "h[t]", {"b[t]"}, read(0))
            .statement("later[t] : 0 <= t < times - 1", "h[t + 1]", {"h[t]", "b[t + 1]"}, number(0.45331) * read(0) + read(1))
            .build();
    const Sizes sizes = complete_sizes(nest, {});
    HostTensors inputs = make_inputs(nest, sizes, 3);
    inputs.at("b").set(0, largest);
    inputs.at("b").set(1, largest * share);
    double most = 0;
    for (const OracleSample& sample : reference_samples(nest, sizes, {}, inputs, 64, 3))
      most = sample.linear == 1 ? sample.bound : most;
    return most;
  };
  EXPECT_FALSE(std::isfinite(limit_for(1 - 0.45331)));
  EXPECT_TRUE(std::isfinite(limit_for(0.5)));
}

}  // namespace
}  // namespace nestor
