"""A module's graph by torch.export, as a forward of its own: for what torch.fx cannot trace."""

import contextlib
import inspect
import io
import logging
import warnings

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...errors import UserError

_PLAIN = (tuple, list, dict)


def expect_shape(tensor, extents, what, seen):
    """What generated code calls for each argument of an exported forward. extents: a number, or (name, least, most) of a
    symbol."""
    if isinstance(tensor, fx.Proxy):  # a parent traces through
        tensor.tracer.create_proxy("call_function", expect_shape, (tensor, extents, what, {}), {}).node.meta["check"] = True
        return
    if tensor.dim() != len(extents):
        raise UserError(f"{what} has {tensor.dim()} dims, and had {len(extents)} when this forward was exported")
    for dim, (given, extent) in enumerate(zip(tensor.shape, extents)):
        if isinstance(extent, int):
            fits, words = given == extent, str(extent)
        else:
            name, least, most = extent
            fits = seen.setdefault(name, given) == given and given >= least and (most is None or given <= most)
            limit = f"at least {least}" if given < least else f"at most {most}"
            words = f"{seen[name]} as another extent" if seen[name] != given else limit
        if not fits:
            raise UserError(
                f"{what} has the extent {given} at dim {dim}, and this forward was exported for {words}: trace it with "
                "such inputs")


def exported(module, name, inputs):
    """The graph. Raises UserError with torch.export's reason."""
    args, kwargs = inputs
    for each in (*args, *kwargs.values()):
        if isinstance(each, _PLAIN):
            raise UserError(f"torch.export traces {name} only with arguments that are tensors or constants, not a "
                            f"{type(each).__name__} of them")
    shapes = {
        key: {
            dim: torch.export.Dim.AUTO
            for dim, extent in enumerate(value.shape) if extent > 1
        } if isinstance(value, torch.Tensor) else None
        for key, value in inspect.signature(type(module).forward).bind(module, *args, **kwargs).arguments.items()
        if value is not module
    }
    try:
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
            made = program.module()
    except Exception as error:  # noqa: BLE001  torch.export raises what it likes
        raise UserError(f"torch.export does not take {name} either: {str(error).splitlines()[0]}") from error
    _keep_constants(module, made, program, name)
    return _as_forward(made, program, name, inspect.signature(type(module).forward), (args, kwargs))


@contextlib.contextmanager
def _quiet():
    """Without what torch.export logs about a failure, which its exception says too."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _as_forward(made, program, name, signature, inputs):
    """The exported module's graph with the arguments and results of the forward."""
    graph, spec = made.graph, made._out_spec
    graph.set_codegen(fx.graph.CodeGen())
    for node in list(graph.nodes):
        if node.op == "call_module" and node.target == "_guards_fn":
            graph.erase_node(node)
    _arguments(graph, program, name, signature, inputs)
    output = next(node for node in graph.nodes if node.op == "output")
    result = pytree.tree_unflatten(list(pytree.tree_leaves(output.args[0])), spec)
    if any(not isinstance(each, (fx.Node, int, float, bool, type(None)))
           for each in pytree.tree_leaves(result, is_leaf=lambda each: not isinstance(each, _PLAIN))):
        raise UserError(
            f"the results of {name} are in a {type(result).__name__}; torch.export traces tensors, tuples, lists and "
            "dictionaries of them")
    output.args = (result, )
    graph.lint()
    return graph


def _keep_constants(module, made, program, name):
    """Tensors that the forward makes of numbers become attributes, as torch.fx keeps them."""
    for node in made.graph.nodes:
        if node.op == "get_attr" and node.target in program.constants and "." not in node.target:
            if not hasattr(module, node.target):
                setattr(module, node.target, program.constants[node.target])
        elif node.op == "get_attr" and node.target not in program.state_dict and node.target not in program.constants:
            raise UserError(f"torch.export makes a part of {name} of its own (control flow, or another gradient mode)")


def _arguments(graph, program, name, signature, inputs):
    """Placeholders in the forward's order and with its defaults, and checks of their shapes."""
    given = signature.bind(None, *inputs[0], **inputs[1]).arguments
    made = dict(zip(list(given)[1:], [node for node in graph.nodes if node.op == "placeholder"]))
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    seen = None
    for key, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = () if parameter.default is parameter.empty else (parameter.default, )
        node = made.get(key)
        if node is None:
            with graph.inserting_before(first):
                node = graph.create_node("placeholder", key, name=key)
        node.target, node.args = key, default
        value = node.meta.get("val", given.get(key, parameter.default))
        with graph.inserting_before(first):
            if isinstance(value, torch.Tensor):
                seen = seen or graph.call_function(dict)
                extents = tuple(_extent(extent, program) for extent in value.shape)
                check = graph.call_function(expect_shape, (node, extents, f"the argument {key} of {name}", seen))
            else:
                from .symbols import expect

                check = graph.call_function(expect, (node, value, f"the argument {key}"))
            check.meta["check"] = True
    _placeholders_first(graph, [each for each in signature.parameters])


def _extent(extent, program):
    if isinstance(extent, int):
        return extent
    symbol = extent.node.expr
    if symbol.is_number:
        return int(symbol)
    limits = program.range_constraints.get(symbol)
    most = None if limits is None or not limits.upper.is_finite or limits.upper > 2**62 else int(limits.upper)
    return str(symbol), 0 if limits is None else int(limits.lower), most


def _placeholders_first(graph, names):
    last = None
    for node in sorted((node for node in graph.nodes if node.op == "placeholder"), key=lambda node: names.index(node.target)):
        (next(iter(graph.nodes)).prepend if last is None else last.append)(node)
        last = node
