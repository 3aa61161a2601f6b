// The emulator of GPU kernels reports what it is there to report: races planted in small kernels, whatever order threads run in, and nothing
// where all is right. What it says of tensor kernels is held by mutants of their code (codegen_mutants_test.cc).
#include "emulator/emulate.h"
#include "support/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace nestor::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kThreads = 64;

/// A kernel over `out` and `x`, f32 of `elements` each. `body` has %i, the thread's number in its block, %b, that of the block, and %t, that
/// of the thread among all.
struct SmallKernel {
  explicit SmallKernel(const std::string& body, std::int64_t blocks = 1, std::int64_t elements = 256, int shared_bytes = 1024)
      : elements_(elements) {
    ir_ = R"(
@memory = external addrspace(3) global [0 x i8], align 16
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier0()
declare void @llvm.nvvm.bar.warp.sync(i32)
define void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %x) {
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %before = mul i32 %b, 64
  %t = add i32 %before, %i
)" + body +
          "\n  ret void\n}\n";
    for (const char* name : {"out", "x"})
      recipe_.arguments.push_back({name, ElementType::f32, name[0] == 'o', {IntExpr(elements)}});
    LaunchNode node;
    node.symbol = "kernel";
    node.grid[0] = IntExpr(blocks);
    node.block[0] = kThreads;
    node.shared_bytes = shared_bytes;
    for (int k = 0; k < 2; ++k) node.params.push_back({KernelParam::Kind::pointer, k, 0, ""});
    recipe_.launches.push_back(node);
  }

  /// The first problem that any of some orders shows; empty: none.
  std::string problem() {
    EmulatedKernel kernel(recipe_, ir_);
    for (unsigned seed = 1; seed <= 8; ++seed) {
      std::vector<float> out(static_cast<std::size_t>(elements_), 0), x(static_cast<std::size_t>(elements_), 1);
      const EmulationResult result = kernel.run({}, {{out.data(), out.size() * 4}, {x.data(), x.size() * 4}}, {.seed = seed});
      if (!result.passed()) return result.problem;
    }
    return "";
  }

 private:
  std::int64_t elements_;
  LaunchRecipe recipe_;
  std::string ir_;
};

/// out[index] += x[%t] by plain loads and stores.
std::string add_at(const std::string& index) {
  return index + R"(
  %from = getelementptr float, ptr addrspace(1) %x, i32 %t
  %to = getelementptr float, ptr addrspace(1) %out, i32 %place
  %value = load float, ptr addrspace(1) %from
  %old = load float, ptr addrspace(1) %to
  %new = fadd float %old, %value
  store float %new, ptr addrspace(1) %to)";
}

TEST(Emulator, threads_that_add_to_elements_of_their_own_are_right) {
  EXPECT_EQ(SmallKernel(add_at("  %place = add i32 %t, 0")).problem(), "");
  EXPECT_EQ(SmallKernel(add_at("  %place = add i32 %t, 0"), 3).problem(), "");
}

TEST(Emulator, three_lanes_that_add_to_one_element_race) {
  EXPECT_THAT(
      SmallKernel(add_at("  %place = udiv i32 %i, 3")).problem(),
      AllOf(HasSubstr("race"), HasSubstr("thread"), HasSubstr("of block 0"), HasSubstr("store float"), HasSubstr("of out")));
}

TEST(Emulator, sums_along_diagonals_race) {  // out[i + j] += ..., with i and j over lanes and warps
  EXPECT_THAT(
      SmallKernel(add_at("  %row = udiv i32 %i, 8\n  %column = urem i32 %i, 8\n  %place = add i32 %row, %column")).problem(),
      HasSubstr("race"));
}

TEST(Emulator, blocks_that_add_to_one_element_race) {
  EXPECT_THAT(SmallKernel(add_at("  %place = add i32 %i, 0"), 2).problem(),
              AllOf(HasSubstr("race"), HasSubstr("block 0"), HasSubstr("block 1")));
}

/// Each thread hands its neighbour a value through shared memory.
std::string hand_over(const std::string& between) {
  return R"(
  %wide = zext i32 %i to i64
  %own = getelementptr float, ptr addrspace(3) @memory, i64 %wide
  store float 1.0, ptr addrspace(3) %own)" +
         between + R"(
  %other = xor i32 %i, 1
  %far = zext i32 %other to i64
  %place = getelementptr float, ptr addrspace(3) @memory, i64 %far
  %value = load float, ptr addrspace(3) %place
  %to = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %value, ptr addrspace(1) %to)";
}

