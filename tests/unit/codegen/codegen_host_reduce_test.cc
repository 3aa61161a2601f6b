// reduce and contract: host code means what the interpreter says.
#include "unit/codegen/codegen_host_fixture.h"

namespace nestor::host_test {
namespace {

const IntExpr i = var("i"), j = var("j"), k = var("k"), h = var("h"), M = var("M"), N = var("N"), K = var("K"), H = var("H");

TileOp reduction(std::vector<OpDim> dims, TileAccess write, std::vector<TileAccess> reads, const ScalarExpr& value,
                 ReductionOp with, bool initialize) {
  TileOp s = make(OpKind::reduce, std::move(dims), std::move(write), std::move(reads), value);
  s.reduction = with;
  s.initialize = initialize;
  return s;
}

/// out[i] = reduction of in over j.
TileProgram rows(const ScalarExpr& value, ReductionOp with, bool initialize, ElementType type = ElementType::f32) {
  return program({"M", "N"}, {argument("in", TensorRole::input, {M, N}, type), argument("out", TensorRole::output, {M})},
                 node(reduction({dim("i", M), dim("j", N, true)}, {1, {i}}, {{0, {i, j}}}, value, with, initialize)));
}

TEST(HostReduce, RowsOfEveryLength) {
  for (const ReductionOp with : {ReductionOp::add, ReductionOp::mul, ReductionOp::min, ReductionOp::max}) {
    for (const bool initialize : {true, false}) {
      for (const std::int64_t n : {1, 3, 8, 13, 32, 40, 71}) {
        RunOptions options;
        options.tolerance = 1e-5;
        expect_right(rows(read(0), with, initialize), {{"M", 3}, {"N", n}}, options);
      }
    }
  }
}

TEST(HostReduce, ValuesAreComputedOnTheWay) {
  RunOptions options;
  options.tolerance = 1e-5;
  expect_right(rows(op(ScalarOp::exp, {read(0)}), ReductionOp::add, true), {{"M", 5}, {"N", 77}}, options);
  expect_right(rows(op(ScalarOp::mul, {read(0), read(0)}), ReductionOp::add, true), {{"M", 5}, {"N", 77}}, options);
  expect_right(rows(read(0, ElementType::bf16), ReductionOp::max, true, ElementType::bf16), {{"M", 5}, {"N", 77}}, options);
  expect_right(rows(read(0, ElementType::f16), ReductionOp::add, false, ElementType::f16), {{"M", 5}, {"N", 77}}, options);
}

TEST(HostReduce, ColumnsAccumulateAsVectors) {
  for (const bool initialize : {true, false}) {
    const TileProgram p = program(
        {"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {N})},
        node(reduction({dim("i", M, true), dim("j", N)}, {1, {j}}, {{0, {i, j}}}, read(0), ReductionOp::add, initialize)));
    for (const std::int64_t n : {1, 8, 31, 33, 70}) {
      RunOptions options;
      options.tolerance = 1e-5;
      expect_right(p, {{"M", 9}, {"N", n}}, options);
    }
  }
}

// A mean that each row has, and a result that it writes once, must not make rows the lanes: each term would be gathered.
TEST(HostReduce, LanesFollowTheTermsAndNotWhatARowHasOnce) {
  const ScalarExpr distance = op(ScalarOp::sub, {read(0), read(1)});
  const TileProgram squares = program({"M", "N"},
                                      {argument("in", TensorRole::input, {M, N}), argument("mean", TensorRole::input, {M}),
                                       argument("out", TensorRole::output, {M})},
                                      node(reduction({dim("i", M), dim("j", N, true)}, {2, {i}}, {{0, {i, j}}, {1, {i}}},
                                                     op(ScalarOp::mul, {distance, distance}), ReductionOp::add, true)));
  for (const std::int64_t n : {1, 7, 40, 71}) {
    RunOptions options;
    options.tolerance = 1e-5;
    expect_right(squares, {{"M", 5}, {"N", n}}, options);
  }
  const std::string text = compile_host(squares, {"x86-64-v4", "", 64, 32}, {.keep_ir = true}).assembly;
  EXPECT_NE(text.find("vsubps"), std::string::npos);
  EXPECT_EQ(text.find("vinsertps"), std::string::npos) << "terms are gathered";
}

TEST(HostReduce, IntegersAndSixteenBitAccumulators) {
  const ScalarExpr x = ScalarExpr::read(0, ElementType::i32);
  const TileProgram integers = program(
      {"M", "N"},
      {argument("in", TensorRole::input, {M, N}, ElementType::i32), argument("out", TensorRole::output, {M}, ElementType::i32)},
      node(reduction({dim("i", M), dim("j", N, true)}, {1, {i}}, {{0, {i, j}}}, x, ReductionOp::add, true)));
  RunOptions exact;
  exact.tolerance = 0;
  expect_right(integers, {{"M", 4}, {"N", 45}}, exact);
  const TileProgram narrow =
      program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M}, ElementType::f16)},
              node(reduction({dim("i", M), dim("j", N, true)}, {1, {i}}, {{0, {i, j}}}, read(0), ReductionOp::max, true)));
  expect_right(narrow, {{"M", 4}, {"N", 45}});
}

