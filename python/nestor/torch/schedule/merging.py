"""Several linear modules that read one value, as one product: their weights become rows of one parameter.

The modules stay where they are, with weights that are views, so that a state_dict has the names and shapes that it had before.
"""

import operator

import torch
import torch.nn.functional as F
from torch import nn

from ...errors import UserError
from .derived import base_of, generated_of
from .graphs import operands, ordered, submodule
from .paths import joined, places_of, refuse_hooks

_TENSORS = ("weight", "bias")


class MergedLinear(nn.Module):
    """y_0, y_1, ... = x W_0' + b_0, x W_1' + b_1, ... in one product. weight: the rows of all W; bias: all b, or None.

    Its parameters are what an optimizer steps. In a state_dict they are the parts' own, by the parts' names.
    """

    schedule_leaf = True

    def __init__(self, parts):
        super().__init__()
        self.sizes = tuple(part.out_features for part in parts)
        self.in_features, self.out_features = parts[0].in_features, sum(self.sizes)
        self.sources = [getattr(part, name) for name in _TENSORS for part in parts]  # until a built model has settled
        for name in _TENSORS:
            made = None
            if getattr(parts[0], name) is not None:
                made = nn.Parameter(torch.cat([getattr(part, name).detach() for part in parts]),
                                    getattr(parts[0], name).requires_grad)
            self.register_parameter(name, made)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias).split(self.sizes, -1)

    def rows(self, tensor, number):
        """The part's rows of a tensor that has the rows of all."""
        start = sum(self.sizes[:number])
        return tensor[start:start + self.sizes[number]]

    @torch.no_grad()
    def settle(self):
        """Takes the values of the modules that were merged, and lets their parameters share this one's memory."""
        for place, source in enumerate(self.sources or ()):
            if source is None:
                continue
            rows = self.rows(getattr(self, _TENSORS[place // len(self.sizes)]), place % len(self.sizes))
            if (source.dtype, source.device) != (rows.dtype, rows.device):
                raise UserError(
                    f"the model was {rows.dtype} on {rows.device} when its modules were merged, and is {source.dtype} on "
                    f"{source.device} now: merge them again")
            rows.copy_(source)
            source.data = rows.data
        self.sources = None

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Nothing: the parts save their rows."""

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        """Nothing: the parts load their rows."""

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={' + '.join(map(str, self.sizes))}, bias={self.bias is not None}"


class MergedPart(nn.Module):
    """One of the modules that were merged: its weight and bias are views of the parameters of a MergedLinear."""

    schedule_leaf = True

    def __init__(self, merged, number):
        super().__init__()
        self.__dict__["merged"] = merged  # it is registered where it is called
        self.number, self.in_features, self.out_features = number, merged.in_features, merged.sizes[number]

    @property
    def weight(self):
        return self.merged.rows(self.merged.weight, self.number)

    @property
    def bias(self):
        return None if self.merged.bias is None else self.merged.rows(self.merged.bias, self.number)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

    def tensors(self):
        """{name: (parameter of all, view)}"""
        return {
            name: (getattr(self.merged, name), getattr(self, name))
            for name in _TENSORS if getattr(self.merged, name) is not None
        }

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, (_, view) in self.tensors().items():
            destination[prefix + name] = view if keep_vars else view.detach()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        for name, (_, view) in self.tensors().items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
            elif state_dict[key].shape != view.shape:
                error_msgs.append(f"size mismatch for {key}: {tuple(state_dict[key].shape)} in the checkpoint, "
                                  f"{tuple(view.shape)} in the model")
            else:
                with torch.no_grad():
                    view.copy_(state_dict[key])
        if strict:
            known = {prefix + name for name in self.tensors()}
            unexpected_keys += [key for key in state_dict if key.startswith(prefix) and key not in known]

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.merged.bias is not None}, merged"


def merge(edit, root, match_nodes, name):
    """Makes one product of calls of linear modules (names of nodes). Returns words about it."""
    nodes = ordered([_linear_call(edit, each) for each in match_nodes])
    parts = [submodule(edit.module, node.target) for node in nodes]
    _refuse(edit, root, nodes, parts)
    merged = MergedLinear(parts)
    made = edit.new_name(name or "_".join(node.target.rpartition(".")[2] for node in nodes))
    edit.module.add_module(made, merged)
    for number, node in enumerate(nodes):
        parent, _, last = node.target.rpartition(".")
        setattr(edit.module.get_submodule(parent), last, MergedPart(merged, number))
    with edit.graph.inserting_before(nodes[0]):
        call = edit.graph.call_module(made, (operands(nodes[0])[0], ))
        call.meta["stack_trace"] = nodes[0].meta.get("stack_trace")
    after = call
    for number, node in enumerate(nodes):
        with edit.graph.inserting_after(after):
            after = edit.graph.call_function(operator.getitem, (call, number))
        node.replace_all_uses_with(after)
        edit.graph.erase_node(node)
    sizes = " + ".join(map(str, merged.sizes))
    return f"{', '.join(node.target for node in nodes)} -> {made} ({merged.in_features} -> {sizes})"


def _linear_call(edit, name):
    """The node of that name, or the only call of the module of that name."""
    found = [node for node in edit.graph.nodes if node.op == "call_module" and name in (node.name, node.target)]
    found = [node for node in found if node.name == name] or found
    where = edit.path or "the model"
    if not found:
        calls = [node.target for node in edit.graph.nodes if node.op == "call_module"]
        raise UserError(f"{where} calls no module {name!r}; it calls {', '.join(dict.fromkeys(calls)) or 'none'}")
    if len(found) > 1:
        raise UserError(f"{where} calls {name} {len(found)} times, and merge takes modules that are called once")
    return found[0]


def _refuse(edit, root, nodes, parts):
    """Raises UserError with why these calls are no one product."""
    names = [joined(edit.path, node.target) for node in nodes]
    if len(set(names)) < 2:
        raise UserError(f"merge takes two or more linear modules, not {', '.join(names) or 'none'}")
    for node, part, name in zip(nodes, parts, names):
        if base_of(part) is not nn.Linear or generated_of(part) is not None:
            raise UserError(f"merge takes nn.Linear modules, and {name} is a {type(part).__name__}" +
                            (" with a schedule of its own" if base_of(part) is nn.Linear else ""))
        refuse_hooks(part, name)
        _refuse_tensors(root, part, name)
        if sum(each.op == "call_module" and each.target == node.target for each in edit.graph.nodes) > 1:
            raise UserError(f"{name} is called twice, and merge takes modules that are called once")
    sources = {operands(node)[0].name: name for node, name in zip(nodes, names)}
    if len(sources) > 1:
        raise UserError("merge takes modules that read one value, and " + ", ".join(f"{name} reads {source}"
                                                                                    for source, name in sources.items()))
    for what, tell in (("in_features", lambda part: part.in_features), ("type", lambda part: part.weight.dtype),
                       ("device", lambda part: part.weight.device), ("a bias", lambda part: part.bias is not None),
                       ("requires_grad", lambda part: tuple(each.requires_grad for each in part.parameters()))):
        values = [tell(part) for part in parts]
        if len(set(values)) > 1:
            raise UserError(f"merge takes modules of one kind, and they differ in {what}: " +
                            ", ".join(f"{name} {value}" for name, value in zip(names, values)))


def _refuse_tensors(root, part, name):
    if getattr(part, "parametrizations", None):
        raise UserError(f"{name} has parametrizations, so its weight is no parameter that could be a part of another")
    places = places_of(root, part)
    if len(places) > 1:
        raise UserError(f"{' and '.join(places)} are one module (shared), which merge would take apart; leave it as it is")
    for tensor in _TENSORS:
        value = getattr(part, tensor)
        if value is None:
            continue
        if hasattr(value, "placements") or type(value) is not nn.Parameter:
            raise UserError(
                f"{name}.{tensor} is a {type(value).__name__} (distributed, quantized or lazy): merge before the model is "
                "made parallel")
        if getattr(value, "_backward_hooks", None) or getattr(value, "_post_accumulate_grad_hooks", None):
            raise UserError(f"{name}.{tensor} has hooks on its gradient, which would no longer run; remove them first")
        tied = [each for each, other in root.named_parameters(remove_duplicate=False) if other is value]
        if len(tied) > 1:
            raise UserError(
                f"{' and '.join(tied)} are one parameter (tied weights), which merge would take apart; leave it as it is")


def original_gradients(model):
    """{name that the parameter had before any schedule: its gradient or None}."""
    merged, found = set(), {}
    for path, module in model.named_modules():
        if isinstance(module, MergedPart):
            for name, (whole, _) in module.tensors().items():
                merged.add(whole)
                found[joined(path, name)] = None if whole.grad is None else module.merged.rows(whole.grad, module.number)
    found.update({name: each.grad for name, each in model.named_parameters() if each not in merged})
    return found
