"""Sums of products that are no plain matrix product: distances, convolutions, mixtures, and statistics behind a product."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened

EPS = 1e-6

rows, width, inner = Size("rows", 4096), Size("width", 4096), Size("inner", 256)
r, c, k = indices(r=rows, c=width, k=inner)


@nestor.nest
def gaussian_kernel(x: bf16[rows, inner], y: bf16[width, inner], gamma=0.002):
    apart = x[r, k] - y[c, k]
    return define("out", (r, c), nestor.exp(-gamma * nestor.sum(apart * apart, over=k)), type=bf16)


def _gaussian(x, y):
    squares = widened(x).square().sum(-1)[:, None] + widened(y).square().sum(-1) - 2 * widened(x @ y.T)
    return (-0.002 * squares).exp().to(x.dtype)


deep = Size("inner", 4096)
(q,) = indices(q=deep)


@nestor.nest
def linear_rmsnorm(x: bf16[rows, deep], weight: bf16[width, deep], gain: bf16[width]):
    """A norm over the columns that a product has just made."""
    product = define("product", (r, c), nestor.sum(x[r, q] * weight[c, q], over=q), type=bf16)
    size = define("size", r, nestor.rsqrt(nestor.sum(product[r, c] * product[r, c], over=c) / width + EPS))
    return define("out", (r, c), product[r, c] * size[r] * gain[c], type=bf16)


def _linear_rmsnorm(x, weight, gain):
    return F.rms_norm(x @ weight.T, gain.shape, gain, EPS)


@nestor.nest
def gram(x: bf16[rows, deep]):
    (other,) = indices(other=rows)
    return define("out", (r, other), nestor.sum(x[r, q] * x[other, q], over=q) / deep, type=bf16)


def _gram(x):
    return x @ x.T / x.shape[-1]


experts, mixed = Size("experts", 4, fixed=True), Size("width", 2048)
e, w = indices(e=experts, w=mixed)


@nestor.nest
def dense_mixture(x: bf16[rows, inner], gate: f32[rows, experts], weight: bf16[experts, mixed, inner]):
    """Every expert's product, weighted for each row."""
    part = define("part", (r, e, w), nestor.sum(x[r, k] * weight[e, w, k], over=k))
    return define("out", (r, w), nestor.sum(part[r, e, w] * gate[r, e], over=e), type=bf16)


def _dense_mixture(x, gate, weight):
    return sum(gate[:, each, None] * widened(x @ weight[each].T) for each in range(gate.shape[1])).to(x.dtype)


batch, length, channels, filters = Size("batch", 32), Size("length", 3000), Size("channels", 384, fixed=True), Size("filters", 384)
b, i, o, n, t = indices(b=batch, i=length, o=filters, n=channels, t=3)


@nestor.nest
def conv1d_gelu(x: f16[batch, length + 2, channels], weight: f16[filters, 3, channels], bias: f16[filters]):
    found = nestor.sum(x[b, i + t, n] * weight[o, t, n], over=(t, n)) + bias[o]
    return define("out", (b, i, o), 0.5 * found * (1 + nestor.erf(found * 0.7071067811865476)), type=f16)


def _conv1d(x, weight, bias):
    return F.gelu(F.conv1d(x.transpose(1, 2), weight.transpose(1, 2), bias)).transpose(1, 2)


height, across, maps = Size("height", 56), Size("across", 56), Size("maps", 256)
y, z, m, s, u = indices(y=height, z=across, m=maps, s=7, u=7)


@nestor.nest
def depthwise_conv7x7(x: f16[batch, height + 6, across + 6, maps], weight: f16[7, 7, maps], bias: f16[maps]):
    found = nestor.sum(x[b, y + s, z + u, m] * weight[s, u, m], over=(s, u))
    return define("out", (b, y, z, m), found + bias[m], type=f16)


def _depthwise(x, weight, bias):
    return F.conv2d(x.permute(0, 3, 1, 2), weight.permute(2, 0, 1)[:, None], bias, groups=x.shape[-1]).permute(0, 2, 3, 1)


places, states = Size("places", 2048), Size("states", 64, fixed=True)
heads = Size("heads", 16)
h, p, g, f = indices(h=heads, p=places, g=states, f=states)


@nestor.nest
def state_update(key: bf16[batch, places, heads, states], value: bf16[batch, places, heads, states], decay: f32[batch, heads, places]):
    """What a chunk of linear attention leaves: a product whose rows and columns lie a head apart."""
    weighted = define("weighted", (b, p, h, g), key[b, p, h, g] * decay[b, h, p], type=bf16)
    return define("out", (b, h, g, f), nestor.sum(weighted[b, p, h, g] * value[b, p, h, f], over=p))


def _state_update(key, value, decay):
    weighted = (widened(key) * decay.transpose(1, 2)[..., None]).to(key.dtype)
    return widened(weighted.permute(0, 2, 3, 1) @ value.transpose(1, 2))


TINY = {"rows": 7, "width": 11, "inner": 13}
OPERATORS = [
    Operator(gaussian_kernel, _gaussian, "B. Scholkopf and A. Smola, Learning with Kernels, 2002", TINY),
    Operator(linear_rmsnorm, _linear_rmsnorm, "QK-norm before heads are split: Team OLMo, OLMo 2, arXiv:2501.00656", TINY,
             draw={"gain": around_one, "weight": divided("inner")}),
    Operator(gram, _gram, "K. Jordan et al., Muon, 2024", {"rows": 7, "inner": 13}),
    Operator(dense_mixture, _dense_mixture, "R. Jacobs et al., Adaptive Mixtures of Local Experts, 1991", {**TINY, "experts": 3},
             draw={"weight": divided("inner")}),
    Operator(conv1d_gelu, _conv1d, "A. Radford et al., Whisper, arXiv:2212.04356",
             {"batch": 2, "length": 5, "channels": 7, "filters": 9}, draw={"weight": divided("channels")}),
    Operator(depthwise_conv7x7, _depthwise, "Z. Liu et al., ConvNeXt, arXiv:2201.03545",
             {"batch": 2, "height": 5, "across": 3, "maps": 9}, draw={"weight": lambda x, _: x / 7}),
    Operator(state_update, _state_update, "T. Dao and A. Gu, Mamba-2, arXiv:2405.21060",
             {"batch": 2, "places": 7, "heads": 3, "states": 5}, draw={"decay": lambda x, _: (-x.abs()).exp()}),
]
