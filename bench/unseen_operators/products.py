"""Products of matrices and what papers put around them."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

EPS = 1e-6

rows, width, inner = Size("rows", 4096), Size("width", 8192), Size("inner", 2048)
r, c, k = indices(r=rows, c=width, k=inner)


def gelu(x):
    return 0.5 * x * (1 + nestor.erf(x * 0.7071067811865476))


@nestor.nest
def geglu(x: bf16[rows, inner], gate: bf16[width, inner], up: bf16[width, inner]):
    gated = nestor.sum(x[r, k] * gate[c, k], over=k)
    return define("out", (r, c), gelu(gated) * nestor.sum(x[r, k] * up[c, k], over=k), type=bf16)


def _geglu(x, gate, up):
    return F.gelu(x @ gate.T) * (x @ up.T)


@nestor.nest
def relu2_up(x: bf16[rows, inner], weight: bf16[width, inner]):
    up = define("up", (r, c), nestor.sum(x[r, k] * weight[c, k], over=k), type=bf16)
    positive = nestor.maximum(up[r, c], 0.0)
    return define("out", (r, c), positive * positive, type=bf16)


def _relu2(x, weight):
    return torch.relu(x @ weight.T).square()


rank = Size("rank", 16, fixed=True)
(p,) = indices(p=rank)


@nestor.nest
def lora(x: bf16[rows, inner], weight: bf16[width, inner], down: bf16[rank, inner], up: bf16[width, rank], scale=2.0):
    low = define("low", (r, p), nestor.sum(x[r, k] * down[p, k], over=k), type=bf16)
    whole, adapted = nestor.sum(x[r, k] * weight[c, k], over=k), nestor.sum(low[r, p] * up[c, p], over=p)
    return define("out", (r, c), whole + scale * adapted, type=bf16)


def _lora(x, weight, down, up):
    return x @ weight.T + 2.0 * ((x @ down.T) @ up.T)


@nestor.nest
def rmsnorm_linear(x: bf16[rows, inner], gain: bf16[inner], weight: bf16[width, inner]):
    scale = define("scale", r, nestor.rsqrt(nestor.sum(x[r, k] * x[r, k], over=k) / inner + EPS))
    normed = define("normed", (r, k), x[r, k] * scale[r] * gain[k], type=bf16)
    return define("out", (r, c), nestor.sum(normed[r, k] * weight[c, k], over=k), type=bf16)


def _rmsnorm_linear(x, gain, weight):
    return F.rms_norm(x, x.shape[-1:], gain, EPS) @ weight.T


vocabulary = Size("vocabulary", 32768)
(w,) = indices(w=vocabulary)


@nestor.nest
def linear_cross_entropy(x: bf16[rows, inner], weight: bf16[vocabulary, inner], target: i32[rows]):
    logit = define("logit", (r, w), nestor.sum(x[r, k] * weight[w, k], over=k))
    top = define("top", r, nestor.max(logit[r, w], over=w))
    total = nestor.sum(nestor.exp(logit[r, w] - top[r]), over=w)
    chosen = nestor.sum(nestor.select(target[r] == w, logit[r, w], 0.0), over=w)
    return define("loss", r, top[r] + nestor.log(total) - chosen)


def _linear_cross_entropy(x, weight, target):
    return F.cross_entropy(widened(x @ weight.T), target.long(), reduction="none")


tokens, experts = Size("tokens", 65536), Size("experts", 64, fixed=True)
o, x1, x2 = indices(o=tokens, x1=experts, x2=experts)


@nestor.nest
def router(x: bf16[tokens, inner], weight: bf16[experts, inner]):
    logit = define("logit", (o, x1), nestor.sum(x[o, k] * weight[x1, k], over=k))
    top = define("top", o, nestor.max(logit[o, x2], over=x2))
    power = define("power", (o, x1), nestor.exp(logit[o, x1] - top[o]))
    return define("out", (o, x1), power[o, x1] / nestor.sum(power[o, x2], over=x2))


def _router(x, weight):
    return torch.softmax(widened(x @ weight.T), -1)


batch, height, across = Size("batch", 32), Size("height", 56), Size("across", 56)
channels, filters = Size("channels", 256, fixed=True), Size("filters", 256)
b, y, z, m, n, s, t = indices(b=batch, y=height, z=across, m=filters, n=channels, s=3, t=3)


@nestor.nest
def conv3x3_relu(x: f16[batch, height + 2, across + 2, channels], weight: f16[filters, 3, 3, channels], bias: f16[filters]):
    found = nestor.sum(x[b, y + s, z + t, n] * weight[m, s, t, n], over=(s, t, n))
    return define("out", (b, y, z, m), nestor.maximum(found + bias[m], 0.0), type=f16)


def _conv3x3(x, weight, bias):
    return torch.relu(F.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias)).permute(0, 2, 3, 1)


length, pair = Size("length", 384), Size("channels", 128)
i, j, q, l = indices(i=length, j=length, q=length, l=pair)


@nestor.nest
def triangle_multiply(a: bf16[length, length, pair], b: bf16[length, length, pair], gate: bf16[length, length, pair]):
    found = nestor.sum(a[i, q, l] * b[j, q, l], over=q)
    return define("out", (i, j, l), found / (1 + nestor.exp(-gate[i, j, l])), type=bf16)


def _triangle(a, b, gate):
    return torch.einsum("ikc,jkc->ijc", a, b) * torch.sigmoid(gate)


sequences, hidden = Size("sequences", 512), Size("hidden", 32, fixed=True)
v, g, f = indices(v=sequences, g=hidden, f=hidden)


@nestor.nest
def outer_product_mean(a: bf16[sequences, length, hidden], b: bf16[sequences, length, hidden]):
    return define("out", (i, j, g, f), nestor.sum(a[v, i, g] * b[v, j, f], over=v) / sequences, type=bf16)


def _outer_product_mean(a, b):
    return torch.einsum("sic,sjd->ijcd", a, b) / a.shape[0]


TINY = {"rows": 7, "width": 11, "inner": 13}
OPERATORS = [
    Operator(geglu, _geglu, "N. Shazeer, GLU Variants, arXiv:2002.05202", TINY,
             draw={"gate": divided("inner"), "up": divided("inner")}),
    Operator(relu2_up, _relu2, "D. So et al., Primer, arXiv:2109.08668", TINY, draw={"weight": divided("inner")}),
    Operator(lora, _lora, "E. Hu et al., LoRA, arXiv:2106.09685", {**TINY, "rank": 3},
             draw={"weight": divided("inner"), "down": divided("inner"), "up": divided("rank")}),
    Operator(rmsnorm_linear, _rmsnorm_linear, "B. Zhang and R. Sennrich, arXiv:1910.07467; Llama, arXiv:2302.13971", TINY,
             draw={"gain": around_one, "weight": divided("inner")}),
    Operator(linear_cross_entropy, _linear_cross_entropy, "E. Wijmans et al., Cut Your Losses, arXiv:2411.09009",
             {"rows": 7, "inner": 5, "vocabulary": 17},
             draw={"weight": divided("inner"), "target": lambda x, sizes: (x * 1e6).long() % sizes["vocabulary"]}),
    Operator(router, _router, "W. Fedus et al., Switch Transformer, arXiv:2101.03961", {"tokens": 7, "inner": 9, "experts": 5},
             draw={"weight": divided("inner")}),
    Operator(conv3x3_relu, _conv3x3, "K. Simonyan and A. Zisserman, VGG, arXiv:1409.1556",
             {"batch": 2, "height": 5, "across": 3, "channels": 7, "filters": 9}, draw={"weight": divided("channels")}),
    Operator(triangle_multiply, _triangle, "J. Jumper et al., AlphaFold, Nature 596, 2021", {"length": 7, "channels": 5}),
    Operator(outer_product_mean, _outer_product_mean, "J. Jumper et al., AlphaFold, Nature 596, 2021",
             {"sequences": 9, "length": 5, "hidden": 3}),
]
