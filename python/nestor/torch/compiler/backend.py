"""torch.compile(model, backend="nestor"): Inductor, with regions of its graphs computed by Nestor's kernels."""

import dataclasses

import torch
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...errors import UserError
from . import background, kept_reports, races
from .graph_pass import RegionPass
from .region_op import say_once
from .rewrite import Rewriting
from .worker import Worker, job_of, refresh


class Session:
    """The compilation of one graph of Dynamo: its forward and its backward."""

    def __init__(self, options):
        self.options = options
        self._before = config.post_grad_custom_pre_pass  # a pass of somebody else's, which runs first
        self._settings = self._with_pass(options)
        self._pending = []  # candidates of the graph that was compiled last
        self._reports, self._key = [], None  # of graphs that were looked at, and what they are kept by

    def compile(self, module, inputs):
        """What Inductor makes of a graph, with the pass in its slot for this compilation alone."""
        foreign = next((type(each).__name__ for each in inputs if _is_foreign(each)), None)
        if foreign is not None:
            say_once(("subclass", foreign), f"Inductor compiles this alone, as an input is a {foreign}, a subclass of Tensor")
            return compile_fx(module, inputs, config_patches=self.options.patches())
        inner = self._inner if self.options.tune == "background" else compile_fx_inner
        identity = self._settings["post_grad_custom_pre_pass"].uuid()
        if self.options.report is not None and identity is not None:
            self._key = kept_reports.key_of(module, inputs, identity)
        found = compile_fx(module, inputs, inner_compile=inner, config_patches=self._settings)
        if self._key is not None and not self._reports:  # a cache served it
            for report in kept_reports.kept(self._key):
                self.options.report(report)
        return found

    def _tell(self, report):
        self._reports.append(report)
        self.options.report(report)
        if self._key is not None:
            kept_reports.keep(self._key, self._reports)

    def _with_pass(self, options):
        found = RegionPass(lambda graph: self._rewrite(graph, options), options, self._before)
        return {**options.patches(), "post_grad_custom_pre_pass": found}

    def _rewrite(self, graph, options):
        """Chooses; the function that comes back changes the graph. What there is to know of regions is asked before: their nodes go."""
        rewriting = Rewriting(graph, options, self._tune if options.tune == "now" else None)
        rewriting.choose()
        pending = list(rewriting.promising())

        def apply():
            rewriting.apply()
            self._pending = pending
            if self._pending and options.tune != "off":
                races.touch(options.db)  # so that no cache serves this graph once more, with what it lacks now
            _warn_of_missing(rewriting, options)
            if options.report is not None:
                self._tell(rewriting.report())

        return apply

    def _tune(self, candidates):
        """Tunes and races in a process of its own, and waits for it."""
        try:
            problem = Worker([job_of(each, self.options) for each in candidates], self.options).wait()
        except UserError as error:
            problem = error
        if problem is not None:
            say_once("tuning", f"not all regions could be tuned: {problem}")
        refresh(self.options.db)

    def _inner(self, module, inputs, **arguments):
        """Compiles a forward or backward graph; where regions wait for tuning, code that is replaced when that is done."""
        kept, self._pending = background.copy_of(module), []
        found = compile_fx_inner(module, inputs, **arguments)
        if not self._pending:
            return found
        settings = self._with_pass(dataclasses.replace(self.options, tune="off"))
        replaceable = background.Replaceable(found)
        try:
            background.tune_then([job_of(each, self.options) for each in self._pending], self.options,
                                 background.compiler_of(kept, inputs, settings, arguments), replaceable)
        except UserError as error:
            say_once("tuning", f"regions are not tuned: {error}")
            return found
        return replaceable


def _is_foreign(found):
    """Whether an input is of a subclass of Tensor that AOTAutograd does not take apart."""
    return isinstance(found, torch.Tensor) and type(found) not in (
        torch.Tensor, torch.nn.Parameter, FakeTensor) and not is_traceable_wrapper_subclass(found)


def _warn_of_missing(rewriting, options):
    """Says once for a device that nothing is there for it."""
    waiting = [each for each in rewriting.candidates if each.choice.waits and not each.choice.taken]
    if waiting and options.tune == "off" and not any(each.choice.taken for each in rewriting.candidates):
        say_once(("no kernels", rewriting.device.type),
                 f"Inductor computes all {len(rewriting.candidates)} regions on {rewriting.device}: {waiting[0].choice.why}. "
                 'nestor.torch.optimize, or options={"tune": "now"}, tunes them')
