// The isl context: one a thread, errors as exceptions, budgets that nest.
#include "poly/isl/context.h"

#include <gtest/gtest.h>
#include <isl/set.h>

#include <ctime>
#include <functional>
#include <thread>

#include "poly/isl/attempt.h"
#include "poly/isl/candidate_time.h"
#include "poly/isl/isl_tools.h"
#include "poly/isl/time_limit.h"
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

TEST(Context, TimeIsLimitedWhereverIslIs) {
  isl_ctx* context = isl_context().get();
  const auto forever = [] {
    for (;;) busy_work();
  };
  {
    const IslTimeLimit outer(context, 1000);
    const std::clock_t begin = std::clock();
    {
      const IslTimeLimit limit(context, 0.2);
      EXPECT_THROW(forever(), isl::exception);
      EXPECT_NE(isl_ctx_aborted(context), 0);
    }
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5);
    EXPECT_FALSE(parse_set("{ [i] : 0 <= i < 3 }", "test").is_empty()) << "the limit around it has time left";
    with_isl_budget("more work", [] { EXPECT_FALSE(parse_set("{ [i] : 0 <= i < 3 }", "test").is_empty()); });
  }
  isl_ctx_reset_error(context);
}

TEST(Context, AnOverrunInsideATimeLimitNamesTheWork) {
  isl_ctx* context = isl_context().get();
  const IslTimeLimit limit(context, 0.05);
  try {
    with_isl_budget("long work", [] {
      for (;;) busy_work();
    });
    FAIL() << "no overrun";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("long work takes more than"), std::string::npos) << error.what();
  }
}

TEST(Context, TextIsNotToBlameForTimeThatIsOver) {
  isl_ctx* context = isl_context().get();
  const auto parse = [] { parse_set("{ [i] : 0 <= i < 3 }", "test"); };
  {
    const IslTimeLimit limit(context, 1000);
    isl_ctx_abort(context);
    EXPECT_THROW(parse(), isl::exception);
    isl_ctx_resume(context);
    try {
      with_isl_budget("long work", [&] {
        isl_ctx_abort(context);
        user_error("misled by isl's silence");
      });
      FAIL() << "no overrun";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("long work takes more than"), std::string::npos) << error.what();
    }
  }
  isl_ctx_reset_error(context);
  EXPECT_NO_THROW(parse());
}

TEST(Context, ACandidatesTimeEndsWhateverIsComputedInIt) {
  const auto forever = [] {
    for (;;) busy_work();
  };
  const auto refusal = [](const std::function<void()>& compute) {
    try {
      with_candidate_time(compute, 0.05);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(forever).find("from steps to code"), std::string::npos) << "isl alone";
  EXPECT_NE(refusal([&] { with_isl_budget("work", forever); }).find("from steps to code"), std::string::npos) << "in a budget";
  EXPECT_NE(refusal([] {
              while (isl_ctx_aborted(isl_context().get()) == 0) {}
              internal_error("misled by isl's silence");
            }).find("from steps to code"),
            std::string::npos)
      << "without isl";
  EXPECT_EQ(refusal([] { EXPECT_FALSE(parse_set("{ [i] : 0 <= i < 3 }", "test").is_empty()); }), "") << "and not the next one's";
  EXPECT_THROW(with_candidate_time([] { internal_error("of its own"); }), InternalError);
}

TEST(Context, AnAttemptSaysThatItTookTooMuch) {
  EXPECT_FALSE(isl_attempt(1000, [] { busy_work(); }));
  bool done = false;
  EXPECT_TRUE(isl_attempt(1'000'000, [&] { done = !parse_set("{ [i] : 0 <= i < 3 }", "test").is_empty(); }));
  EXPECT_TRUE(done);
}

TEST(Context, WhoIsMisledByAnOverrunDoesNotFail) {
  const auto misled = [] {
    isl_set* set = parse_set("[N] -> { [a, b, c, d] : 0 <= a, b, c, d < N and 3a + 5b = 7c + 2d }", "test").release();
    for (int k = 0; k < 1000 && set != nullptr; ++k) set = isl_set_coalesce(isl_set_complement(set));
    ASSERT_EQ(set, nullptr);
    internal_error("a number was expected");
  };
  EXPECT_FALSE(isl_attempt(1000, misled));
  EXPECT_THROW(with_isl_budget("the test's work", misled, 1000), UserError);
  EXPECT_THROW(isl_attempt(1000, [] { internal_error("of its own"); }), InternalError);
  EXPECT_THROW(with_isl_budget("the test's work", [] { internal_error("of its own"); }), InternalError);
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
