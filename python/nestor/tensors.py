"""What a tensor argument is, whoever made it: its address, element type, shape, strides, device and stream.

A reader of a Python type gives, cheaply, (key, address): tensors with equal keys differ in their address alone. A Layout,
made once a key, says what the key stands for.
"""

import ctypes
import dataclasses
import sys
from typing import Any, Optional, Tuple

from . import capi
from .errors import UserError

# Element types by the names of array interfaces, PEP 3118 buffers and PyTorch. Two bytes of no known meaning ("bits16")
# may hold bf16: numpy has no such type of its own, and ml_dtypes' comes through as V2.
_TYPESTR = {
    "<f4": "f32", "<f2": "f16", "<i4": "i32", "<i8": "i64", "|b1": "bool", "<u2": "bits16", "|V2": "bits16", "<V2": "bits16"
}
_FORMAT = {"f": "f32", "e": "f16", "i": "i32", "l": "i64", "q": "i64", "?": "bool", "H": "bits16"}
_TORCH = {"torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.int32": "i32",
          "torch.int64": "i64", "torch.bool": "bool"}
_DLPACK = {(2, 32): "f32", (2, 16): "f16", (4, 16): "bf16", (0, 32): "i32", (0, 64): "i64", (6, 8): "bool"}
_SIZE = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "bool": 1, "bits16": 2}
_TAKEN = "f32, f16, bf16, i32, i64, bool"
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13


@dataclasses.dataclass
class Layout:
    """All of a tensor but its address. `strides` in elements; `device` is "host", "cuda:N", or "cuda" when the GPU is not
    known; `stream` is the handle that orders its use, None for none; `trusted`: its maker vouches for its extent."""
    type: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    device: str
    read_only: bool = False
    stream: Any = None
    trusted: bool = False


