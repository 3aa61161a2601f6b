"""Views: ops whose elements are those of their operand at other indices. They are no statements."""

import sympy

from ...nests.affine import Affine, both
from ...nests.values import from_condition, select
from .extents import Unsupported, expression, is_one, product, quotient, variable
from .lazy import Lazy, aligned, conform, expanded
from .table import op

_FAR = 1 << 62  # what an end of a slice is where there is none


def whole(shape, lazy):
    """A shape in which -1 stands for what is left."""
    shape = [expression(extent) for extent in shape]
    if -1 not in shape:
        return shape
    rest = quotient(product(lazy.shape), product([extent for extent in shape if extent != -1]))
    if rest is None:
        raise Unsupported(f"a view to {shape} does not keep the number of elements")
    return [rest if extent == -1 else extent for extent in shape]


@op("aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten._reshape_copy.default",
    "aten.view_copy.default",
    kind="view",
    note="dims that merge symbols are split where they were merged; others where the inner extent is constant")
def view(context, x, shape):
    return x.reshaped(whole(shape, x))


@op("aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.contiguous.default", "aten.lift_fresh_copy.default",
    "aten.alias_copy.default", "aten.detach_copy.default", "aten.lift.default", kind="view")
def same(context, x, **_):
    return x


@op("aten.permute.default", "aten.permute_copy.default", kind="view")
def permute(context, x, order):
    return x.permuted(order)


@op("aten.transpose.int", "aten.transpose_copy.int", kind="view")
def transpose(context, x, first, second):
    order = list(range(len(x.dims)))
    if order:
        first, second = x.dim(first), x.dim(second)
        order[first], order[second] = second, first
    return x.permuted(order)


@op("aten.t.default", kind="view")
def t(context, x):
    return x.permuted(list(reversed(range(len(x.dims)))))


@op("aten.expand.default", "aten.expand_copy.default", "aten.broadcast_to.default", kind="view")
def expand(context, x, shape, **_):
    return expanded(x, shape)


@op("aten.expand_as.default", kind="view")
def expand_as(context, x, other):
    return expanded(x, other.shape)


@op("aten.unsqueeze.default", "aten.unsqueeze_copy.default", kind="view")
def unsqueeze(context, x, dim):
    dim = dim % (len(x.dims) + 1)
    return x.mapped((*x.dims[:dim], (), *x.dims[dim:]), _identity(x))


@op("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze_copy.dims", kind="view")
def squeeze(context, x, dims=None):
    dims = range(len(x.dims)) if dims is None else dims if isinstance(dims, (list, tuple)) else [dims]
    gone = {x.dim(dim) for dim in dims}
    return x.mapped([atoms for dim, atoms in enumerate(x.dims) if atoms or dim not in gone], _identity(x))


def _identity(x):
    return [variable(k) for k in range(len(x.atoms))]


@op("aten.unflatten.int", kind="view")
def unflatten(context, x, dim, sizes):
    dim = x.dim(dim)
    inner = Lazy((x.dims[dim],), x.dtype, x.element)
    return x.reshaped([*x.shape[:dim], *whole(sizes, inner), *x.shape[dim + 1:]])


@op("aten.flatten.using_ints", kind="view")
def flatten(context, x, start=0, end=-1):
    start, end = x.dim(start), x.dim(end)
    return x.reshaped([*x.shape[:start], product(x.shape[start:end + 1]), *x.shape[end + 1:]])


def _bounded(context, position, extent, default):
    """A start or end of a slice as PyTorch takes it: negative from the end, and no further than the extent."""
    if position is None:
        return sympy.Integer(default) if isinstance(default, int) else default
    position = expression(position)
    if not position.is_Integer:
        return position
    if position >= _FAR:
        return extent
    if extent.is_Integer:
        position = position + extent if position < 0 else position
        return min(max(position, sympy.Integer(0)), extent)
    return position + extent if position < 0 else position


