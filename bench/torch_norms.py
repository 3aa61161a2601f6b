#!/usr/bin/env python3
"""Nestor's operators on rows against PyTorch eager, torch.compile and a device copy of the same bytes, on one GPU.

All sides run in one process, in an order shuffled anew for every problem, each measured by triton.testing.do_bench (median,
cold L2). Results are compared with double precision first; a wrong one is not timed. A line of JSON is appended for every
problem as soon as it is measured, so that a run that is cut short keeps what it has.

    bench/torch_norms.py --db tuning.db --ops forward --dtypes bf16 --widths 1024,4096 --compile-widths 4096 \\
        --time-budget 300 --out norms.jsonl --md norms.md
"""

import argparse
import gc
import json
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import torch  # noqa: E402

import nestor  # noqa: E402
import norm_grid  # noqa: E402
from norm_ops import EPS, OPERATORS, errors_of, make_inputs, make_outputs, total_bytes  # noqa: E402
from norm_table import table  # noqa: E402

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
ROUNDING = {"f32": 1e-5, "f16": 1e-3, "bf16": 8e-3}  # relative norm that no right result exceeds by much
COMPILE_RESERVE_S = 40  # a shape may take that long to compile


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    norm_grid.add_flags(parser)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or host to try the program out without a GPU")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--quack", action="store_true", help="measure QuACK's kernels, which must be installed, as well")
    parser.add_argument("--compile-widths", default="all",
                        help="widths at which torch.compile is measured; it takes 10-30 s a shape")
    parser.add_argument("--compile-rows", default="all", help="rows at which torch.compile is measured, as in --rows")
    parser.add_argument("--warmup", type=float, default=25, help="ms of warm-up")
    parser.add_argument("--rep", type=float, default=100, help="ms of measuring")
    parser.add_argument("--rounds", type=int, default=1, help="measurements of each side in turns; their median counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="", help="remark on the circumstances, kept with the results")
    parser.add_argument("--out", default="torch_norms.jsonl", help="results, a line of JSON a problem, appended")
    parser.add_argument("--md", help="table of all of this run's results")
    return parser.parse_args()


def measure_us(args, call):
    if args.device == "host":
        return measure_host_us(args, call)
    from triton.testing import do_bench
    return do_bench(call, warmup=args.warmup, rep=args.rep, return_mode="median") * 1e3


def times_us(args, calls, shuffler):
    """{NAME_us: the median of each call's rounds, all calls in turns in an order shuffled anew for every round}"""
    samples = {name: [] for name in calls}
    for _ in range(args.rounds):
        order = list(calls)
        shuffler.shuffle(order)
        for name in order:
            samples[name].append(measure_us(args, calls[name]))
    return {f"{name}_us": statistics.median(times) for name, times in samples.items()}


def measure_host_us(args, call):
    times, end = [], time.perf_counter() + args.rep * 1e-3
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def circumstances(args):
    on = {"torch": torch.__version__, "note": args.note, "date": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()) + " UTC"}
    if args.device == "host":
        return {**on, "device": "host"}
    import triton
    properties = torch.cuda.get_device_properties(torch_device(args))
    return {**on, "triton": triton.__version__, "cuda": torch.version.cuda, "device": properties.name,
            "units": properties.multi_processor_count}


def torch_device(args):
    return torch.device("cpu" if args.device == "host" else args.device)


