// Hand-built tile programs for tests of GPU back ends: small, each with a feature of its own.
#pragma once

#include "codegen/tile/tile_program.h"
#include "support/knobs.h"

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nestor::testing {

inline IntExpr var(const std::string& name) { return IntExpr::variable(name); }

/// Short ways to write a program.
class ProgramMaker {
 public:
  explicit ProgramMaker(std::string name) { program_.name = std::move(name); }

  ProgramMaker& size(const std::string& name) {
    program_.sizes.push_back(name);
    return *this;
  }
  ProgramMaker& fixed(const std::string& name, std::int64_t value) {
    program_.sizes.push_back(name);
    program_.fixed_sizes[name] = value;
    return *this;
  }
  ProgramMaker& scalar(const std::string& name, double value) {
    program_.scalars.push_back({name, ElementType::f32, value});
    return *this;
  }
  int input(const std::string& name, ElementType type, std::vector<IntExpr> extents) {
    return buffer(name, type, Memory::argument, TensorRole::input, std::move(extents));
  }
  int output(const std::string& name, ElementType type, std::vector<IntExpr> extents) {
    return buffer(name, type, Memory::argument, TensorRole::output, std::move(extents));
  }
  int scratch(const std::string& name, std::vector<IntExpr> extents, ElementType type = ElementType::f32) {
    return buffer(name, type, Memory::scratch, TensorRole::temporary, std::move(extents));
  }
  int workspace(const std::string& name, std::vector<IntExpr> extents) {
    return buffer(name, ElementType::f32, Memory::workspace, TensorRole::temporary, std::move(extents));
  }
  Buffer& at(int k) { return program_.buffers[static_cast<std::size_t>(k)]; }
  TileProgram finish(TileTree root) {
    program_.root = std::move(root);
    return program_;
  }

  /// The k-th read of an op on `buffers[k]`, as f32.
  ScalarExpr read(const TileOp& op, int k) const {
    const ElementType type = program_.buffers[static_cast<std::size_t>(op.reads[static_cast<std::size_t>(k)].buffer)].type;
    const ScalarExpr value = ScalarExpr::read(k, type);
    return type == ElementType::f32 || type == ElementType::i32 ? value : ScalarExpr::cast(ElementType::f32, value);
  }

 private:
  int buffer(const std::string& name, ElementType type, Memory memory, TensorRole role, std::vector<IntExpr> extents) {
    Buffer result;
    result.name = name;
    result.tensor = name;
    result.type = type;
    result.memory = memory;
    result.role = role;
    result.extents = std::move(extents);
    program_.buffers.push_back(std::move(result));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  TileProgram program_;
};

inline OpDim parallel_dim(const std::string& name, IntExpr lower, IntExpr upper, std::optional<std::int64_t> bound = {}) {
  OpDim dim;
  dim.var = name;
  dim.lower = std::move(lower);
  dim.upper = std::move(upper);
  dim.max_extent = bound;
  if (const auto a = dim.lower.as_constant(), b = dim.upper.as_constant(); a && b) dim.max_extent = *b - *a;
  dim.parallel = true;
  return dim;
}
inline OpDim serial_dim(const std::string& name, IntExpr lower, IntExpr upper) {
  OpDim dim = parallel_dim(name, std::move(lower), std::move(upper));
  dim.parallel = false;
  return dim;
}
inline OpDim reduced_dim(const std::string& name, IntExpr lower, IntExpr upper, std::optional<std::int64_t> bound = {}) {
  OpDim dim = parallel_dim(name, std::move(lower), std::move(upper), bound);
  dim.reduced = true;
  return dim;
}

inline TileOp make_op(OpKind kind, const std::string& name, std::vector<OpDim> dims, TileAccess write,
                      std::vector<TileAccess> reads) {
  TileOp op;
  op.kind = kind;
  op.name = name;
  op.dims = std::move(dims);
  op.write = std::move(write);
  op.reads = std::move(reads);
  return op;
}
inline TileTree leaf(TileOp op) {
  auto node = std::make_shared<TileNode>();
  node->kind = TileNode::Kind::op;
  if (op.kind == OpKind::contract) op.contraction = contraction_of(op.value, op.reduction);
  node->op = std::move(op);
  return node;
}
inline TileTree sequence(std::vector<TileTree> children) {
  auto node = std::make_shared<TileNode>();
  node->children = std::move(children);
  return node;
}
inline TileTree loop(const std::string& name, IntExpr lower, IntExpr upper, TileTree body, LoopKind kind = LoopKind::serial,
                     std::int64_t step = 1) {
  auto node = std::make_shared<TileNode>();
  node->kind = TileNode::Kind::loop;
  node->var = name;
  node->lower = std::move(lower);
  node->upper = std::move(upper);
  node->step = step;
  node->loop_kind = kind;
  node->children = {std::move(body)};
  return node;
}

inline ScalarExpr operator_of(ScalarOp op, ScalarExpr a, ScalarExpr b) {
  return ScalarExpr::make(op, {std::move(a), std::move(b)});
}
inline ScalarExpr plus(ScalarExpr a, ScalarExpr b) { return operator_of(ScalarOp::add, std::move(a), std::move(b)); }
inline ScalarExpr minus(ScalarExpr a, ScalarExpr b) { return operator_of(ScalarOp::sub, std::move(a), std::move(b)); }
inline ScalarExpr times(ScalarExpr a, ScalarExpr b) { return operator_of(ScalarOp::mul, std::move(a), std::move(b)); }
inline ScalarExpr over(ScalarExpr a, ScalarExpr b) { return operator_of(ScalarOp::div, std::move(a), std::move(b)); }
inline ScalarExpr exponential(ScalarExpr a) { return ScalarExpr::make(ScalarOp::exp, {std::move(a)}); }

/// `value`, cast to the type of an output.
inline ScalarExpr as(ElementType type, ScalarExpr value) {
  return type == ElementType::f32 ? value : ScalarExpr::cast(type, std::move(value));
}

// ---- programs ----

/// y[i] = scale * x[i] + z[i], nothing scheduled.
inline TileProgram vector_program(ElementType type) {
  ProgramMaker m("vector");
  m.size("n").scalar("scale", 0.5);
  const int x = m.input("x", type, {var("n")}), z = m.input("z", type, {var("n")}), y = m.output("y", type, {var("n")});
  TileOp op = make_op(OpKind::map, "y", {parallel_dim("i", 0, var("n"))}, {y, {var("i")}}, {{x, {var("i")}}, {z, {var("i")}}});
  op.value = as(type, plus(times(ScalarExpr::scalar("scale", ElementType::f32), m.read(op, 0)), m.read(op, 1)));
  return m.finish(leaf(op));
}

/// y[r, i] = x[r, apart*i] - 2 x[r, apart*i + last] + x[r, apart*i + middle]: with `last` at the end of such a piece whole pieces may be loaded.
inline TileProgram strided_program(ElementType type, std::int64_t apart, std::int64_t last, std::int64_t middle = 0) {
  ProgramMaker m("strided");
  m.size("rows").size("cols");
  const IntExpr step(apart), row = var("r"), first = step * var("i");
  const int x = m.input("x", type, {var("rows"), step * (var("cols") - IntExpr(1)) + IntExpr(last + 1)}),
            y = m.output("y", type, {var("rows"), var("cols")});
  TileOp op = make_op(OpKind::map, "y", {parallel_dim("i", 0, var("cols"))}, {y, {row, var("i")}},
                      {{x, {row, first}}, {x, {row, first + IntExpr(last)}}, {x, {row, first + IntExpr(middle)}}});
  const auto twice = times(ScalarExpr::constant(-2, ElementType::f32), m.read(op, 1));
  op.value = as(type, plus(plus(m.read(op, 0), twice), m.read(op, 2)));
  return m.finish(loop("r", 0, var("rows"), leaf(op), LoopKind::gpu_block));
}

/// Normalised rows with scale and shift, `rows` a block, one read of x: kept in a scratch tile.
inline TileProgram norm_program(ElementType type, std::int64_t width, std::int64_t rows, bool streaming = false,
                                const GridShape& shape = {}, int slots = 1) {
  ProgramMaker m("norm");
  m.size("batch").fixed("width", width).scalar("eps", 1e-5);
  const int x = m.input("x", type, {var("batch"), var("width")}), gamma = m.input("gamma", type, {var("width")});
  const int beta = m.input("beta", type, {var("width")}), y = m.output("y", type, {var("batch"), var("width")});
  m.at(y).streaming = streaming;
  m.at(x).streaming = streaming;
  const bool resident = shape.persistent > 0;
  const int tile = m.scratch("tile", {rows, width}, resident ? type : ElementType::f32), mean = m.scratch("mean", {rows}),
            square = m.scratch("square", {rows}), scale = m.scratch("scale", {rows});
  m.at(tile).stages = slots;
  const int factors = resident ? m.scratch("factors", {width}, type) : gamma;
  const IntExpr first = IntExpr(rows) * var("b");
  const IntExpr count = rows == 1 ? IntExpr(1) : min(IntExpr(rows), var("batch") - first);
  const auto r = parallel_dim("r", 0, count, rows), c = parallel_dim("c", 0, var("width"), width),
             k = reduced_dim("c", 0, var("width"), width);
  const IntExpr row = first + var("r");
  TileOp load = make_op(OpKind::copy, "load", {r, c}, {tile, {var("r"), var("c")}}, {{x, {row, var("c")}}});
  load.value = resident ? ScalarExpr::read(0, type) : m.read(load, 0);
  TileOp keep = make_op(OpKind::copy, "keep", {c}, {factors, {var("c")}}, {{gamma, {var("c")}}});
  keep.value = ScalarExpr::read(0, type);
  TileOp sum = make_op(OpKind::reduce, "sum", {r, k}, {mean, {var("r")}}, {{tile, {var("r"), var("c")}}});
  sum.value = times(m.read(sum, 0), ScalarExpr::constant(1.0 / static_cast<double>(width)));
  sum.reduction = ReductionOp::add;
  sum.initialize = true;
  TileOp squares =
      make_op(OpKind::reduce, "squares", {r, k}, {square, {var("r")}}, {{tile, {var("r"), var("c")}}, {mean, {var("r")}}});
  const ScalarExpr centred = minus(m.read(squares, 0), m.read(squares, 1));
  squares.value = times(centred, centred);
  squares.reduction = ReductionOp::add;
  squares.initialize = true;
  TileOp inverse = make_op(OpKind::map, "inverse", {r}, {scale, {var("r")}}, {{square, {var("r")}}});
  inverse.value =
      ScalarExpr::make(ScalarOp::rsqrt, {plus(times(m.read(inverse, 0), ScalarExpr::constant(1.0 / static_cast<double>(width))),
                                              ScalarExpr::scalar("eps", ElementType::f32))});
  TileOp store =
      make_op(OpKind::map, "store", {r, c}, {y, {row, var("c")}},
              {{tile, {var("r"), var("c")}}, {mean, {var("r")}}, {scale, {var("r")}}, {factors, {var("c")}}, {beta, {var("c")}}});
  store.value = as(
      type, plus(times(times(minus(m.read(store, 0), m.read(store, 1)), m.read(store, 2)), m.read(store, 3)), m.read(store, 4)));
  const IntExpr blocks = rows == 1 ? var("batch") : floor_div(var("batch") + IntExpr(rows - 1), rows);
  std::vector<TileTree> ops{leaf(load), leaf(sum), leaf(squares), leaf(inverse), leaf(store)};
  if (resident) ops.insert(ops.begin() + 1, leaf(keep));
  auto grid = std::make_shared<TileNode>(*loop("b", 0, blocks, sequence(ops), LoopKind::gpu_block));
  grid->knobs = loop_knobs(shape);
  return m.finish(grid);
}

/// Rows of unknown width, three passes over memory, scalar accumulators.
inline TileProgram softmax_program(ElementType type) {
  ProgramMaker m("rowexp");
  m.size("rows").size("cols");
  const int x = m.input("x", type, {var("rows"), var("cols")}), y = m.output("y", type, {var("rows"), var("cols")});
  const int top = m.scratch("top", {1}), total = m.scratch("total", {1});
  const TileAccess element{x, {var("r"), var("c")}};
  TileOp highest = make_op(OpKind::reduce, "highest", {reduced_dim("c", 0, var("cols"))}, {top, {0}}, {element});
  highest.value = m.read(highest, 0);
  highest.reduction = ReductionOp::max;
  highest.initialize = true;
  TileOp sum = make_op(OpKind::reduce, "sum", {reduced_dim("c", 0, var("cols"))}, {total, {0}}, {element, {top, {0}}});
  sum.value = exponential(minus(m.read(sum, 0), m.read(sum, 1)));
  sum.reduction = ReductionOp::add;
  sum.initialize = true;
  TileOp out = make_op(OpKind::map, "out", {parallel_dim("c", 0, var("cols"))}, {y, {var("r"), var("c")}},
                       {element, {top, {0}}, {total, {0}}});
  out.value = as(type, over(exponential(minus(m.read(out, 0), m.read(out, 1))), m.read(out, 2)));
  return m.finish(loop("r", 0, var("rows"), sequence({leaf(highest), leaf(sum), leaf(out)}), LoopKind::parallel));
}

/// out[r] = sum of x[r, c], or with `columns` out[c]; nothing scheduled.
inline TileProgram sum_program(ElementType type, bool columns) {
  ProgramMaker m(columns ? "column_sums" : "row_sums");
  m.size("rows").size("cols");
  const int x = m.input("x", type, {var("rows"), var("cols")});
  const int out = m.output("out", ElementType::f32, {columns ? var("cols") : var("rows")});
  OpDim r = parallel_dim("r", 0, var("rows")), c = parallel_dim("c", 0, var("cols"));
  (columns ? r : c).reduced = true;
  TileOp op = make_op(OpKind::reduce, "sum", {r, c}, {out, {columns ? var("c") : var("r")}}, {{x, {var("r"), var("c")}}});
  op.value = m.read(op, 0);
  op.reduction = ReductionOp::add;
  op.initialize = true;
  return m.finish(leaf(op));
}

/// c[m, n] = sum a[m, k] b[k, n] (b[n, k] when `transposed`), nothing scheduled; `batch` adds a dim to all.
inline TileProgram product_program(ElementType type, bool transposed, bool batch) {
  ProgramMaker m("product");
  if (batch) m.size("batch");
  m.size("m").size("n").size("k");
  const auto with_batch = [&](std::vector<IntExpr> list, bool extents) {
    if (batch) list.insert(list.begin(), extents ? var("batch") : var("z"));
    return list;
  };
  const int a = m.input("a", type, with_batch({var("m"), var("k")}, true));
  const int b =
      m.input("b", type,
              with_batch(transposed ? std::vector<IntExpr>{var("n"), var("k")} : std::vector<IntExpr>{var("k"), var("n")}, true));
  const int c = m.output("c", type, with_batch({var("m"), var("n")}, true));
  std::vector<OpDim> dims{parallel_dim("i", 0, var("m")), parallel_dim("j", 0, var("n")), reduced_dim("l", 0, var("k"))};
  if (batch) dims.insert(dims.begin(), parallel_dim("z", 0, var("batch")));
  TileOp op = make_op(
      OpKind::contract, "c", dims, {c, with_batch({var("i"), var("j")}, false)},
      {{a, with_batch({var("i"), var("l")}, false)},
       {b, with_batch(transposed ? std::vector<IntExpr>{var("j"), var("l")} : std::vector<IntExpr>{var("l"), var("j")}, false)}});
  op.value = times(m.read(op, 0), m.read(op, 1));
  op.reduction = ReductionOp::add;
  op.initialize = true;
  return m.finish(leaf(op));
}

/// The same by tiles with a stream over k: the sums live across the stream loop. `columns` of a tile: 0 for as many as rows.
inline TileProgram tiled_product_program(ElementType type, std::int64_t tile, std::int64_t k_tile, std::int64_t columns = 0) {
  if (columns == 0) columns = tile;
  ProgramMaker m("tiled_product");
  m.size("m").size("n").size("k");
  const int a = m.input("a", type, {var("m"), var("k")}), b = m.input("b", type, {var("k"), var("n")}),
            c = m.output("c", type, {var("m"), var("n")});
  const int sums = m.scratch("sums", {tile, columns});
  const IntExpr i0 = IntExpr(tile) * var("io"), j0 = IntExpr(columns) * var("jo"), l0 = IntExpr(k_tile) * var("lo");
  const auto i = parallel_dim("i", 0, min(IntExpr(tile), var("m") - i0), tile),
             j = parallel_dim("j", 0, min(IntExpr(columns), var("n") - j0), columns);
  TileOp zero = make_op(OpKind::map, "zero", {i, j}, {sums, {var("i"), var("j")}}, {});
  zero.value = ScalarExpr::constant(0);
  TileOp add = make_op(OpKind::contract, "add", {i, j, reduced_dim("l", 0, min(IntExpr(k_tile), var("k") - l0), k_tile)},
                       {sums, {var("i"), var("j")}}, {{a, {i0 + var("i"), l0 + var("l")}}, {b, {l0 + var("l"), j0 + var("j")}}});
  add.value = times(m.read(add, 0), m.read(add, 1));
  add.reduction = ReductionOp::add;
  TileOp store = make_op(OpKind::map, "store", {i, j}, {c, {i0 + var("i"), j0 + var("j")}}, {{sums, {var("i"), var("j")}}});
  store.value = as(type, m.read(store, 0));
  const auto blocks = [](const std::string& size, std::int64_t t) { return floor_div(var(size) + IntExpr(t - 1), t); };
  const TileTree body = sequence({leaf(zero), loop("lo", 0, blocks("k", k_tile), leaf(add)), leaf(store)});
  return m.finish(
      loop("io", 0, blocks("m", tile), loop("jo", 0, blocks("n", columns), body, LoopKind::gpu_block), LoopKind::gpu_block));
}

/// What a sum over pairs of elements adds up: a * b, (a - b)^2, or weights of its ks times max(a - b, 0.25 (a - b)).
enum class PairTerms { products, squares, weighted };

/// c[m, n] = relu(sum over all k of a * b) by tiles of rows and columns, either operand as it is or transposed. `offset`: ks start there in
/// both operands.
inline TileProgram blocked_product_program(std::int64_t rows, std::int64_t columns, bool a_transposed, bool b_transposed,
                                           std::int64_t offset = 0, ElementType type = ElementType::f32,
                                           PairTerms terms = PairTerms::products) {
  ProgramMaker m("blocked_product");
  m.size("m").size("n").size("k");
  const auto pair = [](bool swapped, const IntExpr& first, const IntExpr& second) {
    return swapped ? std::vector<IntExpr>{second, first} : std::vector<IntExpr>{first, second};
  };
  const IntExpr ks = var("k") + IntExpr(offset);
  const int a = m.input("a", type, pair(a_transposed, var("m"), ks)), b = m.input("b", type, pair(b_transposed, ks, var("n"))),
            c = m.output("c", ElementType::f32, {var("m"), var("n")});
  const int sums = m.scratch("sums", {rows, columns});
  const IntExpr i0 = IntExpr(rows) * var("io"), j0 = IntExpr(columns) * var("jo"), l = var("l") + IntExpr(offset);
  const auto i = parallel_dim("i", 0, min(IntExpr(rows), var("m") - i0), rows),
             j = parallel_dim("j", 0, min(IntExpr(columns), var("n") - j0), columns);
  TileOp add = make_op(terms == PairTerms::products ? OpKind::contract : OpKind::reduce, "add",
                       {i, j, reduced_dim("l", 0, var("k"))}, {sums, {var("i"), var("j")}},
                       {{a, pair(a_transposed, i0 + var("i"), l)}, {b, pair(b_transposed, l, j0 + var("j"))}});
  const ScalarExpr apart = minus(m.read(add, 0), m.read(add, 1));
  add.value = terms == PairTerms::squares ? times(apart, apart) : times(m.read(add, 0), m.read(add, 1));
  if (terms == PairTerms::weighted) {
    add.reads.push_back({m.input("weight", type, {ks}), {l}});
    const ScalarExpr leaky = ScalarExpr::make(ScalarOp::max, {apart, times(ScalarExpr::constant(0.25), apart)});
    add.value = times(m.read(add, 2), leaky);
  }
  add.reduction = ReductionOp::add;
  add.initialize = true;
  TileOp store = make_op(OpKind::map, "store", {i, j}, {c, {i0 + var("i"), j0 + var("j")}}, {{sums, {var("i"), var("j")}}});
  store.value = ScalarExpr::make(ScalarOp::max, {m.read(store, 0), ScalarExpr::constant(0)});
  const auto blocks = [](const std::string& size, std::int64_t t) { return floor_div(var(size) + IntExpr(t - 1), t); };
  return m.finish(loop("io", 0, blocks("m", rows),
                       loop("jo", 0, blocks("n", columns), sequence({leaf(add), leaf(store)}), LoopKind::gpu_block),
                       LoopKind::gpu_block));
}

/// One pass over keys in tiles with a running maximum: scores, maximum, weights, corrections, weighted sum.
inline TileProgram streaming_attention_program(ElementType type, std::int64_t width, bool causal, bool biased = false,
                                               std::int64_t tile = 64) {
  ProgramMaker m("stream");
  m.size("heads").size("s").fixed("d", width).scalar("scale", 0.125);
  const std::vector<IntExpr> shape{var("heads"), var("s"), var("d")};
  const int q = m.input("q", type, shape), k = m.input("k", type, shape), v = m.input("v", type, shape),
            o = m.output("o", type, shape);
  const int scores = m.scratch("scores", {tile, tile}), weights = m.scratch("weights", {tile, tile}),
            acc = m.scratch("acc", {tile, width});
  const int top = m.scratch("top", {tile}), before = m.scratch("before", {tile}), total = m.scratch("total", {tile});
  const IntExpr q0 = IntExpr(tile) * var("qt"), k0 = IntExpr(tile) * var("kt"), h = var("h");
  const auto r = parallel_dim("r", 0, min(IntExpr(tile), var("s") - q0), tile),
             c = parallel_dim("c", 0, min(IntExpr(tile), var("s") - k0), tile);
  const auto cr = reduced_dim("c", 0, min(IntExpr(tile), var("s") - k0), tile), e = parallel_dim("e", 0, var("d"), width);
  const auto ek = reduced_dim("e", 0, var("d"), width);
  const TileAccess at_r{top, {var("r")}}, at_rc{scores, {var("r"), var("c")}};
  const auto constant_op = [&](const std::string& name, std::vector<OpDim> dims, TileAccess write, double value) {
    TileOp op = make_op(OpKind::map, name, std::move(dims), std::move(write), {});
    op.value = ScalarExpr::constant(value);
    return leaf(op);
  };
  TileOp dot =
      make_op(OpKind::contract, "dot", {r, c, ek}, at_rc, {{q, {h, q0 + var("r"), var("e")}}, {k, {h, k0 + var("c"), var("e")}}});
  dot.value = times(m.read(dot, 0), m.read(dot, 1));
  dot.reduction = ReductionOp::add;
  dot.initialize = true;
  TileOp mask = make_op(OpKind::map, "mask", {r, c}, at_rc, {at_rc});
  mask.value = times(m.read(mask, 0), ScalarExpr::scalar("scale", ElementType::f32));
  if (biased) {
    const int bias = m.input("bias", type, {var("heads"), var("s"), var("s")});
    mask.reads.push_back({bias, {h, q0 + var("r"), k0 + var("c")}});
    mask.value = ScalarExpr::make(ScalarOp::add, {mask.value, m.read(mask, 1)});
  }
  if (causal) {
    mask.guard = IntExpr::make(IntOp::ge, {q0 + var("r"), k0 + var("c")});
    mask.fill = -std::numeric_limits<double>::infinity();
  }
  TileOp save = make_op(OpKind::copy, "save", {r}, {before, {var("r")}}, {at_r});
  save.value = m.read(save, 0);
  TileOp highest = make_op(OpKind::reduce, "highest", {r, cr}, at_r, {at_rc});
  highest.value = m.read(highest, 0);
  highest.reduction = ReductionOp::max;
  TileOp weigh = make_op(OpKind::map, "weigh", {r, c}, {weights, {var("r"), var("c")}}, {at_rc, at_r});
  weigh.value = exponential(minus(m.read(weigh, 0), m.read(weigh, 1)));
  TileOp fix_total =
      make_op(OpKind::map, "fix_total", {r}, {total, {var("r")}}, {{total, {var("r")}}, {before, {var("r")}}, at_r});
  fix_total.value = times(m.read(fix_total, 0), exponential(minus(m.read(fix_total, 1), m.read(fix_total, 2))));
  TileOp fix_acc = make_op(OpKind::map, "fix_acc", {r, e}, {acc, {var("r"), var("e")}},
                           {{acc, {var("r"), var("e")}}, {before, {var("r")}}, at_r});
  fix_acc.value = times(m.read(fix_acc, 0), exponential(minus(m.read(fix_acc, 1), m.read(fix_acc, 2))));
  TileOp count = make_op(OpKind::reduce, "count", {r, cr}, {total, {var("r")}}, {{weights, {var("r"), var("c")}}});
  count.value = m.read(count, 0);
  count.reduction = ReductionOp::add;
  TileOp gather = make_op(OpKind::contract, "gather", {r, e, cr}, {acc, {var("r"), var("e")}},
                          {{weights, {var("r"), var("c")}}, {v, {h, k0 + var("c"), var("e")}}});
  gather.value = times(m.read(gather, 0), m.read(gather, 1));
  gather.reduction = ReductionOp::add;
  TileOp out =
      make_op(OpKind::map, "out", {r, e}, {o, {h, q0 + var("r"), var("e")}}, {{acc, {var("r"), var("e")}}, {total, {var("r")}}});
  out.value = as(type, over(m.read(out, 0), m.read(out, 1)));
  const IntExpr tiles = floor_div(var("s") + IntExpr(tile - 1), tile);
  const TileTree stream = loop("kt", 0, causal ? var("qt") + IntExpr(1) : tiles,
                               sequence({leaf(dot), leaf(mask), leaf(save), leaf(highest), leaf(weigh), leaf(fix_total),
                                         leaf(fix_acc), leaf(count), leaf(gather)}));
  const TileTree body =
      sequence({constant_op("start_top", {r}, at_r, -1e30), constant_op("start_total", {r}, {total, {var("r")}}, 0),
                constant_op("start_acc", {r, e}, {acc, {var("r"), var("e")}}, 0), stream, leaf(out)});
  return m.finish(loop("h", 0, var("heads"), loop("qt", 0, tiles, body, LoopKind::gpu_block), LoopKind::gpu_block));
}

/// Two-buffer relaxation over time steps, with zeros outside of the grid read by a condition; launched step by step.
inline TileProgram relaxation_program() {
  ProgramMaker m("relaxation");
  m.size("steps").size("n");
  const int start = m.input("start", ElementType::f32, {var("n"), var("n")}),
            out = m.output("out", ElementType::f32, {var("n"), var("n")});
  const int grids = m.workspace("grids", {2, var("n"), var("n")});
  const auto i = parallel_dim("i", 0, var("n")), j = parallel_dim("j", 0, var("n"));
  TileOp load = make_op(OpKind::copy, "load", {i, j}, {grids, {0, var("i"), var("j")}}, {{start, {var("i"), var("j")}}});
  load.value = m.read(load, 0);
  const IntExpr from = mod(var("t"), 2), to = mod(var("t") + IntExpr(1), 2);
  TileOp step = make_op(OpKind::map, "step", {i, j}, {grids, {to, var("i"), var("j")}},
                        {{grids, {from, var("i"), var("j")}},
                         {grids, {from, var("i"), var("j") - IntExpr(1)}},
                         {grids, {from, var("i") - IntExpr(1), var("j")}}});
  step.indices = {var("i"), var("j")};
  const auto positive = [](int k) {
    return operator_of(ScalarOp::lt, ScalarExpr::constant(0, ElementType::i32), ScalarExpr::index(k));
  };
  const auto inside = [&](int k, ScalarExpr value) {
    return ScalarExpr::make(ScalarOp::select, {positive(k), std::move(value), ScalarExpr::constant(0)});
  };
  step.value = times(ScalarExpr::constant(0.25),
                     plus(plus(m.read(step, 0), m.read(step, 0)), plus(inside(1, m.read(step, 1)), inside(0, m.read(step, 2)))));
  TileOp store =
      make_op(OpKind::copy, "store", {i, j}, {out, {var("i"), var("j")}}, {{grids, {mod(var("steps"), 2), var("i"), var("j")}}});
  store.value = m.read(store, 0);
  return m.finish(sequence({leaf(load), loop("t", 0, var("steps"), leaf(step)), leaf(store)}));
}

/// In-place sweep in wavefronts: w sequential, points of one wave parallel; bounds of the inner dim depend on w.
inline TileProgram wavefront_program() {
  ProgramMaker m("wavefront");
  m.size("n");
  const int start = m.input("start", ElementType::f32, {var("n"), var("n")}),
            out = m.output("out", ElementType::f32, {var("n"), var("n")});
  TileOp load = make_op(OpKind::copy, "load", {parallel_dim("i", 0, var("n")), parallel_dim("j", 0, var("n"))},
                        {out, {var("i"), var("j")}}, {{start, {var("i"), var("j")}}});
  load.value = m.read(load, 0);
  const IntExpr j = var("w") - var("i");
  TileOp sweep =
      make_op(OpKind::points, "sweep",
              {serial_dim("w", 2, var("n") * IntExpr(2) - IntExpr(1)),
               parallel_dim("i", max(IntExpr(1), var("w") - var("n") + IntExpr(1)), min(var("n"), var("w")))},
              {out, {var("i"), j}}, {{out, {var("i"), j}}, {out, {var("i") - IntExpr(1), j}}, {out, {var("i"), j - IntExpr(1)}}});
  sweep.value = times(ScalarExpr::constant(0.3), plus(m.read(sweep, 0), plus(m.read(sweep, 1), m.read(sweep, 2))));
  return m.finish(sequence({leaf(load), leaf(sweep)}));
}

/// Running sums along each row: parallel rows, sequential columns, within one block of several rows.
inline TileProgram running_sum_program() {
  ProgramMaker m("running");
  m.size("rows").size("cols");
  const int x = m.input("x", ElementType::f32, {var("rows"), var("cols")}),
            out = m.output("out", ElementType::f32, {var("rows"), var("cols")});
  TileOp op = make_op(OpKind::points, "running", {parallel_dim("r", 0, var("rows")), serial_dim("c", 0, var("cols"))},
                      {out, {var("r"), var("c")}}, {{x, {var("r"), var("c")}}, {out, {var("r"), var("c") - IntExpr(1)}}});
  op.indices = {var("c")};
  const ScalarExpr first = operator_of(ScalarOp::le, ScalarExpr::index(0), ScalarExpr::constant(0, ElementType::i32));
  op.value = plus(m.read(op, 0), ScalarExpr::make(ScalarOp::select, {first, ScalarExpr::constant(0), m.read(op, 1)}));
  return m.finish(leaf(op));
}

/// out[p, r, c] = x[p, r, c] * scale[c] + shift[p, c]: blocks of `tile` rows of all planes share what they read along columns; 0: one launch
/// of all rows.
inline TileProgram scaled_rows_program(ElementType type, std::int64_t tile) {
  ProgramMaker m("scaled_rows");
  m.size("planes").size("rows").size("cols");
  const IntExpr planes = var("planes"), rows = var("rows"), cols = var("cols");
  const int x = m.input("x", type, {planes, rows, cols}), scale = m.input("scale", ElementType::f32, {cols}),
            shift = m.input("shift", ElementType::f32, {planes, cols}), out = m.output("out", type, {planes, rows, cols});
  const IntExpr r0 = tile == 0 ? IntExpr(0) : IntExpr(tile) * var("ro");
  const OpDim r = tile == 0 ? parallel_dim("r", 0, rows) : parallel_dim("r", 0, min(IntExpr(tile), rows - r0), tile);
  const IntExpr at = r0 + var("r");
  TileOp op = make_op(OpKind::points, "scaled", {parallel_dim("p", 0, planes), r, parallel_dim("c", 0, cols)},
                      {out, {var("p"), at, var("c")}},
                      {{x, {var("p"), at, var("c")}}, {scale, {var("c")}}, {shift, {var("p"), var("c")}}});
  op.value = as(type, plus(times(m.read(op, 0), m.read(op, 1)), m.read(op, 2)));
  if (tile == 0) return m.finish(leaf(op));
  return m.finish(loop("ro", 0, floor_div(rows + IntExpr(tile - 1), tile), leaf(op), LoopKind::gpu_block));
}

/// A block whose tile is read in another order than it was written: through shared memory, with a barrier.
inline TileProgram transpose_program(ElementType type) {
  constexpr std::int64_t kTile = 32;
  ProgramMaker m("transpose");
  m.size("rows").size("cols");
  const int x = m.input("x", type, {var("rows"), var("cols")}), y = m.output("y", type, {var("cols"), var("rows")});
  const int tile = m.scratch("tile", {kTile, kTile}, type);
  const IntExpr r0 = IntExpr(kTile) * var("ro"), c0 = IntExpr(kTile) * var("co");
  const auto r = parallel_dim("r", 0, min(IntExpr(kTile), var("rows") - r0), kTile),
             c = parallel_dim("c", 0, min(IntExpr(kTile), var("cols") - c0), kTile);
  TileOp load = make_op(OpKind::copy, "load", {r, c}, {tile, {var("r"), var("c")}}, {{x, {r0 + var("r"), c0 + var("c")}}});
  load.value = ScalarExpr::read(0, type);
  TileOp store = make_op(OpKind::copy, "store", {c, r}, {y, {c0 + var("c"), r0 + var("r")}}, {{tile, {var("r"), var("c")}}});
  store.value = ScalarExpr::read(0, type);
  const auto blocks = [](const std::string& size) { return floor_div(var(size) + IntExpr(kTile - 1), kTile); };
  return m.finish(loop("ro", 0, blocks("rows"),
                       loop("co", 0, blocks("cols"), sequence({leaf(load), leaf(store)}), LoopKind::gpu_block),
                       LoopKind::gpu_block));
}

/// y = x + x * f, blocks of 64 rows of a known, small width.
inline TileProgram narrow_rows_program(ElementType type, std::int64_t width) {
  constexpr std::int64_t kTile = 64;
  ProgramMaker m("narrow_rows");
  m.size("rows");
  const int x = m.input("x", type, {var("rows"), width}), f = m.input("f", type, {width}),
            y = m.output("y", type, {var("rows"), width});
  const int tile = m.scratch("tile", {kTile, width}, ElementType::f32);
  const IntExpr start = IntExpr(kTile) * var("b");
  const auto r = parallel_dim("r", 0, min(IntExpr(kTile), var("rows") - start), kTile), c = parallel_dim("c", 0, width, width);
  TileOp load = make_op(OpKind::copy, "load", {r, c}, {tile, {var("r"), var("c")}}, {{x, {start + var("r"), var("c")}}});
  load.value = m.read(load, 0);
  TileOp store =
      make_op(OpKind::map, "store", {r, c}, {y, {start + var("r"), var("c")}}, {{tile, {var("r"), var("c")}}, {f, {var("c")}}});
  const ScalarExpr value = m.read(store, 0);
  store.value = as(type, plus(value, times(value, m.read(store, 1))));
  const IntExpr blocks = floor_div(var("rows") + IntExpr(kTile - 1), kTile);
  return m.finish(loop("b", 0, blocks, sequence({leaf(load), leaf(store)}), LoopKind::gpu_block));
}

/// Integers: out[r] = the largest of x[r, c] ^ c.
inline TileProgram integer_program() {
  ProgramMaker m("integers");
  m.size("rows").size("cols");
  const int x = m.input("x", ElementType::i32, {var("rows"), var("cols")}),
            out = m.output("out", ElementType::i32, {var("rows")});
  TileOp op = make_op(OpKind::reduce, "largest", {parallel_dim("r", 0, var("rows")), reduced_dim("c", 0, var("cols"))},
                      {out, {var("r")}}, {{x, {var("r"), var("c")}}});
  op.indices = {var("c")};
  op.value = operator_of(ScalarOp::bit_xor, m.read(op, 0), ScalarExpr::index(0));
  op.reduction = ReductionOp::max;
  op.initialize = true;
  return m.finish(leaf(op));
}

/// Every elementary function of one element.
inline TileProgram functions_program() {
  ProgramMaker m("functions");
  m.size("n");
  const int x = m.input("x", ElementType::f32, {var("n")}), y = m.output("y", ElementType::f32, {16, var("n")});
  std::vector<TileTree> ops;
  const auto add = [&](const std::function<ScalarExpr(ScalarExpr)>& make) {
    TileOp op = make_op(OpKind::map, "f", {parallel_dim("i", 0, var("n"))},
                        {y, {static_cast<std::int64_t>(ops.size()), var("i")}}, {{x, {var("i")}}});
    op.value = make(m.read(op, 0));
    ops.push_back(leaf(op));
  };
  const auto unary = [](ScalarOp op) { return [op](ScalarExpr v) { return ScalarExpr::make(op, {std::move(v)}); }; };
  const auto positive = [](ScalarExpr v) {
    return plus(ScalarExpr::make(ScalarOp::abs, {std::move(v)}), ScalarExpr::constant(0.1));
  };
  for (ScalarOp op :
       {ScalarOp::exp, ScalarOp::exp2, ScalarOp::tanh, ScalarOp::erf, ScalarOp::floor, ScalarOp::neg, ScalarOp::abs})
    add(unary(op));
  for (ScalarOp op : {ScalarOp::log, ScalarOp::sqrt, ScalarOp::rsqrt})
    add([&, op](ScalarExpr v) { return ScalarExpr::make(op, {positive(std::move(v))}); });
  add([&](ScalarExpr v) { return operator_of(ScalarOp::pow, positive(std::move(v)), ScalarExpr::constant(1.5)); });
  add([&](ScalarExpr v) { return operator_of(ScalarOp::pow, v, ScalarExpr::constant(2)); });
  add([&](ScalarExpr v) { return over(v, positive(v)); });
  add([&](ScalarExpr v) { return operator_of(ScalarOp::min, v, ScalarExpr::constant(0.25)); });
  add([&](ScalarExpr v) { return ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(ElementType::f16, v)); });
  add([&](ScalarExpr v) { return ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(ElementType::bf16, v)); });
  return m.finish(sequence(ops));
}

