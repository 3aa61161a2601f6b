"""What values an affine integer can have: limits over the ranges of its indices, and whether a difference is never negative."""

from ...nests.affine import Affine, Floor


def limits(form, ranges=None):
    """(lowest, highest) of an Affine as Affines of sizes alone. ranges: {variable: extent} of indices from 0; an Index of a
    statement brings its own. Correlated terms may make them wider than they are."""
    low, high = Affine((), form.constant), Affine((), form.constant)
    form, least, most = _remainders(form)
    low, high = low + least, high + most
    for atom, factor in form.terms:
        first, last = _limits_of(atom, ranges or {})
        low, high = (low + first * factor, high + last * factor) if factor > 0 else (low + last * factor, high + first * factor)
    return low, high


def _limits_of(atom, ranges):
    if isinstance(atom, Floor):
        low, high = limits(atom.numerator, ranges)
        return low // atom.denominator, high // atom.denominator
    extent = ranges.get(atom, getattr(getattr(atom, "owner", None), "extent", None))
    if extent is None:
        return Affine.variable(atom), Affine.variable(atom)
    return Affine((), 0), extent - 1


def _remainders(form):
    """The form without the terms that together are c (x mod d), and the limits of these."""
    least, most = Affine((), 0), Affine((), 0)
    for atom, factor in form.terms:
        if not isinstance(atom, Floor) or factor % atom.denominator:
            continue
        count = -factor // atom.denominator
        rest = form - (atom.numerator * count + Affine(((atom, factor),)))
        if len(rest.terms) < len(form.terms) - len(atom.numerator.terms):
            form = rest
            span = Affine((), count * (atom.denominator - 1))
            least, most = (least, most + span) if count > 0 else (least + span, most)
    return form, least, most


def least_number(form):
    """The least number that an Affine of sizes can be, or None where it has no least."""
    total = form.constant
    for atom, factor in form.terms:
        if isinstance(atom, Floor):
            inner = least_number(atom.numerator) if factor > 0 else None
            if inner is None:
                return None
            total += factor * (inner // atom.denominator)
            continue
        owner = getattr(atom, "owner", None)
        limit = getattr(owner, "min" if factor > 0 else "max", None)
        if limit is None:
            return None
        total += factor * limit
    return total


def is_never_negative(form, ranges=None):
    """Whether an Affine is plainly at least 0 for all indices and sizes."""
    least = least_number(limits(form, ranges)[0])
    return least is not None and least >= 0
