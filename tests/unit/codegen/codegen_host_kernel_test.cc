// Whole kernels on the host: parallel loops, scratch, workspace, loading, and the objects' independence.
#include "unit/codegen/codegen_host_fixture.h"

namespace nestor::host_test {
namespace {

const IntExpr b = var("b"), t = var("t"), i = var("i"), j = var("j"), k = var("k"), B = var("B"), M = var("M"), N = var("N");

/// out[b, row, :] = exp(in - max) / sum, one task a row (b, t): scratch scalars and a scratch row.
TileProgram normalised_rows(const IntExpr& row_extent, Memory memory) {
  TileOp largest = make(OpKind::reduce, {dim("j", N, true)}, {2, {0}}, {{0, {b, t, j}}}, read(0));
  largest.reduction = ReductionOp::max;
  largest.initialize = true;
  const TileOp grown = make(OpKind::map, {dim("j", N)}, {3, {j}}, {{0, {b, t, j}}, {2, {0}}},
                            op(ScalarOp::exp, {op(ScalarOp::sub, {read(0), read(1)})}));
  TileOp sum = make(OpKind::reduce, {dim("j", N, true)}, {4, {0}}, {{3, {j}}}, read(0));
  sum.reduction = ReductionOp::add;
  sum.initialize = true;
  const TileOp scaled =
      make(OpKind::map, {dim("j", N)}, {1, {b, t, j}}, {{3, {j}}, {4, {0}}}, op(ScalarOp::div, {read(0), read(1)}));
  const TileTree body = sequence({node(largest), node(grown), node(sum), node(scaled)});
  return program({"B", "M", "N"},
                 {argument("in", TensorRole::input, {B, M, N}), argument("out", TensorRole::output, {B, M, N}),
                  local("m", Memory::scratch, {1}), local("e", memory, {row_extent}), local("l", Memory::scratch, {1})},
                 loop("b", B, LoopKind::parallel, loop("t", M, LoopKind::parallel, body)));
}

TEST(HostKernel, NestedParallelLoopsWithScratchOfAnySize) {
  for (const std::int64_t n : {5, 64, 1000}) {
    expect_right(normalised_rows(N, Memory::scratch), {{"B", 2}, {"M", 7}, {"N", n}});
    expect_right(normalised_rows(1000, Memory::scratch), {{"B", 3}, {"M", 4}, {"N", n}});
  }
  expect_right(normalised_rows(20000, Memory::scratch), {{"B", 1}, {"M", 4}, {"N", 33}});
}

TEST(HostKernel, MoreIterationsThanTasks) { expect_right(normalised_rows(N, Memory::scratch), {{"B", 3}, {"M", 401}, {"N", 9}}); }

TEST(HostKernel, NoIterations) { expect_right(normalised_rows(N, Memory::scratch), {{"B", 0}, {"M", 4}, {"N", 9}}); }

TEST(HostKernel, OnlyRowsThatAreReadAgainFetchTheNextRow) {
  HostOptions options;
  options.keep_ir = true;
  const auto prefetches = [&](const TileProgram& p) {
    return compile_host(p, detect_host(), options).ir.find("call void @llvm.prefetch") != std::string::npos;
  };
  EXPECT_TRUE(prefetches(normalised_rows(N, Memory::scratch)));
  const TileOp once = make(OpKind::copy, {dim("j", N)}, {1, {i, j}}, {{0, {i, j}}}, read(0));
  EXPECT_FALSE(
      prefetches(program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M, N})},
                         loop("i", M, LoopKind::parallel, node(once)))));
}

