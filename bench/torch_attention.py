#!/usr/bin/env python3
"""Nestor's attention against PyTorch's scaled_dot_product_attention through cuDNN and FlashAttention-2, on one GPU.

All sides run in one process, in an order shuffled anew for every problem and round, each measured by triton.testing.do_bench
(median, cold L2). Sampled rows are compared with double precision first; a wrong result is not timed. A line of JSON is appended
for every problem as soon as it is measured.

    bench/torch_attention.py --db tuning.db --dtypes f16 --head-dims 64,128 --rounds 3 --out attention.jsonl --md attention.md
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import attention_grid  # noqa: E402
import nestor  # noqa: E402
from torch_norms import DTYPES, circumstances, times_us, write  # noqa: E402

PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}
SAMPLED_ROWS = 64


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    attention_grid.add_flags(parser)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--warmup", type=float, default=40, help="ms of warm-up")
    parser.add_argument("--rep", type=float, default=150, help="ms of measuring")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side in turns; their median counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="", help="remark on the circumstances, kept with the results")
    parser.add_argument("--out", default="torch_attention.jsonl", help="results, a line of JSON a problem, appended")
    parser.add_argument("--md", help="table of this run's results")
    return parser.parse_args()


def sampled_reference(q, k, v, causal, scale, rows):
    """Rows of the last head of the last batch, in double."""
    queries, keys = q[-1, -1].double(), k[-1, -1].double()
    scores = queries[rows] @ keys.T * scale
    if causal:
        scores.masked_fill_(torch.arange(keys.shape[0], device=q.device)[None] > rows[:, None], -math.inf)
    return torch.softmax(scores, -1) @ v[-1, -1].double()


def relative_error(result, reference, rows):
    difference = result[-1, -1][rows].double() - reference
    return (difference.norm() / reference.norm()).item()


def measure(args, library, cell, generator, shuffler):
    mask, dtype, head_dim, length = cell
    sizes, causal, scale = attention_grid.sizes_of(length, head_dim), mask == "causal", 1 / math.sqrt(head_dim)
    kernel = library.query("attention", attention_grid.variant_of(mask, dtype), sizes, args.device)
    shape = sizes["batch"], sizes["heads"], length, head_dim
    q, k, v = (torch.randn(shape, dtype=DTYPES[dtype], device=args.device, generator=generator) for _ in range(3))
    out = torch.full_like(q, math.nan)

    def ours():
        kernel(q, k, v, out, scale=scale)
        return out

    def peer(backend):
        def call():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return call

    calls = {"ours": ours, **{name: peer(PEERS[name]) for name in args.peers.split(",")}}
    rows = torch.randperm(length, device=args.device, generator=generator)[:SAMPLED_ROWS]
    reference = sampled_reference(q, k, v, causal, scale, rows)
    row = {"mask": mask, "dtype": dtype, "head_dim": head_dim, "length": length, "flop": attention_grid.flop(cell),
           "match": kernel.match, "distance": kernel.distance, "measured": kernel.info["measured"]}
    for name in list(calls):
        try:
            row[f"{name}_error"] = relative_error(calls[name](), reference, rows)
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
            del calls[name]
    row["correct"] = row["ours_error"] <= 2e-2 if dtype == "bf16" else row["ours_error"] <= 3e-3
    if not row["correct"]:
        del calls["ours"]
    row.update(times_us(args, calls, shuffler))
    return row


def tflops(row, name):
    return row["flop"] / row[f"{name}_us"] / 1e6 if f"{name}_us" in row else None


def geometric_mean(ratios):
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def table(rows, about):
    """Markdown."""
    lines = [f"Attention, {attention_grid.TOKENS} tokens of {attention_grid.MODEL} elements; {about.get('device')}, {about['date']}.",
             "", "| mask | type | D | S | Nestor TFLOP/s | cuDNN | FlashAttention-2 | of cuDNN | error | cuDNN's error |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    shown = lambda value, form: "" if value is None else format(value, form)  # noqa: E731
    ratios = []
    for row in rows:
        rates = {name: tflops(row, name) for name in ("ours", *PEERS)}
        ratio = rates["ours"] / rates["cudnn"] if rates["ours"] and rates["cudnn"] else None
        ratios += [ratio] if ratio else []
        lines.append(f"| {row['mask']} | {row['dtype']} | {row['head_dim']} | {row['length']} | {shown(rates['ours'], '.0f')} | "
                     f"{shown(rates['cudnn'], '.0f')} | {shown(rates['flash2'], '.0f')} | {shown(ratio, '.3f')} | "
                     f"{row['ours_error']:.2e} | {shown(row.get('cudnn_error'), '.2e')} |")
    if ratios:
        lines += ["", f"{len(ratios)} problems: {geometric_mean(ratios):.3f} times cuDNN's speed in the geometric mean, "
                      f"{min(ratios):.3f} to {max(ratios):.3f}; {sum(ratio >= 1 for ratio in ratios)} at least as fast."]
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    start = time.monotonic()
    try:
        library = nestor.Library(args.db)
    except nestor.Error as error:
        sys.exit(f"torch_attention: {error}")
    generator = torch.Generator(args.device).manual_seed(args.seed)
    about, shuffler, done = circumstances(args), random.Random(args.seed), []
    for cell in attention_grid.cells(args):
        name = attention_grid.name_of(cell)
        if time.monotonic() - start > args.time_budget:
            print(f"{name}: out of time", file=sys.stderr)
            continue
        try:
            row = {**measure(args, library, cell, generator, shuffler), **about}
        except (nestor.Error, RuntimeError) as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:300]}", file=sys.stderr, flush=True)
            continue
        done.append(row)
        write(args.out, row)
        if args.md:
            pathlib.Path(args.md).write_text(table(done, about))
    print(table(done, about))
    return 0 if done and all(row["correct"] for row in done) else 1


if __name__ == "__main__":
    sys.exit(main())
