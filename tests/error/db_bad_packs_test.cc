// Packs that are missing, damaged or another file's: both files and the line are named, and nothing is stored.
#include "db/database.h"
#include "db/records/kernel_pack.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>

#include <fstream>

namespace nestor {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

class PackError : public testing::Test {
 protected:
  PackError() {
    Database from = Database::open(folder.file("from.db"));
    for (int k = 1; k <= 2; ++k)
      from.add_trial(device(), problem({{"n", k}}), kNest, ok_trial(k, "some code " + std::to_string(k)));
    from.export_file(lines);
  }
  std::string import_error() {
    const std::string message = message_of([&] { database.import_file(lines); });
    EXPECT_TRUE(database.summary().empty()) << "nothing is stored";
    EXPECT_THAT(message, HasSubstr(lines)) << "the file is named";
    return message;
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  // A pack with that code for the hashes of the good one.
  void repack(const std::vector<std::string>& codes) {
    std::vector<PackedKernel> index = PackReader(pack).kernels();
    index.resize(codes.size());
    for (std::size_t k = 0; k < codes.size(); ++k) index[k].bytes = codes[k].size();
    std::ofstream out(pack, std::ios::binary);
    PackWriter writer(out, index);
    for (const std::string& code : codes) writer.add(code);
    writer.finish();
  }

  TemporaryFolder folder;
  std::string lines = folder.file("a.jsonl"), pack = folder.file("a.pack");
  Database database = Database::open(folder.file("to.db"));
};

TEST_F(PackError, AMissingPackIsNamed) {
  std::filesystem::remove(pack);
  EXPECT_THAT(import_error(), AllOf(HasSubstr("line 2"), HasSubstr(pack + " cannot be read: No such file")));
}

TEST_F(PackError, EveryTruncationIsRefused) {
  const std::string whole = read(pack);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(pack, whole.substr(0, length));
    EXPECT_THAT(import_error(), HasSubstr(pack + " is no sound pack")) << length;
  }
}

TEST_F(PackError, EveryAlteredByteIsRefused) {
  const std::string whole = read(pack);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string altered = whole;
    altered[at] = static_cast<char>(altered[at] ^ 0x11);
    write(pack, altered);
    EXPECT_THAT(import_error(), HasSubstr(pack)) << at;
  }
}

TEST_F(PackError, WhatFollowsThePackIsRefused) {
  write(pack, read(pack) + "more");
  EXPECT_THAT(import_error(), HasSubstr("something follows its end"));
}

TEST_F(PackError, OtherFilesAreNoPacks) {
  for (const std::string& text : {std::string("hello, this is no pack at all"), read(lines), std::string(1000, '\0')}) {
    write(pack, text);
    EXPECT_THAT(import_error(), HasSubstr("it does not begin as one"));
  }
}

TEST_F(PackError, CodeThatIsNotInThePackIsNamed) {
  repack({"some code 1"});
  EXPECT_THAT(import_error(), AllOf(HasSubstr("line 3"), HasSubstr(pack + " has no code of kernel")));
}

TEST_F(PackError, OtherCodeThanTheHashSaysIsNamed) {
  repack({"some code 1", "other code"});
  EXPECT_THAT(import_error(), AllOf(HasSubstr("line 3: the kernel's hash is"), HasSubstr(pack)));
}

TEST_F(PackError, ANestThatIsNotDefinedIsNamed) {
  const std::string text = read(lines);
  write(lines, text.substr(text.find('\n') + 1));
  EXPECT_THAT(import_error(), HasSubstr("line 1: nest d1 is not defined"));
}

TEST_F(PackError, TwoDefinitionsOfANestAreRefused) {
  write(lines, read(lines) + R"({"digest":"d1","format":2,"nest":{"op":"other"}})" + "\n");
  EXPECT_THAT(import_error(), HasSubstr("line 4: nest d1 is defined twice"));
}

TEST_F(PackError, WrongKeysOfANestAreNamed) {
  write(lines, read(lines) + R"({"digest":"d2","format":2})" + "\n");
  EXPECT_THAT(import_error(), HasSubstr("line 4: the nest has no \"nest\""));
  write(lines, R"({"digest":2,"format":2,"nest":{}})");
  EXPECT_THAT(import_error(), HasSubstr("line 1: \"digest\" has the wrong type"));
}

TEST_F(PackError, StandardInputHasNoPack) {
  std::ifstream in(lines, std::ios::binary);
  EXPECT_THAT(message_of([&] { database.import_records(in); }),
              AllOf(HasSubstr("line 2"), HasSubstr("import the file by its name")));
}

TEST_F(PackError, RecordsCannotBeNamedLikeAPack) {
  EXPECT_THAT(message_of([&] { database.export_file(pack); }), HasSubstr("*.jsonl would be right"));
  EXPECT_THAT(message_of([&] { database.import_file(pack); }), HasSubstr("*.jsonl would be right"));
}

TEST_F(PackError, AnExportThatFailsLeavesWhatWasThere) {
  const std::string before = read(lines);
  std::filesystem::remove(pack);
  std::filesystem::create_directories(pack + "/in the way");
  Database from = Database::open(folder.file("from.db"));
  from.add_trial(device(), problem({{"n", 3}}), kNest, ok_trial(3, "more code"));
  EXPECT_THAT(message_of([&] { from.export_file(lines); }), HasSubstr("cannot write " + pack));
  EXPECT_EQ(read(lines), before);
}

}  // namespace
}  // namespace nestor
