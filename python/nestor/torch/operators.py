"""The operators nestor::*: their schemas, what runs them on CPUs and CUDA, and the shapes of their results.

Those named *_stats also return what a backward pass needs of each row, f32; gradients that a call has not are empty tensors.
"""

import torch

from . import math
from .kernels import find
from .transforms import may_be_seen, refuse_unseen

LIBRARY = torch.library.Library("nestor", "DEF")
_SCHEMAS = {
    "layer_norm": "(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor",
    "layer_norm_stats": "(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    "layer_norm_backward": "(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor? weight, bool biased)"
                           " -> (Tensor, Tensor, Tensor)",
    "rms_norm": "(Tensor x, Tensor? weight, float eps) -> Tensor",
    "rms_norm_stats": "(Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor)",
    "rms_norm_backward": "(Tensor dy, Tensor x, Tensor rstd, Tensor? weight) -> (Tensor, Tensor)",
    "softmax": "(Tensor x) -> Tensor",
    "softmax_backward": "(Tensor dy, Tensor y) -> Tensor",
    "log_softmax": "(Tensor x) -> Tensor",
    "log_softmax_backward": "(Tensor dy, Tensor y) -> Tensor",
    "bias_residual_layer_norm": "(Tensor x, Tensor bias, Tensor residual, Tensor gamma, Tensor beta, float eps)"
                                " -> (Tensor, Tensor)",
    "residual_rms_norm": "(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor)",
    "bias_gelu": "(Tensor x, Tensor bias) -> Tensor",
}


def implement(name, implementation, library=LIBRARY):
    """Registers what runs an operator on CPUs and CUDA. Where autograd or forward mode would see nothing of it, it raises
    UserError."""
    def run(*arguments):
        if may_be_seen():
            refuse_unseen(name, _tensors(arguments))
        return implementation(*arguments)

    for key in ("CPU", "CUDA"):
        library.impl(name, run, key)


def _tensors(arguments):
    parts = [each if isinstance(each, (list, tuple)) else [each] for each in arguments]
    return [each for part in parts for each in part if isinstance(each, torch.Tensor)]


def _operator(implementation):
    """Registers a function of this module, less its underscore."""
    name = implementation.__name__[1:]
    LIBRARY.define(name + _SCHEMAS[name])
    implement(name, implementation)
    return implementation


def _dense(results):
    """What PyTorch computed, laid out as kernels would have, and as the operators' shapes for torch.compile say."""
    return results.contiguous() if isinstance(results, torch.Tensor) else tuple(each.contiguous() for each in results)


def _rows(x):
    """x as a matrix whose rows are dense; a copy only where strides make it necessary."""
    matrix = x.reshape(-1, x.shape[-1])
    return matrix if matrix.stride(-1) == 1 or matrix.shape[-1] == 1 else matrix.contiguous()


def _row(vector):
    return None if vector is None else vector.contiguous()


def _new(x, shape=None, dtype=None):
    """A dense tensor of x's type and device: like x, or of another shape or type."""
    return torch.empty(x.shape if shape is None else shape, dtype=dtype or x.dtype, device=x.device)


def _launch(kernel, tensors, **scalars):
    """Runs the kernel on those of {name: tensor} that it takes."""
    kernel(*[tensors[name] for name in kernel.tensors], **scalars)


def _matrix(dense):
    return dense.view(-1, dense.shape[-1])


def _option(stats, weight, bias):
    affine = "plain" if weight is None else "nobias" if bias is None else ""
    return ".".join(part for part in ("stats" if stats else "", affine) if part)


