// Tile programs whose sums are windows that slide over rows: neighbouring results read much in common.
#pragma once

#include "support/simt/simt_programs.h"

namespace nestor::testing {

struct WindowForm {
  ElementType type = ElementType::f32;
  std::int64_t rows_tile = 2, columns_tile = 4;  ///< places of a block, down and across
  std::int64_t taps = 3, stride = 1, dilation = 1;
  std::int64_t maps = 0;    ///< channels, which lie last; 0: unknown
  std::int64_t across = 0;  ///< places across; 0: unknown
  bool largest = false;     ///< the largest element of a window, in place of a filter's sum
  bool norm = false;        ///< then the mean of all channels is taken off
  bool channels_first = false;
  bool adds = false;    ///< to what the result has
  bool padded = false;  ///< the input is as large as the result, and terms beyond its border do not count
};

/// out[y, z, m] = sum over s, u of x[stride y + dilation s, stride z + dilation u, m] * w[s, u, m].
inline TileProgram window_program(const WindowForm& form) {
  ProgramMaker m("windows");
  m.size("high");
  if (form.across == 0) m.size("across");
  if (form.maps == 0) m.size("maps");
  const IntExpr high = var("high"), across = form.across == 0 ? var("across") : IntExpr(form.across),
                maps = form.maps == 0 ? var("maps") : IntExpr(form.maps);
  const auto reads = [&](const IntExpr& places) {
    if (form.padded) return places;
    return IntExpr(form.stride) * (places - IntExpr(1)) + IntExpr(form.dilation * (form.taps - 1) + 1);
  };
  const auto order = [&](IntExpr y, IntExpr z, IntExpr c) {
    return form.channels_first ? std::vector<IntExpr>{std::move(c), std::move(y), std::move(z)}
                               : std::vector<IntExpr>{std::move(y), std::move(z), std::move(c)};
  };
  const int x = m.input("x", form.type, order(reads(high), reads(across), maps)),
            w = m.input("w", form.type, order(form.taps, form.taps, maps)),
            out = m.output("out", form.type, order(high, across, maps)),
            sums = form.norm ? m.scratch("sums", {form.rows_tile, form.columns_tile, maps})
                             : m.workspace("sums", order(high, across, maps));
  const IntExpr y0 = IntExpr(form.rows_tile) * var("yo"), z0 = IntExpr(form.columns_tile) * var("zo");
  const OpDim y = parallel_dim("y", 0, min(IntExpr(form.rows_tile), high - y0), form.rows_tile),
              z = form.across != 0 && form.across % form.columns_tile == 0
                      ? parallel_dim("z", 0, form.columns_tile)
                      : parallel_dim("z", 0, min(IntExpr(form.columns_tile), across - z0), form.columns_tile),
              c = parallel_dim("c", 0, maps);
  const std::vector<OpDim> points = form.channels_first ? std::vector<OpDim>{c, y, z} : std::vector<OpDim>{y, z, c};
  const auto place = [&](bool inside) {
    return inside ? std::vector<IntExpr>{var("y"), var("z"), var("c")} : order(y0 + var("y"), z0 + var("z"), var("c"));
  };
  const IntExpr border(form.padded ? form.taps / 2 : 0);
  const auto moved = [&](const IntExpr& at, const char* tap) {
    return IntExpr(form.stride) * at + IntExpr(form.dilation) * var(tap) - border;
  };
  std::vector<OpDim> terms = points;
  terms.push_back(reduced_dim("s", 0, form.taps));
  terms.push_back(reduced_dim("u", 0, form.taps));
  std::vector<TileTree> ops;
  if (form.adds) {
    TileOp start = make_op(OpKind::map, "start", points, {sums, place(form.norm)}, {});
    start.value = ScalarExpr::constant(0.5);
    ops.push_back(leaf(start));
  }
  TileOp op = make_op(
      form.largest ? OpKind::reduce : OpKind::contract, "found", terms, {sums, place(form.norm)},
      {{x, order(moved(y0 + var("y"), "s"), moved(z0 + var("z"), "u"), var("c"))}, {w, order(var("s"), var("u"), var("c"))}});
  op.value = form.largest ? minus(m.read(op, 0), m.read(op, 1)) : times(m.read(op, 0), m.read(op, 1));
  op.reduction = form.largest ? ReductionOp::max : ReductionOp::add;
  op.initialize = !form.adds;
  if (form.padded) {
    const auto within = [](const IntExpr& at, const IntExpr& length) {
      return IntExpr::make(IntOp::ge, {at, IntExpr(0)}) && IntExpr::make(IntOp::gt, {length, at});
    };
    op.guard = within(moved(y0 + var("y"), "s"), high) && within(moved(z0 + var("z"), "u"), across);
  }
  ops.push_back(leaf(op));
  std::vector<TileAccess> last{{sums, place(form.norm)}};
  if (form.norm) {
    const int mean = m.scratch("mean", {form.rows_tile, form.columns_tile});
    const OpDim all = reduced_dim("c", 0, maps);
    TileOp total = make_op(OpKind::reduce, "total", {y, z, all}, {mean, {var("y"), var("z")}}, {{sums, place(true)}});
    total.value = over(m.read(total, 0), ScalarExpr::constant(static_cast<double>(form.maps)));
    total.reduction = ReductionOp::add;
    total.initialize = true;
    ops.push_back(leaf(total));
    last.push_back({mean, {var("y"), var("z")}});
  }
  TileOp store = make_op(OpKind::map, "store", points, {out, place(false)}, last);
  store.value = as(form.type, form.norm ? minus(m.read(store, 0), m.read(store, 1)) : m.read(store, 0));
  ops.push_back(leaf(store));
  const auto blocks = [](const IntExpr& places, std::int64_t tile) { return floor_div(places + IntExpr(tile - 1), tile); };
  return m.finish(loop("yo", 0, blocks(high, form.rows_tile),
                       loop("zo", 0, blocks(across, form.columns_tile), sequence(std::move(ops)), LoopKind::gpu_block),
                       LoopKind::gpu_block));
}

}  // namespace nestor::testing
