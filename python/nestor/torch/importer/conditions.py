"""Conditions and values of masks and scores, looked at: what parts they have, and what is plainly so."""

import functools
import math
import operator

from ...nests.affine import (FALSE, TRUE, Affine, Compare, Constant, Floor, Joined, Negated, at_least_zero, both,
                             either)
from ...nests.values import Value, as_type, cast, constant, from_affine, from_condition, select
from .bounds import is_never_negative

HIDDEN = float("-inf")  #: the score of a key that is not seen
FLOOR = -1e30  #: below every score of ordinary data: a constant up to it hides what it is added to
LEAST = -3.4028234663852886e38  #: the least finite number of f32
_MOST_CHOICES = 8
_MOST_PIECES = {0: 8, 1: 3, 2: 1}  # of a domain, by the quotients in it; what would bring more is tested instead


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
    what is left to test. index: of the keys, over which loops are. Of a condition that is tested, the domain has what follows
    from it without quotients."""
    tests, parts = [], conjuncts(value)
    with_quotients = sum(part.condition is not None and bool(quotients(part.condition)) for part in parts)
    for part in parts:
        if part.condition is None:
            tests.append(part)
            continue
        own = simpler(part.condition)
        condition = simpler(without_quotients(own, index))
        narrower = both(where, condition)
        several = with_quotients > 1 and pieces(condition) > 1 and bool(quotients(condition))
        if several or not _is_simple(narrower, index):
            tests.append(tested(own))
            narrower = both(where, loosened(condition, index))
        where = narrower if _is_simple(narrower, index) else where
    return where, tests


def comparisons(condition):
    """The comparisons in a condition, in order, each as often as it stands there."""
    if isinstance(condition, Joined):
        return [each for part in condition.parts for each in comparisons(part)]
    return [condition]


def _absorbed(condition):
    """Without parts that hold everywhere, or that others make up for: (a and b) or b is b."""
    if not isinstance(condition, Joined):
        return TRUE if holds(condition) else FALSE if holds(~condition) else condition
    join = both if condition.conjunction else either
    parts = [_absorbed(part) for part in condition.parts]
    terms = [set(part.parts) if isinstance(part, Joined) and part.conjunction != condition.conjunction else {part} for part in parts]
    kept = [part for at, part in enumerate(parts)
            if not any(other < terms[at] or (other == terms[at] and before < at) for before, other in enumerate(terms))]
    return join(*kept)


def simpler(condition):
    """The same condition, cut by a comparison that it has often, and has no quotient, if it is shorter then: what `where` in a mask
    leaves."""
    condition = _absorbed(condition)
    found = comparisons(condition)
    often = [each for each in found if isinstance(each, Compare) and not each.equality and not quotients(each)]
    best = max(often, key=lambda each: sum(other in (each, ~each) for other in often), default=None)
    if best is None:
        return condition
    parts = [both(side, simpler(_given(condition, side))) for side in (best, ~best)]
    cut = either(*parts)
    return simpler(cut) if len(comparisons(cut)) < len(found) else condition


def _given(condition, known):
    """The condition where another one holds."""
    if isinstance(condition, Joined):
        return (both if condition.conjunction else either)(*(_given(part, known) for part in condition.parts))
    return TRUE if condition == known else FALSE if condition == ~known else condition


def _is_simple(condition, index):
    """Whether isl makes loops of a domain soon: it has few pieces, and no quotients of the keys' index."""
    found = quotients(condition)
    own, = index.affine.names()
    return pieces(condition) <= _MOST_PIECES.get(len(found), 0) and not any(own in atom.numerator.names() for atom in found)


def loosened(condition, index):
    """A condition without quotients that holds where this one does, and bounds the index; else TRUE."""
    if isinstance(condition, Joined):
        return (both if condition.conjunction else either)(*(loosened(part, index) for part in condition.parts))
    own, = index.affine.names()
    if not isinstance(condition, Compare):
        return condition if isinstance(condition, Constant) else TRUE
    forms = (condition.form, -condition.form) if condition.equality else (condition.form,)
    return both(*(found for found in map(_loosened, forms) if own in found.names()))


