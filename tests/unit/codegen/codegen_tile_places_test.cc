// Where tile programs put things: points beyond the instances, loops over tasks within a task, copies and temporaries that several of them
// use. Every program is proved, and run by the adversary of tests/support/tile_adversary.h.
#include "codegen/proof/program_proof.h"
#include "support/nests/sample_nests.h"
#include "support/tile_definition.h"

#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using samples::NestBuilder;
using samples::number;
using samples::read;
using samples::operator+;
using samples::operator*;

void expect_proved(const Nest& nest, const std::vector<std::string>& steps, const std::vector<Sizes>& sizes) {
  const Schedule schedule = apply_steps(Schedule(nest), steps);
  const TileProgram program = build_tile_program(schedule);
  const ProgramProof proof = prove_program(program, schedule);
  EXPECT_EQ(proof.verdict, ProofVerdict::proved) << proof.reason << "\n" << describe(program);
  expect_defined(schedule, sizes);
}

Nest row_sums() {
  return NestBuilder("row_sums", {{"rows", 9}, {"w", 11}})
      .tensor("x", TensorRole::input, {"rows", "w"})
      .tensor("t", TensorRole::temporary, {"rows", "w"})
      .tensor("r", TensorRole::temporary, {"rows"})
      .tensor("out", TensorRole::output, {"rows", "w"})
      .statement("t[i, j] : 0 <= i < rows and 0 <= j < w", "t[i, j]", {"x[i, j]"}, read(0) * read(0))
      .statement("z[i] : 0 <= i < rows", "r[i]", {}, number(0))
      .statement("s[i, k] : 0 <= i < rows and 0 <= k < w", "r[i]", {"t[i, k]"}, read(0), ReductionOp::add)
      .statement("out[i, c] : 0 <= i < rows and 0 <= c < w", "out[i, c]", {"t[i, c]", "r[i]", "x[i, c]"},
                 read(0) * read(1) + read(2))
      .build();
}

const std::vector<Sizes> kSizes{{{"rows", 1}, {"w", 1}}, {{"rows", 5}, {"w", 3}}, {{"rows", 7}, {"w", 17}}};
const std::vector<std::string> kOneRow{"apply_rule(reassociate)", "fuse_with(t.i, z.i)", "fuse_with(z.i, s.i)",
                                       "fuse_with(s.i, out.i)"};

std::vector<std::string> in_one_row(const std::vector<std::string>& further) {
  std::vector<std::string> steps = kOneRow;
  steps.insert(steps.end(), further.begin(), further.end());
  return steps;
}

/// Instances lie on a diagonal of the box, so that indices may be written by either dim: at other points these differ.
TEST(TilePlaces, PartsOfPartsKeepTheirTest) {
  expect_proved(row_sums(), {"apply_rule(split_reduction, s, k, p, 4)", "apply_rule(split_reduction, s_part, k, q, 4)"}, kSizes);
  expect_proved(row_sums(), {"apply_rule(split_reduction, s, k, p, 2)", "apply_rule(split_reduction, s_part, k, q, 4)"}, kSizes);
}

/// All points lie in one part, whose number is then an index of the sum as well.
TEST(TilePlaces, OnePartHasANameOfItsOwn) {
  const Nest nest = NestBuilder("one_part", {})
                        .tensor("x", TensorRole::input, {"3", "2"})
                        .tensor("out", TensorRole::output, {"2", "3"})
                        .statement("z[x, y] : 0 <= x < 2 and 0 <= y < 3", "out[x, y]", {}, number(0))
                        .statement("s[i, j] : 0 <= i < 3 and 0 <= j < 2", "out[0, 1 + j]", {"x[i, j]"}, read(0), ReductionOp::add)
                        .build();
  expect_proved(nest, {"apply_rule(split_reduction, s, i, p, 256)", "gpu_blocks(s_combine.p)"}, {{}});
  expect_proved(nest, {"apply_rule(split_reduction, s, i, p, 256)", "apply_rule(split_reduction, s_part, i, q, 256)"}, {{}});
}

