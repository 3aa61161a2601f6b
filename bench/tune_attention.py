#!/usr/bin/env python3
"""Tunes the grid of torch_attention.py: `nestor tune` for one problem after another within a time budget.

    bench/tune_attention.py --nestor build/release/bin/nestor --db tuning.db --time 20 --export winners.jsonl
"""

import argparse
import sys
import time

import attention_grid
from tune_norms import described, run


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    attention_grid.add_flags(parser)
    parser.add_argument("--nestor", default="nestor", help="the nestor program")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--time", type=float, default=20, help="seconds a problem")
    parser.add_argument("--trials", type=int, default=100000, help="trials a problem at most")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--export", help="file for the winners, as `nestor db export --winners` writes them; kept up to date")
    return parser.parse_args()


def tune(args, cell, left):
    mask, dtype, head_dim, length = cell
    seconds = min(args.time, left)
    words = ["--json", "tune", "attention", "--variant", attention_grid.variant_of(mask, dtype), "--target", args.target,
             "--time", f"{seconds:.1f}", "--trials", str(args.trials), "--seed", args.seed]
    for name, value in attention_grid.sizes_of(length, head_dim).items():
        words += [f"--{name}", str(value)]
    return run(args, *words, limit=seconds + 60)


def main():
    args = arguments()
    start = time.monotonic()
    failed = 0
    for cell in attention_grid.cells(args):
        left = args.time_budget - (time.monotonic() - start)
        if left < 2:
            print("out of time")
            break
        found = tune(args, cell, left)
        failed += found.returncode != 0
        print(f"{attention_grid.name_of(cell)}: {described(found)}  [{time.monotonic() - start:.0f} s]", flush=True)
        if args.export:
            run(args, "db", "export", "--winners", args.export)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