def _loosened(form):
    """A comparison that holds where the form is at least 0: its quotients are replaced by what they lie below, or above."""
    for atom, factor in form.terms:
        if isinstance(atom, Floor):
            rest = form - Affine(((atom, factor),))
            bound = atom.numerator if factor > 0 else atom.numerator - (atom.denominator - 1)
            return _loosened(rest.times(atom.denominator) + bound.times(factor))
    return at_least_zero(form)


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


_COMPARISONS = {"lt": operator.lt, "le": operator.le, "eq": operator.eq}
_TRANSPARENT = ("select", "add", "sub", "mul", "div", "neg", "cast", "and", "or", "not", *_COMPARISONS)


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
    return _once(functools.partial(_folded, condition, holds_))(value)


def _once(function):
    """A function of values that looks at each one once. It is given itself, too."""
    known = {}

    def found(value):
        if id(value) not in known:
            known[id(value)] = function(found, value), value  # which keeps its identity
        return known[id(value)][0]

    return found


def _folded(condition, holds_, inner, value):
    if value.op == "condition":
        return from_condition(holds_ if value.payload == condition else ~holds_ if value.payload == ~condition else value.payload)
    if value.op not in _TRANSPARENT:
        return value
    args = [inner(arg) for arg in value.args]
    if all(one is other for one, other in zip(args, value.args)):
        return value
    if value.op == "select":
        return select(*args, value.payload)
    if value.op in ("and", "or", "not"):
        return ~args[0] if value.op == "not" else args[0] & args[1] if value.op == "and" else args[0] | args[1]
    if value.op == "cast":
        return args[0] if value.type == args[0].type else as_type(args[0], value.type) if value.type in ("f32", "i32") else cast(
            value.type, args[0])
    if value.op in _COMPARISONS:
        known = all(arg.op == "constant" for arg in args)
        return constant(_COMPARISONS[value.op](*(arg.payload for arg in args))) if known else Value(value.op, "bool", args)
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
    return _once(functools.partial(_lies_low, lowest))(value)


def _lies_low(lowest, inner, value):
    if value.op == "constant":
        return value.type == "f32" and value.payload <= lowest
    if value.op == "select":
        return all(map(inner, value.args[1:]))
    if value.op == "add":
        return any(map(inner, value.args))
    return value.op in ("sub", "cast") and inner(value.args[0])


def with_hidden(value, lowest):
    """What a mask adds, with -inf for constants up to `lowest`."""
    return _once(functools.partial(_with_hidden, lowest))(value)


def _with_hidden(lowest, inner, value):
    if value.op == "constant":
        return constant(HIDDEN) if value.payload <= lowest else value
    if value.op != "select":
        return value
    return select(value.args[0], *map(inner, value.args[1:]), value.payload)


def sees_a_key(where, key, others=()):
    """Whether every row plainly has a key where a condition holds: the first, the last, or one of other places."""
    name, = key.affine.names()
    return any(holds(where.substitute({name: place})) for place in (Affine((), 0), key.extent - 1, *others))


def may_hide(value):
    """Whether a score may be -inf by what is in it besides the product of query and key: a constant, or data that is added."""
    return _once(_may_hide)(value)


def _may_hide(inner, value):
    if value.op in ("constant", "read"):
        return is_hidden(value) or (value.op == "read" and value.type != "i32" and not value.payload[0].name.endswith("dot"))
    if value.op in ("exp", "exp2", "tanh", "erf", "lt", "le", "eq", "and", "or", "not"):
        return False
    args = value.args[1:] if value.op == "select" else value.args
    if value.op in ("mul", "div"):  # of infinite data, a row has a NaN
        args = [arg for arg in args if arg.op not in ("read", "cast")]
    return value.op == "log" or any(map(inner, args))


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
