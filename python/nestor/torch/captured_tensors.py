"""Tensors that a function captured, as arguments of a kernel: on its device, in a type that it takes."""

import weakref

import torch

from .importer.extents import Unsupported
from .importer.lazy import ELEMENTS

_narrow = {}  # id of a 64-bit tensor -> (weak reference, version) of one whose values 32 bits hold


def argument_type(dtype):
    """The type in which a tensor is an argument: its own, or i32 for other integers. Raises Unsupported."""
    if dtype in ELEMENTS:
        return dtype
    if dtype.is_floating_point or dtype.is_complex:
        raise Unsupported(f"a captured tensor of {str(dtype).removeprefix('torch.')}")
    return torch.int32


def argument(tensor, device):
    """The tensor as an argument, dense in its last dim. Raises Unsupported for integers that 32 bits do not hold."""
    kind = argument_type(tensor.dtype)
    if tensor.dtype == torch.int64 and kind == torch.int32:
        _require_narrow(tensor)
    found = tensor.detach().to(device, kind).resolve_neg()
    return found if not found.dim() or found.stride(-1) == 1 else found.contiguous()


def _require_narrow(tensor):
    """On a GPU values are looked at once for each version, as that waits for it."""
    if tensor.device.type != "cpu":
        known = _narrow.get(id(tensor))
        version = None if tensor.is_inference() else tensor._version
        if known is not None and known[0]() is tensor and known[1] == version:
            return
        if torch.cuda.is_current_stream_capturing():
            return
    if tensor.numel():
        low, high = torch.aminmax(tensor)
        if int(low) < -2**31 or int(high) >= 2**31:
            raise Unsupported("a captured tensor of integers that 32 bits do not hold")
    if tensor.device.type != "cpu":
        if len(_narrow) > 1024:
            _narrow.clear()
        _narrow[id(tensor)] = weakref.ref(tensor), version
