// What runs is what the nest defines: every part of specialised loops, rows of composites with points of their own, elements that several
// iterations update, loops over lanes around several statements, strides that make bounds hard.
#include "codegen/gpu/backend.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"
#include "support/simt/simt_image.h"
#include "support/tile_definition.h"

#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using samples::NestBuilder;
using samples::number;
using samples::read;
using samples::operator+;
using samples::operator-;
using samples::operator*;
using samples::operator/;

std::vector<Sizes> pairs(const std::string& first, const std::vector<std::int64_t>& a, const std::string& second,
                         const std::vector<std::int64_t>& b) {
  std::vector<Sizes> all;
  for (const std::int64_t x : a) {
    for (const std::int64_t y : b) all.push_back({{first, x}, {second, y}});
  }
  return all;
}

Nest doubled() {
  return NestBuilder("doubled", {{"rows", 20}, {"w", 30}})
      .tensor("x", TensorRole::input, {"rows", "w"})
      .tensor("out", TensorRole::output, {"rows", "w"})
      .statement("s[i, j] : 0 <= i < rows and 0 <= j < w", "out[i, j]", {"x[i, j]"}, read(0) * number(2))
      .build();
}

Nest prefix_sums() {
  return NestBuilder("prefix_sums", {{"rows", 9}, {"w", 11}})
      .tensor("x", TensorRole::input, {"rows", "w"})
      .tensor("out", TensorRole::output, {"rows", "w"})
      .statement("z[i, j] : 0 <= i < rows and 0 <= j < w", "out[i, j]", {}, number(0))
      .statement("u[i, j, k] : 0 <= i < rows and 0 <= j < w and 0 <= k <= j", "out[i, j]", {"x[i, k]"}, read(0), ReductionOp::add)
      .build();
}

// ---- specialised loops

TEST(TileCoverage, loops_around_a_specialised_one_reach_all_of_its_parts) {
  const std::vector<Sizes> sizes = pairs("rows", {1, 3, 4, 9}, "w", {1, 5, 8, 11});
  for (const std::string kind : {"serial", "parallel", "gpu_blocks"}) {
    const std::vector<std::string> steps{"split(s.j, 4, jo, ji)", "split(s.i, 3, io, ii)", "reorder(jo, io, ii, ji)",
                                         kind + "(jo)",           kind + "(io)",           "specialize(io)"};
    expect_defined(apply_steps(Schedule(doubled()), steps), sizes);
  }
}

TEST(TileCoverage, parts_of_two_loops_and_of_several_statements) {
  const std::vector<Sizes> sizes = pairs("rows", {1, 2, 7}, "w", {1, 4, 9, 11});
  std::vector<std::string> steps{"split(z.j, 4, zjo, zji)", "split(z.i, 2, zio, zii)", "reorder(zjo, zio, zii, zji)",
                                 "split(u.j, 4, jo, ji)",   "split(u.i, 2, io, ii)",   "reorder(jo, io, ii, ji, u.k)",
                                 "fuse_with(zjo, jo)",      "fuse_with(zio, io)",      "specialize(io)",
                                 "specialize(jo)"};
  expect_defined(apply_steps(Schedule(prefix_sums()), steps), sizes);
  steps.insert(steps.end(), {"stage(x, io)"});
  expect_defined(apply_steps(Schedule(fix_sizes(prefix_sums(), {{"w", 11}})), steps), pairs("rows", {1, 2, 7}, "w", {11}));
}

TEST(TileCoverage, reversed_and_skewed_loops) {
  const std::vector<Sizes> sizes = pairs("rows", {1, 5, 8}, "w", {1, 4, 10});
  for (const std::string change : {"reverse(io)", "reverse(jo)", "skew(jo, io, 1)", "skew(jo, io, -2)", "shift(s, io, 3)"}) {
    const std::vector<std::string> steps{"split(s.j, 4, jo, ji)", "split(s.i, 3, io, ii)", "reorder(jo, io, ii, ji)", change,
                                         "specialize(io)",        "specialize(jo)"};
    expect_defined(apply_steps(Schedule(doubled()), steps), sizes);
  }
}

