"""Reads that are only there under a condition: a select whose chosen side alone lies inside its tensors.

Such a select becomes a tensor that is written part by part, each where its condition holds: then every read of every statement
is there at every point of the statement's domain. Where it reads what its own loops write, it stays, and its reads say where.
"""

import operator
from functools import reduce

from .affine import TRUE, Compare, both, conjuncts
from .condition_values import condition_value
from .ranges import least_of
from .values import Value, from_condition, rewritten


def is_inside(tensor, at):
    """Whether these indices are plainly those of an element that is there: whole ranges of the extents of a tensor without
    gaps."""
    return _is_whole(tensor) and all(_spans(index, extent) for index, extent in zip(at, tensor.shape))


def _is_whole(tensor):
    """Whether every element of a tensor is there: of an argument, or where one statement plainly writes all."""
    plain = (update for update in tensor.updates if update.where == TRUE and update.reduction is None)
    return not tensor.is_written or any(all(map(_spans, update.at, tensor.shape)) for update in plain)


def _spans(form, extent):
    if form.is_constant and extent.is_constant:
        return 0 <= form.constant < extent.constant
    owner = getattr(form.terms[0][0], "owner", None) if len(form.terms) == 1 else None
    return getattr(owner, "extent", None) == extent and form == owner.affine


def has_guard(value):
    """Whether a value is a select by an affine condition that says which side may be read."""
    return value.op == "select" and value.payload and value.args[0].condition is not None


def needs_guard(value):
    """Whether something in a value, outside of further guards of its own, is read that may not be there."""
    waiting, seen = [value], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.op == "read" and not is_inside(*node.payload) and not _is_there(*node.payload):
            return True
        waiting += node.args
    return False


def parts_of(value, where=TRUE):
    """[(condition, value)] of a guarded select and those in its sides, to be written one after the other: later ones may
    overwrite. Conditions are conjunctions."""
    if not is_choice(value):
        return [(where, value)]
    condition, then, otherwise = value.args[0].condition, value.args[1], value.args[2]
    rest = where if not needs_guard(otherwise) else both(where, ~condition)
    return parts_of(otherwise, rest) + parts_of(then, both(where, condition))


def lift_guarded(value, make):
    """The value with every guarded select in it that needs its guard replaced by what make(select) gives."""
    return rewritten(
        value, lambda node, lifted: make(node) if is_choice(node) else node.with_args([lifted(arg) for arg in node.args]))


def conditions_apart(value):
    """The value with what affine conditions say of reads in selects of their own, where a condition joins them with one of data:
    select(a & d, x, y) is select(a, select(d, x, y), y), and select(a | d, x, y) is select(a, x, select(d, x, y))."""
    return rewritten(value, _apart)


def _apart(value, apart):
    made = value.with_args([apart(arg) for arg in value.args])
    if value.op != "select" or not value.payload:
        return made
    condition, then, otherwise = made.args
    op, affine, data = _joined(condition)
    if not (affine and data and (needs_guard(then) or needs_guard(otherwise))):
        return made
    inner = made.with_args([_join(op, data), then, otherwise])
    return made.with_args([_join(op, affine), *((inner, otherwise) if op == "and" else (then, inner))])


def _joined(condition):
    """("and" or "or", the affine parts, those of data) of a condition of data; no parts where it joins none."""
    op, parts, waiting = condition.op, [], [condition]
    while waiting and op in ("and", "or"):
        node = waiting.pop()
        if node.op == op:
            waiting += reversed(node.args)
        else:
            parts.append(node)
    return op, [part for part in parts if part.condition is not None], [part for part in parts if part.condition is None]


def _join(op, parts):
    return reduce(operator.and_ if op == "and" else operator.or_, parts)


def is_choice(value):
    """Whether a value is a guarded select that needs its guard."""
    return has_guard(value) and any(needs_guard(side) for side in value.args[1:])


def in_place(value, domain):
    """The value with every read in its guarded selects bound to the condition under which it is chosen: elsewhere its element
    need not be there. For values that no table before the loops can hold. domain: a condition that holds where it is computed."""
    done = {}

    def bound(node, where):
        key = (id(node), where)
        if key not in done:
            if node.op == "condition":
                done[key] = condition_value(node.payload, bounded=True)
            elif node.op == "read":
                there = where == TRUE or _is_there(*node.payload)
                done[key] = node if there else Value("read", node.type, (from_condition(where),), node.payload)
            else:
                chosen = chosen_side(node, both(domain, where))
                done[key] = bound(chosen, where) if chosen is not None else node.with_args(
                    [bound(arg, both(where, side)) for arg, side in zip(node.args, sides_of(node))])
        return done[key]

    return bound(value, TRUE)


def _is_there(tensor, at):
    """Whether these indices are those of an element of a tensor without gaps, by the ranges of indices and sizes."""
    return _is_whole(tensor) and all(
        least_of(index) >= 0 and least_of(extent - 1 - index) >= 0 for index, extent in zip(at, tensor.shape))


def sides_of(value):
    """For each argument of a value the condition under which it is needed: that of a guarded select's sides."""
    if not has_guard(value):
        return (TRUE,) * len(value.args)
    condition = value.args[0].condition
    return TRUE, condition, ~condition


def chosen_side(value, where):
    """The side of a guarded select that alone can be chosen where a condition holds; None if both can or nothing says so."""
    for arg, other in zip(value.args[1:], (2, 1)) if has_guard(value) else ():
        if _never(both(where, sides_of(value)[other])):
            return arg
    return None


def _never(condition):
    """Whether a condition plainly holds nowhere: two of its parts exclude each other at all indices and sizes."""
    parts = conjuncts(condition)
    forms = [part.form for part in parts if isinstance(part, Compare)]
    forms += [-part.form for part in parts if isinstance(part, Compare) and part.equality]
    return any(~part in parts for part in parts) or any(least_of(-(one + other)) > 0 for one in forms for other in forms)
