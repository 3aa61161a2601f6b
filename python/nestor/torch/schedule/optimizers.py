"""Optimizers, from a model to a scheduled one and back: for merged weights their states hold the rows of all."""

import collections
import copy

import torch

from ...errors import UserError
from .merging import MergedPart
from .paths import joined


def moved_optimizer(optimizer, source, target):
    """An optimizer of the same kind, with the same groups and state, for `target`: `source` is the model that the optimizer
    steps, and both are a model and what a schedule built of it, in either order.

    Values with a parameter's rows are cut or joined, others (such as the number of steps) have to be equal. The optimizer that
    was given stays as it is. Raises UserError where it steps other parameters, or parts of one parameter differently.
    """
    parts = dict(_parts(source))
    groups = {name: number for number, group in enumerate(optimizer.param_groups) for each in group["params"]
              for name, _ in _known(parts, each)}
    values = {name: value for each, state in optimizer.state.items()
              for name, value in _cut(_known(parts, each), state).items()}
    made = copy.copy(optimizer)
    made.state = collections.defaultdict(dict)
    made.param_groups = [{**group, "params": []} for group in optimizer.param_groups]
    for parameter, names in _parts(target):
        number = _group(names, groups)
        if number is not None:
            made.param_groups[number]["params"].append(parameter)
            if all(name in values for name, _ in names):
                made.state[parameter] = _joined(names, [values[name] for name, _ in names])
    if sum(name in groups for _, names in _parts(target) for name, _ in names) != len(groups):
        raise UserError(f"the target has not all of the {len(groups)} parameters that the optimizer steps: give two forms of "
                        "one model")
    return made


def _parts(model):
    """(parameter, [(name before any schedule, rows)]) in order; rows are None for a parameter of its own."""
    merged = {}
    for path, module in model.named_modules():
        if isinstance(module, MergedPart):
            for name, (whole, view) in module.tensors().items():
                merged.setdefault(whole, []).append((module.number, joined(path, name), view.shape[0]))
    return [(each, [(name, rows) for _, name, rows in sorted(merged[each])] if each in merged else [(own, None)])
            for own, each in model.named_parameters()]


def _known(parts, parameter):
    if parameter not in parts:
        raise UserError(f"the optimizer steps a parameter of the shape {tuple(parameter.shape)} that is none of the source's")
    return parts[parameter]


def _cut(parts, values):
    """{name: values} of one parameter's parts, each with values of its own."""
    total, start, found = sum(rows or 0 for _, rows in parts), 0, {}
    for name, rows in parts:
        found[name] = {key: copy.deepcopy(value[start:start + rows] if rows is not None and _has_rows(value, total) else value)
                       for key, value in values.items()}
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
            raise UserError(f"{key} differs between {_listed(parts)}, which are one parameter in the target")
    return made


def _has_rows(value, rows):
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == rows


def _group(parts, groups):
    """The group of a parameter; None for one that is not stepped."""
    found = {groups.get(name) for name, _ in parts}
    if len(found) > 1:
        raise UserError(f"{_listed(parts)} are in several groups of the optimizer, and one parameter in the target: put them "
                        "into one group")
    return found.pop()


def _listed(parts):
    return ", ".join(name for name, _ in parts)
