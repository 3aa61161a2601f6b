"""What decompose puts in place of an op: a table of definitions, written in PyTorch.

`python -m nestor.torch.schedule` prints it for docs/pytorch_schedules.md.
"""

import inspect
import math

import torch
import torch.nn.functional as F
from torch import fx, nn

from ...errors import UserError
from .derived import base_of
from .ops import Op, words_of
from .patterns import traced_function
from .paths import joined, refuse_hooks


def linear(input, weight, bias=None):
    """A product, and the bias added to it."""
    product = F.linear(input, weight)
    return product if bias is None else product + bias


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Moments over the last dims, then scale and shift."""
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, keepdim=True)
    normal = centred * torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    return _affine(normal, weight, bias)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """The mean square over the last dims, then scale."""
    dims = tuple(range(-len(normalized_shape), 0))
    square = (input * input).mean(dims, keepdim=True)
    return _affine(input * torch.rsqrt(square + (torch.finfo(torch.float32).eps if eps is None else eps)), weight, None)


def softmax(input, dim, dtype=None):
    """Exponentials of distances to the maximum, divided by their sum."""
    input = input if dtype is None else input.to(dtype)
    exponentials = torch.exp(input - input.amax(dim, keepdim=True))
    return exponentials / exponentials.sum(dim, keepdim=True)


def log_softmax(input, dim, dtype=None):
    """Distances to the maximum, less the logarithm of their exponentials' sum."""
    input = input if dtype is None else input.to(dtype)
    distances = input - input.amax(dim, keepdim=True)
    return distances - torch.log(torch.exp(distances).sum(dim, keepdim=True))


def gelu(input, approximate="none"):
    """x times the normal distribution at x, by erf or by tanh."""
    if approximate == "none":
        return 0.5 * input * (1.0 + torch.erf(input * math.sqrt(0.5)))
    return 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (input + 0.044715 * input * input * input)))


def silu(input):
    """x times its sigmoid."""
    return input * torch.sigmoid(input)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """Softmax of scaled scores, with a mask that is added, times values."""
    scores = torch.matmul(query, key.transpose(-2, -1)) * (query.shape[-1]**-0.5 if scale is None else scale)
    if attn_mask is not None:
        scores = scores + attn_mask
    weights = torch.softmax(scores, -1)
    if not isinstance(dropout_p, float) or dropout_p > 0.0:
        weights = F.dropout(weights, dropout_p, training=True)
    return torch.matmul(weights, value)


def _affine(normal, weight, bias):
    scaled = normal if weight is None else normal * weight
    return scaled if bias is None else scaled + bias


DEFINITIONS = {
    each.__name__: each
    for each in (linear, layer_norm, rms_norm, softmax, log_softmax, gelu, silu, scaled_dot_product_attention)
}
# Modules with parameters, as the function that they call: {class: (name, tensors, settings)}.
_MODULES = {
    nn.Linear: ("linear", ("weight", "bias"), ()),
    nn.LayerNorm: ("layer_norm", ("weight", "bias"), ("normalized_shape", "eps")),
}
if hasattr(nn, "RMSNorm"):
    _MODULES[nn.RMSNorm] = ("rms_norm", ("weight", ), ("normalized_shape", "eps"))


def decompose(edit, match):
    """Puts an op's definition in its place. Parameters stay where they are. Returns words about it."""
    nodes, _, _ = edit.here(match)
    if len(nodes) != 1:
        raise UserError(f"decompose takes single ops, and {', '.join(match.nodes)} are {len(nodes)}")
    edit.refuse_unsafe(nodes)
    node, = nodes
    with edit.graph.inserting_before(node):
        name, arguments = _arguments(edit, node)
        _refuse(name, arguments, node)
        found = edit.graph.graph_copy(*_definition(name, arguments))
    found.meta["stack_trace"] = node.meta.get("stack_trace")
    edit.supersede([node], [node], [found])
    return f"{node.name} -> the definition of {name}"


def _arguments(edit, node):
    """(the name of the definition, its arguments) of a node."""
    op = Op(node, edit.module)
    if op.module is None or isinstance(op.name, str):
        if op.name not in DEFINITIONS:
            raise UserError(f"decompose has no definition of {words_of(op.name)}; it has those of {', '.join(DEFINITIONS)}")
        return op.name, op.arguments
    base = base_of(op.module)
    if base not in _MODULES:
        raise UserError(f"decompose has no definition of the module {node.target} ({base.__name__}); it has those of "
                        f"{', '.join(each.__name__ for each in _MODULES)}, and of {', '.join(DEFINITIONS)}")
    refuse_hooks(op.module, joined(edit.path, node.target))
    name, tensors, settings = _MODULES[base]
    given = {"input": next(iter(op.arguments.values())), **{each: getattr(op.module, each) for each in settings}}
    given.update({
        each: edit.graph.create_node("get_attr", f"{node.target}.{each}")
        for each in tensors if getattr(op.module, each, None) is not None
    })
    return name, given


def _refuse(name, arguments, node):
    """What a definition leaves out."""
    if name == "scaled_dot_product_attention":
        if arguments.get("is_causal") or arguments.get("enable_gqa"):
            raise UserError(f"decompose of {node.name}: its definition has neither is_causal nor enable_gqa; give a mask")
        if isinstance(arguments.get("attn_mask"), fx.Node):
            value = arguments["attn_mask"].meta.get("val")
            if value is not None and value.dtype == torch.bool:
                raise UserError(f"decompose of {node.name}: its definition adds the mask, which is of bool here")


def _definition(name, arguments):
    """(a graph, the values of its placeholders) of a definition at arguments of which some are constants."""
    function = DEFINITIONS[name]
    names = [each for each in inspect.signature(function).parameters if each in arguments]
    constants = {each: arguments[each] for each in names if not _holds_node(arguments[each])}
    if "normalized_shape" in constants and isinstance(constants["normalized_shape"], int):
        constants["normalized_shape"] = (constants["normalized_shape"], )
    tensors = [each for each in names if each not in constants]
    source = f"lambda {', '.join(tensors)}: _function({', '.join(f'{each}={each}' for each in tensors)}, **_constants)"
    graph, _ = traced_function(eval(source, {"_function": function, "_constants": constants}), "the definition")  # noqa: S307
    return graph, dict(zip([node for node in graph.nodes if node.op == "placeholder"], [arguments[each] for each in tensors]))


def _holds_node(value):
    found = []
    fx.node.map_arg(value, found.append)
    return bool(found)


def table():
    """The definitions as a Markdown table."""
    lines = ["| function | modules | definition |", "|---|---|---|"]
    for name, function in DEFINITIONS.items():
        modules = [kind.__name__ for kind, (called, _, _) in _MODULES.items() if called == name]
        modules += {"softmax": ["Softmax"], "log_softmax": ["LogSoftmax"], "gelu": ["GELU"], "silu": ["SiLU"]}.get(name, [])
        text = function.__doc__.rstrip(".")
        lines.append(f"| `{name}` | {', '.join(f'`nn.{each}`' for each in modules)} | {text[0].lower() + text[1:]} |")
    return "\n".join(lines)

