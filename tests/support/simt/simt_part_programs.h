// Programs for GPU back ends in which blocks run over many rows each and keep partial column sums meanwhile.
#pragma once

#include "support/simt/simt_programs.h"

namespace nestor::testing {

/// y[r, c] = x[r, c] * (sum of row r), and out[c] = sum over r of x[r, c]. A block takes `rows` rows one after the other, with
/// `slots` of them on chip, and writes partial column sums; a second kernel adds up 32 columns a block.
inline TileProgram column_parts_program(ElementType type, std::int64_t width, std::int64_t rows, int slots,
                                        const GridShape& shape = {}, std::int64_t known_batch = 0) {
  ProgramMaker m("column_parts");
  known_batch > 0 ? m.fixed("batch", known_batch) : m.size("batch");
  m.fixed("width", width);
  const int x = m.input("x", type, {var("batch"), var("width")}), y = m.output("y", type, {var("batch"), var("width")});
  const int out = m.output("out", type, {var("width")});
  const IntExpr parts = floor_div(var("batch") + IntExpr(rows - 1), rows);
  const int part = m.workspace("part", {parts, var("width")});
  m.at(part).pad = 16;
  const int tile = m.scratch("tile", {1, width}, type), total = m.scratch("total", {1}), sums = m.scratch("sums", {32});
  m.at(tile).stages = slots;
  const IntExpr row = IntExpr(rows) * var("b") + var("r");
  const auto c = parallel_dim("c", 0, var("width"), width), k = reduced_dim("c", 0, var("width"), width);
  const TileAccess kept{tile, {0, var("c")}}, own{part, {var("b"), var("c")}};
  TileOp start = make_op(OpKind::map, "start", {c}, own, {});
  start.value = ScalarExpr::constant(0);
  TileOp load = make_op(OpKind::copy, "load", {parallel_dim("l", 0, 1), c}, {tile, {var("l"), var("c")}},
                        {{x, {row + var("l"), var("c")}}});
  load.value = ScalarExpr::read(0, type);
  TileOp sum = make_op(OpKind::reduce, "sum", {k}, {total, {0}}, {kept});
  sum.value = m.read(sum, 0);
  sum.reduction = ReductionOp::add;
  sum.initialize = true;
  TileOp scale = make_op(OpKind::map, "scale", {c}, {y, {row, var("c")}}, {kept, {total, {0}}});
  scale.value = as(type, times(m.read(scale, 0), m.read(scale, 1)));
  TileOp add = make_op(OpKind::reduce, "add", {reduced_dim("p", var("b"), var("b") + IntExpr(1), 1), c}, own, {kept});
  add.value = m.read(add, 0);
  add.reduction = ReductionOp::add;
  const IntExpr count =
      known_batch > 0 && known_batch % rows == 0 ? IntExpr(rows) : min(IntExpr(rows), var("batch") - IntExpr(rows) * var("b"));
  auto blocks = std::make_shared<TileNode>(*loop(
      "b", 0, parts, sequence({leaf(start), loop("r", 0, count, sequence({leaf(load), leaf(sum), leaf(scale), leaf(add)}))}),
      LoopKind::gpu_block));
  blocks->knobs = loop_knobs(shape);
  const auto own_column = parallel_dim("k", 0, min(IntExpr(32), var("width") - IntExpr(32) * var("t")), 32);
  TileOp combine = make_op(OpKind::reduce, "combine", {own_column, reduced_dim("p", 0, parts)}, {sums, {var("k")}},
                           {{part, {var("p"), IntExpr(32) * var("t") + var("k")}}});
  combine.value = m.read(combine, 0);
  combine.reduction = ReductionOp::add;
  combine.initialize = true;
  TileOp store = make_op(OpKind::copy, "store", {own_column}, {out, {IntExpr(32) * var("t") + var("k")}}, {{sums, {var("k")}}});
  store.value = as(type, ScalarExpr::read(0, ElementType::f32));
  return m.finish(sequence({blocks, loop("t", 0, floor_div(var("width") + IntExpr(31), 32),
                                         sequence({leaf(combine), leaf(store)}), LoopKind::gpu_block)}));
}

/// Tiles too short for a block each: their number becomes a dim, on whose values the bounds of the other one depend.
inline TileProgram short_tiles_program(std::int64_t width) {
  ProgramMaker m("short_tiles");
  m.size("n").fixed("width", width);
  const int x = m.input("x", ElementType::f32, {width}), out = m.output("out", ElementType::f32, {width});
  const IntExpr place = IntExpr(12) * var("t") + var("c");
  TileOp op = make_op(OpKind::map, "u", {parallel_dim("c", 0, min(IntExpr(12), IntExpr(width) - IntExpr(12) * var("t")), 12)},
                      {out, {place}}, {{x, {place}}});
  op.value = plus(m.read(op, 0), ScalarExpr::constant(1));
  return m.finish(loop("t", 0, IntExpr((width + 11) / 12), leaf(op), LoopKind::gpu_block));
}

/// Column sums in a loop of one warp, each read across lanes before the next one is made in its place.
inline TileProgram sums_in_a_loop_program() {
  ProgramMaker m("sums_in_a_loop");
  m.size("rows");
  const int x = m.input("x", ElementType::f32, {var("rows"), 32}), out = m.output("out", ElementType::f32, {32});
  const int sums = m.scratch("sums", {16});
  const IntExpr first = IntExpr(16) * var("t"), place = IntExpr(4) * var("p") + var("q");
  TileOp sum = make_op(OpKind::reduce, "sum", {parallel_dim("c", 0, 16, 16), reduced_dim("r", 0, var("rows"))},
                       {sums, {var("c")}}, {{x, {var("r"), first + var("c")}}});
  sum.value = m.read(sum, 0);
  sum.reduction = ReductionOp::add;
  sum.initialize = true;
  TileOp store = make_op(OpKind::points, "store", {parallel_dim("p", 0, 4, 4), parallel_dim("q", 0, 4, 4)},
                         {out, {first + place}}, {{sums, {place}}});
  store.value = m.read(store, 0);
  const TileTree steps = loop("t", 0, 2, sequence({leaf(sum), leaf(store)}));
  return m.finish(loop("b", 0, 1, steps, LoopKind::gpu_block));
}

/// Elementwise ops of one image: sums, differences and guarded products of neighbours, which share their reads; then what is made of the sums.
inline TileProgram joined_maps_program(std::int64_t tile) {
  ProgramMaker m("joined_maps");
  m.size("rows");
  m.size("cols");
  const IntExpr first = IntExpr(tile) * var("t");
  const int x = m.input("x", ElementType::f32, {var("rows"), var("cols") + IntExpr(1)});
  std::vector<TileTree> ops;
  int sums = -1;
  for (const std::string name : {"plus", "minus", "times", "again"}) {
    const int out = m.output(name, ElementType::f32, {var("rows"), var("cols")});
    if (sums < 0) sums = out;
    const IntExpr i = first + var("i_" + name), j = var("j_" + name), end = min(IntExpr(tile), var("rows") - first);
    const std::vector<OpDim> dims{parallel_dim("i_" + name, 0, end, tile), parallel_dim("j_" + name, 0, var("cols"))};
    TileOp op = make_op(OpKind::map, name, dims, {out, {i, j}}, {{x, {i, j}}, {x, {i, j + IntExpr(1)}}});
    if (name == "again") op.reads[1] = {sums, {i, j}};
    const ScalarOp kind = name == "minus" ? ScalarOp::sub : name == "times" ? ScalarOp::mul : ScalarOp::add;
    op.value = ScalarExpr::make(kind, {m.read(op, 0), m.read(op, 1)});
    if (name == "times") {
      op.guard = IntExpr::make(IntOp::ge, {i, j});
      op.fill = 7;
    }
    ops.push_back(leaf(op));
  }
  return m.finish(loop("t", 0, floor_div(var("rows") + IntExpr(tile - 1), tile), sequence(ops), LoopKind::gpu_block));
}

/// Of each row: a[r] = sum over c of x[r, c] w[c], b[r] = the maximum of x[r, c] below the diagonal, d[r] = sum over c of x[r, c] a[r]. The first
/// two can be found in one pass over x; the third needs the first. A block takes `tile` rows.
inline TileProgram joined_sums_program(ElementType type, std::int64_t tile, std::int64_t cols = 0) {
  ProgramMaker m("joined_sums");
  m.size("rows");
  cols > 0 ? m.fixed("cols", cols) : m.size("cols");
  const IntExpr first = IntExpr(tile) * var("t");
  const int x = m.input("x", type, {var("rows"), var("cols")}), w = m.input("w", ElementType::f32, {var("cols")});
  std::vector<TileTree> ops;
  int first_sum = -1;
  for (const std::string name : {"a", "b", "d"}) {
    const int out = m.output(name + "_out", ElementType::f32, {var("rows")}), sums = m.scratch(name + "_sums", {tile});
    if (first_sum < 0) first_sum = sums;
    const IntExpr end = min(IntExpr(tile), var("rows") - first), i = tile > 1 ? var("i_" + name) : IntExpr(0),
                  j = tile > 1 ? var("j_" + name) : IntExpr(0);
    const auto rows = [&](const std::string& dim) {
      return tile > 1 ? std::vector{parallel_dim(dim + "_" + name, 0, end, tile)} : std::vector<OpDim>{};
    };
    std::vector<OpDim> dims = rows("i");
    const OpDim columns = reduced_dim("c_" + name, 0, var("cols"), cols > 0 ? std::optional(cols) : std::nullopt);
    dims.push_back(columns);
    TileOp sum = make_op(OpKind::reduce, name, dims, {sums, {i}}, {{x, {first + i, var("c_" + name)}}});
    if (name == "a") sum.reads.push_back({w, {var("c_a")}});
    if (name == "d") sum.reads.push_back({first_sum, {i}});
    sum.value = name == "b" ? m.read(sum, 0) : times(m.read(sum, 0), m.read(sum, 1));
    sum.reduction = name == "b" ? ReductionOp::max : ReductionOp::add;
    sum.initialize = true;
    if (name == "b") sum.guard = IntExpr::make(IntOp::ge, {first + i, var("c_b")});
    TileOp store = make_op(OpKind::copy, name + "_store", rows("j"), {out, {first + j}}, {{sums, {j}}});
    store.value = m.read(store, 0);
    ops.push_back(leaf(sum));
    ops.push_back(leaf(store));
  }
  return m.finish(loop("t", 0, floor_div(var("rows") + IntExpr(tile - 1), tile), sequence(ops), LoopKind::gpu_block));
}

/// y[b, r, c] = x[b, r, c] * (sum over r and c of x[b, r, c]) + their maximum below the diagonal: all that a plane has meets in one number.
/// A block takes a plane. `rows` and `cols`: of a plane, 0 if that is not known; then its rows are scaled one after the other, else together.
inline TileProgram plane_sums_program(ElementType type, std::int64_t rows, std::int64_t cols, const GridShape& shape = {}) {
  ProgramMaker m("plane_sums");
  m.size("planes");
  const auto extent = [&](const std::string& name, std::int64_t known) {
    known > 0 ? m.fixed(name, known) : m.size(name);
    return known > 0 ? std::optional(known) : std::nullopt;
  };
  const auto row_bound = extent("rows", rows), column_bound = extent("cols", cols);
  const IntExpr b = var("b"), r = var("r"), c = var("c");
  const int x = m.input("x", type, {var("planes"), var("rows"), var("cols")});
  const int y = m.output("y", type, {var("planes"), var("rows"), var("cols")});
  const int total = m.scratch("total", {1}), peak = m.scratch("peak", {1});
  const OpDim over_rows = reduced_dim("r", 0, var("rows"), row_bound),
              over_columns = reduced_dim("c", 0, var("cols"), column_bound);
  TileOp sum = make_op(OpKind::reduce, "sum", {over_rows, over_columns}, {total, {0}}, {{x, {b, r, c}}});
  sum.value = m.read(sum, 0);
  sum.reduction = ReductionOp::add;
  sum.initialize = true;
  TileOp highest = make_op(OpKind::reduce, "highest", {over_rows, over_columns}, {peak, {0}}, {{x, {b, r, c}}});
  highest.value = m.read(highest, 0);
  highest.reduction = ReductionOp::max;
  highest.initialize = true;
  highest.guard = IntExpr::make(IntOp::ge, {r, c});
  const OpDim along = parallel_dim("c", 0, var("cols"), column_bound);
  std::vector<OpDim> scaled{along};
  if (row_bound) scaled.insert(scaled.begin(), parallel_dim("r", 0, var("rows"), row_bound));
  TileOp scale = make_op(OpKind::map, "scale", scaled, {y, {b, r, c}}, {{x, {b, r, c}}, {total, {0}}, {peak, {0}}});
  scale.value = as(type, plus(times(m.read(scale, 0), m.read(scale, 1)), m.read(scale, 2)));
  auto blocks = std::make_shared<TileNode>(
      *loop("b", 0, var("planes"),
            sequence({leaf(sum), leaf(highest), row_bound ? leaf(scale) : loop("r", 0, var("rows"), leaf(scale))}),
            LoopKind::gpu_block));
  blocks->knobs = loop_knobs(shape);
  return m.finish(blocks);
}

}  // namespace nestor::testing
