"""PyTorch's FlexAttention behind nestor.torch.flex_attention: as it is where no kernel serves a call, and compiled where that beats
the kernel."""

import threading
import types

import torch
from torch.nn.attention.flex_attention import flex_attention

from .captured_state import State

_MOST = 128
_lock = threading.Lock()
_compiled = {}  # by what the functions are made of and the call's shapes


def compiled(query, key, value, score_mod, block_mask, lse=False):
    """FlexAttention as torch.compile makes it for calls like this one, kept; None where it would be made while a CUDA graph is
    captured. Inside of torch.compile it is the function itself."""
    if torch.compiler.is_dynamo_compiling():
        return flex_attention
    mask_mod = getattr(block_mask, "mask_mod", None)
    state = State(score_mod, mask_mod).key or tuple(getattr(each, "__code__", type(each)) for each in (score_mod, mask_mod))
    shapes = tuple(tuple(tensor.shape) for tensor in (query, key, value))
    asked = state, block_mask is None, shapes, query.dtype, query.device, lse
    with _lock:
        if asked not in _compiled:
            if query.is_cuda and torch.cuda.is_current_stream_capturing():
                return None
            if len(_compiled) >= _MOST:
                _compiled.clear()
            _compiled[asked] = torch.compile(_copy(flex_attention), dynamic=False)
        return _compiled[asked]


def _copy(function):
    """A function with code of its own: torch.compile limits how often it compiles one."""
    found = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__,
                               function.__closure__)
    found.__kwdefaults__ = function.__kwdefaults__
    return found
