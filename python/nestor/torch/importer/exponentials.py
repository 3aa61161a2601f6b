"""Exponentials of rows relative to their maxima, and their sums: what softmax and attention are made of. What a mask of indices
hides is left out of every domain."""

from typing import NamedTuple

import torch

from ...nests import definitions as nests
from ...nests.affine import TRUE
from ...nests.values import as_type, exp, from_condition, maximum, select
from .bounds import is_never_negative
from .conditions import FLOOR, HIDDEN, LEAST, may_hide, narrowed, seen_part, sees_a_key
from .lazy import Lazy, aligned, pointwise, tensor_name


def combine(context, function, *operands, dtype=torch.float32):
    """A function of the elements of a broadcast of tensors."""
    return pointwise(function, operands, dtype, context.builder, context.name)


def stored(context, x, suffix):
    return context.builder.cheap(x, f"{context.name}_{suffix}")


class Powers(NamedTuple):
    """terms: exp(x - largest), which says where it is not 0; total: their sum over a dim; largest: the maximum. empty: rows may
    have no terms, and shall be 0."""
    terms: Lazy
    total: Lazy
    largest: Lazy
    empty: bool

    def quotient(self, a, total):
        """a / total; 0 of rows without terms."""
        return select(total == 0.0, 0.0, a / total) if self.empty else a / total


def lowest_of(dtype):
    """Numbers up to this one hide a score that they are added to: the least of 16 bits does, and -1e30."""
    return max(FLOOR, torch.finfo(dtype).min) if dtype == torch.float16 else FLOOR


def power(score, largest, empty):
    """exp(score - largest). empty: all scores of a row may be -inf, and then these are 0."""
    return exp(score - (maximum(largest, LEAST) if empty else largest))


def powers_of(context, x, dim, safe=False, lowest=None):
    """The Powers of x over a dim. safe: rows of -inf are 0, else NaN. lowest: numbers up to this one hide what they are added
    to."""
    score, empty = _seen(context, x, dim, safe, lowest_of(x.dtype) if lowest is None else lowest)
    largest = context.builder.reduced("max", score, [dim], True, f"{context.name}_max", score.support)

    def inner(indices):
        return power(score.inside(indices), aligned([score, largest])[1][1].element(indices), empty)

    terms = context.builder.partly(Lazy.supported(score.dims, torch.float32, score.support, inner), f"{context.name}_exp")
    total = context.builder.reduced("add", terms, [dim], True, f"{context.name}_sum")
    return Powers(terms, total, largest, empty)


def normal_powers(context, powers):
    """Terms divided by their sums: a softmax."""
    terms, total = powers.terms, powers.total

    def inner(indices):
        return powers.quotient(terms.inside(indices), aligned([terms, total])[1][1].element(indices))

    return Lazy.supported(terms.dims, context.dtype, terms.support, inner)


def _seen(context, x, dim, safe, lowest):
    """(x as a tensor that says where it is not hidden, whether rows may be hidden altogether and shall be 0)."""
    own = context.builder.indices(x.atoms, "d")
    at = tuple(index.affine for index in own)
    value, places = as_type(x.element(at), "f32"), x.flat(x.dim(dim))
    if len(places) == 1:
        key = own[places[0]]
        seen, rest = seen_part(value, lowest)
        nonempty = sees_a_key(seen, key, _places(own, key))
        if safe and not nonempty:  # a row that finite numbers hide altogether is a mean, not 0
            seen, rest = seen_part(value, HIDDEN)
            nonempty = sees_a_key(seen, key, _places(own, key))
        where, tests = narrowed(TRUE, from_condition(seen), key)
        if where != TRUE and (safe or nonempty):
            for test in reversed(tests):
                rest = select(test, rest, HIDDEN, False)
            return _written(context, x, own, where, rest), safe and (may_hide(rest) or not nonempty)
    return stored(context, x, "x"), safe and may_hide(value)


def _places(own, key):
    """Where along the key's dim rows may have a key of their own: at their index, or as far from the end."""
    for index in own:
        ahead = key.extent - index.extent
        if index is not key and is_never_negative(ahead):
            yield index.affine
            yield index.affine + ahead


def _written(context, x, own, where, value):
    """The tensor x as a statement over a domain: what it holds elsewhere is never read."""
    tensor = nests.Tensor(tensor_name(f"{context.name}_x"), "f32", [index.extent for index in own])
    tensor.write(own, tuple(index.affine for index in own), value, where=where)
    names = [name for index in own for name in index.affine.names()]

    def support(indices):
        return where.substitute(dict(zip(names, indices)))

    element = context.builder.of_tensor(tensor, x.dims, torch.float32).element
    return Lazy.supported(x.dims, torch.float32, support, element, 0)
