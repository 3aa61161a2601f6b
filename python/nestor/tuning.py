"""tune, show, verify, bench and kernel: the nestor program's commands on nests, operators and nest files."""

import contextlib
import os
import pathlib
import re
import tempfile
import warnings

from . import capi, program
from .errors import NotFound, UserError
from .extents import names_told, read_extent
from .library import Library
from .nests.hints import with_remedy
from .nests.model import Nest

# How the C library refuses shapes that do not fit the sizes.
_AT_SIZES = re.compile(r"(must|would) have the shape [\dx -]+[, ]|is not valid for these sizes")


class Text(str):
    """Text that shows its lines as they are, in a prompt and in a notebook too."""

    def __repr__(self):
        return str(self)


@contextlib.contextmanager
def _problem(nest, variant=None, sizes=None):
    """The arguments that name a problem to the program."""
    flags = ["--variant", variant] if variant else []
    if sizes:
        flags += ["--sizes", ",".join(f"{name}={capi.integer(value, f'size {name}')}" for name, value in capi.sizes(sizes).items())]
    if not isinstance(nest, Nest):
        if not isinstance(nest, (str, os.PathLike)):
            raise UserError(
                f"a {type(nest).__name__} is no nest: give a nestor.Nest, the name of an operator or the path of a nest file")
        yield [os.fspath(nest), *flags]
        return
    if variant and variant != nest.variant:
        raise UserError(f"{nest.op} is of the variant {nest.variant}, not {variant}")
    with tempfile.TemporaryDirectory(prefix="nestor-") as folder:
        path = pathlib.Path(folder) / "asked.nest.json"
        nest.save(path)
        try:
            yield [str(path), *(flags[2:] if variant else flags)]
        except UserError as error:
            raise type(error)(with_remedy(nest, str(error).replace(str(path), nest.op))) from None


def _flags(**options):
    """--name value for what is given; True for a switch."""
    found = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        flag = "--" + name.replace("_", "-")
        found += [flag] if value is True else [flag, str(value)]
    return found


def _scalar_flags(scalars):
    if not scalars:
        return []
    given = capi.named_values(scalars, "scalars", "{'eps': 1e-6}")
    return ["--set", ",".join(f"{name}={value!r}" for name, value in zip(given, capi.scalars(given)))]


def tune(nest, sizes=None, *, time=20, trials=None, variant=None, target=None, db=None, scalars=None, threads=None, seed=None,
         fix_all=False, retry_failed=False, progress=None):
    """Searches the fastest schedule of a nest at sizes, and returns a Tuning; call it to run the best kernel.

    nest: a Nest (of @nestor.nest), the name of an operator, or the path of a nest file. sizes: {name: value}; others take their
    default. time: seconds; trials: at most so many. variant: of an operator. target: "host", "cuda", "cuda:1"; None: the first
    GPU, else the host. db: the database that keeps every trial; None: the user's. scalars: {name: value} while it measures.
    threads: of a kernel on the host. fix_all: for exactly these sizes. retry_failed: what crashed, took too long or
    did not compile in earlier runs is tried again. progress: None shows a line in a terminal and in a
    notebook, False nothing, a function is called with each text. Ctrl-C keeps what was measured, and raises KeyboardInterrupt.
    Raises UserError for bad input with the program's text, NotFound if no schedule was correct, DeviceError, InternalError.
    """
    shown = program.Progress(getattr(nest, "op", nest)) if progress is None else progress or None
    arguments = _flags(time=time, trials=trials, target=target, db=db, threads=threads, seed=seed,
                       fix_all=fix_all, retry_failed=retry_failed) + _scalar_flags(scalars)
    with _problem(nest, variant, sizes) as problem:
        try:
            found = program.run(["tune", *problem, *arguments], shown if getattr(shown, "shown", True) else None, accept=(0, 3))
        finally:
            if isinstance(shown, program.Progress):
                shown.close()
    if found["best"] is None:
        raise NotFound(f"no schedule of {found['problem']['op']} was correct in {found['trials']} trials: {found['counts']}; "
                       "tune again with more time to go on")
    if "wrong" in found:
        warnings.warn(f"{found['wrong']['count']} candidates of {found['problem']['op']} were wrong: a bug of Nestor; see "
                      f"nestor verify {found['wrong']['trial']} --db {found['database']}", stacklevel=2)
    return Tuning(nest, found, target)