TEST(TilePlaces, LoopsOverTasksWithinATaskAreItsOwn) {
  for (const std::string kind : {"parallel", "gpu_blocks"}) {
    for (const std::string loop : {"out.c", "t.j"})
      expect_proved(row_sums(), in_one_row({kind + "(out.i)", kind + "(" + loop + ")"}), kSizes);
    expect_proved(row_sums(), in_one_row({"split(out.c, 4, co, ci)", kind + "(out.i)", kind + "(co)", kind + "(ci)"}), kSizes);
  }
}

TEST(TilePlaces, CopiesAreWhereAllTheirReadersAre) {
  // One reader in tasks and one beside them; a copy of a temporary that no task uses.
  expect_proved(fix_sizes(row_sums(), {{"w", 16}}), in_one_row({"gpu_blocks(t.j)", "stage(x, out.i)"}),
                {{{"rows", 1}, {"w", 16}}, {{"rows", 5}, {"w", 16}}});
  const Nest further = NestBuilder("two_readers", {{"rows", 9}, {"w", 11}})
                           .tensor("x", TensorRole::input, {"rows", "w"})
                           .tensor("r", TensorRole::temporary, {"rows"})
                           .tensor("a", TensorRole::output, {"rows"})
                           .tensor("b", TensorRole::output, {"rows", "w"})
                           .statement("r[i] : 0 <= i < rows", "r[i]", {"x[i, 0]"}, read(0) + number(1))
                           .statement("a[i] : 0 <= i < rows", "a[i]", {"r[i]"}, read(0) + number(1))
                           .statement("b[i, c] : 0 <= i < rows and 0 <= c < w", "b[i, c]", {"r[i]", "x[i, c]"}, read(0) * read(1))
                           .build();
  expect_proved(further, {"fuse_with(a.i, b.i)", "stage(r, b.i)"}, kSizes);
}

TEST(TilePlaces, CopiesOfATaskAreReadByLoopsOverTasksInIt) {
  expect_proved(row_sums(), {"split(out.c, 4, co, ci)", "gpu_blocks(out.i)", "gpu_blocks(co)", "stage(r, out.i)"}, kSizes);
}

TEST(TilePlaces, LoopsOfOneIterationAreNone) {
  const std::vector<std::string> steps =
      in_one_row({"split(t.j, 16, to, tj)", "split(s.k, 16, so, si)", "fuse_with(to, so)", "parallel(out.i)"});
  const auto loops = [&](std::int64_t width) {
    const Nest nest = fix_sizes(row_sums(), {{"w", width}});
    expect_proved(nest, steps, {{{"rows", 1}, {"w", width}}, {{"rows", 5}, {"w", width}}});
    const std::string text = describe(build_tile_program(apply_steps(Schedule(nest), steps)));
    return text.find("  for ") != std::string::npos;
  };
  EXPECT_FALSE(loops(11));
  EXPECT_FALSE(loops(16));
  EXPECT_TRUE(loops(17));
}

TEST(TilePlaces, MaximaOfSizesAreNoExtents) {
  // Whole rows, a row of parts and a specialised loop: nothing may have the maximum's 2^28 elements.
  Nest nest = row_sums();
  for (SizeParam& size : nest.sizes) size.max = std::int64_t{1} << 28;
  for (const std::vector<std::string>& steps :
       std::vector<std::vector<std::string>>{{},
                                             in_one_row({"parallel(out.i)"}),
                                             {"split(out.c, 4, co, ci)", "specialize(co)"},
                                             {"split(t.i, 2, to, ti)", "reorder(to, ti, t.j)", "specialize(to)"}}) {
    const Schedule schedule = apply_steps(Schedule(nest), steps);
    EXPECT_EQ(describe(build_tile_program(schedule)).find("268435456"), std::string::npos);
    expect_proved(nest, steps, kSizes);
  }
  const std::int64_t largest = std::int64_t{1} << 28;
  const TileProgram program = build_tile_program(Schedule(nest));
  EXPECT_TRUE(is_valid_for(program.valid, {{"rows", largest}, {"w", largest}}));
  EXPECT_FALSE(is_valid_for(program.valid, {{"rows", largest + 1}, {"w", largest}}));
}

}  // namespace
}  // namespace nestor::testing
