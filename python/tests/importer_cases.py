"""One case or more for every op that the importer has a rule for: name: [(function, inputs), ...]. The functions call the op
itself."""

import torch

from nestor.torch.compiler.draws import uniform

A = torch.ops.aten
N = None


def t(*shape, seed=0, low=None):
    """A tensor of f32; low: uniform from there to low + 2."""
    source = torch.Generator().manual_seed(seed + sum(shape) * 7 + len(shape))
    return torch.randn(shape, generator=source) if low is None else torch.rand(shape, generator=source) * 2 + low


def i64(*shape, least=-9):
    return torch.randint(least, 9, shape, generator=torch.Generator().manual_seed(4))


def flags(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(5)) < 0.5


def i32(*shape):
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(3), dtype=torch.int32)


X, Y, ROW, POSITIVE = t(3, 4, 6), t(3, 4, 6, seed=1), t(6), t(3, 4, 6, low=0.25)
M, K, W = t(4, 6), t(6, 5), t(5, 6, seed=2)
NAN, INF = float("nan"), float("inf")
WORDS = torch.tensor([[7, -7, 8, -8, 3], [0, 1, -1, 2**31 - 1, -2**31], [101, 117, 203, 70001, -46341], [2, -3, 6, 12, 99]],
                     dtype=torch.int32)  #: near the ends of 32 bits, too
WIDE = torch.tensor([[3, -4, 2**40, -2**40], [2**32 + 5, -2**32, 2, 2**31]])  #: what 32 bits do not hold
ENDS = torch.tensor([[710.0, -710.0, 89.0], [41.0, -41.0, 39.0]])  #: where exponentials leave float64, not so halves
HIDING = torch.zeros(5, 7)  #: a mask that hides rows, as -inf and as the least number do
HIDING[1], HIDING[2], HIDING[3, 2:], HIDING[4, :3] = -INF, torch.finfo(torch.float32).min, -INF, torch.finfo(torch.float32).min
Q, KEY, VALUE = t(2, 4, 5, 8), t(2, 4, 7, 8, seed=1), t(2, 4, 7, 8, seed=2)


def under(*dims):
    """An affine condition of the last two dims' indices, made as models make masks."""
    rows, columns = (torch.arange(extent) for extent in dims)
    return columns[None, :] <= rows[:, None] + 1


def _pointwise():
    named = {}
    for name in ("abs", "exp", "exp2", "tanh", "erf", "neg", "floor", "ceil", "sigmoid", "square", "relu", "silu", "trunc",
                 "mish", "log_sigmoid", "hardsigmoid", "hardswish", "sinh", "cosh", "frac", "relu6", "sign", "gelu",
                 "softplus", "leaky_relu", "elu", "hardtanh", "deg2rad", "isnan", "isinf", "sin", "cos", "tan", "atan",
                 "expm1"):
        op = getattr(A, name).default
        named[f"aten.{name}.default"] = [(lambda x, op=op: op(x), [X * 3])]
    for name in ("log", "sqrt", "rsqrt", "reciprocal", "log1p"):
        op = getattr(A, name).default
        named[f"aten.{name}.default"] = [(lambda x, op=op: op(x), [POSITIVE])]
    for name in ("sinh", "cosh"):
        op = getattr(A, name).default
        named[f"aten.{name}.default"] += [(lambda x, op=op: op(x * 1e-13) * 1e13, [X]),
                                          (lambda x, op=op: op(x).abs().log(), [ENDS])]
    named["aten.sign.default"].append((lambda x: A.sign.default(x), [torch.tensor([[NAN, -0.0, 2.0], [-3.0, NAN, -INF]])]))
    named["aten.gelu.default"].append((lambda x: A.gelu.default(x, approximate="tanh"), [X]))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        tensor, scalar = getattr(A, name).Tensor, getattr(A, name).Scalar
        named[f"aten.{name}.Tensor"] = [(lambda x, y, op=tensor: op(x, y), [X.round(), Y.round()]),
                                        (lambda x, op=tensor: x * op(torch.arange(6)[None], torch.arange(4)[:, None]), [X])]
        named[f"aten.{name}.Scalar"] = [(lambda x, op=scalar: op(x, 0.5), [X]),
                                        (lambda x, op=scalar: x * op(torch.arange(6), 3), [X])]
    for name, operands in {"mul": (X, Y), "add": (X, ROW), "sub": (ROW, X), "div": (X, POSITIVE), "rsub": (X, Y)}.items():
        tensor, scalar = getattr(A, name).Tensor, getattr(A, name).Scalar
        named[f"aten.{name}.Tensor"] = [(lambda x, y, op=tensor: op(x, y), list(operands))]
        named[f"aten.{name}.Scalar"] = [(lambda x, op=scalar: op(x, 2.5), [X])]
    named["aten.add.Tensor"] += [(lambda x, y: A.add.Tensor(x, y, alpha=2), [X, Y]),
                                 (lambda x: x + A.add.Tensor(torch.arange(6), torch.arange(4)[:, None]), [X]),
                                 (lambda x, y: A.add.Tensor(x, y), [i32(3, 4), i32(4)])]
    for name in ("maximum", "minimum"):
        op = getattr(A, name).default
        named[f"aten.{name}.default"] = [(lambda x, y, op=op: op(x, y), [X, Y])]
    for name, op in (("and", torch.logical_and), ("or", torch.logical_or), ("xor", torch.logical_xor)):
        named[f"aten.logical_{name}.default"] = [(lambda x, op=op: op(x > 0, x < 1), [X]),
                                                 (lambda x, op=op: x * op(under(4, 6), torch.arange(6) != 2), [X])]
        bits, scalar = getattr(A, f"bitwise_{name}").Tensor, getattr(A, f"bitwise_{name}").Scalar
        named[f"aten.bitwise_{name}.Tensor"] = [(lambda x, y, op=bits: op(x, y), [i32(3, 4), i32(4)]),
                                                (lambda x, op=bits: op(x > 0, x < 1), [X])]
        named[f"aten.bitwise_{name}.Tensor"].append((lambda x, y, op=bits: op(x > 0, y), [t(3, 4), i32(4)]))
        named[f"aten.bitwise_{name}.Scalar"] = [(lambda x, op=scalar: op(x, 5), [i32(3, 4)]),
                                                (lambda x, op=scalar: op(x > 0, 1).float(), [X])]
    named["aten.logical_not.default"] = [(lambda x: A.logical_not.default(x > 0), [X])]
    named["aten.bitwise_not.default"] = [(lambda x: A.bitwise_not.default(x > 0), [X]),
                                         (lambda x: A.bitwise_not.default(x), [i32(3, 4)])]
    return named


