#!/usr/bin/env python3
"""nestor.torch.optimize against torch.compile(mode="reduce-overhead") of the same model, in one process, on one GPU.

Models: BERT-base in f16 with a padding mask, a Llama-like decoder at prefill, variants of attention in plain PyTorch
(model_zoo.py). Both sides are compiled in the same mode, eager is measured beside them, and for variants the hand-written
definition in kernels/ and FlexAttention (variant_peers.py). Results are compared with float64 first, for the first sequence;
then every side is measured in an order shuffled for each round by triton.testing.do_bench (median, cold L2). A line of JSON is
appended for every problem as soon as it is done.

    bench/models/bench_models.py --db tuning.db --tune now --only bert --budget 60 --out models.jsonl --md models.md
    bench/models/bench_models.py --device cpu --tiny --tune now --nest-time 1          # tries the program out
"""

import sys

import torch

import model_zoo
import variant_peers
from harness import (as_fixed, error_of, first_of, flags, no_worse, race, reference_of, run, started)
from torch_attention import geometric_mean, shown

import nestor.torch


def arguments():
    parser = flags(__doc__)
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile, on both sides")
    parser.add_argument("--min-gain", type=float, default=1.03, help="how much faster than Inductor's code a region has to be")
    parser.add_argument("--products", action="store_true", default=None,
                        help="tune and race all products with weights, not only those that a kernel may join with more")
    parser.add_argument("--hand-time", type=float, default=0, help="seconds of tuning for a hand-written peer; 0: records alone")
    parser.add_argument("--no-peers", action="store_true", help="leave hand-written definitions and FlexAttention out")
    return parser.parse_args()


def problems(args):
    """{name: function that makes (model, inputs)}."""
    found, device, tiny = {}, args.device, args.tiny
    dtype = {"dtype": torch.float32} if device == "cpu" else {}
    for batch, length in ((2, 24),) if tiny else model_zoo.BERT_CELLS:
        found[f"bert {batch}x{length}"] = lambda b=batch, s=length: model_zoo.bert(b, s, device, **dtype,
                                                                                   **(model_zoo.TINY_BERT if tiny else {}))
    for batch, length in ((2, 24),) if tiny else model_zoo.LLAMA_CELLS:
        found[f"llama {batch}x{length}"] = lambda b=batch, s=length: model_zoo.llama(b, s, device, **dtype,
                                                                                     **(model_zoo.TINY_LLAMA if tiny else {}))
    for name, make in model_zoo.VARIANTS.items():
        found[f"variant {name}"] = lambda make=make: make(device=device, **dtype, **(model_zoo.TINY_VARIANT if tiny else {}))
    return {name: (name, make) for name, make in found.items()}


def measure(args, problem, shuffler):
    """A row: milliseconds, errors and seconds to start of every side."""
    name, make = problem
    model, inputs = make()
    row = {}
    with torch.inference_mode():
        as_fixed(inputs)
        wanted, calls = reference_of(model, inputs), {"eager": lambda: model(**inputs)}
        sides = {"compile": lambda: compiled_by_inductor(args, model, inputs), "ours": lambda: ours(args, model, inputs, row)}
        for side, start in sides.items():
            calls[side], row[f"{side}_start_s"] = started(start)
        if name.startswith("variant") and not args.no_peers:
            calls.update(peers(args, name.split()[1], inputs, row))
        for side, call in calls.items():
            row[f"{side}_error"] = error_of(first_of(call()), wanted)
        row.update({f"{side}_ms": found for side, found in race(calls, args, shuffler).items()})
    row["correct"] = no_worse(row["ours_error"], row["eager_error"])
    return row


def compiled_by_inductor(args, model, inputs):
    compiled = torch.compile(model, mode=args.mode)
    return lambda: compiled(**inputs)


def ours(args, model, inputs, row):
    compiled = nestor.torch.optimize(model, (), kwargs=inputs, mode=args.mode, tune=args.tune, budget_s=args.budget,
                                     time_per_nest=args.nest_time, db=args.db, min_gain=args.min_gain, products=args.products)
    row["report"] = str(compiled.report())
    row["kernels"] = sum(len(report.taken) for report in compiled.report())
    return lambda: compiled(**inputs)


def peers(args, name, inputs, row):
    """{side: call} of what else computes a variant."""
    found, hand = {}, variant_peers.hand_written(name, inputs, args)
    if hand is not None:
        kernel, found["hand"] = hand
        row["hand"] = repr(kernel)
    flex = variant_peers.flex(name, inputs) if args.device == "cuda" else None
    if flex is not None:
        try:
            flex()
            found["flex"] = flex
        except Exception as error:  # noqa: BLE001  a peer that fails is not compared
            print(f"{name}: FlexAttention: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    return found


def ratio_of(row, side="compile"):
    return row[f"{side}_ms"] / row["ours_ms"] if f"{side}_ms" in row else None


def table(rows, about):
    lines = [f"Models in one process; {about['device']}, PyTorch {torch.__version__}, {about['date']}.", "",
             "| problem | eager ms | torch.compile ms | Nestor ms | of torch.compile | hand-written ms | FlexAttention ms | of these "
             "| kernels | error | eager's error | start s | torch.compile's |", "|" + "---|" * 13]
    for row in rows:
        hand, flex = ratio_of(row, "hand"), ratio_of(row, "flex")
        lines.append(f"| {row['problem']} | {shown(row.get('eager_ms'), '.3f')} | {shown(row.get('compile_ms'), '.3f')} | "
                     f"{shown(row.get('ours_ms'), '.3f')} | {shown(ratio_of(row), '.3f')} | {shown(row.get('hand_ms'), '.3f')} | "
                     f"{shown(row.get('flex_ms'), '.3f')} | {' / '.join(shown(each, '.2f') for each in (hand, flex) if each)} | "
                     f"{row['kernels']} | {row['ours_error']:.1e} | {row['eager_error']:.1e} | {row['ours_start_s']:.1f} | "
                     f"{row['compile_start_s']:.1f} |")
    for kind in sorted({row["problem"].split()[0] for row in rows}):
        ratios = [ratio_of(row) for row in rows if row["problem"].startswith(kind) and row["correct"]]
        if ratios:
            lines += ["", f"{kind}: {geometric_mean(ratios):.3f} times torch.compile's speed in the geometric mean, "
                          f"{min(ratios):.3f} to {max(ratios):.3f}."]
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    return run(args, problems(args), measure, table)


if __name__ == "__main__":
    sys.exit(main())