class Problem:
    """One cell of the grid: its tensors, and the ways to compute it."""

    def __init__(self, args, library, cell, generator):
        self.op_name, self.variant, self.dtype, self.rows, self.width = cell
        self.op = OPERATORS[self.op_name]
        self.kernel = library.query(self.op_name, self.variant, {"rows": self.rows, "width": self.width}, args.device)
        dtype, device = DTYPES[self.dtype], torch_device(args)
        self.inputs = make_inputs(self.op, self.rows, self.width, dtype, device, generator)
        self.outputs = make_outputs(self.op, self.rows, self.width, dtype, device)
        self.bytes = total_bytes(self.inputs.values(), self.outputs.values())

    def ours(self):
        tensors = {**self.inputs, **self.outputs}
        ordered, scalars, kernel = [tensors[name] for name in self.kernel.tensors], self.op.scalars, self.kernel
        return lambda: kernel(*ordered, **scalars)

    def eager(self):
        ordered, function = list(self.inputs.values()), self.op.eager
        return lambda: function(*ordered)

    def compiled(self):
        torch._dynamo.reset()
        ordered = list(self.inputs.values())
        function = torch.compile(self.op.compiled or self.op.eager, mode="max-autotune-no-cudagraphs")
        return lambda: function(*ordered)

    def quack(self):
        """QuACK's kernel of a norm or softmax; None where it has none. It takes weights of layernorm in f32."""
        from quack.rmsnorm import layernorm_fwd, rmsnorm_fwd
        from quack.softmax import softmax_fwd
        ordered = list(self.inputs.values())
        if self.op_name == "softmax":
            return lambda: softmax_fwd(*ordered)
        if self.op_name == "rmsnorm":
            return lambda: rmsnorm_fwd(*ordered, eps=EPS)[0]
        if self.op_name == "layernorm":
            wide = [ordered[0], *(x.float() for x in ordered[1:])]
            return lambda: layernorm_fwd(*wide, eps=EPS)
        return None

    def copy(self, device):
        source = torch.zeros(self.bytes // 8, dtype=torch.float32, device=device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)


def wants_compile(args, problem, left):
    if args.no_compile or left < COMPILE_RESERVE_S:
        return False
    rows = [norm_grid.rows_of(text, problem.width, problem.dtype) for text in args.compile_rows.split(",") if text != "all"]
    widths = args.compile_widths.split(",")
    return (widths == ["all"] or str(problem.width) in widths) and (not rows or problem.rows in rows)


def measure(args, library, cell, generator, shuffler, left):
    """A row of the results."""
    problem = Problem(args, library, cell, generator)
    kernel = problem.kernel
    row = {"op": problem.op_name, "variant": problem.variant, "dtype": problem.dtype, "rows": problem.rows,
           "width": problem.width, "bytes": problem.bytes, "input_bytes": total_bytes([next(iter(problem.inputs.values()))]),
           "match": kernel.match, "distance": kernel.distance, "measured": kernel.info["measured"]}
    calls, results = {"ours": problem.ours(), "eager": problem.eager()}, {}
    calls["ours"]()
    results["ours"] = [problem.outputs[name] for name in problem.op.outputs]
    results["eager"] = calls["eager"]()
    if wants_compile(args, problem, left):
        start = time.monotonic()
        calls["compile"] = problem.compiled()
        results["compile"] = calls["compile"]()
        row["compile_s"] = time.monotonic() - start
    if args.quack:
        try:
            if call := problem.quack():
                results["quack"] = [call()]
                calls["quack"] = call
        except Exception as error:  # noqa: BLE001  it refuses in ways of its own
            print(f"QuACK: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}", file=sys.stderr)
    if problem.op.drawn:
        results = {"ours": results["ours"]}
    for name, (largest, relative) in errors_of(problem.op, problem.inputs, results).items():
        row[f"{name}_max_error"], row[f"{name}_error"] = largest, relative
    del results
    row["correct"] = row["ours_error"] <= max(4 * row.get("eager_error", 0), ROUNDING[problem.dtype])
    if not row["correct"]:
        del calls["ours"]
    calls["copy"] = problem.copy(torch_device(args))
    row.update(times_us(args, calls, shuffler))
    return row


def write(path, row):
    with open(path, "a") as file:
        file.write(json.dumps(row) + "\n")


def main():
    args = arguments()
    start = time.monotonic()
    try:
        library = nestor.Library(args.db)
    except nestor.Error as error:
        sys.exit(f"torch_norms: {error}")
    shuffler = random.Random(args.seed)
    generator = torch.Generator(torch_device(args)).manual_seed(args.seed)
    about = circumstances(args)
    done, missed = [], []
    for cell in norm_grid.cells(args):
        name = f"{cell[0]} {cell[1]} {cell[3]}x{cell[4]}"
        left = args.time_budget - (time.monotonic() - start)
        if left <= 0:
            missed.append(f"{name}: out of time")
            continue
        try:
            row = {**measure(args, library, cell, generator, shuffler, left), **about}
        except (nestor.Error, RuntimeError) as error:  # no kernel, out of memory, or a peer that refuses
            missed.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:300]}")
            print(missed[-1], file=sys.stderr, flush=True)
            continue
        finally:
            gc.collect()
            if args.device != "host":
                torch.cuda.empty_cache()
        done.append(row)
        write(args.out, row)
        if args.md:
            pathlib.Path(args.md).write_text(table(done, missed, about, markdown=True))
        ours = f"{row['ours_us']:.1f} us" if "ours_us" in row else "WRONG"
        print(f"{name}: {ours}, eager {row['eager_us']:.1f}, copy {row['copy_us']:.1f}  [{time.monotonic() - start:.0f} s]",
              file=sys.stderr, flush=True)
    if args.md:
        pathlib.Path(args.md).write_text(table(done, missed, about, markdown=True))
    print(table(done, missed, about))
    return 0 if done and all(row["correct"] for row in done) else 1


if __name__ == "__main__":
    sys.exit(main())
