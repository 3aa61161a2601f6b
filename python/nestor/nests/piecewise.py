"""Comparisons of integers that are affine by pieces: magnitudes, extrema and choices of affine integers are conditions too."""

from .affine import Affine, both, either

_MOST = 64  # comparisons; what takes more is left a test of values


def comparison(op, a, b):
    """lt, le or eq of two integers as a Condition, or None where that cannot be said. Operands have .affine, .op, .args and
    .payload, as Values do."""
    search = _Search()
    if op == "lt":
        a, b = b, a
    found = search.at_most(a, b)
    if found is not None and op == "eq":
        other = search.at_most(b, a)
        found = None if other is None else both(found, other)
    return ~found if found is not None and op == "lt" else found


class _Search:
    def __init__(self):
        self.count = 0

    def at_most(self, a, b):
        """The condition a <= b, or None. Either may be an Affine."""
        self.count += 1
        if self.count > _MOST:
            return None
        left, right = _affine(a), _affine(b)
        if left is not None and right is not None:
            return left <= right
        if left is None:
            return self._split(a, lambda part: self.at_most(part, b), right, False)
        return self._split(b, lambda part: self.at_most(a, part), left, True)

    def _split(self, value, compared, other, greater):
        """The condition on a value by those on its parts. other: the other side, if that is affine; greater: the value is the
        right side."""
        op, args = value.op, value.args
        if op == "select" and args[0].condition is not None:
            then, otherwise = compared(args[1]), compared(args[2])
            condition = args[0].condition
            return None if then is None or otherwise is None else either(both(condition, then), both(~condition, otherwise))
        if op in ("min", "max"):
            return _joined([compared(part) for part in args], (op == "max") != greater)
        if other is None:
            return None
        if op == "abs":
            return _joined([compared(args[0]), self._negated(args[0], other, greater)], not greater)
        if op == "neg":
            return self._negated(args[0], other, greater)
        if op in ("add", "sub"):
            return self._moved(op, *args, other, greater)
        return None

    def _negated(self, part, other, greater):
        """-part <= other, or other <= -part."""
        return self.at_most(part, -other) if greater else self.at_most(-other, part)

    def _moved(self, op, first, second, other, greater):
        """first + second, or first - second, compared, where one of them is affine."""
        if _affine(second) is not None:
            rest = other - _affine(second) if op == "add" else other + _affine(second)
            return self.at_most(rest, first) if greater else self.at_most(first, rest)
        if _affine(first) is None:
            return None
        rest = other - _affine(first)
        if op == "sub":
            return self._negated(second, rest, greater)
        return self.at_most(rest, second) if greater else self.at_most(second, rest)


def _affine(value):
    return value if isinstance(value, Affine) else value.affine


def _joined(conditions, conjunction):
    if any(condition is None for condition in conditions):
        return None
    return both(*conditions) if conjunction else either(*conditions)
