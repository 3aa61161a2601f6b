#!/usr/bin/env python3
"""Operators that nobody tuned (unseen_operators): each is tuned from its naive definition, compared with double precision, and
raced against torch.compile, FlexAttention where it has a form for it, and torch.compile around cuDNN's attention, on one GPU.

Method: torch_attention.py's, with whole results in place of sampled rows. A database and a note of the tuning are kept for each
operator in --folder, a line of JSON in --out as soon as it is measured: a run that was cut short goes on where it stopped.
--device host tries all of it at tiny sizes.

    bench/torch_unseen.py --folder unseen --only geglu,mla_attention --time 20 --rounds 2 --out unseen.jsonl --md unseen.md
"""

import argparse
import functools
import gc
import json
import math
import pathlib
import statistics
import sys
import time

import torch

from torch_attention import add_measuring_flags, compare, geometric_mean, line_of, provenance, run_cells, shown
from unseen_operators import OPERATORS

import nestor  # where torch_attention found it

PEERS = {"compile": "torch.compile", "autotune": "its max-autotune", "flex": "FlexAttention", "cudnn": "with cuDNN",
         "eager": "eager"}
RACED = ("compile", "autotune", "flex", "eager")  # the best of them is what ours is compared with
GOAL, MEDIAN_GOAL = 0.8, 1.2


def names_of(text):
    """Operators by name, in this order. Raises argparse's error for one that is not there."""
    names = text.split(",") if text else list(OPERATORS)
    for name in names:
        if name not in OPERATORS:
            raise argparse.ArgumentTypeError(f"{name} is no operator: {', '.join(OPERATORS)}")
    return names


def peers_of(text):
    for name in text.split(","):
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"{name} is no peer: {', '.join(PEERS)}")
    return text.split(",")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_measuring_flags(parser)
    parser.add_argument("--only", type=names_of, default="", metavar="NAMES", help="operators, with commas; default: all")
    parser.add_argument("--folder", default="unseen", help="where databases and notes of tuning are kept")
    parser.add_argument("--time", type=float, default=20, help="seconds of tuning an operator")
    parser.add_argument("--peers", type=peers_of, default="compile,autotune,flex,cudnn",
                        help=f"of {', '.join(PEERS)}; autotune is max-autotune-no-cudagraphs")
    parser.add_argument("--time-budget", type=float, default=3600, help="seconds for all; the operator at work is finished")
    parser.add_argument("--out", default="torch_unseen.jsonl", help="results, a line of JSON an operator, appended")
    return parser.parse_args()


def tuned(args, operator, sizes):
    """What an operator's tuning found, now or in an earlier run for as long and for the same."""
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / f"{operator.name}.json"
    asked = {"digest": operator.nest.digest(), "sizes": sizes, "time": args.time, "target": args.device}
    if note.exists() and (found := json.loads(note.read_text())).items() >= asked.items():
        return found
    start = time.monotonic()
    tuning = nestor.tune(operator.nest, sizes, time=args.time, target=args.device, db=str(folder / f"{operator.name}.db"),
                         progress=False)
    info = tuning.info
    found = {**asked, "tune_s": time.monotonic() - start, "trials": info["trials"], "counts": info["counts"],
             "first_correct_s": info["first_correct_s"], "tuned_us": info["best"]["median_ms"] * 1e3,
             "imprecise": info.get("imprecise", 0), "lanes": info.get("products_on_lanes", ""), "steps": tuning.steps}
    note.write_text(json.dumps(found))
    return found


def ours_of(args, operator, sizes, inputs):
    """The best kernel known, and a call of it."""
    kernel = nestor.kernel(operator.nest, sizes, device=args.device, db=str(pathlib.Path(args.folder) / f"{operator.name}.db"))
    outputs = operator.empty(sizes, inputs[0].device)
    by_name = dict(zip((tensor.name for role in ("input", "output") for tensor in operator.tensors(role)), inputs + outputs))
    ordered = [by_name[name] for name in kernel.tensors]

    def call():
        kernel(*ordered, sizes=sizes)
        return tuple(outputs)
    return kernel, call


def peers(args, operator, sizes, inputs):
    """{name: call}, of those that are asked for and have a form of the operator; FlexAttention is not compiled on the host."""
    torch._dynamo.reset()
    plain, compiled = operator.plain_at(sizes), functools.partial(torch.compile, dynamic=False)
    forms = {"compile": lambda: compiled(plain), "autotune": lambda: compiled(plain, mode="max-autotune-no-cudagraphs"),
             "eager": lambda: plain}
    if operator.flex:
        flex = operator.flex_at(sizes, inputs)
        forms["flex"] = lambda: flex if args.device == "host" else compiled(flex)
    if operator.cudnn and args.device != "host":
        forms["cudnn"] = lambda: compiled(operator.cudnn)
    return {name: functools.partial(forms[name](), *inputs) for name in args.peers if name in forms}


