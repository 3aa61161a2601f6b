"""Lazy tensors: what an element is at symbolic indices, before any statement exists. Views and pointwise ops compose functions;
`stored` makes a statement where a value is needed more often than it has elements.
"""

import dataclasses
from typing import Callable, Optional, Tuple

import sympy
import torch

from ...nests import definitions as nests
from ...nests.affine import TRUE, Affine, Condition
from ...nests.reductions import neutral
from ...nests.values import Value, as_type, as_value, constant, from_condition, nodes_of, select, widened
from .bounds import is_never_negative
from .exact import is_inside, range_of
from .extents import Unsupported, atoms_of, common, expression, is_one, product, regrouped, variable

ELEMENTS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32",
            torch.bool: "bool"}  #: what tensors of nests hold
READABLE = {**ELEMENTS, torch.int64: "i64"}  #: and inputs: each element of i64 is read as the nearest i32
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def element_type(dtype, known=ELEMENTS):
    """The nest type of a tensor in memory. Raises Unsupported for types that are not among the known."""
    if dtype not in known:
        raise Unsupported(f"the nest format has no tensors of {str(dtype).removeprefix('torch.')}")
    return known[dtype]


def conform(value, dtype):
    """A value as what an op's result type has: f32 for all floats, i32 for integers, bool. Raises Unsupported."""
    if dtype in FLOATS:
        return as_type(as_number(value), "f32")
    if dtype == torch.bool:
        return as_type(value, "bool")
    if dtype in INTEGERS:
        value = as_number(value)
        found = as_type(value, "i32")
        if dtype != torch.int32 and not (_fits(found) if dtype == torch.int64 else _is_narrow(found, dtype)):
            raise Unsupported(
                f"the nest format has no {str(dtype).removeprefix('torch.')} arithmetic that 32 bits may be too few for"
                if dtype == torch.int64 else f"the nest format has no {str(dtype).removeprefix('torch.')}, whose values wrap")
        return found
    raise Unsupported(f"the nest format has no {str(dtype).removeprefix('torch.')}")


def _fits(value):
    """Whether an operation on integers that fit in 32 bits gives one: sums of indices do, sums of data may not."""
    if value.affine is not None or value.op in ("read", "select", "min", "max", "bit_and", "bit_or", "bit_xor"):
        return True
    if value.op == "cast":
        return is_inside(range_of(value.args[0]))
    return value.op in ("abs", "neg", "add", "sub") and not any(node.op == "read" for node in nodes_of(value))


def _is_narrow(value, dtype):
    """Whether an integer plainly fits in a type of few bits."""
    limits = torch.iinfo(dtype)
    return is_inside(range_of(value), limits.min, limits.max)


def as_number(value):
    """A condition as 1 or 0; other values as they are."""
    return select(value, constant(1), constant(0)) if value.type == "bool" else value


