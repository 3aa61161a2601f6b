// Which operands a kernel needs finite values of, and where: what masks multiply by 0, and nothing else.
#include "autotune/check/masked_places.h"
#include "codegen/gpu/backend.h"

#include "codegen/tile/tile_program.h"
#include "support/nests/tensor_nests.h"
#include "support/nests/window_of_distances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> finite_of(const Schedule& schedule) {
  const TileProgram program = build_tile_program(schedule);
  return finite_tensors(schedule, prove_program(program, schedule), {});
}

/// Rows (second index of [H, K, 1]) of v that are masked for H = 1.
std::vector<std::int64_t> masked_keys(Seen seen, Sizes sizes) {
  sizes["H"] = 1;
  const ElementLists places = masked_places(Schedule(attention_nest({.seen = seen, .depth = 1})), {"v"}, sizes);
  const auto found = places.find("v");
  return found == places.end() ? std::vector<std::int64_t>{} : found->second;
}

TEST(MaskedPlaces, AreWhatSomeRowDoesNotSee) {
  EXPECT_THAT(masked_keys(Seen::all, {{"Q", 3}, {"K", 5}}), IsEmpty());
  EXPECT_THAT(masked_keys(Seen::causal, {{"Q", 1}, {"K", 5}}), IsEmpty());
  EXPECT_THAT(masked_keys(Seen::causal, {{"Q", 3}, {"K", 5}}), ElementsAre(3, 4));
  EXPECT_THAT(masked_keys(Seen::prefix, {{"Q", 3}, {"K", 5}, {"P", 4}}), ElementsAre(4));
  EXPECT_THAT(masked_keys(Seen::window, {{"Q", 3}, {"K", 5}, {"W", 4}}), ElementsAre(0, 3, 4));
}

