"""Gradients of the operators. Those that normalise a sum compute its statistics again: they are cheap beside the sum, which is
one of the results. Gradients of gradients are those of their definitions in PyTorch's operators."""

import torch

from . import math
from .operators import LIBRARY


def _gradient(backward, keep):
    """Registers gradient_<operator>; `keep(ctx, inputs, output)` saves what it needs of a call."""
    torch.library.register_autograd("nestor::" + backward.__name__[9:], backward, setup_context=keep, lib=LIBRARY)


def _pulled(function, tensors, gradients):
    """The gradients of tensors, of which some may be None, by those of a function's results. They can be differentiated again."""
    given = [number for number, tensor in enumerate(tensors) if tensor is not None]
    found = [None] * len(tensors)

    def of_given(*some):
        placed = dict(zip(given, some))
        return function(*(placed.get(number) for number in range(len(tensors))))

    results, pull = torch.func.vjp(of_given, *(tensors[number] for number in given))
    alone = isinstance(results, torch.Tensor)
    wanted = [torch.zeros_like(result) if gradient is None else gradient
              for result, gradient in zip([results] if alone else results, gradients)]
    for number, gradient in zip(given, pull(wanted[0] if alone else tuple(wanted))):
        found[number] = gradient
    return found


def _sum(dx, more):
    return more if dx is None else dx + more


def _keep_layer_norm(ctx, inputs, output):
    x, weight, bias, ctx.eps = inputs
    ctx.biased = bias is not None
    ctx.set_materialize_grads(False)  # statistics alone are differentiated where the gradient is differentiated again
    ctx.save_for_backward(x, weight, output[1], output[2])


def gradient_layer_norm_stats(ctx, dy, dmean, drstd):
    x, weight, mean, rstd = ctx.saved_tensors
    dx = dweight = dbias = None
    if dy is not None:
        dx, dweight, dbias = torch.ops.nestor.layer_norm_backward(dy, x, mean, rstd, weight, ctx.biased)
    if dmean is not None or drstd is not None:
        dx = _sum(dx, *_pulled(lambda x: math.statistics(x, ctx.eps), [x], [dmean, drstd]))
    return dx, dweight if weight is not None else None, dbias if ctx.biased else None, None


def _keep_layer_norm_backward(ctx, inputs, output):
    *tensors, ctx.biased = inputs
    ctx.save_for_backward(*tensors)


def gradient_layer_norm_backward(ctx, *gradients):
    return *_pulled(lambda *given: math.layer_norm_backward(*given, ctx.biased), ctx.saved_tensors, gradients), None


def _keep_rms_norm(ctx, inputs, output):
    x, weight, ctx.eps = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight, output[1])


def gradient_rms_norm_stats(ctx, dy, drstd):
    x, weight, rstd = ctx.saved_tensors
    dx = dweight = None
    if dy is not None:
        dx, dweight = torch.ops.nestor.rms_norm_backward(dy, x, rstd, weight)
    if drstd is not None:
        dx = _sum(dx, *_pulled(lambda x: math.rms_statistic(x, ctx.eps), [x], [drstd]))
    return dx, dweight if weight is not None else None, None


def gradient_rms_norm_backward(ctx, *gradients):
    return tuple(_pulled(math.rms_norm_backward, ctx.saved_tensors, gradients))


def _keep_output(ctx, inputs, output):
    ctx.save_for_backward(output)


def gradient_softmax(ctx, dy):
    return torch.ops.nestor.softmax_backward(dy, *ctx.saved_tensors)


def gradient_softmax_backward(ctx, gradient):
    return tuple(_pulled(math.softmax_backward, ctx.saved_tensors, [gradient]))


def gradient_log_softmax(ctx, dy):
    return torch.ops.nestor.log_softmax_backward(dy, *ctx.saved_tensors)


def gradient_log_softmax_backward(ctx, gradient):
    return tuple(_pulled(math.log_softmax_backward, ctx.saved_tensors, [gradient]))


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
_gradient(gradient_layer_norm_backward, _keep_layer_norm_backward)
_gradient(gradient_rms_norm_stats, _keep_rms_norm)
_gradient(gradient_rms_norm_backward, _keep_inputs)
_gradient(gradient_softmax, _keep_output)
_gradient(gradient_softmax_backward, _keep_inputs)
_gradient(gradient_log_softmax, _keep_output)
_gradient(gradient_log_softmax_backward, _keep_inputs)
_gradient(gradient_bias_residual_layer_norm, _keep_bias_residual_layer_norm)
_gradient(gradient_residual_rms_norm, _keep_residual_rms_norm)
_gradient(gradient_bias_gelu, _keep_inputs)
