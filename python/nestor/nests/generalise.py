"""A nest of constant extents as one of symbolic sizes, so that its kernels serve other extents too and are checked at small ones.

Extents are one size where index maps make them equal: index k of a tensor and dim d of a statement, wherever an access is
T[..., d, ...]. So they are where a statement tests or computes with two dims of equal extents (query <= key), and in results of
one shape. Where all accesses are T[512d + e] with e < 512, the index is two, d and e: another view of the same memory. An
extent stays a constant where an access depends on it in another way (T[d + 1], T[0], a part of a dim), so every access stays
inside its tensor at all sizes. At the constants' own values the two nests say the same.

Sizes that are the last index of every argument that has them (the width of rows, the size of heads) are fixed when a kernel is
compiled, as such sizes are in definitions written by hand. Long sums of products of matrices are not: a kernel takes them tile by
tile, and is checked with short ones.
"""

import dataclasses
import re
from typing import Dict, NamedTuple, Optional, Tuple

from .affine import Affine, Joined
from .isl_text import pieces
from .model import Access, Nest, SizeEntry


class General(NamedTuple):
    """nest: with the new sizes; values: {size: what the constant was}; rows: {argument: for each of its indices the extents of
    those that it became, or None}, of arguments with an index that became several."""
    nest: Nest
    values: Dict[str, int]
    rows: Dict[str, Tuple[Optional[Tuple[int, ...]], ...]]

    def view(self, argument, extents):
        """The extents of an argument's indices, given those that it had before."""
        rows = self.rows.get(argument, (None,) * len(extents))
        return tuple(each for extent, row in zip(extents, rows) for each in row or (extent,))


def generalise(nest, arguments=()):
    """A General of a nest. arguments: names of tensors whose indices may become several. New sizes are named n0, n1, ... after
    those that the nest has. Raises UserError for text that is no nest's."""
    nest, split = _split(nest, set(arguments))
    classes = _classes_of(nest)
    values, names = {}, {}
    taken = {entry.name for entry in (*nest.sizes, *nest.tensors)} | {dim for each in nest.statements for dim in each.dims}
    number = len(nest.sizes)
    for root, extent in classes.sizes():
        while f"n{number}" in taken:
            number += 1
        names[root], values[f"n{number}"] = f"n{number}", extent
        number += 1
    long = _long_sums(classes, nest, {root for root in names if values[names[root]] > _MOST_HELD})
    fixed = {names[root] for root in names if classes.is_last(root) and root not in long}
    return General(_rewritten(nest, classes, names, values, fixed) if values else nest, values, split)


_MOST_HELD = 512  # terms of a product whose operands a kernel may hold whole, as rows of heads


def _long_sums(classes, nest, roots):
    """Those of `roots` over which products of matrices are summed, and nothing else is."""
    products, others = set(), set()
    for statement in nest.statements:
        if statement.reduction:
            written = _names_in(statement.write)
            summed = {classes.root((_owner(statement), dim)) for dim in statement.dims if dim not in written}
            (products if _multiplies_matrices(statement, written) else others).update(summed)
    return roots & products - others


def _multiplies_matrices(statement, written):
    """Whether a statement sums products of two tensors, each with an index of the result that the other has not."""
    if statement.value.get("op") != "mul" or len(statement.reads) != 2:
        return False
    one, other = (_names_in(read) & written for read in statement.reads)
    return bool(one - other) and bool(other - one)


def _names_in(access):
    """The dims of a statement that an access uses."""
    piece = _only(access.relation)
    return {name for form in piece.functions for name in form.names()} if piece else set()


def _only(text):
    """The one piece of a set, relation or function; None where it has several."""
    found = pieces(text)
    return found[0] if len(found) == 1 else None


def _extent(text):
    """A constant extent; None for others."""
    found = _only(text)
    return found.functions[0].constant if found and found.functions[0].is_constant else None


def _ranges(statement):
    """{dim: extent} of the dims with 0 <= dim < constant."""
    domain = _only(statement.domain)
    if domain is None:
        return {}
    condition = domain.condition
    parts = condition.parts if isinstance(condition, Joined) and condition.conjunction else (condition,)
    texts = [part.text() for part in parts]
    found = {}
    for dim in statement.dims:
        upper = [int(text.rsplit(" ", 1)[1]) for text in texts if re.fullmatch(rf"{re.escape(dim)} <= \d+", text)]
        if len(upper) == 1 and f"0 <= {dim}" in texts:
            found[dim] = upper[0] + 1
    return found


