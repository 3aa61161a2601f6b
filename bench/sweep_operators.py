#!/usr/bin/env python3
"""All operators that nobody tuned (unseen_operators) at sizes that nobody would choose: few trials of each, many at once, and every
verdict that no proved candidate may have is a finding: wrong results, crashes, errors of Nestor's own.

    bench/sweep_operators.py --target cuda --jobs 16 --budget 260 --out sweep.jsonl

Sizes are ragged (70, 97, 45, 131), then such that tiles divide (64, 128, 192, 96); where a definition does not admit the ragged
ones, those of its tests. Prints the findings, and how many trials ended how. Times are of no use: tunings run side by side. Ends
with 5 if there was a finding. --rewritten has the definitions that say the same otherwise (unseen_operators/rewritten.py, restated.py, recast.py).
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import sys
import tempfile
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

from unseen_operators import OPERATORS  # noqa: E402
from unseen_operators.recast import FAMILIES  # noqa: E402

from nestor import Error, Nest, UserError, program  # noqa: E402

RAGGED, SHORT, ALIGNED = (70, 97, 45, 131), (13, 24, 7, 17), (64, 128, 192, 96)
FEW, MANY = 8, 64  # sizes up to the first stay, as numbers of heads or directions; from the second on they are long
FINDINGS = ("wrong", "crash", "unproved")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda", help="host, cuda or cuda:N")
    parser.add_argument("--jobs", type=int, default=16, help="tunings at once")
    parser.add_argument("--trials", type=int, default=8, help="of an operator at one choice of sizes")
    parser.add_argument("--time", type=float, default=5, help="seconds of an operator at one choice of sizes")
    parser.add_argument("--budget", type=float, default=3600, help="seconds for all; what is at work then is finished")
    parser.add_argument("--rewritten", action="store_true", help="definitions that say the same otherwise, in place of the operators")
    parser.add_argument("--only", default="", help="operators, with commas; default: all")
    parser.add_argument("--out", default="sweep.jsonl", help="a line of JSON for each operator and choice of sizes, appended")
    return parser.parse_args()


class Definition(typing.NamedTuple):
    """One of a family's nests, as an operator."""
    nest: Nest
    tiny: dict

    @property
    def name(self):
        return self.nest.op

    def defaults(self):
        return {size.name: size.default for size in self.nest.sizes}


def definitions():
    return {nest.op: Definition(nest, family.tiny) for family in FAMILIES.values() for nest in family.nests}


def ragged(operator):
    """Its defaults made small; the sizes of its tests where they are larger."""
    found = {}
    for k, (name, default) in enumerate(operator.defaults().items()):
        tiny = operator.tiny.get(name, default)
        chosen = min(default, RAGGED[k % 4]) if default > MANY else max(tiny, min(default, SHORT[k % 4]))
        found[name] = default if default <= max(tiny, FEW) else chosen
    return found


def aligned(operator):
    return {name: min(default, ALIGNED[k % 4]) if default >= MANY else default
            for k, (name, default) in enumerate(operator.defaults().items())}


def tuned(args, operator, sizes, seed):
    """How the trials ended, {"counts", "imprecise"}. Raises nestor.Error."""
    with tempfile.TemporaryDirectory() as folder:
        nest = pathlib.Path(folder) / f"{operator.name}.nest.json"
        operator.nest.save(str(nest))
        given = ",".join(f"{name}={value}" for name, value in sizes.items())
        found = program.run(["tune", nest, "--target", args.target, "--sizes", given, "--trials", args.trials, "--time", args.time,
                             "--seed", seed, "--db", nest.with_suffix(".db")], accept=(0, 3))
    return {"counts": found["counts"], "imprecise": found.get("imprecise", 0)}


def swept(args, operator, choice, end):
    """One line of the results, or nothing where the time is over or no sizes are admitted."""
    choices = [ragged(operator), {**operator.defaults(), **operator.tiny}] if choice == "ragged" else [aligned(operator)]
    for sizes in choices:
        line = {"operator": operator.name, "sizes": sizes}
        if time.monotonic() > end:
            return None
        try:
            return {**line, **tuned(args, operator, sizes, 1 + (choice == "aligned"))}
        except UserError:
            continue
        except Error as error:
            return {**line, "counts": {}, "imprecise": 0, "error": f"{type(error).__name__}: {str(error)[:300]}"}
    return None


def findings_of(line):
    found = {status: line["counts"].get(status, 0) for status in FINDINGS}
    found["wrong"] -= line["imprecise"]
    found = {status: count for status, count in found.items() if count > 0}
    return {**found, **({"error": line["error"]} if "error" in line else {})}


def main():
    args = arguments()
    operators = definitions() if args.rewritten else OPERATORS
    names = args.only.split(",") if args.only else list(operators)
    unknown = [name for name in names if name not in operators]
    if unknown:
        sys.exit(f"{', '.join(unknown)}: no operators; there are {', '.join(operators)}")
    end, totals, bad = time.monotonic() + args.budget, collections.Counter(), 0
    jobs = [(operators[name], choice) for choice in ("ragged", "aligned") for name in names]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, open(args.out, "a", encoding="utf-8") as out:
        for line in pool.map(lambda job: swept(args, *job, end), jobs):
            if line is None:
                continue
            out.write(json.dumps(line) + "\n")
            totals.update({**line["counts"], "problems": 1, "imprecise": line["imprecise"]})
            if findings := findings_of(line):
                bad += 1
                print(f"{line['operator']} at {line['sizes']}: {findings}", flush=True)
    print(json.dumps(totals))
    return 5 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
