// Triangular systems: sums that read other elements of what they write.
#pragma once

#include "support/simt/simt_programs.h"

namespace nestor::testing {

struct TriangularForm {
  std::int64_t steps = 0;  ///< rows of a system; 0: a size
  std::int64_t apart = 1;  ///< row t sums over u <= t - apart
  std::int64_t first = 0;  ///< element that sums start from
  std::int64_t row = 0;    ///< first row that is solved
  bool guarded = true;     ///< the guard ends the terms, not the dim's bounds
  bool backward = false;   ///< rows run from the last to the first
  bool scratch = false;    ///< the matrix and the rows are copied to the block's own memory
  bool divided = false;    ///< terms are divided by the row's last element
  bool ahead = false;      ///< terms are those of later rows, which are not solved yet
  ElementType type = ElementType::f32;
};

/// x[b, t, c] = v[b, t, c] - sum over first <= u <= t - apart of a[b, t, u] x[b, u, c]: each thread has a column c of a system b of its own.
inline TileProgram triangular_program(const TriangularForm& form) {
  ProgramMaker m("triangular");
  m.size("systems").size("cols");
  if (form.steps == 0) m.size("steps");
  constexpr std::int64_t kColumns = 40;
  const IntExpr steps = form.steps > 0 ? IntExpr(form.steps) : var("steps"), cols = var("cols"), b = var("b"), t = var("t"),
                u = var("u"), c = var("c");
  const int a = m.input("a", form.type, {var("systems"), steps, steps}),
            v = m.input("v", form.type, {var("systems"), steps, cols}),
            out = m.output("out", form.type, {var("systems"), steps, cols});
  const int matrix = form.scratch ? m.scratch("matrix", {form.steps, form.steps}) : a,
            x = form.scratch ? m.scratch("x", {form.steps, kColumns}) : out;
  const IntExpr first = IntExpr(kColumns) * var("co");
  const OpDim column = parallel_dim("c", 0, min(IntExpr(kColumns), cols - first), kColumns),
              row = parallel_dim("t", 0, steps, form.steps > 0 ? std::optional(form.steps) : std::nullopt);
  const auto place = [&](const IntExpr& of) { return form.backward ? steps - IntExpr(1) - of : of; };
  const auto element = [&](int buffer, const IntExpr& of) -> TileAccess {
    if (buffer == x && form.scratch) return {buffer, {place(of), c}};
    return {buffer, {b, place(of), first + c}};
  };
  const auto factor = [&](const IntExpr& of) -> TileAccess {
    return form.scratch ? TileAccess{matrix, {t, of}} : TileAccess{matrix, {b, t, of}};
  };
  std::vector<TileTree> ops;
  if (form.scratch) {
    TileOp copy = make_op(OpKind::copy, "load", {row, parallel_dim("u", 0, steps, form.steps)}, factor(u), {{a, {b, t, u}}});
    copy.value = m.read(copy, 0);
    ops.push_back(leaf(copy));
  }
  TileOp start = make_op(OpKind::copy, "start", {row, column}, element(x, t), {element(v, t)});
  start.value = ScalarExpr::read(0, form.type);
  ops.push_back(leaf(start));
  OpDim solved = serial_dim("t", form.row, steps), term = reduced_dim("u", form.first, steps);
  if (!form.guarded)
    term = reduced_dim("u", form.first, t - IntExpr(form.apart - 1), form.steps > 0 ? std::optional(form.steps) : std::nullopt);
  TileOp op = make_op(OpKind::points, "solve", {column, solved, term}, element(x, t), {factor(u), element(x, u), factor(t)});
  const ScalarExpr minus = ScalarExpr::constant(-0.125);
  ScalarExpr value = times(times(m.read(op, 0), minus), m.read(op, 1));
  if (form.divided) value = operator_of(ScalarOp::div, value, m.read(op, 2));
  if (form.type == ElementType::i32)
    value = operator_of(ScalarOp::mul, ScalarExpr::read(0, form.type), ScalarExpr::read(1, form.type));
  op.value = value;
  op.reduction = ReductionOp::add;
  if (form.guarded) {
    const IntExpr distance = form.ahead ? u - t - IntExpr(form.apart) : t - u - IntExpr(form.apart);
    op.guard = IntExpr::make(IntOp::ge, {distance, IntExpr(0)});
  }
  ops.push_back(leaf(op));
  if (form.scratch) {
    TileOp store = make_op(OpKind::copy, "store", {row, column}, element(out, t), {element(x, t)});
    store.value = m.read(store, 0);
    ops.push_back(leaf(store));
  }
  const IntExpr tiles = IntExpr::make(IntOp::floor_div, {cols + IntExpr(kColumns - 1), IntExpr(kColumns)});
  return m.finish(loop("b", 0, var("systems"), loop("co", 0, tiles, sequence(ops), LoopKind::gpu_block), LoopKind::gpu_block));
}

}  // namespace nestor::testing
