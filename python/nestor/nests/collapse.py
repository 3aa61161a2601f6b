"""Neighbouring indices of a nest as one, where whatever goes through one of them goes through both: a batch and its length become
rows, so that tiles and parts of sums need not end where a sequence does.

Two indices become one where all tensors that have one of them have both, next to each other, where every access is
T[..., p, q, ...] with two dims of the statement, and where the memory of arguments allows it. Nothing else uses these dims but
integers that see them as one, such as the place 32 (6 p + q) + r in memory, for q below 6. At the product of the two extents the
new nest says what the old one said.
"""

import dataclasses
from typing import Dict, NamedTuple, Tuple

from .affine import TRUE, Affine, Compare, at_least_zero, both, conjuncts
from .extent_classes import accesses_of, classes_of, owner_of
from .isl_text import only_piece, pieces
from .model import Nest, SizeEntry
from .resized import resized


class Collapsed(NamedTuple):
    """values: {new size: its value, a product over the old ones as Python's text}; counts: {argument: for each of its indices how
    many it was}."""
    nest: Nest
    values: Dict[str, str]
    counts: Dict[str, Tuple[int, ...]]


def collapse(nest, joined):
    """A Collapsed of a nest. joined: {argument: for each index but the last whether it and the next lie in memory as one}; indices
    of other arguments stay. Raises UserError for text that is no nest's."""
    state = _State(nest, {name: list(row) for name, row in joined.items()})
    while state.step():
        pass
    sizes = {size.name for size in state.nest.sizes}
    values = {name: value for name, value in state.values.items() if name in sizes}
    return Collapsed(state.nest, values, {name: tuple(row) for name, row in state.counts.items()})


class _State:
    def __init__(self, nest, joined):
        self.nest, self.joined, self.values = nest, joined, {}
        self.counts = {tensor.name: [1] * len(tensor.shape) for tensor in nest.arguments}
        self._taken = {entry.name for entry in (*nest.sizes, *nest.tensors)} | {
            dim for statement in nest.statements for dim in statement.dims}

    def step(self):
        """Makes two indices one. Returns whether there were such."""
        classes = classes_of(self.nest)
        tried = set()
        for tensor in self.nest.tensors:
            for place in range(len(tensor.shape) - 1):
                pair = classes.root((tensor.name, place)), classes.root((tensor.name, place + 1))
                if pair not in tried:
                    tried.add(pair)
                    found = self._pair(classes, *pair)
                    if found is not None:
                        self._collapse(found)
                        return True
        return False

    def _pair(self, classes, first, second):
        """A _Pair of two classes; None where they cannot become one."""
        if first == second or classes.is_kept(first) or classes.is_kept(second):
            return None
        places, extents = {}, set()
        for tensor in self.nest.tensors:
            roots = [classes.root((tensor.name, place)) for place in range(len(tensor.shape))]
            found = [place for place, root in enumerate(roots) if root == first]
            if [place + 1 for place in found] != [place for place, root in enumerate(roots) if root == second]:
                return None
            free = tensor.role == "temporary"
            if not all(free or self.joined.get(tensor.name, [False] * len(roots))[place] for place in found):
                return None
            places[tensor.name] = found
            extents.update((tensor.shape[place], tensor.shape[place + 1]) for place in found)
        if len(extents) != 1:
            return None
        forms = [only_piece(text) for text in extents.pop()]
        if None in forms:
            return None
        extents = tuple(form.functions[0] for form in forms)
        dims = {}
        for statement in self.nest.statements:
            inner = _inner_dims(classes, statement, places, (first, second), extents)
            if inner is None:
                return None
            dims[statement.name] = inner
        return _Pair(places, dims, extents)

    def _collapse(self, pair):
        nest, (outer, inner) = self.nest, pair.extents
        extent, sizes = self._extent(outer, inner)

        def shape(tensor):
            found = list(tensor.shape)
            for place in reversed(pair.places[tensor.name]):
                found[place:place + 2] = [f"{{ [({extent.text()})] }}"]
            return tuple(found)

        for tensor in nest.arguments:
            for place in reversed(pair.places[tensor.name]):
                self.counts[tensor.name][place] += self.counts[tensor.name].pop(place + 1)
                del self.joined[tensor.name][place]
        tensors = tuple(dataclasses.replace(tensor, shape=shape(tensor)) for tensor in nest.tensors)
        statements = tuple(_with_pair(statement, pair, extent) for statement in nest.statements)
        self.nest = _with_sizes(nest, sizes, tensors, statements)

    def _extent(self, outer, inner):
        """(the product of two extents, the sizes that the nest has then)."""
        if outer.is_constant and inner.is_constant:
            return Affine.make({}, outer.constant * inner.constant), self.nest.sizes
        number = len(self.nest.sizes)
        while f"n{number}" in self._taken:
            number += 1
        name = f"n{number}"
        self._taken.add(name)
        texts = [form.text() for form in (outer, inner)]
        for old, value in self.values.items():
            texts = [f"({value})" if text == old else text for text in texts]
        self.values[name] = " * ".join(text if text.isalnum() or text.startswith("(") else f"({text})" for text in texts)
        return Affine.variable(name), (*self.nest.sizes, SizeEntry(name))


