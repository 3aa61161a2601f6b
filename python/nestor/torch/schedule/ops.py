"""One name and one list of arguments for an op, however a graph says it: as a function, a method, an operator, an ATen
overload, or a module without state."""

import functools
import inspect
import operator

import torch
from torch import fx, nn

from .graphs import submodule
from .modes import MODE

_OPERATORS = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.floordiv: "floor_divide",
    operator.mod: "remainder",
    operator.matmul: "matmul",
    operator.pow: "pow",
    operator.neg: "neg",
    operator.pos: "positive",
    operator.abs: "abs",
    operator.invert: "bitwise_not",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    operator.xor: "bitwise_xor",
    operator.eq: "eq",
    operator.ne: "ne",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.getitem: "getitem",
    operator.iadd: "add_",
    operator.isub: "sub_",
    operator.imul: "mul_",
    operator.itruediv: "div_",
    getattr: "getattr",
    operator.setitem: "setitem",
}
_ALIASES = {
    "absolute": "abs",
    "divide": "div",
    "true_divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "special_softmax": "softmax",
    "special_log_softmax": "log_softmax",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
    "clip": "clamp",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__add__": "add",
    "__mul__": "mul",
    "__matmul__": "matmul",
    "__truediv__": "div",
    "__sub__": "sub",
    "special_expit": "sigmoid",
    "special_erf": "erf",
    "concat": "cat",
    "concatenate": "cat",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "type_as": "to",
}
COMMUTATIVE = {
    "add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "eq", "ne", "maximum", "minimum"
}
_NAMES = {"self": "input", "axis": "dim", "train": "training", "tensor1": "input", "ord": "p"}
_IGNORED = {"_stacklevel", "cudnn_enable", "half_to_float", "cudnn_enabled"}
_LISTS = {"view", "reshape", "permute", "expand", "repeat", "tile", "flip", "roll"}

# Modules without parameters, as the function that they call and its settings.
STATELESS = {
    nn.ReLU: ("relu", ()),
    nn.ReLU6: ("relu6", ()),
    nn.GELU: ("gelu", ("approximate", )),
    nn.SiLU: ("silu", ()),
    nn.Tanh: ("tanh", ()),
    nn.Sigmoid: ("sigmoid", ()),
    nn.Softmax: ("softmax", ("dim", )),
    nn.LogSoftmax: ("log_softmax", ("dim", )),
    nn.LeakyReLU: ("leaky_relu", ("negative_slope", )),
    nn.ELU: ("elu", ("alpha", )),
    nn.Dropout: ("dropout", ("p", "training")),
    nn.Softplus: ("softplus", ("beta", "threshold")),
    nn.Mish: ("mish", ()),
    nn.Hardtanh: ("hardtanh", ("min_val", "max_val")),
    nn.Hardswish: ("hardswish", ()),
    nn.Hardsigmoid: ("hardsigmoid", ()),
    nn.Flatten: ("flatten", ("start_dim", "end_dim")),
}


