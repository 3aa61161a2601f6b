// Nests: hand-written samples are valid, sizes resolve, text names what is computed.
#include "poly/nest/nest.h"

#include <gtest/gtest.h>

#include "poly/isl/isl_tools.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

namespace nestor {
namespace {

TEST(Nest, SamplesAreValid) {
  EXPECT_NO_THROW(validate(samples::matmul()));
  EXPECT_NO_THROW(validate(samples::row_norm()));
  EXPECT_NO_THROW(validate(samples::scores_softmax_values()));
  EXPECT_NO_THROW(validate(samples::scores_softmax_values(samples::Mask::domain)));
  EXPECT_NO_THROW(validate(samples::scores_softmax_values(samples::Mask::select)));
  EXPECT_NO_THROW(validate(samples::stencil2d()));
  EXPECT_NO_THROW(validate(samples::seidel()));
}

TEST(Nest, FixingASizeCutsTheContext) {
  const Nest nest = fix_sizes(samples::matmul(), {{"K", 64}});
  EXPECT_TRUE(nest.context.is_equal(parse_set("[M, N, K] -> { : M >= 1 and N >= 1 and K = 64 }", "test")));
  EXPECT_NO_THROW(validate(nest));
}

TEST(Nest, CompleteSizesFillsDefaults) {
  const Sizes sizes = complete_sizes(samples::matmul(5, 6, 7), {{"N", 100}});
  EXPECT_EQ(sizes, (Sizes{{"M", 5}, {"N", 100}, {"K", 7}}));
}

TEST(Nest, ShapesEvaluateAtSizes) {
  const Nest nest = samples::stencil2d();
  EXPECT_EQ(shape_at(nest.tensor("A"), {{"T", 4}, {"Y", 10}, {"X", 20}}), (std::vector<std::int64_t>{5, 10, 20}));
  const isl::pw_aff floor = parse_pw_aff("[N] -> { [] -> [(floor((N + 3)/4))] }", "test");
  EXPECT_EQ(evaluate_at(floor, {{"N", 9}}), 3);
}

TEST(Nest, DescribeShowsStatements) {
  const std::string text = describe(samples::matmul());
  EXPECT_NE(text.find("C[i, j] += (A[i, k] * B[k, j])"), std::string::npos) << text;
  EXPECT_NE(text.find("output f32 C[M, N]"), std::string::npos) << text;
}

TEST(Nest, RelationAndFunctionsAreInverse) {
  const isl::set domain = parse_set("[N] -> { S[i, j] : 0 <= i, j < N }", "test");
  const isl::map relation = parse_map("[N] -> { S[i, j] -> A[j, i + N, 3] }", "test");
  EXPECT_TRUE(relation_of(domain, "A", functions_of(relation)).is_equal(relation));
}

TEST(Nest, LookUpOfWhatIsNotThereIsABug) {
  const Nest nest = samples::matmul();
  EXPECT_THROW(nest.tensor("X"), InternalError);
  EXPECT_THROW(nest.statement("X"), InternalError);
  EXPECT_EQ(nest.find_statement("X"), nullptr);
}

}  // namespace
}  // namespace nestor
