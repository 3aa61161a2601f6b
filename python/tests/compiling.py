"""What the tests of torch.compile(backend="nestor") share."""

import ctypes
import itertools
import subprocess
import sys
import unittest
import warnings
from unittest import mock

import torch
from support import folder, needs_program
from torch._inductor import cpu_vec_isa

import nestor.torch
from nestor.nests.model import Nest
from nestor.torch.compiler import backend, races, region_op
from nestor.torch.compiler.region_op import region_of

_numbers = itertools.count()


def _loads_here(self, code):
    """Whether Inductor's own small library for an instruction set can be built and loaded. Inductor asks a new process, which imports
    PyTorch for two seconds, ten times; this process has it already, and loading runs none of the instructions."""
    call = subprocess.check_call

    def load(command, **options):
        if command[:2] != [sys.executable, "-c"]:
            return call(command, **options)
        return ctypes.CDLL(command[2].split('"')[1])

    with mock.patch("subprocess.check_call", load):
        return _built_and_loaded(self, code)


_built_and_loaded, cpu_vec_isa.VecISA.check_build = cpu_vec_isa.VecISA.check_build, _loads_here


class QuickWorker:
    """Tunes in this process with one trial, and says that every kernel won its race."""
    jobs = 0  #: of all of them
    race = {"kernel_us": 1.0, "inductor_us": 10.0}

    def __init__(self, jobs, options):
        self._jobs, self._options = jobs, options

    @staticmethod
    def require_program():
        """The tests are skipped without one."""

    def wait(self):
        for job in self._jobs:
            QuickWorker.jobs += 1
            told = region_of(job["key"]).description
            sizes = told.nest_values(job["sizes"])
            nestor.tune(Nest.from_dict(job["nest"]), sizes, trials=1, time=5, target="host", db=self._options.db,
                        progress=False)
            races.remember(self._options.db, races.entry(told.op, told.variant, sizes, races.device_name(torch.device("cpu")),
                                                         **self.race))


@needs_program
class CompileTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        torch._dynamo.reset()
        region_op._said.clear()
        QuickWorker.jobs = 0
        self.db = f"{folder()}/compile{next(_numbers)}.db"
        self.reports = []
        for patched in (mock.patch.object(backend, "Worker", QuickWorker), warnings.catch_warnings()):
            patched.__enter__()
            self.addCleanup(patched.__exit__, None, None, None)
        warnings.simplefilter("error", UserWarning)  # what is said is asked for

    def compiled(self, model, dynamic=None, **options):
        """With the backend; kernels are tuned when it compiles."""
        return torch.compile(model, backend="nestor", dynamic=dynamic,
                             options={"tune": "now", "db": self.db, "report": self.reports.append, **options})

    def taken(self):
        """The ops of all regions that run kernels, a text for each."""
        return [" ".join(region.ops) for report in self.reports for region in report.taken]

    def assertClose(self, found, expected, tolerance=1e-5):
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
