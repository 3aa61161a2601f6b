#!/usr/bin/env python3
"""What holds Nestor's attention and cuDNN's: hardware counters of their kernels by ncu (Nsight Compute), clocks left alone.

Cycles, not times, compare kernels at the power limit, where fewer cycles lower the clock; the clock beside them shows it. All launches
of a problem are profiled one after another in one process, each metric in a pass of its own; the median launch counts, the first does not.

    bench/profile_attention.py --db tuning.db --dtypes f16 --head-dims 256 --lengths 4096 --md profile.md
"""

import argparse
import collections
import csv
import io
import os
import pathlib
import statistics
import subprocess
import sys

import attention_grid

LAUNCHES = 3
KERNELS = "regex:nestor_|sdpa|fmha|flash"

# heading: (metric of ncu for sm_90, factor, decimals)
COLUMNS = {
    "Mcycles": ("gpc__cycles_elapsed.max", 1e-6, 3),
    "us": ("gpu__time_duration.sum", 1e-3, 1),
    "tensor pipe %": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "shared reads %": ("l1tex__data_bank_reads.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "shared writes %": ("l1tex__data_bank_writes.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "issue slots %": ("smsp__issue_active.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "special functions %": ("smsp__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "FMA pipe %": ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed", 1, 1),
    "Minstructions": ("smsp__inst_executed.sum", 1e-6, 1),
    "L2 Msectors": ("lts__t_sectors_op_read.sum", 1e-6, 1),
    "DRAM MB": ("dram__bytes_read.sum", 1e-6, 0),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    attention_grid.add_flags(parser)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--csv", help="file for ncu's own output, all of it")
    parser.add_argument("--md", help="table")
    parser.add_argument("--launch", action="store_true", help="launch the kernels of the problems: what ncu is given to run")
    return parser.parse_args()


def launch(args):
    """Both sides of each problem, LAUNCHES times in turns."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
    import nestor
    from torch_norms import DTYPES

    library = nestor.Library(args.db)
    for mask, dtype, head_dim, length in attention_grid.cells(args):
        sizes = attention_grid.sizes_of(length, head_dim)
        kernel = library.query("attention", attention_grid.variant_of(mask, dtype), sizes, args.device)
        shape = sizes["batch"], sizes["heads"], length, head_dim
        q, k, v = (torch.randn(shape, dtype=DTYPES[dtype], device=args.device) for _ in range(3))
        out = torch.empty_like(q)
        for _ in range(LAUNCHES):
            kernel(q, k, v, out, scale=head_dim ** -0.5)
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")
        torch.cuda.synchronize()


def profiled(args):
    """The rows of ncu's table, one a launch."""
    metrics = ",".join(metric for metric, _, _ in COLUMNS.values())
    command = [args.ncu, "--clock-control", "none", "--kernel-name", KERNELS, "--metrics", metrics, "--csv", "--page", "raw",
               "--print-units", "base", sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--launch"]
    found = subprocess.run(command, capture_output=True, text=True)
    if args.csv:
        pathlib.Path(args.csv).write_text(found.stdout)
    start = found.stdout.find('"ID"')
    if start < 0:
        sys.exit(f"{args.ncu} gave no table: {(found.stdout + found.stderr)[-500:]}")
    return [row for row in csv.DictReader(io.StringIO(found.stdout[start:])) if row["ID"]]


def number(text):
    return float(text.replace(",", "")) if text else None


def table(cells, rows):
    """Markdown. Launches come in the order in which launch() made them."""
    lines = ["| problem | side | MHz | " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) + 1)]
    rest = iter(rows)
    for cell in cells:
        sides = collections.defaultdict(list)
        for launch_number in range(2 * LAUNCHES):
            row = next(rest, None)
            if row is not None and launch_number > 1:
                sides["Nestor" if "nestor_" in row["Kernel Name"] else "cuDNN"].append(row)
        for side, launches in sides.items():
            shown = {}
            for heading, (metric, factor, decimals) in COLUMNS.items():
                values = [value for value in (number(row.get(metric, "")) for row in launches) if value is not None]
                shown[heading] = f"{statistics.median(values) * factor:.{decimals}f}" if values else ""
            clock = float(shown["Mcycles"]) / float(shown["us"]) * 1e6 if shown["Mcycles"] and shown["us"] else 0
            lines.append(f"| {attention_grid.name_of(cell)} | {side} | {clock:.0f} | " + " | ".join(shown.values()) + " |")
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    if args.launch:
        launch(args)
        return 0
    text = table(attention_grid.cells(args), profiled(args))
    if args.md:
        pathlib.Path(args.md).write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
