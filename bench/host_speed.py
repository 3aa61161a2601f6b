#!/usr/bin/env python3
"""Speed of Nestor's host kernels against Halide's autoschedulers, OpenBLAS and memcpy.

Each operator is tuned (memory and the time to the first correct kernel are recorded on the way), then its best kernel runs
in turns with its peers: same random inputs, same threads, cold caches, results compared first (bench/host_race.cc). Writes
a table and JSON, with date, CPU, versions and the machine's load, to bench/results/.

    bench/host_speed.py --build build/release --time 120 --db /tmp/speed.db [OP ...]
    bench/host_speed.py --build build/release --time 0 --db /tmp/speed.db        # only measure what is stored

Operators that are not named keep their results of the same day, if there are any.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEDULERS = ["Adams2019", "Li2018", "Mullapudi2016"]
# What issue 2 asks for: at least this many times the peer's speed. Peers without an entry are shown for information.
HALIDE_TARGET = {"attention": 3.0}
OTHER_TARGETS = {("matmul", "openblas"): 0.6, ("layernorm", "memcpy"): 0.8, ("softmax", "memcpy"): 0.6}
OTHER_PEERS = {"matmul": "openblas", "layernorm": "memcpy", "rmsnorm": "memcpy", "softmax": "memcpy"}
MEMORY_TARGET_GB = 2.0
FIRST_CORRECT_TARGET = ("attention", 2.0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", metavar="OP", help="operators, all of them by default")
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="build folder, configured with -DNESTOR_BENCH=ON")
    parser.add_argument("--nestor", help="another nestor program than the build folder's")
    parser.add_argument("--time", type=float, default=60, help="seconds of tuning an operator; 0: only measure what is stored")
    parser.add_argument("--seconds", type=int, default=20, help="seconds of timed runs an operator")
    parser.add_argument("--rounds", type=int, default=25, help="timed runs of each contender at most")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--db", default=str(ROOT / "build/host_speed.db"), help="tuning database of the comparison")
    parser.add_argument("--peers", help="comma-separated peers instead of all that fit")
    parser.add_argument("--realtime", action="store_true",
                        help="tune and time at real-time priority: for machines that do other work as well (needs root)")
    parser.add_argument("--lock", help="file locked (flock) while something is tuned or measured")
    parser.add_argument("--note", default="", help="remark on the circumstances, kept with the results")
    parser.add_argument("--out", help="result file without its ending (default: bench/results/host-<cpu>-<date>)")
    return parser.parse_args()


def find_program(build, *names):
    for name in names:
        for folder in ("bin", "bench", "src/cli", "."):
            path = pathlib.Path(build) / folder / name
            if path.is_file():
                return str(path)
    sys.exit(f"host_speed: no program {names[0]} under {build}; configure with -DNESTOR_BENCH=ON and build it")


def processes_under(root):
    """The process and its descendants."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found, todo = set(), [root]
    while todo:
        pid = todo.pop()
        found.add(pid)
        todo += [child for child, parent in parents.items() if parent == pid]
    return found


def memory_of(pid):
    """(proportional, resident) kB: the first counts a page shared by n processes as a page/n of each."""
    values = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, value = line.split(":")
        values[key] = int(value.split()[0])
    return values["Pss"], values["Rss"]