/// o[i] = sum over j of w[i, j] v[j], with w = 2 x where the mask is. `where`: in the domain, or else as a select.
Nest masked_sum(const std::string& where) {
  const bool select = where.empty();
  const ScalarExpr causal = ScalarExpr::make(ScalarOp::le, {ScalarExpr::index(0), ScalarExpr::index(1)});
  const ScalarExpr twice = read(0) * number(2);
  const std::string seen = "0 <= i < R and 0 <= j < C" + where;
  return NestBuilder("masked_sum", {{"R", 3}, {"C", 5}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("v", TensorRole::input, {"C"})
      .tensor("w", TensorRole::temporary, {"R", "C"})
      .tensor("u", TensorRole::temporary, {"C"})
      .tensor("o", TensorRole::output, {"R"})
      .statement("U[j] : 0 <= j < C", "u[j]", {"v[j]"}, read(0) * number(3))
      .statement("W[i, j] : " + seen, "w[i, j]", {"x[i, j]"},
                 select ? ScalarExpr::make(ScalarOp::select, {causal, twice, number(0)}) : twice, std::nullopt,
                 select ? std::vector<std::string>{"j", "i"} : std::vector<std::string>{})
      .statement("O[i] : 0 <= i < R", "o[i]", {}, number(0))
      .statement("S[i, j] : " + seen, "o[i]", {"w[i, j]", "u[j]"}, read(0) * read(1), ReductionOp::add)
      .build();
}

/// The row has no key at all: its weights are a tile of zeros.
TEST(MaskedPlaces, RowsWithoutPointsMaskAll) {
  EXPECT_EQ(masked_places(Schedule(masked_sum(" and j < i")), {"u"}, {{"R", 2}, {"C", 2}}), (ElementLists{{"v", {0, 1}}}));
}

/// o[h, d, i] = sum over j of w[i, j] v[j, 2 h + d]: heads are a part of a row of v, and neither h nor d alone is told by an element.
TEST(MaskedPlaces, OfASumOfDimsAreThoseOfAllItsParts) {
  const Nest nest = NestBuilder("merged", {{"N", 3}})
                        .tensor("x", TensorRole::input, {"N", "N"})
                        .tensor("v", TensorRole::input, {"N", "4"})
                        .tensor("w", TensorRole::temporary, {"N", "N"})
                        .tensor("o", TensorRole::output, {"2", "2", "N"})
                        .statement("W[i, j] : 0 <= i < N and 0 <= j <= i", "w[i, j]", {"x[i, j]"}, read(0) * number(2))
                        .statement("O[h, d, i] : 0 <= h < 2 and 0 <= d < 2 and 0 <= i < N", "o[h, d, i]", {}, number(0))
                        .statement("S[h, d, i, j] : 0 <= h < 2 and 0 <= d < 2 and 0 <= i < N and 0 <= j <= i", "o[h, d, i]",
                                   {"w[i, j]", "v[j, 2h + d]"}, read(0) * read(1), ReductionOp::add)
                        .build();
  EXPECT_EQ(masked_places(Schedule(nest), {"v"}, {{"N", 3}}), (ElementLists{{"v", {4, 5, 6, 7, 8, 9, 10, 11}}}));
}

/// Tiles go on beyond the last key that any row sees, to the end of the tensor.
TEST(MaskedPlaces, GoOnToTheEndsOfTensorsAndToWhatTemporariesComeFrom) {
  const Schedule schedule(masked_sum(" and j <= i"));
  const Sizes sizes{{"R", 2}, {"C", 4}};
  EXPECT_EQ(masked_places(schedule, {"u"}, sizes), (ElementLists{{"v", {1, 2, 3}}}));
  EXPECT_THAT(masked_places(schedule, {}, sizes), IsEmpty());
  EXPECT_THAT(masked_places(Schedule(masked_sum(" ")), {"u"}, sizes), IsEmpty());
}

/// The rule no longer multiplies what the definition does: its certificate names the factor, although no program meets such a point.
/// o[i] = sum of three neighbours x[i + p - 1] w[p], of those that there are; x has `more` elements beyond i.
Nest neighbours(const std::string& where, const std::string& more) {
  return NestBuilder("neighbours", {{"N", 5}})
      .tensor("x", TensorRole::input, {"N + " + more})
      .tensor("w", TensorRole::input, {"3"})
      .tensor("o", TensorRole::output, {"N"})
      .statement("start[i] : 0 <= i < N", "o[i]", {}, number(0))
      .statement("sum[i, p] : 0 <= i < N and 0 <= p < 3" + where, "o[i]", {"x[i + p - 1]", "w[p]"}, read(0) * read(1),
                 ReductionOp::add)
      .build();
}

TEST(MaskedPlaces, AreThoseBesideRowsThatEndWithinATile) {
  const Nest ends = neighbours(" and 1 <= i + p <= N", "0");
  EXPECT_THAT(MaskedFactors(ends).at({{"N", 5}}).at("w"), ElementsAre(0, 2)) << "the middle one never leaves the row";
  EXPECT_THAT(MaskedFactors(ends).at({{"N", 5}}).count("x"), 0U) << "taps do not end";
  EXPECT_THAT(MaskedFactors(neighbours(" and 1 <= i + p", "1")).at({{"N", 5}}).at("w"), ElementsAre(0));
  const Nest triangle = neighbours(" and 1 <= i + p and p <= i", "2");
  EXPECT_THAT(MaskedFactors(triangle).at({{"N", 5}}).count("x"), 0U);
}

TEST(MaskedPlaces, AreThoseBesideRowsThatHaveAResultAndNoTerms) {
  const Nest late =
      NestBuilder("late", {{"N", 5}})
          .tensor("x", TensorRole::input, {"N"})
          .tensor("w", TensorRole::input, {"3"})
          .tensor("o", TensorRole::output, {"N"})
          .statement("start[i] : 0 <= i < N", "o[i]", {}, number(0))
          .statement("sum[i, p] : 1 <= i < N and 0 <= p < 3", "o[i]", {"x[i - 1]", "w[p]"}, read(0) * read(1), ReductionOp::add)
          .build();
  EXPECT_THAT(MaskedFactors(late).at({{"N", 5}}).at("w"), ElementsAre(0, 1, 2)) << "o[0] is 0, whatever the taps are";
}

TEST(MaskedPlaces, AreThoseBesideZerosThatTheDefinitionStores) {
  const Nest stored =
      NestBuilder("stored_zeros", {{"N", 5}})
          .tensor("x", TensorRole::input, {"N"})
          .tensor("w", TensorRole::input, {"3"})
          .tensor("pad", TensorRole::temporary, {"N + 2"})
          .tensor("o", TensorRole::output, {"N"})
          .statement("zeros[i] : 0 <= i < N + 2", "pad[i]", {}, number(0))
          .statement("middle[i] : 1 <= i <= N", "pad[i]", {"x[i - 1]"}, read(0))
          .statement("start[i] : 0 <= i < N", "o[i]", {}, number(0))
          .statement("sum[i, p] : 0 <= i < N and 0 <= p < 3", "o[i]", {"pad[i + p]", "w[p]"}, read(0) * read(1), ReductionOp::add)
          .build();
  EXPECT_THAT(MaskedFactors(stored).at({{"N", 5}}).at("w"), ElementsAre(0, 2)) << "the middle one meets no zeros";
}

/// The definition meets no zeros: kernels do, where distances from a row are places.
TEST(MaskedPlaces, DistancesArePlacesToKernels) {
  EXPECT_THAT(MaskedFactors(window_of_distances()).at({{"N", 3}}).at("v"), ElementsAre(3, 4, 5, 6, 7, 8))
      << "not row 0, which all see";
}

TEST(MaskedPlaces, RulesNameTheFactorsThatTheyLeaveOut) {
  const Schedule defined(masked_sum(""));
  EXPECT_THAT(finite_of(defined), IsEmpty());
  const Schedule narrowed = defined.apply(parse_step("apply_rule(neutral_terms)"));
  EXPECT_THAT(finite_of(narrowed), ElementsAre("u"));
  const Sizes sizes{{"R", 2}, {"C", 4}};
  EXPECT_EQ(masked_places(narrowed, {"u"}, sizes), (ElementLists{{"v", {1, 2, 3}}}));
}

TEST(MaskedPlaces, ProgramsNameWhatTheyMultiplyByZero) {
  EXPECT_THAT(finite_of(Schedule(attention_nest({.seen = Seen::all}))), IsEmpty());
  EXPECT_THAT(finite_of(Schedule(attention_nest({.seen = Seen::causal}))), ElementsAre("v"));
  const Schedule causal = tensor_schedule(attention_nest({.seen = Seen::causal}));
  const GpuCertificate facts = certify_kernels(build_tile_program(causal), {});
  EXPECT_THAT(facts.finite, ElementsAre("v"));
  EXPECT_THAT(finite_tensors(causal, {}, facts.finite), ElementsAre("v"));
}

}  // namespace
}  // namespace nestor::testing
