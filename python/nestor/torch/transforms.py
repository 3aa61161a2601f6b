"""What sees operators while they run, and so has to see PyTorch's own: autograd, forward-mode tangents, torch.func."""

import contextlib

import torch
from torch.autograd import forward_ad

from ..errors import UserError


def needs_gradient(*tensors):
    """Whether autograd has to see what is computed of these, of which some may be None."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def transformed(*tensors):
    """Why no kernel may compute with these, of which some may be None: torch.func or forward-mode differentiation sees operators.
    None where neither does."""
    if _in_function_transform():
        return "no kernel computes inside of a transformation of torch.func"
    if _in_dual_level() if torch.compiler.is_dynamo_compiling() else _has_tangent(tensors):
        return "no kernel computes the tangents of forward-mode differentiation"
    return None


def may_be_seen():
    """Whether autograd or forward mode may see what runs now, depending on its tensors."""
    return torch.is_grad_enabled() or forward_ad._current_level >= 0


def refuse_unseen(name, tensors):
    """Raises UserError where an operator that has no gradient, or no tangent, would silently give none."""
    if needs_gradient(*tensors):
        raise UserError(f"nestor::{name} has no gradient; the functions of nestor.torch call operators that have one")
    if _has_tangent(tensors):
        raise UserError(f"nestor::{name} has no tangent for forward-mode differentiation; the functions of nestor.torch leave such "
                        "calls to PyTorch")


# torch.compile enters transformations and levels while it traces them, and guards what was there before.


@torch.compiler.assume_constant_result
def _in_function_transform():
    return torch._C._are_functorch_transforms_active()


@torch.compiler.assume_constant_result
def _in_dual_level():
    return forward_ad._current_level >= 0


def _has_tangent(tensors):
    """Whether a tensor is dual, which only one made inside of a level can be."""
    return _in_dual_level() and any(
        tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


@contextlib.contextmanager
def vectorizing():
    """Lets an operator use vmap, which the mode that torch.compile first runs a graph in keeps from what it sees."""
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in _OF_VMAP:
        exclude = exclude.remove(key)
    with torch._C._ForceDispatchKeyGuard(include, exclude):
        yield


_OF_VMAP = [getattr(torch._C.DispatchKey, name) for name in (
    "FuncTorchBatched", "FuncTorchVmapMode", "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode",
    "FuncTorchGradWrapper") if hasattr(torch._C.DispatchKey, name)]
