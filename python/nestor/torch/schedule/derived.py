"""Classes that a schedule derives from a module's own: a forward generated from a graph, and activation checkpointing.

A scheduled module keeps its attributes, parameters, hooks and `isinstance`; only its class differs. Copies and pickles
rebuild that class, from the generated source where there is no graph.
"""

import copy
import functools
import importlib
import itertools
import linecache
import types

import torch
from torch.utils.checkpoint import checkpoint

from .graphs import without_deletions

_numbers = itertools.count()


class Generated:
    """A forward made of a graph, which is not changed any more. graph: None where a pickle brought the source alone."""

    def __init__(self, graph, source=None, names=None):
        self.graph = graph
        if source is None:
            code = graph.python_code("self")
            source, names = code.src.strip() + "\n", dict(code.globals)
        self.source, self.names = source, names
        place = f"<nestor.torch.schedule {next(_numbers)}>"
        linecache.cache[place] = (len(source), None, without_deletions(source).splitlines(True), place)
        found = dict(names)
        exec(compile(source, place, "exec"), found)  # noqa: S102  what torch.fx generated
        self.function = found["forward"]

    def __getstate__(self):
        return {"source": self.source, "names": {name: _Named(value) for name, value in self.names.items()}}

    def __setstate__(self, state):
        self.__init__(None, state["source"], {name: value.value for name, value in state["names"].items()})


class _Named:
    """A value that generated code names; modules are pickled by their name."""

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return (_module, (self.value.__name__, )) if isinstance(self.value, types.ModuleType) else (_Named, (self.value, ))


def _module(name):
    return _Named(importlib.import_module(name))


def generated_of(module):
    """The Generated of a traced module, else None."""
    return getattr(type(module), "schedule_generated", None)


def checkpoint_of(module):
    """The options of checkpointing, or None."""
    return getattr(type(module), "schedule_checkpoint", None)


def base_of(module):
    """The class that a module had before any schedule."""
    return getattr(type(module), "schedule_base", type(module))


def derive(module, *, generated=None, checkpointing=None):
    """Gives a module the class with this forward and this checkpointing; without both, its own."""
    module.__class__ = _derived(base_of(module), generated, checkpointing)


def _derived(base, generated, checkpointing):
    if generated is None and checkpointing is None:
        return base
    forward = generated.function if generated is not None else base.forward
    if checkpointing is not None:
        forward = _checkpointed(forward, checkpointing)
    return type(
        f"Scheduled{base.__name__}", (base, ), {
            "__module__": __name__,
            "__doc__": base.__doc__,
            "__reduce_ex__": _reduce,
            "__deepcopy__": _deepcopy,
            "forward": forward,
            "schedule_base": base,
            "schedule_generated": generated,
            "schedule_checkpoint": checkpointing,
        })


def _checkpointed(inner, options):

    @functools.wraps(inner)
    def forward(self, *inputs, **named):
        if not torch.is_grad_enabled():
            return inner(self, *inputs, **named)
        return checkpoint(functools.partial(inner, self), *inputs, use_reentrant=False, **options, **named)

    return forward


def _reduce(self, _protocol):
    kind = type(self)
    return _revive, (kind.schedule_base, kind.schedule_generated, kind.schedule_checkpoint), self.__getstate__()


def _revive(base, generated, checkpointing):
    kind = _derived(base, generated, checkpointing)
    return kind.__new__(kind)


def _deepcopy(self, memo):
    made = type(self).__new__(type(self))
    memo[id(self)] = made
    made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
    return made


def share(model):
    """A copy of all modules of a model that shares its parameters, buffers and other tensors."""
    memo = {}
    for module in model.modules():
        for value in itertools.chain(module._parameters.values(), module._buffers.values(), _tensors(module.__dict__)):
            memo[id(value)] = value
    return copy.deepcopy(model, memo)


def _tensors(values):
    """Tensors that attributes hold, one level deep."""
    for value in values.values():
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (each for each in value if isinstance(each, torch.Tensor))
        elif type(value) is dict:
            yield from (each for each in value.values() if isinstance(each, torch.Tensor))
