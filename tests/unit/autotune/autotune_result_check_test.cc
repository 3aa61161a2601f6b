// Sizes, data and peers of the check of results.
#include "autotune/check/result_check.h"
#include "autotune/oracle/oracle.h"
#include "autotune/trial/trial.h"

#include "autotune/check/peer_check.h"
#include "autotune/check/winners.h"
#include "autotune/oracle/reference.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nestor {
namespace {

using ::testing::HasSubstr;

/// y[i, j] = 2 x[i, j]
Nest doubled(std::int64_t rows, std::int64_t width) {
  return samples::NestBuilder("doubled", {{"r", rows}, {"w", width}})
      .tensor("x", TensorRole::input, {"r", "w"})
      .tensor("y", TensorRole::output, {"r", "w"})
      .statement("S[i, j] : 0 <= i < r and 0 <= j < w", "y[i, j]", {"x[i, j]"},
                 ScalarExpr::make(ScalarOp::mul, {samples::number(2), samples::read(0)}))
      .build();
}

CheckSizes sizes_of(const Nest& nest, const std::vector<std::string>& steps) {
  Schedule schedule(nest);
  for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
  const TileProgram program = build_tile_program(schedule);
  return check_sizes({periods_from_text(periods_to_text(size_periods(program))), program.fixed_sizes, program.valid}, nest,
                     complete_sizes(nest, {}));
}

std::set<std::int64_t> values_of(const CheckSizes& sizes, const std::string& name) {
  std::set<std::int64_t> values;
  for (const Sizes& each : sizes.sizes) values.insert(each.at(name));
  return values;
}

TEST(CheckSizesTest, LoopsRunZeroToThreeTimesOverFullAndPartialTiles) {
  const CheckSizes sizes = sizes_of(doubled(4096, 4096), {"split(S.i, 32, io, ii)", "split(S.j, 20, jo, ji)"});
  for (const std::int64_t value : {1, 31, 32, 33, 64, 65, 97}) EXPECT_TRUE(values_of(sizes, "r").contains(value)) << value;
  for (const std::int64_t value : {1, 19, 20, 21, 40, 41, 61}) EXPECT_TRUE(values_of(sizes, "w").contains(value)) << value;
  EXPECT_GT(sizes.sizes.at(sizes.varied).at("r"), 32);
  EXPECT_GT(sizes.sizes.at(sizes.varied).at("w"), 20);
}

TEST(CheckSizesTest, FixedSizesStayAndTheContextHolds) {
  const Nest nest = fix_sizes(samples::scores_softmax_values(samples::Mask::domain, 64, 64, 16), {{"D", 16}});
  for (const Sizes& sizes : sizes_of(nest, {}).sizes) {
    EXPECT_EQ(sizes.at("D"), 16);
    EXPECT_NO_THROW(complete_sizes(nest, sizes));
  }
}

TEST(DataSetsTest, SpecialValuesComeOneByOneAndByTheRow) {
  const Nest nest = doubled(64, 16);
  std::set<DataKind> kinds;
  for (const DataSet& data : data_sets(nest)) kinds.insert(data.kind);
  EXPECT_EQ(kinds.size(), 9U);
  for (const DataSet& data : data_sets(nest)) {
    const HostTensors tensors = make_data(nest, {{"r", 64}, {"w", 16}}, data, 1);
    std::set<int> counts;
    for (std::int64_t row = 0; row < 64; ++row) {
      int count = 0;
      for (std::int64_t k = 0; k < 16; ++k) count += std::isfinite(tensors.at("x").get(16 * row + k)) ? 0 : 1;
      counts.insert(count);
    }
    const bool special =
        data.kind == DataKind::nan || data.kind == DataKind::plus_infinity || data.kind == DataKind::minus_infinity;
    EXPECT_EQ(counts, special ? (std::set<int>{0, 1, 12, 16}) : std::set<int>{0}) << data.str();
  }
}

/// Runs y = 2 x by hand, then `also`.
KernelRun by_hand(std::function<void(const Sizes&, const HostTensor&, HostTensor&)> also) {
  return [also = std::move(also)](const Sizes& sizes, HostTensors& tensors) {
    HostTensor& y = tensors.at("y");
    for (std::int64_t k = 0; k < y.elements(); ++k) y.set(k, 2 * tensors.at("x").get(k));
    also(sizes, tensors.at("x"), y);
    return CheckRun{};
  };
}

TEST(ResultCheckRun, EveryCaseMustBeRight) {
  const Nest nest = doubled(64, 64);
  const CheckSizes sizes = sizes_of(nest, {"split(S.i, 8, io, ii)"});
  ResultCheck check(nest, {}, 1);
  const CheckReport right = check.run(sizes, by_hand([](const auto&, const auto&, auto&) {}));
  EXPECT_EQ(right.wrong, "");
  EXPECT_EQ(right.worst_error, 0);
  EXPECT_GE(right.cases.size(), sizes.sizes.size() + 8);
  EXPECT_THAT(right.str(), HasSubstr("r 1 to 25"));
  const auto wrong = [&](const KernelRun& kernel) { return check.run(sizes, kernel).wrong; };
  EXPECT_THAT(
      wrong(by_hand([](const Sizes& at, const auto&, HostTensor& y) { y.set(0, y.get(0) + (at.at("r") == 25 ? 1 : 0)); })),
      HasSubstr("r=25"));
  EXPECT_THAT(wrong(by_hand([](const auto&, const HostTensor&, HostTensor& y) {
                for (std::int64_t k = 0; k < y.elements(); ++k) y.set(k, std::isnan(y.get(k)) ? 0 : y.get(k));
              })),
              HasSubstr("NaN in x"));
  HostTensor last;
  EXPECT_THAT(wrong(by_hand([&](const auto&, const auto&, HostTensor& y) {
                if (last.shape == y.shape) std::swap(last.bytes, y.bytes);
                last = y;
              })),
              HasSubstr("data: y["));
}

/// o[i] = sum over j <= i of w[i, j] v[j], with w = 2 x.
Nest masked_row_sum() {
  const std::string seen = "0 <= i < r and 0 <= j < c and j <= i";
  const ScalarExpr twice = ScalarExpr::make(ScalarOp::mul, {samples::number(2), samples::read(0)});
  return samples::NestBuilder("masked_sum", {{"r", 24}, {"c", 16}})
      .tensor("x", TensorRole::input, {"r", "c"})
      .tensor("v", TensorRole::input, {"c"})
      .tensor("w", TensorRole::temporary, {"r", "c"})
      .tensor("o", TensorRole::output, {"r"})
      .statement("W[i, j] : " + seen, "w[i, j]", {"x[i, j]"}, twice)
      .statement("O[i] : 0 <= i < r", "o[i]", {}, samples::number(0))
      .statement("S[i, j] : " + seen, "o[i]", {"w[i, j]", "v[j]"},
                 ScalarExpr::make(ScalarOp::mul, {samples::read(0), samples::read(1)}), ReductionOp::add)
      .build();
}

/// Multiplies whole rows, with weights of 0 behind the mask; `value` is what it makes of an element of v.
KernelRun whole_rows(double (*value)(double)) {
  return [value](const Sizes& sizes, HostTensors& tensors) {
    for (std::int64_t i = 0; i < sizes.at("r"); ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < sizes.at("c"); ++j)
        sum += (j <= i ? 2 * tensors.at("x").get(i * sizes.at("c") + j) : 0) * value(tensors.at("v").get(j));
      tensors.at("o").set(i, sum);
    }
    return CheckRun{};
  };
}

