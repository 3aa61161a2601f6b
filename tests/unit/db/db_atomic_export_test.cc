// An export replaces two files: whoever reads meanwhile, and whatever a kill leaves, has lines whose pack has their code.
#include "db/database.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

namespace nestor {
namespace {

using namespace test;

class AtomicExport : public testing::Test {
 protected:
  // Two databases without a kernel in common, of different sizes.
  AtomicExport() {
    Database first = Database::open(folder.file("1.db")), second = Database::open(folder.file("2.db"));
    for (int k = 1; k <= 8; ++k) add(first, k);
    for (int k = 11; k <= 13; ++k) add(second, k);
    first.export_file(path());
  }
  static void add(Database& database, int k) {
    database.add_trial(device(), problem({{"n", k}}), kNest, ok_trial(k, "code " + std::to_string(k) + std::string(2000, 'c')));
  }
  std::string path() const { return folder.file("shared.jsonl"); }

  /// Replaces the export again and again, until it is killed.
  pid_t start_writer() const {
    const pid_t child = fork();
    if (child != 0) return child;
    try {
      const Database first = Database::open(folder.file("1.db")), second = Database::open(folder.file("2.db"));
      for (;;) {
        second.export_file(path());
        first.export_file(path());
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "writer: %s\n", error.what());
    }
    _exit(1);
  }
  /// Kills it; false when it had ended by itself.
  static bool end(pid_t writer) {
    ::kill(writer, SIGKILL);
    int status = 0;
    return waitpid(writer, &status, 0) == writer && WIFSIGNALED(status);
  }
  void expect_whole() const {
    Database reader = Database::open(kInMemory);
    Database::Imported imported;
    EXPECT_NO_THROW(imported = reader.import_file(path()));
    EXPECT_TRUE(imported.added == 8 || imported.added == 3) << imported.added;
  }

  TemporaryFolder folder;
};

TEST_F(AtomicExport, AReaderFindsOneExportOrTheOther) {
  const pid_t writer = start_writer();
  for (int k = 0; k < 300; ++k) expect_whole();
  EXPECT_TRUE(end(writer));
}

TEST_F(AtomicExport, AKillLeavesLinesWithTheirCode) {
  std::mt19937 random(3);
  for (int k = 0; k < 40; ++k) {
    const pid_t writer = start_writer();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    EXPECT_TRUE(end(writer));
    expect_whole();
  }
}

TEST_F(AtomicExport, APackHoldsNoMoreThanItsLinesNeedAfterwards) {
  const Database second = Database::open(folder.file("2.db"));
  second.export_file(path());
  second.export_file(folder.file("alone.jsonl"));
  EXPECT_EQ(read_whole(folder.file("shared.pack")), read_whole(folder.file("alone.pack")));
}

TEST_F(AtomicExport, ADamagedOlderPackIsReplaced) {
  write_whole(folder.file("shared.pack"), "no pack");
  Database::open(folder.file("2.db")).export_file(path());
  expect_whole();
}

}  // namespace
}  // namespace nestor
