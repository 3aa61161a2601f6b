// Sums over pairs of bodies: what belongs to a row, what belongs to a column, and what both make.
#pragma once

#include "support/simt/simt_programs.h"

namespace nestor::testing {

/// What keeps a body from itself: nothing, a guard of the sums, a condition in their terms.
enum class Self : std::uint8_t { counts, is_guarded, is_selected };

/// out_x[i] = sum over j of mass[j] * rsqrt(d) * dx, and out_y likewise, with d of the places of i and j, rows of `width` of which two count;
/// by tiles of bodies, the sums of a tile in scratch. `least`: 1 / d, and the least of all terms in place of their sum.
inline TileProgram pair_forces_program(std::int64_t tile, Self self, bool least = false, std::int64_t width = 3) {
  ProgramMaker m("pair_forces");
  m.size("n");
  if (self == Self::counts) m.size("of");
  const IntExpr n = var("n"), columns = self == Self::counts ? var("of") : n;
  const int place = m.input("place", ElementType::f32, {n, width}),
            source = self == Self::counts ? m.input("source", ElementType::f32, {columns, width}) : place,
            mass = m.input("mass", ElementType::f16, {columns});
  const IntExpr first = IntExpr(tile) * var("io"), i = first + var("i"), j = var("j");
  const auto row = [&] { return parallel_dim("i", 0, min(IntExpr(tile), n - first), tile); };
  std::vector<TileTree> body;
  std::vector<TileTree> stores;
  for (const std::int64_t axis : {0, 1}) {
    const std::string name = axis == 0 ? "x" : "y";
    const int sums = m.scratch("sum_" + name, {tile}), out = m.output("out_" + name, ElementType::f32, {n});
    TileOp op = make_op(OpKind::reduce, "add_" + name, {row(), reduced_dim("j", 0, columns)}, {sums, {var("i")}},
                        {{place, {i, 0}}, {place, {i, 1}}, {source, {j, 0}}, {source, {j, 1}}, {mass, {j}}});
    const ScalarExpr gaps[] = {minus(m.read(op, 2), m.read(op, 0)), minus(m.read(op, 3), m.read(op, 1))};
    const ScalarExpr square = plus(plus(times(gaps[0], gaps[0]), times(gaps[1], gaps[1])), ScalarExpr::constant(0.25));
    const ScalarExpr near = least ? over(ScalarExpr::constant(1), square) : ScalarExpr::make(ScalarOp::rsqrt, {square});
    op.value = times(times(m.read(op, 4), near), gaps[axis]);
    if (self == Self::is_guarded) {
      const auto above = [](const IntExpr& a, const IntExpr& b) {
        return IntExpr::make(IntOp::ge, {a - b - IntExpr(1), IntExpr(0)});
      };
      op.guard = IntExpr::make(IntOp::logical_or, {above(i, j), above(j, i)});
    }
    if (self == Self::is_selected) {
      op.indices = {i, j};
      const auto index = [](int k) { return ScalarExpr::index(k); };
      op.value = ScalarExpr::make(ScalarOp::select,
                                  {ScalarExpr::make(ScalarOp::eq, {index(0), index(1)}), ScalarExpr::constant(0), op.value});
    }
    op.reduction = least ? ReductionOp::min : ReductionOp::add;
    op.initialize = true;
    body.push_back(leaf(op));
    TileOp store = make_op(OpKind::copy, "store_" + name, {row()}, {out, {i}}, {{sums, {var("i")}}});
    store.value = m.read(store, 0);
    stores.push_back(leaf(store));
  }
  body.insert(body.end(), stores.begin(), stores.end());
  return m.finish(loop("io", 0, floor_div(n + IntExpr(tile - 1), tile), sequence(body), LoopKind::gpu_block));
}

/// out[b] = how many keys x[i, j] lie in bin b, a 64th of what x may be; by tiles of bins. `weighed`: the sum of those keys with i < j.
inline TileProgram key_counts_program(std::int64_t tile, bool weighed) {
  ProgramMaker m("key_counts");
  m.size("bins");
  m.size("n");
  const IntExpr n = var("n"), first = IntExpr(tile) * var("bo"), b = first + var("b"), i = var("i"), j = var("j");
  const int keys = m.input("x", ElementType::f32, {n, n}),
            out = m.output("out", weighed ? ElementType::f32 : ElementType::i32, {var("bins")});
  TileOp op = make_op(
      OpKind::reduce, "count",
      {parallel_dim("b", 0, min(IntExpr(tile), var("bins") - first), tile), reduced_dim("i", 0, n), reduced_dim("j", 0, n)},
      {out, {b}}, {{keys, {i, j}}});
  op.indices = {b};
  const ScalarExpr key = ScalarExpr::cast(ElementType::i32, times(ScalarExpr::constant(64), m.read(op, 0)));
  const auto number = [](double value) { return ScalarExpr::constant(value, ElementType::i32); };
  op.value =
      ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::eq, {key, ScalarExpr::index(0)}),
                                          weighed ? m.read(op, 0) : number(1), weighed ? ScalarExpr::constant(0) : number(0)});
  if (weighed) op.guard = IntExpr::make(IntOp::ge, {j - i - IntExpr(1), IntExpr(0)});
  op.reduction = ReductionOp::add;
  op.initialize = true;
  return m.finish(loop("bo", 0, floor_div(var("bins") + IntExpr(tile - 1), tile), leaf(op), LoopKind::gpu_block));
}

