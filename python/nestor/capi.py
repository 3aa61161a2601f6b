"""The C API of libnestor_runtime (include/nestor/nestor.h) in ctypes."""

import ctypes
import operator
import os
import pathlib
import threading

from .errors import DeviceError, InternalError, NotFound, UserError

FILE = "libnestor_runtime.so.0"
ANY_TYPE = -1
TYPE_CODES = {"f32": 0, "f16": 1, "bf16": 2, "i32": 3, "bool": 4, "i64": 5}
MATCHES = ("exact", "nearest", "other device", "none")
_ERRORS = {1: NotFound, 2: UserError, 3: DeviceError, 4: InternalError}

Names = ctypes.POINTER(ctypes.c_char_p)
Integers = ctypes.POINTER(ctypes.c_int64)


class Options(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_int32), ("system_path", ctypes.c_char_p)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int), ("rank", ctypes.c_int32), ("shape", Integers),
                ("strides", Integers)]


_SIGNATURES = {
    "nestor_open": [ctypes.c_char_p, ctypes.POINTER(Options), ctypes.POINTER(ctypes.c_void_p)],
    "nestor_query": [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int32, Names, Integers,
                     ctypes.POINTER(ctypes.c_void_p)],
    "nestor_query_nest": [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int32, Names, Integers,
                          ctypes.POINTER(ctypes.c_void_p)],
    "nestor_kernel_info": [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_double),
                           ctypes.POINTER(ctypes.c_char_p)],
    "nestor_refresh": [ctypes.c_void_p],
    "nestor_allow_unsigned": [ctypes.c_void_p, ctypes.c_int32],
}

_lock = threading.Lock()
_loaded = None


def candidates():
    """Where the runtime library may be, best first: paths that need not exist, last a name for the loader."""
    chosen = os.environ.get("NESTOR_RUNTIME")
    if chosen:
        return [str(pathlib.Path(chosen) / FILE) if os.path.isdir(chosen) else chosen]
    package = pathlib.Path(__file__).resolve().parent
    root = package.parent.parent
    built = sorted(root.glob(f"build*/src/{FILE}")) + sorted(root.glob(f"build/*/src/{FILE}"))
    built.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    return [str(package / FILE), *map(str, built), FILE]


def load():
    """The library, loaded once. Raises UserError where there is none, or another file of that name."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load()
    return _loaded


def _load():
    tried = []
    for path in candidates():
        if os.sep in path and not os.path.exists(path):
            tried.append(f"{path}: no such file")
            continue
        try:
            return _declare(ctypes.CDLL(path))
        except (OSError, AttributeError) as error:
            tried.append(f"{path}: {error}")
    raise UserError("libnestor_runtime was not found; set NESTOR_RUNTIME to its file or folder. Tried:\n  " +
                    "\n  ".join(tried))


def _declare(library):
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    # Without argtypes: plans hold their arguments as C objects, and converting them again would take longer than the launch.
    library.nestor_launch_stream.restype = library.nestor_launch_trusted.restype = ctypes.c_int
    library.nestor_close.argtypes, library.nestor_close.restype = [ctypes.c_void_p], None
    library.nestor_last_error.argtypes, library.nestor_last_error.restype = [], ctypes.c_char_p
    return library


def check(library, status):
    """Raises the exception that a status other than 0 stands for."""
    if status:
        message = library.nestor_last_error().decode("utf-8", "replace")
        raise _ERRORS.get(status, InternalError)(message)


def shown(value):
    """A value as messages show it, cut where it is long."""
    if isinstance(value, int) and value.bit_length() >= 256:
        return f"a number of {value.bit_length()} bits"
    return f"{value!r:.100}"


def integer(value, what, bits=64):
    """The value, an integer of so many bits. Raises UserError for another one, which ctypes would cut off silently."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise UserError(f"{what} must be an integer, not {shown(value)}") from None
    if not -1 << (bits - 1) <= number < 1 << (bits - 1):
        raise UserError(f"{what} must be an integer of {bits} bits, not {shown(number)}")
    return number


def address(value, what):
    """The value, an address of this machine. Raises UserError for what ctypes would cut off silently."""
    if not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise UserError(f"{what} must be an integer from 0 to 2**64 - 1, not {shown(value)}")
    return value


def scalars(given):
    """The values of scalar arguments {name: value} as C doubles. Raises UserError for what is no number, or none that a double
    holds."""
    try:
        return [float(value) for value in given.values()]
    except (TypeError, ValueError, OverflowError):
        name, value = next((name, value) for name, value in given.items() if not _is_double(value))
        raise UserError(f"scalar {name} must be a number that a double can hold, not {shown(value)}") from None


def _is_double(value):
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def named_values(given, what, example):
    """What is given by name. Raises UserError for what is no dictionary."""
    if not hasattr(given, "items"):
        raise UserError(f"the {what} must be a dictionary such as {example}, not {given!r:.100}")
    return given


def sizes(given):
    """Sizes by name. Raises UserError for what is no dictionary."""
    return named_values(given, "sizes", "{'rows': 4096}")


def text(value, what):
    """The UTF-8 bytes of a string. Raises UserError for what C cannot take: other types, zeros, lone surrogates."""
    try:
        encoded = value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise UserError(f"{what} must be text, not {value!r:.100}") from None
    if b"\0" in encoded:
        raise UserError(f"{what} must be text without zero bytes, not {value!r:.100}")
    return encoded


def named(pairs, value_type):
    """(count, names, values) of a dictionary, as the C functions take it. Raises UserError for integers of more than 64 bits."""
    count = len(pairs)
    names = (ctypes.c_char_p * count)(*[text(name, "a name") for name in pairs])
    values = pairs.values()
    if value_type is ctypes.c_int64:
        values = [integer(value, f"size {name}") for name, value in pairs.items()]
    return count, names, (value_type * count)(*values)
