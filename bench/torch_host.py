#!/usr/bin/env python3
"""Nestor's kernels of the host against PyTorch's own CPU kernels, in one process with PyTorch's default threads.

Each problem is tuned first (`--tune SECONDS`, by the nestor program), compared with double precision, and then timed in turns with
PyTorch: the median of `--rounds` calls each, after as many to warm up. `measured` is what `nestor tune` stored. Writes JSON lines and
a table.

    bench/torch_host.py --nestor build/release/bin/nestor --db host.db --tune 15 --out host_torch.jsonl --md host_torch.md
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import time

import nestor
import torch
import torch.nn.functional as F


def problems():
    """(name, operator, variant, sizes, inputs, scalars, PyTorch's call of the inputs)"""
    def attention(variant, causal):
        q, k, v = (torch.randn(2, 8, 1024, 64) for _ in range(3))
        sizes = {"batch": 2, "heads": 8, "queries": 1024, "keys": 1024, "head_dim": 64}
        return ("attention", variant, sizes, (q, k, v), {"scale": 0.125},
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal))

    rows = {"rows": 4096, "width": 1024}
    x, weight, bias = torch.randn(4096, 1024), torch.rand(1024) + 0.5, torch.randn(1024)
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    yield "matmul 1024 x 1024 x 1024", "matmul", "f32", {"m": 1024, "n": 1024, "k": 1024}, (a, b), {}, torch.matmul
    yield ("layernorm 4096 x 1024", "layernorm", "f32", rows, (x, weight, bias), {},
           lambda x, w, b: F.layer_norm(x, (1024,), w, b))
    yield "softmax 4096 x 1024", "softmax", "f32", rows, (x,), {}, lambda x: F.softmax(x, -1)
    yield "attention 2 x 8 x 1024 x 64", *attention("f32", False)
    yield "attention, causal", *attention("causal.f32", True)


def tune(args, op, variant, sizes):
    words = [args.nestor, "tune", op, "--variant", variant, "--target", "host", "--time", str(args.tune), "--db", args.db]
    for name, value in sizes.items():
        words += [f"--{name}", str(value)]
    subprocess.run(words, check=True, capture_output=True)


def medians_ms(args, calls):
    samples = {name: [] for name in calls}
    for turn in range(2 * args.rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn >= args.rounds:
                samples[name].append((time.perf_counter() - start) * 1e3)
    return {f"{name}_ms": statistics.median(times) for name, times in samples.items()}


def measure(args, library, name, op, variant, sizes, inputs, scalars, reference):
    kernel = library.query(op, variant, sizes, "host")
    exact = reference(*(x.double() for x in inputs))
    out = torch.full_like(exact, float("nan"), dtype=torch.float32)
    kernel(*inputs, out, **scalars)
    error = ((out - exact).norm() / exact.norm()).item()
    if not error < 1e-5:
        raise RuntimeError(f"{name}: the result is off by {error:.1e}")
    row = {"problem": name, "error": error, "measured_ms": kernel.info["measured"]["median_ms"],
           **medians_ms(args, {"ours": lambda: kernel(*inputs, out, **scalars), "torch": lambda: reference(*inputs)})}
    return {**row, "ratio": row["torch_ms"] / row["ours_ms"], "of_measured": row["measured_ms"] / row["ours_ms"]}


def table(rows, about):
    lines = [f"Kernels of the host in a PyTorch process: {about}.", "",
             "| problem | Nestor ms | PyTorch ms | of PyTorch | `nestor tune` measured ms | error |", "|---|---:|---:|---:|---:|---:|"]
    lines += [f"| {row['problem']} | {row['ours_ms']:.2f} | {row['torch_ms']:.2f} | {row['ratio']:.2f} | "
              f"{row['measured_ms']:.2f} | {row['error']:.1e} |" for row in rows]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nestor", default="nestor", help="the nestor program")
    parser.add_argument("--db", required=True, help="tuning database")
    parser.add_argument("--tune", type=float, default=0, help="seconds a problem; 0: what the database has")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", help="results as JSON lines")
    parser.add_argument("--md", help="results as a table")
    args = parser.parse_args()
    torch.manual_seed(0)
    listed = list(problems())
    for _, op, variant, sizes, *_ in listed if args.tune else []:
        tune(args, op, variant, sizes)
    rows = []
    with nestor.Library(args.db) as library, torch.inference_mode():
        for problem in listed:
            rows.append(measure(args, library, *problem))
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    about = f"{cpu}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}, {datetime.date.today()}"
    if args.out:
        pathlib.Path(args.out).write_text("".join(json.dumps({**row, "about": about}) + "\n" for row in rows))
    if args.md:
        pathlib.Path(args.md).write_text(table(rows, about))
    print(table(rows, about))


if __name__ == "__main__":
    sys.exit(main())