def is_op(what):
    """Whether a callable is one of PyTorch's own functions, methods or overloads, or an operator."""
    if isinstance(what, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    try:
        if what in _OPERATORS:
            return True
    except TypeError:
        return False
    if inspect.isbuiltin(what) or inspect.ismethoddescriptor(what):
        return True
    place = getattr(what, "__module__", None) or ""
    return callable(what) and not isinstance(what, type) and (place == "torch" or place.startswith(("torch.", "nestor.")))


def name_of(target):
    """The name of the op that a function or a method (by name) is; for other functions the function itself."""
    if isinstance(target, str):
        name = target
    elif isinstance(target, torch._ops.OpOverload):
        name = target._opname if target.namespace == "aten" else f"{target.namespace}.{target._opname}"
    elif isinstance(target, torch._ops.OpOverloadPacket):
        name = str(target).rpartition(".")[2]
    elif target in _OPERATORS:
        return _OPERATORS[target]
    elif is_op(target) and not (getattr(target, "__module__", None) or "").startswith("nestor."):
        name = target.__name__
    else:
        return target
    return _ALIASES.get(name, name)


class Op:
    """What a node of a graph computes: name (text, a function or a module's class), and arguments {name: value}."""

    def __init__(self, node, owner):
        self.node, self.module = node, None
        if node.op == "call_module":
            self.module = submodule(owner, node.target)
            self.name, self.arguments = _of_module(self.module, node)
        else:
            self.name = name_of(node.target)
            self.arguments = _bound(self.name, node)

    def operands(self):
        """The arguments' orders that mean the same: [[(name, value), ...], ...]."""
        given = self.arguments
        if self.name in COMMUTATIVE and {"input", "other"} <= set(given):
            return [given, {**given, "input": given["other"], "other": given["input"]}]
        return [given]


def _of_module(module, node):
    known = STATELESS.get(type(module))
    if known is None or len(node.args) + len(node.kwargs) != 1:
        return type(module), _plain(node)
    name, settings = known
    return name, {
        "input": node.args[0] if node.args else next(iter(node.kwargs.values())),
        **{
            each: MODE if each == "training" else getattr(module, each)
            for each in settings
        }
    }


def _plain(node):
    return {**{str(number): value for number, value in enumerate(node.args)}, **node.kwargs}


def _bound(name, node):
    """Arguments by name, with what was left to its default; by place where no signature fits."""
    args, kwargs = list(node.args), dict(node.kwargs)
    if name == "rsub":
        return {"input": args[1], "other": args[0]}
    if name in _LISTS and len(args) > 1 and not isinstance(args[1], (list, tuple)) and all(
            isinstance(each, (int, fx.Node)) for each in args[1:]):
        args = [args[0], tuple(args[1:])]
    for names, defaults in _signatures(node.target if node.op == "call_function" else None,
                                       name if isinstance(name, str) else None):
        if len(args) <= len(names) and set(kwargs) <= set(names[len(args):]):
            given = {**dict(zip(names, args)), **kwargs}
            if all(each in given or each in defaults for each in names):
                return _normal({each: given.get(each, defaults.get(each)) for each in names})
    return _normal(_plain(node))


def _normal(arguments):
    return {
        _NAMES.get(name, name): tuple(value) if isinstance(value, list) else value
        for name, value in arguments.items()
        if name not in _IGNORED and not (name == "alpha" and value == 1) and not (name == "inplace" and value is False)
    }


@functools.lru_cache(maxsize=None)
def _signatures(target, name):
    """[(names in order, defaults)] of a function, and of the ATen overloads of that name."""
    found = []
    if isinstance(target, torch._ops.OpOverload):
        found.append(_of_schema(target._schema))
    elif target is not None and inspect.isfunction(target):
        found.append(_of_signature(inspect.signature(target)))
    packet = getattr(torch.ops.aten, name, None) if name and name.isidentifier() else None
    if packet is not None:
        schemas = [getattr(packet, each)._schema for each in packet.overloads() if not each.endswith("out")]
        found += [_of_schema(each) for each in sorted(schemas, key=_likely)]
    return found


def _likely(schema):
    """Overloads of tensors before those of numbers and names."""
    order = ("", "Tensor", "int", "dim")
    kinds = [str(each.type) for each in schema.arguments]
    return (kinds[:1] not in (["Tensor"], ["List[Tensor]"]), "Dimname"
            in str(schema), order.index(schema.overload_name) if schema.overload_name in order else len(order))


def _of_schema(schema):
    return [each.name for each in schema.arguments], {
        each.name: each.default_value
        for each in schema.arguments if each.has_default_value()
    }


def _of_signature(signature):
    parameters = [each for each in signature.parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return [each.name for each in parameters], {
        each.name: each.default
        for each in parameters if each.default is not each.empty
    }


def words_of(what):
    """An op, a function, a class or a pattern as a person would name it."""
    if isinstance(what, str):
        return repr(what)
    return getattr(what, "__name__", None) or getattr(what, "pattern", None) or str(what)
