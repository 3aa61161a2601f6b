// Text records that are wrong: the line and the key are named, and nothing is stored.
#include "db/database.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace nestor {
namespace {

using namespace test;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

TEST(ReportError, AReportThatIsNoJsonIsRefused) {
  TemporaryFolder folder;
  Database database = Database::open(folder.file("a.db"));
  TrialRecord trial = ok_trial(1, "some code");
  trial.report = "40 registers";
  EXPECT_THAT(message_of([&] { database.add_trial(device(), problem({{"n", 64}}), kNest, trial); }),
              HasSubstr("the report is not JSON"));
}

class RecordError : public testing::Test {
 protected:
  RecordError() {
    Database from = Database::open(folder.file("from.db"));
    from.add_trial(device(), problem({{"n", 64}}), kNest, ok_trial(1, "some code"));
    std::ostringstream out;
    from.export_records(out);
    good = without_signature(out.str());
  }
  std::string import_error(const std::string& text) {
    std::istringstream in(text);
    const std::string message = message_of([&] { database.import_records(in); });
    EXPECT_TRUE(database.summary().empty()) << "nothing is stored";
    return message;
  }
  // The good record with one value changed.
  std::string with(const std::string& pointer, const json& value) {
    json record = json::parse(good);
    record[json::json_pointer(pointer)] = value;
    return record.dump() + "\n";
  }

  TemporaryFolder folder;
  std::string good;
  Database database = Database::open(folder.file("to.db"));
};

TEST_F(RecordError, ALateBadLineStoresNothing) {
  EXPECT_THAT(import_error(good + "\n" + with("/created", "2025-02-01T00:00:00Z") + "{\"format\":1"),
              AllOf(HasSubstr("line 4"), HasSubstr("not JSON")));
}

TEST_F(RecordError, EachKindOfBadValueIsNamed) {
  const std::vector<std::tuple<std::string, json, std::string>> cases{
      {"/format", 3, "format is 3"},
      {"/status", "great", "\"great\" is no status"},
      {"/median_ms", "fast", "\"median_ms\" has the wrong type"},
      {"/median_ms", -1, "the median is -1"},
      {"/median_ms", 0, "median is 0"},
      {"/samples_ms", json::array({1, -2}), "a sample is -2"},
      {"/max_error", -0.5, "below 0"},
      {"/created", "yesterday", "\"yesterday\" is no time"},
      {"/problem/sizes/n", 0, "size n is 0"},
      {"/problem/sizes/n", 1.5, "\"n\" is no integer"},
      {"/problem/op", "", "operator's name is empty"},
      {"/device/units", "two", "\"units\" is no integer"},
      {"/kernel/code", "!!!!", "not base64"},
      {"/kernel/hash", "00", "hash is 00"},
      {"/kernel/hash", "", "\"hash\" is empty"},
      {"/steps", nullptr, "neither a list nor an object"},
      {"/steps", json{{"parameters", json::array({1})}}, "no object of integers"},
      {"/steps", json{{"parameters", {{"tile", "wide"}}}}, "no object of integers"},
      {"/signature", json{{"key", "00"}, {"value", "00"}}, "is no public key"},
      {"/signature", 3, "no JSON object"},
      {"/kernel/code", "AAAA", "but its contents give"},
      {"/kernel/recipe/symbol", "other", "but its contents give"},
      {"/revision", -1, "\"revision\" is -1"},
      {"/revision", "first", "\"revision\" is no integer"},
      {"/checked", 1.5, "\"checked\" is no integer"},
      {"/pinned", "yes", "\"pinned\" has the wrong type"},
      {"/colour", "red", "unknown key \"colour\""},
  };
  for (const auto& [pointer, value, expected] : cases) {
    EXPECT_THAT(import_error(good + with(pointer, value)), AllOf(HasSubstr("line 2"), HasSubstr(expected))) << pointer;
  }
}

TEST_F(RecordError, EveryMissingKeyIsNamed) {
  const json record = json::parse(good);
  for (const auto& [key, value] : record.items()) {
    if (key == "revision" || key == "checked") continue;  // lines of older programs have none
    json partial = record;
    partial.erase(key);
    EXPECT_THAT(import_error(partial.dump()), AllOf(HasSubstr("line 1"), HasSubstr("\"" + key + "\"")));
  }
  for (const char* part : {"device", "problem", "kernel"}) {
    for (const auto& [key, value] : record.at(part).items()) {
      json partial = record;
      partial[part].erase(key);
      EXPECT_THAT(import_error(partial.dump()), HasSubstr("\"" + key + "\"")) << part;
    }
  }
}

TEST_F(RecordError, OtherTextIsNoRecord) {
  for (const char* text : {"hello", "[]", "3", "{}", "{\"a\":1}"}) EXPECT_THAT(import_error(text), HasSubstr("line 1")) << text;
}

TEST_F(RecordError, DeepNestingIsRefusedBeforeItIsRead) {
  const std::string deep(100000, '['), closed(100000, ']');
  EXPECT_THAT(import_error(deep + closed), HasSubstr("more than 500 deep"));
  std::string line = good;
  line.replace(line.find("\"steps\":"), std::string("\"steps\":[\"tile\"]").size(), "\"steps\":" + deep + closed);
  EXPECT_THAT(import_error(line), HasSubstr("more than 500 deep"));
  TrialRecord trial = ok_trial(1, "code");
  trial.steps = deep + closed;
  EXPECT_THAT(message_of([&] { database.add_trial(device(), problem({{"n", 1}}), kNest, trial); }),
              HasSubstr("more than 500 deep"));
}

TEST_F(RecordError, InvalidUtf8IsRefusedInLinesAndRepairedInOwnTrials) {
  std::string line = good;
  line.replace(line.find("Test CPU"), 4, "\xff\xfe\xfd\xfc");
  EXPECT_THAT(import_error(line), HasSubstr("not JSON"));
  Database own = Database::open(folder.file("own.db"));
  const std::int64_t id = own.add_trial(device(), problem({{"n", 1}}), kNest, failed_trial(TrialStatus::crash, "it \xff fell"));
  EXPECT_EQ(own.trial(id)->reason, "it \xef\xbf\xbd fell");
  std::ostringstream out;
  own.export_records(out);
  std::istringstream in(out.str());
  EXPECT_EQ(own.import_records(in).added, 0) << "it is the same record";
}

TEST_F(RecordError, EveryTruncationIsRefused) {
  const std::string line = good.substr(0, good.size() - 1);
  for (std::size_t length = 1; length < line.size(); length += 7) {
    std::istringstream in(line.substr(0, length));
    EXPECT_THROW(database.import_records(in), UserError) << length;
  }
}

}  // namespace
}  // namespace nestor
