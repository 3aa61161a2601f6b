// Rules over random operators: a rule applies, or says why it does not; it never fails. NESTOR_PROPERTY_CASES sets the number of operators.
#include "poly/algebra/all_rules.h"
#include "support/error.h"
#include "support/nests/random_operators.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace nestor {
namespace {

TEST(RandomOperators, EveryMatchOfARuleAppliesOrIsRefused) {
  const char* more = std::getenv("NESTOR_PROPERTY_CASES");
  const int cases = more != nullptr ? std::atoi(more) : 60;
  int applied = 0;
  for (int seed = 0; seed < cases; ++seed) {
    const Nest nest = samples::RandomOperator(static_cast<std::uint64_t>(seed)).draw();
    ASSERT_NO_THROW(validate(nest)) << seed;
    std::vector<RuleMatch> matches;
    ASSERT_NO_THROW(matches = find_matches(nest)) << "operator " << seed << "\n" << describe(nest);
    for (const RuleMatch& match : matches) {
      try {
        const RuleResult result = rule(match.rule).apply(nest, match.target);
        EXPECT_NO_THROW(validate(result.nest)) << "operator " << seed << ", " << match.description;
        ++applied;
      } catch (const UserError&) {}
    }
  }
  EXPECT_GT(applied, cases / 4);
}

}  // namespace
}  // namespace nestor
