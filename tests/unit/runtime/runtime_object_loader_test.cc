// The object loader: what compilers emit runs; what is damaged or asks for more is refused and never crashes.
#include "runtime/object_loader.h"

#include "support/error.h"
#include "unit/runtime/runtime_fixture.h"

#include <gmock/gmock.h>

#include <elf.h>
#include <cstring>
#include <fstream>
#include <random>

namespace nestor {
namespace {

using namespace test;
using testing::AnyOf;
using testing::HasSubstr;

class ObjectLoader : public testing::Test {
 protected:
  void SetUp() override { NESTOR_NEEDS_C_COMPILER(); }
};

template <class Function>
Function* function(const std::shared_ptr<const LoadedObject>& object, const char* name) {
  return reinterpret_cast<Function*>(object->function(name));
}

// Code, constants, tables of addresses, data, zeroed data; calls, and access through the table of global offsets.
constexpr const char* kEverything = R"c(
#include <stdint.h>
int64_t counter;                       /* .bss, through the table of global offsets */
int64_t start = 40;                    /* .data */
static const double factors[4] = {1.5, 2.5, 3.5, 4.5};
static const char* const names[3] = {"one", "two", "three"};   /* addresses in .data.rel.ro */
static int64_t twice(int64_t x);
int64_t (*const chosen[2])(int64_t) = {0, twice};
__attribute__((noinline)) static int64_t twice(int64_t x) { return 2 * x; }
__attribute__((noinline)) int64_t add_start(int64_t x) { counter += 1; return x + start; }
int64_t compute(int64_t x) { return twice(add_start(x)) + counter * 1000; }
double factor(int64_t k) { return factors[k & 3]; }
const char* name(int64_t k) { return names[k]; }
int64_t indirect(int64_t x) { return chosen[1](x); }
int64_t pick(int64_t k) {
  switch (k) { case 0: return 11; case 1: return add_start(5); case 2: return -7; case 3: return counter; case 4: return 99; case 5: return k * k + 3; default: return 0; }
}
static __attribute__((aligned(64))) float lanes[16] = {3};
uint64_t alignment(void) { return (uint64_t)lanes % 64; }
)c";

TEST_F(ObjectLoader, CompiledCodeRuns) {
  for (const char* flags : {"-c -O2 -fPIC", "-c -O0 -fPIC", "-c -O2 -fPIC -mcmodel=small -fno-plt", "-c -O2 -fpie",
                            "-c -O2 -fPIC -ffunction-sections -fdata-sections", "-c -g -O1 -fPIC"}) {
    const auto object = LoadedObject::load(compile_c(kEverything, flags));
    auto* compute = function<std::int64_t(std::int64_t)>(object, "compute");
    EXPECT_EQ(compute(2), 84 + 1000) << flags;
    EXPECT_EQ(compute(2), 84 + 2000) << flags;
    EXPECT_EQ(function<double(std::int64_t)>(object, "factor")(2), 3.5) << flags;
    EXPECT_STREQ(function<const char*(std::int64_t)>(object, "name")(2), "three") << flags;
    EXPECT_EQ(function<std::int64_t(std::int64_t)>(object, "indirect")(21), 42) << flags;
    EXPECT_EQ(function<std::int64_t(std::int64_t)>(object, "pick")(5), 28) << flags;
    EXPECT_EQ(function<std::int64_t(std::int64_t)>(object, "pick")(3), 2) << flags;
    EXPECT_EQ(function<std::uint64_t()>(object, "alignment")(), 0u) << flags;
  }
}

TEST_F(ObjectLoader, EachLoadHasDataOfItsOwn) {
  const std::string code = compile_c(kEverything);
  const auto first = LoadedObject::load(code), second = LoadedObject::load(code);
  EXPECT_EQ(function<std::int64_t(std::int64_t)>(first, "compute")(0), 1080);
  EXPECT_EQ(function<std::int64_t(std::int64_t)>(second, "compute")(0), 1080);
}

// Permissions of the mapping that holds `address`, as the kernel reports them.
std::string permissions_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char permissions[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, permissions) != 3) continue;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (begin <= at && at < end) return permissions;
  }
  return "";
}

TEST_F(ObjectLoader, NoPageCanBeWrittenAndExecuted) {
  const auto object = LoadedObject::load(compile_c(
      std::string(kEverything) + "void* data_at(void) { return &start; } const void* constant_at(void) { return factors; }"));
  EXPECT_EQ(permissions_at(object->function("compute")), "r-xp");
  EXPECT_EQ(permissions_at(function<void*()>(object, "data_at")()), "rw-p");
  EXPECT_EQ(permissions_at(function<void*()>(object, "constant_at")()), "r--p");
}