class MemoryWatch(threading.Thread):
    """Peak memory of a process and all its descendants together, looked at a few times a second."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.together_kb, self.largest_kb, self.done = pid, 0, 0, threading.Event()

    def run(self):
        while not self.done.wait(0.2):
            together = 0
            for pid in processes_under(self.pid):
                try:
                    proportional, resident = memory_of(pid)
                except (OSError, KeyError, ValueError):
                    continue
                together += proportional
                self.largest_kb = max(self.largest_kb, resident)
            self.together_kb = max(self.together_kb, together)


def locked(args, command):
    return ["flock", args.lock, *command] if args.lock else command


def first_in_line(args):
    """Prefix of commands that nothing else on the machine shall interrupt."""
    return ["chrt", "-f", "1"] if args.realtime else []


def parse(command, text, errors):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        print(f"  {' '.join(command)}: {errors.strip() or text.strip()}", file=sys.stderr)
        return None


def run_json(args, command):
    result = subprocess.run(locked(args, command), capture_output=True, text=True)
    return parse(command, result.stdout, result.stderr)


def tune(args, operator):
    command = [args.nestor, "--json", "tune", operator, "--time", str(args.time), "--trials", "1000000", "--db", args.db,
               "--threads", str(args.threads)]
    command = [*first_in_line(args), *command]
    process = subprocess.Popen(locked(args, command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watch = MemoryWatch(process.pid)
    watch.start()
    output, errors = process.communicate()
    watch.done.set()
    watch.join()
    tuned = parse(command, output, errors)
    if tuned is None:
        return None
    kept = {key: tuned[key] for key in ("trials", "first_correct_s", "elapsed_s", "baseline_ms") if key in tuned}
    return {**kept, "peak_memory_gb": watch.together_kb * 1024 / 1e9, "largest_process_gb": watch.largest_kb * 1024 / 1e9}


def race(args, operator):
    peers = args.peers.split(",") if args.peers else SCHEDULERS + [p for p in [OTHER_PEERS.get(operator)] if p]
    return run_json(args, [find_program(args.build, "host_race"), operator + ".f32", f"--db={args.db}",
                           f"--with={','.join(peers)}", f"--rounds={args.rounds}", f"--seconds={args.seconds}",
                           f"--threads={args.threads}", *(["--realtime"] if args.realtime else [])])


def measure_operator(args, operator):
    entry = {"op": operator, "load_before": os.getloadavg()[0]}
    if args.time > 0:
        entry["tune"] = tune(args, operator)
    measured = race(args, operator)
    if measured:
        entry.update(measured)
    entry["load_after"] = os.getloadavg()[0]
    return entry


def comparisons(entry):
    """For everything this operator is compared with: peer, its median ms, ratio of medians, ratio of minima, target."""
    measured = {c["name"]: c for c in entry.get("contenders", []) if "ms" in c}
    own = measured.get("nestor")
    if own is None:
        return []
    rows = []
    halide = [measured[name] for name in SCHEDULERS if name in measured]
    if halide:
        rows.append((min(halide, key=lambda c: c["ms"]), HALIDE_TARGET.get(entry["op"], 1.0)))
    rows += [(measured[name], OTHER_TARGETS.get((entry["op"], name))) for name in ("openblas", "memcpy") if name in measured]
    return [{"peer": peer["name"], "peer_ms": peer["ms"], "ratio": peer["ms"] / own["ms"],
             "ratio_of_minima": peer["min_ms"] / own["min_ms"], "target": target} for peer, target in rows]


def verdict(value, target, at_least=True):
    if target is None:
        return ""
    return "yes" if (value >= target if at_least else value <= target) else "**no**"


def table(report):
    lines = [f"# Host speed, {report['cpu']}, {report['date']}", "",
             f"{report['threads']} threads; medians of single runs with cold caches, contenders in turns; a "
             "contender whose first results differ from Nestor's by more than twice the tolerance (both round) is left out.", "",
             f"Versions: {', '.join(f'{k} {v}' for k, v in report['versions'].items())}. Load average before and after: "
             f"{report['load'][0]:.1f}, {report['load'][1]:.1f}."]
    if report.get("note"):
        lines += ["", report["note"]]
    if report.get("peak_gflops"):
        lines += ["", f"Most that registers alone reach on these threads: {report['peak_gflops']:.0f} Gflop/s (f32)."]
    lines += ["", "| operator | sizes | Nestor | peer | peer's time | ratio | of minima | wanted | met |",
              "|---|---|---:|---|---:|---:|---:|---:|---|"]
    for entry in report["results"]:
        sizes = " ".join(f"{k}={v}" for k, v in entry.get("sizes", {}).items())
        own = next((c["ms"] for c in entry.get("contenders", []) if c["name"] == "nestor" and "ms" in c), None)
        if own is None:
            lines.append(f"| {entry['op']} | {sizes} | no result | | | | | | |")
        for c in entry["comparisons"]:
            target = "" if c["target"] is None else f"{c['target']:.1f}"
            lines.append(f"| {entry['op']} | {sizes} | {own:.2f} ms | {c['peer']} | {c['peer_ms']:.2f} ms | {c['ratio']:.2f} | "
                         f"{c['ratio_of_minima']:.2f} | {target} | {verdict(c['ratio'], c['target'])} |")
    tuned = [e for e in report["results"] if e.get("tune")]
    if tuned:
        lines += ["", "| tuning run | trials | first correct kernel | peak memory, all processes | under "
                  f"{MEMORY_TARGET_GB:g} GB |", "|---|---:|---:|---:|---|"]
    for entry in tuned:
        t = entry["tune"]
        first = f"{t['first_correct_s']:.2f} s"
        if entry["op"] == FIRST_CORRECT_TARGET[0]:
            first += f" (wanted: {FIRST_CORRECT_TARGET[1]:g} s)"
        lines.append(f"| {entry['op']} | {t['trials']} | {first} | {t['peak_memory_gb']:.2f} GB | "
                     f"{verdict(t['peak_memory_gb'], MEMORY_TARGET_GB, at_least=False)} |")
    return "\n".join(lines) + "\n"


def output_of(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def package_version(pattern):
    lines = output_of(["dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n", pattern]).splitlines()
    installed = [line.split() for line in lines if line.endswith("installed")]
    return installed[0][1] if installed else "unknown"


def versions(args):
    commit = output_of(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    changed = "+" if output_of(["git", "-C", str(ROOT), "status", "--porcelain", "--", "src", "kernels"]) else ""
    return {"nestor": (output_of([args.nestor, "--version"]).removeprefix("nestor ") + f" ({commit}{changed})").strip(),
            "LLVM": package_version("libllvm19"), "Halide": package_version("libhalide1*-0"),
            "OpenBLAS": package_version("libopenblas0*"), "Linux": platform.release()}


def cpu_name():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    match = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.processor()


def all_operators(args):
    listing = run_json(argparse.Namespace(lock=None), [args.nestor, "--json", "show"])
    return [entry["op"] if isinstance(entry, dict) else entry for entry in listing]


def earlier_results(path, report):
    """Entries of the same machine and day, which operators that are not measured now keep."""
    try:
        earlier = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return []
    same = all(earlier.get(key) == report[key] for key in ("date", "cpu", "threads"))
    return earlier["results"] if same else []


def main():
    args = arguments()
    args.nestor = args.nestor or find_program(args.build, "nestor")
    pathlib.Path(args.db).parent.mkdir(parents=True, exist_ok=True)
    date = datetime.datetime.now().strftime("%Y-%m-%d")
    slug = re.sub(r"[^a-z0-9]+", "-", cpu_name().lower()).strip("-")
    out = pathlib.Path(args.out or ROOT / "bench/results" / f"host-{slug}-{date}")
    peak = run_json(args, [*first_in_line(args), find_program(args.build, "host_race"), "--peak", f"--threads={args.threads}"]) or {}
    report = {"date": date, "cpu": cpu_name(), "threads": args.threads, "versions": versions(args), "note": args.note,
              "load": [os.getloadavg()[0], 0.0], "peak_gflops": peak.get("peak_gflops"), "results": []}
    report["results"] = earlier_results(out.with_suffix(".json"), report)
    for operator in args.operators or all_operators(args):
        print(f"{operator} ...", file=sys.stderr, flush=True)
        entry = measure_operator(args, operator)
        entry["comparisons"] = comparisons(entry)
        replaced = [e for e in report["results"] if e["op"] == operator]
        if replaced and "tune" not in entry and "tune" in replaced[0]:
            entry["tune"] = replaced[0]["tune"]
        report["results"] = [e for e in report["results"] if e["op"] != operator] + [entry]
        report["load"][1] = statistics.mean(e["load_after"] for e in report["results"])
        out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        out.with_suffix(".md").write_text(table(report))
    print(table(report))
    print(f"written to {out}.json and {out}.md")


if __name__ == "__main__":
    main()
