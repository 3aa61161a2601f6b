"""Which sizes the shapes of tensors tell: extents are sums of multiples of sizes."""

import math
import re
import typing
from fractions import Fraction

_SIGN = re.compile(r"\s+([+-])\s+")
_TERM = re.compile(r"(?:(-?\d+)\*)?([A-Za-z_]\w*)|(-?\d+)")


class Extent(typing.NamedTuple):
    """coefficients[name] of each size, and a constant: {"length": 2}, 1 is 2*length + 1."""
    coefficients: dict
    constant: int


def read_extent(text):
    """The Extent that a kernel's description writes as text, such as "2*length + 1"; None: it is no sum of multiples."""
    coefficients, constant = {}, 0
    first, *rest = _SIGN.split(text.strip())
    for sign, part in [("+", first), *zip(rest[::2], rest[1::2])]:
        factor = -1 if sign == "-" else 1
        term = _TERM.fullmatch(part)
        if term is None:
            return None
        if term[3]:
            constant += factor * int(term[3])
        else:
            coefficients[term[2]] = coefficients.get(term[2], 0) + factor * int(term[1] or 1)
    return Extent({name: factor for name, factor in coefficients.items() if factor}, constant)


def told_by(extents, known=()):
    """In which order extents tell sizes that are not among the known ones: [(place in extents, size)]. An extent tells the one
    size that it has beside those told before. Extents may be None."""
    known, order = set(known), []
    # An extent that is a size by itself tells it before others do.
    places = sorted((k for k, extent in enumerate(extents) if extent is not None),
                    key=lambda k: (list(extents[k].coefficients.values()) != [1] or extents[k].constant != 0, k))
    found = True
    while found:
        found = False
        for k in places:
            unknown = [name for name in extents[k].coefficients if name not in known]
            if len(unknown) == 1:
                known.add(unknown[0])
                order.append((k, unknown[0]))
                found = True
                break
    return order


def names_told(extents, known=()):
    """The sizes that extents tell besides the known ones."""
    names = [name for _, name in told_by(extents, known)]
    return [*names, *_solved(extents, {*known, *names})]


def sizes_told(extents, values, known):
    """The known sizes {name: value}, and those that extents of these values tell. Where nothing fits the next smaller value is
    taken: whoever checks the shapes then says what they should be."""
    sizes = dict(known)

    def rest(k):
        return values[k] - extents[k].constant - sum(
            factor * sizes[name] for name, factor in extents[k].coefficients.items() if name in sizes)

    for k, name in told_by(extents, known):
        sizes[name] = rest(k) // extents[k].coefficients[name]
    found = {name: math.floor(sum(factor * rest(k) for k, factor in weights.items()))
             for name, weights in _solved(extents, sizes).items()}
    return {**sizes, **found}


def disagreement(tensor, shapes, known):
    """What the shape of one tensor says and what those of others say, where they differ; "" where none does.

    shapes: {tensor: [(Extent or None, its text, value)]} of all; known: the sizes that are given."""
    owners, extents, values = zip(*((owner, extent, value) for owner, shape in shapes.items() for extent, _, value in shape))
    sizes, tellers = sizes_told(extents, values, known), {name: ("the given sizes", ) for name in known}
    for k, name in told_by(extents, known):
        tellers[name] = (f'tensor "{owners[k]}"', )
    for name, weights in _solved(extents, tellers).items():
        tellers[name] = tuple(dict.fromkeys(f'tensor "{owners[k]}"' for k in weights))
    said, others = [], {}
    for extent, text, value in shapes[tensor]:
        if extent is None or not sizes.keys() >= extent.coefficients.keys():
            continue
        if value != extent.constant + sum(factor * sizes[name] for name, factor in extent.coefficients.items()):
            said.append(f"{text} is {value} there")
            others.update((name, f"{name} is {sizes[name]} by {' and '.join(tellers[name])}") for name in extent.coefficients
                          if tellers[name] != (f'tensor "{tensor}"', ))
    return f"{', '.join(said)}, but {', '.join(others.values())}" if others else ""


def _solved(extents, known):
    """{size: {place: factor}} of the sizes that several sums tell together, less what known sizes add to them."""
    rows = [({name: Fraction(factor) for name, factor in extent.coefficients.items() if name not in known}, {k: Fraction(1)})
            for k, extent in enumerate(extents) if extent is not None]
    rows, done = [row for row in rows if row[0]], []
    while rows:
        row, *rows = rows
        pivot = next(iter(row[0]))
        row = tuple(_sum(side, side, 1 / row[0][pivot] - 1) for side in row)
        rows, done = [[_without(other, row, pivot) for other in each] for each in (rows, done)]
        rows, done = [other for other in rows if other[0]], [*done, row]
    return {next(iter(names)): weights for names, weights in done if len(names) == 1}


def _without(row, other, name):
    """A row less the multiple of another that has this name once."""
    return tuple(_sum(side, more, -row[0].get(name, 0)) for side, more in zip(row, other))


def _sum(terms, more, factor):
    """terms + factor * more, without zeros."""
    found = {name: terms.get(name, 0) + factor * more.get(name, 0) for name in {**terms, **more}}
    return {name: value for name, value in found.items() if value}
