"""The ranks of torchrun: each tunes its share of a list, and after each round all have what each has measured."""

import os
import tempfile

from ..errors import Error, UserError
from . import work

_MOST_CHUNK = 4


def tune_in_ranks(plan, options, *, db, workers, chunk, retries, progress):
    """nestor.distributed.tune(engine="torch"): called by every rank. A process group that is there is used, else one is made over gloo."""
    del workers, retries  # torchrun starts the ranks, and starts them again
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise UserError("the engine 'torch' needs PyTorch, and torchrun to start the ranks") from None
    if not dist.is_initialized() and "RANK" not in os.environ:
        raise UserError("the engine 'torch' runs under torchrun: torchrun --nproc-per-node 2 script.py")
    # Records travel by gloo whatever the program's own group uses: they are bytes of the host.
    made = not dist.is_initialized()
    if made:
        dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo")
    try:
        ranks = _Ranks(dist, group, _with_device(options, torch), db)
        return ranks.tune(plan, chunk, progress)
    finally:
        dist.destroy_process_group(None if made else group)


def _with_device(options, torch):
    target = options.target or ("cuda" if torch.cuda.is_available() else "host")
    if target == "cuda":
        target = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    return work.dataclasses.replace(options, target=target)


class _Ranks:
    def __init__(self, dist, group, options, db):
        self.dist, self.group, self.options, self.db = dist, group, options, db
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)

    def _gathered(self, value):
        found = [None] * self.count
        self.dist.all_gather_object(found, value, group=self.group)
        return found

    def tune(self, plan, chunk, progress):
        # One list for all: that of rank 0.
        plan = self._gathered((plan.nests, plan.problems))[0]
        plan = work.Plan(*plan)
        size = chunk or max(1, min(_MOST_CHUNK, len(plan) // (4 * self.count)))
        chunks = plan.chunks(size)
        outcome = work.Outcome(problems=len(plan))
        settled = 0
        with tempfile.TemporaryDirectory(prefix="nestor-") as folder:
            for first in range(0, len(chunks), self.count):
                mine = chunks[first + self.rank] if first + self.rank < len(chunks) else None
                made = self._gathered(self._tune(plan, mine, folder, f"chunk{first + self.rank}"))
                outcome.database = self._join(made)
                for told, _, failures in made:
                    if told:
                        outcome.add(told)
                    outcome.failures += failures
                settled += sum(map(len, chunks[first:first + self.count]))
                if self.rank == 0:
                    progress(settled, len(plan), f"{outcome.trials} trials on {self.count} ranks")
        return outcome

    def _tune(self, plan, lines, folder, name):
        """(what the program told, records, failures). What fails here must not keep the others waiting."""
        if lines is None:
            return None, None, []
        try:
            told, records = work.tune_chunk(plan.text(lines), self.options, folder, self._own_database(folder), name)
            return told, records, []
        except Error as error:
            return None, None, [{"problem": work.json.loads(line)["problem"], "reason": str(error)} for line in lines]

    def _own_database(self, folder):
        """Where this rank measures: its database, which goes on when torchrun starts the ranks again."""
        return self.db if self.db else f"{folder}/tuning.db"

    def _join(self, made):
        records = [files for rank, (_, files, _) in enumerate(made) if files and not (rank == self.rank and self.db)]
        return work.merge(records, self.db)["database"] if records else self.db
