// Packs of kernels: what goes in comes out, similar code is kept once, and unwanted code costs nothing.
#include "db/records/kernel_pack.h"
#include "support/hash.h"
#include "unit/db/db_fixture.h"

#include <fstream>
#include <random>

namespace nestor {
namespace {

using namespace test;

void write(const std::string& path, const std::vector<std::string>& codes) {
  std::vector<PackedKernel> index;
  for (const std::string& code : codes) index.push_back({hash_hex(code), code.size()});
  std::ofstream out(path, std::ios::binary);
  PackWriter writer(out, index);
  for (const std::string& code : codes) writer.add(code);
  writer.finish();
}

std::string random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(KernelPack, GivesBackEveryKernelInOrder) {
  TemporaryFolder folder;
  const std::vector<std::string> codes{random_bytes(1, 1), random_bytes(300'000, 2), std::string(100'000, '\0'),
                                       "code\nof a kernel"};
  write(folder.file("a.pack"), codes);
  PackReader reader(folder.file("a.pack"));
  ASSERT_EQ(reader.kernels().size(), codes.size());
  for (std::size_t k = 0; k < codes.size(); ++k) {
    EXPECT_EQ(reader.kernels()[k].hash, hash_hex(codes[k]));
    EXPECT_EQ(reader.kernels()[k].bytes, codes[k].size());
    EXPECT_EQ(reader.next(k != 1), k != 1 ? codes[k] : "");
  }
  reader.finish();
}

TEST(KernelPack, MayBeEmpty) {
  TemporaryFolder folder;
  write(folder.file("a.pack"), {});
  PackReader reader(folder.file("a.pack"));
  EXPECT_TRUE(reader.kernels().empty());
  reader.finish();
}

TEST(KernelPack, KeepsSimilarCodeOnceFarApart) {
  TemporaryFolder folder;
  const std::string code = random_bytes(200'000, 1);
  write(folder.file("a.pack"), {code, random_bytes(3'000'000, 2), code + "!"});
  EXPECT_LT(std::filesystem::file_size(folder.file("a.pack")), 3'205'000u);
}

TEST(KernelPack, LiesBesideTheRecords) {
  EXPECT_EQ(pack_path("dir.d/a.b.jsonl"), "dir.d/a.b.pack");
  EXPECT_EQ(pack_path("records"), "records.pack");
  EXPECT_THROW(pack_path("a.pack"), UserError);
}

TEST(KernelPack, RefusesWhatItsReadersWould) {
  TemporaryFolder folder;
  std::ofstream out(folder.file("a.pack"));
  EXPECT_THROW(PackWriter(out, {{hash_hex(""), 0}}), UserError);
  EXPECT_THROW(PackWriter(out, {{hash_hex(""), kLargestPackedKernel + 1}}), UserError);
}

}  // namespace
}  // namespace nestor