class Tuning:
    """What tune found: the best trial, and the kernel that a call runs.

        tuned = nestor.tune(rms_norm, {"rows": 4096, "width": 1024})
        tuned(x, weight, out, eps=1e-6)
    """

    def __init__(self, nest, found, target):
        self.nest, self.info = nest, found  #: info: what `nestor tune --json` prints
        self.best_ms, self.baseline_ms = found["best"]["median_ms"], found["baseline_ms"]  #: milliseconds; of the original order
        self.trial, self.trials, self.counts = found["best"]["id"], found["trials"], found["counts"]
        self.database, self.sizes = found["database"], found["problem"]["sizes"]
        self.device = "host" if found["device"]["kind"] == "host" else (target or "cuda").split("/")[0]
        self._kernel = None

    @property
    def kernel(self):
        """The nestor.Kernel of the best trial: of this definition, whatever else of its name the database has."""
        if self._kernel is None:
            problem, library = self.info["problem"], Library(self.database, system_path="")
            self._kernel = library.query(problem["op"], problem["variant"], self.sizes, self.device, problem["nest"])
        return self._kernel

    def __call__(self, *tensors, **named):
        """Runs the kernel, as nestor.Kernel does: numpy arrays, PyTorch tensors and others, in the order of `kernel.tensors`.
        Sizes that no shape tells are those that were tuned, unless sizes={name: value} says otherwise."""
        given = capi.sizes(named.get("sizes") or {})
        taken = self._untold(given)
        try:
            return self.kernel(*tensors, **{**named, "sizes": {**taken, **given}})
        except UserError as error:
            if not taken or not _AT_SIZES.search(str(error)):
                raise
            names = ", ".join(f"{name} = {value}" for name, value in taken.items())
            asked = ", ".join(f'"{name}": ...' for name in taken)
            raise UserError(f"{error}; no shape tells {names}, which {'was' if len(taken) == 1 else 'were'} tuned: give others as "
                            f"sizes={{{asked}}}") from None

    def _untold(self, given):
        """The tuned values of sizes that neither shapes nor these sizes tell."""
        extents = [read_extent(text) for tensor in self.kernel.info["tensors"] for text in tensor["shape"]]
        told = {*names_told(extents, given), *given}
        return {name: self.sizes[name] for name in self.kernel.info["sizes"] if name in self.sizes and name not in told}

    @property
    def speedup(self):
        """Times faster than the original order, in parallel where that is legal; None if that was not measured."""
        return self.baseline_ms / self.best_ms if self.baseline_ms else None

    @property
    def steps(self):
        """The schedule, one step a line."""
        steps = (self.info["best"].get("schedule") or {}).get("steps") or []
        return Text("\n".join(f"{step['name']}({', '.join(map(str, step['args']))})" for step in steps))

    def verify(self, **options):
        """verify() of the best trial."""
        return verify(self, **options)

    def __repr__(self):
        problem = self.info["problem"]
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        faster = f", {self.speedup:.2f}x" if self.speedup else ""
        return (
            f"<nestor.Tuning {problem['op']} ({problem['variant']}) at {sizes or 'no sizes'} on {self.info['device']['name']}: "
            f"{self.best_ms * 1e3:.1f} us{faster}, {self.trials} trials>")


def kernel(nest, sizes=None, *, variant=None, device="host", db=None):
    """The best nestor.Kernel known for a nest at sizes, tuned by this process or before. Raises NotFound when there is none."""
    with _problem(nest, variant, sizes) as problem:
        found = program.run(["query", *problem, *_flags(device=device, db=db)], accept=(0, 3))
        if found.get("match", "none") == "none":
            raise NotFound(
                f"no kernel for {getattr(nest, 'op', nest)} at {sizes or 'its default sizes'} on {device}: tune it first")
        problem = found["problem"]
        if isinstance(nest, Nest):
            asked = {size.name: (sizes or {}).get(size.name, size.default) for size in nest.sizes}
        else:
            asked = {**problem["sizes"], **(sizes or {})}
    return Library(db, system_path="").query(problem["op"], problem["variant"], asked, device, problem["nest"])


