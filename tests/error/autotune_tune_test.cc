// Errors of tuning that a user causes: each names what was wrong and what would be right.
#include "autotune/tuner.h"
#include "nestor/tune.h"
#include "poly/nest/nest_json.h"
#include "support/error_text.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using test::message_of;
using ::testing::HasSubstr;

TuneRequest request() {
  TuneRequest request;
  request.nest = samples::matmul();
  request.database = "/tmp/nestor_tune_errors_" + std::to_string(getpid()) + ".db";
  request.max_trials = 1;
  return request;
}

TEST(TuneErrors, UnknownSizeName) {
  TuneRequest asked = request();
  asked.sizes = {{"rows", 8}};
  EXPECT_THAT(message_of([&] { tune(asked); }), HasSubstr("rows"));
}

TEST(TuneErrors, SizeBelowItsMinimum) {
  for (const std::int64_t value : {0, -4}) {
    TuneRequest asked = request();
    asked.sizes = {{"M", value}};
    const std::string message = message_of([&] { tune(asked); });
    EXPECT_THAT(message, HasSubstr("M"));
    EXPECT_THAT(message, HasSubstr(std::to_string(value)));
  }
}

TEST(TuneErrors, NegativeBudgets) {
  TuneRequest asked = request();
  asked.max_trials = -1;
  EXPECT_THAT(message_of([&] { tune(asked); }), HasSubstr("-1"));
  asked = request();
  asked.time_budget_s = -2;
  EXPECT_THAT(message_of([&] { tune(asked); }), HasSubstr("time budget"));
}

TEST(TuneErrors, UnknownScalarArgument) {
  TuneRequest asked = request();
  asked.measure.scalars = {{"epsilon", 1.0}};
  EXPECT_THAT(message_of([&] { tune(asked); }), HasSubstr("epsilon"));
}

TEST(TuneErrors, DatabaseThatCannotBeOpened) {
  TuneRequest asked = request();
  asked.database = "/proc/no/such/folder/tuning.db";
  EXPECT_THAT(message_of([&] { tune(asked); }), HasSubstr("/proc/no/such/folder"));
}

TEST(TuneErrors, PublicCallRefusesTextThatIsNoNest) {
  EXPECT_THAT(message_of([] { tune_nest_json("{"); }), HasSubstr("not valid JSON"));
  TuneOptions options;
  options.searcher = "clever";
  const std::string nest = nest_to_json(samples::matmul()).dump();
  EXPECT_THAT(message_of([&] { tune_nest_json(nest, options); }), HasSubstr("exhaustive, random or evolutionary"));
}

}  // namespace
}  // namespace nestor
