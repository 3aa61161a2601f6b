// Units, tables and the rewriting of size options.
#include "cli/terminal/output.h"

#include <gtest/gtest.h>

#include "cli/arguments/operator_args.h"
#include "cli/commands/commands.h"
#include "support/error.h"

namespace nestor::cli {
namespace {

TEST(CliOutput, TimesHaveTheUnitThatFits) {
  EXPECT_EQ(format_ms(0), "-");
  EXPECT_EQ(format_ms(0.01234), "12.34 us");
  EXPECT_EQ(format_ms(4.5), "4.5 ms");
  EXPECT_EQ(format_ms(1500), "1.5 s");
}

TEST(CliOutput, ReportsOfGpuTrialsAreWords) {
  TrialRecord trial;
  EXPECT_EQ(throughput_text(trial), "");
  EXPECT_EQ(kernel_text(trial), "");
  trial.median_ms = 0.1;
  trial.report = R"({"argument_bytes":20000000,"kernels":[{"name":"k_0","registers":40,"local_bytes":16,"threads":256,
                     "shared_bytes":1024,"blocks_per_unit":1}]})";
  EXPECT_EQ(throughput_text(trial), ", 200 GB/s");
  EXPECT_EQ(kernel_text(trial),
            "\n  k_0: 40 registers, 16 bytes of local memory a thread, 1024 bytes of shared memory, 1 block of 256 threads a "
            "multiprocessor");
  trial.median_ms = 0.01;
  EXPECT_EQ(throughput_text(trial), ", 2.000 TB/s");
  trial.report = "no JSON";
  EXPECT_EQ(throughput_text(trial) + kernel_text(trial), "");
}

TEST(CliOutput, TablesAlignColumns) {
  EXPECT_EQ(format_table({{"a", "bb", "c"}, {"long", "x", "y"}}), "a     bb  c\nlong  x   y\n");
}

/// The longest line, in bytes.
std::size_t widest(const std::string& text) {
  std::size_t most = 0, begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin))
    most = std::max(most, end - begin);
  return most;
}

TEST(CliOutput, WideTablesWrapTheirWidestColumns) {
  const std::vector<std::vector<std::string>> rows{
      {"operator", "sizes", "device", "best"},
      {"attention", "batch=16 heads=16 queries=4096 keys=4096 head_dim=128", "cuda/sm_90/132/NVIDIA H200", "1.234 ms"},
      {"softmax", "rows=64 width=128", "host/znver4/2", "12 us"}};
  const std::string wide = format_table(rows), narrow = format_table(rows, 60);
  EXPECT_EQ(format_table(rows, 200), wide);
  EXPECT_GT(widest(wide), 60U);
  EXPECT_LE(widest(narrow), 60U);
  EXPECT_EQ(narrow.substr(0, 8), "operator");
  EXPECT_NE(narrow.find("1.234 ms"), std::string::npos);
  EXPECT_NE(narrow.find("queries=4096"), std::string::npos);  // cut at spaces
}

TEST(CliOutput, OnNarrowTerminalsEachRowIsAParagraph) {
  const std::string text =
      format_table({{"operator", "sizes", "best"}, {"softmax", "rows=64 width=128", "12 us"}, {"matmul", "m=1", "1 us"}}, 20);
  EXPECT_EQ(text, "operator: softmax\nsizes: rows=64\nwidth=128\nbest: 12 us\n\noperator: matmul\nsizes: m=1\nbest: 1 us\n");
  for (int width = 1; width < 20; ++width) EXPECT_LE(widest(format_table({{"a", "b"}, {std::string(50, 'x'), "y"}}, width)), 50U);
  EXPECT_EQ(format_table({}, 10), "");
}

TEST(CliOutput, TablesCountCharactersNotBytes) {
  EXPECT_EQ(format_table({{"größe", "b"}, {"longer", "c"}}), "größe   b\nlonger  c\n");
  EXPECT_EQ(format_table({{"name", "text"}, {"a", "ää ää ää ää ää ää"}}, 14), "name  text\na     ää ää ää\n      ää ää ää\n");
}

class SizeOptions : public testing::Test {
 protected:
  SizeOptions() : app_("test") {
    app_.add_flag("--json");
    add_tune(app_, run_);
    add_db(app_, run_);
  }
  std::vector<std::string> rewrite(std::vector<std::string> args) const {
    args.insert(args.begin(), "nestor");
    args = rewrite_size_options(app_, args);
    args.erase(args.begin());
    return args;
  }

  CLI::App app_;
  Action run_;
};

using Strings = std::vector<std::string>;

TEST_F(SizeOptions, NamesThatAreNoOptionsBecomeSizes) {
  EXPECT_EQ(rewrite({"tune", "x", "--rows", "4", "--width=8"}), (Strings{"tune", "x", "--sizes=rows=4", "--sizes=width=8"}));
  EXPECT_EQ(rewrite({"tune", "--rows", "4", "x"}), (Strings{"tune", "--sizes=rows=4", "x"}));
  EXPECT_EQ(rewrite({"tune", "x", "--rows", "-4"}), (Strings{"tune", "x", "--sizes=rows=-4"}));
}

TEST_F(SizeOptions, OptionsOfTheProgramStay) {
  const Strings args{"--json", "tune", "x", "--trials", "3", "--fix-all", "--json"};
  EXPECT_EQ(rewrite(args), args);
  EXPECT_EQ(rewrite({"db", "prune", "--rows", "4"}), (Strings{"db", "prune", "--rows", "4"}));
}

TEST_F(SizeOptions, AValueIsNeeded) {
  EXPECT_THROW(rewrite({"tune", "x", "--rows"}), UserError);
  EXPECT_THROW(rewrite({"tune", "x", "--rows", "--width=8"}), UserError);
}

}  // namespace
}  // namespace nestor::cli
