#!/usr/bin/env python3
"""Speed of Nestor's host kernels against Halide's autoschedulers, OpenBLAS and memcpy: everything measured in one run, on
one machine, with cold caches. Prints a table and writes JSON with date and CPU to bench/results/.

    bench/host_speed.py --build build/release --time 60 --db /tmp/speed.db [OP ...]
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPERATORS = ["layernorm", "rmsnorm", "softmax", "bias_residual_layernorm", "bias_gelu", "matmul", "matmul_bias_gelu",
             "attention", "jacobi2d", "seidel2d", "matvec"]
SCHEDULERS = ["Adams2019", "Li2018", "Mullapudi2016"]
# What issue 2 asks for: at least this many times the peer's speed.
HALIDE_TARGET = {"attention": 3.0}
OTHER_TARGETS = {("matmul", "openblas"): 0.6, ("layernorm", "memcpy"): 0.8, ("softmax", "memcpy"): 0.6}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", metavar="OP", help="operators, all of them by default")
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="build folder with nestor and bench programs")
    parser.add_argument("--time", type=float, default=60, help="seconds of tuning an operator; 0 only measures what is stored")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--db", default=str(ROOT / "build/host_speed.db"), help="tuning database of the comparison")
    parser.add_argument("--no-halide", action="store_true")
    parser.add_argument("--out", help="result file (default: bench/results/host_<cpu>_<date>.json)")
    return parser.parse_args()


def find_program(build, name):
    for folder in ("bin", "bench", "src/cli", "."):
        path = pathlib.Path(build) / folder / name
        if path.is_file():
            return str(path)
    sys.exit(f"host_speed: no program {name} under {build}; configure with -DNESTOR_BENCH=ON and build")


def run_json(command):
    """Last JSON value a program prints, or None with its error shown."""
    result = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(result.stdout)
    except json.JSONDecodeError:
        print(f"  {' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}", file=sys.stderr)
        return None


def measure_halide(args, operator, sizes):
    command = [find_program(args.build, "halide_peers"), operator + ".f32", f"--threads={args.threads}"]
    command += [f"{name}={value}" for name, value in sizes.items()]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return {line["scheduler"]: line for line in map(json.loads, lines)}


def measure_other(args, operator, sizes):
    """The peer that is not Halide's: its name and milliseconds."""
    program = find_program(args.build, "host_peers")
    if operator == "matmul":
        m, n, k = (sizes[name] for name in matmul_names(sizes))
        return "openblas", run_json([program, "sgemm", str(m), str(n), str(k), str(args.threads)])
    if operator in ("layernorm", "softmax", "rmsnorm"):
        elements = 1
        for value in sizes.values():
            elements *= value
        return "memcpy", run_json([program, "copy", str(4 * elements), str(args.threads)])
    return None, None


def matmul_names(sizes):
    for names in (("rows", "cols", "depth"), ("m", "n", "k"), ("M", "N", "K")):
        if all(name in sizes for name in names):
            return names
    return list(sizes)[:3]


def measure_operator(args, operator):
    nestor = find_program(args.build, "nestor")
    common = ["--db", args.db, "--threads", str(args.threads)]
    entry = {"op": operator}
    if args.time > 0:
        tuned = run_json([nestor, "--json", "tune", operator, "--time", str(args.time), "--trials", "100000", *common])
        if tuned is None:
            return entry
        entry["tune"] = {key: tuned[key] for key in ("trials", "counts", "first_correct_s", "elapsed_s", "baseline_ms")}
    bench = run_json([nestor, "--json", "bench", operator, "--rounds", "3", *common])
    if bench is None:
        return entry
    entry["sizes"] = bench["problem"]["sizes"]
    entry["nestor_ms"] = bench["best"]["median_ms"]
    entry["original_ms"] = bench["original"]["median_ms"]
    if not args.no_halide:
        entry["halide"] = measure_halide(args, operator, entry["sizes"])
    peer, result = measure_other(args, operator, entry["sizes"])
    if result:
        entry[peer] = result
    return entry


def ratios(entry):
    """(peer, peer ms, ratio, target) for everything this operator is compared with."""
    rows = []
    times = {name: line["ms"] for name, line in entry.get("halide", {}).items() if "ms" in line}
    if times:
        best = min(times, key=times.get)
        rows.append((best, times[best], times[best] / entry["nestor_ms"], HALIDE_TARGET.get(entry["op"], 1.0)))
    for peer in ("openblas", "memcpy"):
        if peer in entry:
            ms = entry[peer]["ms"]
            rows.append((peer, ms, ms / entry["nestor_ms"], OTHER_TARGETS.get((entry["op"], peer), 0)))
    return rows


def print_table(entries):
    print(f"{'operator':26}{'original':>12}{'nestor':>12}{'peer':>16}{'peer time':>12}{'ratio':>8}{'wanted':>8}")
    for entry in entries:
        if "nestor_ms" not in entry:
            print(f"{entry['op']:26}{'no result':>12}")
            continue
        for peer, ms, ratio, target in ratios(entry) or [("", 0, 0, 0)]:
            mark = "" if ratio >= target else "  below"
            print(f"{entry['op']:26}{entry['original_ms']:9.2f} ms{entry['nestor_ms']:9.2f} ms{peer:>16}{ms:9.2f} ms"
                  f"{ratio:7.2f}x{target:7.1f}x{mark}")


def cpu_name():
    match = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match.group(1).strip() if match else platform.processor()


def main():
    args = arguments()
    pathlib.Path(args.db).parent.mkdir(parents=True, exist_ok=True)
    entries = []
    for operator in args.operators or OPERATORS:
        print(f"{operator} ...", file=sys.stderr, flush=True)
        entries.append(measure_operator(args, operator))
    print_table(entries)
    date = datetime.datetime.now().strftime("%Y-%m-%d")
    slug = re.sub(r"[^a-z0-9]+", "_", cpu_name().lower()).strip("_")
    out = pathlib.Path(args.out or ROOT / "bench/results" / f"host_{slug}_{date}.json")
    out.write_text(json.dumps({"date": date, "cpu": cpu_name(), "threads": args.threads, "results": entries}, indent=1) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
