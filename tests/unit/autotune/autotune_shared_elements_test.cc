// Elements computed by several processes are the ones that a single process computes, bit for bit.
#include "autotune/oracle/shared_elements.h"

#include "support/nests/recurrence_nests.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

using samples::read, samples::number, samples::operator*, samples::operator+;

/// out[i] = sum over j of w[j] c[j], with c[j] a cheap point of the long sum s[j]: one element needs all of them.
Nest sums_of_sums(std::int64_t n, std::int64_t m, ElementType middle = ElementType::f32) {
  return samples::NestBuilder("sums_of_sums", {{"N", n}, {"M", m}})
      .tensor("x", TensorRole::input, {"N", "M"})
      .tensor("s", TensorRole::temporary, {"N"})
      .tensor("c", TensorRole::temporary, {"N"}, middle)
      .tensor("t", TensorRole::temporary, {"1"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("s0[j] : 0 <= j < N", "s[j]", {}, number(0))
      .statement("s1[j, k] : 0 <= j < N and 0 <= k < M", "s[j]", {"x[j, k]"}, read(0) * read(0), ReductionOp::add)
      .statement("c1[j] : 0 <= j < N", "c[j]", {"s[j]"}, ScalarExpr::cast(middle, read(0) + number(1)))
      .statement("t0[z] : z = 0", "t[z]", {}, number(0))
      .statement("t1[z, j] : z = 0 and 0 <= j < N", "t[z]", {"c[j]"},
                 ScalarExpr::cast(ElementType::f32, read(0, middle)) * number(0.25), ReductionOp::add)
      .statement("o[i] : 0 <= i < N", "out[i]", {"t[0]", "s[i]"}, read(0) * read(1))
      .build();
}

/// `whole`: everything is computed, whether the element needs it or not.
void expect_the_same_bits(const Nest& nest, bool splits, std::size_t most_elements = SharedElements::kMostElements,
                          bool whole = false) {
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 5);
  Reference alone(nest, sizes, {}, inputs), reference(nest, sizes, {}, inputs);
  SharedElements shared(reference, 3, 60, nullptr, most_elements);
  EXPECT_EQ(whole ? shared.prepare_all() : shared.prepare("out", 2), splits);
  // What processes computed is known here.
  if (splits) {
    const double before = reference.spent();
    ASSERT_TRUE(reference.value("out", 2, 1e12).has_value());
    EXPECT_LT(reference.spent() - before, 1e6);
  }
  for (std::int64_t k = 0; k < alone.elements("out"); ++k) {
    const auto one = alone.bounded_value("out", k, 1e12), other = reference.bounded_value("out", k, 1e12);
    ASSERT_TRUE(one && other);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(one->value), std::bit_cast<std::uint64_t>(other->value)) << k;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(one->bound), std::bit_cast<std::uint64_t>(other->bound)) << k;
  }
}

TEST(SharedElements, AreTheOnesOfASingleProcess) {
  expect_the_same_bits(sums_of_sums(700, 3001), true);
  expect_the_same_bits(sums_of_sums(700, 3001, ElementType::bf16), true);
}

TEST(SharedElements, MoreThanHaveRoomAtATimeAreComputedPartByPart) { expect_the_same_bits(sums_of_sums(3000, 701), true, 500); }

TEST(SharedElements, AllOfADefinitionIsComputedTensorByTensor) {
  for (const std::size_t most : {SharedElements::kMostElements, std::size_t{130}}) {
    expect_the_same_bits(sums_of_sums(700, 301), true, most, true);
    expect_the_same_bits(sums_of_sums(700, 301, ElementType::bf16), true, most, true);
  }
}

/// first = x y, then second = first z, all beside each other in memory; `turned`: z is read along its rows.
Nest chain_of_products(ElementType type, bool turned) {
  const std::string element = "0 <= i < N and 0 <= j < M", factor = turned ? "z[j, k]" : "z[k, j]";
  return samples::NestBuilder("chain_of_products", {{"N", 3}, {"M", 37}, {"K", 300}})
      .tensor("x", TensorRole::input, {"N", "K"})
      .tensor("y", TensorRole::input, {"K", "M"}, type)
      .tensor("z", TensorRole::input, {"M", "M"}, type)
      .tensor("first", TensorRole::temporary, {"N", "M"})
      .tensor("second", TensorRole::output, {"N", "M"})
      .statement("f0[i, j] : " + element, "first[i, j]", {}, number(0))
      .statement("f1[i, j, k] : " + element + " and 0 <= k < K", "first[i, j]", {"x[i, k]", "y[k, j]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, type)), ReductionOp::add)
      .statement("s0[i, j] : " + element, "second[i, j]", {}, number(0.5))
      .statement("s1[i, j, k] : " + element + " and 0 <= k < M", "second[i, j]", {"first[i, k]", factor},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, type)), ReductionOp::add)
      .build();
}

