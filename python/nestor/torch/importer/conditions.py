"""Conditions and values of masks and scores, looked at: what parts they have, and what is plainly so."""

import functools
import math

from ...nests.affine import FALSE, TRUE, Affine, Compare, Constant, Floor, Joined, Negated, both, either
from ...nests.values import Value, as_type, cast, constant, from_affine, from_condition, select
from .bounds import is_never_negative

HIDDEN = float("-inf")  #: the score of a key that is not seen
FLOOR = -1e30  #: below every score of ordinary data: where a row's maximum starts if the row may see nothing
_MOST_PIECES = 8  # of a domain, half as many for each quotient in it; what would bring more is tested instead


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


def narrowed(where, value, index):
    """(domain, tests): `where` and the affine conditions of a value of bool, as far as they make a domain of few pieces, and
    what is left to test. index: of the keys, over which loops are."""
    tests = []
    for part in conjuncts(value):
        narrower = None if part.condition is None else both(where, without_quotients(part.condition, index))
        if narrower is None or pieces(narrower) > _MOST_PIECES >> len(quotients(narrower)):
            tests.append(part if part.condition is None else tested(part.condition))
        else:
            where = narrower
    return where, tests


def seen_part(value, lowest=FLOOR):
    """(condition, rest): the affine condition under which a score is not -inf, or lower than `lowest`, by a constant in it; and
    the score where it holds."""
    where, found = TRUE, True
    while found:
        found = False
        for condition in _choices(value):
            for holds_, kept in ((FALSE, condition), (TRUE, ~condition)):
                if _is_low(folded(value, condition, holds_), lowest):
                    where, value, found = both(where, kept), folded(value, condition, TRUE if holds_ == FALSE else FALSE), True
                    break
            if found:
                break
    return where, value


_MOST_CHOICES = 8
_TRANSPARENT = ("select", "add", "sub", "mul", "div", "neg", "cast", "and", "or", "not")


def _choices(value):
    """The affine conditions on which sums and choices in a value depend."""
    found, waiting, seen = [], [value], set()
    while waiting and len(found) < _MOST_CHOICES:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.op == "condition" and not isinstance(node.payload, Constant) and node.payload not in found:
            found.append(node.payload)
        if node.op in _TRANSPARENT:
            waiting += node.args
    return found


def folded(value, condition, holds_):
    """The value where a condition holds (TRUE) or does not (FALSE), with constants folded."""
    if value.op == "condition":
        return from_condition(holds_ if value.payload == condition else ~holds_ if value.payload == ~condition else value.payload)
    if value.op not in _TRANSPARENT:
        return value
    args = [folded(arg, condition, holds_) for arg in value.args]
    if all(one is other for one, other in zip(args, value.args)):
        return value
    if value.op == "select":
        return select(*args, value.payload)
    if value.op in ("and", "or", "not"):
        return ~args[0] if value.op == "not" else args[0] & args[1] if value.op == "and" else args[0] | args[1]
    if value.op == "cast":
        return args[0] if value.type == args[0].type else as_type(args[0], value.type) if value.type in ("f32", "i32") else cast(
            value.type, args[0])
    return _sum_of(value, args)


def _sum_of(value, args):
    numbers = [arg.payload if arg.op == "constant" else None for arg in args]
    if value.type == "f32" and None not in numbers and not (value.op == "div" and numbers[1] == 0):
        a, b = (*numbers, 0)[:2]
        return constant({"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / b,
                         "neg": lambda: -a}[value.op](), "f32")
    if value.op in ("add", "sub") and numbers[1] == 0:
        return args[0]
    if value.op == "add" and numbers[0] == 0:
        return args[1]
    return Value(value.op, value.type, args, value.payload)


def _is_low(value, lowest):
    """Whether a value is a constant that hides a score, whatever is added to it."""
    if value.op == "constant":
        return value.type == "f32" and value.payload <= lowest
    if value.op == "select":
        return all(_is_low(arg, lowest) for arg in value.args[1:])
    if value.op == "add":
        return any(_is_low(arg, lowest) for arg in value.args)
    return value.op in ("sub", "cast") and _is_low(value.args[0], lowest)


def sees_a_key(where, key, others=()):
    """Whether every row plainly has a key where a condition holds: the first, the last, or one of other places."""
    name, = key.affine.names()
    return any(holds(where.substitute({name: place})) for place in (Affine((), 0), key.extent - 1, *others))


def may_hide(value):
    """Whether a score may be -inf by what is in it besides the product of query and key: a constant, or data that is added."""
    if value.op in ("constant", "read"):
        return is_hidden(value) or (value.op == "read" and value.type != "i32" and not value.payload[0].name.endswith("dot"))
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
