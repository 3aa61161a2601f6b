"""A process of its own that tunes the nests of regions and races their kernels against Inductor's code.

    python -m nestor.torch.compiler.worker JOBS.json

It leaves trials in the database and races beside it; whoever started it reads them there.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from ...capi import load
from ...errors import Error, UserError
from ...nests.model import Nest
from ...program import find
from ...tuning import tune
from ..importer.graph import kind_of
from . import races
from .region_op import key_of, region_of

_SLACK_S = 120  # beyond the budget, for starting, compiling and a last race


def job_of(candidate, options):
    """What the process is told of a region."""
    described = candidate.described
    device = described.inputs[0].meta["val"].device
    return {"nest": described.nest.to_dict(), "key": key_of(described.description, options.db, False), "sizes": described.hints,
            "device": str(device), "products": any("mm" in op[0] for op in described.description.calls),
            "cold": [_is_argument(node) for node in described.inputs]}


def _is_argument(node):
    """Whether a node is an argument of the graph (weights are), or a view of one: nothing has just written it."""
    while kind_of(node) == "view":
        node = node.all_input_nodes[0]
    return node.op in ("placeholder", "get_attr")


class Worker:
    """The running process. Raises UserError as require_program() does."""

    @staticmethod
    def require_program():
        """Raises UserError where there is no nestor program, or no runtime library to race its kernels with."""
        find()
        load()

    def __init__(self, jobs, options):
        self.require_program()
        self._folder = tempfile.TemporaryDirectory(prefix="nestor-worker-")
        path = pathlib.Path(self._folder.name) / "jobs.json"
        path.write_text(json.dumps({"jobs": jobs, "db": options.db or races.default_database(), "budget_s": options.budget_s,
                                    "time_per_nest": options.time_per_nest}))
        self._deadline = time.monotonic() + options.budget_s + _SLACK_S
        root = str(pathlib.Path(__file__).resolve().parents[3])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
        self._errors = open(pathlib.Path(self._folder.name) / "errors.txt", "w+")
        self._process = subprocess.Popen([sys.executable, "-m", "nestor.torch.compiler.worker", str(path)], env=environment,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors)

    def wait(self):
        """Waits for the end, once. Returns the last line of what it complained of, or None."""
        try:
            self._process.wait(max(1.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:  # far beyond its budget
            self._process.kill()
            self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        self._errors.close()
        self._folder.cleanup()
        if self._process.returncode == 0:
            return None
        return lines[-1] if lines else f"it ended with {self._process.returncode}"

    def stop(self):
        """Ends it; what was tuned so far stays. wait() then returns."""
        if self._process.poll() is None:
            self._process.terminate()


def main(path):
    """Does the jobs of a file in turn, until the budget is spent."""
    told = json.loads(pathlib.Path(path).read_text())
    end, parent = time.monotonic() + told["budget_s"], os.getppid()
    for job in told["jobs"]:
        left = end - time.monotonic()
        if left < 1 or os.getppid() != parent:  # nobody waits for it any more
            break
        _tune_and_race(job, told["db"], min(left, told["time_per_nest"]))


def _tune_and_race(job, database, seconds):
    import torch

    from .race import race

    region, device = region_of(job["key"]), torch.device(job["device"])
    told = region.description
    sizes = told.nest_values(job["sizes"])
    found = races.entry(told.op, told.variant, sizes, races.device_name(device))
    found["products"] = job["products"]
    try:
        if not _is_measured(region, job["sizes"], device):
            tune(Nest.from_dict(job["nest"]), sizes, time=seconds, db=database, progress=False,
                 target="host" if device.type == "cpu" else str(device))
            refresh(region.database)
        found.update(race(region, job["sizes"], device, job["cold"]))
    except (Error, RuntimeError) as error:
        found["failed"] = str(error).splitlines()[0] if str(error) else type(error).__name__
    races.remember(database, found)


def _is_measured(region, sizes, device):
    """Whether the database has a kernel that was tuned at these sizes on this device."""
    try:
        return region.kernel(sizes, device).match == "exact"
    except Error:
        return False


def refresh(database):
    """Lets the open database find what other processes have tuned."""
    from ..kernels import opened

    try:
        opened(database).refresh()
    except UserError:  # there is none yet
        pass


if __name__ == "__main__":
    main(sys.argv[1])
