// Completion scripts and manual pages: every option of every command is in them, and shells take them.
#include "integration/run_nestor.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace nestor::test {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kCommands{"tune",  "plan", "query",     "explore",   "show",   "verify",
                                         "bench", "db",   "db export", "db import", "devices"};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// The long options that `nestor COMMAND --help` lists.
std::set<std::string> options_of(const std::string& command) {
  std::vector<std::string> args = words_of(command);
  args.emplace_back("--help");
  const std::string help = run_nestor(args).out;
  const std::regex option("\\n  (-[^ ]*)"), name("--[a-z-]+");
  std::set<std::string> found;
  for (std::sregex_iterator at(help.begin(), help.end(), option), end; at != end; ++at) {
    const std::string names = (*at)[1];
    for (std::sregex_iterator one(names.begin(), names.end(), name); one != end; ++one) found.insert(one->str());
  }
  EXPECT_TRUE(found.contains("--help")) << help;
  return found;
}

bool have(const std::string& program) { return std::system((program + " --version >/dev/null 2>&1").c_str()) == 0; }

TEST(Completion, BashOffersEveryOptionOfACommand) {
  const TemporaryFolder folder;
  write_whole(folder.file("nestor.bash"), run_nestor({"completion", "bash"}).out);
  for (const std::string& command : kCommands) {
    const std::string program = "source " + folder.file("nestor.bash") + "; COMP_WORDS=(nestor " + command +
                                " --); COMP_CWORD=" + std::to_string(words_of(command).size() + 1) +
                                "; _nestor; echo \" ${COMPREPLY[*]} \"";
    ASSERT_EQ(std::system(("bash -c " + shell_quoted(program) + " >" + folder.file("out")).c_str()), 0) << command;
    for (const std::string& option : options_of(command))
      EXPECT_THAT(read_whole(folder.file("out")), HasSubstr(" " + option + " ")) << command;
  }
  const std::string program =
      "source " + folder.file("nestor.bash") + "; COMP_WORDS=(nestor tune layern); COMP_CWORD=2; _nestor; echo ${COMPREPLY[*]}";
  ASSERT_EQ(std::system(("bash -c " + shell_quoted(program) + " >" + folder.file("out")).c_str()), 0);
  EXPECT_THAT(read_whole(folder.file("out")), HasSubstr("layernorm layernorm_backward"));
}

TEST(Completion, ZshAndFishNameEveryOption) {
  const std::string zsh = run_nestor({"completion", "zsh"}).out, fish = run_nestor({"completion", "fish"}).out;
  for (const std::string& command : kCommands) {
    for (const std::string& option : options_of(command)) {
      EXPECT_THAT(zsh, HasSubstr("'" + option + "[")) << command;
      EXPECT_THAT(fish, HasSubstr("-l " + option.substr(2) + " ")) << command;
    }
  }
  const TemporaryFolder folder;
  write_whole(folder.file("zsh"), zsh);
  write_whole(folder.file("fish"), fish);
  if (have("zsh")) {
    EXPECT_EQ(std::system(("zsh -n " + folder.file("zsh")).c_str()), 0);
  }
  if (have("fish")) {
    EXPECT_EQ(std::system(("fish -n " + folder.file("fish")).c_str()), 0);
  }
}

TEST(Completion, UnknownShellsAreRefused) {
  const Outcome outcome = run_nestor({"completion", "csh"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("bash"));
}

TEST(Manual, NamesEveryOptionAndCommand) {
  for (const std::string& command : kCommands) {
    std::vector<std::string> args = words_of(command);
    args.insert(args.begin(), "manual");
    const Outcome page = run_nestor(args);
    ASSERT_EQ(page.code, 0) << page.err;
    for (const std::string& option : options_of(command)) {
      EXPECT_THAT(page.out, HasSubstr(std::regex_replace("\\fB" + option + "\\fR", std::regex("-"), "\\-"))) << command;
    }
    EXPECT_THAT(page.out, testing::AllOf(HasSubstr(".SH NAME"), HasSubstr(".SH SYNOPSIS"), HasSubstr(".SH EXIT STATUS")));
  }
  const std::string whole = run_nestor({"manual"}).out;
  for (const char* command : {"tune", "query", "db", "completion"})
    EXPECT_THAT(whole, HasSubstr(std::string(".B ") + command + "\n"));
  EXPECT_THAT(run_nestor({"manual", "tnue"}).err, HasSubstr("did you mean 'tune'?"));
}

}  // namespace
}  // namespace nestor::test
