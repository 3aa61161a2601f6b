"""Sums that products distribute over: terms that are relative to different extrema, such as the difference of two softmaxes.

A kernel can stream over the terms of one softmax, correcting sums when its maximum moves; what is relative to two maxima at once
has no such correction. So `(p / s - c q / t) v` becomes `(p v) / s - c ((q v) / t)`, for s and t that a row has one of.
"""

import dataclasses
import math
from typing import List, NamedTuple, Tuple

from ...nests.affine import TRUE, Affine, both
from ...nests.assemble import reads_of
from ...nests.values import Value, nodes_of
from .lazy import Lazy


_MOST_TERMS = 64
_DISTRIBUTING = ("add", "sub", "neg", "mul", "div")


class Part(NamedTuple):
    """terms: what is to be summed; factors: ("mul" or "div", a Lazy of the same dims that is the same along those that are
    summed), which the sum meets afterwards, first one first."""
    terms: Lazy
    factors: List[Tuple[str, Lazy]]


def separated(operand, summed):
    """Parts whose sum a Lazy of floats is: one for each set of extrema that terms are relative to, in order. One that is not such
    a sum comes back alone. summed: numbers of the atoms over which a product sums."""
    at = tuple(Affine.variable(f"?{number}") for number in range(len(operand.atoms)))
    value = operand.inside(at)
    if not _references(value) or _count(value, {}) > _MOST_TERMS:
        return [Part(operand, [])]
    groups = _groups(value)
    if len(groups) < 2:
        return [Part(operand, [])]
    return [_part(operand, number, len(groups), summed) for number in range(len(groups))]


def _part(operand, number, count, summed):
    def peeled(indices):
        groups = _groups(operand.inside(indices))
        assert len(groups) == count, "an element has other terms at other indices"
        own = {name for place in summed for name in indices[place].names()}
        return _peeled(_sum(groups[number]), own)

    def lazy(function, **changes):
        return dataclasses.replace(operand, element=function, leaf=None, support=None, inner=None, **changes)

    at = tuple(Affine.variable(f"?{place}") for place in range(len(operand.atoms)))
    (core, where), found = _supported(peeled(at)[0]), peeled(at)[1]
    factors = [(op, lazy(lambda indices, k=k: peeled(indices)[1][k][1], cost=0)) for k, (op, _) in enumerate(found)]
    terms = lazy(lambda indices: _supported(peeled(indices)[0])[0], cost=0 if core.op == "read" else operand.cost)
    if operand.support is not None or where != TRUE:
        def support(indices):
            return both(operand.where(indices), _supported(peeled(indices)[0])[1])

        terms = Lazy.supported(operand.dims, operand.dtype, support, terms.element, terms.cost, operand.data)
    return Part(terms, factors)


def _supported(value):
    """(what a value is where it may be other than 0, the affine condition for that)"""
    if _is_chosen(value) and value.args[0].condition is not None:
        inner, where = _supported(value.args[1])
        return inner, both(value.args[0].condition, where)
    return value, TRUE


def _is_chosen(value):
    """Whether a value is 0 but for a condition."""
    return value.op == "select" and value.args[2].op == "constant" and value.args[2].payload == 0


def _peeled(value, summed):
    """(core, [(op, value)]): a value as a core that meets numbers, and is divided by sums, that are the same along the summed
    indices. Nothing else is peeled: a factor might be infinite, or 0."""
    if _is_chosen(value):
        core, factors = _peeled(value.args[1], summed)
        return Value("select", "f32", (value.args[0], core, value.args[2]), value.payload), factors
    if value.op == "neg":
        core, factors = _peeled(value.args[0], summed)
        return core, [*factors, ("mul", Value("constant", "f32", (), -1.0))]
    if value.op == "mul":
        for one, other in (value.args, value.args[::-1]):
            if other.op == "constant":
                core, factors = _peeled(one, summed)
                return core, [*factors, ("mul", other)]
    if value.op == "div" and (value.args[1].op == "constant" or _is_row_sum(value.args[1], summed)):
        core, factors = _peeled(value.args[0], summed)
        return core, [*factors, ("div", value.args[1])]
    return value, []


def _is_row_sum(value, summed):
    return value.op == "read" and "add" in {update.reduction for update in value.payload[0].updates} and not any(
        form.names() & summed for _, at in reads_of(value) for form in at)


def _groups(value):
    """The terms of a value, those of equal references together."""
    found = {}
    for term in _terms(value):
        found.setdefault(frozenset(map(id, _references(term))), []).append(term)
    return list(found.values())


def _sum(terms):
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _count(value, known):
    """How many terms _terms gives. known: those of nodes, by id."""
    if id(value) not in known:
        counts = [_count(arg, known) for arg in value.args] if value.type == "f32" and value.op in _DISTRIBUTING else []
        known[id(value)] = math.prod(counts) if value.op == "mul" else sum(counts[:1] if value.op == "div" else counts) or 1
    return known[id(value)]


def _terms(value):
    """Values whose sum a value of floats is. Factors and divisors of a sum are those of each of its terms."""
    if value.type != "f32":
        return [value]
    if value.op == "add":
        return [term for arg in value.args for term in _terms(arg)]
    if value.op == "sub":
        return _terms(value.args[0]) + [-term for term in _terms(value.args[1])]
    if value.op == "neg":
        return [-term for term in _terms(value.args[0])]
    if value.op == "mul":
        one, other = map(_terms, value.args)
        if len(one) > 1 or len(other) > 1:
            return [a * b for a in one for b in other]
    if value.op == "div":
        return [Value("div", "f32", (term, value.args[1])) for term in _terms(value.args[0])]
    return [value]


def _references(value):
    """The maxima and minima that a value is computed from element by element, sums of rows aside."""
    found, waiting, seen = [], [value], set()
    while waiting:
        for node in nodes_of(waiting.pop()):
            if node.op != "read" or id(node.payload[0]) in seen:
                continue
            tensor = node.payload[0]
            seen.add(id(tensor))
            reductions = {update.reduction for update in tensor.updates} - {None}
            if reductions & {"max", "min"}:
                found.append(tensor)
            elif not reductions:
                waiting += [update.value for update in tensor.updates]
    return found
