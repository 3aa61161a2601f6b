"""What the operators of nestor.torch compute, in PyTorch's own operators: for calls that no kernel serves.

Arguments and results are those of the operators; arithmetic is f32, so that weights may be f32 beside 16-bit data.
"""

import torch
import torch.nn.functional as F


def _wide(tensor):
    return None if tensor is None else tensor.float()


def layer_norm(x, weight, bias, eps):
    if weight is None or (weight.dtype == x.dtype and x.is_cuda):
        out, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)
    else:
        out, mean, rstd = torch.native_layer_norm(x.float(), x.shape[-1:], _wide(weight), _wide(bias), eps)
    return out.to(x.dtype), mean.float().reshape(x.shape[:-1]), rstd.float().reshape(x.shape[:-1])


def layer_norm_backward(dy, x, mean, rstd, weight, biased):
    normal = (x.float() - mean[..., None]) * rstd[..., None]
    scaled = dy.float() if weight is None else dy.float() * weight.float()
    along = (scaled * normal).mean(-1, keepdim=True)
    dx = rstd[..., None] * (scaled - scaled.mean(-1, keepdim=True) - normal * along)
    return dx.to(x.dtype), column_sum(dy.float() * normal, weight, x), column_sum(dy.float(), weight if biased else None, x)


def rms_norm(x, weight, eps):
    rstd = torch.rsqrt(x.float().square().mean(-1) + eps)
    normal = x.float() * rstd[..., None]
    return (normal if weight is None else normal * weight.float()).to(x.dtype), rstd


def rms_norm_backward(dy, x, rstd, weight):
    normal = x.float() * rstd[..., None]
    scaled = dy.float() if weight is None else dy.float() * weight.float()
    dx = rstd[..., None] * (scaled - normal * (scaled * normal).mean(-1, keepdim=True))
    return dx.to(x.dtype), column_sum(dy.float() * normal, weight, x)


def column_sum(values, like, x):
    """The sum over all rows in the type of `like`; without elements, in x's type, where there is none."""
    if like is None:
        return torch.empty(0, dtype=x.dtype, device=x.device)
    return values.reshape(-1, values.shape[-1]).sum(0).to(like.dtype)


def softmax(x):
    return torch.softmax(x, -1)


def softmax_backward(dy, y):
    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


def log_softmax(x):
    return torch.log_softmax(x, -1)


def log_softmax_backward(dy, y):
    return torch.ops.aten._log_softmax_backward_data(dy, y, -1, y.dtype)


def bias_residual_layer_norm(x, bias, residual, gamma, beta, eps):
    summed = (x.float() + bias.float() + residual.float()).to(x.dtype)
    return summed, layer_norm(summed, gamma, beta, eps)[0]


def residual_rms_norm(x, residual, weight, eps):
    summed = x + residual
    return summed, rms_norm(summed, weight, eps)[0]


def bias_gelu(x, bias):
    return F.gelu(x.float() + bias.float()).to(x.dtype)


def bias_gelu_backward(dy, x, bias):
    dx = torch.ops.aten.gelu_backward(dy.float(), x.float() + bias.float())
    return dx.to(x.dtype), column_sum(dx, bias, x)


def statistics(x, eps):
    """Mean and 1/sqrt(variance + eps) of each row, f32."""
    variance, mean = torch.var_mean(x.float(), -1, correction=0)
    return mean, torch.rsqrt(variance + eps)


def rms_statistic(x, eps):
    """1/sqrt(mean square + eps) of each row, f32."""
    return torch.rsqrt(x.float().square().mean(-1) + eps)
