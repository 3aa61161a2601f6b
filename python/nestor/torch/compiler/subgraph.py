"""A region's nodes as text and back: what PyTorch itself computes for a region, wherever its kernel does not serve.

A call is [op, args, kwargs]; inputs of the region and results of calls are numbered in one row. Sizes are expressions of names.
"""

import functools
import math
import operator

import torch

from ...errors import UserError
from ..importer.extents import expression
from .draws import COMPILED_DRAWS, compare_unrounded

_GETITEM = "getitem"
_KINDS = {torch.dtype: "dtype", torch.device: "device", torch.memory_format: "memory", torch.layout: "layout"}


def encode_calls(nodes, inputs, symbols):
    """(calls, {node: its number}) of nodes in an order in which they can run. inputs: the nodes that are numbered first;
    symbols: {sympy symbol: name}. Raises UserError for an argument that has no text."""
    numbers = {node: number for number, node in enumerate(inputs)}
    calls = []
    for node in nodes:
        encode = functools.partial(_encode, numbers=numbers, symbols=symbols)
        calls.append([_name_of(node.target), [encode(arg) for arg in node.args],
                      {key: encode(arg) for key, arg in node.kwargs.items()}])
        numbers[node] = len(numbers)
    return calls, numbers


def _name_of(target):
    if target is operator.getitem:
        return _GETITEM
    if not isinstance(target, torch._ops.OpOverload):
        raise UserError(f"{target} is no op of PyTorch's dispatcher")
    return str(target)


def _encode(found, numbers, symbols):
    if isinstance(found, torch.fx.Node):
        if found in numbers:
            return {"value": numbers[found]}
        if isinstance(found.meta["val"], torch.Tensor):
            raise UserError(f"PyTorch's ops read {found}, and the nest does not")
        return {"size": size_text(found.meta["val"], symbols)}
    if isinstance(found, (list, tuple)):
        return [_encode(each, numbers, symbols) for each in found]
    if isinstance(found, (torch.SymInt, torch.SymFloat)):
        return {"size": size_text(found, symbols)}
    for kind, name in _KINDS.items():
        if isinstance(found, kind):
            return {name: "" if name == "device" else str(found).removeprefix("torch.")}
    if found is None or isinstance(found, (bool, int, float, str)):
        return found
    raise UserError(f"an argument of the type {type(found).__name__} has no text")


def size_text(size, symbols):
    """An extent as an int, or as Python text over the names of its symbols. Raises UserError for other symbols."""
    return size if type(size) is int else _size_text(expression(size), tuple(symbols.items()))


@functools.lru_cache(maxsize=4096)
def _size_text(found, symbols):
    from torch.utils._sympy.printers import PythonPrinter

    if found.is_Integer:
        return int(found)
    symbols = dict(symbols)
    if not found.free_symbols <= set(symbols):
        raise UserError(f"the size {found} is none that is known here")
    return PythonPrinter().doprint(found.subs({symbol: type(symbol)(name, **symbol.assumptions0)
                                               for symbol, name in symbols.items()}, simultaneous=True))


@functools.lru_cache(maxsize=None)
def _compiled(text):
    return compile(text, "<size>", "eval")


_FUNCTIONS = {  # that PythonPrinter writes; sizes may be symbolic
    "__builtins__": {}, "abs": abs, "math": math, "max": lambda *sizes: functools.reduce(torch.sym_max, sizes),
    "min": lambda *sizes: functools.reduce(torch.sym_min, sizes)}


def size_value(text, sizes):
    """The value of what size_text made, at {name: value}; values may be symbolic."""
    return text if isinstance(text, int) else eval(_compiled(text), dict(_FUNCTIONS), sizes)  # noqa: S307  our own text


def decode_calls(calls, outputs, count, sizes, device, compiled=False):
    """A GraphModule that computes calls on `count` tensors, and returns a tuple of the values that `outputs` numbers. compiled:
    Inductor compiles it; otherwise ops that draw other numbers than compiled code are replaced by what it draws."""
    graph = torch.fx.Graph()
    values = [graph.placeholder(f"x{number}") for number in range(count)]
    for name, args, kwargs in calls:
        decode = functools.partial(_decode, values=values, sizes=sizes, device=device)
        target = op_named(name) if compiled else COMPILED_DRAWS.get(name) or op_named(name)
        values.append(graph.call_function(target, tuple(decode(arg) for arg in args),
                                          {key: decode(arg) for key, arg in kwargs.items()}))
    graph.output(tuple(values[number] for number in outputs))
    if not compiled:
        compare_unrounded(graph)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@functools.lru_cache(maxsize=None)
def op_named(name):
    """The OpOverload of "aten.add.Tensor". Raises UserError where this PyTorch has none."""
    if name == _GETITEM:
        return operator.getitem
    space, op, overload = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), op), overload)
    except AttributeError as error:
        raise UserError(f"this PyTorch has no op {name}: {error}") from None


def _decode(found, values, sizes, device):
    if isinstance(found, list):
        return [_decode(each, values, sizes, device) for each in found]
    if not isinstance(found, dict):
        return found
    (kind, text), = found.items()
    if kind == "value":
        return values[text]
    if kind == "size":
        return size_value(text, sizes)
    return device if kind == "device" else getattr(torch, text)
