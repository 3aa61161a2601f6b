#!/usr/bin/env python3
"""Kills tuning runs and their workers at random moments; every row that a run has told of must be there, and no process may be left.

    bench/kills.py --nestor build/release/bin/nestor --kills 500

A run is killed as a whole one time in two, else one of its workers is, and the run must go on. All runs share one database.
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

OPERATORS = ("softmax", "rmsnorm", "layernorm")
TOLD = re.compile(rb"trial (\d+): ")  # NESTOR_DEBUG=trials, when the row is stored
MOST_IN_A_RUN = 3  # kills of workers more; a run that loses them again and again ends, and says so
PATIENCE_S = 20  # until what a killed run started is gone


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nestor", required=True)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--longest", type=float, default=2.0, help="seconds until a kill, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="file for the JSON")
    return parser.parse_args()


def processes_of(session):
    """Processes of a session but its leader, which is the run; zombies are gone already."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[3]) == session and int(entry.name) != session and fields[0] not in "ZX":
            found.append(int(entry.name))
    return found


class Run:
    """A tuning run in a session of its own, and the rows that it has told of."""

    def __init__(self, args, database, values):
        sizes = f"rows={values.randint(1, 48)},width={values.randint(1, 48)}"
        command = [args.nestor, "--json", "tune", values.choice(OPERATORS), "--sizes", sizes, "--target", "host", "--threads", "1", "--trials", "40",
                   "--time", "8", "--seed", str(values.randint(1, 1 << 30)), "--db", database]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        start_new_session=True, env={**os.environ, "NESTOR_DEBUG": "trials"})
        self.rows, self.said = set(), b""
        self._readers = [threading.Thread(target=self._read_errors), threading.Thread(target=self._read_output)]
        self.output = b""
        for reader in self._readers:
            reader.start()

    def _read_errors(self):
        for line in self.process.stderr:
            self.said = (self.said + line)[-500:]
            if found := TOLD.search(line):
                self.rows.add(int(found.group(1)))

    def _read_output(self):
        self.output = self.process.stdout.read()

    def wait(self, seconds):
        self.process.wait(seconds)
        for reader in self._readers:
            reader.join()


def kill_one(run, values, longest):
    """Kills the run or a worker; what was killed, or None where nothing was left to kill."""
    time.sleep(values.uniform(0.02, longest))
    if run.process.poll() is not None:
        return None
    workers = processes_of(run.process.pid)
    if values.random() < 0.5 or not workers:
        run.process.kill()
        return "run"
    try:
        os.kill(values.choice(workers), signal.SIGKILL)
    except ProcessLookupError:
        return None
    return "worker"


def orphans_of(run):
    end = time.monotonic() + PATIENCE_S
    while (left := processes_of(run.process.pid)) and time.monotonic() < end:
        time.sleep(0.02)
    for process in left:
        os.kill(process, signal.SIGKILL)
    return len(left)


def main():
    args = arguments()
    values = random.Random(args.seed)
    killed = {"run": 0, "worker": 0}
    told, orphans, failures, runs = set(), 0, [], 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nestor-kills-") as folder:
        database = f"{folder}/killed.db"
        while sum(killed.values()) < args.kills:
            run = Run(args, database, values)
            runs += 1
            what = kill_one(run, values, args.longest)
            for _ in range(MOST_IN_A_RUN):  # the run goes on without a worker, and may be hit again
                if what != "worker":
                    break
                killed["worker"] += 1
                what = kill_one(run, values, args.longest)
            killed["worker"] += what == "worker"
            killed["run"] += what == "run"
            run.wait(120)
            orphans += orphans_of(run)
            told |= run.rows
            if what != "run" and run.process.returncode not in (0, 3):
                failures.append(run.said.decode(errors="replace"))
        with sqlite3.connect(database) as connection:
            there = {row[0] for row in connection.execute("SELECT id FROM trial")}
            outside = connection.execute("SELECT count(*) FROM trial WHERE status = 'crash'").fetchone()[0]
        found = json.loads(subprocess.run([args.nestor, "--json", "db", "check", "--db", database], capture_output=True, check=False).stdout)
    report = {"kills": killed, "runs": runs, "seconds": round(time.monotonic() - begin), "rows_told": len(told), "rows": len(there),
              "rows_lost": len(told - there), "orphans": orphans, "stored_as_crash": outside, "failed_runs": len(failures),
              "first_failures": failures[:3], "check": found["findings"], "load_average": os.getloadavg()[0]}
    text = json.dumps(report, indent=1)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text + "\n", encoding="utf-8")
    return 0 if not (told - there or orphans or found["findings"] or failures or outside) else 1


if __name__ == "__main__":
    sys.exit(main())
