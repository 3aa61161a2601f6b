"""What models have beside the usual layers: contrastive losses, distances, forms of two vectors, keys of few projections, shifted tokens."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened

EPS = 1e-5
SCALE, TEMPERATURE = 0.125, 0.07

rows, width, inner = Size("rows", 4096), Size("width", 4096), Size("inner", 256)
r, c, k = indices(r=rows, c=width, k=inner)


@nestor.nest
def info_nce(x: bf16[rows, inner], y: bf16[rows, inner]):
    """Rows that belong together against all others."""
    (other,) = indices(other=rows)
    score = define("score", (r, other), nestor.sum(x[r, k] * y[other, k], over=k) / TEMPERATURE)
    top = define("top", r, nestor.max(score[r, other], over=other))
    total = define("total", r, nestor.sum(nestor.exp(score[r, other] - top[r]), over=other))
    own = nestor.sum(x[r, k] * y[r, k], over=k) / TEMPERATURE
    return define("loss", r, top[r] + nestor.log(total[r]) - own)


def _info_nce(x, y):
    score = widened(x @ y.T) / TEMPERATURE
    return torch.logsumexp(score, -1) - (widened(x) * widened(y)).sum(-1) / TEMPERATURE


few, near = Size("rows", 1024), Size("inner", 64)
i, j, e = indices(i=few, j=few, e=near)


@nestor.nest
def pairwise_l1(x: bf16[few, near], y: bf16[few, near]):
    return define("out", (i, j), nestor.sum(nestor.absolute(x[i, e] - y[j, e]), over=e))


def _pairwise_l1(x, y):
    return torch.cdist(widened(x), widened(y), p=1)


deep = Size("inner", 1024)
a, b = indices(a=deep, b=deep)


@nestor.nest
def bilinear_form(x: bf16[rows, deep], weight: bf16[deep, deep], y: bf16[rows, deep]):
    """A number for each pair of vectors."""
    turned = define("turned", (r, a), nestor.sum(weight[a, b] * y[r, b], over=b))
    return define("out", r, nestor.sum(turned[r, a] * x[r, a], over=a))


def _bilinear_form(x, weight, y):
    return (widened(y @ weight.T) * widened(x)).sum(-1)


across = Size("width", 2048)
w, w2, w3 = indices(w=across, w2=across, w3=across)


@nestor.nest
def swish_layernorm(x: f16[rows, across], weight: f32[across], bias: f32[across]):
    mean = define("mean", r, nestor.sum(x[r, w2], over=w2) / across)
    apart = x[r, w3] - mean[r]
    variance = define("variance", r, nestor.sum(apart * apart, over=w3) / across)
    normed = (x[r, w] - mean[r]) * nestor.rsqrt(variance[r] + EPS) * weight[w] + bias[w]
    return define("out", (r, w), x[r, w] / (1 + nestor.exp(-normed)), type=f16)


def _swish_layernorm(x, weight, bias):
    normed = F.layer_norm(widened(x), weight.shape, weight.to(widened(x).dtype), bias.to(widened(x).dtype), EPS)
    return (widened(x) * torch.sigmoid(normed)).to(x.dtype)


batch, length, heads = Size("batch", 4), Size("length", 4096), Size("heads", 16)
parts, dim = Size("parts", 256, fixed=True), Size("head_dim", 64, fixed=True)
n, h, t, s, p, d, f = indices(n=batch, h=heads, t=length, s=length, p=parts, d=dim, f=dim)


@nestor.nest
def linformer_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                        project: bf16[parts, length]):
    """Keys and values are projected to few first."""
    keys = define("keys", (n, h, p, d), nestor.sum(project[p, s] * k[n, h, s, d], over=s), type=bf16)
    values = define("values", (n, h, p, d), nestor.sum(project[p, s] * v[n, h, s, d], over=s), type=bf16)
    score = define("score", (n, h, t, p), nestor.sum(q[n, h, t, d] * keys[n, h, p, d], over=d) * SCALE)
    top = define("top", (n, h, t), nestor.max(score[n, h, t, p], over=p))
    power = define("power", (n, h, t, p), nestor.exp(score[n, h, t, p] - top[n, h, t]))
    total = define("total", (n, h, t), nestor.sum(power[n, h, t, p], over=p))
    summed = nestor.sum(power[n, h, t, p] * values[n, h, p, f], over=p)
    return define("out", (n, h, t, f), summed / total[n, h, t], type=bf16)


def _linformer(q, k, v, project):
    return F.scaled_dot_product_attention(q, project @ k, project @ v, scale=SCALE)


tokens, wide = Size("tokens", 1024), Size("inner", 1024)
m, o, u = indices(m=tokens, o=across, u=wide)


@nestor.nest
def token_shift_linear(x: bf16[batch, tokens + 1, wide], mix: f32[wide], weight: bf16[across, wide]):
    """Each token is mixed with the one before it; the first is given."""
    shifted = define("shifted", (n, m, u), x[n, m + 1, u] * mix[u] + x[n, m, u] * (1 - mix[u]), type=bf16)
    return define("out", (n, m, o), nestor.sum(shifted[n, m, u] * weight[o, u], over=u), type=bf16)


def _token_shift(x, mix, weight):
    shifted = widened(x[:, 1:]) * mix + widened(x[:, :-1]) * (1 - mix)
    return shifted.to(x.dtype) @ weight.T


OPERATORS = [
    Operator(info_nce, _info_nce, "A. van den Oord et al., arXiv:1807.03748", {"rows": 7, "inner": 13},
             draw={"x": divided("inner"), "y": divided("inner")}),
    Operator(pairwise_l1, _pairwise_l1, "C. Aggarwal et al., On the Surprising Behavior of Distance Metrics, 2001",
             {"rows": 7, "inner": 5}),
    Operator(bilinear_form, _bilinear_form, "T. Dozat and C. Manning, arXiv:1611.01734", {"rows": 7, "inner": 13},
             draw={"weight": divided("inner")}),
    Operator(swish_layernorm, _swish_layernorm, "J. Zhai et al., HSTU, arXiv:2402.17152", {"rows": 5, "width": 17},
             draw={"weight": around_one}),
    Operator(linformer_attention, _linformer, "S. Wang et al., Linformer, arXiv:2006.04768",
             {"batch": 2, "heads": 3, "length": 13, "parts": 5, "head_dim": 5}, draw={"project": divided("length")}),
    Operator(token_shift_linear, _token_shift, "B. Peng et al., RWKV, arXiv:2305.13048",
             {"batch": 2, "tokens": 5, "inner": 13, "width": 7}, draw={"mix": lambda x, _: x.sigmoid(), "weight": divided("inner")}),
]
