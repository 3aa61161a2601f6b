"""How the tensors of a region lie in memory: results in the order that their reader wants, arguments as kernels can read them.
"""

import sympy
import torch

from ...nests.affine import Affine, NotAffine
from ..importer.extents import Symbols, Unsupported, expression, product
from ..importer.graph import Context, kind_of
from ..importer.lazy import Builder, Lazy
from ..importer.table import RULES, name_of

_TURNS = ("aten.permute.default", "aten.transpose.int", "aten.t.default")
_COPIES = ("aten.clone.default", "aten.reshape.default", "aten.view.default", "aten._unsafe_view.default")


def row_major_chain(port, read):
    """(node, order) of what a region shall write for a port: where the port's node is only turned and then copied, the copy,
    and which index of the nest comes first, second, ... in its memory, the last one last. Otherwise the port's node and None.
    read: nodes that regions read, which have to stay."""
    try:
        lazy = _as_lazy(port)
    except Unsupported:
        return port.node, None
    found, node = (port.node, None), port.node
    context = Builder(Symbols())
    while len(node.users) == 1 and node not in read:
        node, = node.users
        if node.op != "call_function" or name_of(node.target) not in (*_TURNS, *_COPIES) or kind_of(node) != "view":
            break
        try:
            lazy = RULES[name_of(node.target)].convert(Context(context, node), lazy, *map(_value, node.args[1:]))
        except (Unsupported, NotAffine):
            break
        order = _order(lazy, len(port.extents))
        if order is None:
            break
        if name_of(node.target) in _COPIES and order[-1] == len(port.extents) - 1:  # kernels write along the last index
            found = node, order
    return found if found[1] is not None and found[1] != tuple(range(len(port.extents))) else (port.node, None)


def _value(argument):
    """Sizes in place of nodes, as rules expect them."""
    return torch.fx.map_arg(argument, lambda node: node.meta["val"])


def _as_lazy(port):
    """The port's node with elements that are their own indices."""
    waiting, dims = list(port.extents), []
    for extent in map(expression, port.node.meta["val"].shape):
        dims.append([])
        while product(dims[-1]) != sympy.expand(extent):
            if not waiting:
                raise Unsupported("indices that are none of a dim")
            dims[-1].append(waiting.pop(0))
    return Lazy(tuple(map(tuple, dims)), port.node.meta["val"].dtype, lambda indices: indices)


def _order(lazy, count):
    """The old index of each new one; None where the new ones are no rearrangement of the old."""
    if len(lazy.atoms) != count:
        return None
    new = [Affine.variable(f"?{k}") for k in range(count)]
    old = list(lazy.element(tuple(new)))
    return tuple(old.index(each) for each in new) if all(each in old for each in new) else None


def is_readable(shape, strides, view):
    """Whether a kernel can read a tensor of this layout as it lies, seen with the extents of the nest."""
    if any(stride == 0 and extent > 1 for extent, stride in zip(shape, strides)):
        return False
    seen = _seen(shape, strides, view)
    return seen is not None and (not view or seen.stride(-1) == 1 or seen.shape[-1] == 1)


def joined_indices(shape, strides, view):
    """For each index of a tensor seen with the extents of the nest, but for the last: whether it and the next lie in memory as
    one. What a kernel cannot read as it lies is copied, and dense then."""
    if not is_readable(shape, strides, view):
        return [True] * (len(view) - 1)
    seen = _seen(shape, strides, view)
    return [seen.shape[k] == 1 or seen.stride(k) == seen.shape[k + 1] * seen.stride(k + 1) for k in range(len(view) - 1)]


def _seen(shape, strides, view):
    """A tensor without memory; None where it has no such view. PyTorch raises either error for that."""
    try:
        return torch.empty_strided(shape, strides, device="meta").view(view)
    except (RuntimeError, ValueError):
        return None
