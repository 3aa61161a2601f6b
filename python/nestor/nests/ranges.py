"""Bounds of what is affine, by the ranges of its indices and sizes."""

import itertools
import math

from .affine import Affine, Floor

_LONGEST_PERIOD = 1024  # points


def least_of(form):
    """A lower bound of an Affine at all indices and sizes; -inf if none is known."""
    least = _least_by_terms(form)
    return least if least > -math.inf else _least_of_period(form)


def most_of(form):
    """An upper bound of an Affine at all indices and sizes; inf if none is known."""
    return -least_of(-form)


def _least_by_terms(form):
    form, floors = _without_floors(form)
    if floors == -math.inf:
        return floors
    sizes = Affine((), form.constant + floors)
    for atom, factor in form.terms:
        extent = getattr(getattr(atom, "owner", None), "extent", None)
        if extent is not None:
            sizes = sizes + ((extent - 1).times(factor) if factor < 0 else 0)
        else:
            sizes = sizes + Affine(((atom, factor),))
    least = sizes.constant
    for atom, factor in sizes.terms:
        limit = getattr(getattr(atom, "owner", None), "min" if factor > 0 else "max", None)
        if limit is None:
            return -math.inf
        least += limit * factor
    return least


def _least_of_period(form):
    """The least value of an Affine that comes back as its variables go on, such as 16 (i % 2) + 4 (i % 8 // 2); -inf for
    others, and for long periods."""
    names, period = sorted(form.names()), _period(form)
    if period**len(names) > _LONGEST_PERIOD:
        return -math.inf
    start = dict.fromkeys(names, 0)
    if any(form.value({**start, name: period}) != form.value(start) for name in names):
        return -math.inf
    return min(form.value(dict(zip(names, point))) for point in itertools.product(range(period), repeat=len(names)))


def _period(form):
    """After so many of any variable an Affine has grown by a constant."""
    return math.lcm(*(atom.denominator * _period(atom.numerator) for atom, _ in form.terms if isinstance(atom, Floor)))


def _without_floors(form):
    """(form, bound): what is left of an Affine without its floors, and a lower bound of those; of remainders, x -
    n floor(x / n) with all of x, it is 0 or -(n - 1)."""
    bound = 0
    for atom, factor in form.terms:
        if not isinstance(atom, Floor):
            continue
        share = -factor // atom.denominator
        of_remainder = atom.numerator.times(share)
        present = dict(form.terms)
        form = form - Affine(((atom, factor),))
        if share * atom.denominator == -factor and all(present.get(each) == times for each, times in of_remainder.terms):
            form = form - of_remainder
            bound += min(share * (atom.denominator - 1), 0)
        else:
            least = least_of(atom.numerator) if factor > 0 else -least_of(-atom.numerator)
            bound += factor * (least // atom.denominator) if math.isfinite(least) else -math.inf
    return form, bound
