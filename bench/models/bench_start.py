#!/usr/bin/env python3
"""Seconds from a model to its first result, each in a process of its own: torch.compile and nestor.torch.optimize of BERT-base.

"nothing": neither records nor Inductor's cache; "records": kernels and races of an earlier run, no cache of Inductor's; "again":
both, as at the second start of a service. torch.compile is measured without and with its cache beside them. Times are those of
compiling and of a first call; starting Python, importing and making the model are left out, and given as "before".

    bench/models/bench_start.py --out start.jsonl
    bench/models/bench_start.py --device cpu --tiny --nest-time 1 --out start.jsonl
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

START = time.monotonic()

import torch  # noqa: E402

import model_zoo  # noqa: E402
from harness import flags, run, synchronize  # noqa: E402
from torch_attention import shown  # noqa: E402

RUNS = (("compile nothing", "compile", "a"), ("ours nothing", "ours", "b"), ("ours records", "ours", "c"), ("compile again", "compile", "a"),
        ("ours again", "ours", "c"))  # name, side, folder of Inductor's cache


def arguments():
    parser = flags(__doc__)
    parser.add_argument("--cell", default="8,128", help="batch and length")
    parser.add_argument("--mode", default="reduce-overhead")
    parser.add_argument("--child", choices=("compile", "ours"), help="what one process measures")
    return parser.parse_args()


def child(args):
    """Prints the seconds of one start, as JSON."""
    import nestor.torch

    batch, length = (2, 24) if args.tiny else map(int, args.cell.split(","))
    dtype = {"dtype": torch.float32, **(model_zoo.TINY_BERT if args.tiny else {})} if args.device == "cpu" else {}
    torch.manual_seed(args.seed)
    model, inputs = model_zoo.bert(batch, length, args.device, **dtype)
    found = {"before_s": time.monotonic() - START}
    with torch.inference_mode():
        start = time.monotonic()
        if args.child == "compile":
            compiled = torch.compile(model, mode=args.mode)
        else:
            compiled = nestor.torch.optimize(model, (), kwargs=inputs, mode=args.mode, db=args.db, budget_s=args.budget,
                                             time_per_nest=args.nest_time)
        for _ in range(3):
            compiled(**inputs)
        synchronize()
        found["start_s"] = time.monotonic() - start
    if args.child == "ours":
        found["regions"] = sum(len(report.regions) for report in compiled.report())
        found["taken"] = sum(len(report.taken) for report in compiled.report())
        found["choosing_s"] = sum(report.seconds for report in compiled.report())
    print(json.dumps(found))


def measure(args, problem, shuffler):
    """All starts in turn."""
    row = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, side, cache in RUNS:
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(pathlib.Path(folder) / cache)}
            command = [sys.executable, __file__, "--child", side, "--device", args.device, "--mode", args.mode, "--cell", args.cell,
                       "--db", str(pathlib.Path(folder) / "tuning.db"), "--budget", str(args.budget), "--nest-time",
                       str(args.nest_time), *(["--tiny"] if args.tiny else [])]
            told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if told.returncode:
                raise RuntimeError(f"{name}: {told.stderr[-800:]}")
            row.update({f"{name.replace(' ', '_')}_{key}": value for key, value in json.loads(told.stdout.splitlines()[-1]).items()})
    row["added_s"] = row["ours_records_start_s"] - row["compile_nothing_start_s"]
    row["added_again_s"] = row["ours_again_start_s"] - row["compile_again_start_s"]
    return row


def table(rows, about):
    lines = [f"Seconds to the first results; {about['device']}, PyTorch {torch.__version__}, {about['date']}.", "",
             "| problem | " + " | ".join(name for name, _, _ in RUNS) + " | added with records | added again |", "|" + "---|" * 8]
    for row in rows:
        times = [shown(row[f"{name.replace(' ', '_')}_start_s"], ".1f") for name, _, _ in RUNS]
        lines.append(f"| {row['problem']} | {' | '.join(times)} | {row['added_s']:.1f} | {row['added_again_s']:.1f} |")
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    if args.child:
        return child(args)
    return run(args, {f"start bert {args.cell.replace(',', 'x')}": None}, measure, table)


if __name__ == "__main__":
    sys.exit(main())
