"""What every engine does: plans as lines, a chunk of one tuned by the nestor program, records brought together."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import tempfile

from .. import capi, program
from ..errors import DeviceError, InternalError, UserError
from ..nests.model import Nest

_FORMAT = 1  # of plans
_prctl = ctypes.CDLL(None).prctl
_SIGNAL_WHEN_PARENT_DIES = 1  # PR_SET_PDEATHSIG


@dataclasses.dataclass(frozen=True)
class Options:
    """What each problem gets: seconds, trials, and flags of `nestor tune`."""
    time: float = 20
    trials: int = 200
    target: str | None = None
    threads: int | None = None
    seed: int | None = None
    fix_all: bool = False

    def flags(self):
        given = {"--time": self.time, "--trials": self.trials, "--target": self.target, "--threads": self.threads, "--seed": self.seed}
        found = [str(word) for name, value in given.items() if value is not None for word in (name, value)]
        return found + (["--fix-all"] if self.fix_all else [])


@dataclasses.dataclass
class Outcome:
    """What became of a list of problems. failures: [{"problem": ..., "reason": ...}]; retried: chunks that were given out again;
    trials: measured; database: where the records are."""
    problems: int = 0
    finished: int = 0
    trials: int = 0
    retried: int = 0
    failures: list = dataclasses.field(default_factory=list)
    database: str | None = None

    def add(self, told):
        """Adds what `nestor tune --plan --json` printed."""
        self.finished += told["finished"] + told["known"]
        self.trials += told["trials"]
        self.failures += told["failures"]

    def __bool__(self):
        return not self.failures and self.finished == self.problems

    def __repr__(self):
        return f"<nestor.distributed.Outcome {self.finished} of {self.problems} problems, {self.trials} trials, {len(self.failures)} failures>"


class Plan:
    """Problem lines, and the lines of nests that they need."""

    def __init__(self, nests, problems):
        self.nests, self.problems = nests, problems  # {digest: line}, [line]

    def __len__(self):
        return len(self.problems)

    def text(self, lines):
        """A plan of these problem lines that stands alone."""
        digests = dict.fromkeys(json.loads(line)["problem"].get("nest_digest") for line in lines)
        return "".join(f"{line}\n" for line in [*(self.nests[digest] for digest in digests if digest in self.nests), *lines])

    def chunks(self, size):
        return [self.problems[first:first + size] for first in range(0, len(self.problems), size)]


def plan_from_text(text, name="the plan"):
    """Raises UserError for what is no plan; the program looks at each line more closely."""
    nests, problems = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            if "nest" in found:
                nests[found["digest"]] = line
            elif isinstance(found["problem"], dict):
                problems.append(line)
            else:
                raise KeyError("problem")
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{name}, line {number}: no line of a plan; make one with nestor plan") from None
    if not problems:
        raise UserError(f"{name} has no problem in it")
    return Plan(nests, list(dict.fromkeys(problems)))


def plan_lines(problems):
    """The Plan of a path or of a list, as nestor.distributed.tune takes them."""
    if isinstance(problems, Plan):
        return problems
    if isinstance(problems, (str, os.PathLike)):
        try:
            return plan_from_text(pathlib.Path(problems).read_text(encoding="utf-8"), os.fspath(problems))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the plan {os.fspath(problems)}: {error}") from None
    known, lines = {}, []
    for problem in problems:
        nest, sizes, variant = _parts(problem)
        key = (id(nest) if isinstance(nest, Nest) else nest, variant)
        if key not in known:
            known[key] = _nest_lines(nest, variant)
        line, named = known[key]
        asked = {name: capi.integer(value, f"size {name}") for name, value in (sizes or {}).items()}
        lines.append((line, json.dumps({"format": _FORMAT, "problem": {**named, "sizes": {**named["sizes"], **asked}}})))
    return plan_from_text("\n".join(text for pair in lines for text in pair), "the list of problems")


def _parts(problem):
    if isinstance(problem, (tuple, list)) and 2 <= len(problem) <= 3:
        nest, sizes, variant = (*problem, None)[:3]
        if isinstance(nest, (Nest, str, os.PathLike)) and (sizes is None or isinstance(sizes, dict)):
            return (nest if isinstance(nest, Nest) else os.fspath(nest)), sizes, variant
    raise UserError(f"{problem!r} is no problem: give (nest, sizes) or (nest, sizes, variant), or the path of a plan")


def _nest_lines(nest, variant):
    """The line of a nest, and what names it in problem lines, with the default sizes."""
    with tempfile.TemporaryDirectory(prefix="nestor-") as folder:
        source = nest
        if isinstance(nest, Nest):
            source = f"{folder}/{nest.op}.nest.json"
            nest.save(source)
        made = program.text(["plan", source, *(["--variant", variant] if variant else [])])
    line, problem = made.splitlines()
    return line, json.loads(problem)["problem"]


def _dies_with(parent):
    """For the program's process: an actor that is killed leaves nothing behind that goes on writing."""

    def prepare():
        _prctl(_SIGNAL_WHEN_PARENT_DIES, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def run_program(arguments, accept):
    """What `nestor --json ARGUMENTS` prints, where its exit code is accepted. A program that was killed raises DeviceError."""
    done = subprocess.run([program.find(), "--json", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, preexec_fn=_dies_with(os.getpid()), check=False)
    said = done.stderr.decode("utf-8", "replace").strip().removeprefix("nestor: ")
    if done.returncode < 0:
        raise DeviceError(f"nestor was ended by signal {-done.returncode}: {said}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise InternalError(f"nestor ended with {done.returncode}: {said}") from None
    if "error" in found or done.returncode not in accept:
        kind = {1: UserError, 4: DeviceError}.get(done.returncode, InternalError)
        raise kind(found["error"]["message"] if "error" in found else found.get("device_failure") or said)
    return found


def tune_chunk(text, options, folder, database, name):
    """Tunes the problems of a plan into `database`. Returns (what `nestor tune --plan --json` printed, records as bytes by the file's
    suffix). Whatever was there is known and not measured again."""
    plan, exported = pathlib.Path(folder, f"{name}.plan.jsonl"), pathlib.Path(folder, f"{name}.jsonl")
    plan.write_text(text, encoding="utf-8")
    told = run_program(["tune", "--plan", plan, "--export", exported, "--db", database, *options.flags()], accept=(0, 3))
    records = {path.suffix: path.read_bytes() for path in (exported, exported.with_suffix(".pack")) if path.exists()}
    for path in (plan, exported, exported.with_suffix(".pack")):
        path.unlink(missing_ok=True)
    return told, records


def all_records(folder, database):
    """The records of a whole database, as tune_chunk gives those of a chunk."""
    exported = pathlib.Path(folder, "all.jsonl")
    done = subprocess.run([program.find(), "db", "export", exported, "--db", database], capture_output=True, check=False)
    if done.returncode:
        raise DeviceError(done.stderr.decode("utf-8", "replace").strip())
    return {path.suffix: path.read_bytes() for path in (exported, exported.with_suffix(".pack")) if path.exists()}


def merge(records, database):
    """Joins records, as tune_chunk gives them, into a database; None: the user's. Any order, any number of times."""
    with tempfile.TemporaryDirectory(prefix="nestor-") as folder:
        names = []
        for number, files in enumerate(records):
            for suffix, data in files.items():
                pathlib.Path(folder, f"{number}{suffix}").write_bytes(data)
            names.append(f"{folder}/{number}.jsonl")
        return run_program(["db", "merge", *names, *(["--db", database] if database else [])], accept=(0,))