@dataclasses.dataclass(frozen=True)
class Lazy:
    """dims: for each dim the extents of its atoms, outermost first (none for a dim of 1). dtype: PyTorch's. element: the Value
    at flat indices, an Affine for each atom. cost: 0 for what is read or follows from indices alone, 1 where elements take
    work. data: whether elements depend on memory. leaf: the nest tensor whose elements these are, in order, or None. support:
    None, or the condition at flat indices outside of which elements are 0; inner: what they are inside."""
    dims: Tuple[Tuple[sympy.Expr, ...], ...]
    dtype: torch.dtype
    element: Callable[[Tuple[Affine, ...]], Value]
    cost: int = 0
    data: bool = True
    leaf: Optional[nests.Tensor] = None
    support: Optional[Callable[[Tuple[Affine, ...]], Condition]] = None
    inner: Optional[Callable[[Tuple[Affine, ...]], Value]] = None

    @staticmethod
    def supported(dims, dtype, support, inner, cost=1, data=True):
        """A tensor of floats that is inner(indices) where support(indices) holds, else 0; support None: everywhere."""
        if support is None:
            return Lazy(tuple(dims), dtype, inner, cost, data)

        def element(indices):
            return select(from_condition(support(indices)), conform(inner(indices), dtype), constant(0.0))

        return Lazy(tuple(dims), dtype, element, cost, data, None, support, inner)

    def where(self, indices):
        """The condition under which an element may be other than 0."""
        return TRUE if self.support is None else self.support(indices)

    def inside(self, indices):
        """An element where `where` holds."""
        return (self.inner or self.element)(indices)

    @property
    def atoms(self):
        return tuple(atom for dim in self.dims for atom in dim)

    @property
    def shape(self):
        return tuple(product(dim) for dim in self.dims)

    def probe(self):
        """An element at indices ?0, ?1, ... Raises Unsupported if elements cannot be said."""
        return as_value(self.element(tuple(Affine.variable(f"?{k}") for k in range(len(self.atoms)))))

    def dim(self, number):
        """A dim's number from 0, given as PyTorch has it."""
        return number % len(self.dims) if self.dims else 0

    def flat(self, dim):
        """The numbers of a dim's atoms in the flat row. A tensor without dims has one of 1, as PyTorch has it."""
        first = sum(len(each) for each in self.dims[:dim])
        return range(first, first + sum(len(each) for each in self.dims[dim:dim + 1]))

    def atoms_along(self, dims):
        """The atoms of dims, which are given as PyTorch has them."""
        return [self.atoms[number] for dim in sorted({self.dim(dim) for dim in dims}) for number in self.flat(dim)]

    def mapped(self, dims, forms):
        """A view: forms[k] is the index of the old atom k as an Affine of the variables of the new flat atoms."""
        if list(forms) == [variable(k) for k in range(sum(map(len, dims)))]:
            return dataclasses.replace(self, dims=tuple(dims))

        def through(function):
            def element(indices):
                values = {f"#{k}": index for k, index in enumerate(indices)}
                return function(tuple(form.substitute(values) for form in forms))
            return function and element

        return Lazy(tuple(dims), self.dtype, through(self.element), self.cost, self.data, None, through(self.support),
                    through(self.inner))

    def reshaped(self, shape):
        """Seen with other extents, as torch's view does without one that is -1."""
        if list(shape) == list(self.shape):
            return self
        return self.mapped(*regrouped(self.atoms, [expression(extent) for extent in shape]))

    def permuted(self, order):
        order = [self.dim(dim) for dim in order]
        dims = [self.dims[dim] for dim in order]
        new = {old: variable(k) for k, old in enumerate(number for dim in order for number in self.flat(dim))}
        return self.mapped(dims, [new[k] for k in range(len(self.atoms))])

    def indexed(self, dim, extent, form):
        """One dim replaced by one of another extent; form(index) is the position in the old dim. Raises Unsupported for a dim
        that is a product of symbols."""
        dim = self.dim(dim)
        dims = [*self.dims[:dim], () if is_one(extent) else (sympy.expand(extent),), *self.dims[dim + 1:]]
        first = self.flat(dim).start
        width = len(dims[dim])
        inner = form(variable(first) if width else Affine((), 0))
        old = self.dims[dim]
        own, rest = [], inner
        if len(old) > 1:
            if not all(atom.is_Integer for atom in old):
                raise Unsupported("positions in a dim that merges symbols are not affine")
            for atom in reversed(old[1:]):
                own.append(rest % int(atom))
                rest = rest // int(atom)
        own = [rest, *reversed(own)] if old else []
        forms = [variable(k) for k in range(first)] + own
        forms += [variable(first + width + k) for k in range(len(self.atoms) - len(forms))]
        return self.mapped(dims, forms)


def expanded(lazy, shape):
    """A tensor broadcast to a shape, from the right; -1 keeps a dim."""
    missing = len(shape) - len(lazy.dims)
    dims, forms, count = [], [], 0
    for number, extent in enumerate(shape):
        old = lazy.dims[number - missing] if number >= missing else ()
        if old:
            dims.append(old)
            forms += [variable(count + k) for k in range(len(old))]
        else:
            extent = expression(extent)
            dims.append(() if is_one(extent) or extent == -1 else atoms_of(extent))
        count += len(dims[-1])
    return lazy.mapped(dims, forms)


