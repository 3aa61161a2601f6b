"""A region's nodes replaced by one call of nestor::region."""

import operator

import torch

from ...errors import UserError
from ..importer.table import name_of

_LOOKUP = "prims.inductor_lookup_seed.default"


def results_of(graph, described, key):
    """What a call gives, as tensors without data. Raises UserError for a size that no input of the graph tells."""
    return torch.ops.nestor.region.default(key, [node.meta["val"] for node in described.inputs],
                                           [node.meta["val"] for node in size_nodes(graph, described.size_symbols)])


def replace(graph, candidate, placed):
    """One call put in the place of a region's nodes, which are dead afterwards. placed: {node: what took its place} of earlier
    calls, completed here."""
    described = candidate.described
    nodes = sorted({*described.region.nodes, *described.chains}, key=_positions(graph).__getitem__)
    sizes = size_nodes(graph, described.size_symbols)
    with graph.inserting_after(nodes[-1]):
        call = graph.call_function(torch.ops.nestor.region.default, (candidate.key, [], sizes))
    with graph.inserting_before(call):
        inputs = [_readable(graph, placed.get(node, node), argument)
                  for node, argument in zip(described.inputs, described.description.inputs)]
    call.args = (candidate.key, inputs, sizes)
    _tell(call, nodes[-1], candidate.results)
    last = call
    for number, node in enumerate(described.outputs):
        with graph.inserting_after(last):
            last = graph.call_function(operator.getitem, (call, number))
        _tell(last, node, call.meta["val"][number])
        placed[node] = last
    _move_readers(graph, described.outputs, nodes, last)
    inside = set(nodes)
    for node in described.outputs:
        node.replace_all_uses_with(placed[node], delete_user_cb=lambda user: user not in inside)


def _tell(node, like, value):
    """The meta of a new node: that of an old one, with its own value."""
    node.meta.update({key: found for key, found in like.meta.items() if key not in ("val", "tensor_meta")})
    node.meta["val"] = value


def _positions(graph):
    return {node: number for number, node in enumerate(graph.nodes)}


def size_nodes(graph, symbols):
    """A node for each symbol's value. Raises UserError for one that no input of the graph tells."""
    return [_size_node(graph, symbol) for symbol in symbols]


def _size_node(graph, symbol):
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in inputs:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr == symbol:
            return node
    for node in inputs:
        value = node.meta.get("val")
        for dim, extent in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(extent, torch.SymInt) and extent.node.expr == symbol:
                with graph.inserting_after(inputs[-1]):
                    size = graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
                size.meta["val"] = extent
                return size
    raise UserError(f"no input of the graph tells the size {symbol}")


def _readable(graph, node, argument):
    """The node, or a dense copy of it where the region asks for one. A seed is read where it lies: no kernel copies it."""
    if argument.words and name_of(node.target) == _LOOKUP:
        seed = graph.call_function(torch.ops.aten.select.int, (node.args[0], 0, node.args[1]))
        _tell(seed, node, node.args[0].meta["val"].select(0, node.args[1]))
        return seed
    if argument.strides is not None or node.meta["val"].is_contiguous():
        return node
    copy = graph.call_function(torch.ops.aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
    _tell(copy, node, node.meta["val"].clone(memory_format=torch.contiguous_format))
    return copy


def _move_readers(graph, outputs, nodes, last):
    """Moves what reads a region's results, and stands before its last node, behind `last`, in the same order."""
    positions = _positions(graph)
    start, end = positions[nodes[0]], positions[nodes[-1]]
    late, inside = set(outputs), set(nodes)
    moved = []
    for node in list(graph.nodes)[start:end]:
        if node not in inside and any(each in late for each in node.all_input_nodes):
            late.add(node)
            moved.append(node)
    for node in moved:
        last.append(node)
        last = node