/// A kernel may multiply what the mask hides by 0: those places are finite. Where every row sees it, v is NaN and infinite like others.
TEST(ResultCheckRun, MaskedPlacesOfFactorsAreFiniteAndOthersAreNot) {
  const Nest nest = masked_row_sum();
  const CheckSizes sizes = sizes_of(nest, {"split(S.i, 8, io, ii)"});
  ResultCheck check(nest, {}, 1);
  EXPECT_EQ(check.run(sizes, whole_rows([](double v) { return v; })).wrong, "");
  EXPECT_THAT(check.run(sizes, whole_rows([](double v) { return std::isfinite(v) ? v : 0; })).wrong, HasSubstr(" in v"));
}

/// out[c] = sum over a and b of x[a] z[b], plus w[c]: an element takes about a second.
Nest sum_of_pairs() {
  const std::string cell = "0 <= c < 4";
  return samples::NestBuilder("sum_of_pairs", {{"n", 7200}})
      .tensor("x", TensorRole::input, {"n"})
      .tensor("z", TensorRole::input, {"n"})
      .tensor("w", TensorRole::input, {"4"})
      .tensor("out", TensorRole::output, {"4"})
      .statement("init[c] : " + cell, "out[c]", {"w[c]"}, samples::read(0))
      .statement("sum[c, a, b] : " + cell + " and 0 <= a < n and 0 <= b < n", "out[c]", {"x[a]", "z[b]"},
                 ScalarExpr::make(ScalarOp::mul, {samples::read(0), samples::read(1)}), ReductionOp::add)
      .build();
}