/// Sums that are computed side by side are those of each alone, also where a number is none, too large or too small.
TEST(SharedElements, ProductsSideBySideAreThoseOfEachAlone) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const double special : {1.0, 0.0, infinity, nan, 3e38, 1e-38, -1e-45}) {
    for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
      for (const bool turned : {false, true}) {
        const Nest nest = chain_of_products(type, turned);
        const Sizes sizes = complete_sizes(nest, {});
        HostTensors inputs = make_arguments(nest, sizes, 5);
        if (special != 1) inputs.at("x").set(300 + 7, special);  // of the second row
        if (special != 1) inputs.at("z").set(5, special);
        Reference alone(nest, sizes, {}, inputs), together(nest, sizes, {}, inputs);
        int computed = 0;
        for (const char* name : {"first", "second"}) {
          for (std::int64_t k = 0; k < 3 * 37; k += 16) {
            const int count = static_cast<int>(std::min<std::int64_t>(16, 3 * 37 - k));
            const Reference::Element from = together.final_element(name, k);
            computed += together.compute_products(from, count, 1e9) ? 1 : 0;
            for (int e = 0; e < count; ++e) {
              const auto one = alone.bounded_value(name, k + e, 1e12), other = together.bounded_value(name, k + e, 1e12);
              const auto bits = [](double value) { return std::isnan(value) ? 0 : std::bit_cast<std::uint64_t>(value); };
              ASSERT_EQ(bits(one->value), bits(other->value)) << name << k + e << " with " << special;
              ASSERT_EQ(bits(one->bound), bits(other->bound)) << name << k + e << " with " << special;
            }
          }
        }
        EXPECT_EQ(computed, type == ElementType::f16 ? 7 : 14) << "rounding an operand to f16 is no matter of its size alone";
      }
    }
  }
}

TEST(SharedElements, NothingIsForkedForWhatTakesLittle) { expect_the_same_bits(sums_of_sums(20, 30), false); }

TEST(SharedElements, WhatIsNeededIsFoundBehindCheapPoints) {
  const Nest nest = sums_of_sums(50, 40);
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 5);
  Reference reference(nest, sizes, {}, inputs);
  const auto element = reference.final_element("out", 3);
  const auto direct = reference.needed(element, 1000).elements;
  ASSERT_EQ(direct.size(), 2U) << "the total, and a sum of its own";
  const auto behind = reference.needed(direct.back(), 1000).elements;
  EXPECT_EQ(behind.size(), 50U) << "the sums, and not the points that are made of them";
  EXPECT_LE(reference.needed(direct.back(), 8).elements.size(), 8 + 128U) << "no more than was asked for, and a chunk";
  for (const auto& each : behind) EXPECT_TRUE(reference.compute_within(each, 1e9));
  EXPECT_TRUE(reference.needed(direct.back(), 1000).elements.empty());
}

TEST(SharedElements, AnEvaluationThatWasCutShortGoesOn) {
  const Nest nest = sums_of_sums(50, 4000);
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 5);
  Reference reference(nest, sizes, {}, inputs), alone(nest, sizes, {}, inputs);
  const auto element = reference.final_element("out", 3);
  EXPECT_FALSE(reference.compute_within(element, 1e4));
  EXPECT_FALSE(reference.known(element));
  EXPECT_TRUE(reference.compute_within(element, 1e9));
  EXPECT_EQ(reference.bounded_value("out", 3, 1e9)->bound, alone.bounded_value("out", 3, 1e9)->bound);
}

/// Of a sum over millions of cheap points of inputs, nothing is listed: it takes longer than the sum.
TEST(SharedElements, CheapPointsOfInputsAloneNeedNothing) {
  const Nest nest =
      samples::NestBuilder("pairs", {{"N", 60}})
          .tensor("x", TensorRole::input, {"N"})
          .tensor("apart", TensorRole::temporary, {"N", "N"})
          .tensor("near", TensorRole::temporary, {"N", "N"})
          .tensor("out", TensorRole::output, {"1"})
          .statement("apart[i, j] : 0 <= i < N and 0 <= j < N", "apart[i, j]", {"x[i]", "x[j]"}, read(0) * read(1))
          .statement("near[i, j] : 0 <= i < N and 0 <= j < N", "near[i, j]", {"apart[i, j]"}, read(0) + number(1))
          .statement("o0[z] : z = 0", "out[z]", {}, number(0))
          .statement("o1[z, i, j] : z = 0 and 0 <= i < N and 0 <= j < N", "out[z]", {"near[i, j]"}, read(0), ReductionOp::add)
          .build();
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 5);
  Reference reference(nest, sizes, {}, inputs);
  std::size_t chunks = 0;
  const auto needed = reference.needed(reference.final_element("out", 0), 1000, chunks);
  EXPECT_TRUE(needed.elements.empty());
  EXPECT_TRUE(needed.complete);
}