def _accesses(statement):
    return (statement.write, *statement.reads)


def _split(nest, arguments):
    """(the nest, General.rows) with indices of arguments as several where all accesses are rows of them."""
    ranges = {statement.name: _ranges(statement) for statement in nest.statements}
    found = {}
    for tensor in nest.tensors:
        if tensor.name in arguments:
            rows = [_rows(nest, ranges, tensor, place) for place in range(len(tensor.shape))]
            if any(row is not None for row in rows):
                found[tensor.name] = rows
    if not found:
        return nest, {}

    def access(statement, given):
        if given.tensor not in found:
            return given
        piece = _only(given.relation)
        forms = [part for form, row in zip(piece.functions, found[given.tensor])
                 for part in ([form] if row is None else _radix_terms(form))]
        return Access(given.tensor, _relation(given, statement, forms))

    tensors = tuple(dataclasses.replace(tensor, shape=tuple(
        text for place, row in enumerate(found[tensor.name])
        for text in ([tensor.shape[place]] if row is None else [_framed(tensor.shape[place], f"{{ [({each})] }}") for each in row])))
        if tensor.name in found else tensor for tensor in nest.tensors)
    statements = tuple(dataclasses.replace(each, write=access(each, each.write),
                                           reads=tuple(access(each, read) for read in each.reads)) for each in nest.statements)
    return dataclasses.replace(nest, tensors=tensors, statements=statements), {name: tuple(rows) for name, rows in found.items()}


def _framed(text, body):
    """`body` behind the sizes that `text` starts with."""
    found = re.match(r"\[[^\]]*\] -> ", text)
    return (found[0] if found else "") + body


def _relation(given, statement, forms):
    inner = ", ".join(f"({form.text()})" for form in forms)
    return _framed(given.relation, f"{{ {statement.name}[{', '.join(statement.dims)}] -> {given.tensor}[{inner}] }}")


def _radix_terms(form):
    """The variables of 512a + b as [a, b]."""
    return [Affine.variable(atom) for atom, _ in sorted(form.terms, key=lambda term: -term[1])]


def _rows(nest, ranges, tensor, place):
    """The extents into which an index may be split, where each access is mixed-radix digits of full range; None elsewhere."""
    extent = _extent(tensor.shape[place])
    found = set()
    for statement in nest.statements:
        for access in _accesses(statement):
            if access.tensor == tensor.name:
                piece = _only(access.relation)
                found.add(_digits(piece.functions[place], ranges[statement.name], extent) if piece else None)
    row = found.pop() if len(found) == 1 else None
    return row if row and len(row) > 1 else None


def _digits(form, ranges, extent):
    """The extents of the variables of a form that takes each of 0 ... extent - 1 once, the slowest first; None for others."""
    if extent is None or form.constant or not all(isinstance(atom, str) and atom in ranges for atom, _ in form.terms):
        return None
    row, step = [], 1
    for atom, factor in sorted(form.terms, key=lambda term: term[1]):
        if factor != step:
            return None
        row.insert(0, ranges[atom])
        step *= ranges[atom]
    return tuple(row) if step == extent else None


class _Classes:
    """Indices of tensors and dims of statements whose extents are one size. A place is (tensor, index) or (statement, dim)."""

    def __init__(self):
        self._parent, self._extents, self._kept, self._last = {}, {}, set(), {}

    def add(self, place, extent):
        self._parent[place], self._extents[place] = place, extent

    def root(self, place):
        while self._parent[place] != place:
            place = self._parent[place]
        return place

    def join(self, a, b):
        self._parent[self.root(a)] = self.root(b)

    def join_equal(self, a, b):
        """Joins two classes that are sizes of one extent."""
        known = dict(self.sizes())
        first, second = known.get(self.root(a)), known.get(self.root(b))
        if first is not None and first == second:
            self.join(a, b)

    def keep(self, place):
        self._kept.add(place)

    def note_argument(self, place, last):
        """A place is an index of an argument, the last one or another."""
        self._last[place] = last

    def is_last(self, root):
        """Whether a class is the last index of arguments, and no other index of one."""
        found = [last for place, last in self._last.items() if self.root(place) == root]
        return bool(found) and all(found)

    def sizes(self):
        """[(root, extent)] of the classes that become sizes, in the order in which they were first seen."""
        members = {}
        for place in self._parent:
            members.setdefault(self.root(place), []).append(place)
        found = []
        for root, places in members.items():
            extents = {self._extents[place] for place in places}
            if len(extents) == 1 and None not in extents and min(extents) > 1 and not self._kept & set(places):
                found.append((root, extents.pop()))
        return found


