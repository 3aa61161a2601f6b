"""An actor on each GPU of a Ray cluster, or actors that tune for their host; this process joins what they measured."""

import collections
import os
import pathlib
import tempfile
import uuid

from ..errors import UserError
from . import work

_MOST_CHUNK = 8


class Tuner:
    """What an actor does. Its folder stays when it dies, so that the one in its place goes on there."""

    def __init__(self, run, number, options):
        self.folder = pathlib.Path(tempfile.gettempdir(), f"nestor-{run}", str(number))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.options = options

    def tune(self, name, text):
        return work.tune_chunk(text, self.options, self.folder, self.folder / "tuning.db", name)

    def rest(self):
        """All that was measured in this folder: also for chunks that another actor finished."""
        return work.all_records(self.folder, self.folder / "tuning.db")

    def process(self):
        """For tests: the process to kill."""
        return os.getpid()

    def remove(self):
        """Forgets what this actor has measured, when all of it is joined."""
        for path in sorted(self.folder.rglob("*")):
            path.unlink(missing_ok=True)
        self.folder.rmdir()


def tune_with_ray(plan, options, *, db, workers, chunk, retries, progress):
    """nestor.distributed.tune(engine="ray")."""
    try:
        import ray
    except ImportError:
        raise UserError("the engine 'ray' needs Ray: pip install ray, or tune shares with nestor tune --plan --shard") from None
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, **({} if "RAY_ADDRESS" in os.environ else _local(workers)))
    try:
        return _Driver(ray, plan, options, db, workers, chunk, retries, progress).run()
    finally:
        if started:
            ray.shutdown()


def _local(workers):
    """A Ray of this process's own; its actors find this package where it is."""
    package = str(pathlib.Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    return {"include_dashboard": False, "num_cpus": workers, "runtime_env": {"env_vars": {"PYTHONPATH": path}}}


class _Driver:
    def __init__(self, ray, plan, options, db, workers, chunk, retries, progress):
        self.ray, self.plan, self.db, self.retries, self.progress = ray, plan, db, retries, progress
        gpus = int(ray.cluster_resources().get("GPU", 0))
        on_gpus = options.target != "host" and gpus > 0
        if not on_gpus and options.target not in (None, "host"):
            raise UserError(f"the cluster has no GPU for the target {options.target}")
        count = workers or (gpus if on_gpus else len([node for node in ray.nodes() if node["Alive"]]))
        options = work.dataclasses.replace(options, target="cuda" if on_gpus else "host")
        # A call that dies with its actor is made again on the next one, in the same folder where that is the same node.
        actor = ray.remote(num_gpus=1 if on_gpus else 0, num_cpus=1, max_restarts=-1, max_task_retries=retries)(Tuner)
        self.run_name = uuid.uuid4().hex[:12]
        self.idle = [actor.remote(self.run_name, number, options) for number in range(count)]
        size = chunk or max(1, min(_MOST_CHUNK, len(plan) // (4 * count)))
        self.waiting = collections.deque(enumerate(plan.chunks(size)))
        self.tries, self.under_way, self.failed = collections.Counter(), {}, []
        self.outcome = work.Outcome(problems=len(plan), database=db)
        self.settled = 0

    def run(self):
        actors = list(self.idle)
        while self.waiting or self.under_way:
            while self.waiting and self.idle:
                actor, (number, lines) = self.idle.pop(0), self.waiting.popleft()
                self.tries[number] += 1
                call = actor.tune.remote(f"chunk{number}", self.plan.text(lines))
                self.under_way[call] = actor, number, lines
            ready, _ = self.ray.wait(list(self.under_way), num_returns=1)
            # All that is there by now is joined at once.
            more, _ = self.ray.wait(list(self.under_way), num_returns=len(self.under_way), timeout=0)
            self._take(list(dict.fromkeys([*ready, *more])))
        self._forget(actors)
        return self.outcome

    def _take(self, calls):
        records = []
        for call in calls:
            actor, number, lines = self.under_way.pop(call)
            self.idle.append(actor)
            try:
                told, made = self.ray.get(call)
            except self.ray.exceptions.RayError as error:
                self.failed.append(actor)
                self._again(number, lines, error)
                continue
            self.outcome.add(told)
            records.append(made)
            self.settled += len(lines)
            self.progress(self.settled, len(self.plan), f"chunk {number}: {told['finished']} tuned, {told['trials']} trials")
        if records:
            self.outcome.database = work.merge(records, self.db)["database"]

    def _again(self, number, lines, error):
        """A chunk whose actor, node or program died; bad input would fail elsewhere as well."""
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, UserError):
            raise cause
        reason = str(cause).strip().splitlines()[-1] if str(cause).strip() else type(cause).__name__
        if self.tries[number] <= self.retries:
            self.outcome.retried += 1
            self.waiting.append((number, lines))
            self.progress(self.settled, len(self.plan), f"chunk {number} again: {reason}")
            return
        self.settled += len(lines)
        self.outcome.failures += [{"problem": work.json.loads(line)["problem"], "reason": reason} for line in lines]
        self.progress(self.settled, len(self.plan), f"chunk {number} failed {self.tries[number]} times: {reason}")

    def _forget(self, actors):
        for actor in actors:
            try:
                if actor in self.failed:
                    work.merge([self.ray.get(actor.rest.remote())], self.db)
                self.ray.get(actor.remove.remote(), timeout=10)
            except self.ray.exceptions.RayError:
                pass  # its node is gone, and its folder with it
            self.ray.kill(actor)
