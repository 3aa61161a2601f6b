#!/usr/bin/env python3
"""Tunes the grid of torch_norms.py: `nestor tune` for one problem after another within a time budget.

Problems that have enough trials are left out, so that the same command goes on where the last one stopped.

    bench/tune_norms.py --nestor build/release/bin/nestor --db tuning.db --ops forward --dtypes bf16 --time 15 \\
        --time-budget 500 --export winners.jsonl
"""

import json
import sys

import norm_grid
import tune_grid


def is_on(device, target):
    return (device["kind"] == "host") == (target == "host")


def known_trials(args):
    """{(op, variant, rows, width): trials that the database has from the target's kind of device}."""
    found = tune_grid.run(args, "--json", "db", "summary")
    if found.returncode != 0:
        return {}
    known = {}
    for row in json.loads(found.stdout):
        sizes, problem = row["problem"]["sizes"], row["problem"]
        if is_on(row["device"], args.target):
            key = problem["op"], problem["variant"], sizes.get("rows"), sizes.get("width")
            known[key] = known.get(key, 0) + row["trials"]
    return known


def problem(cell):
    op, variant, _, rows, width = cell
    return tune_grid.Problem(op, variant, {"rows": rows, "width": width}, f"{op} {variant} {rows}x{width}")


def main():
    parser = tune_grid.arguments(__doc__, norm_grid.add_flags, seconds=15)
    parser.add_argument("--enough", type=int, default=40, help="problems with this many trials are left out")
    args = parser.parse_args()
    known = known_trials(args)

    def left_out(problem):
        trials = known.get((problem.op, problem.variant, problem.sizes["rows"], problem.sizes["width"]), 0)
        return f"has {trials} trials" if trials >= args.enough else None

    return tune_grid.tune_all(args, map(problem, norm_grid.cells(args)), left_out)


if __name__ == "__main__":
    sys.exit(main())