TEST(HostReduce, SeveralReducedDimsAndEmptyOnes) {
  const TileProgram p =
      program({"M", "N", "K"}, {argument("in", TensorRole::input, {K, M, N}), argument("out", TensorRole::output, {M})},
              node(reduction({dim("k", K, true), dim("i", M), dim("j", N, true)}, {1, {i}}, {{0, {k, i, j}}}, read(0),
                             ReductionOp::max, true)));
  expect_right(p, {{"M", 3}, {"N", 19}, {"K", 4}});
  expect_right(rows(read(0), ReductionOp::add, true), {{"M", 3}, {"N", 0}});
  expect_right(rows(read(0), ReductionOp::max, true), {{"M", 3}, {"N", 0}});
}

TEST(HostReduce, Guards) {
  const IntExpr guards[] = {ge(i, j),
                            ge(j, i),
                            ge(i, 2),
                            ge(mod(j, 3), 1),
                            ge(i, j) && ge(j, i - IntExpr(6)),
                            ge(M, 100),
                            IntExpr::make(IntOp::logical_or, {ge(i, j), ge(j, 20)})};
  for (const IntExpr& guard : guards) {
    for (const bool initialize : {true, false}) {
      SCOPED_TRACE(guard.str());
      TileOp by_row = reduction({dim("i", M), dim("j", N, true)}, {1, {i}}, {{0, {i, j}}}, read(0), ReductionOp::add, initialize);
      by_row.guard = guard;
      expect_right(program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M})},
                           node(by_row)),
                   {{"M", 11}, {"N", 35}});
      TileOp by_column =
          reduction({dim("i", M, true), dim("j", N)}, {1, {j}}, {{0, {i, j}}}, read(0), ReductionOp::max, initialize);
      by_column.guard = guard;
      expect_right(program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {N})},
                           node(by_column)),
                   {{"M", 11}, {"N", 35}});
    }
  }
}

// A column that the guard leaves out for every reduced point lies outside of the tensor: it is neither read nor written.
TEST(HostReduce, WhatNoReducedPointReachesIsNotStored) {
  for (const std::int64_t columns : {3, 19}) {
    TileOp sum = reduction({dim("i", M), dim("j", N, true), dim("k", 32)}, {1, {i, var("k")}}, {{0, {i, j}}}, read(0),
                           ReductionOp::add, false);
    const IntExpr inside = ge(columns - 1, var("k"));
    sum.guard = IntExpr::make(IntOp::logical_or, {ge(i, j) && inside, ge(j, 20) && inside});
    expect_right(
        program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M, columns})},
                node(sum)),
        {{"M", 11}, {"N", 35}});
  }
}

struct Product {
  bool transposed_a = false, transposed_b = false, transposed_c = false;
  ElementType a = ElementType::f32, b = ElementType::f32, c = ElementType::f32;
  bool initialize = true;
  double scale = 1;
  bool fixed = false;  ///< extents known at compile time
};

