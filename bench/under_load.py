#!/usr/bin/env python3
"""Many processes on one tuning database: tuning, importing, querying for a time; then every row must be there.

    bench/under_load.py --nestor build/release/bin/nestor --runtime build/release/src/libnestor_runtime.so.0 --seconds 600

3 processes tune small problems, 4 import records of 16 other machines that nobody has seen, 8 query in this process's library (50 times a second each, one
query in ten after a refresh), 1 runs `nestor query`. Prints JSON: errors, rows lost, and how long queries took.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
TUNERS, IMPORTERS, QUERIERS, PROGRAMS = 3, 4, 8, 1
OPERATORS = ("softmax", "rmsnorm", "layernorm")
LINES = 20  # of an import
MACHINES = 16  # whose records are imported


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nestor", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two queries of a process")
    parser.add_argument("--out", help="file for the JSON")
    return parser.parse_args()


class Told:
    """What a process has to say at its end."""

    def __init__(self):
        self.count, self.rows, self.errors, self.times = 0, 0, [], []

    def fail(self, done):
        self.errors.append((done.stderr or done.stdout or "").strip()[-300:] or f"exit code {done.returncode}")


def nestor(args, *words):
    return subprocess.run([args.nestor, *map(str, words)], capture_output=True, text=True, check=False)


def tune(args, number, database, until, told):
    values = random.Random(number)
    while time.time() < until:
        sizes = f"rows={values.randint(1, 64)},width={values.randint(1, 64)}"
        done = nestor(args, "--json", "tune", values.choice(OPERATORS), "--sizes", sizes, "--target", "host", "--threads", 1, "--trials", 2,
                      "--time", 20, "--db", database)
        told.count += 1
        if done.returncode in (0, 3):
            told.rows += json.loads(done.stdout)["trials"]
        else:
            told.fail(done)


def fresh_line(line, serial):
    """The record as if another machine had made it at another time; signed by nobody."""
    record = json.loads(line)
    record.pop("signature", None)
    record["device"]["name"] = f"machine {serial % MACHINES}"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(serial))
    return json.dumps({**record, "created": stamp})


def import_records(args, number, database, until, told):
    lines = pathlib.Path(f"{database}.lines").read_text(encoding="utf-8").splitlines()
    path = pathlib.Path(f"{database}.{number}.jsonl")
    serial = number * 100_000_000
    while time.time() < until:
        made = []
        for _ in range(LINES):
            serial += 1
            made.append(fresh_line(lines[serial % len(lines)], serial))
        path.write_text("".join(f"{line}\n" for line in made), encoding="utf-8")
        done = nestor(args, "--json", "db", "import", path, "--db", database)
        told.count += 1
        if done.returncode == 0:
            told.rows += json.loads(done.stdout)["added"]
        else:
            told.fail(done)
        time.sleep(0.2)


def query(args, number, database, until, told):
    os.environ["NESTOR_RUNTIME"] = args.runtime
    import nestor as package

    values = random.Random(number)
    library = package.Library(database, threads=1)  # the device that is tuned for
    while time.time() < until:
        if values.random() < 0.1:
            library.refresh()
        sizes = {"rows": values.randint(1, 64), "width": values.choice([8, 16, 24, 32])}
        begin = time.perf_counter()
        try:
            library.query(values.choice(OPERATORS), "f32", sizes, device="host")
        except package.NotFound:
            pass
        except package.Error as error:
            told.errors.append(str(error))
        told.times.append(time.perf_counter() - begin)
        told.count += 1
        time.sleep(args.pause)


def run_query(args, number, database, until, told):
    values = random.Random(number)
    while time.time() < until:
        begin = time.perf_counter()
        done = nestor(args, "query", values.choice(OPERATORS), "--rows", values.randint(1, 64), "--width", values.choice([8, 16, 32]),
                      "--threads", 1, "--db", database)
        told.times.append(time.perf_counter() - begin)
        told.count += 1
        if done.returncode not in (0, 3):
            told.fail(done)
        time.sleep(0.2)


def begin(work, args, number, database, until, results):
    told = Told()
    try:
        work(args, number, database, until, told)
    except Exception as error:  # an error of this program counts as one
        told.errors.append(repr(error))
    results.put((work.__name__, told))


def prepare(args, database):
    """A few records of each operator, so that queries find something."""
    for number, op in enumerate(OPERATORS):
        for width in (8, 16, 24, 32):
            done = nestor(args, "tune", op, "--rows", 16, "--width", width, "--target", "host", "--threads", 1, "--trials", 2, "--seed",
                          number, "--db", database)
            if done.returncode:
                sys.exit(done.stderr)
    lines = nestor(args, "db", "export", "--db", database).stdout
    pathlib.Path(f"{database}.lines").write_text(lines, encoding="utf-8")
    return len(lines.splitlines())


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, int(part * len(times)))] * 1e3 if times else None


def summary(of, before, after, found, seconds, loads):
    expected = before + sum(told.rows for told in of["tune"] + of["import_records"])
    times = [each for told in of["query"] for each in told.times]
    programs = [each for told in of["run_query"] for each in told.times]
    errors = [error for group in of.values() for told in group for error in told.errors]
    return {
        "processes": sum(map(len, of.values())), "seconds": seconds, "load_average": loads,
        "runs": {name: sum(told.count for told in group) for name, group in of.items()},
        "errors": len(errors), "first_errors": errors[:5], "rows": after, "rows_lost": expected - after, "check": found,
        "query_ms": {"p50": percentile(times, .5), "p99": percentile(times, .99), "p99.9": percentile(times, .999),
                     "max": percentile(times, 1)},
        "program_query_ms": {"p50": percentile(programs, .5), "p99": percentile(programs, .99)}
    }


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="nestor-load-") as folder:
        database = f"{folder}/shared.db"
        before = prepare(args, database)
        results, until = multiprocessing.Queue(), time.time() + args.seconds
        works = [tune] * TUNERS + [import_records] * IMPORTERS + [query] * QUERIERS + [run_query] * PROGRAMS
        processes = [multiprocessing.Process(target=begin, args=(work, args, number, database, until, results))
                     for number, work in enumerate(works)]
        for process in processes:
            process.start()
        loads = []
        of = {}
        for _ in works:
            name, told = results.get()
            of.setdefault(name, []).append(told)
            loads.append(os.getloadavg()[0])
        for process in processes:
            process.join()
        after = len(nestor(args, "db", "export", "--db", database).stdout.splitlines())
        found = json.loads(nestor(args, "--json", "db", "check", "--db", database).stdout)["findings"]
        report = summary(of, before, after, found, args.seconds, {"first_end": loads[0], "last_end": loads[-1]})
    text = json.dumps(report, indent=1)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text + "\n", encoding="utf-8")
    return 0 if report["errors"] == 0 and report["rows_lost"] == 0 and not found else 1


if __name__ == "__main__":
    sys.exit(main())
