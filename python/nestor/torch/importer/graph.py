"""Nodes of a graph: what they give, which matter, and what rules of ops are told about them."""

import operator

import torch

from ...nests.values import as_value, from_affine
from .bounds import is_never_negative
from .exact import HIGH, LOW
from .extents import Unsupported, expression
from .lazy import FLOATS, Lazy
from .table import RULES, name_of


def values_of(node):
    """The tensors that a node's meta says it gives, or None where it gives none."""
    found = node.meta.get("val")
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, (tuple, list)) and any(isinstance(each, torch.Tensor) for each in found):
        return list(found)
    return None


def live_nodes(graph):
    """The nodes that outputs and effects depend on."""
    live = set()
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node in live or mutates(node):
            live.add(node)
            live.update(node.all_input_nodes)
    return live


def kind_of(node):
    """The kind of op that a node calls (table.KINDS), or None where there is no rule. A part of several results is a view."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        return "view"
    rule = RULES.get(name_of(node.target))
    return rule.kind if rule else None


def is_product(node):
    """Whether a node sums products."""
    rule = RULES.get(name_of(node.target))
    return rule is not None and rule.product


def factors_of(node):
    """The operands that a product multiplies: two, or the three of attention."""
    if kind_of(node) == "definition":
        return list(node.args[:3])
    if name_of(node.target) == "aten.einsum.default":
        return list(node.args[1])
    first = 1 if name_of(node.target) in _WITH_SUMMAND else 0
    return list(node.args[first:first + 2])


def contracted_length(node):
    """How many terms a product of two factors sums for each result, as PyTorch has it; None where its letters say that."""
    if kind_of(node) != "product" or name_of(node.target) == "aten.einsum.default":
        return None
    return values_of(factors_of(node)[0])[0].shape[-1]


def multiplications_of(node, symbols):
    """How many multiplications the products of a node take at likely sizes, roughly. symbols: a Symbols."""
    if not is_product(node):
        return 0
    if kind_of(node) == "definition":
        query, key, _ = (values_of(each)[0] for each in factors_of(node))
        return 2 * symbols.elements(query) * symbols.number(key.shape[-2])
    length = contracted_length(node)
    return symbols.elements(values_of(node)[0]) * (symbols.number(length) if length is not None else 1)


_WITH_SUMMAND = ("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default", "aten.addbmm.default")


class Context:
    """What rules of ops are given besides their operands."""

    def __init__(self, builder, node):
        self.builder, self.symbols = builder, builder.symbols
        self.op = name_of(node.target)
        self.name = getattr(node.target, "_opname", node.name).strip("_")
        tensors = values_of(node) or []
        self.dtypes = [each.dtype if isinstance(each, torch.Tensor) else None for each in tensors]
        self.dtype = self.dtypes[0] if self.dtypes else None
        self.device = next((each.device for each in tensors if isinstance(each, torch.Tensor)), None)
        self.shape = [expression(extent) for extent in tensors[0].shape] if isinstance(tensors[0], torch.Tensor) else []

    def length(self, dim):
        """The extent of a dim of the result."""
        return self.shape[dim]

    def require_inside(self, position, extent, ranges):
        """Raises Unsupported unless an index is plainly one of a dim, at all values of the variables of `ranges`."""
        if not (is_never_negative(position, ranges) and is_never_negative(extent - 1 - position, ranges)):
            raise Unsupported("reads at indices that may be negative or lie outside")

    def value(self, found):
        """A Python number or a size as a Value; a tensor of one element as that."""
        if isinstance(found, Lazy):
            return found.element(())
        if hasattr(found, "node") or hasattr(found, "free_symbols"):
            return from_affine(self.symbols.affine(expression(found)))
        if isinstance(found, int) and not LOW <= found <= HIGH:
            if self.dtype not in FLOATS:
                raise Unsupported(f"the integer {found}, which 32 bits do not hold")
            found = float(found)
        return as_value(found)


def require_elements(tensor):
    if isinstance(tensor, torch.Tensor) and any(isinstance(extent, int) and extent == 0 for extent in tensor.shape):
        raise Unsupported("a tensor without elements")


def mutates(node):
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def dtype_text(node):
    return str(values_of(node)[0].dtype).removeprefix("torch.")
