"""nestor.torch.explain: which parts of a model are one kernel each, from which lines, and why the rest is not."""

import os
import re

import torch

from ..tuning import Text
from .graph_capture import capture
from .importer.graph import values_of

_TORCH = os.path.dirname(torch.__file__) + os.sep
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')


def explain(model, inputs, **options):
    """Text about the regions of a model: their ops with source lines, masks that became conditions on indices, tensors read and
    written, and what PyTorch computes, with the reason. Arguments as capture has them. Raises UserError as capture does."""
    return text_of(capture(model, inputs, **options))


def text_of(found):
    """The same of a Capture."""
    lines = [f"{_count(len(found.regions), 'region')}, {_count(len(found.nests), 'distinct nest')}"]
    for number, region in enumerate(found.regions, 1):
        lines += ["", *_region(number, region)]
    if found.left:
        lines += ["", "left to PyTorch"]
        lines += _left(found.left)
    return Text("\n".join(lines))


def _count(number, noun):
    return f"{number} {noun}{'' if number == 1 else 's'}"


def source_of(node):
    """(file, line, text) of the innermost line outside PyTorch that made a node, or None."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(_TORCH)] or frames
    if not own:
        return None
    path, line, _, text = own[-1]
    return path.rsplit("/", 1)[-1], int(line), text.strip()


def op_name(node):
    """"mul" of aten.mul.Tensor."""
    return getattr(node.target, "_opname", None) or getattr(node.target, "__name__", str(node.target))


def _region(number, region):
    nest = region.nest
    yield f"region {number}: {nest.op} ({nest.variant}), {_count(len(nest.statements), 'statement')}"
    yield f"  fuses   {', '.join(op_name(node) for node in region.nodes if op_name(node) != 'getitem')}"
    for file, line, text in dict.fromkeys(source for source in map(source_of, region.nodes) if source):
        yield f"  from    {file}:{line}  {text}"
    for node in masks_of(region):
        yield f"  mask    {op_name(node)}{_at(node)}: a condition on indices, no tensor"
    for node, data in read_masks(region).items():
        how = "a tensor" if node in data else f"a test of {', '.join(each.name for each in data)}"
        yield f"  mask    {node.name if node in data else op_name(node)}{_at(node)}: {how}"
    yield f"  reads   {', '.join(f'{port.node.name} [{_extents(port)}]' for port in region.inputs)}"
    yield f"  writes  {', '.join(f'{port.node.name} [{_extents(port)}]' for port in region.outputs)}"


def _extents(port):
    return ", ".join(map(str, port.extents))


def _at(node):
    source = source_of(node)
    return f" ({source[0]}:{source[1]})" if source else ""


def absorbed(region):
    """Nodes that a region has its own copy of: views, and what follows from indices alone."""
    ends = {port.node for port in region.inputs} | set(region.nodes)
    found, waiting = {}, [each for node in region.nodes for each in node.all_input_nodes]
    while waiting:
        node = waiting.pop()
        if node not in ends and node not in found and node.op == "call_function" and values_of(node):
            found[node] = None
            waiting += node.all_input_nodes
    return list(reversed(found))


def masks_of(region):
    """The last ones of the conditions that a region takes from indices."""
    masks = [node for node in absorbed(region) if values_of(node)[0].dtype == torch.bool]
    return [node for node in masks if not any(user in masks for user in node.users)]


def read_masks(region):
    """{mask: the tensors that it reads} for masks of a region that depend on data: what attention, where and masked_fill are
    given."""
    inputs = {port.node: None for port in region.inputs}
    found = {}
    for node in region.nodes:
        mask = _mask_argument(node)
        if mask is not None and (data := [each for each in _ancestors(mask) if each in inputs]):
            found[mask] = data
    return found


def _mask_argument(node):
    """The mask that an op takes, or None."""
    place = {"scaled_dot_product_attention": 3, "where": 0, "masked_fill": 1}.get(op_name(node))
    mask = node.kwargs.get("attn_mask") if place == 3 and len(node.args) < 4 else None
    mask = node.args[place] if place is not None and place < len(node.args) else mask
    return mask if isinstance(mask, torch.fx.Node) else None


def _ancestors(node):
    """A node and what it is computed from, the last first."""
    found, waiting = {}, [node]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = None
            waiting += each.all_input_nodes
    return found


def _left(left):
    """A line for each reason and source line."""
    groups = {}
    for node, reason in left.items():
        groups.setdefault((reason, source_of(node)), []).append(op_name(node))
    for (reason, source), ops in groups.items():
        place = f"{source[0]}:{source[1]}  {source[2]}" if source else ""
        yield f"  {', '.join(dict.fromkeys(ops))}: {reason}"
        if place:
            yield f"    {place}"
