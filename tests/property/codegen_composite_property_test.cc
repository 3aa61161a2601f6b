// Composites in one pass mean what their nests define, whatever rows and columns are masked: random masks, tiles, parts of specialised loops.
// Programs run as in tests/property/codegen_tile_property_test.cc, with tolerance for the rounding of exponentials and quotients.
//
// NESTOR_PROPERTY_CASES sets the number of cases, NESTOR_PROPERTY_SEED the first one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "support/error.h"
#include "support/nests/random_nests.h"
#include "support/nests/sample_nests.h"
#include "support/tile_definition.h"

namespace nestor::composite_property {
namespace {

using legality::from_environment;
using legality::Random;
using samples::NestBuilder;
using samples::number;
using samples::read;
using samples::operator-;
using samples::operator*;
using samples::operator/;

/// Points j of row i, and how many they are (empty: not one affine function).
struct Rows {
  std::string points;
  std::string count;
};

const std::vector<Rows>& all_rows() {
  static const std::vector<Rows> rows{{"0 <= j < w", "w"},
                                      {"0 <= j <= i", "i + 1"},
                                      {"i <= j < i + w", "w"},
                                      {"0 <= j < w + n - i", "w + n - i"},
                                      {"i <= j <= 2i", "i + 1"},
                                      {"2 <= j < w + 2", "w"},
                                      {"0 <= j < w and j <= i", ""},
                                      {"0 <= j < w and (j < 2 or j <= i)", ""},
                                      {"0 <= j < w and i - 2 <= j <= i + 1", ""},
                                      {"0 <= j < w and i >= 2", ""}};
  return rows;
}

/// The sum of squares around the mean of each row.
Nest moments(const Rows& rows) {
  const ScalarExpr n = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  const std::string pair = "0 <= i < n and " + rows.points;
  return NestBuilder("moments", {{"n", 7}, {"w", 5}})
      .tensor("x", TensorRole::input, {"n", "2n + w + 2"})
      .tensor("m", TensorRole::temporary, {"n"})
      .tensor("out", TensorRole::output, {"n"})
      .statement("m_init[i] : 0 <= i < n", "m[i]", {}, number(0))
      .statement("m_upd[i, j] : " + pair, "m[i]", {"x[i, j]"}, read(0) / n, ReductionOp::add, {rows.count})
      .statement("out_init[i] : 0 <= i < n", "out[i]", {}, number(0))
      .statement("out_upd[i, j] : " + pair, "out[i]", {"x[i, j]", "m[i]"},
                 ScalarExpr::make(ScalarOp::pow, {read(0) - read(1), number(2)}), ReductionOp::add)
      .build();
}

/// The same of points in two dims, k before or behind j: of the row's own number, or of a number for all.
Nest moments_of_boxes(const Rows& rows, bool own_depth, bool k_first) {
  const auto number_of = [](int index) { return ScalarExpr::cast(ElementType::f32, ScalarExpr::index(index)); };
  const std::string pair = "0 <= i < n and " + rows.points + " and 0 <= k < " + (own_depth ? "i + 2" : "v"),
                    dims = k_first ? "[i, k, j]" : "[i, j, k]";
  return NestBuilder("boxes", {{"n", 7}, {"w", 5}, {"v", 3}})
      .tensor("x", TensorRole::input, {"n", "2n + w + 2", "n + v + 2"})
      .tensor("m", TensorRole::temporary, {"n"})
      .tensor("out", TensorRole::output, {"n"})
      .statement("m_init[i] : 0 <= i < n", "m[i]", {}, number(0))
      .statement("m_upd" + dims + " : " + pair, "m[i]", {"x[i, j, k]"}, read(0) / number_of(0) / number_of(1), ReductionOp::add,
                 {rows.count, own_depth ? "i + 2" : "v"})
      .statement("out_init[i] : 0 <= i < n", "out[i]", {}, number(0))
      .statement("out_upd" + dims + " : " + pair, "out[i]", {"x[i, j, k]", "m[i]"},
                 ScalarExpr::make(ScalarOp::pow, {read(0) - read(1), number(2)}), ReductionOp::add)
      .build();
}

/// Sums of exponentials under the maximum of each row, which may run over more points than they.
Nest exponentials(const Rows& rows, const std::string& fewer, bool weighted) {
  const std::string pair = "0 <= i < n and " + rows.points;
  const ScalarExpr term = samples::apply(ScalarOp::exp, read(0) - read(1));
  NestBuilder builder("exponentials", {{"n", 7}, {"w", 5}});
  builder.tensor("x", TensorRole::input, {"n", "2n + w + 2"}).tensor("v", TensorRole::input, {"2n + w + 2", "3"});
  builder.tensor("m", TensorRole::temporary, {"n"});
  if (weighted) {
    builder.tensor("p", TensorRole::temporary, {"n", "2n + w + 2"}).tensor("out", TensorRole::output, {"n", "3"});
  } else {
    builder.tensor("out", TensorRole::output, {"n"});
  }
  builder.statement("m_init[i] : 0 <= i < n", "m[i]", {}, number(-1e30))
      .statement("m_upd[i, j] : " + pair, "m[i]", {"x[i, j]"}, read(0), ReductionOp::max);
  if (weighted) builder.statement("p[i, j] : " + pair, "p[i, j]", {"x[i, j]", "m[i]"}, term);
  builder.statement(weighted ? "out_init[i, d] : 0 <= i < n and 0 <= d < 3" : "out_init[i] : 0 <= i < n",
                    weighted ? "out[i, d]" : "out[i]", {}, number(0));
  if (weighted) {
    builder.statement("out_upd[i, j, d] : 0 <= d < 3 and " + pair + fewer, "out[i, d]", {"p[i, j]", "v[j, d]"}, read(0) * read(1),
                      ReductionOp::add);
  } else {
    builder.statement("out_upd[i, j] : " + pair + fewer, "out[i]", {"x[i, j]", "m[i]"}, term, ReductionOp::add);
  }
  return builder.build();
}

class OnePass {
 public:
  OnePass(Random& random, const Nest& nest, const std::string& rule) : random_(random), schedule_(nest), rule_(rule) {
    for (const Statement& statement : nest.statements) {
      all_.push_back(statement.name);
      const auto has = std::find(statement.dims.begin(), statement.dims.end(), "j") != statement.dims.end();
      if (has) columns_.push_back(statement.name);
      boxes_ = boxes_ || std::find(statement.dims.begin(), statement.dims.end(), "k") != statement.dims.end();
    }
  }

