// Strips of rows and values computed again: which ops take part, which must not, and that programs mean the same.
#include "codegen/host/repeated_values.h"
#include "codegen/host/repeated_values_proof.h"
#include "codegen/host/row_strips.h"
#include "unit/codegen/codegen_host_fixture.h"

#include <gmock/gmock.h>

#include <functional>

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

/// Values of rows have unit dims where a task works on one of a batch: rows are at their last place all the same.
TEST(RowStrips, UnitDimsBeforeTheRowsChangeNothing) {
  TileProgram p = rows_program({scores(), largest(), powers(), total(), result()});
  for (Buffer& buffer : p.buffers) {
    if (buffer.memory == Memory::scratch) buffer.extents.insert(buffer.extents.begin(), 1);
  }
  const auto widened = [&](TileAccess& access) {
    if (p.buffers[access.buffer].memory == Memory::scratch) access.index.insert(access.index.begin(), 0);
  };
  std::vector<TileTree> ops;
  for (const TileTree& child : p.root->children[0]->children) {
    TileOp op = child->op;
    widened(op.write);
    for (TileAccess& access : op.reads) widened(access);
    ops.push_back(node(std::move(op)));
  }
  p.root = loop("m", M, LoopKind::parallel, sequence(std::move(ops)));
  const TileProgram strips = in_row_strips(p);
  ASSERT_EQ(strips.root->children[0]->children.size(), 1U) << describe(strips);
  expect_right(strips, {{"M", 3}});
}

TEST(RowStrips, TilesOfOneRowAreNotCutAlongTheirColumns) {
  const auto one_row = [](int to, int from) {
    return node(make(OpKind::map, {dim("j", kColumns)}, {to, {0, j}}, {{from, {0, j}}}, op(ScalarOp::mul, {read(0), f32(2)})));
  };
  std::vector<Buffer> buffers{argument("in", TensorRole::input, {1, kColumns}),
                              argument("out", TensorRole::output, {1, kColumns})};
  for (const char* name : {"first", "second"}) buffers.push_back(local(name, Memory::scratch, {1, kColumns}));
  const TileProgram p = program({}, std::move(buffers), sequence({one_row(2, 0), one_row(3, 2), one_row(1, 3)}));
  EXPECT_THAT(describe(in_row_strips(p, 0)), Not(HasSubstr("_strip")));
}

