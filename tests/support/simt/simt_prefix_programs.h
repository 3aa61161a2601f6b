// Tile programs with sums of all that stands before, or behind, each element.
#pragma once

#include "support/simt/simt_programs.h"

namespace nestor::testing {

struct PrefixForm {
  ElementType type = ElementType::f32;
  std::int64_t rows_tile = 1;  ///< rows of a block
  std::int64_t columns = 0;    ///< 0: unknown
  bool backward = false, exclusive = false;
  ReductionOp combine = ReductionOp::add;
  bool kept = false;       ///< sums stay in the block, and a map of them and of x is stored
  bool adds = false;       ///< to what the result has
  bool down = false;       ///< sums run down columns: places are the first index, rows the last one
  bool infinite = false;   ///< some terms are infinite
  std::int64_t shift = 0;  ///< sums are over k <= s - shift, or k >= s + shift, and start where there is a term
};

/// out[r, s] = sum of f(x[r, k]) over k <= s, or another order.
inline TileProgram prefix_program(const PrefixForm& form) {
  ProgramMaker m("prefix");
  m.size("rows");
  if (form.columns == 0) m.size("cols");
  const IntExpr rows = var("rows"), cols = form.columns == 0 ? var("cols") : IntExpr(form.columns);
  const auto order = [&](IntExpr row, IntExpr place) {
    return form.down ? std::vector<IntExpr>{std::move(place), std::move(row)}
                     : std::vector<IntExpr>{std::move(row), std::move(place)};
  };
  const int x = m.input("x", form.type, order(rows, cols)),
            out = m.output("out", form.kept ? form.type : ElementType::f32, order(rows, cols)),
            sums = form.kept ? m.scratch("sums", order(form.rows_tile, cols)) : out;
  const IntExpr first = IntExpr(form.rows_tile) * var("ro"), s = var("s"), k = var("k");
  const bool one = form.rows_tile == 1;
  const OpDim row = parallel_dim("r", 0, one ? IntExpr(1) : min(IntExpr(form.rows_tile), rows - first), form.rows_tile),
              place = parallel_dim("s", 0, cols);
  const std::vector<OpDim> points = form.down ? std::vector<OpDim>{place, row} : std::vector<OpDim>{row, place};
  const auto at = [&](int buffer, const IntExpr& where) -> TileAccess {
    return {buffer, order(buffer == sums && form.kept ? var("r") : first + var("r"), where)};
  };
  std::vector<TileTree> ops;
  if (form.adds) {
    TileOp start = make_op(OpKind::map, "start", points, at(sums, s), {});
    start.value = ScalarExpr::constant(0.5);
    ops.push_back(leaf(start));
  }
  const IntExpr shift(form.shift), none(0);
  const OpDim ends = parallel_dim("s", form.backward ? none : shift, form.backward ? cols - shift : cols);
  std::vector<OpDim> terms = form.down ? std::vector<OpDim>{ends, row} : std::vector<OpDim>{row, ends};
  terms.push_back(reduced_dim("k", form.backward ? shift : none, form.backward ? cols : cols - shift));
  TileOp op = make_op(OpKind::reduce, "sums", terms, at(sums, s), {at(x, k)});
  op.value = times(m.read(op, 0), ScalarExpr::constant(form.combine == ReductionOp::mul ? 1.1 : 0.5));
  if (form.infinite) {
    const ScalarExpr large = operator_of(ScalarOp::lt, ScalarExpr::constant(0.97), m.read(op, 0));
    op.value =
        ScalarExpr::make(ScalarOp::select, {large, ScalarExpr::constant(std::numeric_limits<double>::infinity()), op.value});
  }
  op.reduction = form.combine;
  op.initialize = !form.adds;
  const IntExpr distance = (form.backward ? k - s : s - k) - shift;
  op.guard = form.exclusive ? IntExpr::make(IntOp::gt, {distance, IntExpr(0)}) : IntExpr::make(IntOp::ge, {distance, IntExpr(0)});
  ops.push_back(leaf(op));
  if (form.kept) {
    TileOp map = make_op(OpKind::map, "out", points, at(out, s), {at(sums, s), at(x, s)});
    map.value = plus(m.read(map, 0), m.read(map, 1));
    if (form.type != ElementType::f32) map.value = ScalarExpr::cast(form.type, map.value);
    ops.push_back(leaf(map));
  }
  const IntExpr blocks =
      one ? rows : IntExpr::make(IntOp::floor_div, {rows + IntExpr(form.rows_tile - 1), IntExpr(form.rows_tile)});
  return m.finish(loop("ro", 0, blocks, sequence(ops), LoopKind::gpu_block));
}

/// h[r, t + 1] = 0.9 h[r, t] + x[r, t] y[t], where h[r, 0] is given: each thread has rows of its own. `scratch`: h is the block's own, and is
/// copied out. `backward`: places of h run against time.
inline TileProgram recurrence_program(bool scratch, bool backward) {
  ProgramMaker m("recurrence");
  m.size("rows").size("steps");
  constexpr std::int64_t kSteps = 21;
  const IntExpr steps = scratch ? IntExpr(kSteps) : var("steps");
  const int x = m.input("x", ElementType::f32, {var("rows"), steps}), y = m.input("y", ElementType::f32, {steps}),
            out = m.output("out", ElementType::f32, {var("rows"), steps + IntExpr(1)}),
            h = scratch ? m.scratch("h", {32, kSteps + 1}) : out;
  const IntExpr first = IntExpr(32) * var("ro"), t = var("t"), next = t + IntExpr(1);
  const OpDim row = parallel_dim("r", 0, min(IntExpr(32), var("rows") - first), 32);
  const auto at = [&](int buffer, const IntExpr& time) -> TileAccess {
    return {buffer, {buffer == h && scratch ? var("r") : first + var("r"), backward ? steps - time : time}};
  };
  TileOp start = make_op(OpKind::map, "start", {row}, at(h, 0), {});
  start.value = ScalarExpr::constant(0.25);
  TileOp op = make_op(OpKind::points, "later", {row, serial_dim("t", 0, steps)}, at(h, next),
                      {{x, {first + var("r"), t}}, at(h, t), {y, {t}}});
  op.value = plus(times(ScalarExpr::constant(0.9), m.read(op, 1)), times(m.read(op, 0), m.read(op, 2)));
  std::vector<TileTree> ops{leaf(start), leaf(op)};
  if (scratch) {
    TileOp copy = make_op(OpKind::copy, "copy", {row, parallel_dim("t", 0, steps + IntExpr(1))}, {out, {first + var("r"), t}},
                          {{h, {var("r"), t}}});
    copy.value = m.read(copy, 0);
    ops.push_back(leaf(copy));
  }
  return m.finish(loop("ro", 0, IntExpr::make(IntOp::floor_div, {var("rows") + IntExpr(31), IntExpr(32)}), sequence(ops),
                       LoopKind::gpu_block));
}

}  // namespace nestor::testing
