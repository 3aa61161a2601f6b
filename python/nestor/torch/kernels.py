"""Kernels for PyTorch tensors: which one serves a call, and what is said when none does."""

import threading
import warnings

import torch

from ..errors import NotFound, UserError
from ..library import Library

_NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_lock = threading.Lock()
_library = None
_open_error = None
_on_missing = "warn"
_missing = {}  # what has no kernel -> why
_libraries = {}  # databases opened by their path
_refused = {}  # what the database was asked for in vain -> type and text of its error
_MAX_REFUSED = 1024


def configure(library=None, on_missing=None):
    """library: the nestor.Library, or path of a database, that nestor.torch takes its kernels from; the default database until
    then. on_missing, where no kernel fits: "warn" (PyTorch computes it, one warning each), "silent" (PyTorch computes it) or
    "raise" (NotFound)."""
    global _library, _open_error, _on_missing
    if on_missing not in (None, "warn", "silent", "raise"):
        raise UserError(f"on_missing is \"warn\", \"silent\" or \"raise\", not {on_missing!r}")
    with _lock:
        if on_missing is not None:
            _on_missing = on_missing
        if library is not None:
            _library, _open_error = (library if isinstance(library, Library) else Library(library)), None
        _missing.clear()
        _refused.clear()


def database():
    """The path of the database that configure() chose, None for the default one."""
    return _library.path if _library is not None else None


def refresh():
    """Looks again for kernels that were not there: something was tuned."""
    global _open_error
    with _lock:
        _open_error = None
        if _library is not None:
            _library.refresh()
        _missing.clear()
        _refused.clear()


def find(op, option, x, weight, rows, width):
    """The kernel for `op` on rows of x's type and device (its variant: `option`, e.g. "stats.plain"), or None where there is
    none and PyTorch shall compute instead. `weight`: a tensor whose type may be f32 beside a 16-bit x, or None."""
    element = element_of(x)
    if element is None:
        return missing((op, x.dtype, x.device.type), f"{op}: no kernels for {x.dtype} on {x.device.type}")
    if weight is not None and weight.dtype != x.dtype:
        if weight.dtype != torch.float32:
            return missing((op, x.dtype, weight.dtype), f"{op}: no kernels for weights of {weight.dtype} with {x.dtype}")
        option = f"{option}.f32weight" if option else "f32weight"
    variant = f"{option}.{element}" if option else element
    what = (op, variant, x.device, width)
    if what in _missing:
        return missing(what, None)
    try:
        return look_up(op, variant, {"rows": rows, "width": width}, x.device)
    except (NotFound, UserError) as error:
        return missing(what, f"{op} ({variant}), width {width}: {error}")


def element_of(tensor):
    """What kernels call the tensor's element type; None where none has it, or runs where the tensor is."""
    return _NAMES.get(tensor.dtype) if tensor.device.type in ("cpu", "cuda") else None


def look_up(op, variant, sizes, device):
    """The kernel of the database on PyTorch's device. Raises NotFound or UserError where there is none, which is remembered as
    well."""
    asked = (op, variant, device, tuple(sizes.items()))
    if asked in _refused:
        kind, why = _refused[asked]
        raise kind(why)
    try:
        return opened().query(op, variant, sizes, "host" if device.type == "cpu" else f"cuda:{device.index}")
    except (NotFound, UserError) as error:
        if len(_refused) >= _MAX_REFUSED:
            _refused.clear()
        _refused[asked] = type(error), str(error)
        raise


def configured_path():
    """The path of the database that configure() chose; None where that is the default one."""
    return _library.path if _library is not None else None


def opened(path=None):
    """The database of nestor.torch, or the one at a path, opened once. Raises UserError where there is none."""
    global _library, _open_error
    if path is not None:
        with _lock:
            if path not in _libraries:
                _libraries[path] = Library(path)
            return _libraries[path]
    if _library is None:
        with _lock:
            if _library is None:
                if _open_error is None:
                    try:
                        _library = Library()
                    except UserError as error:
                        _open_error = error
                if _open_error is not None:
                    raise _open_error
    return _library


def missing_message(what, why):
    """What is said where PyTorch computes `what` (None: this), as there is no kernel."""
    return f"nestor.torch: PyTorch computes {what or 'this'}, as there is no tuned kernel: {why}"


def missing(what, why):
    """Says that there is no kernel, as configure() has it, once for each `what`; why: None where that was said before."""
    if why is None:
        why = _missing[what]
    if _on_missing == "raise":
        raise NotFound(why)
    if what not in _missing:
        _missing[what] = why
        if _on_missing == "warn":
            warnings.warn(missing_message(None, why), stacklevel=3)
    return None
