"""What follows from indices alone: ranges, constants, triangles. Comparisons of them are conditions that isl understands."""

import sympy
import torch

from ...nests.affine import Affine
from ...nests.values import constant, from_affine, from_condition, select
from .extents import Unsupported, atoms_of, expression, is_one
from .lazy import Lazy, conform
from .table import op


def filled(context, shape, value, dtype):
    """A tensor whose elements are all a number, or a size."""
    number = context.value(value)
    dims = tuple(atoms_of(extent) for extent in shape)
    return Lazy(dims, dtype, lambda indices: conform(number, dtype), 0, False)


@op("aten.full.default", "aten.new_full.default", kind="index")
def full(context, *args, **_):
    shape, value = args[-2:]
    return filled(context, shape, value, context.dtype)


@op("aten.full_like.default", kind="index")
def full_like(context, x, value, **_):
    return Lazy(x.dims, context.dtype, lambda indices, number=context.value(value): conform(number, context.dtype), 0, False)


@op("aten.scalar_tensor.default", kind="index")
def scalar_tensor(context, value, **_):
    return filled(context, (), value, context.dtype)


@op("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", kind="index")
def zeros(context, *args, **_):
    return filled(context, context.shape, 0, context.dtype)


@op("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", kind="index")
def ones(context, *args, **_):
    return filled(context, context.shape, 1, context.dtype)


@op("aten.arange.start_step", "aten.arange.start", "aten.arange.default", kind="index", note="integers, constant steps")
def arange(context, *args, **_):
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if not all(isinstance(each, int) or not isinstance(each, float) for each in (start, step)) or not isinstance(step, int):
        raise Unsupported("arange with a step that is no constant integer, or a start that is none")
    first = context.symbols.affine(expression(start))
    extent = context.shape[0]

    def element(indices):
        index = indices[0] if indices else Affine((), 0)
        return conform(from_affine(first + index * step), context.dtype)

    return Lazy(((),) if is_one(extent) else ((sympy.expand(extent),),), context.dtype, element, 0, False)


@op("prims.iota.default", kind="index", note="constant steps")
def iota(context, length, *, start, step, **_):
    return arange(context, start, None, step)


def counted(context, x, dim):
    """The running sum along a dim of a tensor that is one number there: its place times that, plus it. None for others."""
    place = x.flat(dim)
    if x.data or len(place) != 1:
        return None
    number = x.probe()
    if number.type == "bool":
        number = select(number, constant(1), constant(0))
    if number.op != "constant":
        return None

    def element(indices):
        count = indices[place.start] + 1
        if float(number.payload).is_integer() and abs(number.payload) < 2**24:
            return conform(from_affine(count * int(number.payload)), context.dtype)
        return conform(from_affine(count), context.dtype) * number

    return Lazy(x.dims, context.dtype, element, 0, False)


@op("aten.eye.default", "aten.eye.m", kind="index")
def eye(context, *args, **_):
    dims = tuple(() if is_one(extent) else (extent,) for extent in context.shape)

    def element(indices):
        row, column = _two(dims, indices)
        return conform(select(from_condition(row.equals(column)), constant(1), constant(0)), context.dtype)

    return Lazy(dims, context.dtype, element, 0, False)


def _two(dims, indices):
    row = indices[0] if dims[0] else Affine((), 0)
    return row, indices[len(dims[0])] if dims[1] else Affine((), 0)


def _triangle(context, x, diagonal, lower):
    for atoms in x.dims[-2:]:
        if len(atoms) > 1:
            raise Unsupported("a triangle of a dim that merges symbols")

    def element(indices):
        row, column = _two(x.dims[-2:], indices[len(indices) - len(x.dims[-1]) - len(x.dims[-2]):])
        kept = column <= row + diagonal if lower else column >= row + diagonal
        value = x.element(indices)
        if x.dtype == torch.bool:
            return value & from_condition(kept)
        return select(from_condition(kept), conform(value, x.dtype), conform(constant(0), x.dtype), False)

    return Lazy(x.dims, x.dtype, element, x.cost, x.data)


@op("aten.tril.default", kind="index", note="constant diagonals; of data, a choice by a condition on the index")
def tril(context, x, diagonal=0):
    return _triangle(context, x, diagonal, True)


@op("aten.triu.default", kind="index", note="constant diagonals; of data, a choice by a condition on the index")
def triu(context, x, diagonal=0):
    return _triangle(context, x, diagonal, False)
