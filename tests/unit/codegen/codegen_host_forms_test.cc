// Strips of rows and values computed again: which ops take part, which must not, and that programs mean the same.
#include "codegen/host/repeated_values.h"
#include "codegen/host/row_strips.h"
#include "unit/codegen/codegen_host_fixture.h"

#include <gmock/gmock.h>

namespace nestor::host_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kRows = 64, kColumns = 96;
const IntExpr i = var("i"), j = var("j"), M = var("M"), N = var("N");

std::vector<OpDim> box(bool reduced = false, const IntExpr& rows = kRows) {
  return {dim("i", rows), dim("j", kColumns, reduced)};
}
TileOp map(TileAccess write, std::vector<TileAccess> reads, const ScalarExpr& value) {
  return make(OpKind::map, box(), std::move(write), std::move(reads), value);
}
TileOp reduce(ReductionOp with, TileAccess write, TileAccess read_of, const IntExpr& rows = kRows) {
  TileOp out = make(OpKind::reduce, box(true, rows), std::move(write), {std::move(read_of)}, read(0));
  out.reduction = with;
  out.initialize = true;
  return out;
}

/// Buffers: 0 in, 1 out, 2 scores, 3 powers (tiles); 4 largest, 5 total (of rows).
TileProgram rows_program(std::vector<TileTree> ops) {
  std::vector<Buffer> buffers{argument("in", TensorRole::input, {M, kRows, kColumns}),
                              argument("out", TensorRole::output, {M, kRows, kColumns})};
  for (const char* name : {"scores", "powers"}) buffers.push_back(local(name, Memory::scratch, {kRows, kColumns}));
  for (const char* name : {"largest", "total"}) buffers.push_back(local(name, Memory::scratch, {kRows}));
  return program({"M"}, std::move(buffers), loop("m", M, LoopKind::parallel, sequence(std::move(ops))));
}

const TileAccess kIn{0, {var("m"), i, j}}, kOut{1, {var("m"), i, j}}, kScores{2, {i, j}}, kPowers{3, {i, j}}, kLargest{4, {i}},
    kTotal{5, {i}};

TileTree scores() { return node(map(kScores, {kIn}, op(ScalarOp::mul, {read(0), f32(3)}))); }
TileTree largest() { return node(reduce(ReductionOp::max, kLargest, kScores)); }
TileTree powers() { return node(map(kPowers, {kScores, kLargest}, op(ScalarOp::exp, {op(ScalarOp::sub, {read(0), read(1)})}))); }
TileTree total() { return node(reduce(ReductionOp::add, kTotal, kPowers)); }
TileTree result(TileAccess powers_at = kPowers) {
  return node(map(kOut, {std::move(powers_at), kTotal}, op(ScalarOp::div, {read(0), read(1)})));
}

std::string in_strips(const TileProgram& p) { return describe(in_row_strips(p)); }

TEST(RowStrips, OpsThatMeetInRowsShareALoop) {
  const TileProgram p = rows_program({scores(), largest(), powers(), total(), result()});
  const TileProgram strips = in_row_strips(p);
  ASSERT_EQ(strips.root->children[0]->children.size(), 1U) << describe(strips);
  const TileNode& rows = *strips.root->children[0]->children[0];
  EXPECT_EQ(rows.kind, TileNode::Kind::loop);
  EXPECT_EQ(rows.step, 16);  // 848 bytes a row
  EXPECT_EQ(rows.children[0]->children.size(), 5U);
  RunOptions options;
  options.tolerance = 1e-5;
  expect_right(p, {{"M", 3}}, options);
}

TEST(RowStrips, TilesThatFitTheFirstCacheStayWhole) {
  const TileProgram p = rows_program({scores(), largest(), powers(), total(), result()});
  EXPECT_THAT(describe(in_row_strips(p, 1 << 20)), Not(HasSubstr("_strip")));
}

TEST(RowStrips, OtherRowsOrOtherBoundsPartThem) {
  const TileAccess turned{3, {IntExpr(kRows - 1) - i, j}};
  EXPECT_THAT(in_strips(rows_program({powers(), result(turned)})), Not(HasSubstr("_strip")));
  EXPECT_THAT(in_strips(rows_program({powers(), result()})), HasSubstr("_strip"));
  TileTree fewer = node(reduce(ReductionOp::add, kTotal, kPowers, kRows / 2));
  EXPECT_THAT(in_strips(rows_program({powers(), std::move(fewer)})), Not(HasSubstr("_strip")));
}

TEST(RowStrips, RowsWithADependenceStayInOrder) {
  TileOp running = map(kPowers, {kScores}, read(0));
  running.kind = OpKind::points;
  running.dims[0].parallel = false;
  EXPECT_THAT(in_strips(rows_program({scores(), node(std::move(running))})), Not(HasSubstr("_strip")));
}