TEST(ResultCheckRun, WhereOneElementTakesASecondThereAreTwoDataSets) {
  const Nest nest = sum_of_pairs();
  ResultCheck check(nest, {}, 1);
  const CheckSizes sizes{{{{"n", 7200}}}, 0, {}};
  int launches = 0;
  const auto kernel = [&](double factor) {
    return [&launches, factor](const Sizes&, HostTensors& tensors) {
      ++launches;
      const HostTensor &x = tensors.at("x"), &z = tensors.at("z");
      double pairs = 0, sum = 0;
      for (std::int64_t k = 0; k < z.elements(); ++k) sum += z.get(k);
      for (std::int64_t a = 0; a < x.elements(); ++a) {
        if (std::isfinite(sum) && std::isfinite(x.get(a))) {
          pairs += x.get(a) * sum;
        } else {
          for (std::int64_t b = 0; b < z.elements(); ++b) pairs += x.get(a) * z.get(b);
        }
      }
      for (std::int64_t c = 0; c < 4; ++c) tensors.at("out").set(c, factor * (tensors.at("w").get(c) + pairs));
      return CheckRun{};
    };
  };
  const CheckReport report = check.run(sizes, kernel(1));
  EXPECT_EQ(report.wrong, "");
  EXPECT_EQ(report.cases.size(), 2U) << report.str();
  EXPECT_EQ(launches, 2);
  EXPECT_NE(check.run(sizes, kernel(1.5)).wrong, "");
  // The same of few pairs has all data sets.
  ResultCheck small(nest, {}, 1);
  EXPECT_GT(small.run({{{{"n", 70}}}, 0, {}}, kernel(1)).cases.size(), 8U);
}

TEST(ResultCheckRun, SizesThatALaunchRefusesAreRoundedUp) {
  const Nest nest = doubled(64, 64);
  ResultCheck check(nest, {}, 1);
  const KernelRun kernel = by_hand([](const auto&, const auto&, auto&) {});
  const CheckReport report = check.run(sizes_of(nest, {}), [&](const Sizes& sizes, HostTensors& tensors) {
    return sizes.at("w") % 8 != 0 ? CheckRun{.refused = true} : kernel(sizes, tensors);
  });
  EXPECT_EQ(report.wrong, "");
  ASSERT_FALSE(report.cases.empty());
  for (const CheckCase& done : report.cases) EXPECT_EQ(done.sizes.at("w") % 8, 0);
  const auto refuses_all = [](const Sizes&, HostTensors&) { return CheckRun{.refused = true}; };
  EXPECT_THAT(check.run(sizes_of(nest, {}), refuses_all).wrong, HasSubstr("cannot be launched"));
}

TEST(PeerCheckTest, TheDefinitionDecidesWhoIsWrong) {
  const Nest nest = samples::row_norm(2048, 1024);
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_inputs(nest, sizes, 1);
  const auto samples = reference_samples(nest, sizes, {}, inputs, 64, 1);
  const std::string name = samples.front().tensor;
  PeerCheck peers(nest, sizes, {}, 1, samples);
  ASSERT_FALSE(peers.pieces().empty());
  Reference reference(nest, sizes, {}, inputs);
  HostTensors results = make_arguments(nest, sizes, 1);
  HostTensor& output = results.at(name);
  for (std::int64_t k = 0; k < output.elements(); ++k) output.set(k, reference.value(name, k, 1e10).value());
  EXPECT_EQ(peers.compare(results), "");
  HostTensors other = results;
  for (std::int64_t k = 0; k < output.elements(); k += 3)
    other.at(name).set(k, std::nextafter(static_cast<float>(output.get(k)), 9.0F));
  EXPECT_EQ(peers.compare(other), "");
  HostTensors wrong = results;
  wrong.at(name).set(777777, 1.5 * output.get(777777));
  EXPECT_THAT(peers.compare(wrong), HasSubstr("should be"));
  // The next kernel is right although it differs from one that was taken for right.
  PeerCheck misled(nest, sizes, {}, 1, samples);
  EXPECT_EQ(misled.compare(wrong), "");
  EXPECT_EQ(misled.compare(results), "");
  EXPECT_THAT(misled.compare(wrong), HasSubstr("should be"));
}

TEST(Winners, LosersAreSlowAndNotCheckedInFull) {
  TrialOutcome outcome;
  outcome.status = TrialStatus::ok;
  outcome.median_ms = 1.01;
  note_loser({{}, 1.0, false}, outcome);
  EXPECT_EQ(outcome.status, TrialStatus::ok);
  outcome.median_ms = 1.05;
  note_loser({{}, 1.0, true}, outcome);
  EXPECT_EQ(outcome.status, TrialStatus::ok);
  note_loser({{}, 1.0, false}, outcome);
  EXPECT_EQ(outcome.status, TrialStatus::slow);
  EXPECT_THAT(outcome.reason, HasSubstr("not compared in full"));
}

