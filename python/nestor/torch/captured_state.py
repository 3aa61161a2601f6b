"""What a function has captured, as a key that is equal while nothing of it changed, and the tensors in it.

A traced function need not be traced again while its code, its closure, the globals that it names and the numbers in them are the
same; its tensors are arguments, so that only their types matter, and their shapes where code asks for them.
"""

import functools
import types

import torch

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_MODULES = ("torch", "math", "nestor", "numpy", "builtins", "functools", "operator")
_OF_SHAPES = {"shape", "size", "numel", "nelement", "len", "stride", "dim", "ndim", "enumerate", "zip", "range"}  # may ask for them


class Unknown(Exception):
    """Something was captured whose changes cannot be seen."""


class State:
    """key: hashable, or None where changes cannot be seen; tensors: those captured, in the order in which they were found."""

    def __init__(self, *functions):
        self.tensors, self._parts, self._seen, self._names = [], [], {}, set()
        try:
            for function in functions:
                self._add(function)
            shapes = tuple(tuple(tensor.shape) for tensor in self.tensors) if self._names & _OF_SHAPES else None
            self.key = (*self._parts, shapes)
        except Unknown:
            self.key = None

    def _add(self, found):
        if isinstance(found, _PLAIN):
            self._parts.append((type(found), repr(found) if isinstance(found, (float, complex)) else found))
            return
        if id(found) in self._seen:
            self._parts.append(("again", self._seen[id(found)]))
            return
        self._seen[id(found)] = len(self._seen)
        if isinstance(found, torch.Tensor):
            self.tensors.append(found)
            self._parts.append(("tensor", found.dtype, found.dim(), found.device, found.requires_grad))
        elif isinstance(found, types.FunctionType):
            self._function(found)
        elif isinstance(found, functools.partial):
            self._sequence("partial", (found.func, found.args, found.keywords))
        elif isinstance(found, (tuple, list)):
            self._sequence(type(found).__name__, found)
        elif isinstance(found, dict):
            self._sequence("dict", [part for item in found.items() for part in item])
        elif type(found).__name__ == "_MaskModWrapper":
            self._sequence("mask", (found.fn,))
        elif _is_fixed(found):
            self._parts.append(("fixed", id(found)))
        else:
            raise Unknown(f"a {type(found).__name__}")

    def _sequence(self, kind, parts):
        self._parts.append((kind, len(parts)))
        for part in parts:
            self._add(part)

    def _function(self, function):
        if not _is_users(function):
            self._parts.append(("fixed", id(function)))
            return
        self._parts.append(("function", function.__code__))
        self._sequence("defaults", function.__defaults__ or ())
        self._sequence("defaults", [part for item in (function.__kwdefaults__ or {}).items() for part in item])
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                raise Unknown("a variable that is not set yet") from None
            self._add(content)
        for name in _names(function.__code__):
            self._names.add(name)
            if name in function.__globals__:
                self._parts.append(name)
                self._add(function.__globals__[name])


def _names(code):
    """Names of globals (and attributes) that code uses, its inner functions too."""
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _names(constant)
    return found


def _is_users(function):
    return (function.__module__ or "").split(".")[0] not in _MODULES or function.__closure__


def _is_fixed(found):
    """Whether something never changes: parts of Python and of PyTorch."""
    if isinstance(found, types.ModuleType):
        return found.__name__.split(".")[0] in _MODULES
    if isinstance(found, (types.BuiltinFunctionType, type)):
        return (getattr(found, "__module__", None) or "builtins").split(".")[0] in _MODULES
    return isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))


