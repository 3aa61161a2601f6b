"""Traces the forward of one module: symbolically with torch.fx, else with torch.export; for training and evaluation at once.

Submodules stay calls unless they are asked to be flattened, and so does whatever cannot be traced: a submodule, or a function
that the forward calls.
"""

import inspect
import os
import traceback

import torch
from torch import fx

from ...errors import UserError
from .derived import base_of, checkpoint_of, derive, generated_of
from .exporting import exported
from .modes import joined_modes
from .paths import hooks_of
from .symbols import Tracer, Untraceable

_TORCH = os.path.dirname(torch.__file__) + os.sep
_HERE = os.path.dirname(__file__) + os.sep
_PLAIN = (bool, int, float, str)


def trace(module, path, inputs=None, *, flatten=(), leaves=(), functions=(), mode=None):
    """(graph, notes) of the module's forward.

    inputs: a tuple of the module's own positional inputs, or (tuple, dict): arguments that are no tensors become constants
    (checked by each call), and shapes that Python code asks for are those of the inputs. flatten, leaves: predicates of
    (module, path below this module) for what is traced into, and what never is. functions: stay calls. mode: "train" or "eval"
    for one of them. Raises UserError if neither torch.fx nor torch.export can trace it.
    """
    request = _Request(module, path, inputs, flatten, leaves, functions)
    if mode not in (None, "train", "eval"):
        raise UserError(f'mode is "train", "eval" or None for both, not {mode!r}')
    try:
        graph = _in_modes(request, mode, request.symbolic)
    except Untraceable as error:
        if inputs is None or not error.exportable:
            raise UserError(
                f"{request.name} cannot be traced symbolically: {_told(error)}; "
                f"{'give inputs=, ' if error.exportable else ''}trace a part of it, or name what should stay a call "
                "with leaves= or functions=") from error
        try:
            graph = _in_modes(request, mode, request.exported)
        except UserError as second:
            raise UserError(f"{second}; torch.fx: {_told(error)}") from second
        request.notes.append(f"traced by torch.export, so that its submodules are no calls: {_told(error)}")
    return graph, list(dict.fromkeys(request.notes))


def _in_modes(request, mode, tracer):
    """The graph of both modes, or of one with a check."""
    flags = {each: each.training for each in request.module.modules()}
    try:
        graphs = {}
        for name in ("train", "eval") if mode is None else (mode, ):
            request.module.train(name == "train")
            graphs[name] = tracer()
        return joined_modes(graphs, request.name)
    finally:
        for each, training in flags.items():
            each.training = training


