"""What the programs of bench/models share: flags, clocks, errors against float64, rows of results."""

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
from unittest import mock

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from torch_norms import write  # noqa: E402


def flags(description):
    """A parser with the flags that all programs have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression over the problems' names")
    parser.add_argument("--db", help="tuning database (default: the usual one)")
    parser.add_argument("--tune", default="off", choices=("off", "now"), help="whether kernels that are missing are tuned")
    parser.add_argument("--budget", type=float, default=180, help="seconds of tuning for one problem")
    parser.add_argument("--nest-time", type=float, default=10, help="seconds of tuning for one nest")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rep", type=int, default=100, help="milliseconds of one measurement")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time-budget", type=float, default=3600, help="seconds for all problems")
    parser.add_argument("--out", default="models.jsonl", help="results, a line of JSON a problem, appended")
    parser.add_argument("--resume", action="store_true", help="leave out problems that --out has already")
    parser.add_argument("--md", help="where a table is written")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="sizes at which a CPU tries the program out")
    parser.add_argument("--note", default="", help="kept with the results")
    return parser


def circumstances(args):
    """When and on what, for every row."""
    on = {"torch": torch.__version__, "note": args.note, "date": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()) + " UTC"}
    return {**on, "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu"}


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(call):
    """(what a call gives, its seconds), with a GPU's work."""
    synchronize()
    start = time.monotonic()
    found = call()
    synchronize()
    return found, time.monotonic() - start


def started(make):
    """A callable and how long it took until its first results were there (compiling, tuning, graphs), in seconds."""
    torch._dynamo.reset()

    def start():
        call = make()
        for _ in range(3):
            call()
        return call
    return timed(start)


def median_ms(call, args):
    """Milliseconds of a call: do_bench's median on a GPU, with a cold L2 cache."""
    if args.device == "cuda":
        from triton.testing import do_bench
        return do_bench(call, warmup=25, rep=args.rep, return_mode="median")
    return statistics.median(timed(call)[1] for _ in range(3)) * 1e3


def race(calls, args, shuffler):
    """{name: median milliseconds} of calls, measured in an order that is shuffled for every round."""
    samples = {name: [] for name in calls}
    for _ in range(args.rounds):
        for name in shuffler.sample(list(calls), len(calls)):
            samples[name].append(median_ms(calls[name], args))
    return {name: statistics.median(found) for name, found in samples.items()}


def as_fixed(inputs):
    """The inputs as tensors whose addresses compiled code may rely on: CUDA graphs do not copy them then, as they do not copy
    what layers hand to each other."""
    for value in inputs.values():
        if isinstance(value, torch.Tensor):
            torch._dynamo.mark_static_address(value)
    return inputs


def first_of(found):
    """The result of the first sequence, in double precision: what errors are measured on."""
    tensor = found if isinstance(found, torch.Tensor) else found[0]
    return tensor[:1].double()


def _head_by_head(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """scaled_dot_product_attention of one head after the other: float64 scores of all heads may not fit a GPU."""
    group = query.shape[1] // key.shape[1] if enable_gqa else 1
    masks = None if attn_mask is None else attn_mask.expand(*query.shape[:2], *attn_mask.shape[-2:])
    heads = [_attention(query[:, head:head + 1], key[:, head // group][:, None], value[:, head // group][:, None],
                        None if masks is None else masks[:, head:head + 1], dropout_p, is_causal, scale=scale)
             for head in range(query.shape[1])]
    return torch.cat(heads, 1)


_attention = torch.nn.functional.scaled_dot_product_attention


def reference_of(model, inputs):
    """The model in double precision on the first sequence."""
    batch = max(value.shape[0] for value in inputs.values())
    first = {name: value[:1] if value.dim() > 1 and value.shape[0] == batch else value for name, value in inputs.items()}
    wide = {name: value.double() if value.is_floating_point() else value for name, value in first.items()}
    with mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", _head_by_head):
        return first_of(copy.deepcopy(model).double()(**wide))


def error_of(found, wanted):
    """The norm of the difference relative to that of the reference, where that is a number; infinite where one side has NaN
    and the other has not."""
    seen = ~wanted.isnan()
    if not torch.equal(seen, ~found.isnan()):
        return math.inf
    return ((found - wanted)[seen].norm() / wanted[seen].norm()).item()


def no_worse(error, eager):
    """Whether an error is one that rounding explains, beside eager's."""
    return error <= 1.5 * eager + 1e-6


def names_in(path):
    """The problems that a file of results has."""
    if not pathlib.Path(path).exists():
        return set()
    return {json.loads(line)["problem"] for line in pathlib.Path(path).read_text().splitlines() if line.strip()}


def run(args, problems, measure, table):
    """Measures problems {name: what measure(args, problem, shuffler) makes a row of}; writes rows as they come. Returns the exit
    code: 0 where all were measured and are correct."""
    start, done, shuffler, about = time.monotonic(), [], random.Random(args.seed), circumstances(args)
    skipped = names_in(args.out) if args.resume else set()
    failed = False
    for name, problem in problems.items():
        if not re.search(args.only, name) or name in skipped:
            continue
        if time.monotonic() - start > args.time_budget:
            print(f"{name}: out of time", file=sys.stderr)
            continue
        torch.manual_seed(args.seed)
        try:
            row = {"problem": name, **measure(args, problem, shuffler), **about}
        except Exception as error:  # noqa: BLE001  one problem is one row; the rest goes on
            print(f"{name}: {type(error).__name__}: {str(error)[:1000]}", file=sys.stderr, flush=True)
            failed = True
            continue
        finally:
            torch._dynamo.reset()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        done.append(row)
        write(args.out, row)
        print(json.dumps({key: value for key, value in row.items() if key not in ("report", "reports", *about)}), flush=True)
        if args.md:
            pathlib.Path(args.md).write_text(table(done, about))
    print(table(done, about) if done else "nothing was measured", flush=True)
    return 1 if failed or not all(row.get("correct", True) for row in done) else 0