TEST(TileCoverage, gpu_kernels_reach_all_parts) {
  const std::vector<std::string> steps{"split(s.j, 8, jo, ji)", "split(s.i, 4, io, ii)", "reorder(jo, io, ii, ji)",
                                       "gpu_blocks(jo)",        "gpu_blocks(io)",        "specialize(io)"};
  const TileProgram program = build_tile_program(apply_steps(Schedule(doubled()), steps));
  const CompiledNvptx compiled = compile_nvptx(program, {});
  for (const Sizes& sizes : pairs("rows", {1, 6, 9}, "w", {3, 8, 21}))
    EXPECT_EQ(run_emulated(compiled, program, sizes, {}, {1}), "");
}

// ---- elements that several iterations update

Nest overlapping(const std::string& index, const std::string& extent, const std::string& reads = "x[i]") {
  return NestBuilder("overlapping", {{"n", 20}, {"m", 5}})
      .tensor("x", TensorRole::input, {"n"})
      .tensor("out", TensorRole::output, {extent})
      .statement("z[b] : 0 <= b < " + extent, "out[b]", {}, number(0))
      .statement("u[i, j] : 0 <= i < n and 0 <= j < m", "out[" + index + "]", {reads}, read(0), ReductionOp::add)
      .build();
}

const std::vector<std::pair<std::string, std::string>>& overlaps() {
  static const std::vector<std::pair<std::string, std::string>> all{
      {"i + j", "n + m"}, {"floor(i / 3)", "n"},           {"2i + j", "2n + m"},
      {"i mod 3", "3"},   {"floor((i + j) / 2)", "n + m"}, {"n - 1 - i + j", "n + m"}};
  return all;
}

int count_kind(const TileTree& node, OpKind kind) {
  int count = node->kind == TileNode::Kind::op && node->op.kind == kind ? 1 : 0;
  for (const TileTree& child : node->children) count += count_kind(child, kind);
  return count;
}

TEST(TileOverlaps, kept_dims_that_share_elements_are_not_parallel) {
  const std::vector<Sizes> sizes = pairs("n", {1, 7, 10}, "m", {1, 4});
  for (const auto& [index, extent] : overlaps()) {
    const Schedule plain{overlapping(index, extent)};
    EXPECT_EQ(count_kind(build_tile_program(plain).root, OpKind::reduce), 0) << describe(build_tile_program(plain));
    expect_defined(plain, sizes);
    expect_defined(
        apply_steps(plain, {"apply_rule(reassociate)", "split(u.i, 3, io, ii)", "reorder(io, u.j, ii)", "specialize(io)"}),
        sizes);
  }
}

TEST(TileOverlaps, gpu_kernels_add_one_after_the_other) {
  for (const auto& [index, extent] : overlaps()) {
    const TileProgram program = build_tile_program(Schedule(overlapping(index, extent)));
    EXPECT_EQ(run_emulated(compile_nvptx(program, {}), program, {{"n", 70}, {"m", 5}}, {}, {1, 2}), "") << describe(program);
  }
}

TEST(TileOverlaps, a_reduction_that_reads_its_own_result_keeps_its_order) {
  const Nest nest =
      NestBuilder("running", {{"n", 6}, {"m", 5}})
          .tensor("x", TensorRole::input, {"n", "m"})
          .tensor("out", TensorRole::output, {"n"})
          .statement("z[i] : 0 <= i < n", "out[i]", {}, number(1))
          .statement("u[i, k] : 0 <= i < n and 0 <= k < m", "out[i]", {"out[i]", "x[i, k]"}, read(0) * read(1), ReductionOp::add)
          .build();
  expect_defined(Schedule(nest), pairs("n", {1, 6}, "m", {1, 5}));
}

// ---- composites whose rows differ

Nest spread_of(const std::string& points, const std::string& count) {
  const ScalarExpr n = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  const std::string pair = "0 <= i < n and " + points;
  return NestBuilder("spread", {{"n", 12}, {"w", 5}})
      .tensor("x", TensorRole::input, {"n", "2n + w"})
      .tensor("mean", TensorRole::temporary, {"n"})
      .tensor("out", TensorRole::output, {"n"})
      .statement("mean_init[i] : 0 <= i < n", "mean[i]", {}, number(0))
      .statement("mean_upd[i, j] : " + pair, "mean[i]", {"x[i, j]"}, read(0) / n, ReductionOp::add, {count})
      .statement("out_init[i] : 0 <= i < n", "out[i]", {}, number(0))
      .statement("out_upd[i, j] : " + pair, "out[i]", {"x[i, j]", "mean[i]"},
                 ScalarExpr::make(ScalarOp::pow, {read(0) - read(1), number(2)}), ReductionOp::add)
      .build();
}

