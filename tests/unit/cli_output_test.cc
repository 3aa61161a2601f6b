// Units, tables and the rewriting of size options.
#include "cli/output.h"

#include <gtest/gtest.h>

#include "cli/commands.h"
#include "cli/operator_args.h"
#include "support/error.h"

namespace nestor::cli {
namespace {

TEST(CliOutput, TimesHaveTheUnitThatFits) {
  EXPECT_EQ(format_ms(0), "-");
  EXPECT_EQ(format_ms(0.01234), "12.34 us");
  EXPECT_EQ(format_ms(4.5), "4.5 ms");
  EXPECT_EQ(format_ms(1500), "1.5 s");
}

TEST(CliOutput, TablesAlignColumns) {
  EXPECT_EQ(format_table({{"a", "bb", "c"}, {"long", "x", "y"}}), "a     bb  c\nlong  x   y\n");
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
  EXPECT_EQ(rewrite({"tune", "x", "--rows", "4", "--cols=8"}), (Strings{"tune", "x", "--sizes=rows=4", "--sizes=cols=8"}));
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
  EXPECT_THROW(rewrite({"tune", "x", "--rows", "--cols=8"}), UserError);
}

}  // namespace
}  // namespace nestor::cli
