#!/usr/bin/env python3
"""Tunes the grid of torch_attention.py: `nestor tune` for one problem after another within a time budget.

    bench/tune_attention.py --nestor build/release/bin/nestor --db tuning.db --time 20 --export winners.jsonl
"""

import sys

import attention_grid
import tune_grid


def problem(cell):
    mask, dtype, head_dim, length = cell
    return tune_grid.Problem("attention", attention_grid.variant_of(mask, dtype), attention_grid.sizes_of(length, head_dim),
                             attention_grid.name_of(cell))


def main():
    args = tune_grid.arguments(__doc__, attention_grid.add_flags, seconds=20).parse_args()
    return tune_grid.tune_all(args, map(problem, attention_grid.cells(args)))


if __name__ == "__main__":
    sys.exit(main())