def _find(op, option, x, weight=None):
    return None if x.numel() == 0 else find(op, option, x, weight, x.numel() // x.shape[-1], x.shape[-1])


@_operator
def _layer_norm(x, weight, bias, eps):
    kernel = _find("layernorm", _option(False, weight, bias), x, weight)
    if kernel is None:
        return _dense(math.layer_norm(x, weight, bias, eps)[0])
    out = _new(x)
    _launch(kernel, {"x": _rows(x), "weight": _row(weight), "bias": _row(bias), "out": _matrix(out)}, eps=eps)
    return out


@_operator
def _layer_norm_stats(x, weight, bias, eps):
    kernel = _find("layernorm", _option(True, weight, bias), x, weight)
    if kernel is None:
        return _dense(math.layer_norm(x, weight, bias, eps))
    out, mean, rstd = _new(x), _new(x, x.shape[:-1], torch.float32), _new(x, x.shape[:-1], torch.float32)
    _launch(kernel, {"x": _rows(x), "weight": _row(weight), "bias": _row(bias), "out": _matrix(out), "mean": mean.view(-1),
                     "rstd": rstd.view(-1)}, eps=eps)
    return out, mean, rstd


@_operator
def _layer_norm_backward(dy, x, mean, rstd, weight, biased):
    option = "plain" if weight is None else "" if biased else "nobias"
    kernel = _find("layernorm_backward", option, x, weight)
    if kernel is None:
        return _dense(math.layer_norm_backward(dy, x, mean, rstd, weight, biased))
    dx, (dweight, dbias) = _new(x), _weight_gradients(x, weight, biased)
    _launch(kernel, {"dy": _rows(dy), "x": _rows(x), "weight": _row(weight), "mean": mean.reshape(-1), "rstd": rstd.reshape(-1),
                     "dx": _matrix(dx), "dweight": dweight, "dbias": dbias})
    return dx, dweight, dbias


def _weight_gradients(x, weight, biased):
    """Places for dweight and dbias; without elements where there is no such gradient."""
    return (_new(x, (0,)) if weight is None else _new(weight), _new(weight) if biased and weight is not None else _new(x, (0,)))


@_operator
def _rms_norm(x, weight, eps):
    kernel = _find("rmsnorm", "plain" if weight is None else "", x, weight)
    if kernel is None:
        return _dense(math.rms_norm(x, weight, eps)[0])
    out = _new(x)
    _launch(kernel, {"x": _rows(x), "weight": _row(weight), "out": _matrix(out)}, eps=eps)
    return out


@_operator
def _rms_norm_stats(x, weight, eps):
    kernel = _find("rmsnorm", "stats.plain" if weight is None else "stats", x, weight)
    if kernel is None:
        return _dense(math.rms_norm(x, weight, eps))
    out, rstd = _new(x), _new(x, x.shape[:-1], torch.float32)
    _launch(kernel, {"x": _rows(x), "weight": _row(weight), "out": _matrix(out), "rstd": rstd.view(-1)}, eps=eps)
    return out, rstd


@_operator
def _rms_norm_backward(dy, x, rstd, weight):
    kernel = _find("rmsnorm_backward", "plain" if weight is None else "", x, weight)
    if kernel is None:
        return _dense(math.rms_norm_backward(dy, x, rstd, weight))
    dx, (dweight, _) = _new(x), _weight_gradients(x, weight, False)
    _launch(kernel, {"dy": _rows(dy), "x": _rows(x), "weight": _row(weight), "rstd": rstd.reshape(-1), "dx": _matrix(dx),
                     "dweight": dweight})
    return dx, dweight


def _unary(op, fallback, x):
    kernel = _find(op, "", x)
    if kernel is None:
        return _dense(fallback(x))
    out = _new(x)
    _launch(kernel, {"x": _rows(x), "out": _matrix(out)})
    return out


def _unary_backward(op, fallback, dy, y):
    kernel = _find(op, "", y)
    if kernel is None:
        return _dense(fallback(dy, y))
    dx = _new(y)
    _launch(kernel, {"dy": _rows(dy), "y": _rows(y), "dx": _matrix(dx)})
    return dx


@_operator
def _softmax(x):
    return _unary("softmax", math.softmax, x)


@_operator
def _softmax_backward(dy, y):
    return _unary_backward("softmax_backward", math.softmax_backward, dy, y)


@_operator
def _log_softmax(x):
    return _unary("log_softmax", math.log_softmax, x)


@_operator
def _log_softmax_backward(dy, y):
    return _unary_backward("log_softmax_backward", math.log_softmax_backward, dy, y)


@_operator
def _bias_residual_layer_norm(x, bias, residual, gamma, beta, eps):
    kernel = _find("bias_residual_layernorm", "", x, gamma)
    if kernel is None:
        return _dense(math.bias_residual_layer_norm(x, bias, residual, gamma, beta, eps))
    summed, out = _new(x), _new(x)
    _launch(kernel, {"x": _rows(x), "bias": _row(bias), "residual": _rows(residual), "gamma": _row(gamma), "beta": _row(beta),
                     "summed": _matrix(summed), "out": _matrix(out)}, eps=eps)
    return summed, out


@_operator
def _residual_rms_norm(x, residual, weight, eps):
    kernel = _find("residual_rmsnorm", "", x, weight)
    if kernel is None:
        return _dense(math.residual_rms_norm(x, residual, weight, eps))
    summed, out = _new(x), _new(x)
    _launch(kernel, {"x": _rows(x), "residual": _rows(residual), "weight": _row(weight), "summed": _matrix(summed),
                     "out": _matrix(out)}, eps=eps)
    return summed, out


@_operator
def _bias_gelu(x, bias):
    kernel = _find("bias_gelu", "", x, bias)
    if kernel is None:
        return _dense(math.bias_gelu(x, bias))
    out = _new(x)
    _launch(kernel, {"x": _rows(x), "bias": _row(bias), "out": _matrix(out)})
    return out


def _fake(function):
    """Registers the shapes of an operator's results, for torch.compile; `function` is named fake_<operator>."""
    torch.library.register_fake("nestor::" + function.__name__[5:], function, lib=LIBRARY)
    return function


@_fake
def fake_layer_norm(x, weight, bias, eps):
    return _new(x)


@_fake
def fake_layer_norm_stats(x, weight, bias, eps):
    return _new(x), _new(x, x.shape[:-1], torch.float32), _new(x, x.shape[:-1], torch.float32)


@_fake
def fake_layer_norm_backward(dy, x, mean, rstd, weight, biased):
    return (_new(x), *_weight_gradients(x, weight, biased))


@_fake
def fake_rms_norm(x, weight, eps):
    return _new(x)


@_fake
def fake_rms_norm_stats(x, weight, eps):
    return _new(x), _new(x, x.shape[:-1], torch.float32)


@_fake
def fake_rms_norm_backward(dy, x, rstd, weight):
    return _new(x), _weight_gradients(x, weight, False)[0]


@_fake
def fake_bias_residual_layer_norm(x, bias, residual, gamma, beta, eps):
    return _new(x), _new(x)


@_fake
def fake_residual_rms_norm(x, residual, weight, eps):
    return _new(x), _new(x)


@_fake
def fake_bias_gelu(x, bias):
    return _new(x)


for _name in ("softmax", "log_softmax"):
    torch.library.register_fake(f"nestor::{_name}", lambda x: _new(x), lib=LIBRARY)
    torch.library.register_fake(f"nestor::{_name}_backward", lambda dy, y: _new(y), lib=LIBRARY)
