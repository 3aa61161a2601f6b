"""tune, show, verify, bench and kernel on nests written in Python, with host kernels; failures of the program as exceptions."""

import os
import signal
import stat
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from support import folder, needs_program, numpy

import nestor
from nestor import program

if numpy:
    import own_operators


def fake(text):
    """The path of a program that is this shell script."""
    path = os.path.join(folder(), f"fake-{abs(hash(text))}")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def as_program(text):
    return mock.patch.dict(os.environ, NESTOR_PROGRAM=fake(text))


@needs_program
@unittest.skipUnless(numpy, "numpy is not installed")
class TuningTest(unittest.TestCase):
    def tuned(self, name, **options):
        nest, sizes, *_ = own_operators.CASES[name]
        options = {"time": 2, "trials": 3, "target": "host", "db": f"{folder()}/own.db", "progress": False, **options}
        return nestor.tune(nest, sizes, **options)

    def test_own_operators_are_tuned_and_called(self):
        for name, (nest, _, make, reference) in own_operators.CASES.items():
            with self.subTest(name):
                tuned = self.tuned(name)
                tensors = make(numpy.random.default_rng(7))
                expected = reference(*tensors)
                results = [
                    numpy.full(each.shape, numpy.nan if output.type == "f32" else -1,
                               "int32" if output.type == "i32" else "float32")
                    for each, output in zip(expected, own_operators.outputs_of(nest))
                ]
                tuned(*tensors, *results)
                for found, correct in zip(results, expected):
                    numpy.testing.assert_allclose(found, correct, rtol=2e-5, atol=2e-5)

    def test_what_a_tuning_tells(self):
        lines = []
        tuned = self.tuned("swiglu", progress=lines.append)
        self.assertTrue(any(line.startswith("trial ") for line in lines), lines)
        self.assertGreater(tuned.best_ms, 0)
        self.assertRegex(repr(tuned), r"<nestor.Tuning swiglu \(f32\) at rows=9, width=32 on .* us.*trials>")
        self.assertEqual(tuned.kernel.info["nest_digest"], tuned.info["problem"]["nest"])
        verification = tuned.verify()
        self.assertTrue(verification, verification)
        self.assertRegex(repr(verification), "ok      tile program: .* facts proved")
        measured = nestor.bench(own_operators.swiglu, tuned.sizes, rounds=1, target="host", db=tuned.database)
        self.assertEqual(list(measured.medians_ms), ["original", "parallel", "best"])
        self.assertRegex(nestor.show(own_operators.swiglu, steps="split(out.i, 4, io, ii)"), r"for io in")
        self.assertTrue(nestor.verify(own_operators.swiglu, {"rows": 5}, steps="parallel(out.i)", target="host"))
        kernel = nestor.kernel(own_operators.swiglu, {"rows": 100, "width": 32}, db=tuned.database)
        self.assertEqual(kernel.match, "nearest")

    def test_conditions_that_hide_everything(self):
        i, c = own_operators.i, own_operators.c

        @nestor.nest
        def hidden(x: nestor.f32[own_operators.rows, own_operators.width]):
            part = nestor.define("part", (i, ), nestor.sum(x[i, c], over=c, where=c < 0))
            return nestor.define("out", (i, ), nestor.max(x[i, c] - part[i], over=c))

        tuned = nestor.tune(hidden, {"rows": 3, "width": 8}, trials=2, time=2, target="host", db=f"{folder()}/hidden.db", progress=False)
        self.assertTrue(tuned.verify())

    def test_definitions_of_one_name_are_each_served(self):
        i, c = own_operators.i, own_operators.c

        @nestor.nest
        def swiglu(x: nestor.f32[own_operators.rows, own_operators.width]):
            return nestor.define("out", (i, c), x[i, c] * 2)

        database = f"{folder()}/two.db"
        first = self.tuned("swiglu", db=database)
        other = nestor.tune(swiglu, first.sizes, trials=1, time=2, target="host", db=database, progress=False)
        for tuned in (first, other):
            self.assertEqual(tuned.nest.digest(), tuned.info["problem"]["nest"])
            self.assertEqual(tuned.kernel.digest, tuned.nest.digest())
            self.assertEqual(nestor.kernel(tuned.nest, first.sizes, db=database).digest, tuned.nest.digest())
        self.assertEqual([len(tuned.kernel.info["scalars"]) for tuned in (first, other)], [1, 0])
        library = nestor.Library(database, system_path="")
        self.assertIs(library.query(None, None, first.sizes, digest=swiglu.digest()),
                      library.query("whatever", "f32", first.sizes, digest=swiglu.digest()))
        with self.assertRaisesRegex(nestor.NotFound, "no kernel of the nest 0{32} for host"):
            library.query(None, None, first.sizes, digest="0" * 32)
        with self.assertRaisesRegex(nestor.UserError, "\"none\" is no digest of a nest"):
            library.query(None, None, first.sizes, digest="none")

    def test_failures_are_exceptions_with_the_programs_text(self):
        nest = own_operators.swiglu
        for error, message, call in ((nestor.UserError, "has no size 'cols'; its sizes are",
                                      lambda: nestor.tune(nest, {"cols": 3}, target="host", progress=False)),
                                     (nestor.UserError, "'nonsense' is no view", lambda: nestor.show(nest, "nonsense")),
                                     (nestor.UserError, "there is no loop `out.x`",
                                      lambda: nestor.verify(nest, steps="parallel(out.x)", target="host")),
                                     (nestor.UserError, "there is no tuning database",
                                      lambda: nestor.bench(nest, db=f"{folder()}/none.db")),
                                     (nestor.UserError, "unknown operator|no operator",
                                      lambda: nestor.show("no_such_operator")),
                                     (nestor.UserError, "is of the variant f32, not f16",
                                      lambda: nestor.show(nest, variant="f16")), (nestor.UserError, "a int is no nest",
                                                                                  lambda: nestor.show(3)),
                                     (nestor.UserError, r"the sizes must be a dictionary .* not \(3, 4\)",
                                      lambda: nestor.tune(nest, (3, 4))),
                                     (nestor.UserError, r"the scalars must be a dictionary .* not \[1\]",
                                      lambda: nestor.bench(nest, scalars=[1])),
                                     (nestor.UserError, "scalar limit must be a number that a double can hold, not 'a'",
                                      lambda: nestor.tune(nest, scalars={"limit": "a"})),
                                     (nestor.UserError, "size rows must be an integer, not True",
                                      lambda: nestor.kernel(nest, {"rows": True})),
                                     (nestor.UserError, "takes text without zero bytes", lambda: nestor.show("rms\0norm")),
                                     (nestor.UserError, "verify takes a Tuning", lambda: nestor.verify(nest))):
            with self.subTest(message), self.assertRaisesRegex(error, message):
                call()
        with self.assertRaisesRegex(nestor.NotFound, "no kernel for group_sums at .* on host: tune it first"):
            self.tuned("swiglu")
            nestor.kernel(own_operators.group_sums, {"rows": 2, "width": 3}, db=f"{folder()}/own.db")
        with self.assertRaisesRegex(nestor.UserError, "^outside: .*outside the tensor"):
            i, c = own_operators.i, own_operators.c

            @nestor.nest
            def outside(x: nestor.f32[own_operators.rows, own_operators.width]):
                return nestor.define("out", (i, c), x[i, c + 1])

            nestor.show(outside)