/// What a look-up in a table is like.
struct LookupForm {
  std::int64_t words = 20;  ///< entries of a row; 0: not known when compiling
  bool falls = false;       ///< entries are counted from the other end
  bool twice = false;       ///< a second sum, of some terms alone, stands inside
  bool follows = false;     ///< terms do not agree which of them counts
  double other = 0;         ///< what the terms are that the key does not name
  ReductionOp combine = ReductionOp::add;
};

/// out[i, j] = sum over c, d of (key[j] = c - 2 ? t[i, c] y[d] : 0), with whole numbers of x for keys, many of them no entry's; by tiles of rows.
inline TileProgram lookup_program(const LookupForm& form) {
  constexpr std::int64_t kTile = 4;
  ProgramMaker m("lookup");
  m.size("rows").size("keys");
  if (form.words == 0) m.size("words");
  const IntExpr words = form.words == 0 ? var("words") : IntExpr(form.words), first = IntExpr(kTile) * var("io"),
                i = first + var("i"), c = var("c");
  const int table = m.input("t", ElementType::f32, {var("rows"), words}), x = m.input("x", ElementType::f32, {var("keys")}),
            y = m.input("y", ElementType::f32, {3}), out = m.output("out", ElementType::f32, {var("rows"), var("keys")});
  TileOp op = make_op(OpKind::reduce, "found",
                      {parallel_dim("i", 0, min(IntExpr(kTile), var("rows") - first), kTile), parallel_dim("j", 0, var("keys")),
                       reduced_dim("c", 0, words), reduced_dim("d", 0, form.twice ? 3 : 1)},
                      {out, {i, var("j")}}, {{table, {i, c}}, {x, {var("j")}}, {y, {var("d")}}});
  op.indices = {form.falls ? IntExpr(17) - c : c - IntExpr(2), var("d")};
  const ScalarExpr scaled = times(ScalarExpr::constant(40), form.follows ? plus(m.read(op, 1), m.read(op, 2)) : m.read(op, 1)),
                   key = ScalarExpr::cast(ElementType::i32, ScalarExpr::make(ScalarOp::floor, {scaled}));
  ScalarExpr named = ScalarExpr::make(ScalarOp::eq, {key, ScalarExpr::index(0)});
  const ScalarExpr early = ScalarExpr::make(ScalarOp::lt, {ScalarExpr::index(1), ScalarExpr::constant(2, ElementType::i32)});
  if (form.twice) named = ScalarExpr::make(ScalarOp::logical_and, {early, named});
  op.value = ScalarExpr::make(ScalarOp::select, {named, times(m.read(op, 0), m.read(op, 2)), ScalarExpr::constant(form.other)});
  op.reduction = form.combine;
  op.initialize = true;
  return m.finish(loop("io", 0, floor_div(var("rows") + IntExpr(kTile - 1), kTile), leaf(op), LoopKind::gpu_block));
}

/// To which of many sums a term belongs is data's to say.
struct ScatterForm {
  std::int64_t tile = 64;    ///< of places, in a block
  std::int64_t columns = 0;  ///< of each sum, which lie along memory; 0: the places do
  bool known = true;         ///< all places are one tile where not, and their number is not known when compiling
  bool falls = false;        ///< places are counted from the other end
  bool twice = false;        ///< a second sum stands inside, of some terms alone
  bool follows_sum = false;  ///< places differ between sums: no term has one
  double other = 0;          ///< what a term is for the sums that it does not belong to
  ReductionOp combine = ReductionOp::add;
};