/// Elements of y, as they are and how far they may be off.
std::vector<OracleSample> samples_of_y(const std::vector<std::pair<double, double>>& elements) {
  std::vector<OracleSample> samples;
  for (const auto& [value, bound] : elements) samples.push_back({"y", std::ssize(samples), value, bound});
  return samples;
}

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(ComparisonNote, SaysWhereOneNumberPassesEverywhere) {
  const Nest nest = doubled(4, 4);
  const auto note = [&](const std::vector<std::pair<double, double>>& elements, const Comparison& in_full) {
    return comparison_note(samples_of_y(elements), in_full, nest);
  };
  const Comparison tells{{"y", {9, 9, true}}}, says_nothing{{"y", {9, 9, false}}};
  EXPECT_EQ(note({{0, 0}, {1, 0}}, {}), "");
  EXPECT_EQ(note({{3, 0}}, {}), "") << "one element is always one number";
  EXPECT_EQ(note({{1, 0.1}, {1.5, 0.1}, {kInfinite, 0}}, {}), "");
  EXPECT_THAT(note({{0, 0}, {0, 0}}, tells), HasSubstr("all 2 compared elements of y at the tuned sizes are 0,"));
  EXPECT_THAT(note({{0, 0}, {0, 0}}, tells), HasSubstr("what tells is the check at small sizes"));
  EXPECT_THAT(note({{0, 0}, {0, 0}}, says_nothing), HasSubstr("passes, at small sizes as well"));
  EXPECT_THAT(note({{5, 3}, {-1, 3}, {2, 1}}, {}), HasSubstr("of y at the tuned sizes are 2, as far as rounding tells"));
  EXPECT_THAT(note({{7, 3}, {8, 3}}, {}), HasSubstr("are 7.5, as far as rounding tells"));
  EXPECT_THAT(note({{1, kInfinite}, {2, kInfinite}, {3, 0}}, {}), HasSubstr("2 of 3 compared elements of y"));
}

TEST(Winners, OutputsOfWhichNothingIsPromisedAreInfeasible) {
  const Nest nest = doubled(4, 4);
  const auto status = [&](const AffordableSamples& samples, const Comparison& in_full, std::string* reason = nullptr) {
    TrialOutcome outcome;
    outcome.status = TrialStatus::ok;
    CheckReport check;
    check.compared = in_full;
    refuse_unchecked(check, samples, nest, outcome);
    if (reason) *reason = outcome.reason;
    return outcome.status;
  };
  const AffordableSamples known{samples_of_y({{1, 0.5}, {2, kInfinite}}), {}}, free{samples_of_y({{1, kInfinite}}), {}};
  const AffordableSamples left_out{{}, {"y"}};
  std::string reason;
  EXPECT_EQ(status(known, {}), TrialStatus::ok);
  EXPECT_EQ(status({}, {}), TrialStatus::ok) << "an output without elements";
  EXPECT_EQ(status(free, {{"y", {8, 1, true}}}), TrialStatus::ok);
  EXPECT_EQ(status(free, {{"y", {8, 0, false}}}, &reason), TrialStatus::infeasible);
  EXPECT_THAT(reason, HasSubstr("of 9 compared elements of y nothing is promised"));
  EXPECT_EQ(status(left_out, {{"y", {8, 8, true}}}), TrialStatus::ok);
  EXPECT_EQ(status(left_out, {}, &reason), TrialStatus::infeasible);
  EXPECT_THAT(reason, HasSubstr("takes too long to evaluate"));
}

TEST(ResultCheckRun, CountsElementsOfWhichNothingIsPromised) {
  const Nest nest =
      samples::NestBuilder("power", {{"n", 64}})
          .tensor("x", TensorRole::input, {"n"})
          .tensor("y", TensorRole::output, {"n"})
          .statement("S[i] : 0 <= i < n", "y[i]", {"x[i]"},
                     ScalarExpr::make(ScalarOp::exp, {ScalarExpr::make(ScalarOp::mul, {samples::number(60), samples::read(0)})}))
          .build();
  ResultCheck check(nest, {}, 1);
  const CheckReport report = check.run(sizes_of(nest, {}), [](const Sizes&, HostTensors& tensors) {
    HostTensor& y = tensors.at("y");
    for (std::int64_t k = 0; k < y.elements(); ++k) y.set(k, std::exp(static_cast<float>(60 * tensors.at("x").get(k))));
    return CheckRun{};
  });
  EXPECT_EQ(report.wrong, "");
  const OutputComparison& of = report.compared.at("y");
  EXPECT_TRUE(of.differs);
  EXPECT_EQ(report.str().find("nothing is promised") == std::string::npos, of.promised == of.elements) << report.str();
}

}  // namespace
}  // namespace nestor
