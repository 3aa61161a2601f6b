"""Tunes problems one after another within a time budget, with the nestor program: what the tune_*.py programs share."""

import argparse
import json
import subprocess
import time
from typing import NamedTuple


class Problem(NamedTuple):
    op: str
    variant: str
    sizes: dict  # of the operator, by name
    name: str  # for people


def arguments(about, add_grid_flags, seconds):
    """A parser with the flags of a grid (add_grid_flags, which has --db and --time-budget) and those of tuning it."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_grid_flags(parser)
    parser.add_argument("--nestor", default="nestor", help="the nestor program")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--gpus", help="GPUs that measure at once")
    parser.add_argument("--time", type=float, default=seconds, help="seconds a problem")
    parser.add_argument("--trials", type=int, default=100000, help="trials a problem at most")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--export", help="file for the winners, as `nestor db export --winners` writes them; kept up to date")
    return parser


def run(args, *words, limit=None):
    command = [args.nestor, *words] + (["--db", args.db] if args.db else [])
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"stopped after {limit:.0f} s")


def tune(args, problem, left):
    seconds = min(args.time, left)
    words = ["--json", "tune", problem.op, "--variant", problem.variant, "--target", args.target, "--time", f"{seconds:.1f}",
             "--trials", str(args.trials), "--seed", args.seed]
    for name, value in problem.sizes.items():
        words += [f"--{name}", str(value)]
    if args.gpus:
        words += ["--gpus", args.gpus]
    return run(args, *words, limit=seconds + 60)


def described(found):
    try:
        result = json.loads(found.stdout)
    except json.JSONDecodeError:
        return (found.stderr or found.stdout).strip()[-300:] or f"exit code {found.returncode}"
    if "error" in result:
        return result["error"]["message"]
    best = result["best"]
    counts = ", ".join(f"{count} {status}" for status, count in result["counts"].items())
    if best is None:
        return f"no correct kernel ({counts})"
    return f"{best['median_ms'] * 1e3:.1f} us after {result['elapsed_s']:.1f} s ({counts})"


def tune_all(args, problems, left_out=lambda problem: None):
    """The exit status. `left_out` says why a problem is not tuned, or nothing."""
    start = time.monotonic()
    failed = 0
    for problem in problems:
        left = args.time_budget - (time.monotonic() - start)
        if left < 2:
            print("out of time")
            break
        reason = left_out(problem)
        if reason:
            print(f"{problem.name}: {reason}")
            continue
        found = tune(args, problem, left)
        failed += found.returncode != 0
        print(f"{problem.name}: {described(found)}  [{time.monotonic() - start:.0f} s]", flush=True)
        if args.export:
            run(args, "db", "export", "--winners", args.export)
    return 1 if failed else 0
