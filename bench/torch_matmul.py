#!/usr/bin/env python3
"""Nestor's products of matrices against PyTorch's (cuBLAS), and layers around them against torch.compile, on one GPU.

All sides run in one process, in an order shuffled anew for every problem and round, each measured by triton.testing.do_bench
(median, cold L2). Sampled rows are compared with double precision first; a wrong result is not timed. A line of JSON is appended
for every problem as soon as it is measured.

    bench/torch_matmul.py --db tuning.db --dtypes f16 --rounds 3 --out matmul.jsonl --md matmul.md
"""

import argparse
import math
import sys

import torch
import torch.nn.functional as F

import matmul_grid
from torch_attention import add_measuring_flags, compare, provenance, ratio_summary, run, sampled_rows, shown, tflops
from torch_norms import DTYPES


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    matmul_grid.add_flags(parser)
    add_measuring_flags(parser)
    parser.add_argument("--out", default="torch_matmul.jsonl", help="results, a line of JSON a problem, appended")
    return parser.parse_args()


# What stands around the product, of the operands in our order: (a, b, more).
LAYERS = {
    "matmul": lambda a, b: a @ b,
    "matmul_bias_gelu": lambda a, b, bias: F.gelu(a @ b + bias),
    "matmul_bias_residual": lambda a, b, bias, residual: a @ b + bias + residual,
    "swiglu": lambda a, gate, up: F.silu(a @ gate) * (a @ up),
}


def measure(args, library, problem, generator, shuffler):
    kernel = library.query(problem.op, problem.variant, problem.sizes, args.device)
    m, n, k = (problem.sizes[name] for name in "mnk")
    order = problem.order.split(".")
    make = lambda *shape: torch.randn(shape, dtype=DTYPES[problem.dtype], device=generator.device, generator=generator)  # noqa: E731
    weights = lambda: (make(n, k) if "bt" in order else make(k, n)) / math.sqrt(k)  # noqa: E731
    stored = [make(k, m) if "at" in order else make(m, k), weights()]
    more = {"matmul": lambda: [], "matmul_bias_gelu": lambda: [make(n)], "matmul_bias_residual": lambda: [make(n), make(m, n)],
            "swiglu": lambda: [weights()]}[problem.op]()
    seen = [stored[0].t() if "at" in order else stored[0], stored[1].t() if "bt" in order else stored[1]]
    seen += [w.t() if problem.op == "swiglu" and "bt" in order else w for w in more]
    out = torch.full((m, n), math.nan, dtype=seen[0].dtype, device=seen[0].device)
    layer = LAYERS[problem.op]

    def ours():
        kernel(*stored, *more, out)
        return out

    calls = {"ours": ours, "torch": lambda: layer(*seen)}
    if problem.op != "matmul":
        compiled = torch.compile(layer)
        calls["compile"] = lambda: compiled(*seen)
    rows = sampled_rows(m, generator)
    double = [x.double() for x in seen]
    double[0] = double[0][rows]
    if problem.op == "matmul_bias_residual":
        double[3] = double[3][rows]
    return {"op": problem.op, "dtype": problem.variant, "shape": problem.shape, "sizes": problem.sizes, "flop": problem.flop,
            **provenance(kernel), **compare(args, problem.dtype, calls, layer(*double), rows, shuffler)}


def table(rows, about):
    """Markdown."""
    lines = [f"Products of matrices; {about.get('device')}, {about['date']}.", "",
             "| operator | type | m x n x k | Nestor TFLOP/s | PyTorch | torch.compile | of the better | error | PyTorch's error |",
             "|---|---|---|---:|---:|---:|---:|---:|---:|"]
    ratios = []
    for row in rows:
        rates = {name: tflops(row, name) for name in ("ours", "torch", "compile")}
        best = max(rate for rate in (rates["torch"], rates["compile"], 0) if rate is not None)
        ratio = rates["ours"] / best if rates["ours"] and best else None
        ratios += [ratio] if ratio else []
        lines.append(f"| {row['op']} | {row['dtype']} | {' x '.join(str(row['sizes'][name]) for name in 'mnk')} | "
                     f"{shown(rates['ours'], '.0f')} | {shown(rates['torch'], '.0f')} | {shown(rates['compile'], '.0f')} | "
                     f"{shown(ratio, '.3f')} | {row['ours_error']:.2e} | {shown(row.get('torch_error'), '.2e')} |")
    if ratios:
        lines += ["", f"{ratio_summary(ratios, 'the better peer')}."]
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    return run(args, "torch_matmul", matmul_grid.problems(args), lambda problem: problem.name, measure, table)


if __name__ == "__main__":
    sys.exit(main())