TileProgram product(const Product& s, const Sizes& sizes) {
  const auto access = [](int buffer, const IntExpr& x, const IntExpr& y, bool transposed) {
    return TileAccess{buffer, transposed ? std::vector<IntExpr>{y, x} : std::vector<IntExpr>{x, y}};
  };
  const auto extents = [](const IntExpr& x, const IntExpr& y, bool transposed) {
    return transposed ? std::vector<IntExpr>{y, x} : std::vector<IntExpr>{x, y};
  };
  const auto size = [&](const char* name) { return s.fixed ? IntExpr(sizes.at(name)) : var(name); };
  ScalarExpr value = op(ScalarOp::mul, {read(0, s.a), read(1, s.b)});
  if (s.scale != 1) value = op(ScalarOp::mul, {value, f32(s.scale)});
  TileOp o = reduction({dim("i", size("M")), dim("j", size("N")), dim("k", size("K"), true)}, access(2, i, j, s.transposed_c),
                       {access(0, i, k, s.transposed_a), access(1, k, j, s.transposed_b)}, value, ReductionOp::add, s.initialize);
  o.kind = OpKind::contract;
  TileProgram p = program({"M", "N", "K"},
                          {argument("a", TensorRole::input, extents(M, K, s.transposed_a), s.a),
                           argument("b", TensorRole::input, extents(K, N, s.transposed_b), s.b),
                           argument("c", TensorRole::output, extents(M, N, s.transposed_c), s.c)},
                          node(o));
  if (s.fixed) p.fixed_sizes = sizes;
  return p;
}

RunOptions tolerant(const Product& s) {
  RunOptions options;
  options.tolerance = s.c == ElementType::bf16 ? 8e-3 : s.c == ElementType::f16 ? 1e-3 : 1e-5;
  options.wide_accumulators = true;
  return options;
}

class HostContractOfRows : public ::testing::TestWithParam<std::int64_t> {};

INSTANTIATE_TEST_SUITE_P(Rows, HostContractOfRows, ::testing::Values(2, 5, 6, 13), ::testing::PrintToStringParamName());

TEST_P(HostContractOfRows, EverySizeOfTile) {
  for (const std::int64_t n : {2, 8, 16, 17, 40}) {
    for (const std::int64_t depth : {1, 3, 4, 21}) {
      const Sizes sizes{{"M", GetParam()}, {"N", n}, {"K", depth}};
      SCOPED_TRACE(fmt::format("{} x {} x {}", GetParam(), n, depth));
      for (const bool fixed : {false, true}) {
        Product s;
        s.fixed = fixed;
        expect_as_interpreted(product(s, sizes), sizes, detect_host(), tolerant(s));
      }
    }
  }
}

/// The parameter's bits: a, b and c transposed, sums started or gone on with.
class HostContractOrientation : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Bits, HostContractOrientation, ::testing::Range(0, 16), ::testing::PrintToStringParamName());

TEST_P(HostContractOrientation, EveryTypeAndStart) {
  const Sizes sizes{{"M", 23}, {"N", 37}, {"K", 29}};
  Product s;
  s.transposed_a = (GetParam() & 1) != 0;
  s.transposed_b = (GetParam() & 2) != 0;
  s.transposed_c = (GetParam() & 4) != 0;
  s.initialize = (GetParam() & 8) != 0;
  s.scale = s.transposed_c ? -0.5 : 1;
  for (const bool fixed : {false, true}) {
    s.fixed = fixed;
    expect_right(product(s, sizes), sizes, tolerant(s));
  }
  for (const ElementType type : {ElementType::f16, ElementType::bf16}) {
    s.a = s.b = type;
    expect_right(product(s, sizes), sizes, tolerant(s));
    s.c = type;
    expect_as_interpreted(product(s, sizes), sizes, detect_host(), tolerant(s));
    s.a = s.b = s.c = ElementType::f32;
  }
}

/// c = a * b (or the transpose of b), as the interpreter computes it: in double, in the order of the dims.
void multiply(std::map<std::string, std::vector<double>>& memory, const Sizes& sizes, bool transposed_b) {
  const auto m = static_cast<std::size_t>(sizes.at("M")), n = static_cast<std::size_t>(sizes.at("N"));
  const auto depth = static_cast<std::size_t>(sizes.at("K"));
  const std::vector<double>&a = memory.at("a"), &b = memory.at("b");
  for (std::size_t x = 0; x < m; ++x) {
    for (std::size_t y = 0; y < n; ++y) {
      double sum = 0;
      for (std::size_t z = 0; z < depth; ++z) sum += a[x * depth + z] * b[transposed_b ? y * depth + z : z * n + y];
      memory.at("c")[x * n + y] = sum;
    }
  }
}

TEST(HostContract, LargerThanTheCacheBlocks) {
  const Sizes sizes{{"M", 151}, {"N", 1050}, {"K", 530}};
  for (const bool narrow : {false, true}) {
    Product s;
    s.transposed_b = narrow;
    if (narrow) s.c = ElementType::f16;
    RunOptions options = tolerant(s);
    if (!narrow) options.tolerance = 5e-5;
    options.reference = [&](auto& memory) { multiply(memory, sizes, narrow); };
    expect_as_interpreted(product(s, sizes), sizes, detect_host(), options);
  }
}

