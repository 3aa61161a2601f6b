"""Models from schedules: merged weights settled, fused parts compiled; and the inputs that a model's parts get."""

import copy

import torch

from ...errors import UserError
from .derived import share
from .merging import MergedLinear
from .rewrite import Region


def apart(model):
    """A copy of a scheduled model with tensors of its own."""
    return _settled(copy.deepcopy(model))


def built(model, own, compiler, options):
    """A copy of a scheduled model to be run. own: with tensors of its own; compiler: for the whole of it, or None."""
    model = apart(model) if own else _settled(share(model))
    start_regions(model)
    if compiler is not None and compiler is not False:
        model.compile(backend=backend_of("nestor" if compiler is True else compiler), **options)
    elif options:
        raise UserError(f"{', '.join(options)}: options of torch.compile, which build(compile=True) uses")
    return model


def start_regions(model):
    """Lets torch.compile compile the fused parts of a model from their first calls on."""
    for module in model.modules():
        if isinstance(module, Region):
            module.start(backend_of(module.compiler))


def _settled(model):
    for module in model.modules():
        if isinstance(module, MergedLinear):
            module.settle()
    return model


def backend_of(compiler):
    """What torch.compile takes as its backend. Raises UserError for an unknown name."""
    if callable(compiler):
        return compiler
    known = torch.compiler.list_backends(exclude_tags=())
    if compiler == "nestor":
        return "nestor" if "nestor" in known else "inductor"
    if compiler not in known:
        raise UserError(f"torch.compile knows no backend {compiler!r}; it knows {', '.join(known)}, and nestor")
    return compiler


def as_inputs(inputs):
    if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[0], tuple) and isinstance(inputs[1], dict):
        return inputs
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs, )), {}


def inputs_of(model, paths, inputs):
    """{path: (positional, named)} of the first call of each module, when the model runs."""
    found = {}

    def keep(path):
        return lambda module, args, kwargs: found.setdefault(path, (args, kwargs)) and None

    hooks = [model.get_submodule(path).register_forward_pre_hook(keep(path), with_kwargs=True) for path in paths]
    args, kwargs = as_inputs(inputs)
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return found