class _Pair(NamedTuple):
    """places: {tensor: its indices that become one with the next}; dims: {statement: {dim: the dim that becomes one with it}};
    extents: of both."""
    places: Dict[str, list]
    dims: Dict[str, Dict[str, str]]
    extents: Tuple[Affine, Affine]


def _inner_dims(classes, statement, places, pair, extents):
    """{dim: the dim inside it} of a statement's dims of two classes; None where they are not used in pairs alone."""
    found = {}
    for access in accesses_of(statement):
        piece = only_piece(access.relation)
        for place in places[access.tensor]:
            outer, inner = (form.text() for form in piece.functions[place:place + 2])
            if found.setdefault(outer, inner) != inner:
                return None
    outer, inner = ({dim for dim in statement.dims if classes.root((owner_of(statement), dim)) == root} for root in pair)
    if set(found) != outer or set(found.values()) != inner or len(inner) != len(outer):
        return None
    if not outer:
        return found
    relations = [access.relation for access in accesses_of(statement)]
    names = {name for text in (*relations, *statement.indices) for piece in pieces(text) for name in piece.condition.names()}
    domain = only_piece(statement.domain)
    if domain is None or names & (outer | inner) or not _are_places(statement, found, extents[1]):
        return None
    for dims, extent in ((outer, extents[0]), (inner, extents[1])):
        for dim in dims:
            form = Affine.variable(dim)
            bounds = {at_least_zero(form), at_least_zero(extent - form - 1)}
            if {part for part in conjuncts(domain.condition) if dim in part.names()} != bounds:
                return None
    return found


def _are_places(statement, dims, extent):
    """Whether the integers of a statement see pairs of dims as one: the outer one's factor is the inner one's times its extent."""
    for form in (form for text in statement.indices for piece in pieces(text) for form in piece.functions):
        known, factors = dict(form.terms), {}
        for outer, inner in dims.items():
            factors.update({outer: known.get(outer, 0), inner: known.get(inner, 0)})
            if extent.times(factors[inner]) != Affine((), factors[outer]):
                return False
        quotients = [atom.numerator for atom, _ in form.terms if not isinstance(atom, str)]
        if any(numerator.names() & set(factors) for numerator in quotients):
            return False
    return True


def _with_pair(statement, pair, extent):
    """A statement with one dim in place of two."""
    dims = pair.dims[statement.name]
    if not dims:
        return statement
    gone = set(dims.values())
    places = {outer: Affine((), 0) for outer in dims} | {inner: Affine.variable(outer) for outer, inner in dims.items()}
    kept = tuple(dim for dim in statement.dims if dim not in gone)

    def seen(text, places=()):
        """A set, relation or function of the statement's new dims."""
        piece, = pieces(text)
        functions = [form for place, form in enumerate(piece.functions) if place - 1 not in places]
        return dataclasses.replace(piece, dims=kept if piece.name else (), functions=tuple(functions)).text()

    def place_of(text):
        """A function with a factor of the new dim that is the inner one's."""
        piece, = pieces(text)
        return seen(dataclasses.replace(piece, functions=tuple(form.substitute(places) for form in piece.functions)).text())

    def access(found):
        return dataclasses.replace(found, relation=seen(found.relation, pair.places[found.tensor]))

    domain = only_piece(statement.domain)
    bounds = [part for part in conjuncts(domain.condition) if not part.names() & {*dims, *gone}]
    for dim in dims:
        form = Affine.variable(dim)
        bounds += [at_least_zero(form), at_least_zero(extent - form - 1)]
    return dataclasses.replace(statement, dims=kept, write=access(statement.write), reads=tuple(map(access, statement.reads)),
                               indices=tuple(map(place_of, statement.indices)),
                               domain=dataclasses.replace(domain, dims=kept, condition=both(*bounds)).text())


def _with_sizes(nest, sizes, tensors, statements):
    """The nest of these tensors and statements, with those of `sizes` that it has or that its context says more of than that there
    is one."""
    texts = [*(text for tensor in tensors for text in tensor.shape), *(text for each in statements for text in _texts(each))]
    used = {name for text in texts for piece in pieces(text)
            for part in (*piece.functions, piece.condition) for name in part.names()}
    bounds = conjuncts(only_piece(nest.context).condition)
    kept = []
    for size in sizes:
        if size.name in used or not all(_is_lower_bound(part) for part in bounds if size.name in part.names()):
            kept.append(size)
    names = {size.name for size in kept}
    conditions = [*(part for part in bounds if part.names() <= names),
                  *(at_least_zero(Affine.variable(size.name) - 1) for size in kept if size not in nest.sizes)]
    condition = both(*conditions)
    return resized(dataclasses.replace(nest, tensors=tensors, statements=statements), kept,
                   [] if condition == TRUE else [condition.text()])


def _is_lower_bound(part):
    """Whether a condition says of one size no more than that there is one of it."""
    return (isinstance(part, Compare) and not part.equality and [factor for _, factor in part.form.terms] == [1]
            and part.form.constant >= -1)


def _texts(statement):
    return (statement.domain, *(access.relation for access in accesses_of(statement)), *statement.indices)