CASES = _pointwise() | {
    "aten.pow.Tensor_Scalar": [(lambda x, p=p: A.pow.Tensor_Scalar(x, p), [POSITIVE]) for p in (1, 2, 3, -1, 0.5, -0.5, 1.7)] +
    [(lambda x, p=p: A.pow.Tensor_Scalar(x, p), [WORDS]) for p in (0, 1, 2, 4, 7)] +
    [(lambda x: A.pow.Tensor_Scalar(x, 2.0), [WORDS])],
    "aten.pow.Tensor_Tensor": [(lambda x, y: A.pow.Tensor_Tensor(x, y), [POSITIVE, Y])],
    "aten.pow.Scalar": [(lambda y: A.pow.Scalar(2.0, y), [Y])],
    "aten.div.Tensor_mode": [(lambda x, y, m=m: A.div.Tensor_mode(x, y, rounding_mode=m), [X * 5, POSITIVE])
                             for m in ("trunc", N)] +
    [(lambda x: x + A.div.Tensor_mode(torch.arange(6) - 3, torch.ones(6, dtype=torch.int64) * 2, rounding_mode="floor"), [X])],
    "aten.div.Scalar_mode": [(lambda x, m=m: A.div.Scalar_mode(x, 4, rounding_mode=m), [i32(3, 4)])
                             for m in ("floor", "trunc", N)] +
    [(lambda x, d=d: A.div.Scalar_mode(x, d, rounding_mode="trunc"), [WORDS]) for d in (3, -3, 1, -7)] +
    [(lambda x: x + A.div.Scalar_mode(torch.arange(6) - 3, -2, rounding_mode="trunc"), [X])],
    "aten.floor_divide.default": [(lambda x: x + A.floor_divide.default(torch.arange(6),
                                                                        torch.ones(6, dtype=torch.int64) * 2), [X])],
    "aten.floor_divide.Scalar": [(lambda x: x + A.floor_divide.Scalar(torch.arange(6), 4), [X])],
    "aten.remainder.Scalar": [(lambda x: A.remainder.Scalar(x, -3), [WORDS]),
                              (lambda x: x + A.remainder.Scalar(torch.arange(6), 4), [X])],
    "aten.remainder.Tensor": [(lambda x, y: A.remainder.Tensor(x, y), [WORDS, i32(4, 5).abs() + 1])],
    "aten.clamp.default": [(lambda x, m: x * A.clamp.default(m, -3, 4), [t(2, 4), WIDE]),
                           (lambda x: A.clamp.default(x, -2**40, 2**33), [X]),
                           (lambda x: A.clamp.default(x, -0.5, 0.5), [X]), (lambda x: A.clamp.default(x, N, 0.5), [X])],
    "aten.clamp.Tensor": [(lambda x, y: A.clamp.Tensor(x, y), [X, Y])],
    "aten.clip.default": [(lambda x: A.clip.default(x, -0.5), [X])],
    "aten.clamp_min.default": [(lambda x: A.clamp_min.default(x, 0.25), [X])],
    "aten.clamp_min.Tensor": [(lambda x, y: A.clamp_min.Tensor(x, y), [X, ROW])],
    "aten.clamp_max.default": [(lambda x: A.clamp_max.default(x, 0.25), [X])],
    "aten.clamp_max.Tensor": [(lambda x, y: A.clamp_max.Tensor(x, y), [X, ROW])],
    "aten.where.self": [(lambda x, y: A.where.self(under(4, 6), x, y), [X, Y]),
                        (lambda x, y: A.where.self(x > 0, x, y), [X, Y]),
                        (lambda m, x, y: A.where.self(m, x, y), [flags(4, 6), X, Y]),
                        (lambda m, x, y: A.where.self(m != 0, x, y), [i64(6, least=-1), X, Y]),
                        (lambda m, x: A.where.self(torch.logical_and(m < 5, m > -2**31 + 1), x, -x), [WIDE, t(2, 4)]),
                        (lambda m, x: A.where.self(torch.arange(4) < m, x, -x), [WIDE, t(2, 4)]),
                        (lambda m, x, y: A.where.self(m, x, y), [torch.zeros(4, 1, dtype=torch.bool), X, Y])],
    "aten.where.Scalar": [(lambda x: x + A.where.Scalar(under(4, 6), 1.0, 2.0), [X])],
    "aten.where.ScalarSelf": [(lambda x: A.where.ScalarSelf(under(4, 6), 1.5, x), [X])],
    "aten.where.ScalarOther": [(lambda x: A.where.ScalarOther(under(4, 6), x, float("-inf")), [X])],
    "aten.masked_fill.Scalar": [(lambda x: A.masked_fill.Scalar(x, under(4, 6), -3.0), [X]),
                                (lambda x, m: A.masked_fill.Scalar(x, m, -3.0), [X, flags(3, 4, 6)])],
    "aten.masked_fill.Tensor": [(lambda x, y: A.masked_fill.Tensor(x, under(4, 6), y), [X, t()])],
    "aten.addcmul.default": [(lambda x, y: A.addcmul.default(x, y, x, value=0.5), [X, Y])],
    "aten.addcdiv.default": [(lambda x, y: A.addcdiv.default(x, x, y, value=0.5), [X, POSITIVE])],
    "aten.lerp.Scalar": [(lambda x, y: A.lerp.Scalar(x, y, 0.25), [X, Y])],
    "aten.lerp.Tensor": [(lambda x, y: A.lerp.Tensor(x, y, x), [X, Y])],
    "aten._to_copy.default": [(lambda x: A._to_copy.default(torch.arange(6), dtype=torch.float32) * x, [X]),
                              (lambda x: A._to_copy.default(x * 3, dtype=torch.int32), [X]),
                              (lambda x: A._to_copy.default(x > 0, dtype=torch.float32), [X]),
                              (lambda x: x * A._to_copy.default(x > 0, dtype=torch.uint8).int(), [X]),
                              (lambda x: x * A._to_copy.default(x.clamp(-9.5, 9), dtype=torch.int64), [X * 9]),
                              (lambda x, m: x * A._to_copy.default(m, dtype=torch.bool), [X, i64(4, 6)]),
                              (lambda x, m: x * A._to_copy.default(m, dtype=torch.float32), [X, flags(4, 6)])],
    "aten.to.dtype": [(lambda x: A.to.dtype(x * 3, torch.int32), [X])],
    "prims.convert_element_type.default": [(lambda x: torch.ops.prims.convert_element_type.default(x > 0, torch.float32), [X])],
    "aten.tanh_backward.default": [(lambda x, y: A.tanh_backward.default(x, y), [X, Y])],
    "aten.sigmoid_backward.default": [(lambda x, y: A.sigmoid_backward.default(x, y), [X, Y])],
    "aten.threshold_backward.default": [(lambda x, y: A.threshold_backward.default(x, y, 0), [X, Y])],
    "aten.silu_backward.default": [(lambda x, y: A.silu_backward.default(x, y), [X, Y])],
    "aten.gelu_backward.default": [(lambda x, y, a=a: A.gelu_backward.default(x, y, approximate=a), [X, Y])
                                   for a in ("none", "tanh")],
    # views
    "aten.index.Tensor": [(lambda x: A.index.Tensor(x, [torch.arange(3)[:, None], torch.arange(4)[None]]), [X]),
                          (lambda x: A.index.Tensor(x, [N, torch.arange(2) + 1]), [X]),
                          (lambda x: A.index.Tensor(x, [torch.arange(2)[:, None], N, 5 - torch.arange(5)]), [X]),
                          (lambda x: A.index.Tensor(x, [N, torch.arange(9) // 3, torch.arange(9) % 5]), [X])],
    "aten._unsafe_index.Tensor": [(lambda x: A._unsafe_index.Tensor(x, [N, N, torch.arange(12) // 2]), [X])],
    "aten.view.default": [(lambda x: A.view.default(x, [3, -1]), [X]), (lambda x: A.view.default(x, [12, 2, 3]), [X]),
                          (lambda x: A.view.default(x, [2, 9, 4]), [X])],
    "aten._unsafe_view.default": [(lambda x: A._unsafe_view.default(x, [3, 24]), [X])],
    "aten.reshape.default": [(lambda x: A.reshape.default(x, [4, 18]), [X])],
    "aten._reshape_copy.default": [(lambda x: A._reshape_copy.default(x, [72]), [X])],
    "aten.view_copy.default": [(lambda x: A.view_copy.default(x, [3, 24]), [X])],
    "aten.clone.default": [(lambda x: A.clone.default(x), [X])],
    "aten.alias.default": [(lambda x: A.alias.default(x), [X])],
    "aten.detach.default": [(lambda x: A.detach.default(x), [X])],
    "aten.alias_copy.default": [(lambda x: A.alias_copy.default(x), [X])],
    "aten.detach_copy.default": [(lambda x: A.detach_copy.default(x), [X])],
    "aten.contiguous.default": [(lambda x: A.contiguous.default(x), [X])],
    "aten.lift.default": [(lambda x: A.lift.default(x), [X])],
    "aten.lift_fresh_copy.default": [(lambda x: A.lift_fresh_copy.default(x), [X])],
    "aten.permute.default": [(lambda x: A.permute.default(x, [2, 0, -2]), [X])],
    "aten.permute_copy.default": [(lambda x: A.permute_copy.default(x, [2, 0, 1]), [X])],
    "aten.transpose.int": [(lambda x: A.transpose.int(x, 0, -1), [X])],
    "aten.transpose_copy.int": [(lambda x: A.transpose_copy.int(x, 0, -1), [X])],
    "aten.t.default": [(lambda x: A.t.default(x), [M])],
    "aten.expand.default": [(lambda x: A.expand.default(x, [2, -1, 6]), [t(4, 1)])],
    "aten.expand_copy.default": [(lambda x: A.expand_copy.default(x, [2, 4, 6]), [t(4, 1)])],
    "aten.broadcast_to.default": [(lambda x: A.broadcast_to.default(x, [2, 4, 6]), [t(4, 1)])],
    "aten.expand_as.default": [(lambda x, y: A.expand_as.default(x, y), [ROW, X])],
    "aten.unsqueeze.default": [(lambda x, d=d: A.unsqueeze.default(x, d), [X]) for d in (0, -1, 1)],
    "aten.unsqueeze_copy.default": [(lambda x: A.unsqueeze_copy.default(x, 1), [X])],
    "aten.squeeze.default": [(lambda x: A.squeeze.default(x), [t(1, 4, 1)])],
    "aten.squeeze.dim": [(lambda x: A.squeeze.dim(x, 0), [t(1, 4, 1)])],
    "aten.squeeze.dims": [(lambda x: A.squeeze.dims(x, [0, 1]), [t(1, 4, 1)])],
    "aten.squeeze_copy.dims": [(lambda x: A.squeeze_copy.dims(x, [0, 2]), [t(1, 4, 1)])],
    "aten.unflatten.int": [(lambda x: A.unflatten.int(x, 2, [2, -1]), [X])],
    "aten.flatten.using_ints": [(lambda x: A.flatten.using_ints(x, 1), [X])],
    "aten.slice.Tensor": [(lambda x: A.slice.Tensor(x, 2, 1, 5, 2), [X]), (lambda x: A.slice.Tensor(x, 1, -3, -1), [X]),
                          (lambda x: A.slice.Tensor(A.view.default(x, [12, 6]), 0, 5, 9), [X])],
    "aten.slice_copy.Tensor": [(lambda x: A.slice_copy.Tensor(x, 1, 2), [X])],
    "aten.select.int": [(lambda x: A.select.int(x, 1, -1), [X])],
    "aten.select_copy.int": [(lambda x: A.select_copy.int(x, 0, 2), [X])],
    "aten.narrow.default": [(lambda x: A.narrow.default(x, 2, 1, 3), [X])],
    "aten.flip.default": [(lambda x: A.flip.default(x, [0, 2]), [X])],
    "aten.repeat.default": [(lambda x: A.repeat.default(x, [2, 1, 3]), [M])],
    "aten.split_with_sizes.default": [(lambda x: A.split_with_sizes.default(x, [1, 3, 2], 2)[1], [X])],
    "aten.split_with_sizes_copy.default": [(lambda x: A.split_with_sizes_copy.default(x, [1, 3], 1)[1], [X])],
    "aten.split.Tensor": [(lambda x: A.split.Tensor(x, 4, 2)[1], [X])],
    "aten.split_copy.Tensor": [(lambda x: A.split_copy.Tensor(x, 4, 2)[0], [X])],
    "aten.chunk.default": [(lambda x: A.chunk.default(x, 4, 2)[1], [X])],
    "aten.unbind.int": [(lambda x: A.unbind.int(x, 1)[2], [X])],
    "aten.unbind_copy.int": [(lambda x: A.unbind_copy.int(x, 1)[2], [X])],
    "aten.diagonal.default": [(lambda x: A.diagonal.default(x), [t(4, 4)])],
    "aten.diagonal_copy.default": [(lambda x: A.diagonal_copy.default(x, 0, 0, 1), [t(4, 4, 3)])],
    "aten.cat.default": [(lambda x, y: A.cat.default([x, y, x], 1), [X, t(3, 2, 6)]),
                         (lambda x: A.cat.default([-x, x * 2], -1), [X])],
    "aten.stack.default": [(lambda x, y: A.stack.default([x, y], 1), [X, Y])],
    "aten.constant_pad_nd.default": [(lambda x: A.constant_pad_nd.default(x, [1, 2, 0, 1], 3.0), [X])],
    "aten.roll.default": [(lambda x: A.roll.default(x, [2, -1], [2, 0]), [X])],
    "aten.unfold.default": [(lambda x: A.unfold.default(x, 2, 3, 2), [X])],
    # what follows from indices
    "aten.full.default": [(lambda x: x * A.full.default([4, 6], 2.5), [X]),
                          (lambda x: x * A.full.default([6], 3_000_000_000, dtype=torch.float32), [X])],
    "aten.new_full.default": [(lambda x: x * A.new_full.default(x, [4, 6], 2.5), [X])],
    "aten.full_like.default": [(lambda x: x * A.full_like.default(x, 0.5), [X])],
    "aten.scalar_tensor.default": [(lambda x: x * A.scalar_tensor.default(0.5), [X])],
    "aten.zeros.default": [(lambda x: x + A.zeros.default([6]), [X])],
    "aten.zeros_like.default": [(lambda x: x + A.zeros_like.default(x), [X])],
    "aten.new_zeros.default": [(lambda x: x + A.new_zeros.default(x, [6]), [X])],
    "aten.ones.default": [(lambda x: x + A.ones.default([6]), [X])],
    "aten.ones_like.default": [(lambda x: x + A.ones_like.default(x), [X])],
    "aten.new_ones.default": [(lambda x: x + A.new_ones.default(x, [6]), [X])],
    "aten.arange.default": [(lambda x: x + A.arange.default(6), [X])],
    "aten.arange.start": [(lambda x: x + A.arange.start(2, 8), [X])],
    "aten.arange.start_step": [(lambda x: x + A.arange.start_step(2, 14, 2), [X])],
    "prims.iota.default":
    [(lambda x: x + torch.ops.prims.iota.default(6, start=1, step=2, dtype=torch.int64, device="cpu", requires_grad=False), [X])
     ],
    "aten.eye.default": [(lambda x: x * A.eye.default(4), [t(3, 4, 4)])],
    "aten.eye.m": [(lambda x: x * A.eye.m(4, 6), [X])],
    "aten.tril.default": [(lambda x: A.tril.default(x, 1), [X]), (lambda x: x * A.tril.default(A.ones.default([4, 6])), [X])],
    "aten.triu.default": [(lambda x: A.triu.default(x, -1), [X]), (lambda x: x * A.triu.default(under(4, 6), 1), [X])],
    # reductions
    "aten.sum.default": [(lambda x: A.sum.default(x), [X]), (lambda x: x / A.sum.default(torch.arange(6)), [X])],
    "aten.sum.dim_IntList": [(lambda x: A.sum.dim_IntList(x, [0, -1], True), [X]),
                             (lambda x: A.sum.dim_IntList(x, [1], dtype=torch.int32), [i32(3, 4)]),
                             (lambda x: A.sum.dim_IntList(x, [0]), [t()])],
    "aten.mean.default": [(lambda x: A.mean.default(x), [X])],
    "aten.mean.dim": [(lambda x: A.mean.dim(x, [1]), [X])],
    "aten.amax.default": [(lambda x: A.amax.default(x, [-1], True), [X])],
    "aten.amin.default": [(lambda x: A.amin.default(x, [0, 1]), [X])],
    "aten.max.default": [(lambda x: A.max.default(x), [X])],
    "aten.min.default": [(lambda x: A.min.default(x), [X])],
    "aten.max.dim": [(lambda x: A.max.dim(x, 1)[0], [X])],
    "aten.min.dim": [(lambda x: A.min.dim(x, 1, True)[0], [X])],
    "aten.aminmax.default": [(lambda x: A.aminmax.default(x, dim=1)[1], [X])],
    "aten.prod.default": [(lambda x: A.prod.default(x), [POSITIVE])],
    "aten.prod.dim_int": [(lambda x: A.prod.dim_int(x, 1), [X])],
    "aten.any.default": [(lambda x: A.any.default(x > 3), [X])],
    "aten.any.dim": [(lambda x: A.any.dim(x > 1, 1), [X])],
    "aten.any.dims": [(lambda x: A.any.dims(x > 1, [0, 1]), [X])],
    "aten.all.default": [(lambda x: A.all.default(x > -9), [X])],
    "aten.all.dim": [(lambda x: A.all.dim(x < 1, 1, True), [X])],
    "aten.all.dims": [(lambda x: A.all.dims(x < 1, [1]), [X])],
    "aten.var.correction": [(lambda x, c=c: A.var.correction(x, [1], correction=c), [X]) for c in (0, 1, 2.5, 4, 7)],
    "aten.std.correction": [(lambda x: A.std.correction(x, [-1], keepdim=True), [X])],
    "aten.var_mean.correction": [(lambda x: sum(A.var_mean.correction(x, [2], correction=0)), [X])],
    "aten.linalg_vector_norm.default": [(lambda x, o=o: A.linalg_vector_norm.default(x, o, [-1]), [X])
                                        for o in (1, 2, float("inf"))],
    "aten.logsumexp.default": [(lambda x: A.logsumexp.default(x, [1]), [X])],
    "aten.cumsum.default": [(lambda x: A.cumsum.default(x * 2, 1), [X]),
                            (lambda x: x + A.cumsum.default(torch.ones(4, 6, dtype=torch.int64), 0), [X]),
                            (lambda x: x + A.cumsum.default(torch.full((6,), 0.5), 0), [X]),
                            (lambda x: x + A.cumsum.default(torch.ones(6, dtype=torch.bool), 0), [X]),
                            (lambda x: A.cumsum.default(x, 0), [t()])],
    "aten.cumprod.default": [(lambda x: A.cumprod.default(x, -1), [X])],
    # products
    "aten.mm.default": [(lambda x, y: A.mm.default(x, y), [M, K])],
    "aten.bmm.default": [(lambda x, y: A.bmm.default(x, y), [X, t(3, 6, 5)])],
    "aten.mv.default": [(lambda x, y: A.mv.default(x, y), [M, ROW])],
    "aten.dot.default": [(lambda x, y: A.dot.default(x, y), [ROW, t(6, seed=4)])],
    "aten.vdot.default": [(lambda x, y: A.vdot.default(x, y), [ROW, t(6, seed=4)])],
    "aten.addmm.default": [(lambda x, y, z: A.addmm.default(z, x, y, beta=0.5, alpha=2), [M, K, t(5)]),
                           (lambda x, y, z: A.addmm.default(z, x, y, beta=0), [M, K, t(5)])],
    "aten.addmv.default": [(lambda x, y, z: A.addmv.default(z, x, y), [M, ROW, t(4)])],
    "aten.baddbmm.default": [(lambda x, y, z: A.baddbmm.default(z, x, y), [X, t(3, 6, 5), t(3, 4, 5)])],
    "aten.addbmm.default": [(lambda x, y, z: A.addbmm.default(z, x, y), [X, t(3, 6, 5), t(4, 5)])],
    "aten.linear.default": [(lambda x, w, b: A.linear.default(x, w, b), [X, W, t(5)]),
                            (lambda x, w: A.linear.default(x, w), [ROW, W])],
    "aten.matmul.default": [(lambda x, y: A.matmul.default(x, y), [Q, KEY.mT.contiguous()]),
                            (lambda x, y: A.matmul.default(x, y), [X, ROW]),
                            (lambda x, y: A.matmul.default(x, y), [ROW, t(3, 6, 5)]),
                            (lambda x, y: A.matmul.default(x, y), [X, K])],
    "aten.einsum.default": [(lambda x, y: A.einsum.default("bij, bkj -> ikb", [x, y]), [X, t(3, 5, 6)])],
    # definitions
    "aten._softmax.default": [(lambda x: A._softmax.default(x * 2, 1, False), [X])],
    "aten.softmax.int": [(lambda x: A.softmax.int(x, -1), [X]), (lambda x: A.softmax.int(x, 0), [t()])],
    "aten._safe_softmax.default": [
        (lambda x: A._safe_softmax.default(A.where.ScalarOther(torch.arange(4)[:, None] > 1, x, float("-inf")), -1), [X])
    ],
    "aten._log_softmax.default": [(lambda x: A._log_softmax.default(x, -1, False), [X])],
    "aten.log_softmax.int": [(lambda x: A.log_softmax.int(x, 0), [X])],
    "aten._softmax_backward_data.default": [(lambda x, y: A._softmax_backward_data.default(x, y, -1, torch.float32), [X, Y])],
    "aten._log_softmax_backward_data.default": [
        (lambda x, y: A._log_softmax_backward_data.default(x, y, -1, torch.float32), [X, Y])
    ],
    "aten.native_layer_norm.default":
    [(lambda x, w, b, k=k: A.native_layer_norm.default(x, [6], w, b, 2**-17)[k], [X, ROW, t(6, seed=9)])
     for k in range(3)] + [(lambda x: A.native_layer_norm.default(x, [4, 6], N, N, 2**-17)[0], [X])],
    "aten.layer_norm.default": [(lambda x, w: A.layer_norm.default(x, [6], w), [X, ROW])],
    "aten.rms_norm.default": [(lambda x, w: A.rms_norm.default(x, [6], w, 2**-17), [X, ROW])],
    "aten._fused_rms_norm.default": [(lambda x, w, k=k: A._fused_rms_norm.default(x, [6], w, 2**-17)[k], [X, ROW])
                                     for k in range(2)],
    "aten.native_group_norm.default": [
        (lambda x, w, b, k=k: A.native_group_norm.default(x, w, b, 3, 4, 6, 2, 2**-17)[k], [X, t(4), t(4, seed=3)])
        for k in range(3)
    ],
    "aten._native_batch_norm_legit_no_training.default": [
        (lambda x, w, b, m, v: A._native_batch_norm_legit_no_training.default(x, w, b, m, v, 0.1, 2**-17)[0],
         [X, t(4), t(4, seed=1), t(4, seed=2), t(4, low=0.5)])
    ],
    "aten.native_layer_norm_backward.default": [
        (lambda g, x, w, k=k: A.native_layer_norm_backward.default(g, x, [6], x.mean(
            -1, True), torch.rsqrt(A.var.correction(x, [-1], keepdim=True) + 1), w, w, [True, True, True])[k], [Y, X, ROW])
        for k in range(3)
    ],
    "aten.scaled_dot_product_attention.default": [
        (lambda q, k, v: A.scaled_dot_product_attention.default(q, k, v), [Q, KEY, VALUE]),
        (lambda q, k, v: A.scaled_dot_product_attention.default(q, k, v, is_causal=True, scale=0.5), [Q, KEY, VALUE]),
        (lambda q, k, v, m: A.scaled_dot_product_attention.default(q, k, v, m), [Q, KEY, VALUE, t(4, 5, 7)]),
        (lambda q, k, v, m: A.scaled_dot_product_attention.default(q, k, v, m), [Q, KEY, VALUE, HIDING]),
        (lambda q, k, v, m: A.scaled_dot_product_attention.default(q, k, v, m), [Q, KEY, VALUE, torch.full((5, 7), -1e33)]),
        (lambda q, k, v: A.scaled_dot_product_attention.default(
            q, k, v, torch.where(torch.arange(7)[None] < torch.arange(5)[:, None], 0.0, torch.finfo(torch.float32).min)),
         [Q, KEY, VALUE]),
        (lambda q, k, v: A.scaled_dot_product_attention.default(q, k, v, under(5, 7)), [Q, KEY, VALUE]),
        (lambda q, k, v: A.scaled_dot_product_attention.default(q, k, v,
                                                                torch.arange(7)[None] < torch.arange(5)[:, None]),
         [Q, KEY, VALUE]),
        (lambda q, k, v: A.scaled_dot_product_attention.default(q, k, v, enable_gqa=True),
         [Q, KEY[:, :2].contiguous(), VALUE[:, :2].contiguous()])
    ],
    "aten._scaled_dot_product_flash_attention_for_cpu.default": [
        (lambda q, k, v, n=n, c=c: A._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0, c)[n], [Q, KEY, VALUE])
        for n in range(2) for c in (False, True)
    ] + [(lambda q, k, v, m, n=n: A._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, attn_mask=m)[n],
          [Q, KEY, VALUE, HIDING]) for n in range(2)],
    "aten._scaled_dot_product_flash_attention.default": [
        (lambda q, k, v: A._scaled_dot_product_flash_attention.default(q, k, v, 0.0, True)[0], [Q, KEY, VALUE])
    ],
    "aten._scaled_dot_product_efficient_attention.default":
    [(lambda q, k, v, m: A._scaled_dot_product_efficient_attention.default(q, k, v, m, True)[0], [Q, KEY, VALUE,
                                                                                                  t(2, 4, 5, 7)])],
    "aten._scaled_dot_product_cudnn_attention.default": [
        (lambda q, k, v: A._scaled_dot_product_cudnn_attention.default(q, k, v, N, True)[0], [Q, KEY, VALUE]),
        (lambda q, k, v: A._scaled_dot_product_cudnn_attention.default(
            q, k, v,
            torch.where(torch.arange(7)[None] <= torch.arange(5)[:, None], 0.0, -65504.0).expand(2, 4, 5, 7), True)[0],
         [Q, KEY, VALUE])
    ],
    "aten._scaled_dot_product_fused_attention_overrideable.default": [
        (lambda q, k, v: A._scaled_dot_product_fused_attention_overrideable.default(q, k, v)[0], [Q, KEY, VALUE])
    ],
    "prims.inductor_random.default": [
        (lambda x, seed: x * torch.ops.prims.inductor_random.default([3, 4, 6], seed, "rand"), [X, torch.tensor(7**22)]),
        (lambda x, seed: x * (torch.ops.prims.inductor_random.default([6, 1], seed, "rand") > 0.5), [t(6, 5), torch.tensor(3)])
    ],
}


def _floats(function):
    return lambda *inputs: function(*inputs).float()


# What no nest says exactly: (op, function, inputs). PyTorch computes the op.
REFUSED = [
    ("aten.remainder.Scalar", lambda x: x % 0.1, [X]),
    ("aten.remainder.Tensor", lambda x, y: torch.remainder(x, y), [X, POSITIVE]),
    ("aten.div.Tensor_mode", lambda x, y: torch.div(x, y, rounding_mode="floor"), [X, POSITIVE]),
    ("aten.div.Tensor_mode", lambda x, y: torch.div(x, y, rounding_mode="trunc"), [i32(3, 4), i32(3, 4).abs() + 1]),
    ("aten.div.Scalar_mode", lambda x: A.div.Scalar_mode(x, -2**31, rounding_mode="trunc"), [i32(3, 4)]),
    ("aten.log2.default", lambda x: x.log2().floor(), [POSITIVE]),
    ("aten.log10.default", lambda x: x.log10().floor(), [POSITIVE]),
    ("aten.erfc.default", torch.erfc, [X]),
    ("aten.pow.Tensor_Scalar", lambda x: x**9, [i32(3, 4)]),
    ("aten.pow.Scalar", lambda x: 3**x, [i32(3, 4).abs()]),
    ("aten.pow.Tensor_Tensor", torch.pow, [i32(3, 4), i32(4).abs()]),
    ("aten._to_copy.default", _floats(lambda x: x.to(torch.uint8)), [i32(3, 4)]),
    ("aten._to_copy.default", _floats(lambda x: x.to(torch.int8)), [X]),
    ("aten._to_copy.default", lambda x: x + (torch.arange(6) * 100).to(torch.uint8), [X]),
    ("aten._to_copy.default", _floats(lambda x: x.to(torch.int64)), [X]),
    ("aten._to_copy.default", lambda m: m.float(), [i64(4, 6)]),
    ("aten._to_copy.default", lambda m: m.to(torch.int32), [i64(4, 6)]),
    ("aten._to_copy.default", lambda m: m.clamp(max=5).to(torch.int32), [i64(4, 6)]),
    ("aten.mul.Tensor", lambda x: x + (torch.arange(70000)[-6:] * 70000).float(), [X]),
    ("aten.ne.Tensor", lambda d: d[:, None] != d[None], [i64(6)]),
    ("aten.lt.Tensor", lambda d, x: d < x, [i64(6), i32(6)]),
    ("aten.eq.Scalar", lambda d: d == 2**31 - 1, [i64(6)]),
    ("aten.lt.Scalar", lambda d: d < 2**40, [i64(6)]),
    ("aten.sum.dim_IntList", lambda d: d.sum(-1, dtype=torch.float32), [i64(4, 6)]),
    ("aten.amax.default", _floats(lambda d: d.amax(-1)), [i64(4, 6)]),
    ("aten.div.Tensor", lambda x, n: x / n, [X, torch.tensor(3)]),
    ("aten.sum.default", lambda x: x / torch.arange(70000).sum(), [X]),
    ("aten.any.dims", lambda x: A.any.dims(x > 0, []), [X]),
    ("aten.all.dims", lambda x: A.all.dims(x > 0, []), [X]),
]


def _attention(*operands, **options):
    """The result, and nothing for what else these ops give."""
    return (A.scaled_dot_product_attention.default(*operands, **options), *[None] * 8)


# What a CPU cannot run, in terms of what it can.
REPLACED = {
    "aten._scaled_dot_product_flash_attention.default":
    lambda q, k, v, dropout=0.0, causal=False: _attention(q, k, v, is_causal=causal),
    "aten._scaled_dot_product_efficient_attention.default":
    lambda q, k, v, mask, lse: _attention(q, k, v, mask),
    "aten._scaled_dot_product_cudnn_attention.default":
    lambda q, k, v, mask, lse: _attention(q, k, v, mask),
    "aten._scaled_dot_product_fused_attention_overrideable.default":
    _attention,
    "prims.inductor_random.default": uniform,
}
