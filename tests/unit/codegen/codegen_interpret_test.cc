// The interpreter along an op's innermost dim: what it works out once for a line of points is what each point says.
#include "support/error.h"
#include "support/simt/simt_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using ::testing::HasSubstr;
using testing::ProgramMaker;
using testing::var;

constexpr std::int64_t kRows = 3, kColumns = 9;

/// y[r][c] = x[at(r, c)] where `guard` holds; elsewhere `fill`, if there is one.
std::vector<double> copied(const std::vector<IntExpr>& at, const IntExpr& guard, std::optional<double> fill) {
  ProgramMaker maker("copy");
  const int x = maker.input("x", ElementType::f32, {IntExpr(kRows), IntExpr(kColumns)});
  const int y = maker.output("y", ElementType::f32, {IntExpr(kRows), IntExpr(kColumns)});
  TileOp op;
  op.dims = {{"r", IntExpr(0), IntExpr(kRows), kRows}, {"c", IntExpr(0), IntExpr(kColumns), kColumns}};
  op.write = {y, {var("r"), var("c")}};
  op.reads = {{x, at}};
  op.guard = guard;
  op.fill = fill;
  op.value = ScalarExpr::read(0, ElementType::f32);
  TileNode node;
  node.kind = TileNode::Kind::op;
  node.op = op;
  const TileProgram program = maker.finish(std::make_shared<const TileNode>(node));
  std::map<std::string, std::vector<double>> memory{{"x", {}}, {"y", std::vector<double>(kRows * kColumns, -1)}};
  for (int k = 0; k < kRows * kColumns; ++k) memory["x"].push_back(k);
  interpret(program, {}, {}, memory);
  return memory["y"];
}

/// The same, by what stands for a place in x and for the guard.
std::vector<double> expected(const std::function<double(std::int64_t, std::int64_t)>& value) {
  std::vector<double> all;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kColumns; ++c) all.push_back(value(r, c));
  }
  return all;
}

const IntExpr kR = var("r"), kC = var("c");

TEST(Interpret, LinesGoForwardsBackwardsAndByJumps) {
  const auto place = [](std::int64_t r, std::int64_t c) { return static_cast<double>(r * kColumns + c); };
  EXPECT_EQ(copied({kR, kC}, {}, {}), expected(place));
  EXPECT_EQ(copied({kR, IntExpr(kColumns - 1) - kC}, {}, {}),
            expected([&](std::int64_t r, std::int64_t c) { return place(r, kColumns - 1 - c); }));
  EXPECT_EQ(copied({kR, mod(kC * 2, kColumns)}, {}, {}),
            expected([&](std::int64_t r, std::int64_t c) { return place(r, 2 * c % kColumns); }));
}

TEST(Interpret, GuardsOfRowsAndOfColumnsLeavePointsOutOrFillThem) {
  const IntExpr rows = IntExpr::make(IntOp::ge, {kR, IntExpr(1)}), columns = IntExpr::make(IntOp::ge, {kC, IntExpr(4)});
  for (const std::optional<double>& fill : {std::optional<double>(), std::optional<double>(7)}) {
    EXPECT_EQ(copied({kR, kC}, rows && columns, fill), expected([&](std::int64_t r, std::int64_t c) {
                return r >= 1 && c >= 4 ? static_cast<double>(r * kColumns + c) : fill.value_or(-1);
              }));
    // What a guard leaves out may lie outside.
    EXPECT_EQ(copied({kR, kC - 4}, rows && columns, fill), expected([&](std::int64_t r, std::int64_t c) {
                return r >= 1 && c >= 4 ? static_cast<double>(r * kColumns + c - 4) : fill.value_or(-1);
              }));
  }
}

TEST(Interpret, APlaceOutsideIsAnErrorAtEitherEnd) {
  const auto problem = [](const IntExpr& row, const IntExpr& column) -> std::string {
    try {
      copied({row, column}, {}, {});
      return "";
    } catch (const InternalError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(problem(kR, kC + 1), HasSubstr("index 1 of x is 9, outside [0, 9)"));
  EXPECT_THAT(problem(kR, kC - 1), HasSubstr("index 1 of x is -1, outside [0, 9)"));
  EXPECT_THAT(problem(kR, IntExpr(kColumns - 2) - kC), HasSubstr("index 1 of x is -1, outside [0, 9)"));
  EXPECT_THAT(problem(kR + 1, kC), HasSubstr("index 0 of x is 3, outside [0, 3)"));
}

}  // namespace
}  // namespace nestor
