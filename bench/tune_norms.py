#!/usr/bin/env python3
"""Tunes the grid of torch_norms.py: `nestor tune` for one problem after another within a time budget.

Problems that have enough trials are left out, so that the same command goes on where the last one stopped.

    bench/tune_norms.py --nestor build/release/bin/nestor --db tuning.db --ops forward --dtypes bf16 --time 15 \\
        --time-budget 500 --export winners.jsonl
"""

import argparse
import json
import subprocess
import sys
import time

import norm_grid


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    norm_grid.add_flags(parser)
    parser.add_argument("--nestor", default="nestor", help="the nestor program")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--gpus", help="GPUs that measure at once")
    parser.add_argument("--time", type=float, default=15, help="seconds a problem")
    parser.add_argument("--trials", type=int, default=100000, help="trials a problem at most")
    parser.add_argument("--enough", type=int, default=40, help="problems with this many trials are left out")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--export", help="file for the winners, as `nestor db export --winners` writes them; kept up to date")
    return parser.parse_args()


def run(args, *words, limit=None):
    command = [args.nestor, *words] + (["--db", args.db] if args.db else [])
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"stopped after {limit:.0f} s")


def is_on(device, target):
    return (device["kind"] == "host") == (target == "host")


def known_trials(args):
    """{(op, variant, rows, width): trials that the database has from the target's kind of device}."""
    found = run(args, "--json", "db", "summary")
    if found.returncode != 0:
        return {}
    known = {}
    for row in json.loads(found.stdout):
        sizes, problem = row["problem"]["sizes"], row["problem"]
        if is_on(row["device"], args.target):
            key = problem["op"], problem["variant"], sizes.get("rows"), sizes.get("width")
            known[key] = known.get(key, 0) + row["trials"]
    return known


def tune(args, cell, left):
    op, variant, _, rows, width = cell
    seconds = min(args.time, left)
    words = ["--json", "tune", op, "--variant", variant, "--rows", str(rows), "--width", str(width), "--target", args.target,
             "--time", f"{seconds:.1f}", "--trials", str(args.trials), "--seed", args.seed]
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


def main():
    args = arguments()
    start = time.monotonic()
    known = known_trials(args)
    failed = 0
    for cell in norm_grid.cells(args):
        op, variant, _, rows, width = cell
        name = f"{op} {variant} {rows}x{width}"
        left = args.time_budget - (time.monotonic() - start)
        if left < 2:
            print("out of time")
            break
        trials = known.get((op, variant, rows, width), 0)
        if trials >= args.enough:
            print(f"{name}: has {trials} trials")
            continue
        found = tune(args, cell, left)
        failed += found.returncode != 0
        print(f"{name}: {described(found)}  [{time.monotonic() - start:.0f} s]", flush=True)
        if args.export:
            run(args, "db", "export", "--winners", args.export)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