/// A product whose terms are restricted by a guard over its rows and ks: c[i, j] = sum over l <= i of a[i, l] b[l, j].
inline TileProgram masked_product_program() {
  ProgramMaker m("masked_product");
  m.size("n");
  const std::vector<IntExpr> shape{var("n"), var("n")};
  const int a = m.input("a", ElementType::f32, shape), b = m.input("b", ElementType::f32, shape),
            c = m.output("c", ElementType::f32, shape);
  TileOp op =
      make_op(OpKind::contract, "c",
              {parallel_dim("i", 0, var("n")), parallel_dim("j", 0, var("n")), reduced_dim("l", 0, var("n") + IntExpr(3))},
              {c, {var("i"), var("j")}}, {{a, {var("i"), var("l")}}, {b, {var("l"), var("j")}}});
  op.guard = IntExpr::make(IntOp::ge, {var("i"), var("l")});
  op.value = times(m.read(op, 0), m.read(op, 1));
  op.reduction = ReductionOp::add;
  op.initialize = true;
  return m.finish(leaf(op));
}

/// c[i, d] += sum over l <= i of a[i, l] b[l, d] for seven columns, in tiles of four. The guard of the last tile leaves out a column that
/// c does not have: it is the next row's first element, another block's.
inline TileProgram ragged_sums_program(OpKind kind) {
  constexpr std::int64_t kColumns = 7, kTile = 4, kRows = 2;
  ProgramMaker m(kind == OpKind::contract ? "ragged_product" : "ragged_sums");
  m.size("n");
  const int a = m.input("a", ElementType::f32, {var("n"), var("n")}), b = m.input("b", ElementType::f32, {var("n"), kColumns}),
            c = m.output("c", ElementType::f32, {var("n"), kColumns});
  const IntExpr i = IntExpr(kRows) * var("io") + var("i"), d = IntExpr(kTile) * var("t") + var("d");
  const OpDim rows = parallel_dim("i", 0, min(IntExpr(kRows), var("n") - IntExpr(kRows) * var("io")));
  TileOp start =
      make_op(OpKind::map, "start",
              {rows, parallel_dim("d", 0, min(IntExpr(kTile), IntExpr(kColumns) - IntExpr(kTile) * var("t")))}, {c, {i, d}}, {});
  start.value = ScalarExpr::constant(0);
  TileOp sum = make_op(kind, "sum", {rows, parallel_dim("d", 0, kTile), reduced_dim("l", 0, var("n"))}, {c, {i, d}},
                       {{a, {i, var("l")}}, {b, {var("l"), d}}});
  const IntExpr seen = IntExpr::make(IntOp::ge, {i, var("l")});
  sum.guard = IntExpr::make(
      IntOp::logical_or, {IntExpr::make(IntOp::eq, {var("t"), 0}) && seen,
                          IntExpr::make(IntOp::eq, {var("t"), 1}) && seen && IntExpr::make(IntOp::ge, {IntExpr(2), var("d")})});
  sum.value = times(m.read(sum, 0), m.read(sum, 1));
  sum.reduction = ReductionOp::add;
  const TileTree tiles = loop("t", 0, 2, sequence({leaf(start), leaf(sum)}), LoopKind::gpu_block);
  return m.finish(loop("io", 0, floor_div(var("n") + IntExpr(kRows - 1), kRows), tiles, LoopKind::gpu_block));
}