  Schedule make() {
    if (random_.chance(50) || boxes_) step("apply_rule(reassociate)");  // points of boxes change their order
    step(fmt::format("apply_rule({}, m_upd)", rule_));
    const int rows = random_.between(1, 4), tile = random_.between(2, 5);
    for (const std::string& s : columns_) step(fmt::format("split({0}.j, {1}, {0}.jo, {0}.ji)", s, tile));
    if (rows > 1) {
      tile_rows(rows);
    } else if (boxes_) {
      for (const std::string& s : columns_)
        step(fmt::format("reorder({0}.i, {0}.jo, {0}.{1}, {0}.{2})", s, inner()[0], inner()[1]));
    }
    const std::string row = rows > 1 ? "io" : "i";
    for (auto s = all_.rbegin(); s != all_.rend(); ++s) {  // the last first: bodies keep their order
      if (*s != "out_upd") step(fmt::format("fuse_with({0}.{1}, out_upd.{1})", *s, row));
    }
    for (std::size_t k = columns_.size() - 1; k-- > 0;) step(fmt::format("fuse_with({}.jo, out_upd.jo)", columns_[k]));
    const std::string outer = "out_upd." + row;
    if (random_.chance(40)) attempt(fmt::format("{}({})", random_.chance(50) ? "parallel" : "gpu_blocks", outer));
    if (random_.chance(50)) attempt("specialize(out_upd.jo)");
    if (random_.chance(40)) attempt(fmt::format("specialize({})", outer));
    if (random_.chance(20)) attempt("stage(x, out_upd.jo)");
    if (random_.chance(20)) attempt("reverse(out_upd.jo)");
    if (random_.chance(20)) attempt("vectorize(m_upd.ji)");
    if (random_.chance(20)) attempt("split(out_upd.jo, 2, out_upd.j2, out_upd.j1)");
    return schedule_;
  }

