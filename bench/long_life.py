#!/usr/bin/env python3
"""A process that asks the runtime for kernels ten million times, at 100,000 distinct sizes, with refreshes: does its memory stay within its bound?

    bench/long_life.py --nestor build/release/bin/nestor --runtime build/release/src/libnestor_runtime.so.0

Nine queries in ten are of 10,000 sizes, the others of all; one in ten thousand comes after a refresh. Through the C API, by ctypes.
"""

import argparse
import ctypes
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ANSWERS, ANSWER_BYTES = 32_768, 512  # what docs/runtime.md promises: remembered answers, and bytes of one
SLACK_BYTES = 16 << 20  # of the allocator, SQLite's cache and this program


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def tuned(nestor, database):
    done = subprocess.run([nestor, "tune", "softmax", "--rows", "64", "--width", "16", "--target", "host", "--threads", "1", "--trials", "3",
                           "--db", database], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)


class Runtime:
    """nestor_query and nestor_refresh for softmax at any number of rows."""

    def __init__(self, path, database):
        self.library = ctypes.CDLL(path)
        self.handle = ctypes.c_void_p()
        if self.library.nestor_open(os.fsencode(database), None, ctypes.byref(self.handle)) != 0:
            sys.exit(f"cannot open {database}")
        self.names = (ctypes.c_char_p * 2)(b"rows", b"width")
        self.values = (ctypes.c_int64 * 2)(0, 16)
        self.kernel = ctypes.c_void_p()
        self.found = ctypes.byref(self.kernel)

    def query(self, rows):
        self.values[0] = rows
        return self.library.nestor_query(self.handle, b"softmax", b"f32", b"host", 2, self.names, self.values, self.found)

    def refresh(self):
        return self.library.nestor_refresh(self.handle)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nestor", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--queries", type=int, default=10_000_000)
    parser.add_argument("--sizes", type=int, default=100_000)
    parser.add_argument("--out", help="file for the JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nestor-life-") as folder:
        tuned(args.nestor, f"{folder}/t.db")
        runtime = Runtime(args.runtime, f"{folder}/t.db")
        values = random.Random(1)
        asked, errors, refreshes, seen = 0, 0, 0, []
        begin = time.monotonic()
        distinct = bytearray(args.sizes + 1)
        for rows in range(1, ANSWERS + 1):  # what may be remembered is
            errors += runtime.query(rows) != 0
        before = resident_bytes()
        while asked < args.queries:
            rows = 1 + int(values.random() * (args.sizes if values.random() < 0.1 else args.sizes // 10))
            if asked % 10_000 == 0:
                errors += runtime.refresh() != 0
                refreshes += 1
            errors += runtime.query(rows) != 0
            distinct[rows] = 1
            asked += 1
            if asked % max(1, args.queries // 10) == 0:
                seen.append(resident_bytes())
    report = {"queries": asked, "sizes": sum(distinct), "refreshes": refreshes, "errors": errors, "seconds": round(time.monotonic() - begin),
              "resident_mib_full_table": round(before / 2**20, 1), "resident_mib": [round(each / 2**20, 1) for each in seen],
              "bound_mib": round((before + ANSWERS * ANSWER_BYTES + SLACK_BYTES) / 2**20, 1),
              "growth_of_the_second_half_kib": (seen[-1] - seen[len(seen) // 2]) >> 10, "load_average": os.getloadavg()[0]}
    text = json.dumps(report, indent=1)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text + "\n", encoding="utf-8")
    return 0 if errors == 0 and max(seen) <= before + ANSWERS * ANSWER_BYTES + SLACK_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
