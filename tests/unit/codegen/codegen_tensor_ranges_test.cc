// Loops over tiles are cut where masks begin and end to hold for whole tiles, and leave out tiles without a point.
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/mask_cnf.h"
#include "support/tensor/tensor_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace nestor::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = nvptx::Event::Kind;

constexpr int kRows = 64, kColumns = 32;

struct Iteration {
  std::int64_t var;
  bool masked;
};

/// The iterations of every loop (and single ones besides it) over `var` in the consumers' program, in order.
void iterations(const nvptx::EventNode& node, const EventValues& values, std::vector<Iteration>& out) {
  using NodeKind = nvptx::EventNode::Kind;
  if (node.kind == NodeKind::condition && value_at(node.condition, values) == 0) return;
  if (node.kind == NodeKind::loop) {
    for (std::int64_t i = value_at(node.lower, values), end = value_at(node.upper, values); i < end; ++i)
      out.push_back({i, node.masked});
    return;
  }
  if (node.kind == NodeKind::sequence && !node.var.empty()) {
    const bool computes = std::any_of(node.children.begin(), node.children.end(),
                                      [](const nvptx::EventNode& child) { return child.event.kind == Kind::compute; });
    if (computes) out.push_back({value_at(node.lower, values), node.masked});
    return;
  }
  for (const nvptx::EventNode& child : node.children) iterations(child, values, out);
}

/// What the key tile holds for the query tile. Full: every query sees every key, where queries beyond the end see whatever their number
/// says. Empty: no query that exists sees any.
enum class Tile { empty, partial, full };

Tile tile_at(const TensorShape& shape, Seen seen, std::int64_t query_tile, std::int64_t key_tile) {
  bool some = false, all = true;
  for (std::int64_t j = key_tile * kColumns; j < (key_tile + 1) * kColumns; ++j) {
    for (std::int64_t i = query_tile * kRows; i < (query_tile + 1) * kRows; ++i) {
      const bool seen_here = j < shape.keys && sees(shape, seen, 0, i, j);
      all = all && seen_here;
      some = some || (seen_here && i < shape.queries);
    }
  }
  return all ? Tile::full : some ? Tile::partial : Tile::empty;
}

std::vector<TensorShape> launches_for(Seen seen) {
  std::vector<TensorShape> shapes;
  for (const std::int64_t queries : {1, 63, 64, 65, 200}) {
    for (const std::int64_t extra : {0, 1, 31, 100}) {
      for (const std::int64_t window : {1, 64, 95, 96, 1000}) {
        for (const std::int64_t prefix : {0, 1, 31, 32, 80, 250, 400}) {
          if ((!has_window(seen) && window > 1) || (!has_prefix(seen) && prefix > 0)) continue;
          shapes.push_back({.queries = queries, .keys = queries + extra, .window = window, .prefix = prefix});
        }
      }
    }
  }
  return shapes;
}

/// How many iterations of a plan are of which kind.
struct Counts {
  int full = 0, partial = 0, tested_full = 0;
};

/// Every tile with a point is visited once, in order, and none without; tests are left out of full tiles alone.
Counts check_iterations(const nvptx::TensorPlan& plan, const TensorShape& shape, Seen seen) {
  Counts counts;
  for (std::int64_t tile = 0; tile * kRows < shape.queries; ++tile) {
    EventValues values{{"out_h", 0}, {"out_io", tile}};
    for (const auto& [name, value] : sizes_of(shape)) values[name] = value;
    std::vector<Iteration> visited;
    iterations(plan.consumer, values, visited);
    std::vector<std::int64_t> order, expected;
    for (const Iteration& each : visited) {
      order.push_back(each.var);
      const bool full = tile_at(shape, seen, tile, each.var) == Tile::full;
      EXPECT_TRUE(each.masked || full) << "tile " << tile << ", " << each.var;
      ++(!each.masked ? counts.full : full ? counts.tested_full : counts.partial);
    }
    for (std::int64_t v = 0; v * kColumns < shape.keys; ++v) {
      if (tile_at(shape, seen, tile, v) != Tile::empty) expected.push_back(v);
    }
    EXPECT_EQ(order, expected) << "tile " << tile;
  }
  return counts;
}

std::string describe(const TensorShape& shape) {
  return fmt::format("{} x {}, window {}, prefix {}", shape.queries, shape.keys, shape.window, shape.prefix);
}

class TensorRanges : public ::testing::TestWithParam<Seen> {};

