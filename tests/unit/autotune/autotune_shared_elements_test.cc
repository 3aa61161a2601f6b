// Elements computed by several processes are the ones that a single process computes, bit for bit.
#include "autotune/oracle/shared_elements.h"

#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <bit>

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

void expect_the_same_bits(const Nest& nest, bool splits, std::size_t most_elements = SharedElements::kMostElements) {
  const Sizes sizes = complete_sizes(nest, {});
  const HostTensors inputs = make_arguments(nest, sizes, 5);
  Reference alone(nest, sizes, {}, inputs), reference(nest, sizes, {}, inputs);
  SharedElements shared(reference, 3, 60, nullptr, most_elements);
  EXPECT_EQ(shared.prepare("out", 2), splits);
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

}  // namespace
}  // namespace nestor
