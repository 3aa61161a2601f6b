"""Extents of tensors: integers and sympy expressions of PyTorch's symbols, kept as products of factors.

[b, s, h] seen as [b s, h] multiplies symbols, which isl cannot say. So a dim is a tuple of *atoms*, outermost first, each with
an affine extent and an index of its own; a dim of extent 1 has none. `split` takes dims apart as far as that is affine.
"""

import functools
import math

import sympy

from ...nests.affine import Affine
from ...nests.definitions import Size


class Unsupported(Exception):
    """Why a node cannot be part of a nest. It ends a region, never the import."""


def expression(size):
    """An int, SymInt or sympy expression as a sympy expression."""
    node = getattr(size, "node", None)
    return node.expr if hasattr(node, "expr") else sympy.sympify(size)


class Symbols:
    """The sizes of nests that stand for PyTorch's symbols, by name: one for all regions of a graph."""

    def __init__(self, hints=None):
        self.hints = hints or {}
        self._sizes = {}

    def size(self, symbol):
        name = str(symbol)
        if name not in self._sizes:
            if name.startswith("u"):
                raise Unsupported(f"the size {name} depends on data")
            if self.hints.get(name, 1) < 1:
                raise Unsupported(f"the size {name} is not positive")
            self._sizes[name] = Size(name, int(self.hints.get(name, 16)))
        return self._sizes[name]

    def number(self, extent):
        """An extent at likely sizes."""
        found = expression(extent)
        return int(found.subs({symbol: self.hints.get(str(symbol), 16) for symbol in found.free_symbols}))

    def elements(self, tensor):
        """How many elements a tensor has at likely sizes."""
        return math.prod(map(self.number, tensor.shape))

    def affine(self, found):
        """A sympy expression as an Affine. Raises Unsupported where it multiplies symbols, or is none that isl can say."""
        found = sympy.expand(found)
        if found.is_Integer:
            return Affine((), int(found))
        if found.is_Symbol:
            return self.size(found).affine
        if found.is_Add:
            return sum((self.affine(term) for term in found.args), Affine((), 0))
        if found.is_Mul:
            constant, rest = found.as_coeff_Mul()
            if constant.is_Integer and not rest.is_Mul:
                return self.affine(rest) * int(constant)
        kind = type(found).__name__
        if kind in ("FloorDiv", "CleanDiv", "Mod", "PythonMod") and found.args[1].is_Integer and found.args[1] > 0:
            base = self.affine(found.args[0])
            return base % int(found.args[1]) if kind.endswith("Mod") else base // int(found.args[1])
        raise Unsupported(f"the size {found} is not affine in {', '.join(sorted(map(str, found.free_symbols)))}")


def is_one(extent):
    return extent == 1


def atoms_of(extent):
    """The atoms of a dim of a tensor that comes from elsewhere: symbols that are multiplied apart, in the order of their
    names."""
    return _atoms_of(expression(extent))


@functools.lru_cache(maxsize=4096)
def _atoms_of(extent):
    if is_one(extent):
        return ()
    constant, factors = sympy.expand(extent).as_coeff_mul()
    factors = [factor for base in factors for factor in _repeated(base)]
    if len(factors) < 2:
        return (sympy.expand(extent),)
    ordered = sorted(factors, key=lambda factor: (len(str(factor)), str(factor)))
    return (*ordered, constant) if constant != 1 else tuple(ordered)


def _repeated(base):
    root, power = base.as_base_exp()
    return [root] * int(power) if power.is_Integer and power > 0 else [base]


@functools.lru_cache(maxsize=4096)
def quotient(a, b):
    """a / b where that is an integer whatever the symbols are, else None."""
    if a.is_Integer and b.is_Integer:
        return a // b if b != 0 and a % b == 0 else None
    found = sympy.cancel(a / b)
    return found if sympy.denom(sympy.together(found)) == 1 else None


def product(extents):
    return _product(tuple(extents))


@functools.lru_cache(maxsize=4096)
def _product(extents):
    return sympy.expand(sympy.Mul(*extents))


def variable(number):
    """The variable that stands for the new flat index `number` in the forms of a view."""
    return Affine.variable(f"#{number}")