TEST(RowStrips, StagedCopiesStayWhole) {
  TileOp staged = make(OpKind::copy, box(), kScores, {kIn}, read(0));
  const auto children = [&] {
    const TileProgram p = rows_program({node(staged), largest(), powers(), total(), result()});
    return in_row_strips(p).root->children[0]->children.size();
  };
  EXPECT_EQ(children(), 1U);
  staged.claim.role = OpRole::stage;
  EXPECT_EQ(children(), 2U);
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

/// A copy of a tile stands for the tile: what it is read for reads the tile instead.
TEST(RepeatedValues, CopiesWithinScratchAreLeftOut) {
  TileTree copied = node(make(OpKind::copy, box(), kScores, {kPowers}, read(0)));
  const TileProgram p = rows_program({start(), copied, largest(), difference()});
  const TileProgram repeated = with_repeated_values(p);
  EXPECT_THAT(describe(repeated), Not(HasSubstr("scores[i, j]")));
  EXPECT_NO_THROW(prove_repeated_values(p, repeated));
  expect_right(p, {{"M", 3}});
  EXPECT_FALSE(is_repeated({start(), copied, start(), largest()})) << "its operand is overwritten";
  TileOp masked = copied->op;
  masked.guard = ge(i, j);
  EXPECT_FALSE(is_repeated({start(), node(std::move(masked)), largest()}));
}

/// Square tiles, `to[i, j]` from `from` at `index`.
TileTree square(int to, int from, const std::vector<IntExpr>& index, double factor) {
  return node(make(OpKind::map, {dim("i", kRows), dim("j", kRows)}, {to, {i, j}}, {{from, index}},
                   op(ScalarOp::mul, {read(0), f32(factor)})));
}

/// The reader's dims have the map's names in other places.
TEST(RepeatedValues, AreThoseOfTheElementThatIsRead) {
  std::vector<Buffer> buffers{argument("in", TensorRole::input, {kRows, kRows}),
                              argument("out", TensorRole::output, {kRows, kRows})};
  for (const char* name : {"first", "second"}) buffers.push_back(local(name, Memory::scratch, {kRows, kRows}));
  const TileProgram p =
      program({}, std::move(buffers), sequence({square(2, 0, {i, j}, 3), square(3, 2, {i, j}, 2), square(1, 3, {j, i}, 5)}));
  const TileProgram repeated = with_repeated_values(p);
  EXPECT_THAT(describe(repeated), HasSubstr("first[j, i]"));
  EXPECT_NO_THROW(prove_repeated_values(p, repeated));
  expect_right(p, {});
}

/// The map's operand has an index that is computed, and its dims have other names in the reader.
TEST(RepeatedValues, ComputedIndicesAreThoseOfTheElementThatIsRead) {
  std::vector<Buffer> buffers{argument("in", TensorRole::input, {kRows, kRows}),
                              argument("out", TensorRole::output, {kRows, kRows})};
  for (const char* name : {"first", "second"}) buffers.push_back(local(name, Memory::scratch, {kRows, kRows}));
  const TileProgram p =
      program({}, std::move(buffers),
              sequence({square(2, 0, {i, j}, 3), square(3, 2, {floor_div(i, 2), j}, 2), square(1, 3, {j, i}, 5)}));
  const TileProgram repeated = with_repeated_values(p);
  EXPECT_THAT(describe(repeated), HasSubstr("first[j / 2, i]"));
  EXPECT_NO_THROW(prove_repeated_values(p, repeated));
  TileProgram wrong = repeated;
  auto root = std::make_shared<TileNode>(*repeated.root);
  TileOp reader = root->children.back()->op;
  reader.reads[0].index = {floor_div(i, 2), i};
  root->children.back() = node(std::move(reader));
  wrong.root = root;
  EXPECT_THROW(prove_repeated_values(p, wrong), InternalError);
  expect_right(p, {});
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

/// What is claimed to be `program` with values repeated, and is not.
std::string refusal(const TileProgram& program, const TileProgram& repeated) {
  try {
    prove_repeated_values(program, repeated);
    return "";
  } catch (const InternalError& error) {
    return error.what();
  }
}

/// The program without its op number `left_out`, and with `reader` for the one after it.
TileProgram without(const TileProgram& p, std::size_t left_out, const TileOp& reader) {
  TileProgram result = p;
  auto body = std::make_shared<TileNode>(*p.root->children[0]);
  body->children[left_out + 1] = node(reader);
  body->children.erase(body->children.begin() + static_cast<std::ptrdiff_t>(left_out));
  auto root = std::make_shared<TileNode>(*p.root);
  root->children = {body};
  result.root = root;
  return result;
}

TEST(RepeatedValuesProof, HoldsForWhatIsLeftOutAndForNothingElse) {
  const TileProgram p = rows_program({start(), cheap(), largest(), difference()});
  const TileProgram right = with_repeated_values(p);
  EXPECT_EQ(refusal(p, right), "");
  EXPECT_EQ(refusal(p, p), "");
  const std::vector<TileTree> kept = right.root->children[0]->children;
  ASSERT_EQ(kept.size(), 3U);
  const auto with = [&](std::vector<TileTree> children) {
    TileProgram changed = p;
    auto body = std::make_shared<TileNode>(*right.root->children[0]);
    body->children = std::move(children);
    auto root = std::make_shared<TileNode>(*right.root);
    root->children = {body};
    changed.root = root;
    return changed;
  };
  EXPECT_EQ(refusal(p, with(kept)), "");
  const auto altered = [&](std::size_t at, const std::function<void(TileOp&)>& change) {
    std::vector<TileTree> children = kept;
    TileOp op = children[at]->op;
    change(op);
    children[at] = node(std::move(op));
    return refusal(p, with(std::move(children)));
  };
  EXPECT_EQ(altered(1, [](TileOp&) {}), "");
  EXPECT_THAT(altered(1, [](TileOp& op) { op.value = op.value.args()[0]; }), HasSubstr("not shown")) << "not rounded";
  EXPECT_THAT(altered(1, [](TileOp& op) { op.reads[0].index = {i, IntExpr(0)}; }), HasSubstr("not shown"));
  EXPECT_THAT(altered(1, [](TileOp& op) { op.dims[0].upper = kRows / 2; }), HasSubstr("not shown"));
  EXPECT_THAT(altered(1, [](TileOp& op) { op.reduction = ReductionOp::min; }), HasSubstr("not shown"));
  EXPECT_THAT(altered(1, [](TileOp& op) { op.initialize = false; }), HasSubstr("not shown"));
  EXPECT_THAT(altered(2, [](TileOp& op) { op.guard = ge(i, j); }), HasSubstr("not shown"));
  EXPECT_THAT(altered(2, [](TileOp& op) { op.write.index[1] = op.write.index[1] + IntExpr(1); }), HasSubstr("not shown"));
  EXPECT_THAT(refusal(p, with({kept[0], kept[2], kept[1]})), HasSubstr("not shown")) << "another order";
  EXPECT_THAT(refusal(p, with({kept[0], kept[1]})), HasSubstr("not shown")) << "an op is missing";
  EXPECT_THAT(refusal(p, with({kept[0], kept[1], kept[2], kept[2]})), HasSubstr("not shown")) << "an op too many";
}

/// Programs in which the value may not be repeated, with the op that repeats it nevertheless.
TEST(RepeatedValuesProof, RefusesValuesThatHaveChanged) {
  TileOp sum = reduce(ReductionOp::max, kLargest, kPowers);
  sum.value = ScalarExpr::cast(ElementType::f32, op(ScalarOp::mul, {read(0), f32(3)}));
  EXPECT_EQ(refusal(rows_program({start(), cheap(), largest()}), without(rows_program({start(), cheap(), largest()}), 1, sum)),
            "");
  TileProgram overwritten = rows_program({start(), cheap(), start(), largest()});
  TileProgram changed = overwritten;
  auto body = std::make_shared<TileNode>(*overwritten.root->children[0]);
  body->children = {body->children[0], body->children[2], node(sum)};
  auto root = std::make_shared<TileNode>(*overwritten.root);
  root->children = {body};
  changed.root = root;
  EXPECT_THAT(refusal(overwritten, changed), HasSubstr("overwritten"));
  TileOp masked = cheap()->op;
  masked.guard = ge(i, j);
  const TileProgram guarded = rows_program({start(), node(masked), largest()});
  EXPECT_THAT(refusal(guarded, without(guarded, 1, sum)), HasSubstr("no map of its whole box"));
  TileOp fewer = cheap()->op;
  fewer.dims[1].upper = kColumns / 2;
  const TileProgram half = rows_program({start(), node(fewer), largest()});
  EXPECT_THAT(refusal(half, without(half, 1, sum)), HasSubstr("outside"));
  const TileProgram twice = rows_program({cheap(), start(), cheap(), largest()});
  EXPECT_THAT(refusal(twice, without(twice, 2, sum)), HasSubstr("not shown")) << "the other one is still there";
  const TileProgram late = rows_program({start(), largest(), cheap()});
  TileProgram early = without(late, 0, sum);
  EXPECT_THAT(refusal(late, early), HasSubstr("not shown"));
}

}  // namespace
}  // namespace nestor::host_test