def show(nest, view="loops", sizes=None, *, variant=None, steps=None, trial=None, best=False, target=None, db=None):
    """A nest, or its schedule, as text: view is one of those of `nestor show --as` (docs/cli.md): "nest", "deps", "loops",
    "tile", "plan", "ptx", ... steps: text or path of a schedule; trial: of a database; best: the best one stored. Raises
    UserError."""
    with _problem(nest, variant, sizes) as problem, _steps_file(steps) as file:
        return Text(
            program.text(["show", *problem, *_flags(steps=file, trial=trial, best=best, target=target, db=db), "--as",
                          view]).rstrip("\n"))


@contextlib.contextmanager
def _steps_file(steps):
    """The path of a schedule that is given as a path or, with a step a line, as text."""
    if steps is None or os.path.exists(os.fspath(steps)):
        yield None if steps is None else os.fspath(steps)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".steps", encoding="utf-8") as file:
        file.write(f"{steps}\n")
        file.flush()
        yield file.name


class Verification:
    """What verify found: true if everything holds. findings: a list of {check, passed, detail}; certificate: as docs/cli.md
    says."""

    def __init__(self, found):
        self.passed, self.findings, self.certificate = found["passed"], found["findings"], found["certificate"]

    def __bool__(self):
        return self.passed

    def __repr__(self):
        lines = [f"{'ok    ' if each['passed'] else 'FAILED'}  {each['check']}: {each['detail']}" for each in self.findings]
        return "\n".join([*lines, "verified" if self.passed else "not verified"])


def verify(what, sizes=None, *, steps=None, variant=None, target=None, db=None):
    """Checks a Tuning's best trial, or `steps` as a schedule of a nest, all over again: proofs, dependences, results at many
    sizes.

    what: a Tuning; or a nest with steps (text, one step a line, or a path); or the number of a trial in db. Returns a
    Verification. Raises UserError, for a step that is refuted too.
    """
    if isinstance(what, Tuning):
        target, db, what = target or what.device, db or what.database, what.trial
    if isinstance(what, int):
        return Verification(program.run(["verify", what, *_flags(target=target, db=db)], accept=(0, 1, 5)))
    if steps is None:
        raise UserError("verify takes a Tuning, the number of a trial, or a nest with steps=")
    with _problem(what, variant, sizes) as problem, _steps_file(steps) as file:
        return Verification(program.run(["verify", *problem, *_flags(steps=file, target=target, db=db)], accept=(0, 1, 5)))


class Measurement:
    """What bench measured: medians in milliseconds by the schedule's name; speedup: of the best over the first."""

    def __init__(self, found):
        self.info = found
        schedules = found.get("schedules") or [found[name] for name in ("original", "parallel", "best") if name in found]
        self.medians_ms = {each["name"]: each["median_ms"] for each in schedules}
        self.samples_ms = {each["name"]: each["samples_ms"] for each in schedules}
        measured = [each["median_ms"] for each in schedules if each["samples_ms"]]
        self.speedup = measured[0] / measured[-1] if measured else None

    def __repr__(self):
        return "\n".join(f"{name:<10} {median * 1e3:10.1f} us" for name, median in self.medians_ms.items())


def bench(nest, sizes=None, *, rounds=3, steps=(), variant=None, target=None, db=None, scalars=None, threads=None):
    """Measures the original order and the best stored schedule in turns, or the schedules of `steps` (a list of texts or
    paths). Returns a Measurement. Raises NotFound when nothing was tuned, UserError."""
    with contextlib.ExitStack() as stack:
        problem = stack.enter_context(_problem(nest, variant, sizes))
        files = [flag for each in steps for flag in ("--steps", stack.enter_context(_steps_file(each)))]
        return Measurement(program.run(["bench", *problem, *files, *_flags(rounds=rounds, target=target, db=db, threads=threads),
                                        *_scalar_flags(scalars)]))
