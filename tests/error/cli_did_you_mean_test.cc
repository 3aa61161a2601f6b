// Words that nobody knows get the nearest known one.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(CliDidYouMean, EveryKindOfWord) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"show", "layrnorm"}, "did you mean 'layernorm'?"},
      {{"show", "layernorm", "--variant", "bf61"}, "did you mean 'bf16'?"},
      {{"show", "layernorm", "--row", "8"}, "did you mean 'rows'?"},
      {{"tune", "layernorm", "--trails", "8"}, "did you mean '--trials'?"},
      {{"tnue", "layernorm"}, "did you mean 'tune'?"},
      {{"show", "layernorm", "--as", "lops"}, "did you mean 'loops'?"},
      {{"show", "layernorm", "--varaint", "f32"}, "did you mean '--variant'?"},
      {{"tune", "layernorm", "--thredas", "two"}, "did you mean '--threads'?"},
      {{"tune", "layernorm", "--target", "hsot"}, "did you mean 'host'?"},
      {{"tune", "layernorm", "--searcher", "rnadom"}, "did you mean 'random'?"},
      {{"bench", "layernorm", "--set", "esp=1"}, "did you mean 'eps'?"},
      {{"completion", "zhs"}, "did you mean 'zsh'?"},
      {{"db", "exprot"}, "did you mean 'export'?"},
      {{"db", "check", "--rnu"}, "did you mean '--run'?"},
      {{"db", "check", "--bd", "x"}, "did you mean '--db'?"}};
  for (const auto& [args, words] : cases) {
    const Outcome outcome = run_nestor(args);
    EXPECT_EQ(outcome.code, 1) << args.back();
    EXPECT_THAT(outcome.err, HasSubstr(words)) << args.back();
  }
  const Outcome explored =
      run_nestor({"explore", "matmul", "--target", "host"}, "spilt(product.i, 2, a, b)\nmaesure\nhelp paralel\n");
  EXPECT_EQ(explored.code, 1);
  for (const char* words : {"did you mean 'split'?", "did you mean 'measure'?", "did you mean 'parallel'?"})
    EXPECT_THAT(explored.out, HasSubstr(words));
}

TEST(CliDidYouMean, ANegativeSizeIsASize) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--rows", "-4k"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, Not(HasSubstr("is no option")));
  EXPECT_THAT(outcome.err, HasSubstr("rows"));
}

TEST(CliDidYouMean, NothingIsSaidWhereNothingIsNear) {
  EXPECT_THAT(run_nestor({"show", "xyzzy"}).err, Not(HasSubstr("did you mean")));
  EXPECT_THAT(run_nestor({"frobnicate"}).err, Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace nestor::test
