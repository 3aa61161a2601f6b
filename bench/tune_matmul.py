#!/usr/bin/env python3
"""Tunes the products of matmul_grid: `nestor tune` for one after another within a time budget.

    bench/tune_matmul.py --nestor build/release/bin/nestor --db tuning.db --time 10 --export winners.jsonl
"""

import sys

import matmul_grid
import tune_grid


def main():
    args = tune_grid.arguments(__doc__, matmul_grid.add_flags, seconds=10).parse_args()
    return tune_grid.tune_all(args, [tune_grid.Problem(problem.op, problem.variant, problem.sizes, problem.name)
                                     for problem in matmul_grid.problems(args)])


if __name__ == "__main__":
    sys.exit(main())
