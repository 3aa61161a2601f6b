"""Reductions over dims, and running sums."""

import math

import torch

from ...nests.values import absolute, as_type, constant, exp, log, maximum, select, sqrt
from .exact import HIGH, range_of
from .extents import Unsupported, variable
from .lazy import FLOATS, Lazy, as_number, conform, pointwise
from .predicates import counted
from .table import op


def over(x, dims):
    """The dims that PyTorch means: none given are all."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(len(x.dims)))
    return list(dims) if isinstance(dims, (list, tuple)) else [dims]


def with_dtype(x, dtype):
    return Lazy(x.dims, dtype, lambda indices: conform(as_number(x.element(indices)), dtype), x.cost, x.data)


def reduce(context, how, x, dims, keep, name=None, dtype=None):
    """A reduction as a Lazy of the result's type."""
    dtype = dtype or context.dtype
    found = context.builder.reduced(how, with_dtype(x, dtype if dtype != torch.bool else torch.int32), over(x, dims), keep,
                                    name or context.name)
    return Lazy(found.dims, dtype, lambda indices: conform(found.element(indices), dtype), 0, True, found.leaf)


def scaled(context, x, function, dtype=None):
    """A function of each element, as a Lazy."""
    return pointwise(function, [x], dtype or context.dtype, context.builder, context.name)


def mean_of(context, x, dims, keep, name):
    """The sum divided by the number of elements."""
    dims = over(x, dims)
    total = reduce(context, "add", x, dims, keep, f"{name}_sum", torch.float32)
    count = context.builder.count(x.atoms_along(dims))
    return scaled(context, total, lambda value: value / count, torch.float32)


def deviations(context, x, dims, name):
    """(x minus its mean, the mean), with the dims kept as 1 in the latter."""
    mean = context.builder.cheap(mean_of(context, x, dims, True, name), f"{name}_mean")
    return pointwise(lambda a, m: a - m, [x, mean], torch.float32, context.builder, name), mean


def squares(context, x):
    return Lazy(x.dims, torch.float32, lambda indices: _square(x.element(indices)), x.cost, x.data)


def _square(value):
    value = as_type(value, "f32")
    return value * value


@op("aten.sum.dim_IntList", "aten.sum.default", kind="reduction", note="floats and i32")
def sum_(context, x, dims=None, keep=False, **_):
    if context.dtype not in (*FLOATS, torch.int32) and (x.data or not _sum_fits(context, x, over(x, dims))):
        raise Unsupported("sums of 64-bit integers")
    return reduce(context, "add", x, dims, keep)


def _sum_fits(context, x, dims):
    """Whether sums of integers that follow from indices plainly fit in 32 bits; of ones along a dim, they do."""
    at = {f"?{number}": extent for number, extent in enumerate(context.builder.extents(x.atoms))}
    low, high = range_of(as_number(x.probe()), at)
    atoms = x.atoms_along(dims)
    most = max(-low, high) * math.prod(int(atom) for atom in atoms if atom.is_Integer)
    symbolic = sum(not atom.is_Integer for atom in atoms)
    return most <= HIGH if not symbolic else most <= 1 and symbolic == 1


@op("aten.mean.dim", "aten.mean.default", kind="reduction")
def mean(context, x, dims=None, keep=False, **_):
    return mean_of(context, x, dims, keep, context.name)


@op("aten.amax.default", "aten.max.default", kind="reduction")
def amax(context, x, dims=None, keep=False):
    return reduce(context, "max", x, dims, keep)


@op("aten.amin.default", "aten.min.default", kind="reduction")
def amin(context, x, dims=None, keep=False):
    return reduce(context, "min", x, dims, keep)


@op("aten.max.dim", kind="reduction", note="values alone, not their places")
def max_dim(context, x, dim, keep=False):
    return reduce(context, "max", x, [dim], keep, dtype=context.dtypes[0]), Unsupported("the place of a maximum")


@op("aten.min.dim", kind="reduction", note="values alone, not their places")
def min_dim(context, x, dim, keep=False):
    return reduce(context, "min", x, [dim], keep, dtype=context.dtypes[0]), Unsupported("the place of a minimum")


@op("aten.aminmax.default", kind="reduction")
def aminmax(context, x, *, dim=None, keepdim=False):
    return tuple(reduce(context, how, x, dim, keepdim, f"{context.name}_{how}", context.dtypes[0]) for how in ("min", "max"))


@op("aten.prod.dim_int", "aten.prod.default", kind="reduction", note="floats and i32")
def prod(context, x, dim=None, keep=False, **_):
    if context.dtype not in (*FLOATS, torch.int32):
        raise Unsupported("products of 64-bit integers")
    return reduce(context, "mul", x, dim, keep)


@op("aten.any.default", "aten.any.dim", "aten.any.dims", kind="reduction")
def any_(context, x, dim=None, keep=False):
    return _of_conditions(context, "max", x, dim, keep)


@op("aten.all.default", "aten.all.dim", "aten.all.dims", kind="reduction")
def all_(context, x, dim=None, keep=False):
    return _of_conditions(context, "min", x, dim, keep)


