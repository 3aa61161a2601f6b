// Targets that are no device of this machine, and settings out of range, when a schedule is measured through the public API.
#include "nestor/schedule.h"
#include "nestor/tune.h"
#include "support/error_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

namespace nestor {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MeasureTarget : public ::testing::Test {
 protected:
  // Devices are asked for once in a process: all of these tests see none.
  static void SetUpTestSuite() { ::setenv("NESTOR_LIBCUDA", "/nowhere/libcuda.so.1", 1); }
  std::string refusal_of(const MeasureSettings& settings) const {
    return message_of([&] { schedule_.measure(settings); });
  }
  Nest nest_ = Nest::load("softmax");
  Schedule schedule_{nest_, {{"rows", 8}, {"width", 24}}};
};

TEST_F(MeasureTarget, NoSuchKindOfDevice) {
  EXPECT_THAT(refusal_of({.target = "tpu"}), HasSubstr("'tpu' is no device: write host, cuda, cuda:1 or cuda/sm_80"));
  EXPECT_THAT(refusal_of({.target = "cuda/sm_20"}), HasSubstr("'cuda/sm_20' is no device"));
}

TEST_F(MeasureTarget, NoGpu) {
  for (const char* target : {"cuda", "cuda:1", "cuda/sm_80"}) {
    EXPECT_THAT(refusal_of({.target = target}),
                AllOf(HasSubstr("there is no CUDA device here"), HasSubstr("/nowhere/libcuda.so.1")));
  }
  EXPECT_THAT(message_of([&] { schedule_.save("/tmp/nestor_never_made.db", {.target = "cuda"}); }), HasSubstr("no CUDA device"));
  EXPECT_THAT(message_of([&] { tune(nest_, {}, {.target = "cuda"}); }), HasSubstr("no CUDA device"));
}

TEST_F(MeasureTarget, SettingsOutOfRange) {
  EXPECT_THAT(refusal_of({.threads = -1}), HasSubstr("-1 threads"));
  EXPECT_THAT(refusal_of({.run_timeout_s = -2}), HasSubstr("-2 s"));
}

TEST_F(MeasureTarget, OneSizeWithTwoValues) {
  EXPECT_THAT(message_of([&] { tune(nest_, {{"rows", 8}}, {.sizes = {{"rows", 9}}}); }),
              HasSubstr("size rows is 8 among the sizes and 9 in the options"));
}

}  // namespace
}  // namespace nestor
