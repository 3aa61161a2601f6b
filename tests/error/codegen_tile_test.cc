// Schedules whose tile program cannot be what they mean are refused with the reason.
#include "codegen/tile/tile_program.h"
#include "support/error.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/sample_nests.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const Nest& nest, const std::vector<std::string>& steps) {
  Schedule schedule(nest);
  for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
  EXPECT_FALSE(schedule.active_composites().empty());
  try {
    build_tile_program(schedule);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// Mean and sum of squares of the rows of a triangle, with their loops over tiles of four columns joined.
std::string moments_error(const std::vector<std::string>& changes, const std::string& loops) {
  using samples::read;
  using samples::operator-;
  using samples::operator/;
  const ScalarExpr count = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  const std::string pair = "0 <= i < n and 0 <= j <= i";
  const Nest nest =
      samples::NestBuilder("spread", {{"n", 12}})
          .tensor("x", TensorRole::input, {"n", "n"})
          .tensor("mean", TensorRole::temporary, {"n"})
          .tensor("out", TensorRole::output, {"n"})
          .statement("mean_init[i] : 0 <= i < n", "mean[i]", {}, samples::number(0))
          .statement("mean_upd[i, j] : " + pair, "mean[i]", {"x[i, j]"}, read(0) / count, ReductionOp::add, {"i + 1"})
          .statement("out_init[i] : 0 <= i < n", "out[i]", {}, samples::number(0))
          .statement("out_upd[i, j] : " + pair, "out[i]", {"x[i, j]", "mean[i]"},
                     ScalarExpr::make(ScalarOp::pow, {read(0) - read(1), samples::number(2)}), ReductionOp::add)
          .build();
  std::vector<std::string> steps{"apply_rule(reassociate)", "apply_rule(moments, mean_upd)", "split(mean_upd.j, 4, mo, mi)",
                                 "split(out_upd.j, 4, oo, oi)"};
  steps.insert(steps.end(), changes.begin(), changes.end());
  for (const char* s : {"out_init", "mean_upd", "mean_init"}) steps.push_back(fmt::format("fuse_with({}.i, out_upd.i)", s));
  steps.push_back("fuse_with(" + loops + ")");
  return error_of(nest, steps);
}

TEST(TileError, points_that_a_tile_takes_with_gaps_cannot_be_counted) {
  EXPECT_THAT(moments_error({"reorder(mi, mo)", "reorder(oi, oo)"}, "mi, oi"),
              AllOf(HasSubstr("count the points of mean"), HasSubstr("a tile does not take"),
                    HasSubstr("apply_rule(moments, mean_upd)")));
}

TEST(TileError, tiles_of_a_row_that_run_backwards_cannot_be_counted) {
  EXPECT_THAT(moments_error({"reverse(mo)", "reverse(oo)"}, "mo, oo"),
              AllOf(HasSubstr("count the points of mean"), HasSubstr("do not run from its first point to its last")));
}

/// Statistics of channels over images and places, with their loops over tiles of both dims joined.
std::string box_error(const std::string& order, const std::string& loops) {
  std::vector<std::string> steps{"apply_rule(reassociate)", "apply_rule(moments, total_update)"};
  for (const std::string s : {"total_update", "squares_update"}) {
    steps.push_back(fmt::format("split({0}.n, 2, {0}.no, {0}.ni)", s));
    steps.push_back(fmt::format("split({0}.s, 2, {0}.so, {0}.si)", s));
    steps.push_back(fmt::format("reorder({})", fmt::format(fmt::runtime(order), fmt::arg("s", s))));
  }
  for (const char* s : {"total_update", "squares_init", "squares_update"})
    steps.push_back(fmt::format("fuse_with({}.c, total_init.c)", s));
  for (std::size_t at = 0; at < loops.size(); at += 3) {
    const std::string loop = loops.substr(at, 2);
    steps.push_back(fmt::format("fuse_with(total_update.{0}, squares_update.{0})", loop));
  }
  return error_of(samples::channel_norm(), steps);
}

TEST(TileError, tiles_that_cut_two_reduced_dims_are_not_counted) {
  EXPECT_THAT(box_error("{s}.c, {s}.no, {s}.so, {s}.ni, {s}.si", "no so"),
              HasSubstr("its tiles cut several of the dims that its reduction runs over"));
}

TEST(TileError, tiles_that_cut_one_of_two_reduced_dims_are_counted) {
  EXPECT_EQ(box_error("{s}.c, {s}.no, {s}.so, {s}.ni, {s}.si", "no"), "");
  EXPECT_EQ(box_error("{s}.c, {s}.so, {s}.no, {s}.ni, {s}.si", "so"), "");
}

TEST(TileError, tiles_in_order_are_counted) { EXPECT_EQ(moments_error({}, "mo, oo"), ""); }

}  // namespace
}  // namespace nestor
