"""A nest of constant extents as one of symbolic sizes, so that its kernels serve other extents too and are checked at small ones.

Extents are one size where index maps make them equal: index k of a tensor and dim d of a statement, wherever an access is
T[..., d, ...]. So they are where a statement tests or computes with two dims of equal extents (query <= key), and in results of
one shape. Where all accesses are T[512d + e] with e < 512, the index is two, d and e: another view of the same memory. An
extent stays a constant where an access depends on it in another way (T[d + 1], T[0], a part of a dim), so every access stays
inside its tensor at all sizes. Neighbouring indices that all accesses use side by side are one then (collapse.py). At the
constants' own values the two nests say the same.

Sizes that are the last index of every argument that has them (the width of rows, the size of heads) are fixed when a kernel is
compiled, as such sizes are in definitions written by hand. Long sums of products of matrices are not: a kernel takes them tile by
tile, and is checked with short ones.
"""

import dataclasses
import functools
import math
import operator
import re
from typing import Dict, NamedTuple, Optional, Tuple, Union

from .affine import Affine
from .collapse import collapse
from .extent_classes import accesses_of, classes_of, constant_extent, digits_of, owner_of, ranges_of
from .isl_text import framed, only_piece
from .model import Access, Nest, SizeEntry
from .resized import resized


class General(NamedTuple):
    """nest: with the new sizes; values: {size: what it stands for, an int or a product over the old sizes as Python's text}; rows:
    {argument: for each of its indices the extents of those that it became, or None}, of arguments with an index that became
    several; counts: {argument: for each of its indices then how many it was}."""
    nest: Nest
    values: Dict[str, Union[int, str]]
    rows: Dict[str, Tuple[Optional[Tuple[int, ...]], ...]]
    counts: Dict[str, Tuple[int, ...]]

    def view(self, argument, extents):
        """The extents of an argument's indices, given those that it had before."""
        rows = self.rows.get(argument, (None,) * len(extents))
        waiting = [each for extent, row in zip(extents, rows) for each in row or (extent,)]
        found = []
        for count in self.counts.get(argument, (1,) * len(waiting)):
            found.append(functools.reduce(operator.mul, waiting[:count]))
            del waiting[:count]
        return tuple(found)


def generalise(nest, arguments=None):
    """A General of a nest. arguments: {tensor whose indices may become several or one: for each index but the last whether it and
    the next lie in memory as one}. New sizes are named n0, n1, ... after those that the nest has. Raises UserError for text that
    is no nest's."""
    arguments = arguments or {}
    nest, split = _split(nest, set(arguments))
    nest, products, counts = collapse(nest, {name: _joined_rows(row, split.get(name)) for name, row in arguments.items()})
    classes = classes_of(nest)
    values, names = {}, {}
    taken = {entry.name for entry in (*nest.sizes, *nest.tensors)} | {dim for each in nest.statements for dim in each.dims}
    number = len(nest.sizes)
    for root, extent in classes.sizes():
        while f"n{number}" in taken:
            number += 1
        names[root], values[f"n{number}"] = f"n{number}", extent
        number += 1
    long = _long_sums(classes, nest, {root for root in names if values[names[root]] > _MOST_HELD})
    fixed = {names[root] for root in names if classes.is_last(root) and root not in long}
    return General(_rewritten(nest, classes, names, values, fixed) if values else nest, {**products, **values}, split, counts)


def _joined_rows(joined, rows):
    """Which indices lie as one with the next, where some have become several."""
    if rows is None:
        return joined
    found = [each for row, after in zip(rows, [*joined, False]) for each in [*([True] * (len(row) - 1 if row else 0)), after]]
    return found[:-1]


_MOST_HELD = 512  # terms of a product whose operands a kernel may hold whole, as rows of heads


def _long_sums(classes, nest, roots):
    """Those of `roots` over which products of matrices are summed, and nothing else is."""
    products, others = set(), set()
    for statement in nest.statements:
        if statement.reduction:
            written = _names_in(statement.write)
            summed = {classes.root((owner_of(statement), dim)) for dim in statement.dims if dim not in written}
            (products if _multiplies_matrices(statement, written) else others).update(summed)
    return roots & products - others


