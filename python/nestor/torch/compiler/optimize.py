"""nestor.torch.optimize: compile, tune, verify and report in one call."""

import torch

from ...errors import UserError
from . import nestor as backend
from .options import Options


class Reports(list):
    """The Report of each graph that was compiled, in order."""

    def __str__(self):
        return "\n\n".join(map(str, self)) or "nothing was compiled yet"

    __repr__ = __str__


class _Kept:
    """Takes the Report of each graph, and passes it on. A pickled one has none: they are of this process."""

    def __init__(self, told=None):
        self._told, self._reports = told, Reports()

    def __call__(self, report):
        self._reports.append(report)
        if self._told is not None:
            self._told(report)

    def __reduce__(self):
        return _Kept, ()

    def report(self):
        """The Reports so far."""
        return self._reports


def optimize(model, inputs, *, kwargs=None, mode=None, dynamic=None, tune="now", **options):
    """torch.compile(model, backend="nestor"), called once so that its regions are tuned, raced and verified.

    model: a module or function; inputs: a tuple of example inputs, kwargs: a dictionary of more. mode: of torch.compile; None:
    "reduce-overhead" (CUDA graphs) where inputs or parameters are on a GPU. dynamic: as torch.compile has it. tune and other
    options: those of backend="nestor" (Options): budget_s, time_per_nest, db, verify, min_gain, products.
    Call it as the model will run: under torch.inference_mode() or with gradients, whose forward and backward are then compiled
    both. dynamic=True tunes for the example's sizes and serves others too.
    Returns what torch.compile does, with report(): the Reports of its graphs, with regions, kernels, times against Inductor and
    the reason of each refusal. Pickled and restored it compiles anew, and has no report(). Raises UserError for options that
    are none.
    """
    if not callable(model):
        raise UserError(f"a {type(model).__name__} is no model: give a module or a function")
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if mode is None and _on_gpu(model, (*inputs, *(kwargs or {}).values())):
        mode = "reduce-overhead"
    given = {**options, "tune": tune, "mode": mode}
    kept = _Kept(Options.of(given).report)
    compiled = torch.compile(model, backend=backend, dynamic=dynamic, options={**given, "report": kept})
    compiled(*inputs, **(kwargs or {}))
    object.__setattr__(compiled, "report", kept.report)
    return compiled


def _on_gpu(model, inputs):
    tensors = [*(model.parameters() if isinstance(model, torch.nn.Module) else ()), *inputs]
    return any(isinstance(each, torch.Tensor) and each.is_cuda for each in tensors)