TEST(Emulator, barriers_order_what_threads_hand_over) {
  EXPECT_EQ(SmallKernel(hand_over("\n  call void @llvm.nvvm.barrier0()")).problem(), "");
  EXPECT_EQ(SmallKernel(hand_over("\n  call void @llvm.nvvm.bar.warp.sync(i32 -1)")).problem(), "");
  EXPECT_EQ(SmallKernel(hand_over("\n  call void asm sideeffect \"bar.sync $0, 64;\", \"r\"(i32 3)")).problem(), "");
}

TEST(Emulator, a_barrier_that_is_left_out_is_a_race) {
  EXPECT_THAT(SmallKernel(hand_over("")).problem(),
              AllOf(HasSubstr("race"), HasSubstr("load float"), HasSubstr("store float"), HasSubstr("shared memory of block 0")));
}

TEST(Emulator, a_barrier_that_only_arrives_is_a_race_for_who_does_not_wait) {
  EXPECT_THAT(SmallKernel(hand_over("\n  call void asm sideeffect \"bar.arrive $0, 64;\", \"r\"(i32 3)")).problem(),
              HasSubstr("race"));
}

TEST(Emulator, threads_that_wait_for_too_many_are_a_deadlock) {
  EXPECT_THAT(SmallKernel("  %half = icmp ult i32 %i, 32\n  br i1 %half, label %wait, label %end\nwait:\n"
                          "  call void asm sideeffect \"bar.sync $0, 64;\", \"r\"(i32 3)\n  br label %end\nend:")
                  .problem(),
              AllOf(HasSubstr("deadlock"), HasSubstr("a barrier of its block"), HasSubstr("32 threads")));
}

TEST(Emulator, accesses_outside_of_all_memory_are_reported) {
  EXPECT_THAT(SmallKernel(add_at("  %place = add i32 %t, 200")).problem(), HasSubstr("which no argument has"));
  EXPECT_THAT(SmallKernel(hand_over("\n  call void @llvm.nvvm.barrier0()"), 1, 256, 128).problem(),
              HasSubstr("beyond the shared memory"));
}

TEST(Emulator, writes_to_inputs_are_reported) {
  EXPECT_THAT(
      SmallKernel("  %to = getelementptr float, ptr addrspace(1) %x, i32 %t\n  store float 0.0, ptr addrspace(1) %to").problem(),
      HasSubstr("which is an input"));
}

/// A kernel that copies tiles of `x`, f16 of 4 rows and `columns`, by a tensor map.
std::string refusal_of(std::int64_t columns, std::vector<std::int64_t> strides = {}) {
  LaunchRecipe recipe;
  recipe.arguments.push_back({"x", ElementType::f16, false, {IntExpr(4), IntExpr(columns)}});
  LaunchNode node;
  node.symbol = "kernel";
  node.grid[0] = IntExpr(1);
  node.block[0] = kThreads;
  node.params.push_back({KernelParam::Kind::tensor_map, 0, 0, "", {2, 8}, 0});
  recipe.launches.push_back(node);
  EmulatedKernel kernel(recipe, "define void @kernel(ptr %x) {\n  ret void\n}\n");
  alignas(16) std::array<char, 4096> x{};
  try {
    EXPECT_EQ(kernel.run({}, {{x.data(), x.size(), std::move(strides)}}).problem, "");
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

// The rule is the runtime's own (support/tensor_view.h): what it refuses to launch is no problem of the kernel.
TEST(Emulator, launches_that_the_runtime_refuses_are_refused) {
  EXPECT_EQ(refusal_of(8), "");
  EXPECT_EQ(refusal_of(6),
            "tensor \"x\" is copied by tensor maps: its stride 0 must be a multiple of 8 elements (16 bytes), not 6");
  EXPECT_EQ(refusal_of(6, {8, 1}), "");
  EXPECT_THAT(refusal_of(8, {8, 2}), HasSubstr("its last stride must be 1, not 2"));
  EXPECT_THAT(refusal_of(0), HasSubstr("its extent 1 must be 1 to 4294967295, not 0"));
}

TEST(Emulator, equal_seeds_run_equally) {
  const std::string body = add_at("  %place = udiv i32 %i, 3");
  EXPECT_EQ(SmallKernel(body).problem(), SmallKernel(body).problem());
}

}  // namespace
}  // namespace nestor::testing
