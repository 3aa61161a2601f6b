#!/usr/bin/env python3
"""nestor.torch.flex_attention against torch.compile(flex_attention) with the functions of flex_zoo.py, in one process.

Results are compared with float64 first, for the first sequence; FlexAttention gets its block mask for free, as it is made outside
of the timed part. "lengths": 20 different lengths through one compiled function of each side, with how often each compiled and
the seconds that all took.

    bench/models/bench_flex.py --db tuning.db --tune now --nest-time 8 --out flex.jsonl
    bench/models/bench_flex.py --device cpu --tiny --tune now --nest-time 1 --only "causal|lengths"
"""

import os
import sys

import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import flex_zoo
from harness import as_fixed, error_of, flags, no_worse, race, run, timed
from torch_attention import geometric_mean, shown

import nestor.torch


def arguments():
    parser = flags(__doc__)
    parser.add_argument("--shape", default="4,16,4096,64", help="batch, heads, length, head size")
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile, on both sides")
    return parser.parse_args()


def problems(args):
    """{name: (score_mod, mask_mod)}, and "lengths"."""
    batch, heads, length, _ = shape_of(args)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    found = flex_zoo.problems(batch, heads, length, args.device, dtype)
    return {**{f"flex {name}": functions for name, functions in found.items()}, "flex 20 lengths": "lengths"}


def shape_of(args):
    return (2, 2, 64, 16) if args.tiny else tuple(map(int, args.shape.split(",")))


def tensors(args, length=None):
    batch, heads, own, dim = shape_of(args)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    return [torch.randn(batch, heads, length or own, dim, device=args.device, dtype=dtype) for _ in range(3)]


def reference_of(query, key, value, score_mod, mask_mod):
    """The first sequence in double precision, head by head."""
    length = query.shape[2]
    place = torch.arange(length, device=query.device)
    rows, columns, zero = place[:, None], place[None, :], torch.zeros((), dtype=torch.int64, device=query.device)
    heads = []
    for head in range(query.shape[1]):
        number = torch.tensor(head, device=query.device)
        scores = query[0, head].double() @ key[0, head].double().T / query.shape[-1] ** 0.5
        if score_mod is not None:
            scores = score_mod(scores, zero, number, rows, columns)
        if mask_mod is not None:
            scores = scores.masked_fill(~mask_mod(zero, number, rows, columns), -torch.inf)
        heads.append(scores.softmax(-1) @ value[0, head].double())
    return torch.stack(heads)[None]


def measure(args, problem, shuffler):
    if problem == "lengths":
        return lengths(args)
    score_mod, mask_mod = problem
    query, key, value = tensors(args)
    row = {}
    with torch.inference_mode():
        explained = nestor.torch.flex_attention.explain(query, key, value, score_mod, mask_mod)
        if args.tune == "now" and explained.nest is not None and (explained.kernel is None or explained.kernel.match != "exact"):
            _, row["tune_s"] = timed(lambda: nestor.torch.flex_attention.tune(query, key, value, score_mod, mask_mod,
                                                                              time=args.nest_time, progress=False))
            explained = nestor.torch.flex_attention.explain(query, key, value, score_mod, mask_mod)
        row["kernel"], row["reason"] = repr(explained.kernel), explained.reason
        calls = sides(args, query, key, value, score_mod, mask_mod)
        wanted = reference_of(query, key, value, score_mod, mask_mod)
        for side, call in calls.items():
            row[f"{side}_error"] = error_of(call()[:1].double(), wanted)
        del wanted
        row.update({f"{side}_ms": found for side, found in race(calls, args, shuffler).items()})
    row["correct"] = no_worse(row["ours_error"], row["flex_error"])
    return row


def sides(args, query, key, value, score_mod, mask_mod):
    """{side: call}, compiled in the same mode."""
    block = mask_mod and create_block_mask(mask_mod, query.shape[0], None, query.shape[2], key.shape[2], device=query.device)

    def ours(query, key, value):
        return nestor.torch.flex_attention(query, key, value, score_mod, mask_mod)

    def flex(query, key, value):
        return flex_attention(query, key, value, score_mod=score_mod, block_mask=block)

    inputs = as_fixed({"query": query, "key": key, "value": value})
    found = {"ours": torch.compile(ours, mode=args.mode, dynamic=False),
             "flex": torch.compile(flex, mode=args.mode, dynamic=False) if args.device == "cuda" else flex}
    return {side: lambda function=function: function(**inputs) for side, function in found.items()}


def lengths(args):
    """20 lengths through one compiled function of each side."""
    full = shape_of(args)[2]
    several = [full - full // 24 * number for number in range(20)]

    def ours(query, key, value):
        return nestor.torch.flex_attention(query, key, value, None, flex_zoo.causal)

    def theirs(query, key, value, block):
        return flex_attention(query, key, value, block_mask=block)

    row = {}
    with torch.inference_mode():
        inputs = [tensors(args, length) for length in several]
        if args.tune == "now" and nestor.torch.flex_attention.explain(*inputs[0], None, flex_zoo.causal).kernel is None:
            nestor.torch.flex_attention.tune(*inputs[0], None, flex_zoo.causal, time=args.nest_time, progress=False)
        blocks = [create_block_mask(flex_zoo.causal, None, None, length, length, device=args.device) for length in several]
        both = {"ours": (ours, inputs), "flex": (theirs, [(*each, block) for each, block in zip(inputs, blocks)])}
        for side, (function, given) in both.items():
            if side == "flex" and args.device == "cpu":
                continue
            torch._dynamo.reset()
            counter = CompileCounterWithBackend("inductor")
            compiled = torch.compile(function, backend=counter)
            results, row[f"{side}_start_s"] = timed(lambda: [compiled(*each) for each in given])
            row[f"{side}_compiled"] = counter.frame_count
            row[f"{side}_error"] = max(error_of(found[:1].double(), reference_of(*each, None, flex_zoo.causal))
                                       for found, each in zip(results[::6], inputs[::6]))
    row["correct"] = row["ours_compiled"] <= 2 and no_worse(row["ours_error"], row.get("flex_error", 1e-3))
    return row


def table(rows, about):
    lines = [f"FlexAttention's functions; {about['device']}, PyTorch {torch.__version__}, {about['date']}.", "",
             "| problem | FlexAttention ms | Nestor ms | of FlexAttention | error | its error | kernel, or why there is none |",
             "|" + "---|" * 7]
    ratios = []
    for row in rows:
        ratio = row["flex_ms"] / row["ours_ms"] if "ours_ms" in row else None
        ratios += [ratio] if ratio and row["correct"] and row["kernel"] != "None" else []
        what = row.get("reason") or row.get("kernel") or f"compiled {row['ours_compiled']} times in {row['ours_start_s']:.1f} s, " \
            f"FlexAttention {row.get('flex_compiled')} times in {shown(row.get('flex_start_s'), '.1f')} s"
        lines.append(f"| {row['problem']} | {shown(row.get('flex_ms'), '.3f')} | {shown(row.get('ours_ms'), '.3f')} | "
                     f"{shown(ratio, '.2f')} | {row['ours_error']:.1e} | {shown(row.get('flex_error'), '.1e')} | {what[:90]} |")
    if ratios:
        lines += ["", f"{geometric_mean(ratios):.3f} times FlexAttention's speed in the geometric mean of {len(ratios)}, "
                      f"{min(ratios):.3f} to {max(ratios):.3f}."]
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    if args.db:
        os.environ["NESTOR_DB"] = args.db
    return run(args, problems(args), measure, table)


if __name__ == "__main__":
    sys.exit(main())