void expect_the_same_everywhere(const Nest& nest, const std::string& tensor, bool rounds) {
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 5);
  Reference alone(nest, sizes, {}, inputs), team(nest, sizes, {}, inputs);
  rounds ? alone.evaluate_rounded(1e12) : alone.evaluate_all(1e12);
  rounds ? team.evaluate_rounded(1e12, 3) : team.evaluate_all(1e12, 3);
  EXPECT_LT(team.spent(), 0.5 * alone.spent()) << "others had a share";
  for (std::int64_t k = 0; k < alone.elements(tensor); ++k) {
    const auto one = alone.value(tensor, k, 1e12), other = team.value(tensor, k, 1e12);
    ASSERT_EQ(one.has_value(), other.has_value()) << k;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(one.value_or(0)), std::bit_cast<std::uint64_t>(other.value_or(0))) << k;
    if (rounds || !one) continue;
    const auto bound = alone.bounded_value(tensor, k, 1e12), seen = team.bounded_value(tensor, k, 1e12);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(bound->bound), std::bit_cast<std::uint64_t>(seen->bound)) << k;
  }
}

/// What stands outside of parallel loops, as a state that reads the one before, is computed once.
TEST(SharedElements, AWholeRecurrenceIsTheOneOfASingleProcess) {
  for (const bool rounds : {false, true}) {
    expect_the_same_everywhere(samples::batched_states(3, 24, 500), "h", rounds);
    expect_the_same_everywhere(samples::states(60, 500), "h", rounds);
  }
}

TEST(SharedElements, StepsOfSinglePointsAreNotShared) {
  const Nest nest = samples::sweeps(3000, 90);  // each unknown needs the one before
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 5);
  Reference reference(nest, sizes, {}, inputs);
  ASSERT_GT(reference.full_cost(), 9e7);
  reference.evaluate_all(1e12, 3);
  EXPECT_GT(reference.spent(), 0.99 * reference.full_cost() / 2) << "meetings would take longer";
}

/// T steps of P grids: places within take what their neighbours had in the step before, or in `swept` ones have by now above; those of the border
/// stay.
Nest diffused_grids(std::int64_t steps, std::int64_t grids, std::int64_t side, bool swept) {
  const std::string step = "0 <= n < T and 0 <= p < P", all = "0 <= r < R and 0 <= c < R";
  return samples::NestBuilder("diffused_grids", {{"T", steps}, {"P", grids}, {"R", side}})
      .tensor("x", TensorRole::input, {"P", "R", "R"})
      .tensor("state", TensorRole::output, {"T + 1", "P", "R", "R"})
      .statement("begin[n, p, r, c] : n = 0 and 0 <= p < P and " + all, "state[0, p, r, c]", {"x[p, r, c]"}, read(0))
      .statement("border[n, s, p, r, c] : s = 0 and " + step + " and " + all + " and (r = 0 or r = R - 1 or c = 0 or c = R - 1)",
                 "state[n + 1, p, r, c]", {"state[n, p, r, c]"}, read(0))
      .statement("within[n, s, p, r, c] : s = 1 and " + step + " and 0 < r < R - 1 and 0 < c < R - 1", "state[n + 1, p, r, c]",
                 {swept ? "state[n + 1, p, r - 1, c]" : "state[n, p, r - 1, c]", "state[n, p, r + 1, c]", "state[n, p, r, c - 1]",
                  "state[n, p, r, c + 1]"},
                 ScalarExpr::make(ScalarOp::tanh, {read(0) + read(1) + number(0.5) * (read(2) + read(3))}))
      .join_last()
      .build();
}

TEST(SharedLoops, StepsOfAGridAreSharedByProcesses) {
  for (const bool swept : {false, true}) {
    const Nest nest = diffused_grids(130, 3, 120, swept);
    const Sizes sizes = complete_sizes(nest, {});
    const HostTensors inputs = make_arguments(nest, sizes, 5);
    Reference alone(nest, sizes, {}, inputs), together(nest, sizes, {}, inputs);
    alone.evaluate_all(1e12, 1);
    together.evaluate_all(1e12, 3);
    if (!swept) {
      EXPECT_LT(together.spent(), 0.6 * alone.spent()) << "one of three processes has a third of the work";
    }
    for (std::int64_t k = 0; k < alone.elements("state"); ++k) {
      const double one = *alone.value("state", k, 1e12), other = *together.value("state", k, 1e12);
      ASSERT_EQ(std::bit_cast<std::uint64_t>(one), std::bit_cast<std::uint64_t>(other)) << k << swept;
    }
  }
}

}  // namespace
}  // namespace nestor
