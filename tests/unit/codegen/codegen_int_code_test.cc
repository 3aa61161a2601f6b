// Looked-up expressions come to what the expressions themselves come to.
#include "codegen/tile/int_code.h"

#include "support/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace nestor {
namespace {

class Expressions {
 public:
  explicit Expressions(unsigned seed) : random_(seed) {}
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  IntExpr integer(int depth) {
    if (depth == 0 || below(5) == 0)
      return below(3) == 0 ? IntExpr(below(9) - 4) : IntExpr::variable(std::string(1, static_cast<char>('a' + below(4))));
    switch (below(8)) {
      case 0:
        return floor_div(integer(depth - 1), 1 + below(5));
      case 1:
        return mod(integer(depth - 1), 1 + below(5));
      case 2:
        return min(integer(depth - 1), integer(depth - 1));
      case 3:
        return max(integer(depth - 1), integer(depth - 1));
      case 4:
        return IntExpr::make(IntOp::select, {condition(depth - 1), integer(depth - 1), integer(depth - 1)});
      case 5:
        return IntExpr(below(7) - 3) * integer(depth - 1);
      case 6:
        return integer(depth - 1) - integer(depth - 1);
      default:
        return integer(depth - 1) + integer(depth - 1);
    }
  }

  IntExpr condition(int depth) {
    if (depth > 0 && below(3) == 0) return IntExpr::make(IntOp::logical_not, {condition(depth - 1)});
    if (depth > 0 && below(3) == 0)
      return IntExpr::make(below(2) ? IntOp::logical_and : IntOp::logical_or, {condition(depth - 1), condition(depth - 1)});
    return IntExpr::make(below(2) ? IntOp::ge : IntOp::eq, {integer(depth > 0 ? depth - 1 : 0), integer(0)});
  }

 private:
  std::mt19937 random_;
};

TEST(IntCode, ComesToWhatTheExpressionComesTo) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Expressions make(seed);
    const IntExpr expr = seed % 4 == 0 ? make.condition(4) : make.integer(5);
    VariableSlots slots;
    const IntCode code(expr, slots);
    for (int round = 0; round < 8; ++round) {
      std::map<std::string, std::int64_t> values;
      for (const char* name : {"a", "b", "c", "d"}) values[name] = make.below(41) - 20;
      std::vector<std::int64_t> frame(slots.size(), kNoValue);
      for (const auto& [name, slot] : slots.all()) frame[static_cast<std::size_t>(slot)] = values.at(name);
      EXPECT_EQ(code.evaluate(frame.data()), expr.evaluate([&](const std::string& name) { return values.at(name); }))
          << expr.str();
    }
  }
}

/// Values of the four variables in the frame of a code.
std::vector<std::int64_t> drawn_frame(Expressions& make, const VariableSlots& slots) {
  std::vector<std::int64_t> frame(slots.size());
  for (std::int64_t& value : frame) value = make.below(41) - 20;
  return frame;
}

TEST(IntCode, LinesComeToWhatEachPointComesTo) {
  int lines = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    Expressions make(seed);
    VariableSlots slots;
    const int a = slots.of("a");
    const IntExpr expr = make.integer(3);
    const IntCode code(expr, slots);
    std::vector<std::int64_t> frame = drawn_frame(make, slots);
    const auto line = code.along(a, frame.data());
    if (!line) continue;
    ++lines;
    for (int step = 0; step < 4; ++step, ++frame[static_cast<std::size_t>(a)])
      EXPECT_EQ(code.evaluate(frame.data()), line->now + step * line->step) << expr.str();
  }
  EXPECT_GT(lines, 50);
}

TEST(IntCode, ConjunctsHoldTogetherWhereTheExpressionHolds) {
  int several = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    Expressions make(seed);
    VariableSlots slots;
    const int a = slots.of("a");
    const IntExpr expr = make.condition(3) && make.condition(2);
    const IntCode code(expr, slots);
    const std::vector<IntCode> parts = code.conjuncts();
    several += parts.size() > 2 ? 1 : 0;
    for (int round = 0; round < 8; ++round) {
      std::vector<std::int64_t> frame = drawn_frame(make, slots);
      const auto holds = [&](const IntCode& part) { return part.evaluate(frame.data()) != 0; };
      EXPECT_EQ(std::all_of(parts.begin(), parts.end(), holds), holds(code)) << expr.str();
      for (const IntCode& part : parts) {
        const bool before = holds(part);
        const std::int64_t kept = std::exchange(frame[static_cast<std::size_t>(a)], make.below(41) - 20);
        EXPECT_TRUE(part.uses(a) || holds(part) == before) << expr.str();
        frame[static_cast<std::size_t>(a)] = kept;
      }
    }
  }
  EXPECT_GT(several, 50);
}

TEST(IntCode, OnlyTheChosenSideIsEvaluated) {
  const IntExpr a = IntExpr::variable("a"), b = IntExpr::variable("b");
  VariableSlots slots;
  const IntCode code(IntExpr::make(IntOp::select, {a, a, b}), slots);
  std::vector<std::int64_t> frame(2, kNoValue);
  frame[static_cast<std::size_t>(slots.of("a"))] = 7;
  EXPECT_EQ(code.evaluate(frame.data()), 7);
  frame[static_cast<std::size_t>(slots.of("a"))] = 0;
  EXPECT_THROW(code.evaluate(frame.data()), InternalError) << "b has no value";
}

TEST(IntCode, WhatDoesNotFitIsAnError) {
  const IntExpr a = IntExpr::variable("a");
  VariableSlots slots;
  const IntCode linear(a * 4 + 1, slots), product(a * a, slots), missing(a + IntExpr::variable("b"), slots);
  EXPECT_FALSE(IntCode(IntExpr(), slots).defined());
  std::vector<std::int64_t> frame(slots.size(), kNoValue);
  frame[static_cast<std::size_t>(slots.of("a"))] = std::int64_t{1} << 62;
  EXPECT_THROW(linear.evaluate(frame.data()), UserError);
  EXPECT_THROW(product.evaluate(frame.data()), UserError);
  EXPECT_THROW(missing.evaluate(frame.data()), InternalError);
  for (const IntCode* code : {&linear, &product, &missing}) EXPECT_FALSE(code->along(slots.of("a"), frame.data()));
}

}  // namespace
}  // namespace nestor