TEST(HostContract, AnEmptyDepthStillInitialises) {
  Product s;
  expect_right(product(s, {}), {{"M", 7}, {"N", 9}, {"K", 0}});
}

TEST(HostContract, BatchesAndSeveralReducedDims) {
  const IntExpr r = var("r");
  TileOp o = reduction({dim("h", H), dim("i", M), dim("r", 3, true), dim("j", N), dim("k", K, true)}, {2, {h, i, j}},
                       {{0, {h, i + r, k}}, {1, {r, j, k}}}, op(ScalarOp::mul, {read(0), read(1)}), ReductionOp::add, true);
  o.kind = OpKind::contract;
  const TileProgram p = program({"H", "M", "N", "K"},
                                {argument("a", TensorRole::input, {H, M + IntExpr(2), K}),
                                 argument("b", TensorRole::input, {3, N, K}), argument("c", TensorRole::output, {H, M, N})},
                                node(o));
  RunOptions options;
  options.tolerance = 1e-5;
  expect_right(p, {{"H", 2}, {"M", 9}, {"N", 20}, {"K", 11}}, options);
}

TEST(HostContract, GuardsOfOneDimOrOfSeveral) {
  const IntExpr guards[] = {ge(i, 3), ge(20, j), ge(k, 2) && ge(9, k), ge(i, j), ge(k, i), ge(mod(j, 2), 1), ge(N, 1000)};
  for (const IntExpr& guard : guards) {
    for (const bool initialize : {true, false}) {
      SCOPED_TRACE(guard.str());
      Product s;
      s.initialize = initialize;
      TileProgram p = product(s, {});
      TileNode changed = *p.root;
      changed.op.guard = guard;
      p.root = std::make_shared<const TileNode>(changed);
      expect_right(p, {{"M", 14}, {"N", 33}, {"K", 12}}, tolerant(s));
    }
  }
}

TEST(HostContract, MatrixTimesVectorInBothDirections) {
  TileOp o = reduction({dim("i", M), dim("k", K, true)}, {2, {i}}, {{0, {i, k}}, {1, {k}}}, op(ScalarOp::mul, {read(0), read(1)}),
                       ReductionOp::add, true);
  o.kind = OpKind::contract;
  RunOptions options;
  options.tolerance = 1e-5;
  expect_right(program({"M", "K"},
                       {argument("a", TensorRole::input, {M, K}), argument("x", TensorRole::input, {K}),
                        argument("y", TensorRole::output, {M})},
                       node(o)),
               {{"M", 13}, {"K", 77}}, options);
  o.reads[0].index = {k, i};
  expect_right(program({"M", "K"},
                       {argument("a", TensorRole::input, {K, M}), argument("x", TensorRole::input, {K}),
                        argument("y", TensorRole::output, {M})},
                       node(o)),
               {{"M", 77}, {"K", 13}}, options);
}

/// 24 accumulators, 6 addresses of rows, 10 loads a step. 4 x 4 has more loads, 14 x 2 more addresses than there are registers.
TEST(HostContract, LargeProductsTakeSixRowsOfFourVectors) {
  Product s;
  s.fixed = true;
  for (const std::int64_t depth : {64, 256, 1024}) {
    const TileProgram p = product(s, {{"M", 1024}, {"N", 1024}, {"K", depth}});
    const std::string text = compile_host(p, {"x86-64-v4", "", 64, 32}, {.keep_ir = true}).assembly;
    const bool fetches = depth > 64;  // a short product ends before C has come
    EXPECT_NE(text.find(fetches ? "product_6x4x16_b_c:" : "product_6x4x16_b:"), std::string::npos) << depth;
    EXPECT_EQ(text.find("prefetcht1") != std::string::npos, fetches) << depth;
  }
}

TEST(HostContract, WidestVectorsCompile) {
  Product s;
  const CompiledHost compiled = compile_host(product(s, {}), {"x86-64-v4", "", 64, 32}, {.keep_ir = true});
  EXPECT_NE(compiled.assembly.find("zmm"), std::string::npos);
  EXPECT_EQ(compiled.assembly.find("callq\t*"), std::string::npos);
}

}  // namespace
}  // namespace nestor::host_test