TEST(HostKernel, SequenceOfParallelLoopsThroughTheWorkspace) {
  // Time steps: w = a; a = smoothed w; the workspace carries rows between parallel loops inside a serial one.
  const TileOp save = make(OpKind::copy, {dim("j", N)}, {1, {i, j}}, {{0, {i, j}}}, read(0));
  const TileOp smooth =
      make(OpKind::map, {dim("j", N - IntExpr(1), false, 1)}, {0, {i, j}}, {{1, {i, j - IntExpr(1)}}, {1, {i, j + IntExpr(1)}}},
           op(ScalarOp::mul, {op(ScalarOp::add, {read(0), read(1)}), f32(0.5)}));
  Buffer workspace = local("w", Memory::workspace, {M, N});
  workspace.pad = 16;
  const TileProgram p =
      program({"M", "N"}, {argument("a", TensorRole::output, {M, N}), workspace},
              loop("t", 3, LoopKind::serial,
                   sequence({loop("i", M, LoopKind::parallel, node(save)), loop("i", M, LoopKind::parallel, node(smooth))})));
  expect_right(p, {{"M", 9}, {"N", 35}});
  const LaunchRecipe recipe = compile_host(p, detect_host()).kernel.recipe;
  const std::int64_t bytes = recipe.workspace_bytes.evaluate([](const std::string& name) { return name == "M" ? 9 : 35; });
  EXPECT_GE(bytes, 9 * 48 * 4);
  EXPECT_EQ(bytes % 64, 0);
}

TEST(HostKernel, TilesWithStepsConditionsAndOuterVariables) {
  // Tiles of 16 columns, the last one partial, skipped where the condition fails.
  const IntExpr width = min(IntExpr(16), N - j);
  TileOp o = make(OpKind::map, {dim("k", width)}, {1, {t, i, j + k}}, {{0, {t, i, j + k}}}, op(ScalarOp::mul, {read(0), f32(2)}));
  o.dims[0].max_extent = 16;
  const TileTree tile = condition(ge(i + j, 3), node(o));
  const TileProgram p =
      program({"M", "N"}, {argument("in", TensorRole::input, {2, M, N}), argument("out", TensorRole::output, {2, M, N})},
              loop("t", 2, LoopKind::serial, loop("i", M, LoopKind::parallel, loop("j", N, LoopKind::unroll, tile, 16))));
  expect_right(p, {{"M", 6}, {"N", 53}});
}

TEST(HostKernel, TriangularParallelLoops) {
  // The inner bound depends on the outer variable: the inner loop runs inside the task.
  const TileOp o = make(OpKind::map, {dim("k", N)}, {1, {i, j, k}}, {{0, {i, j, k}}}, op(ScalarOp::neg, {read(0)}));
  const TileProgram p =
      program({"M", "N"}, {argument("in", TensorRole::input, {M, M, N}), argument("out", TensorRole::output, {M, M, N})},
              loop("i", M, LoopKind::parallel, loop("j", i + IntExpr(1), LoopKind::parallel, node(o))));
  expect_right(p, {{"M", 6}, {"N", 11}});
}

TEST(HostKernel, ContractionsPackIntoTheTaskScratch) {
  const IntExpr K = var("K");
  TileOp o = make(OpKind::contract, {dim("i", min(IntExpr(32), M - t)), dim("j", N), dim("k", K, true)}, {2, {t + i, j}},
                  {{0, {t + i, k}}, {1, {j, k}}}, op(ScalarOp::mul, {read(0), read(1)}));
  o.dims[0].max_extent = 32;
  o.reduction = ReductionOp::add;
  o.initialize = true;
  const TileProgram p = program({"M", "N", "K"},
                                {argument("a", TensorRole::input, {M, K}), argument("b", TensorRole::input, {N, K}),
                                 argument("c", TensorRole::output, {M, N})},
                                loop("t", M, LoopKind::parallel, node(o), 32));
  RunOptions options;
  options.tolerance = 2e-5;
  expect_right(p, {{"M", 75}, {"N", 50}, {"K", 40}}, options);
}

TEST(HostKernel, LoadedKernelRefusesWrongCalls) {
  const CompiledHost compiled = compile_host(normalised_rows(N, Memory::scratch), detect_host());
  const LoadedHostKernel kernel(compiled.kernel);
  std::vector<void*> pointers(2);
  EXPECT_THROW(kernel.run(pointers, {1, 1}, {{"B", 1}, {"M", 1}, {"N", 1}}, {}, 1), UserError);
  EXPECT_THROW(kernel.run(pointers, {1, 1, 1, 1, 1, 1}, {{"B", 1}, {"M", 1}}, {}, 1), UserError);
}

TEST(HostKernel, ABrokenObjectIsAnError) {
  CompiledKernel kernel = compile_host(normalised_rows(N, Memory::scratch), detect_host()).kernel;
  kernel.code = "not an object";
  EXPECT_THROW(LoadedHostKernel{kernel}, Error);
}

}  // namespace
}  // namespace nestor::host_test
