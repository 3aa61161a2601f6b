"""Which sizes the shapes of tensors tell: extents are sums of multiples of sizes."""

import re
import typing

_TERM = re.compile(r"(?:(-?\d+)\*)?([A-Za-z_]\w*)|(-?\d+)")


class Extent(typing.NamedTuple):
    """coefficients[name] of each size, and a constant: {"length": 2}, 1 is 2*length + 1."""
    coefficients: dict
    constant: int


def read_extent(text):
    """The Extent that a kernel's description writes as text, such as "2*length + 1"; None: it is no sum of multiples."""
    coefficients, constant = {}, 0
    for sign, part in re.findall(r"(^|[+-]\s)\s*([^\s]+)", text):
        factor = -1 if sign.startswith("-") else 1
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


def sizes_told(extents, values, known):
    """The known sizes {name: value}, and those that extents of these values tell. Where nothing fits the next smaller value is
    taken: whoever checks the shapes then says what they should be."""
    sizes = dict(known)
    for k, name in told_by(extents, known):
        rest = values[k] - extents[k].constant
        rest -= sum(factor * sizes[other] for other, factor in extents[k].coefficients.items() if other != name)
        sizes[name] = rest // extents[k].coefficients[name]
    return sizes
