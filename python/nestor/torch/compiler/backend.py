"""torch.compile(model, backend="nestor"): Inductor, with regions of its graphs computed by Nestor's kernels."""

import torch
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx

from ...errors import UserError
from .graph_pass import RegionPass
from .region_op import say_once
from .rewrite import Rewriting
from .worker import Worker, job_of, refresh


class Session:
    """The compilation of one graph of Dynamo: its forward and its backward."""

    def __init__(self, options):
        self.options = options
        self.reports = []

    def compile(self, module, inputs):
        before = config.post_grad_custom_pre_pass
        found = RegionPass(self._rewrite, self.options, before, self.options.report is None)
        return compile_fx(module, inputs, config_patches={**self.options.patches(), "post_grad_custom_pre_pass": found})

    def _rewrite(self, graph):
        rewriting = Rewriting(graph, self.options, self._tune if self.options.tune == "now" else None)
        rewriting.choose()

        def apply():
            rewriting.apply()
            report = rewriting.report()
            self.reports.append(report)
            _warn_of_missing(rewriting, self.options)
            if self.options.report is not None:
                self.options.report(report)

        return apply

    def _tune(self, candidates):
        """Tunes and races in a process of its own, and waits for it."""
        jobs = [job_of(each, self.options, _device(each)) for each in candidates]
        try:
            problem = Worker(jobs, self.options).wait()
        except UserError as error:
            problem = error
        if problem is not None:
            say_once("tuning", f"not all regions could be tuned: {problem}")
        refresh(self.options.db)


def _device(candidate):
    return candidate.described.inputs[0].meta["val"].device


def _warn_of_missing(rewriting, options):
    """Says once for a device that nothing is there for it."""
    found = [each for each in rewriting.candidates if each.choice.waits and not each.choice.taken]
    if found and options.tune == "off" and not any(each.choice.taken for each in rewriting.candidates):
        say_once(("no kernels", rewriting.device.type),
                 f"Inductor computes all {len(rewriting.candidates)} regions on {rewriting.device}: {found[0].choice.why}. "
                 'nestor.torch.optimize, or options={"tune": "now"}, tunes them')
