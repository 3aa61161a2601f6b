// The history file: kept, cut, and never in the way.
#include "cli/terminal/input_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/temporary_folder.h"

namespace nestor::cli {
namespace {

TEST(InputHistory, LinesOfSeveralSessionsAreKeptInOrder) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("state/nestor/history");
  InputHistory(path).append("one");
  InputHistory(path).append("two");
  EXPECT_THAT(InputHistory(path).load(), testing::ElementsAre("one", "two"));
}

TEST(InputHistory, ALongFileIsCutToItsEnd) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("history");
  std::string text;
  for (int k = 0; k < 2500; ++k) text += "line " + std::to_string(k) + "\n";
  test::write_whole(path, text);
  std::vector<std::string> lines = InputHistory(path).load();
  ASSERT_EQ(lines.size(), 1000U);
  EXPECT_EQ(lines.back(), "line 2499");
  EXPECT_LT(std::filesystem::file_size(path), text.size() / 2);
  EXPECT_EQ(InputHistory(path).load(), lines);
}

TEST(InputHistory, RubbishIsLeftOut) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("history");
  test::write_whole(path, "good\n\033]0;evil\007\n\n" + std::string(100000, 'x') + "\nlast");
  EXPECT_THAT(InputHistory(path).load(), testing::ElementsAre("good", "last"));
  InputHistory(path).append("a\nb");
  InputHistory(path).append("\033[31m");
  EXPECT_THAT(InputHistory(path).load(), testing::ElementsAre("good", "last"));
}

TEST(InputHistory, WhatCannotBeReadOrWrittenIsNoFailure) {
  const test::TemporaryFolder folder;
  test::write_whole(folder.file("file"), "text");
  for (const std::string& path :
       {std::string(), folder.file("file/below/history"), folder.path().string(), std::string("/dev/full")}) {
    const InputHistory history(path);
    history.append("line");
    EXPECT_TRUE(history.load().empty()) << path;
  }
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  InputHistory(folder.file("pipe")).append("line");  // nobody reads it: must not wait
  EXPECT_TRUE(InputHistory(folder.file("pipe")).load().empty());
}

TEST(InputHistory, TheStateFolderIsTheUsersOwn) {
  const char* const old = std::getenv("XDG_STATE_HOME");
  const std::string kept = old == nullptr ? "" : old;
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(InputHistory::default_path("h"), "/state/nestor/h");
  setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_THAT(InputHistory::default_path("h"), testing::Not(testing::HasSubstr("relative")));
  old == nullptr ? unsetenv("XDG_STATE_HOME") : setenv("XDG_STATE_HOME", kept.c_str(), 1);
}

}  // namespace
}  // namespace nestor::cli