class ProgramTest(unittest.TestCase):
    def test_exit_codes_become_exceptions(self):
        for code, error in ((1, nestor.UserError), (2, nestor.InternalError), (3, nestor.NotFound), (4, nestor.DeviceError),
                            (9, nestor.InternalError)):
            with self.subTest(code), as_program(f"echo 'nestor: because' >&2; exit {code}\n"), self.assertRaisesRegex(
                    error, "because"):
                program.run(["query"])
        with as_program("exit 130\n"), self.assertRaises(KeyboardInterrupt):
            program.run(["tune"])
        with as_program("echo 'no json'\n"), self.assertRaisesRegex(nestor.InternalError, "no json"):
            program.run(["tune"])

    def test_a_missing_program_is_said(self):
        with mock.patch.dict(os.environ, NESTOR_PROGRAM="/nowhere/nestor"), self.assertRaisesRegex(
                nestor.UserError, r"set NESTOR_PROGRAM to its file. Tried: /nowhere/nestor, \$PATH"):
            program.find()

    def test_progress_is_told_as_it_changes(self):
        lines = []
        script = ("[ -t 2 ] || exit 1\nfor k in 1 2 3; do printf '\\r\\033[Ktrial %s' $k >&2; sleep 0.1; done\n"
                  "printf '\\r\\033[K' >&2\necho {}\n")
        with as_program(script):
            self.assertEqual(program.run(["tune"], lines.append), {})
        self.assertEqual(lines[0], "trial 1")
        self.assertIn("trial 3", lines)

    def test_messages_are_told_beside_progress(self):
        with as_program("printf '\\r\\033[Ktrial 1' >&2; printf '\\r\\033[K' >&2; echo 'nestor: it broke' >&2; exit 4\n"):
            with self.assertRaisesRegex(nestor.DeviceError, "^it broke$"):
                program.run(["tune"], lambda line: None)

    def test_much_output_and_many_messages(self):
        script = ("i=0; while [ $i -lt 3000 ]; do echo \"padding padding padding padding $i\" >&2; i=$((i+1)); done\n"
                  "seq 1 20000 | tr '\\n' ' '\n")
        with as_program(script):
            code, output, messages = program._execute([program.find()], None)
        self.assertEqual((code, len(output.split()), len(messages.split("\n"))), (0, 20000, 3001))

    def test_an_interrupt_lets_the_program_end_in_order(self):
        path = os.path.join(folder(), "ended")
        script = f"trap 'echo done > {path}; exit 130' INT\necho started > {path}\nwhile true; do sleep 0.05; done\n"

        def interrupt():
            while not os.path.exists(path):
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

        with as_program(script):
            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                program.run(["tune"])
            thread.join()
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "done\n")

    def test_a_notebook_shows_progress_in_one_display(self):
        shown = []
        handle = mock.Mock(update=lambda data, raw: shown.append(data["text/plain"]))
        front = mock.Mock(display=lambda data, raw, display_id: shown.append(data["text/plain"]) or handle)
        shell = mock.Mock(spec=["kernel"])
        modules = {"IPython": mock.Mock(get_ipython=lambda: shell), "IPython.display": front}
        with mock.patch.dict(sys.modules, modules):
            line = program.Progress("own")
            self.assertTrue(line.shown)
            line("trial 1")
            line("trial 2")
            line.close()
        self.assertEqual(shown, ["own: trial 1", "own: trial 2"])

    def test_nothing_is_shown_where_nobody_looks(self):
        with tempfile.TemporaryFile("w") as file, mock.patch.object(sys, "stderr", file):
            self.assertFalse(program.Progress("own").shown)


if __name__ == "__main__":
    unittest.main()
