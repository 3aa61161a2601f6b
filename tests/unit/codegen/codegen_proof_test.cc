// The proof of tile programs on programs with one thing wrong in each: what is refuted, with which obligation and an example.
#include "codegen/proof/program_proof.h"
#include "support/error.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/apply_steps.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

namespace nestor {
namespace {

using samples::NestBuilder;
using samples::number;
using samples::read;
using samples::operator+;
using samples::operator*;
using ::testing::HasSubstr;
using testing::scheduled;

/// The program with `change` made to every node.
TileProgram changed(const TileProgram& program, const std::function<void(TileNode&)>& change) {
  const std::function<TileTree(const TileTree&)> rewrite = [&](const TileTree& node) {
    TileNode copy = *node;
    for (TileTree& child : copy.children) child = rewrite(child);
    change(copy);
    return std::make_shared<const TileNode>(std::move(copy));
  };
  TileProgram result = program;
  result.root = rewrite(program.root);
  return result;
}

TileProgram with_op(const TileProgram& program, const std::string& name, const std::function<void(TileOp&)>& change) {
  return changed(program, [&](TileNode& node) {
    if (node.kind == TileNode::Kind::op && node.op.name == name) change(node.op);
  });
}

TileProgram with_loop(const TileProgram& program, const std::string& var, const std::function<void(TileNode&)>& change) {
  return changed(program, [&](TileNode& node) {
    if (node.kind == TileNode::Kind::loop && node.var == var) change(node);
  });
}

TileProgram unchanged(TileProgram program) { return program; }

struct Proved {
  explicit Proved(Schedule given, const std::function<TileProgram(TileProgram)>& change = unchanged)
      : schedule(std::move(given)), program(change(build_tile_program(schedule))) {
    const ProgramProof proof = prove_program(program, schedule);
    EXPECT_EQ(proof.verdict, ProofVerdict::proved) << proof.reason << "\n" << describe(program);
  }
  /// The reason for which a changed program is refuted; empty when it is not.
  std::string refutation(const TileProgram& other) const {
    const ProgramProof proof = prove_program(other, schedule);
    return proof.verdict == ProofVerdict::refuted ? proof.reason : "";
  }
  Schedule schedule;
  TileProgram program;
};

Nest copy() {
  return NestBuilder("copy", {{"rows", 64}, {"w", 300}})
      .tensor("x", TensorRole::input, {"rows", "w"})
      .tensor("y", TensorRole::output, {"rows", "w"})
      .statement("s[i, j] : 0 <= i < rows and 0 <= j < w", "y[i, j]", {"x[i, j]"}, read(0))
      .build();
}

const std::vector<std::string> kCopyTiles{"split(s.j, 8, jo, ji)", "split(s.i, 32, io, ii)", "reorder(jo, io, ii, ji)"};

/// A sum into places that several points share: out[floor(i / 3)] += x[i].
Nest scatter() {
  return NestBuilder("scatter", {{"n", 30}})
      .tensor("x", TensorRole::input, {"n"})
      .tensor("out", TensorRole::output, {"n"})
      .statement("z[i] : 0 <= i < n", "out[i]", {}, number(0))
      .statement("u[i] : 0 <= i < n", "out[floor(i/3)]", {"x[i]"}, read(0), ReductionOp::add)
      .build();
}

TEST(ProgramProof, FullTilesAloneDoNotCoverRaggedEnds) {
  for (const char* kind : {"parallel", "gpu_blocks"}) {
    std::vector<std::string> steps = kCopyTiles;
    steps.push_back(std::string(kind) + "(jo)");
    steps.push_back(std::string(kind) + "(io)");
    const Proved copied(scheduled(copy(), steps));
    const TileProgram whole_tiles =
        with_loop(copied.program, "jo", [](TileNode& loop) { loop.upper = floor_div(IntExpr::variable("w"), 8); });
    EXPECT_THAT(copied.refutation(whole_tiles),
                HasSubstr("coverage: no op runs an instance of s, for example rows = 1, w = 1: i = 0, j = 0"));
  }
}

/// y[i] = x[i - 4] where the value comes to it: from `reads` on the read has an element, from `chooses` on the select takes it.
Nest shifted(const std::string& reads, double chooses, bool in_rows = false) {
  const std::string x = in_rows ? "x[i]" : "x[i - 4]";
  const ScalarExpr here = ScalarExpr::make(ScalarOp::le, {ScalarExpr::constant(chooses, ElementType::i32), ScalarExpr::index(0)});
  return NestBuilder("shifted", {{"n", 40}})
      .tensor("x", TensorRole::input, {"n"})
      .tensor("y", TensorRole::output, {"n"})
      .statement("s[i] : 0 <= i < n", "y[i]", {x + " : i >= " + reads},
                 ScalarExpr::make(ScalarOp::select, {here, read(0), number(0)}), std::nullopt, {"i"})
      .build();
}

TEST(ProgramProof, AReadNeedNotExistWhereTheValueDoesNotComeToIt) {
  for (const bool in_rows : {false, true}) {
    for (const std::vector<std::string>& steps :
         {std::vector<std::string>{}, {"split(s.i, 8, io, ii)", "parallel(io)"}, {"split(s.i, 8, io, ii)", "gpu_blocks(io)"}}) {
      const Proved proved(scheduled(shifted("4", 4, in_rows), steps));
      EXPECT_EQ(proved.refutation(proved.program), "");
    }
  }
}

TEST(ProgramProof, AGuardThatLetsAReadThroughIsRefuted) {
  // The nest says nothing of the element of i = 4, and the select takes it.
  for (const bool in_rows : {false, true}) EXPECT_THROW(Schedule{shifted("5", 4, in_rows)}, UserError);
  const Proved proved(scheduled(shifted("4", 4), {}));
  const auto with_read = [&](const IntExpr& index) {
    return proved.refutation(with_op(proved.program, "s", [&](TileOp& op) { op.reads[0].index[0] = index; }));
  };
  const IntExpr i = IntExpr::variable("s_i");
  EXPECT_THAT(with_read(i - IntExpr(3)), HasSubstr("its read 0 is not the statement's element of x"));
  EXPECT_THAT(with_read(i - IntExpr(5)), HasSubstr("its read 0 is not the statement's element of x"));
  const auto without_guard = [&](TileOp& op) { op.value = read(0); };
  EXPECT_THAT(proved.refutation(with_op(proved.program, "s", without_guard)),
              HasSubstr("element of x, for example n = 1: s_i = 0"));
  const auto other_guard = [&](TileOp& op) {
    const ScalarExpr one = ScalarExpr::constant(1, ElementType::i32);
    op.value = op.value.with_args({ScalarExpr::make(ScalarOp::le, {one, ScalarExpr::index(0)}), read(0), number(0)});
  };
  EXPECT_THAT(proved.refutation(with_op(proved.program, "s", other_guard)),
              HasSubstr("element of x, for example n = 2: s_i = 1"));
}

/// Conditions joined by and, or and not; data beside them; the same read on both sides.
TEST(ProgramProof, GuardsOfSeveralConditions) {
  const auto at_least = [](double least) {
    return ScalarExpr::make(ScalarOp::le, {ScalarExpr::constant(least, ElementType::i32), ScalarExpr::index(0)});
  };
  const ScalarExpr low = at_least(4), high = ScalarExpr::make(ScalarOp::logical_not, {at_least(9)});
  const ScalarExpr positive = ScalarExpr::make(ScalarOp::lt, {number(0), read(1)});
  const auto verdict = [&](const ScalarExpr& value, const std::string& exists) {
    const Nest nest = NestBuilder("shifted", {{"n", 40}})
                          .tensor("x", TensorRole::input, {"n"})
                          .tensor("y", TensorRole::output, {"n"})
                          .statement("s[i] : 0 <= i < n", "y[i]", {"x[i - 4] : " + exists, "x[i]"}, value, std::nullopt, {"i"})
                          .build();
    std::optional<Schedule> schedule;
    try {
      schedule.emplace(nest);
    } catch (const UserError&) {
      return ProofVerdict::refuted;
    }
    return prove_program(build_tile_program(*schedule), *schedule).verdict;
  };
  const auto chosen = [&](const ScalarExpr& condition) {
    return ScalarExpr::make(ScalarOp::select, {condition, read(0), number(0)});
  };
  const auto both = [](const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::logical_and, {a, b}); };
  EXPECT_EQ(verdict(chosen(both(low, high)), "4 <= i <= 8"), ProofVerdict::proved);
  EXPECT_EQ(verdict(chosen(both(low, high)), "4 <= i <= 7"), ProofVerdict::refuted);
  EXPECT_EQ(verdict(chosen(both(low, positive)), "4 <= i"), ProofVerdict::proved) << "data beside the condition";
  EXPECT_EQ(verdict(chosen(both(low, positive)), "5 <= i"), ProofVerdict::refuted);
  EXPECT_EQ(verdict(ScalarExpr::make(ScalarOp::select, {low, chosen(positive), number(1)}), "4 <= i"), ProofVerdict::proved);
  EXPECT_EQ(verdict(ScalarExpr::make(ScalarOp::select, {low, read(0), chosen(positive)}), "4 <= i"), ProofVerdict::refuted);
  const ScalarExpr compares = both(low, ScalarExpr::make(ScalarOp::lt, {number(0), read(0)}));
  EXPECT_EQ(verdict(ScalarExpr::make(ScalarOp::select, {compares, read(1), number(0)}), "4 <= i"), ProofVerdict::proved);
  const ScalarExpr either = ScalarExpr::make(ScalarOp::logical_or, {low, ScalarExpr::make(ScalarOp::lt, {number(0), read(0)})});
  EXPECT_EQ(verdict(ScalarExpr::make(ScalarOp::select, {either, read(1), number(0)}), "4 <= i"), ProofVerdict::refuted);
}

/// The sum `u` point by point.
TileProgram one_by_one(const TileProgram& program) {
  return with_op(program, "u", [](TileOp& op) {
    for (OpDim& dim : op.dims) dim.parallel = false;
  });
}

TEST(ProgramProof, LanesDoNotAddToOneElement) {
  const Proved sum(scheduled(scatter(), {"apply_rule(reassociate)"}), one_by_one);
  const auto lanes = [](TileOp& op) {
    op.dims[0].parallel = true;
    op.kind = OpKind::points;
    op.dims[0].kind = LoopKind::vectorize;
  };
  EXPECT_THAT(sum.refutation(with_op(sum.program, "u", lanes)), HasSubstr("parallel: points of op 'u' along"));
  const auto combined = [](TileOp& op) {
    op.dims[0].reduced = true;
    op.kind = OpKind::reduce;
  };
  EXPECT_THAT(sum.refutation(with_op(sum.program, "u", combined)), HasSubstr("which moves its accumulator"));
}

TEST(ProgramProof, TransposedConvolutionKeepsDiagonalsApart) {
  const Nest nest = NestBuilder("diagonals", {{"b", 4}, {"n", 8}, {"m", 5}})
                        .tensor("x", TensorRole::input, {"b", "n"})
                        .tensor("y", TensorRole::input, {"m"})
                        .tensor("out", TensorRole::output, {"b", "n + m"})
                        .statement("z[k, i] : 0 <= k < b and 0 <= i < n + m", "out[k, i]", {}, number(0))
                        .statement("u[k, i, j] : 0 <= k < b and 0 <= i < n and 0 <= j < m", "out[k, i + j]", {"x[k, i]", "y[j]"},
                                   read(0) * read(1), ReductionOp::add)
                        .build();
  const Proved sums(scheduled(nest, {"apply_rule(reassociate)", "parallel(z.k)", "parallel(u.k)"}), one_by_one);
  const TileProgram side_by_side = with_op(sums.program, "u", [](TileOp& op) {
    for (OpDim& dim : op.dims) dim.parallel = true;
  });
  EXPECT_THAT(sums.refutation(side_by_side), HasSubstr("parallel: points of op 'u'"));
}

Proved one_pass_variance() {
  return Proved(
      scheduled(samples::row_norm(7, 21),
                {"apply_rule(moments, mean_update)", "split(mean_update.k, 8, mo, mi)", "split(variance_update.k, 8, vo, vi)",
                 "fuse_with(mean_init.i, mean_update.i)", "fuse_with(mean_update.i, variance_init.i)",
                 "fuse_with(variance_init.i, variance_update.i)", "fuse_with(mo, vo)"}));
}

TEST(ProgramProof, CountsOfAMomentAreItsOwnRowsCounts) {
  const Proved rows = one_pass_variance();
  for (const int k : {0, 1, 2}) {
    const TileProgram miscounted = with_op(rows.program, "correct variance_update", [&](TileOp& op) {
      op.indices.at(static_cast<std::size_t>(k)) = op.indices.at(static_cast<std::size_t>(k)) + IntExpr(1);
    });
    EXPECT_THAT(rows.refutation(miscounted), HasSubstr("counts: ")) << k;
  }
}

TEST(ProgramProof, CountsOfSeveralDimsAreProductsOfTheirOwn) {
  const Proved channels(
      scheduled(samples::channel_norm(),
                {"apply_rule(moments, total_update)", "split(total_update.n, 2, no, ni)", "split(squares_update.n, 2, vo, vi)",
                 "fuse_with(total_update.c, total_init.c)", "fuse_with(squares_init.c, total_init.c)",
                 "fuse_with(squares_update.c, total_init.c)", "fuse_with(no, vo)"}));
  for (const int k : {0, 1, 2, 3, 4, 5}) {
    const TileProgram miscounted = with_op(channels.program, "correct squares_update", [&](TileOp& op) {
      op.indices.at(static_cast<std::size_t>(k)) = op.indices.at(static_cast<std::size_t>(k)) + IntExpr(1);
    });
    EXPECT_THAT(channels.refutation(miscounted), HasSubstr("counts: ")) << k;
  }
}

TEST(ProgramProof, StepsOfACompositeAreWhole) {
  const Proved rows = one_pass_variance();
  for (const char* name : {"save mean_update", "correct variance_update"}) {
    const TileProgram without = changed(rows.program, [&](TileNode& node) {
      std::erase_if(node.children,
                    [&](const TileTree& child) { return child->kind == TileNode::Kind::op && child->op.name == name; });
    });
    EXPECT_THAT(rows.refutation(without), HasSubstr("composite of mean_update")) << name;
  }
}

TEST(ProgramProof, LoopsThatCarryDependencesAreNotParallel) {
  const Proved sweeps(scheduled(samples::stencil2d(), {"split(step.t, 2, to, ti)", "split(step.y, 4, yo, yi)", "parallel(yo)"}));
  const TileProgram at_once = changed(sweeps.program, [](TileNode& node) {
    if (node.kind == TileNode::Kind::loop) node.loop_kind = LoopKind::parallel;
  });
  EXPECT_THAT(sweeps.refutation(at_once), HasSubstr("does not go from"));
}

TEST(ProgramProof, AdmittedSizesLieInTheContext) {
  const Proved sweeps(scheduled(samples::stencil2d(), {}));
  TileProgram any_size = sweeps.program;
  any_size.valid.clear();
  EXPECT_THAT(sweeps.refutation(any_size), HasSubstr("sizes outside of the nest's context"));
}

TEST(ProgramProof, OtherValuesAndElementsAreRefuted) {
  const Proved product(scheduled(samples::matmul(), {}));
  const auto refutation = [&](const std::function<void(TileOp&)>& change) {
    return product.refutation(with_op(product.program, "C_update", change));
  };
  EXPECT_THAT(refutation([](TileOp& op) {
                op.value = read(0) + read(1);
                op.kind = OpKind::reduce;
              }),
              HasSubstr("is not its statement's"));
  EXPECT_THAT(refutation([](TileOp& op) { std::swap(op.reads[0], op.reads[1]); }), HasSubstr("read 0"));
  EXPECT_THAT(refutation([](TileOp& op) { op.dims.back().upper = op.dims.back().upper - IntExpr(1); }), HasSubstr("coverage"));
  EXPECT_THAT(refutation([](TileOp& op) { op.dims.back().upper = op.dims.back().upper + IntExpr(1); }), HasSubstr("bounds"));
  EXPECT_THAT(refutation([](TileOp& op) { op.initialize = !op.initialize; }), HasSubstr("C_init"));
}

TEST(ProgramProof, WhatIsBeyondTheBudgetIsUnproved) {
  const Proved product(scheduled(samples::matmul(), {}));
  const ProgramProof proof = prove_program(product.program, product.schedule, 100);
  EXPECT_EQ(proof.verdict, ProofVerdict::unproved);
  EXPECT_THAT(proof.reason, HasSubstr("more than 100 isl operations"));
}

TEST(ProgramProof, WhatIsNotAffineIsUnproved) {
  std::vector<std::string> steps = kCopyTiles;
  steps.emplace_back("parallel(jo)");
  const Proved copied(scheduled(copy(), steps));
  const TileProgram product =
      with_loop(copied.program, "jo", [](TileNode& loop) { loop.upper = IntExpr::variable("w") * IntExpr::variable("rows"); });
  const ProgramProof proof = prove_program(product, copied.schedule);
  EXPECT_EQ(proof.verdict, ProofVerdict::unproved);
  EXPECT_THAT(proof.reason, HasSubstr("is not affine"));
}

// What a value never comes to need not exist: no element of the access, no element of the tensor, and nobody who writes it.
TEST(ProgramProof, ReadsThatNeverHappenNeedNothing) {
  const auto never = [](const std::string& tensor) {
    const auto integer = [](double value) { return ScalarExpr::constant(value, ElementType::i32); };
    const ScalarExpr below = ScalarExpr::make(ScalarOp::lt, {ScalarExpr::index(0), integer(0)});
    Nest nest = NestBuilder("never", {{"n", 9}})
                    .tensor("x", TensorRole::input, {"n"})
                    .tensor("z", TensorRole::input, {"0 n"})
                    .tensor("t", TensorRole::temporary, {"n"})
                    .tensor("y", TensorRole::output, {"n"})
                    .statement("s[i] : 0 <= i < n", "y[i]", {"x[i]", tensor + "[i]"},
                               ScalarExpr::make(ScalarOp::select, {below, read(1), read(0)}), std::nullopt, {"i"})
                    .build();
    nest.statements[0].reads[1].relation = isl::map(isl_context(), "[n] -> { s[i] -> " + tensor + "[i] : i < 0 }");
    validate(nest);
    return nest;
  };
  for (const char* tensor : {"x", "z", "t"}) {
    SCOPED_TRACE(tensor);
    const Proved proved{Schedule(never(tensor))};
    const TileProgram reached = with_op(proved.program, "s", [](TileOp& op) {
      op.value = ScalarExpr::make(ScalarOp::select, {op.value.args()[0], op.value.args()[2], op.value.args()[1]});
    });
    EXPECT_NE(proved.refutation(reached), "") << "the read that never happened does";
  }
}

TEST(ProgramProof, SizesAreThoseForWhichGuardsFitTheirIntegers) {
  Nest nest = NestBuilder("every_other", {{"n", 9}})
                  .tensor("x", TensorRole::input, {"n"})
                  .tensor("y", TensorRole::output, {"n"})
                  .statement("s[i] : 0 <= i < n", "y[i]", {"x[i]"},
                             ScalarExpr::make(ScalarOp::select,
                                              {ScalarExpr::make(ScalarOp::lt, {ScalarExpr::index(0), ScalarExpr::index(1)}),
                                               read(0), number(1)}),
                             std::nullopt, {"2 i", "n"})
                  .build();
  nest.statements[0].reads[0].relation = isl::map(isl_context(), "[n] -> { s[i] -> x[2 i] : 2 i < n }");
  const Proved proved{Schedule(nest)};
  std::string why;
  EXPECT_TRUE(is_valid_for(proved.program.valid, {{"n", std::int64_t{1} << 30}}));
  EXPECT_FALSE(is_valid_for(proved.program.valid, {{"n", (std::int64_t{1} << 30) + 1}}, &why)) << why;
  TileProgram wider = proved.program;
  std::erase_if(wider.valid, [](const SizeConstraint& fact) { return fact.terms.at("n") < 0; });
  EXPECT_THAT(proved.refutation(wider), HasSubstr("is not the statement's element of x"));
}

}  // namespace
}  // namespace nestor