def _of_conditions(context, how, x, dim, keep):
    """An empty one of maxima is false and of minima true, as i32 compared with 0."""
    if isinstance(dim, (list, tuple)) and not dim:
        raise Unsupported("any and all over no dim, which reduce nothing")
    marks = Lazy(x.dims, torch.int32, lambda indices: as_number(as_type(x.element(indices), "bool")), x.cost, x.data)
    found = context.builder.reduced(how, marks, over(x, dim), keep, context.name)
    return Lazy(found.dims, torch.bool, lambda indices: found.element(indices) > 0, 0, True)


def variance(context, x, dims, correction, keep, name):
    """(variance, mean) in two passes."""
    dims = over(x, dims)
    centred, average = deviations(context, x, dims, name)
    total = reduce(context, "add", squares(context, centred), dims, keep, f"{name}_squares", torch.float32)
    count = _left_of(context.builder.count(x.atoms_along(dims)), 1 if correction is None else correction)
    return scaled(context, total, lambda value: value / count, torch.float32), average


def _left_of(count, correction):
    """The number of elements without the correction, at least 0; there is one element at least."""
    found = count - correction if correction else count
    return found if correction <= 1 else constant(max(0.0, count.payload - correction)) if count.op == "constant" else maximum(
        found, 0.0)


@op("aten.var.correction", kind="reduction")
def var(context, x, dims=None, *, correction=None, keepdim=False):
    return variance(context, x, dims, correction, keepdim, context.name)[0]


@op("aten.std.correction", kind="reduction")
def std(context, x, dims=None, *, correction=None, keepdim=False):
    return scaled(context, variance(context, x, dims, correction, keepdim, context.name)[0], sqrt)


@op("aten.var_mean.correction", kind="reduction")
def var_mean(context, x, dims=None, *, correction=None, keepdim=False):
    found, average = variance(context, x, dims, correction, keepdim, context.name)
    if keepdim:
        return found, average
    gone = {x.dim(dim) for dim in over(x, dims)}
    left = tuple(dim for number, dim in enumerate(average.dims) if number not in gone)
    return found, average.mapped(left, [variable(number) for number in range(len(average.atoms))])


@op("aten.linalg_vector_norm.default", kind="reduction", note="orders 1, 2, inf")
def vector_norm(context, x, order=2, dims=None, keep=False, **_):
    if order == 2:
        return scaled(context, reduce(context, "add", squares(context, x), dims, keep, None, torch.float32), sqrt)
    magnitudes = Lazy(x.dims, torch.float32, lambda indices: absolute(as_type(x.element(indices), "f32")), x.cost, x.data)
    if order in (1, float("inf")):
        return reduce(context, "add" if order == 1 else "max", magnitudes, dims, keep)
    raise Unsupported(f"a vector norm of order {order}")


@op("aten.logsumexp.default", kind="reduction")
def logsumexp(context, x, dims, keep=False):
    largest = _finite(context, reduce(context, "max", x, dims, True, f"{context.name}_max", torch.float32))
    powers = pointwise(lambda a, m: exp(a - m), [x, largest], torch.float32, context.builder, context.name)
    total = reduce(context, "add", powers, dims, True, f"{context.name}_sum", torch.float32)
    found = pointwise(lambda s, m: log(s) + m, [total, largest], context.dtype, context.builder, context.name)
    if keep:
        return found
    gone = {x.dim(dim) for dim in over(x, dims)}
    return found.mapped([atoms for dim, atoms in enumerate(found.dims) if dim not in gone],
                        [variable(k) for k in range(len(found.atoms))])


def _finite(context, x):
    """0 in place of infinities, as logsumexp takes its reference."""
    shifted = pointwise(lambda m: select(absolute(m) == float("inf"), 0.0, m), [x], torch.float32, context.builder, context.name)
    return context.builder.cheap(shifted, f"{context.name}_reference")


@op("aten.cumsum.default", kind="reduction", note="floats, a dim of one atom; of ones and the like, an index")
def cumsum(context, x, dim, **_):
    found = counted(context, x, x.dim(dim))
    return _running(context, "add", x, dim) if found is None else found


@op("aten.cumprod.default", kind="reduction", note="floats; a dim of one atom")
def cumprod(context, x, dim, **_):
    return _running(context, "mul", x, dim)


def _running(context, how, x, dim):
    """The reduction of all elements up to each one: a triangular domain."""
    dim = x.dim(dim)
    if context.dtype not in FLOATS:
        raise Unsupported("running sums of integers")
    if len(x.flat(dim)) > 1:
        raise Unsupported("a running sum along a dim that merges symbols")
    if not x.flat(dim):
        return with_dtype(x, context.dtype)
    x = context.builder.cheap(with_dtype(x, context.dtype), f"{context.name}_x")
    place = x.flat(dim).start
    outer = context.builder.indices(x.atoms, "d")
    inner = context.builder.indices([x.atoms[place]], "r")
    at = [index.affine for index in outer]
    at[place] = inner[0].affine
    value = as_type(x.element(tuple(at)), "f32")
    tensor = context.builder.sum_of(how, value, outer, inner, x.dims, context.dtype, context.name,
                                    where=inner[0].affine <= outer[place].affine)
    return tensor
