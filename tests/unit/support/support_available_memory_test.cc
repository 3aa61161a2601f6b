// What counts as available memory: the machine's, that of cgroups of both versions, and the limits of the process.
#include "support/error_text.h"
#include "support/system/available_memory.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

namespace nestor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

/// A machine's /proc and /sys in a folder.
class Machine {
 public:
  explicit Machine(std::int64_t available) {
    put("proc/meminfo", "MemTotal:       99999999 kB\nMemAvailable:   " + std::to_string(available / 1024) + " kB\n");
  }
  void put(const std::string& file, const std::string& text) const {
    const std::string path = root() + "/" + file;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    test::write_whole(path, text);
  }
  std::string root() const { return folder_.file("root"); }

 private:
  test::TemporaryFolder folder_;
};

TEST(AvailableMemory, IsTheMachinesWithoutAnyLimit) {
  const Machine machine(300 * kMiB);
  EXPECT_EQ(available_memory(machine.root()).bytes, 300 * kMiB);
  EXPECT_EQ(available_memory(machine.root()).limit, "this machine");
}

TEST(AvailableMemory, OfACgroupOfVersion2IsItsLimitLessWhatCannotBeDropped) {
  const Machine machine(300 * kMiB);
  machine.put("proc/self/cgroup", "0::/jobs/tune\n");
  const std::string folder = "sys/fs/cgroup/jobs/tune/";
  machine.put(folder + "memory.max", std::to_string(100 * kMiB) + "\n");
  machine.put(folder + "memory.current", std::to_string(90 * kMiB) + "\n");
  machine.put(folder + "memory.stat", "anon 1\ninactive_file " + std::to_string(20 * kMiB) + "\nactive_file 0\n");
  const AvailableMemory there = available_memory(machine.root());
  EXPECT_EQ(there.bytes, 30 * kMiB);
  EXPECT_EQ(there.limit, "the cgroup /jobs/tune");
}

TEST(AvailableMemory, OfACgroupAroundItCounts) {
  const Machine machine(300 * kMiB);
  machine.put("proc/self/cgroup", "0::/jobs/tune\n");
  machine.put("sys/fs/cgroup/jobs/tune/memory.max", "max\n");
  machine.put("sys/fs/cgroup/jobs/tune/memory.current", "7\n");
  machine.put("sys/fs/cgroup/jobs/memory.max", std::to_string(50 * kMiB));
  machine.put("sys/fs/cgroup/jobs/memory.current", std::to_string(45 * kMiB));
  EXPECT_EQ(available_memory(machine.root()).bytes, 5 * kMiB);
  EXPECT_EQ(available_memory(machine.root()).limit, "the cgroup /jobs");
}

TEST(AvailableMemory, OfACgroupOfVersion1IsItsLimitToo) {
  const Machine machine(300 * kMiB);
  machine.put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/box\n0::/\n");
  machine.put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(64 * kMiB));
  machine.put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(70 * kMiB));
  machine.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  machine.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1");
  EXPECT_EQ(available_memory(machine.root()).bytes, 0);  // not below
  EXPECT_EQ(available_memory(machine.root()).limit, "the cgroup /box");
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(AvailableMemory, IsLimitedByTheAddressSpace) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    const AvailableMemory there = available_address_space();
    const bool right = there.limit == "ulimit -v" && there.bytes > 0 && there.bytes < (std::int64_t{1} << 30) &&
                       available_memory().bytes <= there.bytes;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}
#endif

TEST(AvailableMemory, WhatDoesNotFitIsRefusedWithBothNumbers) {
  const Machine machine(300 * kMiB);
  EXPECT_NO_THROW(require_memory({300 * kMiB}, "f at n=1", machine.root()));
  EXPECT_THAT(test::message_of<LackOfResources>([&] { require_memory({301 * kMiB}, "f at n=1", machine.root()); }),
              AllOf(HasSubstr("f at n=1 needs 301 MiB of memory"), HasSubstr("this machine leaves 300 MiB")));
}

TEST(AvailableMemory, SumsBeyond64BitsAreTheLargestNumber) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(saturating_add(kMost - 1, 2), kMost);
  EXPECT_EQ(saturating_multiply(std::int64_t{1} << 40, std::int64_t{1} << 40), kMost);
  EXPECT_EQ(saturating_multiply(6, 7), 42);
}

TEST(AvailableMemory, BytesAreWrittenWithTheirUnit) {
  EXPECT_EQ(bytes_text(12), "12 bytes");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(std::int64_t{15} << 40), "15 TiB");
}

}  // namespace
}  // namespace nestor