TEST_F(ObjectLoader, AMissingFunctionIsNamed) {
  const auto object = LoadedObject::load(compile_c(kEverything));
  EXPECT_THAT(message_of([&] { object->function("compile"); }), HasSubstr("no function \"compile\""));
  EXPECT_THROW(object->function("start"), UserError) << "data is no function";
}

std::string load_error(const std::string& object) {
  return message_of([&] { LoadedObject::load(object); });
}

TEST_F(ObjectLoader, WhatNeedsMoreThanRelocatingIsRefusedByName) {
  EXPECT_THAT(load_error(compile_c("int other(void); int kernel(void) { return other(); }")),
              HasSubstr("\"other\", which it does not define"));
  EXPECT_THAT(
      load_error(compile_c("int table[4]; int kernel(long k) { return table[k]; }", "-c -O2 -fno-pic -fno-pie -mcmodel=small")),
      AnyOf(HasSubstr("R_X86_64_32S"), HasSubstr("R_X86_64_32")));
  EXPECT_THAT(load_error(compile_c("static __thread int x; int kernel(void) { return ++x; }")), HasSubstr("thread-local"));
  EXPECT_THAT(load_error(compile_c(
                  "volatile int x; __attribute__((constructor)) static void f(void) { x = 1; } int kernel(void) { return x; }")),
              HasSubstr("constructors"));
  EXPECT_THAT(load_error(compile_c("int kernel(void) { return 1; }", "-shared -fPIC -nostdlib")), HasSubstr("not relocatable"));
  EXPECT_THAT(load_error(compile_c("int big[1 << 29]; int kernel(long k) { return big[k]; }")), HasSubstr("more than"));
}

TEST_F(ObjectLoader, OtherFilesAreRefused) {
  EXPECT_THAT(load_error(""), HasSubstr("ELF header"));
  EXPECT_THAT(load_error(std::string(4096, 'x')), HasSubstr("no ELF file"));
  std::string other = compile_c("int kernel(void) { return 1; }");
  other[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(load_error(other), HasSubstr("not for x86-64"));
}

TEST_F(ObjectLoader, EveryTruncationIsRefused) {
  const std::string object = compile_c(kEverything);
  ASSERT_GT(object.size(), 1000u);
  for (std::size_t length = 0; length < object.size(); length += 64)
    EXPECT_THROW(LoadedObject::load(object.substr(0, length)), UserError) << length;
}

// Whatever single bytes change, loading ends with an object or a UserError.
TEST_F(ObjectLoader, DamagedBytesNeverCrash) {
  const std::string object = compile_c(kEverything);
  std::mt19937 random(1);
  int refused = 0;
  for (std::size_t at = 0; at < object.size(); ++at) {
    std::string damaged = object;
    damaged[at] = static_cast<char>(random());
    try {
      LoadedObject::load(damaged);
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

/// Where the object's function is; null where it has none any more.
const void* address_of(const LoadedObject& object, const char* name) {
  try {
    return object.function(name);
  } catch (const UserError&) {
    return nullptr;
  }
}

// Several bytes at once, in the structures that hold offsets: what is loaded all the same has its functions where code is.
TEST_F(ObjectLoader, DamagedTablesAreRefusedOrGiveCode) {
  const std::string object = compile_c(kEverything);
  Elf64_Ehdr header;
  std::memcpy(&header, object.data(), sizeof(header));
  std::mt19937_64 random(2);
  int accepted = 0, found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = object;
    const std::size_t section = random() % header.e_shnum;
    const std::size_t field = random() % (sizeof(Elf64_Shdr) / 8);
    const std::uint64_t value = round % 2 == 0 ? random() : random() % (2 * object.size());
    std::memcpy(damaged.data() + header.e_shoff + section * sizeof(Elf64_Shdr) + field * 8, &value, sizeof(value));
    try {
      const auto loaded = LoadedObject::load(damaged);
      ++accepted;
      const void* compute = address_of(*loaded, "compute");
      found += compute != nullptr ? 1 : 0;
      EXPECT_TRUE(compute == nullptr || permissions_at(compute) == "r-xp") << "round " << round;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("object")) << "round " << round;
    }
  }
  EXPECT_GT(accepted, 300) << "names and other things that loading does not need";
  EXPECT_GT(found, accepted / 2);
  EXPECT_LT(accepted, 2700);
}

}  // namespace
}  // namespace nestor