/// Rows one by one, or `rows` of them in a tile.
std::vector<std::string> one_pass(int rows) {
  std::vector<std::string> steps{"apply_rule(moments, mean_upd)", "split(mean_upd.j, 4, mo, mi)", "split(out_upd.j, 4, oo, oi)"};
  std::string loop = "i";
  if (rows > 1) {
    for (const std::string s : {"mean_init", "mean_upd", "out_init", "out_upd"})
      steps.push_back(fmt::format("split({0}.i, {1}, {0}.io, {0}.ii)", s, rows));
    steps.insert(steps.end(), {"reorder(mean_upd.io, mo, mean_upd.ii, mi)", "reorder(out_upd.io, oo, out_upd.ii, oi)"});
    loop = "io";
  }
  for (const std::string s : {"out_init", "mean_upd", "mean_init"})
    steps.push_back(fmt::format("fuse_with({0}.{1}, out_upd.{1})", s, loop));
  steps.push_back("fuse_with(mo, oo)");
  return steps;
}

TEST(TileComposites, counts_are_those_of_each_row) {
  const std::vector<std::pair<std::string, std::string>> rows{{"0 <= j <= i", "i + 1"},
                                                              {"i <= j < i + w", "w"},
                                                              {"0 <= j < n - i", "n - i"},
                                                              {"i <= j <= 2i", "i + 1"},
                                                              {"3 <= j < n", "n - 3"}};
  for (const auto& [points, count] : rows) {
    for (const int tile : {1, 3}) {
      SCOPED_TRACE(points + fmt::format(" in tiles of {}", tile));
      const Schedule schedule = apply_steps(Schedule(spread_of(points, count)), one_pass(tile));
      ASSERT_FALSE(schedule.active_composites().empty());
      expect_defined(schedule, pairs("n", {1, 5, 13}, "w", {1, 6}), 1e-9);
    }
  }
}

TEST(TileComposites, rows_in_tiles_and_specialised_columns) {
  std::vector<std::string> steps = one_pass(3);
  steps.insert(steps.end(), {"specialize(oo)", "specialize(out_upd.io)"});
  expect_defined(apply_steps(Schedule(spread_of("0 <= j <= i", "i + 1")), steps), pairs("n", {1, 4, 11}, "w", {1}), 1e-9);
}

TEST(TileComposites, gpu_kernels_count_each_row) {
  std::vector<std::string> steps = one_pass(1);
  steps.push_back("gpu_blocks(out_upd.i)");
  for (const std::string points : {"0 <= j <= i", "i <= j < i + w"}) {
    const Nest nest = spread_of(points, points[0] == '0' ? "i + 1" : "w");
    const TileProgram program = build_tile_program(apply_steps(Schedule(nest), steps));
    EXPECT_EQ(run_emulated(compile_nvptx(program, {}), program, {{"n", 19}, {"w", 6}}, {}, {1}), "") << describe(program);
  }
}