@op("aten.slice.Tensor", "aten.slice_copy.Tensor", kind="view", note="constant steps")
def slice_(context, x, dim=0, start=None, end=None, step=1):
    dim = x.dim(dim)
    extent = x.shape[dim]
    start, end = _bounded(context, start, extent, 0), _bounded(context, end, extent, extent)
    if start == 0 and end == extent and step == 1:
        return x
    return _part(context, x, dim, start, context.length(dim), int(step))


def _part(context, x, dim, start, length, step=1):
    """Some places of a dim; that they are there is a condition on sizes."""
    first, count = context.symbols.affine(start), context.symbols.affine(length)
    for form in (first, count - 1, context.symbols.affine(x.shape[x.dim(dim)]) - 1 - first - (count - 1) * step):
        context.builder.require(form)
    return x.indexed(dim, length, lambda index: first + index * step)


@op("aten.select.int", "aten.select_copy.int", kind="view")
def select_(context, x, dim, index):
    dim = x.dim(dim)
    position = context.symbols.affine(expression(index))
    if position.is_constant and position.constant < 0:
        position = position + context.symbols.affine(x.shape[dim])
    context.builder.require(position)
    context.builder.require(context.symbols.affine(x.shape[dim]) - 1 - position)
    return squeeze(context, x.indexed(dim, sympy.Integer(1), lambda _: position), dim)


@op("aten.narrow.default", kind="view")
def narrow(context, x, dim, start, length):
    return _part(context, x, dim, expression(start), expression(length))


@op("aten.flip.default", kind="view")
def flip(context, x, dims):
    for dim in dims:
        last = context.symbols.affine(x.shape[x.dim(dim)]) - 1
        x = x.indexed(dim, x.shape[x.dim(dim)], lambda index, last=last: last - index)
    return x


@op("aten.repeat.default", kind="view")
def repeat(context, x, times):
    dims = len(times)
    x = x.reshaped([sympy.Integer(1)] * (dims - len(x.dims)) + list(x.shape))
    split = [extent for number, extent in zip(times, x.shape) for extent in (sympy.Integer(1), extent)]
    spread = [extent for number, extent in zip(times, x.shape) for extent in (expression(number), extent)]
    return expanded(x.reshaped(split), spread).reshaped([expression(number) * extent for number, extent in zip(times, x.shape)])


@op("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default", kind="view")
def split_with_sizes(context, x, sizes, dim=0):
    parts, start = [], sympy.Integer(0)
    for size in sizes:
        parts.append(narrow(context, x, dim, start, size))
        start = start + expression(size)
    return tuple(parts)


@op("aten.split.Tensor", "aten.split_copy.Tensor", kind="view", note="constant extents")
def split(context, x, size, dim=0):
    extent = x.shape[x.dim(dim)]
    if not extent.is_Integer:
        raise Unsupported("how many parts a split has depends on a size")
    sizes = [min(size, int(extent) - start) for start in range(0, int(extent), size)]
    return split_with_sizes(context, x, sizes, dim)


