#!/usr/bin/env python3
"""Tunes the problems of torch_attention.py (--problems grid) or of torch_variants.py (--problems variants): `nestor tune` for one
after another within a time budget.

    bench/tune_attention.py --nestor build/release/bin/nestor --db tuning.db --time 20 --export winners.jsonl
    bench/tune_attention.py --problems variants --only 'softcap|alibi' --dtypes bf16 --nestor build/release/bin/nestor --time 40
"""

import sys

import attention_grid
import attention_variants
import tune_grid


def add_flags(parser):
    parser.add_argument("--problems", choices=("grid", "variants"), default="grid",
                        help="masks, head sizes and lengths choose among the grid's, --only among the variants")
    attention_grid.add_flags(parser)
    attention_variants.add_flags(parser)


def problems(args):
    if args.problems == "variants":
        return [tune_grid.Problem(problem.op, problem.variant, problem.sizes, problem.name)
                for problem in attention_variants.problems(args.only, args.dtypes.split(","))]
    return [tune_grid.Problem("attention", attention_grid.variant_of(cell[0], cell[1]),
                              attention_grid.sizes_of(cell[3], cell[2]), attention_grid.name_of(cell))
            for cell in attention_grid.cells(args)]


def main():
    args = tune_grid.arguments(__doc__, add_flags, seconds=20).parse_args()
    return tune_grid.tune_all(args, problems(args))


if __name__ == "__main__":
    sys.exit(main())