class Splitter:
    """Takes a row of atoms apart, outermost first. `forms` gives the index of each old atom as an Affine of the variables of
    the pieces taken from it."""

    def __init__(self, extents):
        self.waiting = [(extent, number) for number, extent in enumerate(extents)]
        self.forms = [Affine((), 0) for _ in extents]

    def next(self):
        """The extent of what is outermost now."""
        return self.waiting[0][0]

    def take(self, extent, name):
        """Takes a piece of this extent off what is outermost; its index is the variable `name`. Raises Unsupported where the
        rest has no constant extent: then the old index is no affine function of the pieces'."""
        whole, number = self.waiting.pop(0)
        rest = quotient(whole, extent)
        if not is_one(rest):
            if not rest.is_Integer:
                raise Unsupported(f"un-merging {whole} into {extent} and {rest} multiplies an index by {rest}")
            self.waiting.insert(0, (rest, number))
        self.forms[number] = self.forms[number] + name * int(rest)


def regrouped(extents, targets):
    """(dims, forms) of a reshape: targets are the new dims' extents, dims their atoms, forms[k] the index of the old atom k as
    an Affine of the variables of the new flat atoms. Raises Unsupported."""
    return _regrouped(tuple(map(sympy.expand, extents)), tuple(map(sympy.expand, targets)))


@functools.lru_cache(maxsize=4096)
def _regrouped(extents, targets):
    dims, forms, count = [], [], 0
    for old, new in _segments(extents, targets):
        found = _taken_apart(old, new, count)
        if found is None:
            found = _through_one(old, new, count)
        dims += found[0]
        forms += found[1]
        count += sum(map(len, found[0]))
    return tuple(dims), tuple(forms)


def _segments(old, new):
    """The shortest runs of old atoms and new dims with equal products."""
    at, done = 0, 0
    while at < len(old) or done < len(new):
        first, start = at, done
        left, right = sympy.Integer(1), sympy.Integer(1)
        while at == first and done == start or left != right:
            grow = quotient(right, left) is not None and at < len(old) if (at, done) != (first, start) else at < len(old)
            if (grow or done >= len(new)) and at < len(old):
                left, at = sympy.expand(left * old[at]), at + 1
            elif done < len(new):
                right, done = sympy.expand(right * new[done]), done + 1
            else:
                raise Unsupported(f"a view from {_text(old)} to {_text(new)} does not keep the number of elements")
        while done < len(new) and is_one(new[done]) and left == right:
            done += 1
        yield old[first:at], new[start:done]


def _text(extents):
    return "[" + ", ".join(map(str, extents)) + "]"


def _taken_apart(old, new, count):
    """A segment by splitting atoms alone; None where extents are no multiples of each other."""
    splitter, dims = Splitter(old), []
    for target in new:
        need, atoms = target, []
        while not is_one(need):
            whole = splitter.next()
            if quotient(need, whole) is not None:
                piece = whole
            elif quotient(whole, need) is not None:
                piece = need
            else:
                return None
            splitter.take(piece, variable(count))
            need = quotient(need, piece)
            atoms.append(piece)
            count += 1
        dims.append(tuple(atoms))
    return dims, splitter.forms


def _through_one(old, new, count):
    """A segment of constants by the flat position: the old indices are quotients and remainders."""
    if not all(extent.is_Integer for extent in (*old, *new)):
        raise Unsupported(f"a view from {_text(old)} to {_text(new)} regroups symbols")
    position = Affine((), 0)
    for extent in new:
        if not is_one(extent):
            position = position * int(extent) + variable(count)
            count += 1
    forms = []
    for extent in reversed(old[1:]):
        forms.append(position % int(extent))
        position = position // int(extent)
    return [() if is_one(extent) else (extent,) for extent in new], [position, *reversed(forms)] if old else []


def common(one, other):
    """(atoms, forms of one, forms of the other): the coarsest atoms that both rows, of equal products, can be taken apart
    into."""
    first, second, atoms = Splitter(one), Splitter(other), []
    while first.waiting and second.waiting:
        a, b = first.next(), second.next()
        piece = a if quotient(b, a) is not None else b if quotient(a, b) is not None else None
        if piece is None:
            return _common_position(one, other)
        name = variable(len(atoms))
        first.take(piece, name)
        second.take(piece, name)
        atoms.append(piece)
    if first.waiting or second.waiting:
        raise Unsupported(f"the extents {_text(one)} and {_text(other)} do not match")
    return tuple(atoms), first.forms, second.forms


def _common_position(one, other):
    if product(one) != product(other):
        raise Unsupported(f"the extents {_text(one)} and {_text(other)} do not match")
    whole = [product(one)]
    return (tuple(whole), _through_one(list(one), whole, 0)[1], _through_one(list(other), whole, 0)[1])