def _element_strides(strides, shape, size):
    """Byte strides as element strides; those of dimensions with one element do not matter."""
    if strides is None:
        dense, step = [], 1
        for extent in reversed(shape):
            dense.append(step)
            step *= max(extent, 1)
        return tuple(reversed(dense))
    counted = []
    for stride, extent in zip(strides, shape):
        if stride % size and extent > 1:
            raise UserError(f"a stride of {stride} bytes is no multiple of the {size}-byte elements")
        counted.append(stride // size)
    return tuple(counted)


def _element_type(table, name, shown=None):
    found = table.get(name)
    if found is None:
        raise UserError(f"elements of type {shown or name!r} are none that kernels take ({_TAKEN})")
    return found


def _interface_data(interface):
    """(address, read-only) of an array interface. Raises UserError for what is no memory: ctypes would cut off a longer address."""
    data = interface.get("data")
    if not isinstance(data, tuple) or len(data) != 2:
        raise UserError(f"the array interface's \"data\" must be (address, whether it is read-only), not {data!r:.100}")
    if not isinstance(interface.get("shape"), tuple) or not isinstance(interface.get("strides"), (tuple, type(None))):
        raise UserError("the array interface's \"shape\" and \"strides\" must be tuples of integers, or no strides at all")
    return capi.address(data[0], "a tensor's address"), bool(data[1])


def _require_interface(typestr, shape, strides):
    if not isinstance(typestr, str):
        raise UserError(f"the array interface's \"typestr\" must be text such as '<f4', not {typestr!r:.100}")
    for each in shape + (strides or ()):
        capi.integer(each, "an extent or a stride")
    if strides is not None and len(strides) != len(shape):
        raise UserError(f"the array interface has {len(strides)} strides for {len(shape)} extents")


def refuse_mask(tensor):
    """Raises UserError for a masked array, of numpy or PyTorch: its elements would be read as if there were no mask."""
    for signs, remedy in ((("mask", "filled"), "data, or filled(value)"), (("get_mask", "get_data"), "get_data(), or to_tensor(value)")):
        if all(hasattr(tensor, sign) for sign in signs):
            raise UserError(f"the mask of a {type(tensor).__name__} would be ignored: give its {remedy}")


def why_unreadable(tensor, error=None):
    """Why a tensor is none that lies in memory, and what to give in its place. error: what reading it raised."""
    if getattr(tensor, "is_nested", False):
        return "a nested tensor has no shape that kernels know: give each of its unbind(), or its to_padded_tensor(value)"
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout != "torch.strided":
        return f"elements of the layout {layout} do not lie in rows: give its to_dense()"
    if reader_of(tensor) is TorchReader:
        return ("it has no memory of its own, as tensors inside of torch.vmap, torch.func.grad and while PyTorch traces: "
                "call the kernel outside of these")
    return f"it cannot be read: {type(error).__name__}: {error}" if error else ""


class TorchReader:
    """torch.Tensor, known by its methods: PyTorch itself is not imported here."""

    @staticmethod
    def read(tensor):
        return (tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device(), tensor.is_neg()), tensor.data_ptr()

    @staticmethod
    def layout(tensor, key):
        dtype, shape, strides, ordinal, is_negated = key
        if getattr(tensor, "is_nested", False):  # a jagged one has strides and an address
            raise UserError(why_unreadable(tensor))
        if tensor.device.type not in ("cpu", "cuda"):
            raise UserError(f"a tensor on the device {tensor.device} cannot be used; kernels run on cpu and cuda")
        if is_negated:
            raise UserError("a tensor has its negative bit set, and memory of the other sign: give a kernel its resolve_neg()")
        return Layout(_element_type(_TORCH, str(dtype)), tuple(shape), tuple(strides),
                      "host" if ordinal < 0 else f"cuda:{ordinal}", trusted=True)


class ArrayReader:
    """numpy.ndarray and others with __array_interface__."""

    @staticmethod
    def read(tensor):
        interface = tensor.__array_interface__
        address, read_only = _interface_data(interface)
        return (interface["typestr"], interface["shape"], interface.get("strides"), read_only), address

    @staticmethod
    def layout(tensor, key):
        typestr, shape, strides, read_only = key
        _require_interface(typestr, shape, strides)
        kind = _element_type(_TYPESTR, typestr)
        if typestr[1] == "V" and getattr(getattr(tensor, "dtype", None), "name", "") != "bfloat16":
            raise UserError(f"elements of type {typestr!r} are none that kernels take ({_TAKEN})")
        return Layout(kind, shape, _element_strides(strides, shape, _SIZE[kind]), "host", read_only)


class CudaArrayReader:
    """CuPy, Numba and others with __cuda_array_interface__."""

    @staticmethod
    def read(tensor):
        interface = tensor.__cuda_array_interface__
        address, read_only = _interface_data(interface)
        return (interface["typestr"], interface["shape"], interface.get("strides"), read_only, interface.get("stream")), address

    @staticmethod
    def layout(tensor, key):
        typestr, shape, strides, read_only, stream = key
        _require_interface(typestr, shape, strides)
        kind = _element_type(_TYPESTR, typestr)
        return Layout(kind, shape, _element_strides(strides, shape, _SIZE[kind]), "cuda", read_only, stream)


class _DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _DlVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DlTensor)]


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes, _capsule_name.restype = [ctypes.py_object], ctypes.c_char_p
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


class DlpackReader:
    """Anything with __dlpack__. The capsule is only looked at: it frees itself, and its owner stays the argument."""

    @staticmethod
    def read(tensor):
        try:
            capsule = tensor.__dlpack__(max_version=(1, 0))
        except TypeError:
            capsule = tensor.__dlpack__()
        name = _capsule_name(capsule)
        address = _capsule_pointer(capsule, name)
        read_only = False
        if name == b"dltensor_versioned":
            versioned = _DlVersioned.from_address(address)
            if versioned.major != 1:
                raise UserError(f"DLPack {versioned.major} is not known here; version 1 is")
            found, read_only = versioned.tensor, bool(versioned.flags & 1)
        elif name == b"dltensor":
            found = _DlTensor.from_address(address)
        else:
            raise UserError(f"__dlpack__ gave a capsule {name!r}, not a tensor")
        shape = tuple(found.shape[:found.ndim])
        strides = tuple(found.strides[:found.ndim]) if found.strides else None
        device = found.device_type, found.device_id
        return ("dlpack", found.code, found.bits, found.lanes, shape, strides, device,
                read_only), (found.data or 0) + found.byte_offset

    @staticmethod
    def layout(tensor, key):
        _, code, bits, lanes, shape, strides, (device_type, ordinal), read_only = key
        kind = _element_type(_DLPACK if lanes == 1 else {}, (code, bits), f"DLPack code {code}, {bits} bits, {lanes} lanes")
        if device_type in (_DL_CPU, _DL_CUDA_HOST):
            device = "host"
        elif device_type in (_DL_CUDA, _DL_CUDA_MANAGED):
            device = f"cuda:{ordinal}" if device_type == _DL_CUDA else "cuda"
        else:
            raise UserError(f"a tensor on DLPack's device type {device_type} cannot be used; kernels run on the CPU and CUDA")
        return Layout(kind, shape, strides or _element_strides(None, shape, 1), device, read_only)


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_RECORDS_RO = 0x4 | 0x10 | 0x8  # format, strides, shape
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int], ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [ctypes.POINTER(_PyBuffer)], None


