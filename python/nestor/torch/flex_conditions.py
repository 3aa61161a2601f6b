"""Conditions and values of masks and scores, looked at: what parts they have, and what is plainly so."""

import functools
import math

import torch

from ..nests.affine import TRUE, Affine, Compare, Floor, Joined, Negated, both, either
from ..nests.values import Value, constant, from_affine, from_condition
from .importer.bounds import is_never_negative

HIDDEN = float("-inf")  #: the score of a key that is not seen


def parts_of(mask):
    """The nodes that a mask is the conjunction of."""
    if mask is None:
        return []
    both_of = (torch.ops.aten.bitwise_and.Tensor, torch.ops.aten.logical_and.default)
    if isinstance(mask, torch.fx.Node) and mask.target in both_of and all(
            isinstance(each, torch.fx.Node) and each.meta["val"].dtype == torch.bool for each in mask.args):
        return [part for each in mask.args for part in parts_of(each)]
    return [mask]


def conjuncts(value):
    if value.op == "and":
        return [part for each in value.args for part in conjuncts(each)]
    joined = value.condition
    if isinstance(joined, Joined) and joined.conjunction:
        return [from_condition(part) for part in joined.parts]
    return [value]


def pieces(condition):
    """How many convex pieces a condition has at most."""
    if isinstance(condition, Joined):
        counts = [pieces(part) for part in condition.parts]
        return math.prod(counts) if condition.conjunction else sum(counts)
    return 2 if isinstance(condition, Negated) else 1


def quotients(condition):
    """The floors in a condition."""
    if isinstance(condition, Joined):
        return set().union(*map(quotients, condition.parts))
    form = getattr(getattr(condition, "part", condition), "form", None)
    return {atom for atom, _ in form.terms if isinstance(atom, Floor)} if form is not None else set()


def tested(condition):
    """A condition as a test of integers that are computed, quotients too: nothing that isl sees."""
    if isinstance(condition, Joined):
        parts = [tested(part) for part in condition.parts]
        return functools.reduce(lambda a, b: a & b if condition.conjunction else a | b, parts)
    if isinstance(condition, Negated):
        return ~tested(condition.part)
    if not isinstance(condition, Compare):
        return from_condition(condition)
    return Value("eq" if condition.equality else "le", "bool", (constant(0), _computed(condition.form)))


def _computed(form):
    total = constant(form.constant)
    for atom, factor in form.terms:
        part = from_affine(Affine.variable(atom)) if isinstance(atom, str) else Value(
            "div", "i32", (_computed(atom.numerator), constant(atom.denominator)))
        total = Value("add", "i32", (total, part if factor == 1 else Value("mul", "i32", (part, constant(factor)))))
    return total


def known_forms(where):
    """Affines that are at least 0 where a condition holds."""
    parts = where.parts if isinstance(where, Joined) and where.conjunction else (where,)
    return [form for part in parts if isinstance(part, Compare)
            for form in ((part.form, -part.form) if part.equality else (part.form,))]


def holds(condition):
    """Whether a condition plainly holds for all indices and sizes."""
    if isinstance(condition, Joined) and condition.conjunction:
        return all(holds(part) for part in condition.parts)
    if isinstance(condition, Joined):
        return any(holds(part) or ~part in condition.parts for part in condition.parts)
    if isinstance(condition, Compare) and not condition.equality:
        return is_never_negative(condition.form)
    return condition == TRUE


def is_hidden(value):
    return value.op == "constant" and value.payload == HIDDEN


def may_hide(value):
    """Whether a score may be -inf by what is in it besides the product of query and key: a constant, or data that is added."""
    if value.op in ("constant", "read"):
        return is_hidden(value) or (value.op == "read" and value.type != "i32" and value.payload[0].name != "dot")
    if value.op in ("exp", "exp2", "tanh", "erf", "lt", "le", "eq", "and", "or", "not"):
        return False
    args = value.args[1:] if value.op == "select" else value.args
    if value.op in ("mul", "div"):  # of infinite data, a row has a NaN
        args = [arg for arg in args if arg.op not in ("read", "cast")]
    return value.op == "log" or any(may_hide(arg) for arg in args)


def without_quotients(condition, index):
    """The condition without quotients of an index where it is one of that index itself: then it bounds a loop."""
    if isinstance(condition, Joined):
        return (both if condition.conjunction else either)(*(without_quotients(part, index) for part in condition.parts))
    if not isinstance(condition, Compare):
        return condition
    own, = index.affine.names()
    found = [(atom, factor) for atom, factor in condition.form.terms if own in Affine(((atom, 1),)).names()]
    if len(found) != 1 or not isinstance(found[0][0], Floor) or abs(found[0][1]) != 1:
        return condition
    (quotient, sign), = found
    rest = (condition.form - Affine(((quotient, sign),))) * -sign  # the quotient is at least, or at most, this
    least = quotient.numerator >= rest * quotient.denominator
    most = quotient.numerator < (rest + 1) * quotient.denominator
    return both(least, most) if condition.equality else least if sign > 0 else most
