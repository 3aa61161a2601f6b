// Words that nobody knows get the nearest known one.
#include "integration/run_nestor.h"
#include "support/temporary_folder.h"

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
      {{"tune", "layernorm", "--target", "h100"}, "did you mean 'cuda'?"},
      {{"bench", "layernorm", "--target", "cuda/sm90"}, "did you mean 'cuda/sm_90'?"},
      {{"verify", "layernorm", "--target", "hots"}, "did you mean 'host'?"},
      {{"show", "layernorm", "--as", "ptx", "--target", "h100"}, "did you mean 'sm_90'?"},
      {{"show", "layernorm", "--as", "ptx", "--target", "cuda/sm_80"}, "did you mean 'sm_80'?"},
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

TEST(CliDidYouMean, DevicesOfRecords) {
  const TemporaryFolder folder;
  const std::string db = folder.file("t.db");
  ASSERT_EQ(run_nestor({"tune", "softmax", "--rows", "8", "--width", "16", "--trials", "1", "--target", "host", "--db", db}).code,
            0);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"hots", "host"}, {"cpu", "host"}, {"cdua", "cuda"}, {"h100", "cuda"}, {"gpu", "cuda"}};
  for (const auto& [word, meant] : cases) {
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"query", "softmax", "--rows", "8", "--width", "16", "--device", word, "--db", db},
          {"report", "softmax", "--device", word, "--db", db, "-o", folder.file("r.html")}}) {
      const Outcome outcome = run_nestor(args);
      EXPECT_EQ(outcome.code, 1) << args[0] << word;
      EXPECT_THAT(outcome.err,
                  testing::AllOf(HasSubstr("no record is of a device '" + word), HasSubstr("did you mean '" + meant + "'?")));
    }
  }
  EXPECT_EQ(run_nestor({"report", "softmax", "--device", "host", "--db", db, "-o", folder.file("r.html")}).code, 0);
  const Outcome explored = run_nestor({"explore", "softmax", "--target", "host", "--db", db}, "measure hots\n");
  EXPECT_THAT(explored.out, HasSubstr("did you mean 'host'?"));
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
