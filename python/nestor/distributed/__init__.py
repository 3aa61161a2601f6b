"""Tuning on many machines through an engine that is there: Ray, or the ranks of torchrun.

    import nestor.distributed
    nestor.distributed.tune("plan.jsonl", engine="ray", time=20, db="tuning.db")

Without either, `nestor tune --plan PLAN --shard k/n` does a share on each machine (docs/many_machines.md).
"""

from ..errors import UserError
from .work import Options, Outcome, plan_lines

__all__ = ["Outcome", "tune"]
ENGINES = ("ray", "torch")


def tune(problems, engine="ray", *, time=20, trials=200, db=None, target=None, threads=None, seed=None, fix_all=False, workers=None,
         chunk=None, retries=3, progress=None):
    """Tunes many problems on all devices of an engine, and keeps every trial in one database. Returns an Outcome.

    problems: the path of a plan (`nestor plan`), or a list of problems: (nest, sizes) or (nest, sizes, variant), where nest is
    a nestor.Nest, the name of an operator or the path of a nest file, and sizes {name: value}.
    engine: "ray" starts an actor on each GPU of the cluster, or `workers` actors (one on each node by default) that tune for
    their host (Ray is started here where it is not running); "torch" is called by every rank under torchrun: the ranks share the list of
    rank 0, and each ends with the records of all.
    time, trials: seconds and trials of each problem. db: where records are kept on this machine; None: the user's database.
    target: "host" or "cuda"; None: the GPUs where there are any. threads: of a kernel on the host. seed, fix_all: as nestor.tune has them.
    chunk: problems that an actor is given at once. retries: how often a chunk whose actor or node died is given out again.
    progress: called with (problems settled, problems, text); None prints a line a chunk; False nothing.
    Raises UserError for bad input and where the engine is missing. A problem that fails is in the Outcome's failures.
    """
    if engine not in ENGINES:
        raise UserError(f"there is no engine {engine!r}; choose one of {', '.join(map(repr, ENGINES))}")
    options = Options(time=time, trials=trials, target=target, threads=threads, seed=seed, fix_all=fix_all)
    if engine == "ray":
        from .ray_engine import tune_with_ray as run
    else:
        from .torch_engine import tune_in_ranks as run
    return run(plan_lines(problems), options, db=db, workers=workers, chunk=chunk, retries=retries, progress=_told(progress))


def _told(progress):
    if progress is False:
        return lambda settled, problems, text: None
    return progress or (lambda settled, problems, text: print(f"{settled}/{problems}  {text}", flush=True))