/// Sequential steps inside of a block on a tile that neighbours read: a barrier each step, carried around the loop.
inline TileProgram block_steps_program() {
  constexpr std::int64_t kWidth = 200;
  ProgramMaker m("block_steps");
  m.size("rows").size("steps");
  const int x = m.input("x", ElementType::f32, {var("rows"), kWidth}), y = m.output("y", ElementType::f32, {var("rows"), kWidth});
  const int old = m.scratch("old", {kWidth}), next = m.scratch("next", {kWidth});
  const auto c = parallel_dim("c", 0, kWidth);
  TileOp load = make_op(OpKind::copy, "load", {c}, {old, {var("c")}}, {{x, {var("b"), var("c")}}});
  load.value = m.read(load, 0);
  TileOp step =
      make_op(OpKind::map, "step", {c}, {next, {var("c")}}, {{old, {var("c")}}, {old, {mod(var("c") + IntExpr(37), kWidth)}}});
  step.value = times(ScalarExpr::constant(0.5), plus(m.read(step, 0), m.read(step, 1)));
  TileOp back = make_op(OpKind::copy, "back", {c}, {old, {var("c")}}, {{next, {var("c")}}});
  back.value = m.read(back, 0);
  TileOp store = make_op(OpKind::copy, "store", {c}, {y, {var("b"), var("c")}}, {{old, {var("c")}}});
  store.value = m.read(store, 0);
  const TileTree steps = loop("t", 0, var("steps"), sequence({leaf(step), leaf(back)}));
  return m.finish(loop("b", 0, var("rows"), sequence({leaf(load), steps, leaf(store)}), LoopKind::gpu_block));
}

