// Runs the checks that are written in C (runtime_c_api_checks.c).
#include "nestor/nestor.h"
#include "unit/runtime/runtime_fixture.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

extern "C" const char* nestor_c_api_checks(const char* path, const char* missing_path);

namespace nestor {
namespace {

using namespace test;

TEST(CApi, WorksFromC) {
  NESTOR_NEEDS_C_COMPILER();
  TemporaryFolder folder;
  store_kernel(folder.file("t.db"), scale_object(), scale_recipe(), 4, 8, "scale", "x86-64:x86-64:", 2);
  const char* failure = nestor_c_api_checks(folder.file("t.db").c_str(), folder.file("none.db").c_str());
  EXPECT_EQ(failure, nullptr) << failure << "; last error: " << nestor_last_error();
}

TEST(CApi, SaysItsVersion) {
  EXPECT_EQ(nestor_version_number(), NESTOR_VERSION);
  EXPECT_EQ(std::string(nestor_version()), std::to_string(NESTOR_VERSION_MAJOR) + "." + std::to_string(NESTOR_VERSION_MINOR) +
                                               "." + std::to_string(NESTOR_VERSION_PATCH));
  // The build's version is the header's.
  std::ifstream file(NESTOR_SOURCE_FOLDER "/CMakeLists.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find("project(Nestor VERSION " + std::string(nestor_version()) + " "), std::string::npos);
}

TEST(CApi, NoKernelSaysWhatFitsNothing) {
  NESTOR_NEEDS_C_COMPILER();
  TemporaryFolder folder;
  store_kernel(folder.file("t.db"), scale_object(), scale_recipe(), 4, 8);
  const nestor_options options{1, ""};
  nestor_library* library = nullptr;
  ASSERT_EQ(nestor_open(folder.file("t.db").c_str(), &options, &library), NESTOR_OK);
  const auto reason = [&](const char* op, const char* variant, std::int64_t cols) {
    const char* names[] = {"rows", "cols"};
    const int64_t values[] = {4, cols};
    nestor_kernel* kernel = nullptr;
    EXPECT_EQ(nestor_query(library, op, variant, "host", 2, names, values, &kernel), NESTOR_NOT_FOUND);
    return std::string(nestor_last_error());
  };
  EXPECT_NE(reason("scael", "f32", 8).find("no record is of an operator 'scael'; did you mean 'scale'?"), std::string::npos);
  EXPECT_NE(reason("scale", "f64", 8).find("no record of scale is of the variant 'f64': there are f32"), std::string::npos);
  // Its columns must be divisible by 4.
  EXPECT_NE(reason("scale", "f32", 7).find("measured at cols=8, rows=4"), std::string::npos) << nestor_last_error();
  nestor_close(library);
}

TEST(CApi, NoKernelSaysThatRecordsAreDamaged) {
  NESTOR_NEEDS_C_COMPILER();
  TemporaryFolder folder;
  store_kernel(folder.file("t.db"), scale_object(), scale_recipe(), 4, 8);
  SQLite::Database(folder.file("t.db"), SQLite::OPEN_READWRITE).exec("UPDATE kernel SET code = x'00'");
  const nestor_options options{1, ""};
  nestor_library* library = nullptr;
  ASSERT_EQ(nestor_open(folder.file("t.db").c_str(), &options, &library), NESTOR_OK);
  const char* names[] = {"rows", "cols"};
  for (const std::int64_t rows : {4, 8}) {
    const std::int64_t values[] = {rows, 8};
    nestor_kernel* kernel = nullptr;
    EXPECT_EQ(nestor_query(library, "scale", "f32", "host", 2, names, values, &kernel), NESTOR_NOT_FOUND);
    EXPECT_NE(std::string(nestor_last_error()).find("a record is damaged: `nestor db check` says which"), std::string::npos)
        << nestor_last_error();
    EXPECT_EQ(nestor_query(library, "other", "f32", "host", 2, names, values, &kernel), NESTOR_NOT_FOUND);
    EXPECT_EQ(std::string(nestor_last_error()).find("damaged"), std::string::npos) << "of another operator";
  }
  const std::int64_t values[] = {4, 8};
  nestor_kernel* kernel = nullptr;
  EXPECT_EQ(nestor_query(library, "scale", "f32", "hots", 2, names, values, &kernel), NESTOR_USER_ERROR);
  EXPECT_NE(std::string(nestor_last_error()).find("did you mean 'host'?"), std::string::npos) << nestor_last_error();
  nestor_close(library);
}

TEST(CApi, ErrorsBelongToTheirThread) {
  EXPECT_EQ(nestor_refresh(nullptr), NESTOR_USER_ERROR);
  std::string other = "not set";
  std::thread([&] { other = nestor_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_STREQ(nestor_last_error(), "the library is NULL");
}

}  // namespace
}  // namespace nestor
