// Parts of definitions: what some elements need, and no more than that, gives them the values of the whole.
#include "autotune/oracle/needed_part.h"

#include "autotune/oracle/oracle.h"
#include "autotune/oracle/reference.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <isl/set.h>

#include <cmath>

namespace nestor {
namespace {

using namespace samples;

/// state[b, t, w] = gate * state[b, t - 1, w] + new, both of products of x: each channel has steps of its own.
Nest scan(std::int64_t talks, std::int64_t times, std::int64_t width, std::int64_t depth) {
  const std::string cell = "0 <= b < B and 0 <= t < T and 0 <= w < W";
  return NestBuilder("scan", {{"B", talks}, {"T", times}, {"W", width}, {"E", depth}})
      .tensor("x", TensorRole::input, {"B", "T", "E"})
      .tensor("gate", TensorRole::input, {"W", "E"})
      .tensor("keep", TensorRole::temporary, {"B", "T", "W"})
      .tensor("state", TensorRole::temporary, {"B", "T", "W"})
      .tensor("out", TensorRole::output, {"B", "T", "W"})
      .statement("keep_init[b, t, w] : " + cell, "keep[b, t, w]", {}, number(0))
      .statement("keep[b, t, w, e] : " + cell + " and 0 <= e < E", "keep[b, t, w]", {"x[b, t, e]", "gate[w, e]"},
                 read(0) * read(1), ReductionOp::add)
      .statement("first[b, w] : 0 <= b < B and 0 <= w < W", "state[b, 0, w]", {"keep[b, 0, w]"}, read(0))
      .statement("step[b, t, w] : " + cell + " and t > 0", "state[b, t, w]", {"state[b, t - 1, w]", "keep[b, t, w]"},
                 read(0) * number(0.5) + read(1))
      .statement("out[b, t, w] : " + cell, "out[b, t, w]", {"state[b, t, w]"}, read(0))
      .build();
}

std::map<std::string, OracleSample> by_place(const std::vector<OracleSample>& samples) {
  std::map<std::string, OracleSample> places;
  for (const OracleSample& sample : samples) places.emplace(sample.tensor + "@" + std::to_string(sample.linear), sample);
  return places;
}

/// Samples of parts are among those of the whole, with its values and bounds. How many there are.
std::size_t compared(const Nest& nest) {
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 3);
  const auto whole = by_place(reference_samples(nest, sizes, {}, inputs, 8, 1));
  const auto parts = by_place(samples_of_parts(nest, sizes, {}, inputs, 1, 1e9, 1, nullptr));
  EXPECT_LE(parts.size(), whole.size());
  for (const auto& [place, sample] : parts) {
    const auto expected = whole.find(place);
    if (expected == whole.end()) {
      ADD_FAILURE() << place << " has no value";
      continue;
    }
    EXPECT_DOUBLE_EQ(sample.value, expected->second.value) << place;
    EXPECT_NEAR(sample.bound, expected->second.bound, 1e-3 * expected->second.bound) << place;
  }
  return parts.size();
}

TEST(NeededPart, SamplesAreThoseOfTheWhole) {
  EXPECT_EQ(compared(scan(2, 9, 5, 4)), 90U) << "everything is cheap";
  EXPECT_EQ(compared(stencil2d()), 42U);
  EXPECT_EQ(compared(seidel()), 42U);
  EXPECT_EQ(compared(scan(1, 1, 1, 1)), 1U);
}

double points(const Nest& nest, const std::string& statement) {
  const Statement* found = nest.find_statement(statement);
  if (found == nullptr) return 0;
  isl_val* count = isl_set_count_val(found->domain.get());
  const double result = isl_val_get_d(count);
  isl_val_free(count);
  return result;
}

isl::set element(const std::string& text) { return isl::set(isl_context(), text); }

TEST(NeededPart, AChannelNeedsItsOwnSteps) {
  const Nest nest = scan(4, 100, 50, 8);
  const Nest part = needed_part(nest, complete_sizes(nest, {}), {{"out", element("{ out[1, 99, 7] }")}});
  EXPECT_EQ(points(part, "out"), 1);
  EXPECT_EQ(points(part, "step"), 99);
  EXPECT_EQ(points(part, "first"), 1);
  EXPECT_EQ(points(part, "keep"), 800);
  const Nest early = needed_part(nest, complete_sizes(nest, {}), {{"out", element("{ out[1, 0, 7] }")}});
  EXPECT_EQ(points(early, "step"), 0);
  EXPECT_EQ(points(early, "keep"), 8);
}

/// What one row needs of a product, and the rows of a wider box.
TEST(NeededPart, ProductsNeedRowsAndColumns) {
  const Nest nest = matmul(40, 30, 20);
  const Nest part = needed_part(nest, complete_sizes(nest, {}), {{"C", element("{ C[i, j] : 3 <= i <= 4 and j = 29 }")}});
  EXPECT_EQ(points(part, "C_init"), 2);
  EXPECT_EQ(points(part, "C_update"), 40);
}

TEST(NeededPart, RecurrencesThatAreTooLargeHaveSamples) {
  const Nest nest = scan(16, 2048, 512, 512);
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 1);
  EXPECT_FALSE(Reference(nest, sizes, {}, inputs).can_evaluate_all(2e10));
  const auto samples = reference_samples(nest, sizes, {}, inputs, 8, 1);
  const std::int64_t last = 16LL * 2048 * 512 - 1;
  const auto has = [&](std::int64_t linear) {
    return std::any_of(samples.begin(), samples.end(), [&](const OracleSample& s) { return s.linear == linear; });
  };
  EXPECT_TRUE(has(0));
  EXPECT_TRUE(has(last));
  EXPECT_GT(samples.size(), 1000U);
  for (const OracleSample& sample : samples) {
    ASSERT_TRUE(std::isfinite(sample.value));
    ASSERT_LT(sample.bound, 1.0);
  }
}

}  // namespace
}  // namespace nestor
