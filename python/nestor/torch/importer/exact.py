"""Whether values of 32 bits are PyTorch's: ranges of values, and what may be computed of 64-bit integers from memory.

A nest reads such an integer as the nearest i32. Choices, minima and maxima keep the order of what they choose from, so that
theirs is the nearest of the right one, too. A comparison with a number strictly inside 32 bits says the same of both.
"""

import math

from .bounds import least_number, limits
from .extents import Unsupported

LOW, HIGH = -2**31, 2**31 - 1
_INSIDE = LOW + 1, HIGH - 1  # where indices and sizes are, unless their limits say more


def range_of(value, ranges=None):
    """(lowest, highest) number of a value of i32 or f32. ranges: as limits() has them."""
    return _Ranges(ranges).of(value)


def is_inside(limits_, low=LOW, high=HIGH):
    return low <= limits_[0] and limits_[1] <= high


class _Ranges:
    """Ranges of values, each found once."""

    def __init__(self, ranges=None):
        self.ranges, self._known = ranges, {}

    def of(self, value):
        if id(value) not in self._known:
            found = self._found(value)
            if value.type == "i32" and not is_inside(found):
                found = LOW, HIGH
            self._known[id(value)] = found, value  # which keeps its identity
        return self._known[id(value)][0]

    def _found(self, value):
        if value.op == "constant":
            return value.payload, value.payload
        if value.op == "index":
            return self.of_form(value.payload) or _INSIDE
        if value.op in _OPERATIONS and all(arg.type in ("i32", "f32") for arg in _numbers(value)):
            low_high = [self.of(arg) for arg in _numbers(value)]
            found = _OPERATIONS[value.op](*low_high)
            if not any(map(math.isnan, found)):
                return found
        return (LOW, HIGH) if value.type == "i32" else _ALL

    def of_form(self, form):
        """The range of an Affine as far as its limits are numbers; None where they are not."""
        low, high = limits(form, self.ranges)
        least, most = least_number(low), least_number(-high)
        return None if least is None or most is None else (least, -most)


def _numbers(value):
    return value.args[1:] if value.op == "select" else value.args


def _hull(*found):
    return min(low for low, _ in found), max(high for _, high in found)


_ALL = -math.inf, math.inf


def _products(a, b):
    found = [x * y for x in a for y in b]
    return _ALL if any(map(math.isnan, found)) else (min(found), max(found))


def _quotient(a, b):
    """Of a constant divisor; rounded down, as integers are, or not."""
    low, high = _products(a, (1 / b[0],) * 2) if b[0] == b[1] != 0 else _ALL
    return _floor(low), high


def _floor(number):
    return number if math.isinf(number) else math.floor(number)


_OPERATIONS = {
    "select": _hull,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (max(a[0], -a[1], 0), max(-a[0], a[1])),
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _products,
    "div": _quotient,
    "floor": lambda a: (_floor(a[0]), _floor(a[1])),
    "cast": lambda a: a,
}


class Exactness:
    """Looks at the values of a graph, at each node once."""

    def __init__(self):
        self._nearest, self._tensors = {}, {}  # by id; they keep what they are of

    def require(self, value, wide, ranges):
        """Raises Unsupported unless a value is what PyTorch has; wide: of 64-bit integers, the nearest i32 will do."""
        limits_ = _Ranges(ranges)
        if self._is_nearest(value, limits_) and not wide:
            raise Unsupported("arithmetic of 64-bit integers from memory")

    def _is_nearest(self, value, found):
        """Whether a value may be the nearest i32 of another integer."""
        waiting = [value]
        while waiting:
            node = waiting[-1]
            missing = [] if id(node) in self._nearest else [arg for arg in node.args if id(arg) not in self._nearest]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if id(node) not in self._nearest:
                self._nearest[id(node)] = self._of(node, found), node
        return self._nearest[id(value)][0]

    def _of(self, node, found):
        if node.op == "read":
            self._look_at(node.payload[0])
            return node.payload[0].type == "i64"
        if node.op == "index":
            own = found.of_form(node.payload)
            if own is not None and not is_inside(own):
                raise Unsupported("integers of indices that 32 bits are too few for")
            return False
        nearest = [self._nearest[id(arg)][0] for arg in node.args]
        if not any(nearest) or node.type == "i32" and node.args[0].type == "i64":
            return any(nearest)
        if node.op in ("select", "min", "max"):
            return not is_inside(found.of(node), *_INSIDE)
        if node.op in ("eq", "lt", "le") and not all(nearest):
            if is_inside(found.of(node.args[nearest.index(False)]), *_INSIDE):
                return False
            raise Unsupported("comparisons of 64-bit integers from memory with what may be no number of 32 bits")
        raise Unsupported("arithmetic of 64-bit integers from memory")

    def _look_at(self, tensor):
        """The values of a temporary: none is the nearest of another integer."""
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = tensor
            for update in tensor.updates:
                self.require(update.value, False, None)