 private:
  void step(const std::string& text) { schedule_ = schedule_.apply(parse_step(text)); }
  void attempt(const std::string& text) {
    try {
      step(text);
    } catch (const UserError&) {}
  }

  void tile_rows(int rows) {
    for (const std::string& s : all_) step(fmt::format("split({0}.i, {1}, {0}.io, {0}.ii)", s, rows));
    for (const std::string& s : columns_) {
      step(boxes_ ? fmt::format("reorder({0}.io, {0}.jo, {0}.ii, {0}.{1}, {0}.{2})", s, inner()[0], inner()[1])
                  : fmt::format("reorder({0}.io, {0}.jo, {0}.ii, {0}.ji)", s));
    }
  }

  /// Loops of a tile's points, of all statements in one order.
  const std::vector<std::string>& inner() {
    if (inner_.empty()) inner_ = random_.chance(50) ? std::vector<std::string>{"ji", "k"} : std::vector<std::string>{"k", "ji"};
    return inner_;
  }

  Random& random_;
  Schedule schedule_;
  std::string rule_;
  std::vector<std::string> all_, columns_, inner_;
  bool boxes_ = false;  ///< sums run over k as well
};

struct CompositeTotals {
  int programs = 0, refused = 0, steps_refused = 0;
};

void run_composite(std::uint64_t seed, CompositeTotals& totals) {
  Random random(seed);
  Rows rows = random.pick(all_rows());
  const bool counted = random.chance(40);
  while (counted && rows.count.empty()) rows = random.pick(all_rows());
  const std::vector<std::string> fewer{"", " and j < 3", " and j <= i + 1", " and j >= 1", " and i >= 1"};
  const bool weighted = random.chance(50);
  const bool boxes = counted && random.chance(50), own_depth = boxes && random.chance(50), k_first = boxes && random.chance(50);
  const Nest nest = boxes     ? moments_of_boxes(rows, own_depth, k_first)
                    : counted ? moments(rows)
                              : exponentials(rows, weighted ? "" : random.pick(fewer), weighted);
  std::optional<Schedule> schedule;
  try {
    schedule = OnePass(random, nest, counted ? "moments" : "online").make();
  } catch (const UserError& error) {
    ++totals.steps_refused;
    if (std::getenv("NESTOR_PROPERTY_VERBOSE") != nullptr)
      std::printf("case %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
    return;
  }
  std::string history = fmt::format("case {}\n{}", seed, describe(nest));
  for (const Step& step : schedule->steps()) history += describe(step) + "\n";
  SCOPED_TRACE(history);
  try {
    std::vector<Sizes> sizes;
    for (int k = 0; k < 3; ++k) sizes.push_back({{"n", random.between(1, 9)}, {"w", random.between(1, 9)}});
    if (boxes) {
      for (Sizes& each : sizes) each["v"] = random.between(1, 5);
    }
    testing::expect_defined(*schedule, sizes, 1e-7);
    ++totals.programs;
  } catch (const UserError& error) {
    ++totals.refused;
    if (std::getenv("NESTOR_PROPERTY_VERBOSE") != nullptr)
      std::printf("case %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(CompositeProperty, OnePassOverMaskedRowsMeansWhatTheNestDefines) {
  const std::int64_t cases = from_environment("NESTOR_PROPERTY_CASES", 60);
  const std::int64_t first = from_environment("NESTOR_PROPERTY_SEED", 1);
  CompositeTotals totals;
  for (std::int64_t k = 0; k < cases && !HasFailure(); ++k) run_composite(static_cast<std::uint64_t>(first + k), totals);
  std::printf("%lld cases: %d programs, %d refused, %d with an illegal step\n", static_cast<long long>(cases), totals.programs,
              totals.refused, totals.steps_refused);
  if (cases >= 50) {
    EXPECT_GT(totals.programs, cases / 2);
  }
}

}  // namespace
}  // namespace nestor::composite_property
