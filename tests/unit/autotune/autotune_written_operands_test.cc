// Products on tensor cores multiply whole tiles, by zeros where terms end. What nobody has written may be NaN there, and 0 times NaN is
// no 0: such programs have no proof.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_candidate.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/proof/program_proof.h"
#include "support/nests/half_values.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct Doubled {
  std::string rows;     ///< of the doubled values' tensor, of which the product reads the first n
  std::string written;  ///< those that are written before the product
  std::string later;    ///< and after it
};

/// out[b, i, d] = sum of w[i, j] * doubled[b, j, d] for j < n.
Nest product_of(const Doubled& test) {
  const std::string batch = "0 <= b < B", cell = batch + " and 0 <= i < m and 0 <= d < 64";
  NestBuilder builder("product_of_doubled", {{"B", 2}, {"m", 256}, {"n", 256}});
  builder.tensor("w", TensorRole::input, {"m", "n"}, kHalf)
      .tensor("x", TensorRole::input, {"B", "n", "64"}, kHalf)
      .tensor("doubled", TensorRole::temporary, {"B", test.rows, "64"}, kHalf)
      .tensor("sums", TensorRole::temporary, {"B", "m", "64"})
      .tensor("out", TensorRole::output, {"B", "m", "64"}, kHalf);
  const std::string rows = "0 <= d < 64 and " + batch + " and ";
  builder.statement("twice[b, j, d] : " + rows + "0 <= j < n", "doubled[b, j, d]", {"x[b, j, d]"},
                    ScalarExpr::cast(kHalf, wide(0) * number(2)));
  if (!test.written.empty())
    builder.statement("rest[b, j, d] : " + rows + test.written, "doubled[b, j, d]", {}, ScalarExpr::cast(kHalf, number(1)));
  builder.statement("init[b, i, d] : " + cell, "sums[b, i, d]", {}, number(0))
      .statement("sum[b, i, d, j] : " + cell + " and 0 <= j < n", "sums[b, i, d]", {"w[i, j]", "doubled[b, j, d]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out[b, i, d] : " + cell, "out[b, i, d]", {"sums[b, i, d]"}, ScalarExpr::cast(kHalf, read(0)));
  if (!test.later.empty())
    builder.statement("rest[b, j, d] : " + rows + test.later, "doubled[b, j, d]", {}, ScalarExpr::cast(kHalf, number(1)));
  return builder.build();
}

struct Compiled {
  explicit Compiled(const Nest& nest)
      : sizes(complete_sizes(nest, {})),
        schedules(nest_for_tuning(nest, sizes)),
        space(make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, 132))),
        candidate(space->candidate(space->defaults().front())) {}

  ProgramProof proof() {
    const Schedule schedule = schedules.replay(candidate.steps);
    const TileProgram program = build_tile_program(schedule);
    kernel = compile_nvptx(program, {});
    ProgramProof proof = prove_program(program, schedule);
    EXPECT_EQ(proof.verdict, ProofVerdict::proved) << proof.reason;
    prove_operands(program, schedule, kernel.certificate.zeroed, proof);
    return proof;
  }
  std::string difference(const Sizes& at) {
    return testing::run_emulated(kernel, build_tile_program(schedules.base({})), at, {.tolerance = 4e-3}, {1});
  }

  Sizes sizes;
  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  Candidate candidate;
  CompiledNvptx kernel;
};

constexpr const char* kFact = "elements of temporaries that products of whole tiles multiply by 0 have been written before";
const Sizes kRagged{{"B", 2}, {"m", 20}, {"n", 24}};

TEST(WrittenOperands, TilesEndWithTheTensor) {
  Compiled compiled(product_of({"n", "", ""}));
  ASSERT_EQ(compiled.candidate.infeasible, "");
  const ProgramProof proof = compiled.proof();
  EXPECT_EQ(proof.verdict, ProofVerdict::proved) << proof.reason;
  EXPECT_THAT(proof.facts, Not(Contains(kFact)));
  EXPECT_EQ(compiled.difference(kRagged), "");
}

TEST(WrittenOperands, RowsThatNobodyWritesHaveNoProof) {
  Compiled compiled(product_of({"n + 8", "", ""}));
  ASSERT_EQ(compiled.candidate.infeasible, "");
  const ProgramProof proof = compiled.proof();
  EXPECT_EQ(proof.verdict, ProofVerdict::unproved);
  EXPECT_THAT(proof.reason, HasSubstr("multiplies elements of doubled by 0 that need not have been written before"));
  EXPECT_NE(compiled.difference(kRagged), "") << "fresh memory of the emulator is NaN";
}

TEST(WrittenOperands, RowsThatAreWrittenBeforeMayBeMultiplied) {
  Compiled compiled(product_of({"n + 8", "n <= j < n + 8", ""}));
  ASSERT_EQ(compiled.candidate.infeasible, "");
  const ProgramProof proof = compiled.proof();
  EXPECT_EQ(proof.verdict, ProofVerdict::proved) << proof.reason;
  EXPECT_THAT(proof.facts, Contains(kFact));
  EXPECT_EQ(compiled.difference(kRagged), "");
}

TEST(WrittenOperands, PartOfTheRowsIsNotEnough) {
  Compiled compiled(product_of({"n + 8", "n <= j < n + 7", ""}));
  ASSERT_EQ(compiled.candidate.infeasible, "");
  EXPECT_EQ(compiled.proof().verdict, ProofVerdict::unproved);
}

TEST(WrittenOperands, RowsThatAreWrittenLaterHaveNoProof) {
  Compiled compiled(product_of({"n + 8", "", "n <= j < n + 8"}));
  ASSERT_EQ(compiled.candidate.infeasible, "");
  EXPECT_EQ(compiled.proof().verdict, ProofVerdict::unproved);
}

/// What op and tensor are called comes from the plan: another name is no proof.
TEST(WrittenOperands, OpsThatTheProgramLacksHaveNoProof) {
  const Schedule schedule(samples::matmul());
  ProgramProof proof;
  proof.verdict = ProofVerdict::proved;
  prove_operands(build_tile_program(schedule), schedule, {{"nobody", "B"}}, proof);
  EXPECT_EQ(proof.verdict, ProofVerdict::unproved);
  EXPECT_THAT(proof.reason, HasSubstr("nobody"));
}

}  // namespace
}  // namespace nestor