/// out[i, v, c] = sum over j, d of (key[i, j] = v - 2 ? x[i, j, c] y[d] : 0), with whole numbers for keys, many of them no place's.
inline TileProgram scatter_program(const ScatterForm& form, int threads) {
  ProgramMaker m("scatter");
  m.size("rows").size("places").size("terms");
  const IntExpr i = var("i"), first = form.known ? IntExpr(form.tile) * var("vo") : IntExpr(0), v = first + var("v"),
                j = var("j"), c = var("c");
  const std::vector<IntExpr> columns = form.columns > 0 ? std::vector{IntExpr(form.columns)} : std::vector<IntExpr>{};
  const auto with_column = [&](std::vector<IntExpr> index) {
    if (form.columns > 0) index.push_back(c);
    return index;
  };
  const auto shape = [&](std::vector<IntExpr> extents) {
    extents.insert(extents.end(), columns.begin(), columns.end());
    return extents;
  };
  const int keys = m.input("key", ElementType::f32, {var("rows"), var("terms")}),
            x = m.input("x", ElementType::f32, shape({var("rows"), var("terms")})), y = m.input("y", ElementType::f32, {3}),
            out = m.output("out", ElementType::f32, shape({var("rows"), var("places")}));
  std::vector<OpDim> dims{form.known ? parallel_dim("v", 0, min(IntExpr(form.tile), var("places") - first), form.tile)
                                     : parallel_dim("v", 0, var("places"))};
  if (form.columns > 0) dims.push_back(parallel_dim("c", 0, form.columns));
  dims.push_back(reduced_dim("j", 0, var("terms")));
  dims.push_back(reduced_dim("d", 0, form.twice ? 3 : 1));
  TileOp op = make_op(OpKind::reduce, "put", dims, {out, with_column({i, v})},
                      {{keys, {i, j}}, {x, with_column({i, j})}, {y, {var("d")}}});
  op.indices = {form.falls ? IntExpr(17) - v : v - IntExpr(2), var("d")};
  ScalarExpr scaled = times(ScalarExpr::constant(40), m.read(op, 0));
  if (form.follows_sum) scaled = plus(scaled, ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)));
  const ScalarExpr key = ScalarExpr::cast(ElementType::i32, ScalarExpr::make(ScalarOp::floor, {scaled}));
  ScalarExpr named = ScalarExpr::make(ScalarOp::eq, {ScalarExpr::index(0), key});
  const ScalarExpr early = ScalarExpr::make(ScalarOp::lt, {ScalarExpr::index(1), ScalarExpr::constant(2, ElementType::i32)});
  if (form.twice) named = ScalarExpr::make(ScalarOp::logical_and, {early, named});
  op.value = ScalarExpr::make(ScalarOp::select, {named, times(m.read(op, 1), m.read(op, 2)), ScalarExpr::constant(form.other)});
  op.reduction = form.combine;
  op.initialize = true;
  TileTree tiles = leaf(op);
  if (form.known) tiles = loop("vo", 0, floor_div(var("places") + IntExpr(form.tile - 1), form.tile), tiles, LoopKind::gpu_block);
  auto rows = std::make_shared<TileNode>(*loop("i", 0, var("rows"), tiles, LoopKind::gpu_block));
  rows->knobs = loop_knobs({.threads = threads, .scatter = 1});
  return m.finish(rows);
}

/// y[b, t + 1, c] = y[b, t, c + shift] / 2 + x[b, c], columns modulo 256, and y[b, 0, c] = x[b, c]: the steps of a block, in memory.
inline TileProgram stepped_columns_program(std::int64_t shift) {
  constexpr std::int64_t kWidth = 256;
  ProgramMaker m("stepped_columns");
  m.size("rows").size("steps");
  const IntExpr b = var("b"), t = var("t"), c = var("c");
  const int x = m.input("x", ElementType::f32, {var("rows"), kWidth}),
            y = m.output("y", ElementType::f32, {var("rows"), var("steps") + IntExpr(1), kWidth});
  const OpDim columns = parallel_dim("c", 0, kWidth);
  TileOp first = make_op(OpKind::copy, "first", {columns}, {y, {b, 0, c}}, {{x, {b, c}}});
  first.value = m.read(first, 0);
  const IntExpr from = shift == 0 ? c : mod(c + IntExpr(shift), kWidth);
  TileOp step = make_op(OpKind::map, "step", {columns}, {y, {b, t + IntExpr(1), c}}, {{y, {b, t, from}}, {x, {b, c}}});
  step.value = plus(times(ScalarExpr::constant(0.5), m.read(step, 0)), m.read(step, 1));
  return m.finish(
      loop("b", 0, var("rows"), sequence({leaf(first), loop("t", 0, var("steps"), leaf(step))}), LoopKind::gpu_block));
}

}  // namespace nestor::testing
