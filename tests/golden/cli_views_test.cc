// What people read: help, lists and views, compared with tests/golden/cli. NESTOR_UPDATE_GOLDEN=1 rewrites the files.
#include <gtest/gtest.h>

#include <cstdlib>

#include "integration/run_nestor.h"

namespace nestor::test {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> args;
  const char* input;
};

std::ostream& operator<<(std::ostream& out, const Case& golden) { return out << golden.name; }

class CliViews : public testing::TestWithParam<Case> {};

TEST_P(CliViews, AreAsRecorded) {
  const std::string path = std::string(NESTOR_GOLDEN_FOLDER) + "/cli/" + GetParam().name + ".txt";
  const Outcome outcome = run_nestor(GetParam().args, GetParam().input);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  if (std::getenv("NESTOR_UPDATE_GOLDEN") != nullptr) write_whole(path, outcome.out);
  EXPECT_EQ(outcome.out, read_whole(path));
}

INSTANTIATE_TEST_SUITE_P(Golden, CliViews,
                         testing::Values(Case{"help", {"--help"}, ""},
                                         Case{"original_loops", {"show", "layernorm", "--as", "loops"}, ""},
                                         Case{"tiles_of_a_mask",
                                              {"show", "attention", "--variant", "causal.f16", "--as", "tiles", "--steps",
                                               NESTOR_GOLDEN_FOLDER "/cli/one_pass.steps", "--queries", "4096", "--keys", "4096"},
                                              ""},
                                         Case{"steps_applied",
                                              {"show", "layernorm", "--as", "loops", "--steps", "-"},
                                              "split(out.c, 16, co, ci)\nparallel(out.i)\nvectorize(ci)\n"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nestor::test
