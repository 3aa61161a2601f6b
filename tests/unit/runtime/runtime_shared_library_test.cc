// libnestor_runtime.so: it needs nothing but the system's libraries, exports the public API alone, and works for a C
// program that knows only the public headers.
#include "unit/runtime/runtime_fixture.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <sstream>

#ifdef NESTOR_RUNTIME_LIBRARY

namespace nestor {
namespace {

using namespace test;

std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  pclose(pipe);
  return text;
}

TEST(SharedLibrary, NeedsOnlyTheSystem) {
  const std::string needed = output_of("readelf -dW " NESTOR_RUNTIME_LIBRARY);
  if (needed.find("NEEDED") == std::string::npos) GTEST_SKIP() << "no readelf";
  for (const char* foreign : {"LLVM", "Halide", "isl", "gmp", "fmt"})
    EXPECT_THAT(needed, testing::Not(testing::HasSubstr(foreign)));
}

TEST(SharedLibrary, ExportsThePublicApiAlone) {
  const std::string symbols = output_of("nm -DC --defined-only " NESTOR_RUNTIME_LIBRARY);
  if (symbols.find("nestor_open") == std::string::npos && symbols.find("not found") != std::string::npos) GTEST_SKIP() << "no nm";
  std::istringstream lines(symbols);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    if (line.size() < 20) continue;
    const std::string name = line.substr(19);
    const bool ours =
        name.starts_with("nestor_") || name.starts_with("nestor::") || name.find(" for nestor::") != std::string::npos;
    EXPECT_TRUE(ours) << name;
  }
  EXPECT_GT(count, 10);
  EXPECT_THAT(symbols, testing::HasSubstr("nestor::Library::open"));
  EXPECT_THAT(symbols, testing::Not(testing::HasSubstr("Impl")));
}

TEST(SharedLibrary, ServesACProgram) {
  NESTOR_NEEDS_C_COMPILER();
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a program without the address sanitizer cannot load a library with it";
#endif
  TemporaryFolder folder;
  store_kernel(folder.file("t.db"), scale_object(), scale_recipe(), 4, 8);
  const std::string root = NESTOR_SOURCE_FOLDER;
  std::ofstream(folder.file("main.c")) << R"c(
#include <stdio.h>
const char* nestor_c_api_checks(const char* path, const char* missing_path);
int main(int argc, char** argv) {
  const char* failure = argc == 3 ? nestor_c_api_checks(argv[1], argv[2]) : "usage";
  puts(failure ? failure : "fine");
  return failure != 0;
}
)c";
  const std::string flags = "cc -std=c99 -pedantic -Wall -Wextra -Werror -I" + root + "/include ";
  const std::string program = folder.file("program");
  ASSERT_EQ(output_of(flags + folder.file("main.c") + " " + root +
                      "/tests/unit/runtime/runtime_c_api_checks.c " NESTOR_RUNTIME_LIBRARY " -o " + program),
            "");
  const std::string folder_of_library = std::filesystem::path(NESTOR_RUNTIME_LIBRARY).parent_path();
  const std::string ran = output_of("LD_LIBRARY_PATH=" + folder_of_library + " " + program + " " + folder.file("t.db") + " " +
                                    folder.file("none.db"));
  EXPECT_EQ(ran, "fine\n");
}

}  // namespace
}  // namespace nestor

#endif
