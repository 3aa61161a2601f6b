// Unions with fewer constraints are the same sets.
#include "poly/isl/conjunction.h"

#include "poly/isl/isl_tools.h"

#include <gtest/gtest.h>
#include <isl/constraint.h>

namespace nestor {
namespace {

isl::set set(const std::string& text) { return parse_set(text, "a test's set"); }

TEST(Conjunction, PartsLoseWhatOthersMakeUpFor) {
  const isl::set domain = set("{ [i, t] : t <= i or (8 <= i <= 11 and 8 <= t <= 11) }");
  const isl::set fewer = with_few_constraints(domain, set("{ [i, t] }"));
  EXPECT_TRUE(fewer.is_equal(domain));
  EXPECT_TRUE(fewer.is_equal(set("{ [i, t] : t <= i or (8 <= i and t <= 11) }"))) << isl_text(fewer);
  int constraints = 0;
  fewer.foreach_basic_set([&](const isl::basic_set& part) { constraints += isl_basic_set_n_constraint(part.get()); });
  EXPECT_EQ(constraints, 3);
}

TEST(Conjunction, WhatIsKnownMakesUpToo) {
  const isl::set domain = set("[n] -> { [i, t] : (t <= i and t < n) or (8 <= i and 8 <= t <= 11) }");
  const isl::set known = set("[n] -> { [i, t] : i < n }");
  const isl::set fewer = with_few_constraints(domain, known);
  EXPECT_TRUE(fewer.intersect(known).is_equal(domain.intersect(known)));
  EXPECT_TRUE(set("[n] -> { [i, t] : n = 0 and i = 0 and t = 0 }").is_subset(fewer));
}

/// Whole tiles of 128 in blocks of 256: all three parts say the same of the tiles that are known.
TEST(Conjunction, DivisionsGoWithTheirConstraints) {
  const isl::set known =
      set("[n] -> { [q, k] : 0 <= q and 128 q < n and 0 <= k <= q + 1 and 128 k < n and 2*floor(k/2) <= q + 1 }");
  const isl::set domain =
      set("[n] -> { [q, k] : (128 q + 127 >= n and 2*floor(k/2) <= q) or (128 q + 128 <= n and 128 k + 128 <= n and 2*floor(k/2) "
          "<= q) or "
          "(q mod 2 = 0 and k = q + 1 and 128 q + 255 >= n and 2*floor(k/2) <= q) }");
  const isl::set fewer = with_few_constraints(domain, known);
  EXPECT_TRUE(fewer.intersect(known).is_equal(domain.intersect(known))) << isl_text(fewer);
  EXPECT_EQ(isl_set_n_basic_set(fewer.get()), 1) << isl_text(fewer);
}

TEST(Conjunction, OnePartAndDivisionsStay) {
  for (const char* text : {"{ [i] : 0 <= i and i <= 4 }", "{ [i] : i mod 2 = 0 or (i mod 3 = 0 and i >= 6) }"}) {
    const isl::set whole = set(text);
    EXPECT_EQ(isl_text(with_few_constraints(whole, set("{ [i] }"))), isl_text(whole));
  }
}

}  // namespace
}  // namespace nestor