@op("aten.chunk.default", kind="view", note="constant extents")
def chunk(context, x, chunks, dim=0):
    extent = x.shape[x.dim(dim)]
    if not extent.is_Integer:
        raise Unsupported("how many parts a chunk has depends on a size")
    return split(context, x, -(-int(extent) // chunks), dim)


@op("aten.unbind.int", "aten.unbind_copy.int", kind="view", note="constant extents")
def unbind(context, x, dim=0):
    extent = x.shape[x.dim(dim)]
    if not extent.is_Integer:
        raise Unsupported("how many parts an unbind has depends on a size")
    return tuple(select_(context, x, dim, number) for number in range(int(extent)))


@op("aten.diagonal.default", "aten.diagonal_copy.default", kind="view", note="of equal extents, on the main diagonal")
def diagonal(context, x, offset=0, dim1=0, dim2=1):
    first, second = x.dim(dim1), x.dim(dim2)
    if offset or x.dims[first] != x.dims[second] or len(x.dims[first]) != 1:
        raise Unsupported("a diagonal that is not the main one of a square")
    order = [dim for dim in range(len(x.dims)) if dim not in (first, second)] + [first, second]
    turned = x.permuted(order)
    forms = _identity(turned)
    return turned.mapped(turned.dims[:-1], forms[:-1] + [forms[-2]])


@op("aten.cat.default", kind="view", note="each part is written where it lies")
def cat(context, parts, dim=0):
    parts = [part for part in parts if list(part.shape) != [0]]
    dim = parts[0].dim(dim)
    starts, extents = [], [context.symbols.affine(part.shape[dim]) for part in parts]
    for extent in extents:
        starts.append(starts[-1] + extents[len(starts) - 1] if starts else Affine((), 0))
    total = sympy.expand(sum(part.shape[dim] for part in parts))
    moved = [part.indexed(dim, total, lambda index, start=start: index - start) for part, start in zip(parts, starts)]
    dims, views = aligned(moved)
    place = sum(len(atoms) for atoms in dims[:dim])

    def element(indices):
        chosen = conform(views[-1].element(indices), context.dtype)
        for view, start in zip(reversed(views[:-1]), reversed(starts[1:])):
            chosen = select(from_condition(indices[place] < start), conform(view.element(indices), context.dtype), chosen)
        return chosen

    return Lazy(dims, context.dtype, element, max(part.cost for part in parts), any(part.data for part in parts))


@op("aten.stack.default", kind="view")
def stack(context, parts, dim=0):
    return cat(context, [unsqueeze(context, part, dim) for part in parts], dim)


@op("aten.constant_pad_nd.default", kind="view", note="constant widths")
def constant_pad_nd(context, x, widths, value=0):
    if not all(isinstance(width, int) for width in widths):
        raise Unsupported("padding by a size")
    inside, number = [], context.value(value)
    padded = x
    for place in range(len(widths) // 2):
        dim = len(x.dims) - 1 - place
        before, after = widths[2 * place], widths[2 * place + 1]
        if not before and not after:
            continue
        extent = x.shape[dim]
        padded = padded.indexed(dim, extent + before + after, lambda index, before=before: index - before)
        inside.append((dim, before, context.symbols.affine(extent)))

    def element(indices):
        conditions = from_condition(_within(indices, padded, inside))
        return select(conditions, conform(padded.element(indices), context.dtype), conform(number, context.dtype))

    return Lazy(padded.dims, x.dtype, element, x.cost, x.data)


def _within(indices, padded, inside):
    parts = []
    for dim, before, extent in inside:
        index = indices[padded.flat(dim).start] if padded.dims[dim] else Affine((), 0)
        parts += [index >= before, index - before < extent]
    return both(*parts)


@op("aten.roll.default", kind="view", note="constant shifts")
def roll(context, x, shifts, dims=()):
    if not dims:
        raise Unsupported("a roll of the flattened tensor")
    for shift, dim in zip(shifts, dims):
        extent = x.shape[x.dim(dim)]
        if not extent.is_Integer:
            raise Unsupported("a roll around a symbolic extent")
        x = x.indexed(dim, extent, lambda index, by=-shift, size=int(extent): (index + by) % size)
    return x


@op("aten.unfold.default", kind="view", note="constant step")
def unfold(context, x, dim, size, step):
    dim = x.dim(dim)
    count = context.length(dim)
    if len(x.dims[dim]) > 1 or is_one(count):
        raise Unsupported("windows over a dim that merges symbols, or of one place")
    first = x.flat(dim).start
    dims = [*x.dims[:dim], (count,), *x.dims[dim + 1:], () if size == 1 else (sympy.Integer(size),)]
    forms = _identity(x)
    if x.dims[dim]:
        forms[first] = variable(first) * step + (variable(len(x.atoms)) if size > 1 else 0)
    return x.mapped(dims, forms)
