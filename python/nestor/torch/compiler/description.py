"""A region as text: what nestor::region is told, so that compiled code that PyTorch cached knows all of it in a new process."""

import dataclasses
import json
import re
from typing import Any, List, Optional, Tuple

import torch

from ...errors import UserError
from ...nests.generalise import generalise
from ...nests.model import Nest
from ..explanation import absorbed
from .layouts import is_readable, joined_indices, row_major_chain
from .subgraph import decode_calls, encode_calls, size_text, size_value

_LARGEST_SIZE = 2**28  # so that sums of indices stay in 32 bits, and conditions on them are exact
_DEFAULT_SIZE = 16  # in nests, so that a nest's name does not depend on the sizes that a model was first called with


@dataclasses.dataclass(frozen=True)
class Argument:
    """A tensor of a region. shape: as PyTorch has it; strides: those that it has, None: dense; view: as the nest has it, an
    extent for each index. Extents are ints or texts over sizes. order: of an output, whose memory is dense in the order of
    these indices of the nest; None: in the nest's own order. words: it is one integer of 64 bits, of which the nest has the words."""
    dtype: str
    shape: Tuple[Any, ...]
    strides: Optional[Tuple[Any, ...]]
    view: Tuple[Any, ...]
    order: Optional[Tuple[int, ...]] = None
    words: bool = False


@dataclasses.dataclass(frozen=True)
class Description:
    """A region. op, variant: the nest's name; sizes: names of the integers that a call passes; nest_sizes: the nest's sizes, each
    with its value as a text over those; calls, results: what PyTorch itself would compute (subgraph.py)."""
    op: str
    variant: str
    device: str
    sizes: Tuple[str, ...]
    nest_sizes: Tuple[Tuple[str, Any], ...]
    inputs: Tuple[Argument, ...]
    outputs: Tuple[Argument, ...]
    calls: List[Any]
    results: Tuple[int, ...]

    def text(self):
        """JSON that parse reads."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @staticmethod
    def parse(text):
        found = json.loads(text)
        for key in ("inputs", "outputs"):
            found[key] = tuple(Argument(**{name: tuple(value) if isinstance(value, list) else value
                                           for name, value in argument.items()}) for argument in found[key])
        return Description(**{**found, "sizes": tuple(found["sizes"]), "results": tuple(found["results"]),
                              "nest_sizes": tuple(map(tuple, found["nest_sizes"]))})

    def named_sizes(self, values):
        """{name: value} of the integers of a call."""
        return dict(zip(self.sizes, values))

    def nest_values(self, values):
        """{name: value} of the nest's sizes."""
        sizes = self.named_sizes(map(int, values))
        return {name: size_value(text, sizes) for name, text in self.nest_sizes}

    def module(self, values, device, compiled=False):
        """A GraphModule that computes the region in PyTorch's ops, at sizes. compiled: it is for Inductor to compile."""
        return decode_calls(self.calls, self.results, len(self.inputs), self.named_sizes(values), device, compiled)

    def example(self, values, device, generator=None):
        """Random tensors that fit a call with these sizes."""
        sizes = self.named_sizes(values)
        return [_example(argument, sizes, device, generator) for argument in self.inputs]


def dtype_of(argument):
    """An Argument's torch.dtype."""
    return getattr(torch, argument.dtype)


def extents(texts, sizes):
    """Values of a shape at {name: value}."""
    return [size_value(text, sizes) for text in texts]


def _example(argument, sizes, device, generator):
    shape, dtype = extents(argument.shape, sizes), dtype_of(argument)
    found = torch.empty(shape, dtype=dtype, device=device)
    if argument.strides is not None:
        found = torch.empty_strided(shape, extents(argument.strides, sizes), dtype=dtype, device=device)
    if dtype.is_floating_point:
        return found.normal_(generator=generator)
    if argument.words:
        return found.random_(-2**63, 2**63 - 1, generator=generator)
    return found.random_(0, 2, generator=generator)


class Described:
    """A region of a graph with its Description, the nest by the name that sizes of any graph share, the graph nodes that a call
    is passed, and those whose values it gives."""

    def __init__(self, region, hints, order, read):
        """order: {node: its place in the graph}; read: the nodes that regions read. Raises UserError, with the reason, where
        PyTorch's graph has something that cannot be said."""
        self.region = region
        self.inputs = [port.node for port in region.inputs]
        self.symbols = _symbols(region)
        found = [row_major_chain(port, read) for port in region.outputs]
        whole = {port.name: [True] * (len(port.extents) - 1) for port, (_, order) in zip(region.outputs, found) if order is None}
        names = {symbol: f"n{number}" for number, symbol in enumerate(self.symbols)}
        self.hints = [int(hints.get(str(symbol), _DEFAULT_SIZE)) for symbol in names]
        sizes = dict(zip(names.values(), self.hints))
        joined = {port.name: joined_indices(*(extents(row, sizes) for row in _rows_of(port.node, port.extents, names)))
                  for port in region.inputs}
        view, self.nest, nest_sizes = _general(region.nest, names, {**joined, **whole})
        self.size_symbols = list(names)
        self.outputs = [node for node, _ in found]
        self.chains = {each for port, node in zip(region.outputs, self.outputs) for each in _between(port.node, node)}
        nodes = sorted({*absorbed(region), *region.nodes, *self.chains}, key=order.__getitem__)
        calls, numbers = encode_calls(nodes, self.inputs, names)
        self.description = Description(
            self.nest.op, self.nest.variant, _device(self.inputs), tuple(names.values()), nest_sizes,
            tuple(_input(port, view(port), names, sizes) for port in region.inputs),
            tuple(_argument(node, view(port), names, axes, False) for port, (node, axes) in zip(region.outputs, found)),
            calls, tuple(numbers[node] for node in self.outputs))


