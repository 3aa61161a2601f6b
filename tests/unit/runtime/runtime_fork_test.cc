// A process that forks after a launch: the child launches, asks, closes and exits, whatever its parent's threads were doing.
#include "nestor/nestor.h"
#include "nestor/runtime.h"
#include "unit/runtime/runtime_fixture.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace nestor {
namespace {

using namespace test;

constexpr int kRefused = 7;

/// How a child that runs `body` ends: its exit code, or 128 and a signal; the alarm's where it hangs.
int code_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class ForkTest : public testing::Test {
 protected:
  void SetUp() override {
    NESTOR_NEEDS_C_COMPILER();
    store_kernel(path, scale_object(), scale_recipe(), 32, 16, "scale", "x86-64:x86-64:+sse2", 3);
    store_kernel(path, scale_object(), scale_recipe(), 64, 16, "scale", "x86-64:x86-64:+sse2", 3);
  }
  Library open() { return Library::open(path, {.threads = 3, .system_path = "", .use_system = false}); }

  /// 0 when the kernel doubles 32 x 16 numbers.
  static int doubles(const Kernel& kernel) {
    std::vector<float> x(32 * 16), y(32 * 16);
    std::iota(x.begin(), x.end(), 1.0f);
    kernel.launch({{x.data()}, {y.data()}}, {{"rows", 32}, {"cols", 16}});
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (y[k] != 2 * x[k]) return 1;
    }
    return 0;
  }

  TemporaryFolder folder;
  std::string path = folder.file("t.db");
};

TEST_F(ForkTest, AChildLaunchesAsksAndCloses) {
  std::optional<Library> library = open();
  std::optional<Kernel> kernel = library->query("scale", "f32", {{"rows", 32}, {"cols", 16}});
  ASSERT_EQ(doubles(*kernel), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the pool's threads sleep
  EXPECT_EQ(code_of_child([&] {
              if (doubles(*kernel) != 0) return 1;
              const Kernel other = library->query("scale", "f32", {{"rows", 64}, {"cols", 16}});
              if (!other || doubles(other) != 0) return 2;
              kernel.reset();
              library.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(doubles(*kernel), 0);  // the parent's threads are as they were
}

TEST_F(ForkTest, AChildOfAChildToo) {
  const Library library = open();
  const Kernel kernel = library.query("scale", "f32", {{"rows", 32}, {"cols", 16}});
  ASSERT_EQ(doubles(kernel), 0);
  EXPECT_EQ(code_of_child([&] { return doubles(kernel) + code_of_child([&] { return doubles(kernel); }); }), 0);
}

TEST_F(ForkTest, ClosesThroughTheCApi) {
  const nestor_options options{3, ""};
  nestor_library* library = nullptr;
  ASSERT_EQ(nestor_open(path.c_str(), &options, &library), NESTOR_OK);
  const char* names[] = {"rows", "cols"};
  const int64_t values[] = {32, 16};
  nestor_kernel* kernel = nullptr;
  ASSERT_EQ(nestor_query(library, "scale", "f32", "host", 2, names, values, &kernel), NESTOR_OK);
  std::vector<float> x(32 * 16, 1.0f), y(32 * 16);
  nestor_tensor tensors[2] = {{x.data(), NESTOR_F32, 0, nullptr, nullptr}, {y.data(), NESTOR_F32, 0, nullptr, nullptr}};
  ASSERT_EQ(nestor_launch(kernel, 2, tensors, 2, names, values, 0, nullptr, nullptr), NESTOR_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(code_of_child([&] {
              nestor_close(library);
              return 0;
            }),
            0);
  nestor_close(library);
}

TEST_F(ForkTest, WhileOtherThreadsLaunchAndAsk) {
  const Library library = open();
  const Kernel kernel = library.query("scale", "f32", {{"rows", 32}, {"cols", 16}});
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> busy;
  for (int k = 0; k < 2; ++k) {
    busy.emplace_back([&] {
      while (!done) wrong += doubles(kernel);
    });
  }
  busy.emplace_back([&] {
    for (std::int64_t rows = 1; !done; rows = rows % 500 + 1) library.query("scale", "f32", {{"rows", rows}, {"cols", 16}});
  });
  for (int k = 0; k < 20; ++k) {
    EXPECT_EQ(code_of_child([&] {
                const Kernel asked = library.query("scale", "f32", {{"rows", 1000 + k}, {"cols", 16}});
                return doubles(kernel) + (asked ? doubles(asked) : 3);
              }),
              0);
  }
  done = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_EQ(wrong, 0);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_F(ForkTest, AThreadThatCannotBeStartedIsAnError) {
  EXPECT_EQ(code_of_child([&] {
              const Library library = Library::open(path, {.threads = 64, .system_path = "", .use_system = false});
              const Kernel kernel = library.query("scale", "f32", {{"rows", 32}, {"cols", 16}});
              // Room for the stacks of few threads.
              rlimit stack{};
              getrlimit(RLIMIT_STACK, &stack);
              std::ifstream file("/proc/self/statm");
              std::uint64_t pages = 0;
              file >> pages;
              const rlim_t limit = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{48} << 20);
              const rlimit space{limit, limit};
              setrlimit(RLIMIT_AS, &space);
              try {
                doubles(kernel);
              } catch (const UserError& error) {
                return std::string(error.what()).find("cannot start thread") == 0 ? kRefused : 2;
              }
              return 1;
            }),
            kRefused);
}
#endif

}  // namespace
}  // namespace nestor
