"""Reductions along other dims than rows: columns, channels, windows, prefixes; losses over odd vocabularies; recurrences."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, widened

EPS = 1e-5

images, places, channels = Size("images", 64), Size("places", 3136), Size("channels", 256)
n, s, c, n2, s2 = indices(n=images, s=places, c=channels, n2=images, s2=places)


@nestor.nest
def batchnorm_relu(x: f16[images, places, channels], weight: f32[channels], bias: f32[channels]):
    """Statistics of each channel over all images and places, channels last."""
    mean = define("mean", c, nestor.sum(x[n2, s2, c], over=(n2, s2)) / images / places)
    apart = x[n2, s2, c] - mean[c]
    variance = define("variance", c, nestor.sum(apart * apart, over=(n2, s2)) / images / places)
    normed = (x[n, s, c] - mean[c]) * nestor.rsqrt(variance[c] + EPS) * weight[c] + bias[c]
    return define("out", (n, s, c), nestor.maximum(normed, 0.0), type=f16)


def _batchnorm(x, weight, bias):
    flat = x.flatten(0, 1)
    return torch.relu(F.batch_norm(flat, None, None, weight.to(x.dtype), bias.to(x.dtype), True, 0.0, EPS)).view(x.shape)


rows, width = Size("rows", 8192), Size("width", 4096)
r, w, r2 = indices(r=rows, w=width, r2=rows)


@nestor.nest
def column_softmax(x: bf16[rows, width]):
    top = define("top", w, nestor.max(x[r2, w], over=r2))
    total = define("total", w, nestor.sum(nestor.exp(x[r2, w] - top[w]), over=r2))
    return define("out", (r, w), nestor.exp(x[r, w] - top[w]) / total[w], type=bf16)


def _column_softmax(x):
    return torch.softmax(x, 0)


vocabulary = Size("vocabulary", 50257)
(v,) = indices(v=vocabulary)
SMOOTHING = 0.1


@nestor.nest
def smoothed_cross_entropy(logits: bf16[rows, vocabulary], target: i32[rows]):
    top = define("top", r, nestor.max(logits[r, v], over=v))
    total = nestor.sum(nestor.exp(logits[r, v] - top[r]), over=v)
    chosen = nestor.sum(nestor.select(target[r] == v, logits[r, v], 0.0), over=v)
    mean = nestor.sum(logits[r, v], over=v) / vocabulary
    return define("loss", r, top[r] + nestor.log(total) - (1 - SMOOTHING) * chosen - SMOOTHING * mean)


def _smoothed(logits, target):
    return F.cross_entropy(widened(logits), target.long(), reduction="none", label_smoothing=SMOOTHING)


batch, steps, lanes = Size("batch", 512), Size("steps", 64), Size("lanes", 1024)
b, d, t, after = indices(b=batch, d=lanes, t=steps, after=steps - 1)


@nestor.nest
def gated_recurrence(x: bf16[batch, steps, lanes], forget: bf16[batch, steps, lanes]):
    """state = f state + (1 - f) x, step by step."""
    state = define("state", (b, t, d), (1 - forget[b, t, d]) * x[b, t, d], where=t == 0)
    at = (b, after + 1, d)
    state.write((b, after, d), at, forget[at] * state[b, after, d] + (1 - forget[at]) * x[at])
    return state


def _recurrence(x, forget):
    x, forget = widened(x), widened(forget)
    states = [(1 - forget[:, 0]) * x[:, 0]]
    for step in range(1, x.shape[1]):
        states.append(forget[:, step] * states[-1] + (1 - forget[:, step]) * x[:, step])
    return torch.stack(states, 1)


@nestor.nest
def max_pool(x: f16[images, 2 * 56 + 1, 2 * 56 + 1, channels]):
    y, z, p, q = indices(y=56, z=56, p=3, q=3)
    return define("out", (n, y, z, c), nestor.max(x[n, 2 * y + p, 2 * z + q, c], over=(p, q)), type=f16)


def _max_pool(x):
    return F.max_pool2d(x.permute(0, 3, 1, 2), 3, 2).permute(0, 2, 3, 1)


odd = Size("width", 1000)
k, k2 = indices(k=odd, k2=odd)


@nestor.nest
def unit_rows(x: bf16[rows, odd], weight: bf16[odd]):
    size = define("size", r, nestor.sqrt(nestor.sum(x[r, k2] * x[r, k2], over=k2)))
    return define("out", (r, k), x[r, k] / nestor.maximum(size[r], 1e-6) * weight[k], type=bf16)


def _unit_rows(x, weight):
    return F.normalize(x, dim=-1, eps=1e-6) * weight


OPERATORS = [
    Operator(batchnorm_relu, _batchnorm, "S. Ioffe and C. Szegedy, arXiv:1502.03167", {"images": 3, "places": 7, "channels": 5},
             draw={"weight": around_one}),
    Operator(column_softmax, _column_softmax, "F. Locatello et al., Slot Attention, arXiv:2006.15055", {"rows": 7, "width": 11}),
    Operator(smoothed_cross_entropy, _smoothed, "C. Szegedy et al., arXiv:1512.00567", {"rows": 7, "vocabulary": 17},
             draw={"target": lambda x, sizes: (x * 1e6).long() % sizes["vocabulary"]}),
    Operator(gated_recurrence, _recurrence, "L. Feng et al., Were RNNs All We Needed?, arXiv:2410.01201",
             {"batch": 2, "steps": 7, "lanes": 5}, draw={"forget": lambda x, _: x.sigmoid()}),
    Operator(max_pool, _max_pool, "K. He et al., ResNet, arXiv:1512.03385", {"images": 1, "channels": 3}),
    Operator(unit_rows, _unit_rows, "Y. Wang et al., nGPT, arXiv:2410.01131", {"rows": 7, "width": 11}, draw={"weight": around_one}),
]