def _input(port, view, names, sizes):
    """The Argument for an input, dense where a kernel cannot read it as it lies."""
    argument = _argument(port.node, view, names)
    if port.words:
        return dataclasses.replace(argument, words=True)
    if is_readable(*(extents(row, sizes) for row in (argument.shape, argument.strides, argument.view))):
        return argument
    return dataclasses.replace(argument, strides=None)


def _device(inputs):
    devices = {node.meta["val"].device for node in inputs}
    if not devices:
        raise UserError("it reads no tensor")
    if len(devices) > 1:
        raise UserError(f"its tensors are on {' and '.join(sorted(map(str, devices)))}")
    device = devices.pop()
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"kernels run on cpu and cuda, not on {device.type}")
    return device.type


def _between(start, end):
    """The nodes of a chain of single operands after `start`, up to `end`."""
    found = []
    while end is not start:
        found.append(end)
        end = end.args[0]
    return found


def _symbols(region):
    """The symbols of a region's tensors and arguments, those of its nest first."""
    found = {}
    shapes = [extent for port in (*region.inputs, *region.outputs) for extent in (*port.extents, *port.node.meta["val"].shape,
                                                                                  *port.node.meta["val"].stride())]
    values = [value for node in (*absorbed(region), *region.nodes) for each in node.all_input_nodes
              for value in [each.meta.get("val")] if isinstance(value, torch.SymInt)]
    for size in (*shapes, *values):
        node = getattr(size, "node", None)
        for symbol in sorted(getattr(node.expr if hasattr(node, "expr") else size, "free_symbols", ()), key=str):
            found.setdefault(symbol)
    own = {size.name for size in region.nest.sizes}
    missing = own - set(map(str, found))
    if missing:
        raise UserError(f"the size {', '.join(sorted(missing))} is none of its tensors'")
    first = {size.name: number for number, size in enumerate(region.nest.sizes)}
    return sorted(found, key=lambda symbol: first.get(str(symbol), len(first)))


_generals = {}  # by a nest's name, sizes and arguments: what became of it


def _general(nest, names, joined):
    """(a port's extents as the nest has them, the nest that many graphs share, its sizes with their values). Neighbouring indices
    are one and extents that are constants in the graph are sizes, where that can be. names: {symbol: its name}; joined: the
    arguments that may be seen with other extents, as collapse has them."""
    arguments = tuple(sorted((name, tuple(row)) for name, row in joined.items()))
    key = nest.op, nest.variant, tuple(names), arguments
    if key not in _generals:
        general = generalise(_with_names(nest, names), joined)
        sizes = tuple(dataclasses.replace(size, default=_DEFAULT_SIZE, max=size.max or _LARGEST_SIZE)
                      for size in general.nest.sizes)
        named = dataclasses.replace(general.nest, sizes=sizes)
        values = {size.name: general.values.get(size.name, size.name) for size in sizes}
        _generals[key] = (lambda port: general.view(port.name, port.extents),
                          dataclasses.replace(named, op=f"captured_{named.fingerprint()[:16]}"), tuple(values.items()))
    return _generals[key]


def _with_names(nest, names):
    if not nest.sizes:
        return nest
    table = {str(symbol): name for symbol, name in names.items()}
    words = re.compile(r"(?<!\w)(\d*)(" + "|".join(map(re.escape, table)) + r")\b")  # also with a factor, as in 24s0
    return Nest.from_dict(_mapped(nest.to_dict(), lambda text: words.sub(lambda match: match[1] + table[match[2]], text)))


def _mapped(found, function):
    if isinstance(found, dict):
        return {key: _mapped(value, function) for key, value in found.items()}
    if isinstance(found, list):
        return [_mapped(each, function) for each in found]
    return function(found) if isinstance(found, str) else found


def _argument(node, view, names, axes=None, strides=True):
    """The Argument for a node's tensor; strides: whether it is to have those of the node."""
    shape, lying, view = _rows_of(node, view, names)
    return Argument(str(node.meta["val"].dtype).removeprefix("torch."), shape, lying if strides else None, view, axes)


def _rows_of(node, view, names):
    """Shape, strides and a view of a node's tensor, as texts over sizes."""
    value = node.meta["val"]
    return tuple(tuple(size_text(size, names) for size in row) for row in (value.shape, value.stride(), view))
