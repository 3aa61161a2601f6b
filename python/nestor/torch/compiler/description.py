"""A region as text: what nestor::region is told, so that compiled code that PyTorch cached knows all of it in a new process."""

import dataclasses
import json
import re
from typing import Any, List, Optional, Tuple

import torch

from ...errors import UserError
from ...nests.model import Nest
from ..explanation import absorbed
from .layouts import row_major_chain
from .subgraph import decode_calls, encode_calls, size_text, size_value

_DEFAULT_SIZE = 16  # in nests, so that a nest's name does not depend on the sizes that a model was first called with


@dataclasses.dataclass(frozen=True)
class Argument:
    """A tensor of a region. shape: as PyTorch has it; strides: those asked for; view: as the nest has it, an extent for each
    index. Extents are ints or texts over sizes. order: of an output, whose memory is dense in the order of these indices of the
    nest; None: in the nest's own order."""
    dtype: str
    shape: Tuple[Any, ...]
    strides: Tuple[Any, ...]
    view: Tuple[Any, ...]
    order: Optional[Tuple[int, ...]] = None


@dataclasses.dataclass(frozen=True)
class Description:
    """A region. op, variant: the nest's name; sizes: names of the integers that a call passes, of which the first `nest_sizes`
    are the nest's; calls, results: what PyTorch itself would compute (subgraph.py)."""
    op: str
    variant: str
    device: str
    sizes: Tuple[str, ...]
    nest_sizes: int
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
        return Description(**{**found, "sizes": tuple(found["sizes"]), "results": tuple(found["results"])})

    def named_sizes(self, values):
        """{name: value} of the integers of a call."""
        return dict(zip(self.sizes, values))

    def module(self, values, device):
        """A GraphModule that computes the region in PyTorch's ops, at sizes."""
        return decode_calls(self.calls, self.results, len(self.inputs), self.named_sizes(values), device)

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
    found = torch.empty_strided(shape, extents(argument.strides, sizes), dtype=dtype, device=device)
    if dtype.is_floating_point:
        return found.normal_(generator=generator)
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
        self.nest, names = _renamed(region.nest, self.symbols)
        self.hints = [int(hints.get(str(symbol), _DEFAULT_SIZE)) for symbol in names]
        self.size_symbols = list(names)
        found = [row_major_chain(port, read) for port in region.outputs]
        self.outputs = [node for node, _ in found]
        self.chains = {each for port, node in zip(region.outputs, self.outputs) for each in _between(port.node, node)}
        nodes = sorted({*absorbed(region), *region.nodes, *self.chains}, key=order.__getitem__)
        calls, numbers = encode_calls(nodes, self.inputs, names)
        self.description = Description(
            self.nest.op, self.nest.variant, _device(self.inputs), tuple(names.values()), len(self.nest.sizes),
            tuple(_argument(port.node, port.extents, names) for port in region.inputs),
            tuple(_argument(node, port.extents, names, axes) for port, (node, axes) in zip(region.outputs, found)),
            calls, tuple(numbers[node] for node in self.outputs))


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


def _renamed(nest, symbols):
    """(the nest with sizes n0, n1, ..., {symbol: its name}): names that do not depend on the graph."""
    names = {symbol: f"n{number}" for number, symbol in enumerate(symbols)}
    if nest.sizes:
        table = {str(symbol): name for symbol, name in names.items()}
        words = re.compile(r"\b(" + "|".join(map(re.escape, table)) + r")\b")
        found = _mapped(nest.to_dict(), lambda text: words.sub(lambda match: table[match[0]], text))
        nest = Nest.from_dict(found)
        nest = dataclasses.replace(nest, sizes=tuple(dataclasses.replace(size, default=_DEFAULT_SIZE) for size in nest.sizes))
        nest = dataclasses.replace(nest, op=f"captured_{nest.fingerprint()[:16]}")
    return nest, names


def _mapped(found, function):
    if isinstance(found, dict):
        return {key: _mapped(value, function) for key, value in found.items()}
    if isinstance(found, list):
        return [_mapped(each, function) for each in found]
    return function(found) if isinstance(found, str) else found


def _argument(node, view, names, axes=None):
    value = node.meta["val"]
    strides = _dense(value.shape) if axes is not None else value.stride()
    return Argument(str(value.dtype).removeprefix("torch."), *(tuple(size_text(size, names) for size in row)
                                                               for row in (value.shape, strides, view)), axes)


def _dense(shape):
    found, step = [], 1
    for extent in reversed(shape):
        found.insert(0, step)
        step = step * extent
    return found
