"""Gradients of the operators. Those that normalise a sum compute its statistics again: they are cheap beside the sum, which is
one of the results."""

import torch

from . import math
from .operators import LIBRARY


def _gradient(backward, keep):
    """Registers gradient_<operator>; `keep(ctx, inputs, output)` saves what it needs of a call."""
    torch.library.register_autograd("nestor::" + backward.__name__[9:], backward, setup_context=keep, lib=LIBRARY)


def _keep_layer_norm(ctx, inputs, output):
    x, weight, bias, _ = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(x, weight, output[1], output[2])


def gradient_layer_norm_stats(ctx, dy, dmean, drstd):
    x, weight, mean, rstd = ctx.saved_tensors
    dx, dweight, dbias = torch.ops.nestor.layer_norm_backward(dy, x, mean, rstd, weight, ctx.biased)
    return dx, dweight if weight is not None else None, dbias if ctx.biased else None, None


def _keep_rms_norm(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def gradient_rms_norm_stats(ctx, dy, drstd):
    x, weight, rstd = ctx.saved_tensors
    dx, dweight = torch.ops.nestor.rms_norm_backward(dy, x, rstd, weight)
    return dx, dweight if weight is not None else None, None


def _keep_output(ctx, inputs, output):
    ctx.save_for_backward(output)


def gradient_softmax(ctx, dy):
    return torch.ops.nestor.softmax_backward(dy, *ctx.saved_tensors)


def gradient_log_softmax(ctx, dy):
    return torch.ops.nestor.log_softmax_backward(dy, *ctx.saved_tensors)


def _keep_bias_residual_layer_norm(ctx, inputs, output):
    _, bias, _, gamma, _, ctx.eps = inputs
    ctx.save_for_backward(output[0], bias, gamma)


def gradient_bias_residual_layer_norm(ctx, dsummed, dy):
    summed, bias, gamma = ctx.saved_tensors
    mean, rstd = math.statistics(summed, ctx.eps)
    dx, dgamma, dbeta = torch.ops.nestor.layer_norm_backward(dy, summed, mean, rstd, gamma, True)
    dx = dx + dsummed
    return dx, math.column_sum(dx.float(), bias, dx), dx, dgamma, dbeta, None


def _keep_residual_rms_norm(ctx, inputs, output):
    ctx.eps = inputs[3]
    ctx.save_for_backward(output[0], inputs[2])


def gradient_residual_rms_norm(ctx, dsummed, dy):
    summed, weight = ctx.saved_tensors
    dx, dweight = torch.ops.nestor.rms_norm_backward(dy, summed, math.rms_statistic(summed, ctx.eps), weight)
    dx = dx + dsummed
    return dx, dx, dweight, None


def _keep_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def gradient_bias_gelu(ctx, dy):
    return math.bias_gelu_backward(dy, *ctx.saved_tensors)


_gradient(gradient_layer_norm_stats, _keep_layer_norm)
_gradient(gradient_rms_norm_stats, _keep_rms_norm)
_gradient(gradient_softmax, _keep_output)
_gradient(gradient_log_softmax, _keep_output)
_gradient(gradient_bias_residual_layer_norm, _keep_bias_residual_layer_norm)
_gradient(gradient_residual_rms_norm, _keep_residual_rms_norm)
_gradient(gradient_bias_gelu, _keep_inputs)
