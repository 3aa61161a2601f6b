#!/usr/bin/env python3
"""Nestor's products of matrices against PyTorch's (cuBLAS), and the one with bias and GELU against torch.compile, on one GPU.

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


def gelu_layer(a, b, bias):
    return F.gelu(a @ b + bias)


def measure(args, library, problem, generator, shuffler):
    kernel = library.query(problem.op, problem.variant, problem.sizes, args.device)
    m, n, k = (problem.sizes[name] for name in "mnk")
    make = lambda *shape: torch.randn(shape, dtype=DTYPES[problem.dtype], device=generator.device, generator=generator)  # noqa: E731
    stored_a = make(k, m) if "at" in problem.order else make(m, k)
    stored_b = (make(n, k) if "bt" in problem.order else make(k, n)) / math.sqrt(k)
    bias = make(n)
    a = stored_a.t() if "at" in problem.order else stored_a
    b = stored_b.t() if "bt" in problem.order else stored_b
    out = torch.full((m, n), math.nan, dtype=a.dtype, device=a.device)
    with_gelu = problem.op == "matmul_bias_gelu"
    operands = (stored_a, stored_b, bias) if with_gelu else (stored_a, stored_b)

    def ours():
        kernel(*operands, out)
        return out

    calls = {"ours": ours, "torch": (lambda: gelu_layer(a, b, bias)) if with_gelu else (lambda: a @ b)}
    if with_gelu:
        compiled = torch.compile(gelu_layer)
        calls["compile"] = lambda: compiled(a, b, bias)
    rows = sampled_rows(m, generator)
    reference = a[rows].double() @ b.double()
    reference = F.gelu(reference + bias.double()) if with_gelu else reference
    return {"op": problem.op, "dtype": problem.variant, "shape": problem.shape, "sizes": problem.sizes, "flop": problem.flop,
            **provenance(kernel), **compare(args, problem.dtype, calls, reference, rows, shuffler)}


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