def _classes_of(nest):
    classes = _Classes()
    for tensor in nest.tensors:
        for place, text in enumerate(tensor.shape):
            classes.add((tensor.name, place), _extent(text))
            if tensor.role != "temporary":
                classes.note_argument((tensor.name, place), place == len(tensor.shape) - 1)
    for statement in nest.statements:
        ranges = _ranges(statement)
        for dim in statement.dims:
            classes.add((_owner(statement), dim), ranges.get(dim))
    for statement in nest.statements:
        for access in _accesses(statement):
            _relate(classes, nest, statement, access)
    for statement in nest.statements:
        _join_compared(classes, statement)
    _join_results(classes, nest)
    return classes


def _join_results(classes, nest):
    """Makes results of one shape keep one shape, so that one kernel may compute them side by side."""
    first = {}
    for tensor in nest.tensors:
        if tensor.role == "output":
            shape = tuple(map(_extent, tensor.shape))
            like = first.setdefault(shape, tensor)
            for place in range(len(shape) if like is not tensor else 0):
                classes.join_equal((like.name, place), (tensor.name, place))


def _join_compared(classes, statement):
    """Makes dims of equal extents one size where a statement's value or domain relates them: what follows from their being equal
    (that a query sees a key) is lost otherwise."""
    names = set()
    for text in statement.indices:
        piece = _only(text)
        names |= piece.functions[0].names() if piece else set()
    domain = _only(statement.domain)
    parts = (domain.condition.parts if isinstance(domain.condition, Joined) else (domain.condition,)) if domain else ()
    names.update(name for part in parts if len(part.names()) > 1 for name in part.names())
    places = [(_owner(statement), dim) for dim in statement.dims if dim in names]
    for number, place in enumerate(places):
        for other in places[:number]:
            classes.join_equal(place, other)


def _owner(statement):
    """A statement apart from tensors of its name."""
    return statement.name, "statement"


def _relate(classes, nest, statement, access):
    """Joins what an access makes equal; keeps as constants what it uses in another way."""
    piece = _only(access.relation)
    for place in range(len(nest.tensor(access.tensor).shape)):
        form = piece.functions[place] if piece else None
        if form is not None and form.terms == ((form.terms[0][0] if form.terms else "", 1),) and not form.constant \
                and form.terms[0][0] in statement.dims:
            classes.join((access.tensor, place), (_owner(statement), form.terms[0][0]))
            continue
        classes.keep((access.tensor, place))
        for dim in statement.dims:
            if form is None or dim in form.names():
                classes.keep((_owner(statement), dim))


def _rewritten(nest, classes, names, values, fixed):
    """The nest with names in place of the extents of classes. fixed: names of sizes that are known when compiling."""
    prefix = f"[{', '.join([*(size.name for size in nest.sizes), *values])}] -> "

    def framed(text):
        return prefix + re.sub(r"^\[[^\]]*\] -> ", "", text)

    def shape(tensor):
        found = [names.get(classes.root((tensor.name, place))) for place in range(len(tensor.shape))]
        return tuple(framed(f"{{ [({name})] }}" if name else text) for name, text in zip(found, tensor.shape))

    def domain(statement):
        text = statement.domain
        for dim in statement.dims:
            name = names.get(classes.root((_owner(statement), dim)))
            if name:
                text = re.sub(rf"\b{re.escape(dim)} <= \d+(?= and | }})", f"{dim} <= {name} - 1", text, count=1)
        return framed(text)

    def access(found):
        return dataclasses.replace(found, relation=framed(found.relation))

    known = re.fullmatch(r"(?:\[[^\]]*\] -> )?\{ :(.*)\}", nest.context)[1].strip()
    conditions = [*([f"({known})"] if known else []), *(f"{name} >= 1" for name in values)]
    return dataclasses.replace(
        nest, sizes=(*nest.sizes, *(SizeEntry(name, specialized=name in fixed, default=value)
                                           for name, value in values.items())),
        context=f"{prefix}{{ : {' and '.join(conditions)} }}",
        tensors=tuple(dataclasses.replace(tensor, shape=shape(tensor)) for tensor in nest.tensors),
        statements=tuple(dataclasses.replace(each, domain=domain(each), write=access(each.write),
                                             reads=tuple(map(access, each.reads)), indices=tuple(map(framed, each.indices)))
                         for each in nest.statements))