/// A product stays whole; what follows it may pass it, unless it reads the product or overwrites what that reads.
TEST(RowStrips, OpsPassOnlyWhatTheyDoNotMeet) {
  const auto program_with = [](TileTree last) {
    TileProgram p = rows_program({});
    p.buffers.push_back(local("sums", Memory::scratch, {kRows, kColumns}));
    const std::vector<OpDim> dims{dim("i", kRows), dim("j", kColumns), dim("k", kColumns, true)};
    TileOp product = make(OpKind::contract, dims, {6, {i, j}}, {{3, {i, var("k")}}, {0, {var("m"), var("k"), j}}},
                          op(ScalarOp::mul, {read(0), read(1)}));
    product.reduction = ReductionOp::add;
    product.initialize = true;
    TileTree body = sequence({powers(), node(std::move(product)), std::move(last)});
    p.root = loop("m", M, LoopKind::parallel, std::move(body));
    return in_row_strips(p).root->children[0];
  };
  EXPECT_EQ(program_with(total())->children.size(), 2U);
  EXPECT_EQ(program_with(node(map(kPowers, {kPowers}, op(ScalarOp::mul, {read(0), f32(2)}))))->children.size(), 3U);
  EXPECT_EQ(program_with(node(map(kOut, {{6, {i, j}}, kPowers}, op(ScalarOp::add, {read(0), read(1)}))))->children.size(), 3U);
}

TileTree cheap() { return node(map(kScores, {kPowers}, op(ScalarOp::mul, {read(0), f32(3)}))); }
TileTree start() { return node(map(kPowers, {kIn}, read(0))); }
TileTree difference() { return node(map(kOut, {kScores, kLargest}, op(ScalarOp::sub, {read(0), read(1)}))); }

bool is_repeated(std::vector<TileTree> ops) {
  return describe(with_repeated_values(rows_program(std::move(ops)))).find(": scores[") == std::string::npos;
}

TEST(RepeatedValues, CheapMapsAreComputedByTheirReaders) {
  const TileProgram p = rows_program({start(), cheap(), largest(), difference()});
  EXPECT_THAT(describe(with_repeated_values(p)), Not(HasSubstr("scores[i, j]")));
  expect_right(p, {{"M", 3}});
}

/// A score less its row's maximum is 0 even where a product that became part of an fma would leave its rounding error.
TEST(RepeatedValues, AreRoundedAsStoredOnesAre) {
  TileProgram p = rows_program({start(), cheap(), largest(), difference()});
  RunOptions options;
  options.low = 1e9, options.high = 1.1e9;
  options.tolerance = 0;
  options.reference = [](std::map<std::string, std::vector<double>>& memory) {
    const std::vector<double>& in = memory.at("in");
    std::vector<double>& out = memory.at("out");
    for (std::size_t row = 0; row < in.size(); row += kColumns) {
      float most = -INFINITY;
      for (std::size_t k = row; k < row + kColumns; ++k) most = std::max(most, static_cast<float>(in[k]) * 3.0F);
      for (std::size_t k = row; k < row + kColumns; ++k) {
        const volatile float score = static_cast<float>(in[k]) * 3.0F;
        out[k] = static_cast<double>(score - most);
      }
    }
  };
  expect_right(p, {{"M", 2}}, options);
}

TEST(RepeatedValues, OthersAreStored) {
  EXPECT_TRUE(is_repeated({start(), cheap(), largest()}));
  TileTree heavy = node(map(kScores, {kPowers}, op(ScalarOp::exp, {read(0)})));
  EXPECT_FALSE(is_repeated({start(), std::move(heavy), largest()}));
  TileTree fewer = node(reduce(ReductionOp::max, kLargest, kScores, kRows / 2));
  EXPECT_FALSE(is_repeated({start(), cheap(), std::move(fewer)})) << "another box";
  EXPECT_FALSE(is_repeated({start(), cheap(), start(), largest()})) << "its operand is overwritten";
  EXPECT_FALSE(is_repeated({start(), cheap(), largest(), difference(), largest()})) << "three readers";
  EXPECT_FALSE(is_repeated({start(), scores(), largest()})) << "its operand is no tile in scratch";
  TileOp masked = cheap()->op;
  masked.guard = ge(i, j);
  EXPECT_FALSE(is_repeated({start(), node(std::move(masked)), largest()}));
  TileOp moved = cheap()->op;
  moved.reads[0].index = {i, IntExpr(kColumns - 1) - j};
  EXPECT_FALSE(is_repeated({start(), node(std::move(moved)), largest()})) << "another layout";
}

}  // namespace
}  // namespace nestor::host_test
