#!/usr/bin/env python3
"""A process that asks the runtime for kernels ten million times, at 100,000 distinct sizes, with refreshes: does its memory stay within its bound?

    bench/long_life.py --nestor build/release/bin/nestor --runtime build/release/src/libnestor_runtime.so.0 --out FILE

Queries go through the C API, by ctypes. Nineteen in twenty ask for one of --hot sizes, the others for all sizes in turn; one in a hundred of
all asks for an operator that has no kernel. Exits with 1 when a query fails or memory exceeds its bound, which is what docs/runtime.md says:
what the process holds before, 32,768 answers of half a KiB, 256 bytes for each kernel and distance that C was handed, and what the allocator
and SQLite's cache may keep. In the second half, when all sizes have been asked for, it may not grow by more than 2 MiB.
"""

import argparse
import ctypes
import json
import os
import pathlib
import platform
import random
import subprocess
import sys
import tempfile
import time

ANSWERS, ANSWER_BYTES = 32_768, 512
HANDED_OUT_BYTES = 256
KEPT_BYTES = 16 << 20  # by the allocator, SQLite's cache and this program
FOUND, NONE = 0, 1     # NESTOR_OK, NESTOR_NOT_FOUND
SECOND_HALF_BYTES = 2 << 20
SAMPLES = 50


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def tune(nestor, database):
    """A database with kernels of softmax for one size, which serve all others."""
    done = subprocess.run([nestor, "tune", "softmax", "--rows", "64", "--width", "16", "--target", "host", "--threads", "1", "--trials", "3",
                           "--db", database], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"long_life.py: nestor tune failed: {done.stderr}")


class Runtime:
    """nestor_query and nestor_refresh, for any number of rows."""

    def __init__(self, path, database):
        self.library = ctypes.CDLL(path)
        self.handle = ctypes.c_void_p()
        if self.library.nestor_open(os.fsencode(database), None, ctypes.byref(self.handle)) != FOUND:
            sys.exit(f"long_life.py: {path} cannot open {database}")
        self.names = (ctypes.c_char_p * 2)(b"rows", b"width")
        self.values = (ctypes.c_int64 * 2)(0, 16)
        self.kernel = ctypes.c_void_p()
        self.found = ctypes.byref(self.kernel)
        self.ask = self.library.nestor_query

    def query(self, rows, operator=b"softmax"):
        self.values[0] = rows
        return self.ask(self.handle, operator, b"f32", b"host", 2, self.names, self.values, self.found)

    def refresh(self):
        return self.library.nestor_refresh(self.handle)

    def close(self):
        self.library.nestor_close(self.handle)


def live(runtime, queries, sizes, hot, refreshes):
    """What was seen: counts, and resident memory over the queries."""
    values = random.Random(1)
    asked, rare, errors, refreshed, seen = 0, 0, 0, 0, []
    every, sample = max(1, queries // max(1, refreshes)), max(1, queries // SAMPLES)
    while asked < queries:
        if values.random() < 0.05:
            rows = 1 + rare % sizes
            rare += 1
        else:
            rows = 1 + int(values.random() * hot)
        if asked % 100 == 99:
            errors += runtime.query(rows, b"no_such_operator") != NONE
        else:
            errors += runtime.query(rows) != FOUND
        asked += 1
        if asked % every == 0:
            errors += runtime.refresh() != 0
            refreshed += 1
        if asked % sample == 0:
            seen.append((asked, resident_bytes()))
    return {"queries": asked, "distinct_sizes": max(min(rare, sizes), hot), "refreshes": refreshed, "errors": errors}, seen


def mib(count):
    return round(count / 2**20, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nestor", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--queries", type=int, default=10_000_000)
    parser.add_argument("--sizes", type=int, default=100_000)
    parser.add_argument("--hot", type=int, default=1_000, help="sizes that most queries ask for")
    parser.add_argument("--refreshes", type=int, default=1_000)
    parser.add_argument("--out", help="file for the JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nestor-life-") as folder:
        tune(args.nestor, f"{folder}/t.db")
        runtime = Runtime(args.runtime, f"{folder}/t.db")
        for operator in (b"softmax", b"no_such_operator"):  # code, connection and kernel are there from now on
            runtime.query(1, operator)
        before, begin, processor = resident_bytes(), time.monotonic(), time.process_time()
        report, seen = live(runtime, args.queries, args.sizes, args.hot, args.refreshes)
        seconds, processor = time.monotonic() - begin, time.process_time() - processor
        runtime.close()
    bound = before + ANSWERS * ANSWER_BYTES + min(args.sizes, report["distinct_sizes"]) * HANDED_OUT_BYTES + KEPT_BYTES
    most, growth = max(each for _, each in seen), seen[-1][1] - seen[len(seen) // 2][1]
    report |= {"seconds": round(seconds, 1), "processor_seconds": round(processor, 1), "queries_per_second": round(args.queries / seconds),
               "resident_mib_before": mib(before), "resident_mib_most": mib(most), "bound_mib": mib(bound),
               "growth_of_the_second_half_kib": growth >> 10, "resident_mib": [[asked, mib(each)] for asked, each in seen],
               "load_average": os.getloadavg()[0], "machine": platform.machine(), "within_bound": most <= bound and growth <= SECOND_HALF_BYTES}
    text = json.dumps(report, indent=1)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text + "\n", encoding="utf-8")
    return 0 if report["errors"] == 0 and report["within_bound"] else 1


if __name__ == "__main__":
    sys.exit(main())
