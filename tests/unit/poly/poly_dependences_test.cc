// Dependences: exact relations for known nests, and agreement with enumeration on a small one.
#include "poly/nest/dependences.h"

#include <gtest/gtest.h>

#include "poly/isl/isl_tools.h"
#include "support/nests/sample_nests.h"

namespace nestor {
namespace {

const Dependence* find(const std::vector<Dependence>& all, DependenceKind kind, const std::string& source,
                       const std::string& sink, bool reduction = false) {
  for (const Dependence& entry : all) {
    if (entry.kind == kind && entry.source == source && entry.sink == sink && entry.reduction == reduction) return &entry;
  }
  return nullptr;
}

void expect_relation(const Nest& nest, const Dependence* found, const std::string& text) {
  ASSERT_NE(found, nullptr) << text;
  const isl::map expected = parse_map(text, "test").intersect_params(nest.context);
  EXPECT_TRUE(found->relation.is_equal(expected)) << isl_text(found->relation);
}

TEST(Dependences, MatmulHasItsInitAndItsReduction) {
  const Nest nest = samples::matmul();
  const auto all = compute_dependences(nest);
  ASSERT_EQ(all.size(), 2U);
  expect_relation(nest, find(all, DependenceKind::flow, "C_init", "C_update"),
                  "[M, N, K] -> { C_init[i, j] -> C_update[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K }");
  expect_relation(nest, find(all, DependenceKind::flow, "C_update", "C_update", true),
                  "[M, N, K] -> { C_update[i, j, k] -> C_update[i, j, l] : 0 <= i < M and 0 <= j < N and 0 <= k < l < K }");
}

TEST(Dependences, RowsMeetOnlyThroughTheirOwnMean) {
  const Nest nest = samples::row_norm();
  const auto all = compute_dependences(nest);
  expect_relation(
      nest, find(all, DependenceKind::flow, "mean_update", "variance_update"),
      "[rows, cols] -> { mean_update[i, k] -> variance_update[i, l] : 0 <= i < rows and 0 <= k < cols and 0 <= l < cols }");
  EXPECT_EQ(find(all, DependenceKind::flow, "mean_update", "variance_init"), nullptr);
}

TEST(Dependences, MaskedPairsDoNotDepend) {
  const Nest nest = samples::scores_softmax_values(samples::Mask::domain);
  const auto all = compute_dependences(nest);
  expect_relation(nest, find(all, DependenceKind::flow, "Mx_update", "P"),
                  "[R, C, D] -> { Mx_update[i, j] -> P[i, k] : 0 <= i < R and 0 <= j < C and j <= i and 0 <= k < C and k <= i }");
}

TEST(Dependences, InPlaceSweepIsOrderedByFlow) {
  const Nest nest = samples::seidel();
  const auto all = compute_dependences(nest);
  const Dependence* flow = find(all, DependenceKind::flow, "sweep", "sweep");
  ASSERT_NE(flow, nullptr);
  EXPECT_FALSE(flow->reduction);
  const auto has = [](const Dependence* entry, const std::string& pair) {
    return !entry->relation.intersect(parse_map("[T, Y, X] -> { " + pair + " }", "test")).is_empty();
  };
  EXPECT_TRUE(has(flow, "sweep[t, y, x] -> sweep[t, y + 1, x]"));
  EXPECT_TRUE(has(flow, "sweep[t, y, x] -> sweep[t + 1, y - 1, x]"));
  EXPECT_FALSE(has(flow, "sweep[t, y, x] -> sweep[t, y - 1, x]"));
  // An element's next sweep must wait for its neighbours' reads and for its last write; flow orders those pairs already.
  EXPECT_EQ(find(all, DependenceKind::anti, "sweep", "sweep"), nullptr);
  EXPECT_EQ(find(all, DependenceKind::output, "sweep", "sweep"), nullptr);
}

TEST(Dependences, StatementsOfOneGroupInterleave) {
  const Nest nest = samples::NestBuilder("pair", {{"N", 4}})
                        .tensor("a", TensorRole::temporary, {"N"})
                        .tensor("b", TensorRole::output, {"N"})
                        .statement("A[i] : 0 <= i < N", "a[i]", {}, samples::number(1))
                        .statement("B[i] : 0 <= i < N", "b[i]", {"a[i]"}, samples::read(0))
                        .join_last()
                        .build();
  const auto all = compute_dependences(nest);
  ASSERT_EQ(all.size(), 1U);
  expect_relation(nest, &all[0], "[N] -> { A[i] -> B[i] : 0 <= i < N }");
}

TEST(Dependences, GroupPartsThatReadAheadAreAntiDependent) {
  const Nest nest = samples::NestBuilder("ahead", {{"N", 4}})
                        .tensor("a", TensorRole::temporary, {"N + 1"})
                        .tensor("b", TensorRole::output, {"N"})
                        .statement("I[i] : 0 <= i <= N", "a[i]", {}, samples::number(1))
                        .statement("A[i] : 0 <= i < N", "a[i]", {}, samples::number(2))
                        .statement("B[i] : 0 <= i < N", "b[i]", {"a[i + 1]"}, samples::read(0))
                        .join_last()
                        .build();
  const auto all = compute_dependences(nest);
  expect_relation(nest, find(all, DependenceKind::anti, "B", "A"), "[N] -> { B[i] -> A[i + 1] : 0 <= i < N - 1 }");
  EXPECT_EQ(find(all, DependenceKind::flow, "A", "B"), nullptr);
}

TEST(Dependences, DescriptionNamesBothEnds) {
  const auto all = compute_dependences(samples::matmul());
  EXPECT_EQ(describe(all[0]), "flow: C_init[i, j] -> C_update[i, j, k] through C");
}

}  // namespace
}  // namespace nestor
