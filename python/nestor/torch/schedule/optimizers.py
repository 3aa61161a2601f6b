"""States of optimizers, from a model to a scheduled one and back: for merged weights they hold the rows of all."""

import copy

import torch

from ...errors import UserError
from .merging import MergedPart
from .paths import joined


def optimizer_state(state, source, target):
    """The state_dict of an optimizer of `source` as a new one for an optimizer of `target`: a model and what a schedule built
    of it, in either order.

    state: a state_dict of an optimizer that was made of source.parameters(), in one group or several. Values with a parameter's
    shape are cut or joined by rows, others (such as the number of steps) have to be equal. Raises UserError where models or
    groups do not fit.
    """
    names, wanted = _parts(source), _parts(target)
    order = [index for group in state["param_groups"] for index in group["params"]]
    if sorted(order) != list(range(len(names))) or {part
                                                    for parts in names
                                                    for part, _ in parts} != {part
                                                                              for parts in wanted
                                                                              for part, _ in parts}:
        raise UserError(
            f"the state is of {len(order)} parameters, the source has {len(names)}: give the state of an optimizer of all "
            "its parameters, and two forms of one model")
    groups = {
        part: number
        for number, group in enumerate(state["param_groups"])
        for index in group["params"]
        for part, _ in names[index]
    }
    values = {
        part: value
        for index, parts in enumerate(names) if index in state["state"]
        for part, value in _cut(parts, state["state"][index]).items()
    }
    made = {
        index: _joined(parts, [values[part] for part, _ in parts])
        for index, parts in enumerate(wanted) if all(part in values for part, _ in parts)
    }
    return {
        "state": made,
        "param_groups": [{
            **group, "params": [index for index, parts in enumerate(wanted) if _group(parts, groups) == number]
        } for number, group in enumerate(state["param_groups"])]
    }


def _parts(model):
    """For each parameter in order, [(name before any schedule, rows)]; rows are None for a parameter of its own."""
    merged = {}
    for path, module in model.named_modules():
        if isinstance(module, MergedPart):
            for name, (whole, view) in module.tensors().items():
                merged.setdefault(whole, []).append((module.number, joined(path, name), view.shape[0]))
    return [[(name, rows) for _, name, rows in sorted(merged[each])] if each in merged else [(own, None)]
            for own, each in model.named_parameters()]


def _cut(parts, values):
    """{name: values} of one parameter's parts."""
    total, start, found = sum(rows or 0 for _, rows in parts), 0, {}
    for name, rows in parts:
        found[name] = {
            key: copy.deepcopy(value[start:start + rows] if rows is not None and _has_rows(value, total) else value)
            for key, value in values.items()
        }  # each part has its own: torch.optim takes tensors of a state_dict as they are, and writes into them
        start += rows or 0
    return found


def _joined(parts, values):
    """The values of one parameter from those of its parts."""
    if len(parts) == 1:
        return values[0]
    made = {}
    for key, first in values[0].items():
        others = [each[key] for each in values]
        if all(_has_rows(each, rows) for each, (_, rows) in zip(others, parts)):
            made[key] = torch.cat(others)
        elif all(torch.equal(each, first) if isinstance(first, torch.Tensor) else each == first for each in others):
            made[key] = first
        else:
            raise UserError(
                f"{key} differs between {', '.join(name for name, _ in parts)}, which are one parameter in the target")
    return made


def _has_rows(value, rows):
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == rows


def _group(parts, groups):
    found = {groups[name] for name, _ in parts}
    if len(found) > 1:
        raise UserError(
            f"{', '.join(name for name, _ in parts)} are in several groups of the optimizer, and one parameter in the "
            "target: put them into one group")
    return found.pop()