std::string name_of(const ::testing::TestParamInfo<Seen>& info) {
  static const std::vector<std::string> kNames{"all", "causal", "window", "prefix", "sinks", "picture", "halves"};
  return kNames.at(static_cast<std::size_t>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Masks, TensorRanges,
                         ::testing::Values(Seen::all, Seen::causal, Seen::window, Seen::prefix, Seen::sinks, Seen::picture,
                                           Seen::halves),
                         name_of);

TEST_P(TensorRanges, tests_are_left_out_exactly_where_tiles_are_whole) {
  const Seen seen = GetParam();
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"intra_warpgroup_overlap(out.io)"}}) {
    if ((seen == Seen::sinks || seen == Seen::halves) && !more.empty()) continue;  // the same plan: stretches run without overlap
    const TileProgram program = tensor_program(attention_nest({.seen = seen, .depth = 16}),
                                               {.rows = kRows, .columns = kColumns, .warpgroups = 1, .more = more});
    const PlannedTensor planned(program);
    int full = 0, partial = 0;
    for (const TensorShape& shape : launches_for(seen)) {
      SCOPED_TRACE(describe(shape));
      const Counts counts = check_iterations(planned.plan, shape, seen);
      full += counts.full;
      partial += counts.partial;
      // With overlap the first iteration stands apart and keeps its tests; so does a tile at the end of the sinks that the window fills.
      const auto tiles = static_cast<int>((shape.queries + kRows - 1) / kRows);
      // Of a union of many conditions one interval is without tests.
      const bool of_pieces = seen == Seen::picture || seen == Seen::halves;
      if (!of_pieces) {
        EXPECT_LE(counts.tested_full, seen == Seen::sinks || !more.empty() ? tiles : 0);
      }
    }
    EXPECT_GT(full, 60);
    EXPECT_GT(partial, seen == Seen::halves ? 0 : 30);  // blocks are tiles
  }
}

// Which key tiles frames of 20 reach is told by quotients of the loop's variable, which loops do not test: neighbours may be visited in vain.
TEST(TensorQuotients, all_tiles_with_points_are_visited_and_few_without) {
  const PlannedTensor planned(
      tensor_program(attention_nest({.seen = Seen::frames, .depth = 16}), {.rows = kRows, .columns = kColumns, .warpgroups = 1}));
  int in_vain = 0, needed = 0, untested = 0;
  for (const std::int64_t queries : {1, 20, 64, 65, 200, 700}) {
    const TensorShape shape{.queries = queries, .keys = queries};
    for (std::int64_t tile = 0; tile * kRows < queries; ++tile) {
      EventValues values{{"out_h", 0}, {"out_io", tile}};
      for (const auto& [name, value] : sizes_of(shape)) values[name] = value;
      std::vector<Iteration> visited;
      iterations(planned.plan.consumer, values, visited);
      std::map<std::int64_t, int> times;
      for (const Iteration& each : visited) {
        ++times[each.var];
        const Tile found = tile_at(shape, Seen::frames, tile, each.var);
        EXPECT_TRUE(each.masked || found == Tile::full) << queries << ", tile " << tile << ", " << each.var;
        untested += each.masked ? 0 : 1;
        in_vain += found == Tile::empty ? 1 : 0;
      }
      for (std::int64_t v = 0; v * kColumns < queries; ++v) {
        if (tile_at(shape, Seen::frames, tile, v) == Tile::empty) continue;
        EXPECT_EQ(times[v], 1) << queries << ", tile " << tile << ", " << v;
        ++needed;
      }
      for (const auto& [v, count] : times) EXPECT_EQ(count, 1) << v;
    }
  }
  EXPECT_GT(needed, 50);
  EXPECT_LE(5 * in_vain, needed);
}

/// Blocks of four tiles of keys: the loop ends where a quotient of its variable says.
TEST(TensorQuotients, a_loop_ends_with_its_block) {
  const PlannedTensor planned(
      tensor_program(attention_nest({.seen = Seen::blocks, .depth = 16}), {.rows = kRows, .columns = kColumns, .warpgroups = 1}));
  Counts all;
  for (const std::int64_t queries : {1, 64, 127, 128, 129, 200, 700}) {
    const Counts found = check_iterations(planned.plan, {.queries = queries, .keys = queries}, Seen::blocks);
    all.full += found.full;
    all.partial += found.partial;
  }
  EXPECT_GT(all.full, 50);
  EXPECT_GT(all.partial, 5);
}

TEST(TensorQuotients, distances_are_linear_where_one_quotient_has_all_of_the_variable) {
  const IntExpr x = IntExpr::variable("x"), y = IntExpr::variable("y");
  const auto quotient = [&](int factor, int constant, int divisor) {
    return floor_div(IntExpr(factor) * x + IntExpr(constant), divisor);
  };
  const std::vector<IntExpr> distances{y - IntExpr(2) * quotient(1, 0, 2), IntExpr(2) * x - IntExpr(2) * quotient(1, 0, 2) - y,
                                       IntExpr(39) * x - IntExpr(39) * quotient(7, 0, 39) + IntExpr(63) - IntExpr(64) * y,
                                       y + IntExpr(3) * quotient(-5, 1, 4) + IntExpr(7),
                                       IntExpr(4) * quotient(3, -2, 5) - IntExpr(3) * y};
  for (const IntExpr& distance : distances) {
    const IntExpr linear = nvptx::linear_along(distance, "x");
    ASSERT_TRUE(linear.coefficient("x")) << distance.str();
    for (std::int64_t a = -60; a <= 60; ++a) {
      for (std::int64_t b = -40; b <= 40; ++b) {
        const auto at = [&](const IntExpr& expr) {
          return expr.evaluate([&](const std::string& n) { return n == "x" ? a : b; });
        };
        ASSERT_EQ(at(linear) >= 0, at(distance) >= 0) << distance.str() << " at " << a << ", " << b;
      }
    }
  }
  for (const IntExpr& other : {y - IntExpr(3) * x + IntExpr(2) * quotient(1, 0, 2), quotient(1, 0, 2) - quotient(1, 0, 3)})
    EXPECT_EQ(nvptx::linear_along(other, "x").str(), other.str());
}