def aligned(lazies):
    """(dims, views): the dims of a broadcast of tensors, with atoms that all of them have, and each tensor as a view with an
    element(indices) over these atoms. Raises Unsupported."""
    rank = max((len(lazy.dims) for lazy in lazies), default=0)
    dims, forms = [], [[] for _ in lazies]
    count = 0
    for number in range(rank):
        groups = [_group(lazy, number - rank) for lazy in lazies]
        atoms, own = align_groups(groups)
        names = {f"#{k}": variable(count + k) for k in range(len(atoms))}
        for form, each in zip(forms, own):
            form += [one.substitute(names) for one in each]
        dims.append(atoms)
        count += len(atoms)
    return tuple(dims), [lazy.mapped(dims, form) for lazy, form in zip(lazies, forms)]


def _group(lazy, number):
    return lazy.dims[number] if -number <= len(lazy.dims) else ()


def align_groups(groups):
    """(atoms, forms of each group): common atoms of rows of atoms, of which empty ones are broadcast."""
    atoms, forms = None, [[] for _ in groups]
    for number, group in enumerate(groups):
        if not group:
            continue
        if atoms is None:
            atoms, forms[number] = tuple(group), [variable(k) for k in range(len(group))]
            continue
        if tuple(group) == atoms:
            forms[number] = [variable(k) for k in range(len(group))]
            continue
        atoms, before, now = common(atoms, group)
        values = {f"#{k}": form for k, form in enumerate(before)}
        forms = [[form.substitute(values) for form in each] for each in forms]
        forms[number] = now
    return atoms or (), forms


class Builder:
    """Makes the tensors and statements of one part of a graph."""

    def __init__(self, symbols):
        self.symbols = symbols
        self.conditions = []  #: on sizes, under which all that is read is there

    def require(self, form):
        """Makes form >= 0 a condition on sizes, where it is not plainly so."""
        hints = self.symbols.hints
        if form.names() <= hints.keys() and form.value(hints) < 0:
            raise Unsupported("reads at indices that lie outside at sizes such as these")
        if not is_never_negative(form) and (form >= 0) not in self.conditions:
            self.conditions.append(form >= 0)

    def extents(self, atoms):
        return [self.symbols.affine(atom) for atom in atoms]

    def indices(self, atoms, letter):
        """An index for each atom: names are theirs within a statement."""
        return tuple(nests.Index(f"{letter}{k}", extent) for k, extent in enumerate(self.extents(atoms)))

    def argument(self, name, dims, dtype):
        """A tensor that comes from outside."""
        atoms = [atom for dim in dims for atom in dim]
        return self.of_tensor(nests.Tensor(tensor_name(name), element_type(dtype, READABLE), self.extents(atoms)), dims,
                              dtype)

    def of_tensor(self, tensor, dims, dtype):
        def element(indices):
            value = tensor[tuple(indices)]
            return as_type(value, "bool") if dtype == torch.bool else value

        return Lazy(tuple(dims), dtype, element, 0, True, tensor)

    def stored(self, lazy, name, kind=None):
        """The tensor computed into memory once: a statement. Floats are kept in f32 unless `kind` says otherwise."""
        return self.of_tensor(self._written(lazy, name, kind, lazy.element, lambda at: TRUE), lazy.dims, lazy.dtype)

    def partly(self, lazy, name, kind=None):
        """The same, but computed only where the tensor may be other than 0."""
        if lazy.support is None:
            return self.stored(lazy, name, kind)
        tensor = self._written(lazy, name, kind, lazy.inner, lazy.support)
        return Lazy.supported(lazy.dims, lazy.dtype, lazy.support, self.of_tensor(tensor, lazy.dims, lazy.dtype).element, 0)

    def _written(self, lazy, name, kind, element, where):
        own = self.indices(lazy.atoms, "d")
        at = tuple(index.affine for index in own)
        value = element(at)
        kind = kind or ("f32" if lazy.dtype in FLOATS else "i32")
        tensor = nests.Tensor(tensor_name(name), kind, [index.extent for index in own])
        if kind == "bool":
            value = as_type(value, "bool")
        elif value.type == "bool":
            value = as_number(value)
        return tensor.write(own, at, widened(value) if kind == "f32" else value, where=where(at))

    def cheap(self, lazy, name):
        """The tensor as one whose elements cost nothing more: stored, unless they do already. Conditions and integers are not
        stored, unless they are random."""
        if not lazy.cost or (lazy.dtype not in FLOATS and not is_random(lazy)):
            return lazy
        return self.partly(lazy, name, "bool" if lazy.dtype == torch.bool else None)

    def reduced(self, op, lazy, dims, keep, name, where=None):
        """A reduction over dims; keep: these dims stay, as 1. where: the condition at indices under which elements are taken, for
        sums that of being other than 0. The result costs nothing."""
        where = where or (lazy.support if op == "add" else None)
        dims = sorted({lazy.dim(dim) for dim in dims})
        over = {number for dim in dims for number in lazy.flat(dim)}
        free = [number for number in range(len(lazy.atoms)) if number not in over]
        outer = self.indices([lazy.atoms[number] for number in free], "d")
        inner = self.indices([lazy.atoms[number] for number in sorted(over)], "r")
        place = dict(zip(free, outer)) | dict(zip(sorted(over), inner))
        at = tuple(place[number].affine for number in range(len(lazy.atoms)))
        element = as_number((lazy.inside if where else lazy.element)(at))
        left = [() if dim in dims else atoms for dim, atoms in enumerate(lazy.dims) if keep or dim not in dims]
        return self.sum_of(op, widened(element), outer, inner, left, lazy.dtype, name,
                           where(at) if where else TRUE)

    def sum_of(self, op, value, outer, inner, dims, dtype, name, where=TRUE):
        """The tensor over `outer` that reduces a value over `inner`, where a condition holds."""
        kind = "i32" if value.type == "i32" else "f32"
        tensor = nests.Tensor(tensor_name(name), kind, [index.extent for index in outer])
        at = tuple(index.affine for index in outer)
        tensor.write(outer, at, neutral(op, kind), suffix="_init")
        tensor.write((*outer, *inner), at, value, reduction=op, where=where)
        return self.of_tensor(tensor, dims, dtype)

    def count(self, atoms):
        """The product of extents as a Value of f32."""
        total = None
        for extent in self.extents(atoms):
            each = as_type(nests.from_affine(extent), "f32")
            total = each if total is None else total * each
        return constant(1.0) if total is None else total