class _Request:
    """One module to be traced, and what was found out on the way."""

    def __init__(self, module, path, inputs, flatten, leaves, functions):
        self.module, self.inputs = module, _arguments(inputs)
        self.name = f"{path or 'the model'} ({base_of(module).__name__})"
        self.notes, self._flatten, self._leaves = [], flatten, leaves
        self._stuck, self._functions = {}, dict.fromkeys(functions)
        self._frozen = {each for each in module.modules() if each.training is not module.training}
        if "forward" in vars(module):
            raise UserError(
                f"{self.name} has a forward of its own, set on the object (a hook of another library?); remove it first")
        self.constants, self.samples = self._bound()

    def _leaf(self, module, name):
        if name in self._stuck or checkpoint_of(module) is not None or getattr(module, "schedule_leaf", False):
            return True
        if any(_is(each, module, name) for each in self._leaves):
            return True
        if not any(_is(each, module, name) for each in self._flatten):
            return True
        if module in self._frozen:
            self.notes.append(f"{name} stays a call: it trains, or evaluates, where {self.name} does not")
            return True
        if hooks_of(module):
            self.notes.append(f"{name} stays a call: it has {' and '.join(hooks_of(module))}")
            return True
        return False

    def _bound(self):
        """Arguments that become constants, and samples of the others."""
        parameters = inspect.signature(type(self.module).forward).parameters
        if self.inputs is None:
            return {name: each.default for name, each in list(parameters.items())[1:] if isinstance(each.default, _PLAIN)}, None
        try:
            bound = inspect.signature(type(self.module).forward).bind(self.module, *self.inputs[0], **self.inputs[1])
        except TypeError as error:
            raise UserError(f"inputs do not fit the forward of {self.name}: {error}") from error
        bound.apply_defaults()
        given = [(name, value) for name, value in list(bound.arguments.items())[1:]
                 if parameters[name].kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)]
        return ({
            name: value
            for name, value in given if value is None or isinstance(value, _PLAIN)
        }, {
            name: value
            for name, value in given if value is not None and not isinstance(value, _PLAIN)
        })

    def symbolic(self):
        """A graph by torch.fx. Raises Untraceable with a reason."""
        if self.inputs is not None:
            return self._retried(self.constants)
        open_ones = [
            name for name, each in inspect.signature(type(self.module).forward).parameters.items() if each.default is None
        ]
        if not open_ones:
            return self._retried(self.constants)
        found, without = (self._attempt({**self.constants, **more}) for more in ({}, dict.fromkeys(open_ones)))
        if isinstance(found, Untraceable) and isinstance(without, Untraceable):
            raise found
        if isinstance(found, fx.Graph) and isinstance(without, fx.Graph) and _same(found, without, open_ones):
            return found
        raise Untraceable(
            f"its forward does other work where {' or '.join(open_ones)} is not given, so inputs are needed to know")

    def _attempt(self, constants):
        try:
            return self._retried(constants)
        except Untraceable as error:
            return error

    def _retried(self, constants):
        """Traces again with what failed as calls, until nothing fails."""
        while True:
            tracer = Tracer(self._leaf, tuple(self._functions), self.samples)
            try:
                return tracer.graph_of(self.module, constants)
            except Untraceable as error:
                if error.path:
                    self._stuck[error.path] = error
                    self.notes.append(f"{error.path} stays a call: {_told(error)}")
                    continue
                function = _function_below(error, type(self.module).forward)
                if function is None or function in self._functions:
                    raise
                self._functions[function] = None
                self.notes.append(f"{function.__name__} stays a call: {_told(error)}")

    def exported(self):
        return exported(self.module, self.name, self.inputs)


def _arguments(inputs):
    """(positional, named) of what a user gives as inputs."""
    if inputs is None:
        return None
    if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[0], tuple) and isinstance(inputs[1], dict):
        return inputs
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs, )), {}


def _is(what, module, name):
    """Whether `what` (True, a class, a glob or a predicate) means this submodule."""
    if what is True:
        return not type(module).__module__.startswith("torch.nn.") or generated_of(module) is not None
    if isinstance(what, type):
        return isinstance(module, what)
    if isinstance(what, str):
        from .paths import _names

        return _names(what, name)
    return bool(what(module, name))


def _same(one, other, open_ones):
    """Whether two graphs do the same, where arguments named in open_ones may be None in one of them."""

    def told(graph):
        nodes = [node for node in graph.nodes if node.op != "placeholder" and not _is_check(node)]
        names = {node: f"#{number}" for number, node in enumerate(nodes)}
        for node in nodes:
            yield repr((node.op, node.target,
                        fx.node.map_aggregate((node.args, node.kwargs),
                                              lambda each: names.get(each, None if each.target in open_ones else each.target)
                                              if isinstance(each, fx.Node) else each)))

    return list(told(one)) == list(told(other))


def _is_check(node):
    return node.meta.get("check", False)


def _told(error):
    """A reason with the line that it comes from, outside of PyTorch and of this package."""
    frames = [
        frame for each in _chain(error) for frame in traceback.extract_tb(each.__traceback__)
        if not frame.filename.startswith((_TORCH, _HERE))
    ]
    return f"{error} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno}  {frames[-1].line})" if frames else str(error)


def _chain(error):
    """An error and its causes, innermost last."""
    while error is not None:
        yield error
        error = error.__cause__


def _function_below(error, forward):
    """The function that the forward called when it failed, where it is one that a name of its module holds."""
    *_, innermost = _chain(error)
    frames = [frame for frame, _ in traceback.walk_tb(innermost.__traceback__)]
    for caller, frame in zip(frames, frames[1:]):
        if caller.f_code is getattr(forward, "__code__", None):
            function = caller.f_globals.get(frame.f_code.co_name)
            if inspect.isfunction(function) and function.__code__ is frame.f_code:
                return function
    return None


def retrace_target(module):
    """Gives a module without its checkpointing, so that its forward can be traced; returns the options to restore."""
    options = checkpoint_of(module)
    derive(module, generated=generated_of(module))
    return options
