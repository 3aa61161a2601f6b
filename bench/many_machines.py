#!/usr/bin/env python3
"""Many small problems through Ray's actors on this machine, while the nestor program, its workers and the actors are killed.

    NESTOR_PROGRAM=build/release/bin/nestor bench/many_machines.py --problems 1000 --workers 4 --kills 40

Every problem must be finished, and every row that any actor has stored must be in the joined database. Needs Ray (pip install ray).
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import nestor.distributed  # noqa: E402
from nestor.distributed import ray_engine  # noqa: E402

OURS = re.compile(rb"\0tune\0.*/nestor-[0-9a-f]{12}/[0-9]+/", re.DOTALL)  # of an actor's folder
ROWS = """SELECT p.op, p.variant, p.sizes, t.created, t.status, t.steps, t.samples FROM trial t JOIN problem p ON p.id = t.problem_id"""


def rows_of(database):
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        return set(connection.execute(ROWS))


def processes():
    """{pid: (parent, command line)}"""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            found[int(entry.name)] = int(fields[1]), (entry / "cmdline").read_bytes()
        except (OSError, IndexError):
            pass
    return found


class Killer(threading.Thread):
    """Kills, every now and then, a program that an actor runs, one of the program's workers, or the actor."""

    def __init__(self, kills, pause, seed=1):
        super().__init__(daemon=True)
        self.left, self.pause, self.values = kills, pause, random.Random(seed)
        self.killed = {"program": 0, "worker": 0, "actor": 0}
        self.done = threading.Event()

    def run(self):
        while self.left > 0 and not self.done.wait(self.values.uniform(0.5, 1.5) * self.pause):
            kind = self.values.choice(["program", "worker", "worker", "actor"]) if self.killed["actor"] else "actor"
            if (process := self._one(kind)) is not None:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed[kind] += 1
                self.left -= 1

    def _one(self, kind):
        here = processes()
        tunes = {pid for pid, (_, command) in here.items() if OURS.search(command)}
        programs = [pid for pid in tunes if here[pid][0] not in tunes]
        found = {"program": programs, "worker": [pid for pid in tunes if here[pid][0] in tunes],
                 "actor": [here[pid][0] for pid in programs]}[kind]
        return self.values.choice(found) if found else None


def run(problems, workers, kills, pause, database, time_s=20, trials=2, progress=False):
    """The report, and what nestor.distributed.tune returned."""
    stored, forget = set(), ray_engine._Driver._forget

    def count_first(driver, actors):
        for path in pathlib.Path(tempfile.gettempdir(), f"nestor-{driver.run_name}").glob("*/tuning.db"):
            stored.update(rows_of(path))
        forget(driver, actors)

    ray_engine._Driver._forget = count_first
    killer = Killer(kills, pause)
    killer.start()
    begin = time.monotonic()
    try:
        outcome = nestor.distributed.tune(problems, engine="ray", time=time_s, trials=trials, target="host", threads=1, workers=workers,
                                          db=str(database), retries=20, progress=progress)
    finally:
        killer.done.set()
        ray_engine._Driver._forget = forget
    joined = rows_of(database)
    left = [pid for pid, (_, command) in processes().items() if OURS.search(command)]
    return {"problems": outcome.problems, "finished": outcome.finished, "failures": outcome.failures[:3], "retried_chunks": outcome.retried,
            "killed": killer.killed, "rows_stored_by_actors": len(stored), "rows_lost": len(stored - joined), "rows_joined": len(joined),
            "problems_with_rows": len({row[:3] for row in joined}), "orphans": len(left), "seconds": round(time.monotonic() - begin),
            "load_average": os.getloadavg()[0]}, outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--pause", type=float, default=8, help="seconds between kills, on average")
    parser.add_argument("--out", help="file for the JSON")
    args = parser.parse_args()
    problems = [(("softmax", "rmsnorm")[k % 2], {"rows": 1 + k // 40, "width": 1 + k // 2 % 20}) for k in range(args.problems)]
    with tempfile.TemporaryDirectory(prefix="many-machines-") as folder:
        report, outcome = run(problems, args.workers, args.kills, args.pause, f"{folder}/all.db", progress=None)
        check = subprocess.run([os.environ["NESTOR_PROGRAM"], "db", "check", "--db", f"{folder}/all.db"], capture_output=True, text=True, check=False)
        report["check"] = check.stdout.strip()
    text = json.dumps(report, indent=1)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text + "\n", encoding="utf-8")
    good = outcome and report["rows_lost"] == 0 and report["orphans"] == 0 and report["problems_with_rows"] == args.problems
    return 0 if good and check.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
