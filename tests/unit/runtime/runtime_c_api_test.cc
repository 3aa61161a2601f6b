// Runs the checks that are written in C (runtime_c_api_checks.c).
#include "nestor/nestor.h"
#include "unit/runtime/runtime_fixture.h"

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

TEST(CApi, ErrorsBelongToTheirThread) {
  EXPECT_EQ(nestor_refresh(nullptr), NESTOR_USER_ERROR);
  std::string other = "not set";
  std::thread([&] { other = nestor_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_STREQ(nestor_last_error(), "the library is NULL");
}

}  // namespace
}  // namespace nestor
