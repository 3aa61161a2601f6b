"""What a function has captured, as a key that is equal while nothing of it changed, and the tensors in it.

A traced function need not be traced again while its code, attributes, closure and globals, and the numbers in them, are the same.
Its tensors are arguments, so that only their types matter. Reads notes what else it reads of them while it runs.
"""

import dis
import functools
import sys
import types

import torch
from torch.nn.attention import flex_attention as pytorch
from torch.overrides import TorchFunctionMode

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format)
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_MODULES = ("torch", "math", "nestor", "numpy", "builtins", "functools", "operator")
_BUILTINS = frozenset("abs all any bool bytes complex dict divmod enumerate filter float frozenset int isinstance issubclass len"
                      " list map max min pow range reversed round set slice sorted str sum tuple type zip".split())
_STATES = ("get_", "is_", "are_", "has_", "current_")  # with which names begin that ask for the state of a module
_STATE_NAMES = ("seed", "initial_seed", "random", "backends", "default_generator", "device_count", "config", "environ", "__dict__",
                "__globals__", "__builtins__")
_OF_TENSORS = ("is_floating_point", "is_complex", "is_signed")
_MASK_OF = getattr(pytorch, "_MaskModWrapper", ())
_MISSING = object()


class Unknown(Exception):
    """Something was captured whose changes cannot be seen."""


class State:
    """key: hashable, or None where changes cannot be seen; tensors: those captured, in the order in which they were found."""

    def __init__(self, *functions):
        self.tensors, self._parts, self._seen = [], [], {}
        try:
            for function in functions:
                self._add(function)
            self.key = (*self._parts, *_defaults())
        except Unknown:
            self.key = None

    @property
    def shapes(self):
        """The shapes of the tensors."""
        return tuple(tuple(tensor.shape) for tensor in self.tensors)

    def _add(self, found):
        kind = type(found)  # what is derived from these may hold more than they do
        if kind in _PLAIN:
            self._parts.append((kind, repr(found) if kind in (float, complex) else found))
            return
        if id(found) in self._seen:
            self._parts.append(("again", self._seen[id(found)]))
            return
        self._seen[id(found)] = len(self._seen)
        if kind in _TENSORS:
            self.tensors.append(found)
            self._parts.append((kind, found.dtype, found.dim(), found.device, found.requires_grad))
            self._attributes(found)
        elif kind is types.FunctionType:
            self._function(found)
        elif kind is functools.partial:
            self._sequence("partial", (found.func, found.args, found.keywords))
            self._attributes(found)
        elif kind in (tuple, list, torch.Size):
            self._sequence(kind, found)
        elif kind is dict:
            self._sequence(kind, [part for item in found.items() for part in item])
        elif isinstance(found, _MASK_OF):
            self._sequence("mask", (found.fn,))
        elif _is_bound(found):
            self._sequence("method", (found.__name__, found.__self__))
        elif _is_fixed(found):
            self._parts.append(found)  # which the key keeps alive
        else:
            raise Unknown(f"a {kind.__name__}")

    def _sequence(self, kind, parts):
        self._parts.append((kind, len(parts)))
        for part in parts:
            self._add(part)

    def _attributes(self, found):
        """Those that were set on a function or tensor, but for Dynamo's notes."""
        self._sequence("attributes", [part for name, value in vars(found).items() if not name.startswith("_dynamo")
                                      for part in (name, value)])

    def _function(self, function):
        if not _is_users(function):
            if not _is_fixed(function):
                raise Unknown(function.__name__)
            self._parts.append(function)
            return
        self._parts.append(function.__code__)
        self._sequence("defaults", function.__defaults__ or ())
        self._sequence("defaults", [part for item in (function.__kwdefaults__ or {}).items() for part in item])
        self._attributes(function)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                raise Unknown("a variable that is not set yet") from None
            self._add(content)
        names, attributes = _names(function.__code__)
        for name in names:
            value = function.__globals__.get(name, _MISSING)
            if value is _MISSING:
                value = function.__builtins__.get(name, _MISSING)
            self._parts.append((name, value is _MISSING))
            if value is not _MISSING:
                self._add(value)
            self._of_module(value, attributes)

    def _of_module(self, module, attributes):
        """What code may read of a module, by the names of the attributes that it reads."""
        if not isinstance(module, types.ModuleType):
            return
        for name in attributes:
            value = vars(module).get(name, _MISSING)
            if value is not _MISSING and value is not module:
                known = id(value) in self._seen
                self._parts.append(name)
                self._add(value)
                if not known:
                    self._of_module(value, attributes)


