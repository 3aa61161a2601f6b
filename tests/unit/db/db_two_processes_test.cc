// Two processes write into one file at once; nothing is lost and nobody fails.
#include "db/database.h"
#include "unit/db/db_fixture.h"

#include <sys/wait.h>
#include <cstdio>

namespace nestor {
namespace {

using namespace test;

constexpr int kTrials = 60;

// Opens the file too: creating the schema is part of the race.
void write_trials(const std::string& path, int writer) {
  Database database = Database::open(path);
  for (int k = 0; k < kTrials; ++k) {
    TrialRecord trial = ok_trial(1 + k, "code of writer " + std::to_string(writer) + " " + std::to_string(k % 7));
    trial.reason = std::to_string(writer);
    database.add_trial(device(), problem({{"n", 1 + k % 5}}), kNest, trial);
  }
}

pid_t start_writer(const std::string& path, int writer) {
  const pid_t child = fork();
  if (child != 0) return child;
  int status = 1;
  try {
    write_trials(path, writer);
    status = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "writer %d: %s\n", writer, error.what());
  }
  _exit(status);
}

TEST(TwoProcesses, EveryRowOfBothIsThere) {
  TemporaryFolder folder;
  const std::string path = folder.file("shared.db");
  const pid_t writers[2] = {start_writer(path, 0), start_writer(path, 1)};
  for (const pid_t writer : writers) {
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  Database database = Database::open(path);
  int counts[2] = {0, 0};
  for (int n = 1; n <= 5; ++n) {
    for (const TrialRecord& trial : database.trials(device(), problem({{"n", n}}))) ++counts[trial.reason == "1"];
  }
  EXPECT_EQ(counts[0], kTrials);
  EXPECT_EQ(counts[1], kTrials);
  EXPECT_EQ(database.summary().size(), 5u) << "problems are shared";
  EXPECT_TRUE(database.check().empty());
}

TEST(TwoProcesses, AReaderSeesWhatTheOtherWroteMeanwhile) {
  TemporaryFolder folder;
  Database writer = Database::open(folder.file("t.db"));
  const Database reader = Database::open(folder.file("t.db"), {.read_only = true});
  EXPECT_EQ(reader.query(device(), "scale", "f32", "", {{"n", 4}}).kind, MatchKind::none);
  writer.add_trial(device(), problem({{"n", 4}}), kNest, ok_trial(1, "new"));
  EXPECT_EQ(reader.query(device(), "scale", "f32", "", {{"n", 4}}).kind, MatchKind::exact);
}

}  // namespace
}  // namespace nestor