/// Sums of exponentials whose points are fewer than those of the maximum: corrections happen where no sum is made.
TEST(TileComposites, corrections_reach_sums_that_have_no_points_in_a_tile) {
  const auto nest = [](const std::string& sums) {
    return NestBuilder("partial", {{"n", 6}, {"w", 9}})
        .tensor("x", TensorRole::input, {"n", "w"})
        .tensor("m", TensorRole::temporary, {"n"})
        .tensor("out", TensorRole::output, {"n"})
        .statement("m_init[i] : 0 <= i < n", "m[i]", {}, number(-1e30))
        .statement("m_upd[i, j] : 0 <= i < n and 0 <= j < w", "m[i]", {"x[i, j]"}, read(0), ReductionOp::max)
        .statement("out_init[i] : 0 <= i < n", "out[i]", {}, number(0))
        .statement("out_upd[i, j] : 0 <= i < n and 0 <= j < w and " + sums, "out[i]", {"x[i, j]", "m[i]"},
                   samples::apply(ScalarOp::exp, read(0) - read(1)), ReductionOp::add)
        .build();
  };
  for (const std::string sums : {"j < 3", "j <= i", "j >= 2"}) {
    SCOPED_TRACE(sums);
    for (const bool tiles : {false, true}) {
      std::vector<std::string> steps{"apply_rule(online, m_upd)", "split(m_upd.j, 2, mo, mi)", "split(out_upd.j, 2, oo, oi)"};
      if (tiles) {
        for (const std::string s : {"m_init", "m_upd", "out_init", "out_upd"})
          steps.push_back(fmt::format("split({0}.i, 4, {0}.io, {0}.ii)", s));
        steps.insert(steps.end(), {"reorder(m_upd.io, mo, m_upd.ii, mi)", "reorder(out_upd.io, oo, out_upd.ii, oi)"});
      }
      const std::string loop = tiles ? "io" : "i";
      for (const std::string s : {"out_init", "m_upd", "m_init"})
        steps.push_back(fmt::format("fuse_with({0}.{1}, out_upd.{1})", s, loop));
      steps.insert(steps.end(), {"fuse_with(mo, oo)", "specialize(oo)"});
      const Schedule schedule = apply_steps(Schedule(nest(sums)), steps);
      ASSERT_FALSE(schedule.active_composites().empty());
      expect_defined(schedule, pairs("n", {1, 5, 9}, "w", {1, 2, 7}), 1e-9);
    }
  }
}

// ---- loops over lanes, strides

TEST(TileLanes, a_loop_over_lanes_around_a_serial_one_and_a_statement_is_one_loop) {
  const Nest nest = NestBuilder("largest_two", {{"n", 5}, {"w", 7}})
                        .tensor("x", TensorRole::input, {"n", "w"})
                        .tensor("a", TensorRole::output, {"n"})
                        .tensor("b", TensorRole::output, {"n"})
                        .statement("a_init[i] : 0 <= i < n", "a[i]", {}, number(-100))
                        .statement("b_init[i] : 0 <= i < n", "b[i]", {}, number(-100))
                        .statement("b_upd[i, j] : 0 <= i < n and 0 <= j < w", "b[i]", {"x[i, j]", "a[i]"},
                                   ScalarExpr::make(ScalarOp::min, {read(0), read(1)}), ReductionOp::max)
                        .statement("a_upd[i, j] : 0 <= i < n and 0 <= j < w", "a[i]", {"x[i, j]"}, read(0), ReductionOp::max)
                        .join_last()
                        .build();
  for (const std::string kind : {"vectorize", "gpu_lanes", "unroll", "parallel"}) {
    const std::vector<std::string> steps{"compute_at(b_init, b_upd.i)", kind + "(b_upd.i)"};
    expect_defined(apply_steps(Schedule(nest), steps), pairs("n", {1, 6}, "w", {1, 5}));
  }
  expect_defined(apply_steps(Schedule(nest),
                             {"compute_at(b_init, b_upd.i)", "split(b_upd.i, 2, io, ii)", "vectorize(ii)", "specialize(io)"}),
                 pairs("n", {1, 5}, "w", {3}));
}

TEST(TileBounds, strides_under_many_splits_stay_cheap) {
  const Nest nest = NestBuilder("strided", {{"n", 97}})
                        .tensor("x", TensorRole::input, {"n"})
                        .tensor("out", TensorRole::output, {"n"})
                        .statement("c[i] : 0 <= i < n", "out[i]", {"x[i]"}, read(0))
                        .statement("u[i] : 0 <= i < n and exists(k : i = 3k + 1)", "out[i]", {"out[floor(i / 3)]", "x[i]"},
                                   read(0) * number(2) + read(1))
                        .build();
  const Schedule schedule = apply_steps(Schedule(nest), {"split(u.i, 17, o6, n6)", "split(o6, 17, o12, n12)", "shift(u, n6, -1)",
                                                         "shift(u, n12, 3)", "split(o12, 9, o19, n19)"});
  expect_defined(schedule, {{{"n", 1}}, {{"n", 2}}, {{"n", 97}}, {{"n", 300}}});
  EXPECT_LT(describe(build_tile_program(schedule)).size(), 2000U);
}

}  // namespace
}  // namespace nestor::testing
