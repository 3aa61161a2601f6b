"""Indices of a nest's tensors and dims of its statements whose extents are one size, as the accesses make them equal."""

import re

from .affine import Joined, conjuncts
from .isl_text import only_piece


def constant_extent(text):
    """A constant extent; None for others."""
    found = only_piece(text)
    return found.functions[0].constant if found and found.functions[0].is_constant else None


def ranges_of(statement):
    """{dim: extent} of the dims with 0 <= dim < constant."""
    domain = only_piece(statement.domain)
    if domain is None:
        return {}
    texts = [part.text() for part in conjuncts(domain.condition)]
    found = {}
    for dim in statement.dims:
        upper = [int(text.rsplit(" ", 1)[1]) for text in texts if re.fullmatch(rf"{re.escape(dim)} <= \d+", text)]
        if len(upper) == 1 and f"0 <= {dim}" in texts:
            found[dim] = upper[0] + 1
    return found


def digits_of(form, ranges):
    """The extents of the variables of a form that takes each of 0 ... n - 1 once, the slowest first; None for others."""
    if form.constant or not all(isinstance(atom, str) and atom in ranges for atom, _ in form.terms):
        return None
    row, step = [], 1
    for atom, factor in sorted(form.terms, key=lambda term: term[1]):
        if factor != step:
            return None
        row.insert(0, ranges[atom])
        step *= ranges[atom]
    return tuple(row)


def accesses_of(statement):
    return (statement.write, *statement.reads)


class Classes:
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

    def is_kept(self, root):
        """Whether an access uses a place of a class in another way than T[..., d, ...]."""
        return any(self.root(place) == root for place in self._kept)

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


def classes_of(nest):
    classes = Classes()
    for tensor in nest.tensors:
        for place, text in enumerate(tensor.shape):
            classes.add((tensor.name, place), constant_extent(text))
            if tensor.role != "temporary":
                classes.note_argument((tensor.name, place), place == len(tensor.shape) - 1)
    for statement in nest.statements:
        ranges = ranges_of(statement)
        for dim in statement.dims:
            classes.add((owner_of(statement), dim), ranges.get(dim))
    for statement in nest.statements:
        for access in accesses_of(statement):
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
            shape = tuple(map(constant_extent, tensor.shape))
            like = first.setdefault(shape, tensor)
            for place in range(len(shape) if like is not tensor else 0):
                classes.join_equal((like.name, place), (tensor.name, place))


def _join_compared(classes, statement):
    """Makes dims of equal extents one size where a statement's value or domain relates them: what follows from their being equal
    (that a query sees a key) is lost otherwise. A place in memory that several dims make relates none of them."""
    names = set()
    ranges = ranges_of(statement)
    for piece in map(only_piece, statement.indices):
        form = piece.functions[0] if piece else None
        if form is not None and not (len(form.terms) > 1 and digits_of(form, ranges)):
            names |= form.names()
    domain = only_piece(statement.domain)
    parts = (domain.condition.parts if isinstance(domain.condition, Joined) else (domain.condition,)) if domain else ()
    names.update(name for part in parts if len(part.names()) > 1 for name in part.names())
    places = [(owner_of(statement), dim) for dim in statement.dims if dim in names]
    for number, place in enumerate(places):
        for other in places[:number]:
            classes.join_equal(place, other)


def owner_of(statement):
    """A statement apart from tensors of its name."""
    return statement.name, "statement"


def _relate(classes, nest, statement, access):
    """Joins what an access makes equal; keeps as constants what it uses in another way."""
    piece = only_piece(access.relation)
    for place in range(len(nest.tensor(access.tensor).shape)):
        form = piece.functions[place] if piece else None
        if form is not None and form.terms == ((form.terms[0][0] if form.terms else "", 1),) and not form.constant \
                and form.terms[0][0] in statement.dims:
            classes.join((access.tensor, place), (owner_of(statement), form.terms[0][0]))
            continue
        classes.keep((access.tensor, place))
        for dim in statement.dims:
            if form is None or dim in form.names():
                classes.keep((owner_of(statement), dim))
