// JSON from outside: refused when it is nested too deep, and always writable.
#include "support/error_text.h"
#include "support/system/json_text.h"
#include "support/system/text_file.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
}

TEST(JsonText, NestedToTheLimitIsReadAndDeeperIsRefused) {
  EXPECT_NO_THROW(json_from_text(nested(kDeepestJson), "f.json"));
  for (const int depth : {kDeepestJson + 1, 100000}) {
    EXPECT_THAT(message_of([&] { json_from_text(nested(depth), "f.json"); }),
                AllOf(HasSubstr("f.json has"), HasSubstr("nested")));
    EXPECT_TRUE(json_or_discarded(nested(depth)).is_discarded());
  }
  // Brackets in strings are no nesting, and an escaped quote ends none.
  const std::string brackets = "\"" + std::string(5000, '[') + "\\\"" + std::string(5000, '{') + "\"";
  EXPECT_EQ(json_from_text("[" + brackets + "]", "f.json").at(0).get<std::string>().size(), 10001u);
}

TEST(JsonText, WhatIsNoJsonIsRefusedByName) {
  EXPECT_THAT(message_of([] { json_from_text("{", "f.json"); }), HasSubstr("f.json is not valid JSON"));
  EXPECT_THAT(message_of([] { json_from_text("\"\xff\"", "f.json"); }), HasSubstr("f.json is not valid JSON"));
}

TEST(JsonText, AValueThatSomebodyElseReadIsHeldAgainstTheLimitToo) {
  nlohmann::json value = 1;
  for (int k = 0; k < kDeepestJson; ++k) {
    nlohmann::json outer = nlohmann::json::array();
    outer.push_back(std::move(value));
    value = std::move(outer);
  }
  EXPECT_NO_THROW(require_flat_json(value, "the nest"));
  nlohmann::json outer = nlohmann::json::object();
  outer["x"] = std::move(value);
  EXPECT_THAT(message_of([&] { require_flat_json(outer, "the nest"); }), HasSubstr("the nest has"));
}

TEST(JsonText, WhatIsNoUtf8IsReplacedWhenItIsWritten) {
  EXPECT_EQ(json_to_text({{"a", "x\xffy"}}), "{\"a\":\"x\xef\xbf\xbdy\"}");
  EXPECT_EQ(valid_utf8("x\xffy"), "x\xef\xbf\xbdy");
  EXPECT_EQ(valid_utf8("plain \xc3\xa4"), "plain \xc3\xa4");
}

TEST(TextFile, IsReadWholeAndAFolderIsRefusedAsOne) {
  const test::TemporaryFolder folder;
  std::string bytes(200000, 'x');
  bytes[100] = '\0';
  test::write_whole(folder.file("a"), bytes);
  EXPECT_EQ(text_of_file(folder.file("a")), bytes);
  EXPECT_THAT(message_of([&] { text_of_file(folder.path().string()); }), HasSubstr("it is a folder, not a file"));
  EXPECT_THAT(message_of([&] { text_of_file(folder.file("none")); }), HasSubstr("No such file"));
}

}  // namespace
}  // namespace nestor
