"""What the tests share: a small tuned database, made with the nestor program, and tensors without numpy.

NESTOR_PROGRAM: the program (tests that need kernels are skipped without it); NESTOR_RUNTIME: the runtime library.
"""

import atexit
import ctypes
import functools
import itertools
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER))

PROGRAM = os.environ.get("NESTOR_PROGRAM")
needs_program = unittest.skipUnless(PROGRAM, "NESTOR_PROGRAM names no nestor program")
WIDTH = 96

try:
    import numpy
except ImportError:
    numpy = None


@functools.lru_cache(maxsize=None)
def folder():
    path = tempfile.mkdtemp(prefix="nestor-python-")
    atexit.register(shutil.rmtree, path, True)
    return path


_numbers = itertools.count()


@functools.lru_cache(maxsize=None)
def tuned(*problems, target="host"):
    """Path of a database with kernels of the target for problems such as "layernorm f32", at 64 rows of WIDTH, or, with sizes,
    "attention causal.f32 batch=2 heads=3 queries=40"."""
    path = f"{folder()}/{next(_numbers)}.db"
    for problem in problems:
        op, variant, *sizes = problem.split()
        flags = [word for size in sizes or ("rows=64", f"width={WIDTH}") for word in ("--" + size).split("=")]
        command = [PROGRAM, "tune", op, "--variant", variant, "--target", target, *flags,
                   "--trials", "1" if target == "host" else "8", "--db", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return path


def matrix(rows, width=WIDTH, seed=None):
    """A ctypes array of f32: random, or zeros without a seed."""
    made = (ctypes.c_float * width * rows)()
    if seed is not None:
        values = random.Random(seed)
        for row in made:
            row[:] = [values.uniform(-1, 1) for _ in range(width)]
    return made


def row(value, width=WIDTH):
    return (ctypes.c_float * width)(*[value] * width)


def normalised(values, eps=1e-5):
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return [(value - mean) / (variance + eps) ** 0.5 for value in values]