def _defaults():
    """What the types and devices of tensors made inside of a function follow from."""
    casts = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    return torch.get_default_dtype(), torch.get_default_device(), *casts


@functools.lru_cache(maxsize=4096)
def _reads_of(code):
    """(names of globals, names of attributes) that code reads, its inner functions too; None where it reads or writes something
    else by a name, such as what it imports."""
    names, attributes = {}, {}
    for step in dis.get_instructions(code):
        if step.opcode not in dis.hasname or step.opname == "STORE_NAME":  # of a class inside
            continue
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes[step.argval] = None
        elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[step.argval] = None
        else:
            return None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _reads_of(constant)
            if inner is None:
                return None
            names.update(dict.fromkeys(inner[0]))
            attributes.update(dict.fromkeys(inner[1]))
    if any(map(_asks_for_state, attributes)):
        return None
    return tuple(names), tuple(attributes)


def _asks_for_state(name):
    return name in _STATE_NAMES or (name.startswith(_STATES) and name not in _OF_TENSORS)


def _names(code):
    found = _reads_of(code)
    if found is None:
        raise Unknown("code that reads what has no name here")
    return found


def _is_users(function):
    name = function.__module__ or ""
    return bool(function.__closure__) or name.split(".")[0] not in _MODULES or (
        function.__globals__ is not getattr(sys.modules.get(name), "__dict__", None))


def _is_bound(found):
    """Whether this is a method of Python's own on an object, as `table.get`."""
    return isinstance(found, (types.BuiltinFunctionType, types.MethodWrapperType)) and not isinstance(
        found.__self__, (type(None), type, types.ModuleType))


def _is_fixed(found):
    """Whether something never changes: parts of Python and of PyTorch."""
    if isinstance(found, types.ModuleType):
        return found.__name__.split(".")[0] in _MODULES
    if isinstance(found, (types.FunctionType, types.BuiltinFunctionType, type)):
        module = (getattr(found, "__module__", None) or "builtins").split(".")[0]
        if module == "builtins":
            return found.__name__ in _BUILTINS or (isinstance(found, type) and issubclass(found, BaseException))
        return module in _MODULES and not _asks_for_state(found.__name__)
    return isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) or type(found).__name__ == "ufunc"


class Reads(TorchFunctionMode):
    """Notes what a function reads of tensors besides making others of them. shapes: whether of their shapes; values: whether of
    anything else that is not their types."""

    def __init__(self):
        super().__init__()
        self.shapes = self.values = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor) and func not in _OF_TYPES:
            if func in _OF_SHAPES or _are_tensors(result):
                self.shapes = True
            else:
                self.values = True
        return result


_OF_TYPES = (torch.Tensor.dtype.__get__, torch.Tensor.device.__get__, torch.Tensor.ndim.__get__, torch.Tensor.requires_grad.__get__,
             torch.Tensor.dim, torch.Tensor.ndimension, torch.Tensor.is_floating_point, torch.is_floating_point,
             torch.Tensor.is_complex, torch.is_complex, torch.Tensor.is_signed, torch.is_signed)
_OF_SHAPES = (torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.nelement, torch.numel,
              torch.Tensor.__len__, torch.Tensor.__iter__)


def _are_tensors(found):
    return isinstance(found, (tuple, list)) and all(isinstance(each, torch.Tensor) for each in found)
