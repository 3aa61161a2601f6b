// Values that use each part several times, forty levels deep: written out they have 2^40 nodes and more, as shared parts a few hundred.
// Whatever goes through values must meet each part once, or leave such values as they are.
#include "poly/algebra/all_rules.h"
#include "poly/nest/nest_json.h"
#include "poly/nest/scalar_share.h"
#include "poly/schedule/schedule.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace nestor {
namespace {

using namespace samples;

using Level = std::function<ScalarExpr(const ScalarExpr&, const ScalarExpr&)>;

ScalarExpr make(ScalarOp op, std::vector<ScalarExpr> args) { return ScalarExpr::make(op, std::move(args)); }

const std::vector<Level>& levels() {
  static const std::vector<Level> all{
      [](const ScalarExpr& v, const ScalarExpr& y) {
        return make(ScalarOp::select, {make(ScalarOp::lt, {y, v}), v * number(0.75) - y, make(ScalarOp::tanh, {v}) + y});
      },
      [](const ScalarExpr& v, const ScalarExpr&) { return v * number(0.5) + v; },
      [](const ScalarExpr& v, const ScalarExpr&) { return v + v; },
      [](const ScalarExpr& v, const ScalarExpr&) { return v * v; },
      [](const ScalarExpr& v, const ScalarExpr&) { return make(ScalarOp::max, {v, make(ScalarOp::neg, {v})}); },
      [](const ScalarExpr& v, const ScalarExpr&) { return make(ScalarOp::exp, {v - v}); },
      [](const ScalarExpr& v, const ScalarExpr&) { return v / (v + number(1)); },
      [](const ScalarExpr& v, const ScalarExpr& y) { return (v - y) * (v - y); }};
  return all;
}

ScalarExpr deep(const Level& level) {
  ScalarExpr value = read(0);
  for (int k = 0; k < 40; ++k) value = level(value, read(1));
  return value;
}

TEST(DeepValues, AreComparedPrintedAndStored) {
  for (const Level& level : levels()) {
    const ScalarExpr one = deep(level), other = deep(level);
    EXPECT_TRUE(one.equals(other));
    EXPECT_FALSE(one.equals(level(other, number(2))));
    EXPECT_FALSE(is_short(one));
    const auto name = [](int k) { return "r" + std::to_string(k); };
    EXPECT_LT(one.str(name, name).size(), 100000U);
  }
  EXPECT_TRUE(is_short(read(0) * read(1) + number(1)));
}

TEST(DeepValues, PassTheCheckTheRulesAndTheSchedule) {
  for (const Level& level : levels()) {
    const Nest nest = NestBuilder("deep", {{"R", 64}, {"C", 64}})
                          .tensor("x", TensorRole::input, {"R", "C"})
                          .tensor("y", TensorRole::input, {"R"})
                          .tensor("o", TensorRole::output, {"R", "C"})
                          .statement("s[i, j] : 0 <= i < R and 0 <= j < C", "o[i, j]", {"x[i, j]", "y[i]"}, deep(level))
                          .build();
    validate(nest);
    for (const Rule& rule : rules()) {
      SCOPED_TRACE(rule.name);
      for (const RuleMatch& match : rule.find(nest)) validate(rule.apply(nest, match.target).nest);
    }
    EXPECT_NO_THROW(Schedule{nest});
    EXPECT_LT(describe(nest).size(), 100000U);
    EXPECT_EQ(nest_to_json(nest_from_json(nest_to_json(nest))), nest_to_json(nest));
  }
}

}  // namespace
}  // namespace nestor