TEST(TensorUnions, a_prefix_cuts_its_loop_as_a_triangle_does) {
  const auto loops = [](Seen seen) {
    const PlannedTensor planned(tensor_program(attention_nest({.seen = seen})));
    std::vector<bool> masked;
    for (const nvptx::EventNode& node : planned.plan.consumer.children) {
      if (node.kind == nvptx::EventNode::Kind::loop) masked.push_back(node.masked);
    }
    return masked;
  };
  EXPECT_THAT(loops(Seen::causal), ElementsAre(false, true));
  EXPECT_EQ(loops(Seen::prefix), loops(Seen::causal));
}

TEST(TensorUnions, one_select_of_scores_serves_a_union_as_well) {
  const PlannedTensor planned(tensor_program(attention_nest({.seen = Seen::prefix})));
  for (const nvptx::TensorOp& op : planned.plan.ops) EXPECT_EQ(op.select || op.mask_a, op.op.name == "score") << op.op.name;
}

// ---- clauses

std::vector<std::string> clauses(const IntExpr& condition) {
  std::vector<std::string> texts;
  for (const IntExpr& clause : nvptx::clauses_of(condition)) texts.push_back(clause.str());
  return texts;
}

TEST(MaskClauses, hold_where_the_condition_does) {
  const auto var = [](const char* name) { return IntExpr::variable(name); };
  const auto make = [](IntOp op, const IntExpr& a, const IntExpr& b) { return IntExpr::make(op, {a, b}); };
  const IntExpr x = var("x"), y = var("y");
  const IntExpr below = make(IntOp::gt, IntExpr(3), x), above = make(IntOp::ge, x, y), here = make(IntOp::eq, x, IntExpr(-1));
  const std::vector<IntExpr> conditions{
      make(IntOp::logical_or, below, above),
      make(IntOp::logical_or, make(IntOp::logical_and, below, above), here),
      IntExpr::make(IntOp::logical_not, {make(IntOp::logical_or, make(IntOp::logical_and, below, above), here)}),
      make(IntOp::ge, max(min(x, y - IntExpr(1)), x - y), IntExpr(1)),
      make(IntOp::gt, IntExpr(2) - max(min(x, y), IntExpr(-2) * min(x, y)), IntExpr(0)),
      make(IntOp::ge, floor_div(max(x, y) + IntExpr(1), 2) - y, IntExpr(0)),
  };
  for (const IntExpr& condition : conditions) {
    const std::vector<IntExpr> parts = nvptx::clauses_of(condition);
    for (std::int64_t a = -5; a <= 5; ++a) {
      for (std::int64_t b = -5; b <= 5; ++b) {
        const auto value = [&](const IntExpr& expr) {
          return expr.evaluate([&](const std::string& n) { return n == "x" ? a : b; });
        };
        bool all = true;
        for (const IntExpr& clause : parts) {
          bool any = false;
          ASSERT_FALSE(nvptx::alternatives_of(clause).empty()) << clause.str();
          for (const IntExpr& distance : nvptx::alternatives_of(clause)) {
            EXPECT_THAT(distance.str(), ::testing::Not(HasSubstr("m")));  // no minimum, no maximum
            any = any || value(distance) >= 0;
          }
          all = all && any;
        }
        EXPECT_EQ(all, value(condition) != 0) << condition.str() << " at " << a << ", " << b;
      }
    }
  }
}

TEST(MaskClauses, leave_plain_comparisons_and_what_has_no_such_form_as_they_are) {
  const IntExpr x = IntExpr::variable("x"), plain = IntExpr::make(IntOp::gt, {IntExpr(7), x});
  EXPECT_THAT(clauses(plain), ElementsAre(plain.str()));
  const IntExpr chosen = IntExpr::make(IntOp::ge, {IntExpr::make(IntOp::select, {plain, max(x, IntExpr(2)), x}), IntExpr(1)});
  EXPECT_THAT(clauses(chosen), ElementsAre(chosen.str()));
  EXPECT_TRUE(nvptx::alternatives_of(IntExpr::make(IntOp::eq, {x, IntExpr(1)})).empty());
  IntExpr many = plain;
  for (int k = 0; k < 8; ++k) {
    const IntExpr other = IntExpr::variable(fmt::format("x{}", k));
    many = IntExpr::make(IntOp::logical_or, {many, plain && IntExpr::make(IntOp::ge, {other, x})});
  }
  EXPECT_THAT(clauses(many), ElementsAre(many.str()));
}

}  // namespace
}  // namespace nestor::testing
