"""What kernels took against PyTorch's compiled code of the same: a file of JSON lines beside the database."""

import json
import os
import pathlib
import threading
import time

import torch

NO_MEMORY = "Inductor's own code has no memory for it"  # older files say so by no time
_lock = threading.Lock()
_read = {}  # by path: (its state when it was read, its entries)


def default_database():
    """Where the nestor program and library look first (docs/cli.md)."""
    if os.environ.get("NESTOR_DB"):
        return os.environ["NESTOR_DB"]
    data = os.environ.get("XDG_DATA_HOME")
    return str((pathlib.Path(data) if data else pathlib.Path.home() / ".local/share") / "nestor/tuning.db")


def path_of(database):
    """The races of a database."""
    return f"{database or default_database()}.races"


def device_name(device):
    """What races are remembered for."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"


def entry(op, variant, sizes, device, kernel_us=None, inductor_us=None, failed=None, inductor_failed=None):
    """A race as the file has it: microseconds, or why there are none of the kernel (failed) or of Inductor (inductor_failed)."""
    return {"op": op, "variant": variant, "sizes": dict(sizes), "device": device, "torch": torch.__version__,
            "kernel_us": kernel_us, "inductor_us": inductor_us, "failed": failed,
            "inductor_failed": inductor_failed, "time": int(time.time())}


def remember(database, found):
    """Adds an entry. Lines are appended whole, so several processes may do so at once."""
    line = json.dumps(found) + "\n"
    path = path_of(database)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def touch(database):
    """Makes the file another one than before, to whoever looks at its state."""
    remember(database, {"touched": int(time.time())})


def known(database):
    """All entries, oldest first; lines that are damaged are passed over."""
    path = path_of(database)
    state = state_of(path)
    with _lock:
        if path in _read and _read[path][0] == state:
            return _read[path][1]
        entries = []
        if state is not None:
            for line in pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                if isinstance(found, dict) and "op" in found:
                    entries.append(found)
        _read[path] = state, entries
        return entries


def state_of(path):
    """(modified, size) of a file, or None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def find(database, op, variant, sizes, device, kernel=None):
    """The latest race of a nest on this device and PyTorch: at these sizes, else at the nearest; None where there is none.
    kernel: of this one alone, where entries name theirs."""
    best, asked = None, (op, variant, device, torch.__version__, kernel)
    for each in known(database):
        if (each["op"], each["variant"], each["device"], each["torch"], each.get("kernel")) == asked:
            distance = _distance(each["sizes"], sizes)
            if best is None or distance <= best[0]:
                best = distance, each
    return best and best[1]


def _distance(one, other):
    if one.keys() != other.keys():
        return float("inf")
    return sum(abs(one[name].bit_length() - other[name].bit_length()) + (one[name] != other[name]) / 2 for name in one)