/// Scratch of a size that is left open.
inline TileProgram open_scratch_program() {
  ProgramMaker m("open");
  m.size("rows").size("cols");
  const int x = m.input("x", ElementType::f32, {var("rows"), var("cols")}),
            y = m.output("y", ElementType::f32, {var("rows"), var("cols")});
  const int tile = m.scratch("row_copy", {var("cols")});
  TileOp load =
      make_op(OpKind::copy, "load", {parallel_dim("c", 0, var("cols"))}, {tile, {var("c")}}, {{x, {var("r"), var("c")}}});
  load.value = m.read(load, 0);
  TileOp store =
      make_op(OpKind::copy, "store", {parallel_dim("c", 0, var("cols"))}, {y, {var("r"), var("c")}}, {{tile, {var("c")}}});
  store.value = m.read(store, 0);
  return m.finish(loop("r", 0, var("rows"), sequence({leaf(load), leaf(store)}), LoopKind::gpu_block));
}

/// Scratch that is known and does not fit.
inline TileProgram huge_scratch_program() {
  ProgramMaker m("huge");
  m.size("n");
  const int x = m.input("x", ElementType::f32, {var("n"), 512, 512}), y = m.output("y", ElementType::f32, {var("n"), 512, 512});
  const int tile = m.scratch("picture", {512, 512});
  const auto i = parallel_dim("i", 0, 512), j = parallel_dim("j", 0, 512);
  TileOp load = make_op(OpKind::copy, "load", {i, j}, {tile, {var("i"), var("j")}}, {{x, {var("b"), var("i"), var("j")}}});
  load.value = m.read(load, 0);
  TileOp store = make_op(OpKind::copy, "store", {i, j}, {y, {var("b"), var("i"), var("j")}}, {{tile, {var("j"), var("i")}}});
  store.value = m.read(store, 0);
  return m.finish(loop("b", 0, var("n"), sequence({leaf(load), leaf(store)}), LoopKind::gpu_block));
}

}  // namespace nestor::testing
