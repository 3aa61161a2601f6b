// Nests: hand-written samples are valid, sizes resolve, text names what is computed.
#include "poly/nest/nest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
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

/// What is wrong with the nest; "": nothing.
std::string objection(const Nest& nest, const Nest* valid) {
  try {
    valid != nullptr ? validate_changes(*valid, nest) : validate(nest);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

TEST(Nest, ChangesWriteTheSameElementsOfOutputs) {
  const Nest valid = samples::matmul();
  const auto changed = [&](const std::function<void(Nest&)>& change) {
    Nest nest = valid;
    change(nest);
    EXPECT_EQ(objection(nest, nullptr), "") << "it may be somebody's definition";
    return objection(nest, &valid);
  };
  const auto domains = [](Nest& nest, const std::string& condition) {
    for (Statement& statement : nest.statements) {
      const std::string text = isl_text(statement.domain);
      statement.domain = parse_set(text.substr(0, text.rfind('}')) + condition + " }", "test");
    }
  };
  EXPECT_EQ(changed([&](Nest& nest) { domains(nest, " and i >= 0"); }), "");
  EXPECT_THAT(changed([&](Nest& nest) { domains(nest, " and i >= 1"); }),
              ::testing::HasSubstr("nothing writes these elements of output C"));
  Nest less = valid;
  domains(less, " and i >= 1");
  EXPECT_THAT(objection(valid, &less), ::testing::HasSubstr("these elements of output C are none that are asked for"));
  EXPECT_THAT(changed([&](Nest& nest) {
                for (Tensor& tensor : nest.tensors) tensor.role = tensor.name == "C" ? TensorRole::temporary : tensor.role;
              }),
              ::testing::HasSubstr("the output C of type f32 is gone"));
}

TEST(Nest, ChangesOfAValidNestAreCheckedAsAllOfItIs) {
  const Nest valid = samples::row_norm();
  const auto changed = [&](const std::function<void(Nest&)>& change) {
    Nest nest = valid;
    change(nest);
    const std::string whole = objection(nest, nullptr);
    EXPECT_EQ(objection(nest, &valid), whole);
    return whole;
  };
  const auto at = [](Nest& nest, const std::string& name) {
    return std::find_if(nest.statements.begin(), nest.statements.end(), [&](const Statement& each) { return each.name == name; });
  };
  const auto tensor = [](Nest& nest, const std::string& name) -> Tensor& {
    return *std::find_if(nest.tensors.begin(), nest.tensors.end(), [&](const Tensor& each) { return each.name == name; });
  };
  EXPECT_EQ(changed([](Nest&) {}), "");
  EXPECT_EQ(changed([&](Nest& nest) { at(nest, "mean_init")->value = samples::number(1); }), "");
  // What follows concerns statements that stay as they are.
  EXPECT_NE(changed([&](Nest& nest) { nest.statements.erase(at(nest, "mean_init")); }), "");
  EXPECT_EQ(changed([&](Nest& nest) { nest.statements.erase(at(nest, "variance_update")); }), "") << "what starts it is read";
  EXPECT_NE(changed([&](Nest& nest) {
              at(nest, "mean_init")->domain = parse_set("[rows, cols] -> { mean_init[i] : 0 <= i < rows - 1 }", "test");
            }),
            "");
  EXPECT_NE(
      changed([&](Nest& nest) { tensor(nest, "variance").shape = {parse_pw_aff("[rows, cols] -> { [(rows - 1)] }", "test")}; }),
      "");
  EXPECT_NE(changed([&](Nest& nest) { tensor(nest, "x").type = ElementType::f16; }), "");
  EXPECT_NE(changed([&](Nest& nest) { tensor(nest, "mean").role = TensorRole::input; }), "");
  EXPECT_NE(changed([&](Nest& nest) { nest.tensors.push_back({"k", ElementType::f32, TensorRole::input, {}}); }), "")
      << "a dim's name";
  EXPECT_NE(changed([&](Nest& nest) { nest.scalars.clear(); }), "");
  EXPECT_NE(changed([&](Nest& nest) { nest.sizes.pop_back(); }), "");
  EXPECT_NE(changed([&](Nest& nest) { nest.context = parse_set("[rows, cols] -> { : rows >= 1 and rows <= 0 }", "test"); }), "");
  EXPECT_NE(changed([&](Nest& nest) { std::swap(*at(nest, "mean_init"), *at(nest, "mean_update")); }), "");
  EXPECT_NE(changed([&](Nest& nest) {
              Statement start = *at(nest, "mean_init");
              nest.statements.erase(at(nest, "mean_init"));
              start.group = nest.statements.back().group + 1;
              nest.statements.push_back(start);
            }),
            "")
      << "behind its readers";
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
