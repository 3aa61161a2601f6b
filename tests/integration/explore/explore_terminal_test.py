#!/usr/bin/env python3
"""`nestor explore` on a terminal of its own (a pty): editing, completion, history, colours, marks, signals, narrow and hostile cases.

NESTOR_PROGRAM names the program.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

PROGRAM = os.environ.get("NESTOR_PROGRAM", "")
PATIENCE_S = 60  # shared machines are slow
EVIL = "sm\x1b]0;owned\x07\x1b[31mx\x9b2J"  # a name that sets a title and a colour, and clears the screen
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-B0-9]|\x1b[=>78]")


class Session:
    """One run of the program on a pty of its own."""

    def __init__(self, *arguments, columns=100, rows=40, environment=None, folder, command="explore"):
        master, slave = pty.openpty()
        self.resize_fd(master, columns, rows)
        variables = {"PATH": os.environ["PATH"], "HOME": folder, "TERM": "xterm-256color", "LANG": "C.UTF-8",
                     "NESTOR_LIBCUDA": "/nonexistent", "NESTOR_DB": os.path.join(folder, "tuning.db"), **(environment or {})}
        variables = {name: value for name, value in variables.items() if value is not None}

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([PROGRAM, command, *arguments], stdin=slave, stdout=slave, stderr=slave, close_fds=True,
                                        preexec_fn=own_terminal, env=variables, cwd=folder)
        os.close(slave)
        self.master = master
        self.raw = b""

    @staticmethod
    def resize_fd(fd, columns, rows=40):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns):
        self.resize_fd(self.master, columns)

    def pump(self, seconds):
        """Reads what is there within that time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                return True
            try:
                part = os.read(self.master, 65536)
            except OSError:  # the program has gone
                return False
            if not part:
                return False
            self.raw += part
        return True

    def wait_for(self, text, since=0):
        """Waits until `text` stands in what was written after byte `since`, without escape sequences."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.text(since):
            alive = self.pump(0.05)
            if text in self.text(since):
                break
            if not alive or time.monotonic() > until:
                raise AssertionError(f"{text!r} did not come in {self.raw[since:]!r}")
        return self.text(since)

    def text(self, since=0):
        return ESCAPES.sub(b"", self.raw[since:]).decode("utf-8", "replace").replace("\r", "")

    def send(self, keys):
        """Returns where the answer begins."""
        since = len(self.raw)
        os.write(self.master, keys.encode())
        return since

    def type(self, line):
        """Types a line, waits for the next prompt, returns the answer."""
        self.pump(0.05)
        since = self.send(line + "\r")
        self.wait_prompt(since)
        return self.text(since)

    def wait_prompt(self, since):
        until = time.monotonic() + PATIENCE_S
        while not self.text(since).rstrip(" ").endswith("\n>"):
            if not self.pump(0.05) or time.monotonic() > until:
                raise AssertionError(f"no prompt in {self.raw[since:]!r}")

    def end(self, keys="\x04"):
        """Leaves, and returns the exit code."""
        try:
            os.write(self.master, keys.encode())
        except OSError:
            pass
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < until:
            self.pump(0.05)
        code = self.process.poll()
        self.close()
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.master >= 0:
            os.close(self.master)
        self.master = -1


class ExploreTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.sessions = []

    def tearDown(self):
        for session in self.sessions:
            session.close()
        self.folder.cleanup()

    def start(self, *arguments, **options):
        arguments = arguments or ("layernorm", "--rows", "16", "--width", "32", "--target", "host", "--threads", "2")
        session = Session(*arguments, folder=self.folder.name, **options)
        self.sessions.append(session)
        session.wait_for("> ")
        session.wait_prompt(0)
        return session

    def test_tab_completes_commands_steps_and_loops(self):
        session = self.start()
        since = session.send("par\t")
        session.wait_for("parallel(", since)
        session.send("out.\t")  # out.i, out.c: the list comes with a second look
        session.wait_for("out.c", since)
        session.send("i\t")
        session.wait_for("out.i)", since)
        session.send("\r")
        session.wait_prompt(since)
        self.assertIn("parallel for out.i", session.text(since))
        since = session.send("sug\t")
        session.wait_for("suggest ", since)
        session.send("\x03")
        session.wait_prompt(since)
        since = session.send("why spl\tout.c\t")
        session.wait_for("why split(out.c, ", since)
        session.send("\x03")
        session.wait_prompt(since)
        self.assertEqual(session.end(), 0)

    def test_lines_can_be_edited(self):
        session = self.start()
        answer = session.type("parallelx\x1b[D\x1b[C\x7f out.i")  # left, right, backspace
        self.assertIn("parallel for out.i", answer)
        answer = session.type("out.i\x01serial \x05")  # Ctrl-A, Ctrl-E
        self.assertNotIn("parallel for", answer)
        self.assertEqual(session.end("quit\r"), 0)

    def test_history_lives_on_and_is_searched(self):
        first = self.start()
        first.type("parallel(out.i)")
        first.type("steps")
        self.assertEqual(first.end(), 0)
        path = pathlib.Path(self.folder.name, ".local/state/nestor/explore_history")
        self.assertEqual(path.read_text(), "parallel(out.i)\nsteps\n")
        self.assertEqual(path.stat().st_mode & 0o077, 0)
        second = self.start()
        since = second.send("\x1b[A\x1b[A\r")  # up, up
        second.wait_prompt(since)
        self.assertIn("parallel for out.i", second.text(since))
        since = second.send("\x12step\r\r")  # Ctrl-R; the first return may end the search alone
        second.wait_for("parallel(out.i)", since)
        second.pump(0.3)
        self.assertEqual(second.end(), 0)

    def test_a_history_that_cannot_be_written_fails_nothing(self):
        state = pathlib.Path(self.folder.name, "state")
        state.write_text("a file where a folder should be")
        session = self.start(environment={"XDG_STATE_HOME": str(state)})
        self.assertIn("parallel for out.i", session.type("parallel(out.i)"))
        self.assertEqual(session.end(), 0)
        self.assertEqual(state.read_text(), "a file where a folder should be")

    def test_colours_and_marks_show_what_a_step_changed(self):
        session = self.start()
        since = len(session.raw)
        answer = session.type("split(out.c, 4, co, ci)")
        self.assertRegex(answer, r"(?m)^\+ +for ci in \[0, 4\):$")
        self.assertRegex(answer, r"(?m)^\+ +for co in \[0, 8\):$")
        self.assertRegex(answer, r"(?m)^~ +out\[out\.i, 4\*co \+ ci\]$")
        self.assertRegex(answer, r"(?m)^  for mean\.i in")
        self.assertIn(b"\x1b[32m+", session.raw[since:])
        since = len(session.raw)
        answer = session.type("diff")
        self.assertRegex(answer, r"(?m)^- +for out\.c in \[0, 32\):$")
        self.assertRegex(answer, r"(?m)^\+ +for co in \[0, 8\):$")
        self.assertNotIn("mean.k", answer)
        self.assertIn(b"\x1b[31m-", session.raw[since:])
        self.assertRegex(session.raw, rb"\x1b\[1m> ?\x1b\[0m")  # the prompt alone is bold
        self.assertEqual(session.end(), 0)

    def test_no_color_and_dumb_terminals_get_plain_text(self):
        session = self.start(environment={"NO_COLOR": "1"})
        since = len(session.raw)
        self.assertRegex(session.type("split(out.c, 4, co, ci)"), r"(?m)^\+ +for ci")
        self.assertNotRegex(session.raw[since:], rb"\x1b\[3[0-9]m")
        self.assertEqual(session.end(), 0)
        for kind in ("dumb", None):
            session = self.start(environment={"TERM": kind})
            session.type("split(out.c, 4, co, ci)")
            session.type("parallel(mean.k)")
            self.assertNotIn(b"\x1b", session.raw)
            self.assertEqual(session.end(), 0)

    def test_why_draws_the_two_instances(self):
        session = self.start()
        answer = session.type("why parallel(mean.k)")
        self.assertIn("A = mean[i=0, k=0] must come before", answer)
        self.assertIn("B = mean[i=0, k=1]", answer)
        self.assertRegex(answer, r"mean\.k +0 +1 +parallel: both at once")
        self.assertRegex(answer, r"(?m)^ +0 +A  B  \.")
        self.assertEqual(session.type("steps").count("parallel"), 0)
        self.assertEqual(session.end(), 0)

    def test_suggestions_are_legal_and_can_be_taken(self):
        session = self.start()
        answer = session.type("suggest 3")
        self.assertRegex(answer, r"(?m)^1 +apply_rule\(\w+")
        self.assertIn("guess 1 of the search goes on so", answer)
        self.assertRegex(answer, r"\d+ legal, \d+ refused")
        chosen = re.search(r"(?m)^2 +(\S.*?\))(  |$)", answer).group(1)
        self.assertIn(chosen, session.type("take 2"))
        self.assertIn(chosen, session.type("steps"))
        self.assertIn("comes first", session.type("take 1"))
        self.assertEqual(session.end(), 0)

    def test_measures_with_progress_and_reports(self):
        session = self.start("layernorm", "--rows", "2048", "--width", "1024", "--target", "host", "--threads", "2")
        answer = session.type("measure")
        self.assertIn("measuring on host", answer)
        self.assertIn("worst error", answer)
        answer = session.type("report page.html")
        self.assertIn("written to page.html", answer)
        self.assertIn("<html", pathlib.Path(self.folder.name, "page.html").read_text()[:2000])
        self.assertIn("by hand", pathlib.Path(self.folder.name, "page.html").read_text())
        self.assertEqual(session.end(), 0)

    def test_ctrl_c_gives_up_a_line_or_a_measurement_but_not_the_session(self):
        session = self.start("layernorm", "--rows", "65536", "--width", "4096", "--target", "host", "--threads", "1")
        since = session.send("parallel(out")
        session.wait_for("parallel(out", since)
        session.send("\x03")
        session.wait_prompt(since)
        self.assertIn("^C", session.text(since))
        self.assertNotIn("no loop", session.text(since))
        since = session.send("measure\r")
        session.wait_for("measuring on host", since)
        session.send("\x03")
        session.wait_for("stopped: nothing was measured", since)
        session.wait_prompt(since)
        self.assertIn("no steps", session.type("steps"))
        self.assertEqual(session.end(), 0)

    def test_the_terminal_is_left_as_it_was(self):
        session = self.start()
        session.type("steps")
        os.kill(session.process.pid, signal.SIGTERM)  # while a line is edited
        until = time.monotonic() + PATIENCE_S
        while session.process.poll() is None and time.monotonic() < until:
            session.pump(0.05)
        self.assertEqual(session.process.returncode, -signal.SIGTERM)

    def test_a_request_to_end_ends_a_measurement_and_the_session(self):
        session = self.start("layernorm", "--rows", "65536", "--width", "4096", "--target", "host", "--threads", "1")
        since = session.send("measure\r")
        session.wait_for("measuring on host", since)
        os.kill(session.process.pid, signal.SIGTERM)
        until = time.monotonic() + PATIENCE_S
        while session.process.poll() is None and time.monotonic() < until:
            session.pump(0.05)
        self.assertEqual(session.process.returncode, 0)
        self.assertIn("stopped", session.text(since))

    def test_tables_of_other_commands_fit_the_terminal(self):
        wide = subprocess.run([PROGRAM, "show"], check=True, capture_output=True, text=True).stdout.split("\n\n")[0]
        self.assertGreater(max(map(len, wide.splitlines())), 90)
        for columns in (90, 30):
            session = Session(command="show", columns=columns, folder=self.folder.name)
            self.sessions.append(session)
            session.wait_for("A variant is")
            table = session.text().split("A variant is")[0]
            self.assertLessEqual(max(map(len, table.splitlines())), columns)
            self.assertIn("softmax", table)

    def test_narrow_terminals_and_new_widths(self):
        session = self.start(columns=20)
        since = session.send("split(out.c, 4, co, ci)")  # longer than a line
        session.pump(0.3)
        session.resize(60)
        session.pump(0.3)
        session.send("\r")
        session.wait_prompt(since)
        self.assertRegex(session.text(since), r"(?m)^\+ +for ci in")
        for columns in (20, 7, 1, 300):
            session.resize(columns)
            session.type("help split")
            session.type("why parallel(mean.k)")
            session.type("suggest split 1")
        session.resize(40)
        answer = session.type("help split")
        self.assertTrue(all(len(line) <= 40 for line in answer.splitlines()[1:]), answer)
        self.assertEqual(session.end(), 0)

    def test_names_from_files_bring_no_escape_sequences(self):
        text = subprocess.run([PROGRAM, "show", "softmax", "--as", "nest", "--json"], check=True, capture_output=True,
                              env={**os.environ, "NESTOR_LIBCUDA": "/nonexistent"}).stdout
        path = pathlib.Path(self.folder.name, "evil.nest.json")

        def rename(change):
            nest = json.loads(text)
            change(nest.get("nest", nest))
            path.write_text(json.dumps(nest))

        def rename_first(of):
            return lambda nest: nest[of][0].update(name=EVIL)

        for what, change in (("op", lambda nest: nest.update(op=EVIL)), ("variant", lambda nest: nest.update(variant=EVIL)),
                             ("tensor", rename_first("tensors")), ("statement", rename_first("statements"))):
            with self.subTest(what):
                rename(change)
                session = Session(str(path), folder=self.folder.name, environment={"NO_COLOR": "1"})
                self.sessions.append(session)
                session.wait_for(r"sm\x1b]0;owned\x07\x1b[31mx\x9b2J")
                self.assertNotEqual(session.end(), 0)
                for sequence in (b"\x1b]0;", b"\x1b[31m", b"\xc2\x9b"):
                    self.assertNotIn(sequence, session.raw)

    def test_typed_control_characters_are_quoted(self):
        session = self.start(environment={"NO_COLOR": "1"})
        session.type("\x16\x1b]0;typed\x16\x07")
        session.type("suggest 1")
        self.assertNotIn(b"\x1b]0;", session.raw)
        self.assertEqual(session.end(), 0)

    def test_long_lines_deep_undo_and_rubbish(self):
        session = self.start()
        self.assertIn("did you mean", session.type("spilt(out.c, 4, a, b)"))
        session.type("x" * 3000)
        for count in range(30):
            session.type("parallel(out.i)" if count % 2 == 0 else "serial(out.i)")
        self.assertIn("only 30 steps to undo", session.type("undo 31"))
        session.type("undo 30")
        self.assertIn("no steps", session.type("steps"))
        session.type("redo 29")
        self.assertIn("parallel for out.i", session.type("loops"))
        self.assertIn("only 1 step to redo", session.type("redo 2"))
        session.type("\x00\x01\x02\xff")
        self.assertEqual(session.end(), 0)

    def test_the_end_of_the_terminal_ends_the_program(self):
        session = self.start()
        os.close(session.master)
        session.master = -1
        self.assertIsNotNone(session.process.wait(PATIENCE_S))


class PipedTest(unittest.TestCase):
    """Without a terminal everything is plain and echoed."""

    def run_piped(self, lines, **options):
        return subprocess.run([PROGRAM, "explore", "layernorm", "--rows", "16", "--width", "32", "--target", "host"], input=lines,
                              capture_output=True, timeout=PATIENCE_S, env={**os.environ, "NESTOR_LIBCUDA": "/nonexistent", "HOME": "/nonexistent"},
                              check=False, **options)

    def test_piped_lines_are_echoed_without_marks(self):
        result = self.run_piped(b"split(out.c, 4, co, ci)\nwhy parallel(mean.k)\n")
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"> split(out.c, 4, co, ci)\nfor mean_init.i in [0, rows):\n", result.stdout)
        self.assertNotIn(b"\x1b", result.stdout)
        self.assertNotIn(b"+ ", result.stdout.split(b"> why")[0].replace(b"4*co + ci", b""))
        self.assertNotIn(b"both at once\n", result.stdout)

    def test_binary_input_is_refused_line_by_line(self):
        result = self.run_piped(bytes(range(256)) + b"\nparallel(out.i)\n" + b"z" * 100000 + b"\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"parallel for out.i", result.stdout)
        self.assertNotIn(b"\x1b", result.stdout)

    def test_a_closed_input_ends_the_session(self):
        result = subprocess.run(["sh", "-c", f"'{PROGRAM}' explore layernorm --target host <&-"], capture_output=True,
                                timeout=PATIENCE_S, env={**os.environ, "NESTOR_LIBCUDA": "/nonexistent"}, check=False)
        self.assertEqual(result.returncode, 0)


if __name__ == "__main__":
    unittest.main()
