// The isl context: one a thread, errors as exceptions, budgets that nest.
#include "poly/context.h"

#include <gtest/gtest.h>

#include <thread>

#include "poly/isl_tools.h"
#include "support/error.h"

namespace nestor {
namespace {

/// Enough work to overrun a small budget.
isl::set busy_work() {
  isl::set set = parse_set("[N] -> { [a, b, c, d] : 0 <= a, b, c, d < N and 3a + 5b = 7c + 2d }", "test");
  for (int k = 0; k < 4; ++k)
    set = set.complement().subtract(parse_set("{ [a, b, c, d] : a mod 3 = b mod 5 }", "test")).coalesce();
  return set;
}

TEST(Context, IsOneAThread) {
  isl_ctx* here = isl_context().get();
  EXPECT_EQ(isl_context().get(), here);
  isl_ctx* there = nullptr;
  std::thread([&] { there = isl_context().get(); }).join();
  EXPECT_NE(there, here);
}

TEST(Context, OverrunIsAUserErrorThatNamesTheWork) {
  try {
    with_isl_budget("the test's work", [] { busy_work(); }, 1000);
    FAIL() << "no overrun";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("the test's work"), std::string::npos);
  }
  // The context works on afterwards.
  EXPECT_FALSE(parse_set("{ [i] : 0 <= i < 3 }", "test").is_empty());
}

TEST(Context, OuterLimitComesBack) {
  const IslBudget outer(123456);
  {
    const IslBudget inner(77);
    EXPECT_EQ(isl_ctx_get_max_operations(isl_context().get()), 77U);
  }
  EXPECT_EQ(isl_ctx_get_max_operations(isl_context().get()), 123456U);
}

TEST(Context, GuardedComputationReturnsItsResult) {
  const isl::set set = isl_guarded("a set", [] { return parse_set("{ [i] : 0 <= i < 3 }", "test"); });
  EXPECT_EQ(set.tuple_dim(), 1U);
  EXPECT_THROW(
      isl_guarded("nonsense",
                  [] { return isl::set(isl_context(), "{ [i] : }").intersect(isl::set(isl_context(), "{ [i, j] : }")); }),
      InternalError);
}

}  // namespace
}  // namespace nestor