class BufferReader:
    """ctypes arrays, array.array, memoryview and other buffers (PEP 3118)."""

    @staticmethod
    def read(tensor):
        view = _PyBuffer()
        _get_buffer(tensor, ctypes.byref(view), _RECORDS_RO)
        try:
            shape = tuple(view.shape[:view.ndim]) if view.shape else ()
            strides = tuple(view.strides[:view.ndim]) if view.strides else None  # ctypes arrays have none: dense
            key = ("buffer", (view.format or b"B").decode(), shape, strides, bool(view.readonly), view.itemsize)
            return key, view.buf or 0
        finally:
            _release_buffer(ctypes.byref(view))

    @staticmethod
    def layout(tensor, key):
        _, text, shape, strides, read_only, size = key
        kind = _element_type(_FORMAT if text[:1] not in (">", "!") else {}, text.lstrip("<=@"), text)
        if size != _SIZE[kind]:
            raise UserError(f"elements of type {text!r} have {size} bytes, not {_SIZE[kind]}")
        return Layout(kind, shape, _element_strides(strides, shape, size), "host", read_only)


_readers = {}
read_functions = {}  #: by the type of an argument, once it was seen


def reader_of(tensor):
    """The reader for this type of argument, remembered by type."""
    kind = type(tensor)
    reader = _readers.get(kind)
    if reader is None:
        reader = _readers[kind] = _choose_reader(tensor)
        read_functions[kind] = reader.read
    return reader


def _choose_reader(tensor):
    refuse_mask(tensor)
    if all(hasattr(tensor, name) for name in ("data_ptr", "stride", "get_device", "is_neg", "dtype", "shape")):
        return TorchReader
    if hasattr(tensor, "__array_interface__"):
        return ArrayReader
    if hasattr(tensor, "__cuda_array_interface__"):
        return CudaArrayReader
    if hasattr(tensor, "__dlpack__"):
        return DlpackReader
    try:
        memoryview(tensor)
    except TypeError:
        raise UserError(f"a {type(tensor).__name__} is no tensor: it has no array interface, DLPack or buffer") from None
    return BufferReader


def current_torch_stream(ordinal):
    """Handle of PyTorch's current stream on a GPU."""
    torch = sys.modules["torch"]
    try:
        return torch._C._cuda_getCurrentRawStream(ordinal)  # ten times as fast
    except AttributeError:
        return torch.cuda.current_stream(ordinal).cuda_stream


def is_torch_grad_enabled():
    """Whether PyTorch records for autograd what runs now."""
    return sys.modules["torch"].is_grad_enabled()


def count_torch_write(tensor):
    """Tells autograd that a tensor was written in place."""
    sys.modules["torch"].autograd.graph.increment_version(tensor)


def stream_handle(stream) -> Optional[int]:
    """A stream given by the caller, as a CUstream: None, a number, or a PyTorch, CuPy or CUDA Python stream. 1 stands for the
    legacy default stream, as in array interfaces."""
    if stream is None:
        return None
    if not isinstance(stream, int):
        for name in ("cuda_stream", "ptr", "handle"):
            value = getattr(stream, name, None)
            if value is not None:
                stream = value
                break
        else:
            if not hasattr(stream, "__cuda_stream__"):
                raise UserError(f"a {type(stream).__name__} is no CUDA stream")
            stream = stream.__cuda_stream__()[1]
    return None if stream in (0, 1) else capi.address(stream, "a stream's handle")
