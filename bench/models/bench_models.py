#!/usr/bin/env python3
"""Models compiled by Nestor and by torch.compile, side by side: times, errors against float64, time to start.

One process. Each problem: results first (the first sequence against the model in double precision on the same inputs), then
medians of triton.testing.do_bench in rounds whose order is shuffled. Both sides use CUDA graphs (mode="reduce-overhead").

    bench/models/bench_models.py --only 'bert' --db models.db --tune now --budget 60 --out models.jsonl --md models.md
"""

import argparse
import copy
import json
import math
import pathlib
import random
import re
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import model_zoo  # noqa: E402
from torch_attention import geometric_mean, shown  # noqa: E402
from torch_norms import circumstances, write  # noqa: E402

import nestor.torch  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression over the problems' names")
    parser.add_argument("--db", help="tuning database (default: the usual one)")
    parser.add_argument("--tune", default="off", choices=("off", "now"), help="whether kernels that are missing are tuned")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tuning for one problem")
    parser.add_argument("--nest-time", type=float, default=10, help="seconds of tuning for one nest")
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile, on both sides")
    parser.add_argument("--min-gain", type=float, default=1.0, help="how much faster than Inductor's code a region has to be")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rep", type=int, default=100, help="milliseconds of one measurement")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time-budget", type=float, default=3600, help="seconds for all problems")
    parser.add_argument("--out", default="models.jsonl", help="results, a line of JSON a problem, appended")
    parser.add_argument("--md", help="where a table is written")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--note", default="", help="kept with the results")
    return parser.parse_args()


def problems(device):
    """{name: function that makes (model, inputs)}."""
    found = {}
    for batch, length in model_zoo.BERT_CELLS:
        found[f"bert {batch}x{length}"] = lambda b=batch, s=length: model_zoo.bert(b, s, device)
    for batch, length in model_zoo.LLAMA_CELLS:
        found[f"llama {batch}x{length}"] = lambda b=batch, s=length: model_zoo.llama(b, s, device)
    for name, make in model_zoo.VARIANTS.items():
        found[f"variant {name}"] = lambda make=make: make(device=device)
    return found


def first_of(found):
    """The result of the first sequence, in double precision: what errors are measured on."""
    tensor = found if isinstance(found, torch.Tensor) else found[0]
    return tensor[:1].double()


def reference_of(model, inputs):
    """The model in double precision on the first sequence."""
    batch = max(value.shape[0] for value in inputs.values())
    first = {name: value[:1] if value.dim() > 1 and value.shape[0] == batch else value for name, value in inputs.items()}
    wide = {name: value.double() if value.is_floating_point() else value for name, value in first.items()}
    return first_of(copy.deepcopy(model).double()(**wide))


def error_of(found, wanted):
    """The norm of the difference relative to that of the reference, where that is a number; infinite where one side has NaN
    and the other has not."""
    seen = ~wanted.isnan()
    if not torch.equal(seen, ~found.isnan()):
        return math.inf
    return ((found - wanted)[seen].norm() / wanted[seen].norm()).item()


def started(make):
    """A callable and how long it took until its first results were there (compiling, tuning, graphs), in seconds."""
    torch._dynamo.reset()
    torch.cuda.synchronize()
    start = time.monotonic()
    call = make()
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    return call, time.monotonic() - start


def measure(args, make, shuffler):
    from triton.testing import do_bench

    model, inputs = make()
    with torch.inference_mode():
        row, calls = {}, {"eager": lambda: model(**inputs)}
        wanted = reference_of(model, inputs)

        def inductor():
            compiled = torch.compile(model, mode=args.mode)
            return lambda: compiled(**inputs)

        def ours():
            compiled = nestor.torch.optimize(model, (), kwargs=inputs, mode=args.mode, tune=args.tune, budget_s=args.budget,
                                             time_per_nest=args.nest_time, db=args.db, min_gain=args.min_gain)
            row["report"] = str(compiled.report())
            return lambda: compiled(**inputs)

        for name, side in (("compile", inductor), ("ours", ours)):
            calls[name], row[f"{name}_start_s"] = started(side)
        for name, call in calls.items():
            row[f"{name}_error"] = error_of(first_of(call()), wanted)
        del wanted
        samples = {name: [] for name in calls}
        for _ in range(args.rounds):
            for name in shuffler.sample(list(calls), len(calls)):
                samples[name].append(do_bench(calls[name], warmup=25, rep=args.rep, return_mode="median"))
        row.update({f"{name}_ms": statistics.median(found) for name, found in samples.items()})
    row["correct"] = row["ours_error"] <= 1.5 * row["eager_error"] + 1e-6
    return row


def table(rows, about):
    lines = [f"Models in one process; {about.get('device')}, PyTorch {torch.__version__}, {about['date']}.", "",
             "| problem | eager ms | torch.compile ms | Nestor ms | of torch.compile | error | eager's error | start s | torch.compile's |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['problem']} | {shown(row.get('eager_ms'), '.3f')} | {shown(row.get('compile_ms'), '.3f')} | "
                     f"{shown(row.get('ours_ms'), '.3f')} | {shown(ratio_of(row), '.3f')} | {row['ours_error']:.1e} | "
                     f"{row['eager_error']:.1e} | {row['ours_start_s']:.1f} | {row['compile_start_s']:.1f} |")
    for kind in sorted({row["problem"].split()[0] for row in rows}):
        ratios = [ratio_of(row) for row in rows if row["problem"].startswith(kind) and row["correct"]]
        if ratios:
            lines += ["", f"{kind}: {geometric_mean(ratios):.3f} times torch.compile's speed in the geometric mean, "
                          f"{min(ratios):.3f} to {max(ratios):.3f}."]
    return "\n".join(lines) + "\n"


def ratio_of(row):
    return row["compile_ms"] / row["ours_ms"]


def main():
    args = arguments()
    start, done, shuffler, about = time.monotonic(), [], random.Random(args.seed), circumstances(args)
    for name, make in problems(args.device).items():
        if not re.search(args.only, name):
            continue
        if time.monotonic() - start > args.time_budget:
            print(f"{name}: out of time", file=sys.stderr)
            continue
        torch.manual_seed(args.seed)
        try:
            row = {"problem": name, **measure(args, make, shuffler), **about}
        except Exception as error:  # noqa: BLE001  one problem is one row; the rest goes on
            print(f"{name}: {type(error).__name__}: {str(error)[:1000]}", file=sys.stderr, flush=True)
            continue
        finally:
            torch._dynamo.reset()
            torch.cuda.empty_cache()
        done.append(row)
        write(args.out, row)
        print(json.dumps({key: value for key, value in row.items() if key.endswith(("_ms", "_error", "_s", "problem"))}), flush=True)
        if args.md:
            pathlib.Path(args.md).write_text(table(done, about))
    print(table(done, about))
    return 0 if done and all(row["correct"] for row in done) else 1


if __name__ == "__main__":
    sys.exit(main())
