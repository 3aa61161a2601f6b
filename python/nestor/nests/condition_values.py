"""Conditions as values: what statements compute where they choose by indices."""

import functools

from .affine import Affine, Compare, Constant, Joined, Negated
from .values import Value, from_affine


def condition_value(condition, bounded=False):
    """A Condition as a tree of operations on integers: what nest files hold. bounded: constants are taken from sums of variables,
    never added, so that a sum of indices and sizes that fits 32 bits still does."""
    if isinstance(condition, Constant):
        zero = Value("constant", "i32", payload=0)
        return Value("eq", "bool", (zero, Value("constant", "i32", payload=0 if condition.holds else 1)))
    if isinstance(condition, Negated):
        return Value("not", "bool", (condition_value(condition.part, bounded),))
    if isinstance(condition, Joined):
        parts = [condition_value(part, bounded) for part in condition.parts]
        op = "and" if condition.conjunction else "or"
        return functools.reduce(lambda a, b: Value(op, "bool", (a, b)), parts)
    assert isinstance(condition, Compare)
    form = condition.form
    left = Affine.make({a: -f for a, f in form.terms if f < 0})
    right = Affine.make({a: f for a, f in form.terms if f > 0})
    taken = bounded and (left.terms if form.constant > 0 else right.terms)
    if (form.constant > 0) == bool(taken):
        left = left - form.constant
    else:
        right = right + form.constant
    return Value("eq" if condition.equality else "le", "bool", (from_affine(left), from_affine(right)))
