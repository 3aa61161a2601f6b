// Text from outside ends: files and lines that go on are refused, and lines are those of std::getline.
#include "support/error_text.h"
#include "support/system/text_file.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace nestor {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TextFile, ADeviceThatGoesOnIsRefusedBeforeItFillsTheMemory) {
  EXPECT_THAT(message_of([] { text_of_file("/dev/zero"); }), HasSubstr("cannot read /dev/zero: it goes on after 256 MiB"));
  EXPECT_EQ(text_of_file("/dev/null"), "");
}

std::vector<std::size_t> lengths(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::size_t> found;
  for (std::string line; read_line(in, line);) found.push_back(line.size());
  return found;
}

TEST(TextFile, LinesAreThoseOfGetline) {
  for (const std::size_t length : {0U, 1U, 4094U, 4095U, 4096U, 8190U, 8191U, 100000U}) {
    const std::string line(length, 'x');
    for (const std::string& text : {line + "\n", line, line + "\n\n" + line, std::string("\n") + line}) {
      std::istringstream in(text);
      std::vector<std::size_t> expected;
      for (std::string each; std::getline(in, each);) expected.push_back(each.size());
      EXPECT_EQ(lengths(text), expected) << length;
    }
  }
  EXPECT_THAT(lengths(std::string("a\0b\nc", 5)), ElementsAre(3, 1));
}

TEST(TextFile, ALineThatGoesOnIsRefused) {
  std::istringstream in("short\n" + std::string(20000, 'x'));
  std::string line;
  EXPECT_TRUE(read_line(in, line, 9000));
  EXPECT_THAT(message_of([&] { read_line(in, line, 9000); }), HasSubstr("a line goes on after 9000 bytes"));
}

}  // namespace
}  // namespace nestor
