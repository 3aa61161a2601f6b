"""Nestor's kernels as PyTorch operators: attention, and operators over the last dimension of tensors with any leading ones.

    import nestor.torch
    y = nestor.torch.rms_norm(x, weight, eps=1e-6)          # differentiable; works in torch.compile and CUDA graphs
    print(nestor.torch.explain(model, (x,)))                # which parts of a model are one nest each, and why the rest is not
    fast = nestor.torch.optimize(model, (x,))               # or torch.compile(model, backend="nestor")

Where the database has no kernel PyTorch computes the result, and a warning says why, once (see configure). Outputs are
allocated by PyTorch, launches go to its current stream, and nothing waits for the GPU. Kernels are loaded at the first call of
a width and type, so make one call before capturing a CUDA graph, as PyTorch asks for anyway.
Weights have the type of x, or f32. Gradients can be differentiated again, by PyTorch's operators. Inside of torch.func, and where
tensors have tangents of forward mode, PyTorch computes as well.
"""

import importlib

import torch

from ..errors import UserError
from . import compiler, gradients, operators  # noqa: F401  registered when imported
from . import math as _math
from .attention import explain_attention, scaled_dot_product_attention
from .kernels import configure, missing
from .transforms import needs_gradient, transformed

__all__ = ["Capture", "bias_gelu", "bias_residual_layer_norm", "capture", "configure", "explain", "explain_attention",
           "flex_attention", "layer_norm", "log_softmax", "optimize", "register_transformers", "residual_rms_norm", "rms_norm",
           "scaled_dot_product_attention", "schedule", "softmax"]
_LATER = {"Capture": "graph_capture", "capture": "graph_capture", "explain": "explanation", "flex_attention": "flex",
          "optimize": "compiler.optimize", "register_transformers": "transformers_attention"}  # they load sympy, or Inductor
compiler.register()


def __getattr__(name):
    if name == "schedule":  # a module that can be called; importing it makes it an attribute
        return importlib.import_module(".schedule", __name__)
    if name not in _LATER:
        raise AttributeError(f"module 'nestor.torch' has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = found
    return found


_say = torch.compiler.assume_constant_result(missing)  # also while torch.compile traces a call


def _is_pytorchs(*tensors):
    """Whether PyTorch's operators compute a call, as a transformation has to see them; said as configure() has it."""
    reason = transformed(*tensors)
    if reason is None:
        return False
    _say(reason, reason)
    return True


def _check(x, *rows):
    """Raises UserError unless each of `rows` is a vector as long as x's last dimension, and all are of one type."""
    given = [row for row in rows if row is not None]
    for row in given:
        if row.dim() != 1 or row.shape[0] != x.shape[-1]:
            raise UserError(f"weights and biases must have the shape {x.shape[-1]}, as the last dimension; one has "
                            f"{' x '.join(map(str, row.shape)) or 'none'}")
        if row.dtype != given[0].dtype:
            raise UserError(f"weights and biases must have one type, not {given[0].dtype} and {row.dtype}")


def _check_alike(x, residual):
    if residual.shape != x.shape or residual.dtype != x.dtype:
        raise UserError(f"x and residual must be of one shape and type, not {tuple(x.shape)} {x.dtype} and "
                        f"{tuple(residual.shape)} {residual.dtype}")


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension."""
    if weight is None and bias is not None:
        weight = torch.ones_like(bias)
    _check(x, weight, bias)
    if _is_pytorchs(x, weight, bias):
        return _math.layer_norm(x, weight, bias, eps)[0]
    if needs_gradient(x, weight, bias):
        return torch.ops.nestor.layer_norm_stats(x, weight, bias, eps)[0]
    return torch.ops.nestor.layer_norm(x, weight, bias, eps)


def rms_norm(x, weight=None, eps=1e-5):
    """x / sqrt(mean square + eps) * weight over the last dimension."""
    _check(x, weight)
    if _is_pytorchs(x, weight):
        return _math.rms_norm(x, weight, eps)[0]
    if needs_gradient(x, weight):
        return torch.ops.nestor.rms_norm_stats(x, weight, eps)[0]
    return torch.ops.nestor.rms_norm(x, weight, eps)


def softmax(x):
    """Softmax over the last dimension."""
    return (_math if _is_pytorchs(x) else torch.ops.nestor).softmax(x)


def log_softmax(x):
    """Logarithm of the softmax over the last dimension."""
    return (_math if _is_pytorchs(x) else torch.ops.nestor).log_softmax(x)


def bias_residual_layer_norm(x, bias, residual, gamma, beta, eps=1e-5):
    """(s, layer_norm(s, gamma, beta)) with s = x + bias + residual."""
    _check(x, bias, gamma, beta)
    _check_alike(x, residual)
    call = _math if _is_pytorchs(x, bias, residual, gamma, beta) else torch.ops.nestor
    return call.bias_residual_layer_norm(x, bias, residual, gamma, beta, eps)


def residual_rms_norm(x, residual, weight, eps=1e-5):
    """(s, rms_norm(s, weight)) with s = x + residual."""
    _check(x, weight)
    _check_alike(x, residual)
    call = _math if _is_pytorchs(x, residual, weight) else torch.ops.nestor
    return call.residual_rms_norm(x, residual, weight, eps)


def bias_gelu(x, bias):
    """gelu(x + bias), with the exact (erf) form of gelu."""
    _check(x, bias)
    return (_math if _is_pytorchs(x, bias) else torch.ops.nestor).bias_gelu(x, bias)