def _multiplies_matrices(statement, written):
    """Whether a statement sums products of two tensors, each with an index of the result that the other has not."""
    if statement.value.get("op") != "mul" or len(statement.reads) != 2:
        return False
    one, other = (_names_in(read) & written for read in statement.reads)
    return bool(one - other) and bool(other - one)


def _names_in(access):
    """The dims of a statement that an access uses."""
    piece = only_piece(access.relation)
    return {name for form in piece.functions for name in form.names()} if piece else set()


def _split(nest, arguments):
    """(the nest, General.rows) with indices of arguments as several where all accesses are rows of them."""
    ranges = {statement.name: ranges_of(statement) for statement in nest.statements}
    found = {}
    for tensor in nest.tensors:
        if tensor.name in arguments:
            rows = [_rows(nest, ranges, tensor, place) for place in range(len(tensor.shape))]
            if any(row is not None for row in rows):
                found[tensor.name] = rows
    if not found:
        return nest, {}

    def access(statement, given):
        if given.tensor not in found:
            return given
        piece = only_piece(given.relation)
        forms = [part for form, row in zip(piece.functions, found[given.tensor])
                 for part in ([form] if row is None else _radix_terms(form))]
        return Access(given.tensor, _relation(given, statement, forms))

    tensors = tuple(dataclasses.replace(tensor, shape=tuple(
        text for place, row in enumerate(found[tensor.name])
        for text in ([tensor.shape[place]] if row is None else [framed(tensor.shape[place], f"{{ [({each})] }}") for each in row])))
        if tensor.name in found else tensor for tensor in nest.tensors)
    statements = tuple(dataclasses.replace(each, write=access(each, each.write),
                                           reads=tuple(access(each, read) for read in each.reads)) for each in nest.statements)
    return dataclasses.replace(nest, tensors=tensors, statements=statements), {name: tuple(rows) for name, rows in found.items()}


def _relation(given, statement, forms):
    inner = ", ".join(f"({form.text()})" for form in forms)
    return framed(given.relation, f"{{ {statement.name}[{', '.join(statement.dims)}] -> {given.tensor}[{inner}] }}")


def _radix_terms(form):
    """The variables of 512a + b as [a, b]."""
    return [Affine.variable(atom) for atom, _ in sorted(form.terms, key=lambda term: -term[1])]


def _rows(nest, ranges, tensor, place):
    """The extents into which an index may be split, where each access is mixed-radix digits of full range; None elsewhere."""
    extent = constant_extent(tensor.shape[place])
    found = set()
    for statement in nest.statements:
        for access in accesses_of(statement):
            if access.tensor == tensor.name:
                piece = only_piece(access.relation)
                row = digits_of(piece.functions[place], ranges[statement.name]) if piece and extent is not None else None
                found.add(row if row is not None and math.prod(row) == extent else None)
    row = found.pop() if len(found) == 1 else None
    return row if row and len(row) > 1 else None


def _rewritten(nest, classes, names, values, fixed):
    """The nest with names in place of the extents of classes. fixed: names of sizes that are known when compiling."""
    def shape(tensor):
        found = [names.get(classes.root((tensor.name, place))) for place in range(len(tensor.shape))]
        return tuple(f"{{ [({name})] }}" if name else text for name, text in zip(found, tensor.shape))

    def domain(statement):
        text = statement.domain
        for dim in statement.dims:
            name = names.get(classes.root((owner_of(statement), dim)))
            if name:
                text = re.sub(rf"\b{re.escape(dim)} <= \d+(?= and | }})", f"{dim} <= {name} - 1", text, count=1)
        return text

    known = re.fullmatch(r"(?:\[[^\]]*\] -> )?\{ :(.*)\}", nest.context)[1].strip()
    named = dataclasses.replace(
        nest, tensors=tuple(dataclasses.replace(tensor, shape=shape(tensor)) for tensor in nest.tensors),
        statements=tuple(dataclasses.replace(each, domain=domain(each)) for each in nest.statements))
    sizes = [SizeEntry(name, specialized=name in fixed, default=value) for name, value in values.items()]
    return resized(named, (*nest.sizes, *sizes), [*([f"({known})"] if known else []), *(f"{name} >= 1" for name in values)])