def as_tuple(found):
    return found if isinstance(found, tuple) else (found, )


def worst_error(found, exact, _):
    """Of all outputs, the largest norm of the error over that of the exact result; NaN if one is. Equal infinities, as masks give them,
    are no error and no part of the result."""
    errors = []
    for one, other in zip(as_tuple(found), exact):
        one, other = one.double(), other.double()
        differs = ~((one == other) & other.isinf())
        errors.append(((one - other)[differs].norm() / other[differs].norm()).item() if differs.any() else 0.0)
    return next((error for error in errors if math.isnan(error)), max(errors))


def measure(args, name, generator, shuffler):
    """A row of the results; with "failed" where there is no kernel."""
    operator = OPERATORS[name]
    sizes = operator.tiny if args.device == "host" else operator.defaults()
    row = {"operator": name, "dtype": operator.dtype, "sizes": sizes, "time": args.time, "correct": False}
    try:
        row.update(tuned(args, operator, sizes))
        inputs = operator.make(sizes, generator)
        kernel, ours = ours_of(args, operator, sizes, inputs)
    except nestor.Error as error:
        return {**row, "failed": f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"}
    exact = as_tuple(operator.plain_at(sizes)(*(x.double() if x.is_floating_point() else x for x in inputs)))
    calls = {"ours": ours, **peers(args, operator, sizes, inputs)}
    row.update(provenance(kernel), **compare(args, operator.dtype, calls, exact, None, shuffler, error_of=worst_error))
    print(f"{name}: {', '.join(f'{key[:-3]} {value:.1f} us' for key, value in row.items() if key in times(calls))}",
          file=sys.stderr, flush=True)
    del inputs, exact, ours, calls
    gc.collect()
    if args.device != "host":
        torch.cuda.empty_cache()
    return row


def times(calls):
    return {f"{name}_us" for name in calls}


def ratio(row):
    """The best peer's time over ours; 0 where ours is wrong or has no kernel, None without a peer."""
    raced = [row[f"{name}_us"] for name in RACED if f"{name}_us" in row]
    if "ours_us" not in row:
        return 0.0
    return min(raced) / row["ours_us"] if raced else None


def table(rows, about):
    """Markdown."""
    columns = [name for name in PEERS if any(f"{name}_us" in row for row in rows)]
    heads = ["operator", "Nestor", *(PEERS[name] for name in columns), "of the best", "of cuDNN", "tuned s", "trials", "error",
             "remarks"]
    lines = [f"Operators that nobody tuned; {about.get('device')}, PyTorch {about['torch']}, {about['date']}. Times in us.", "",
             line_of(heads), line_of(["---", *["---:"] * (len(heads) - 2), "---"])]
    for row in rows:
        cudnn = row["cudnn_us"] / row["ours_us"] if "cudnn_us" in row and "ours_us" in row else None
        lines.append(line_of([row["operator"], *(shown(row.get(f"{name}_us"), ".1f") for name in ("ours", *columns)),
                            shown(ratio(row), ".2f"), shown(cudnn, ".2f"), shown(row.get("tune_s"), ".0f"),
                            str(row.get("trials", "")), shown(row.get("ours_error"), ".1e"), remarks_of(row)]))
    return "\n".join(lines + summary(rows)) + "\n"


def remarks_of(row):
    """Why there is no kernel, that results are wrong, which products run on plain lanes."""
    if "failed" in row:
        return row["failed"]
    wrong = row["counts"].get("wrong", 0) - row.get("imprecise", 0)
    remarks = {"WRONG": not row["correct"], f"{wrong} candidates wrong": wrong,
               f"products on lanes: {row['lanes']}": row["lanes"]}
    return "; ".join(text for text, holds in remarks.items() if holds)


def summary(rows):
    """The lines behind the table."""
    ratios = [found for found in map(ratio, rows) if found is not None]
    if not ratios:
        return []
    positive = [found for found in ratios if found > 0]
    mean = f", geometric mean of the {len(positive)} with a kernel {geometric_mean(positive):.2f}" if positive else ""
    return ["", f"{sum(found >= GOAL for found in ratios)} of {len(ratios)} at {GOAL} or more of the best peer; median "
                f"{statistics.median(ratios):.2f} (goal {MEDIAN_GOAL}){mean}."]


def earlier(args):
    """Rows of earlier runs in --out, but for operators that had no kernel or a wrong one."""
    path = pathlib.Path(args.out)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    kept = {row["operator"]: row for row in rows if row["correct"]}
    return list(kept.values())


def main():
    args = arguments()
    done = earlier(args)
    left = [name for name in args.only if name not in {row["operator"] for row in done}]
    return run_cells(args, left, str, lambda *rest: measure(args, *rest), table, done)


if __name__ == "__main__":
    sys.exit(main())
