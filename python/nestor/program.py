"""The nestor program: where it is, running it, its failures as exceptions, its progress line in terminals and notebooks."""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys

from .errors import DeviceError, InternalError, NotFound, UserError

_ERRORS = {1: UserError, 2: InternalError, 3: NotFound, 4: DeviceError}
_COLUMNS = 200  # of the terminal that the program is shown, so that it cuts nothing off
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def find():
    """The path of the program. Raises UserError that lists where it was looked for."""
    chosen = os.environ.get("NESTOR_PROGRAM")
    package = pathlib.Path(__file__).resolve().parent
    root = package.parent.parent
    built = sorted([*root.glob("build*/bin/nestor"), *root.glob("build/*/bin/nestor")], key=lambda path: path.stat().st_mtime,
                   reverse=True)
    candidates = [chosen] if chosen else [package / "bin" / "nestor", *built, shutil.which("nestor")]
    tried = [str(candidate) for candidate in candidates if candidate and str(candidate) != sys.argv[0]]
    for candidate in tried:
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise UserError("the nestor program was not found; set NESTOR_PROGRAM to its file. Tried: " + ", ".join([*tried, "$PATH"]))


def run(arguments, progress=None, accept=(0,)):
    """What `nestor --json ARGUMENTS` prints, as dictionaries and lists.

    progress: called with each text of its progress line. accept: exit codes that are no failure (docs/cli.md). Others raise
    UserError, NotFound, DeviceError or InternalError with the program's text. Ctrl-C ends the search in order, then raises
    KeyboardInterrupt.
    """
    code, output, messages = _execute([find(), "--json", *map(str, arguments)], progress)
    try:
        found = json.loads(output)
    except ValueError:
        found = None
    error = found.get("error") if isinstance(found, dict) else None
    if code == 130:
        raise KeyboardInterrupt
    if code in accept and found is not None and not error:
        return found
    if error:
        raise _ERRORS.get(code, InternalError)(error["message"])
    text = messages.strip().removeprefix("nestor: ") or output.strip() or "no message"
    raise _ERRORS.get(code, InternalError)(text if code in _ERRORS else f"nestor ended with {code}: {text}")


def text(arguments):
    """What `nestor ARGUMENTS` prints for people. Raises as run does."""
    code, output, messages = _execute([find(), *map(str, arguments)], None)
    if code:
        raise _ERRORS.get(code, InternalError)(messages.strip().removeprefix("nestor: ") or output.strip())
    return output


def main():
    """The command `nestor` of a wheel that holds the program."""
    try:
        path = find()
    except UserError as error:
        sys.exit(f"nestor: {error}")
    os.execv(path, [path, *sys.argv[1:]])


def _execute(command, progress):
    """(exit code, standard output, standard error without progress lines). A terminal of its own makes the program show
    progress."""
    for argument in command:
        try:
            has_zero = b"\0" in os.fsencode(str(argument))
        except UnicodeEncodeError:
            has_zero = True
        if has_zero:
            raise UserError(f"the nestor program takes text without zero bytes or surrogates, not {str(argument)!r:.100}")
    if progress is None:
        errors = subprocess.PIPE
    else:
        ours, errors = pty.openpty()
        _set_columns(errors)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
    if progress is not None:
        os.close(errors)
    reader = _Reader(process, process.stderr.fileno() if progress is None else ours, progress)
    try:
        while True:
            try:
                reader.read()
                return process.wait(), reader.output.decode("utf-8", "replace"), reader.messages()
            except KeyboardInterrupt:
                if reader.interrupted:
                    raise
                reader.interrupted = True
                process.send_signal(signal.SIGINT)  # the program keeps what it measured, and ends
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        if progress is None:
            process.stderr.close()
        else:
            os.close(ours)


def _set_columns(terminal):
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))


class _Reader:
    """Reads standard output and standard error at once, and tells `progress` each state of the progress line."""

    def __init__(self, process, errors, progress):
        self.interrupted = False
        self.output, self._errors, self._line = b"", errors, b""
        self._said = b""
        self._streams = [process.stdout.fileno(), errors]
        self._progress = progress

    def read(self):
        while self._streams:
            for stream in select.select(self._streams, [], [])[0]:
                try:
                    data = os.read(stream, 1 << 16)
                except OSError:  # the end of a terminal
                    data = b""
                if not data:
                    self._streams.remove(stream)
                elif stream != self._errors:
                    self.output += data
                else:
                    self._said += data
                    self._show(data)

    def _show(self, data):
        if self._progress is None:
            return
        *states, self._line = (self._line + data).split(b"\r")
        current = _clean(self._line) or (_clean(states[-1]) if states else "")
        if current and "\n" not in current:
            self._progress(current)

    def messages(self):
        """Standard error without the states of a progress line."""
        lines = [line.split("\r")[-1] if self._progress else line for line in self._said.decode("utf-8", "replace").split("\r\n")]
        return "\n".join(_ESCAPES.sub("", line) for line in lines)


def _clean(data):
    return _ESCAPES.sub("", data.decode("utf-8", "replace")).strip()


class Progress:
    """Shows a line that changes: in a notebook, on a terminal, and nowhere else."""

    def __init__(self, what):
        self._what = what
        self._handle = None
        self._notebook = _in_notebook()
        self._terminal = not self._notebook and hasattr(sys.stderr, "isatty") and sys.stderr.isatty()

    @property
    def shown(self):
        """Whether anybody sees it."""
        return self._notebook or self._terminal

    def __call__(self, line):
        text = f"{self._what}: {line}"
        if self._terminal:
            columns = shutil.get_terminal_size().columns
            sys.stderr.write(f"\r\x1b[K{text[:columns - 1]}")
            sys.stderr.flush()
        elif self._notebook:
            self._update(text)

    def close(self):
        """Takes the line away from a terminal; in a notebook its last state stays."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _update(self, text):
        from IPython.display import display

        data = {"text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _in_notebook():
    """Whether Jupyter runs this process: IPython is loaded, with a front end that takes displays."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")
