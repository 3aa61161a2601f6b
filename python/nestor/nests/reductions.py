"""Sums, products, extrema and their places over indices, as authors write them."""

import builtins
import functools
import operator

from ..errors import UserError
from .affine import TRUE
from .definitions import condition_of, indices_of
from .model import REDUCTIONS
from .values import Value, as_type, as_value, constant, from_affine, maximum, nodes_of, select, widened


class Reduction:
    """What a "reduce" node stands for: `value` combined by `op` over the indices `over` where `where` holds. made: tensors that
    hold it, one for each condition under which it is read."""

    def __init__(self, op, value, over, where, name):
        self.op, self.value, self.over, self.where, self.name = op, value, over, where, name
        self.made = {}

    @property
    def type(self):
        """Of its result: i32 or f32."""
        return _type_of(self.value)

    def __str__(self):
        return f"{self.op} over {', '.join(index.name for index in self.over)}"


def neutral(op, kind):
    """The value of an empty reduction, as a constant of f32 or i32."""
    if kind == "i32":
        return constant({"add": 0, "mul": 1, "min": 2**31 - 1, "max": -2**31}[op], "i32")
    return constant(REDUCTIONS[op], "f32")


def _type_of(value):
    return "i32" if value.type in ("i32", "bool") else "f32"


def _reduce(op, value, over, where, name):
    value, over = as_value(value), indices_of(over)
    return Value("reduce", _type_of(value), payload=Reduction(op, value, over, condition_of(where), name))


def _check_over(over, name, of_values):
    """Raises UserError for a value where indices must stand."""
    if isinstance(over, (int, float, Value)):
        raise UserError(f"nestor.{name} is over indices, as nestor.{name}(value, over=k), and {over!r} is none; "
                        f"of two values, nestor.{of_values}(a, b)")


def sum(value, over, where=TRUE, name=None):
    """The sum of a value over one index or a tuple of them, where a condition holds; 0 where none does. name: of its tensor."""
    return _reduce("add", value, over, where, name)


def prod(value, over, where=TRUE, name=None):
    """The product of a value over indices; 1 of nothing."""
    return _reduce("mul", value, over, where, name)


def max(value, over, where=TRUE, name=None):
    """The largest value over indices; -inf of nothing, NaN if one is. Of two values: nestor.maximum."""
    _check_over(over, "max", "maximum")
    return _reduce("max", value, over, where, name)


def min(value, over, where=TRUE, name=None):
    """The smallest value over indices; inf of nothing, NaN if one is. Of two values: nestor.minimum."""
    _check_over(over, "min", "minimum")
    return _reduce("min", value, over, where, name)


def mean(value, over, where=None, name=None):
    """The sum of a value over indices, divided by how many points they have: those where a condition holds, if one is given;
    NaN of none."""
    over = indices_of(over)
    if where is not None:
        # The points of several indices may be more than 32 bits count: those of the last one are added up in f32.
        count = sum(1, over[-1:], where)
        return sum(value, over, where, name) / (count if len(over) == 1 else sum(as_type(count, "f32"), over[:-1]))
    count = functools.reduce(operator.mul, (as_type(_points_of(index.extent), "f32") for index in over))
    return sum(value, over, name=name) / count


def _points_of(extent):
    """How many places an index of an extent has: none where it is negative."""
    count = from_affine(extent)
    return count if _is_never_negative(extent) else maximum(count, 0)


def _is_never_negative(extent):
    return extent.constant >= 0 and builtins.all(
        factor >= 0 and (isinstance(atom, str) or _is_never_negative(atom.numerator)) for atom, factor in extent.terms)


def argmax(value, over, where=TRUE, name=None):
    """The place of the largest element over one index, an i32: the first of several, the first NaN if there is one; 2147483647
    of nothing. The value is an element of a tensor, so that all of its readers see the same. Raises UserError for others."""
    return _place("argmax", max, value, over, where, name)


def argmin(value, over, where=TRUE, name=None):
    """The place of the smallest element over one index, as nestor.argmax."""
    return _place("argmin", min, value, over, where, name)


def _place(called, extremum, value, over, where, name):
    value, over = widened(as_value(value)), indices_of(over)
    if len(over) != 1:
        raise UserError(f"nestor.{called} is over one index, not {len(over)}")
    if next(node for node in nodes_of(value) if node.op != "cast").op != "read":
        raise UserError(f'nestor.{called} takes an element: give the value a name, y = nestor.define("y", (i, k), {value!r}), '
                        f"and take nestor.{called}(y[i, k], over=k)")
    is_best = value == extremum(value, over, where)
    if value.type == "f32":
        is_best = is_best | (value != value)
    return min(select(is_best, over[0], 2**31 - 1), over, where, name)
