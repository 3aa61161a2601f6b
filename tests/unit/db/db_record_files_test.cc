// Files of records with their packs: a database that goes through them is the same, row by row and byte by byte.
#include "db/database.h"
#include "db/records/kernel_pack.h"
#include "support/codegen_revision.h"
#include "support/hash.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <limits>
#include <sstream>

namespace nestor {
namespace {

using namespace test;
using nlohmann::json;
namespace fs = std::filesystem;

class RecordFiles : public testing::Test {
 protected:
  RecordFiles() {
    for (int k = 1; k <= 4; ++k) {
      TrialRecord trial = ok_trial(0.1 * k, std::string("code\0\xff", 6) + std::string(1000, 'x') + std::to_string(k / 2));
      trial.report = k == 1 ? R"({"registers":40})" : "";
      trial.revision = 3 + k;
      trial.checked = kCodegenRevisions.host;
      from.add_trial(device(), problem({{"n", k}}, "scale", k < 3 ? "d1" : "d2"), k < 3 ? kNest : R"({"op":"other"})", trial);
    }
    TrialRecord wrong = failed_trial(TrialStatus::wrong, "worst at y[\"3\"]\n");
    wrong.max_error = std::numeric_limits<double>::infinity();
    from.add_trial(device(), problem({{"n", 1}}), kNest, wrong);
    TrialRecord waits = ok_trial(3, "code of a kernel that waits", {{.terms = {{"n", 1}}, .constant = -1}});
    waits.revision = waits.checked = 0;
    from.add_trial(device("other"), problem({{"n", 7}}), kNest, waits);
    from.pin(from.best(device(), problem({{"n", 2}}))->id, true);
  }

  std::string path(const std::string& name) const { return folder.file(name); }
  std::string text(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // All rows with hashes, code, recipes and revisions.
  static std::string contents(const Database& database) {
    std::ostringstream out;
    database.export_records(out);
    return out.str();
  }

  TemporaryFolder folder;
  Database from = Database::open(folder.file("from.db")), to = Database::open(folder.file("to.db"));
};

TEST_F(RecordFiles, ExportThenImportGivesAnEqualDatabase) {
  from.export_file(path("a.jsonl"));
  EXPECT_EQ(to.import_file(path("a.jsonl")).added, 6);
  EXPECT_EQ(contents(to), contents(from));
  EXPECT_EQ(to.best(device(), problem({{"n", 2}}))->kernel->code, from.best(device(), problem({{"n", 2}}))->kernel->code);
  EXPECT_TRUE(to.check().empty());
  EXPECT_EQ(to.import_file(path("a.jsonl")).added, 0);
}

TEST_F(RecordFiles, NestsAndCodeAreThereOnce) {
  from.export_file(path("a.jsonl"));
  std::istringstream lines(text("a.jsonl"));
  std::map<std::string, int> nests;
  int records = 0;
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    if (object.contains("digest")) {
      ++nests[object.at("digest")];
      continue;
    }
    ++records;
    EXPECT_FALSE(object.contains("nest"));
    EXPECT_EQ(nests[object.at("problem").at("nest_digest")], 1) << "a nest is defined before its first record";
    EXPECT_FALSE(object.at("kernel").is_object() && object.at("kernel").contains("code"));
  }
  EXPECT_EQ(records, 6);
  EXPECT_EQ(nests, (std::map<std::string, int>{{"d1", 1}, {"d2", 1}}));
  PackReader pack(path("a.pack"));
  EXPECT_EQ(pack.kernels().size(), 4u) << "two trials share one";
}

TEST_F(RecordFiles, EqualContentsAreEqualFiles) {
  from.export_file(path("a.jsonl"));
  to.import_file(path("a.jsonl"));
  to.export_file(path("b.jsonl"));
  EXPECT_EQ(text("a.jsonl"), text("b.jsonl"));
  EXPECT_EQ(text("a.pack"), text("b.pack"));
  EXPECT_FALSE(fs::exists(path("a.jsonl.part"))) << "nothing else is left";
}

TEST_F(RecordFiles, CodeMayStayInTheLines) {
  from.export_file(path("a.jsonl"), Database::Exported::all, CodePlace::record);
  EXPECT_FALSE(fs::exists(path("a.pack")));
  EXPECT_EQ(text("a.jsonl"), contents(from));
  EXPECT_EQ(to.import_file(path("a.jsonl")).added, 6);
  EXPECT_EQ(contents(to), contents(from));
}

TEST_F(RecordFiles, LinesOfOlderProgramsAreStillRead) {
  // As version 0.1 wrote them before there were packs.
  std::ofstream(path("old.jsonl"))
      << R"({"checked":)" << kCodegenRevisions.host
      << R"(,"created":"2025-01-31T12:00:00Z","device":{"arch":"testcpu","details":{},"kind":"host",)"
         R"("name":"Test CPU","units":2},"format":1,"kernel":{"architecture":"x","code":"b2xkIGNvZGU=",)"
      << R"("hash":")" << Hasher().add("old code").add(recipe_to_json(recipe()).dump()).hex() << R"(",)"
      << R"("recipe":)" << recipe_to_json(recipe()).dump()
      << R"(},"max_error":0.5,"median_ms":1.5,"nest":{"op":"scale"},"pinned":false,"problem":{)"
         R"("nest_digest":"d1","op":"scale","sizes":{"n":9},"variant":"f32"},"reason":"",)"
         R"("revision":1,"samples_ms":[1.5],"status":"ok","steps":[],"toolchain":"old"})"
      << "\n";
  EXPECT_EQ(to.import_file(path("old.jsonl")).added, 1);
  EXPECT_FALSE(to.best(device(), problem({{"n", 9}}))) << "nobody signed them then";
  to.sign_all();
  EXPECT_EQ(to.best(device(), problem({{"n", 9}}))->kernel->code, "old code");
}

TEST_F(RecordFiles, BothFormsMayStandInOneFile) {
  from.export_file(path("a.jsonl"));
  std::ofstream(path("a.jsonl"), std::ios::app) << "\n" << contents(from);
  EXPECT_EQ(to.import_file(path("a.jsonl")).added, 6);
  EXPECT_EQ(contents(to), contents(from));
}

TEST_F(RecordFiles, WithoutKernelsThereIsNoPack) {
  Database failed = Database::open(path("failed.db"));
  failed.add_trial(device(), problem({{"n", 1}}), kNest, failed_trial(TrialStatus::crash, "it fell"));
  failed.export_file(path("failed.jsonl"));
  EXPECT_FALSE(fs::exists(path("failed.pack")));
  EXPECT_EQ(to.import_file(path("failed.jsonl")).added, 1);
  EXPECT_EQ(contents(to), contents(failed));
}

TEST_F(RecordFiles, LaterRevisionsReleaseStoredKernels) {
  const DeviceIdentity other = device("other");
  from.export_file(path("a.jsonl"));
  to.import_file(path("a.jsonl"));
  EXPECT_FALSE(to.best(other, problem({{"n", 7}})));
  for (const std::int64_t id : from.to_check()) from.store_check(id, {.same_code = true});
  from.export_file(path("b.jsonl"));
  EXPECT_EQ(to.import_file(path("b.jsonl")).checked, 1);
  EXPECT_EQ(contents(to), contents(from));
}

TEST_F(RecordFiles, APipeGetsLinesThatStandAlone) {
  from.export_file("/dev/null");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_FALSE(fs::exists("/dev/null.pack"));
}

}  // namespace
}  // namespace nestor
