"""The statements of one that an author writes: its reductions, and choices whose sides are not everywhere, become tensors of their
own, which are written before it."""

import itertools

from ..errors import UserError
from .affine import TRUE, both, conjuncts
from .definitions import Draft, Tensor, Update, free_indices, is_among, variables
from .guards import conditions_apart, lift_guarded, parts_of
from .reductions import neutral
from .values import NARROW, Value, as_type, rewritten, widened

_numbers = itertools.count()  # orders statements


def write(draft):
    """Adds a Draft's statements to its tensor, behind those of the tensors that it needs."""
    dims, where = draft.dims, draft.where
    value = conditions_apart(lift_reductions(draft.value, f"{draft.tensor.name}_", where, dims))
    parts = [(TRUE, value)] if draft.reduction else parts_of(value)
    for number, (condition, part) in enumerate(parts):
        own = draft._replace(where=both(where, condition),
                             suffix=draft.suffix or (f"_part{number}" if len(parts) > 1 else ""))
        add(own, lift_guarded(part, lambda select, own=own: choice_table(select, own)))


def add(draft, value, group=None, loops=()):
    """Adds the statement draft.tensor[at] = value, whose value reads elements alone. Raises UserError for an index that is none of
    its own."""
    tensor = draft.tensor
    if tensor.type == "bool":
        value = as_type(value, "bool")
    elif value.type == "bool":
        value = as_type(value, "i32")
    if tensor.type != "bool" and (value.type == "i32") != (tensor.type == "i32"):
        value = as_type(value, "i32" if tensor.type == "i32" else "f32")
    _check_free(draft, value)
    stored = as_type(value, tensor.type) if tensor.type in NARROW else widened(value)
    tensor.is_written = True
    tensor.updates.append(
        Update(next(_numbers), tensor, draft.dims, draft.where, draft.at, stored, draft.reduction, draft.suffix, group, loops))


def _check_free(draft, value):
    used = variables(value) | draft.where.names() | set().union(*(each.names() for each in draft.at))
    for index in free_indices(used):
        if is_among(index, draft.dims):
            continue
        if any(other.name == index.name for other in draft.dims):
            raise UserError(f"{draft.tensor.name}: two different indices are named {index.name}")
        raise UserError(f"{draft.tensor.name}: its value depends on the index {index.name}, which is none of its own "
                        f"({', '.join(each.name for each in draft.dims) or 'none'}) and is not reduced over")


def lift_reductions(value, prefix, where=TRUE, order=()):
    """The value with every reduction in it replaced by a read of a tensor that holds it: at all points of the indices that it
    depends on, or of those where the conditions of `where` on these indices hold. order: of the reader's indices."""

    def lifted(node, again):
        if node.op == "reduce":
            return _reduction_read(node.payload, prefix, where, order)
        return node.with_args([again(arg) for arg in node.args])

    return rewritten(value, lifted)


def _reduction_read(reduction, prefix, where, order):
    """The Value that reads a reduction's tensor, which is made if none is there for `where`, with indices in the order that the
    reader has them in."""
    inner = variables(reduction.value) | reduction.where.names()
    dims = tuple(index for index in free_indices(inner, order) if not is_among(index, reduction.over))
    where = part_about(where, dims)
    if where not in reduction.made:
        tensor, start, terms = reduction_drafts(reduction, dims, prefix, where)
        value = lift_reductions(reduction.value, prefix, terms.where, terms.dims)
        for draft in (start, terms._replace(value=value)):
            write(draft)
        reduction.made[where] = tensor
    return reduction.made[where][tuple(index.affine for index in dims)]


def reduction_drafts(reduction, dims, prefix, where):
    """(a tensor over dims that holds a reduction, the Draft that starts it, the Draft that adds its terms)"""
    tensor = Tensor(reduction.name or f"{prefix}{reduction.op}", reduction.type, [index.extent for index in dims])
    tensor.is_written, at = True, tuple(index.affine for index in dims)
    start = Draft(tensor, dims, at, neutral(reduction.op, reduction.type), part_about(where, dims), None, "_init")
    every = (*dims, *reduction.over)
    return tensor, start, Draft(tensor, every, at, reduction.value, both(part_about(where, every), reduction.where), reduction.op)


def choice_table(select, draft):
    """The Value that reads a tensor which holds a guarded select of a draft, written part by part. A table over the last two of the
    draft's indices is as large as a plane of what it writes: it is made where it is read, and need not be stored."""
    dims, around = tuple(free_indices(variables(select))), () if draft.reduction else draft.dims
    if len(around) > 2 and set(around[-2:]) <= set(dims) <= set(around):
        dims = around
    tensor = Tensor(f"{draft.tensor.name}_part", "i32" if select.type == "i32" else "f32", [index.extent for index in dims])
    at = tuple(index.affine for index in dims)
    write(Draft(tensor, dims, at, select, part_about(draft.where, dims)))
    return tensor[at]


def part_about(where, indices):
    """The conjuncts of a condition that speak of these indices and sizes alone."""
    return both(*(part for part in conjuncts(where) if all(is_among(index, indices) for index in free_indices(part.names()))))