def tensor_name(name):
    """A name that neither an index nor a word of isl has."""
    cleaned = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)
    clash = cleaned[:1].isdigit() or (cleaned[:1] in "dr" and cleaned[1:].isdigit())
    try:
        return nests.check_name(f"t_{cleaned}" if clash else cleaned, "tensor")
    except nests.UserError:
        return f"t_{cleaned}"


LIGHT = {"read", "index", "constant", "scalar", "cast", "select", "add", "sub", "mul", "neg", "abs", "min", "max", "eq", "ne", "lt",
         "le", "gt", "ge", "and", "or", "not", "condition", "bit_and", "bit_or", "bit_xor"}  #: operations of arithmetic
_MOST_LIGHT = 16


def _nodes_of(lazy):
    """The nodes of an element."""
    return nodes_of(lazy.probe())


def is_random(lazy):
    """Whether an element is made of random bits: many operations on words."""
    return any(node.op == "mul_high_unsigned" for node in _nodes_of(lazy))


def is_light(lazy):
    """Whether an element is made of arguments by a few operations that cost no more than reading it."""
    nodes = _nodes_of(lazy)
    return len(nodes) <= _MOST_LIGHT and all(
        node.op in LIGHT and (node.op != "read" or not node.payload[0].updates) for node in nodes)


def pointwise(function, lazies, dtype, builder, name="value"):
    """function(values) at each element of a broadcast, as a value of `dtype`. Operands that take work and are broadcast are
    stored first, so that they are computed once; but for a few operations of arithmetic on arguments, such as slope * (j - i)."""
    dims, views = aligned(lazies)
    total = sum(map(len, dims))
    operands = []
    for number, (lazy, view) in enumerate(zip(lazies, views)):
        if lazy.cost and len(lazy.atoms) < total and not is_light(lazy):
            _, (_, view) = aligned([Lazy(dims, lazy.dtype, lambda indices: None), builder.cheap(lazy, f"{name}_{number}")])
        operands.append(view)

    known = {}

    def element(indices):
        key = indices, tuple(id(getattr(name, "owner", None)) for form in indices for name in sorted(form.names()))
        if key not in known:  # indices of different statements may have the same name
            known[key] = conform(function(*(operand.element(indices) for operand in operands)), dtype)
        return known[key]

    data = any(lazy.data for lazy in lazies)
    return Lazy(dims, dtype, element, int(data), data)
