"""Attention whose scores are made in another way: rotated operands, mixed heads, relative biases, lengths of data, few queries."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f32, i32, indices

from .attention import softmax
from .problem import Operator, widened

SCALE, NARROW_SCALE = 128**-0.5, 64**-0.5
FAR = 128

batch, heads, length = Size("batch", 2), Size("heads", 16), Size("length", 4096)
half, dim = Size("half", 64, fixed=True), Size("head_dim", 128, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)
a, c = indices(a=2 * half, c=2 * half)


@nestor.nest
def rope_attention(q: bf16[batch, heads, length, 2 * half], k: bf16[batch, heads, length, 2 * half],
                   v: bf16[batch, heads, length, dim], cosine: f32[length, half], sine: f32[length, half]):
    def turned(name, x, at):
        first = x[b, h, at, a] * cosine[at, a] - x[b, h, at, a + half] * sine[at, a]
        second = x[b, h, at, a] * cosine[at, a - half] + x[b, h, at, a - half] * sine[at, a - half]
        return define(name, (b, h, at, a), nestor.select(a < half, first, second), type=bf16)
    queries, keys = turned("q_turned", q, i), turned("k_turned", k, j)
    row, seen = (b, h, i), j <= i
    score = define("score", (*row, j), nestor.sum(queries[(*row, c)] * keys[b, h, j, c], over=c) * SCALE, where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _rope(q, k, v, cosine, sine):
    def turned(x):
        first, second = widened(x).chunk(2, -1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)
    return F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, scale=SCALE)


@nestor.nest
def relative_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                       bias: f32[heads, 2 * FAR + 1]):
    """A learnt bias for each distance up to 128, one for all farther keys on either side."""
    row = (b, h, i)
    near = nestor.select(j <= i - FAR, bias[h, 0], bias[h, j - i + FAR])
    distance = nestor.select(j >= i + FAR, bias[h, 2 * FAR], near)
    score = define("score", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE + distance)
    power, total = softmax(score, row, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j) / total[row], type=bf16)


def _relative(q, k, v, bias):
    at = torch.arange(q.shape[-2], device=q.device)
    distance = bias[:, (at - at[:, None]).clamp(-FAR, FAR) + FAR]
    return F.scaled_dot_product_attention(q, k, v, distance.to(q.dtype), scale=SCALE)


@nestor.nest
def padded_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                     lengths: i32[batch]):
    """Keys end at a length for each sequence."""
    row = (b, h, i)
    dot = nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE
    score = define("score", (*row, j), nestor.select(lengths[b] > j, dot, -1e30))
    power, total = softmax(score, row, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j) / total[row], type=bf16)


def _padded(q, k, v, lengths):
    seen = torch.arange(q.shape[-2], device=q.device) < lengths[:, None, None, None]
    return F.scaled_dot_product_attention(q, k, v, seen, scale=SCALE)


few = Size("length", 1024)
m, n, g, f, o, p = indices(m=few, n=few, g=heads, f=heads, o=half, p=half)


@nestor.nest
def talking_heads_attention(q: bf16[batch, heads, few, half], k: bf16[batch, heads, few, half], v: bf16[batch, heads, few, half],
                            before: f32[heads, heads], after: f32[heads, heads]):
    """Scores are mixed over heads before the softmax, weights after it."""
    dot = define("dot", (b, f, m, n), nestor.sum(q[b, f, m, p] * k[b, f, n, p], over=p) * NARROW_SCALE)
    score = define("score", (b, g, m, n), nestor.sum(dot[b, f, m, n] * before[f, g], over=f))
    power, total = softmax(score, (b, g, m), key=n)
    mixed = nestor.sum(power[b, g, m, n] / total[b, g, m] * after[g, h], over=g)
    weight = define("weight", (b, h, m, n), mixed, type=bf16)
    return define("out", (b, h, m, o), nestor.sum(weight[b, h, m, n] * v[b, h, n, o], over=n), type=bf16)


def _talking(q, k, v, before, after):
    score = torch.einsum("bfmn,fg->bgmn", widened(q @ k.transpose(-1, -2)) * NARROW_SCALE, before)
    return torch.einsum("bgmn,gh->bhmn", torch.softmax(score, -1), after).to(v.dtype) @ v


sequences, key_heads, group = Size("sequences", 32), Size("key_heads", 8), Size("group", 8, fixed=True)
keys = Size("keys", 8192)
s, head, member, x = indices(s=sequences, head=key_heads, member=group, x=keys)


@nestor.nest
def decoding_attention(q: bf16[sequences, key_heads, group, dim], k: bf16[sequences, key_heads, keys, dim],
                       v: bf16[sequences, key_heads, keys, dim]):
    """One query for each sequence and head; groups of heads share keys."""
    row = (s, head, member)
    score = define("score", (*row, x), nestor.sum(q[(*row, e)] * k[s, head, x, e], over=e) * SCALE)
    power, total = softmax(score, row, key=x)
    return define("out", (*row, d), nestor.sum(power[(*row, x)] * v[s, head, x, d], over=x) / total[row], type=bf16)


def _decoding(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, scale=SCALE)


queries, hidden = Size("queries", 256), Size("hidden", 128)
t, u, w = indices(t=queries, u=queries, w=hidden)


@nestor.nest
def additive_attention(q: bf16[batch, queries, hidden], k: bf16[batch, queries, hidden], v: bf16[batch, queries, dim],
                       weight: f32[hidden]):
    """No product of queries and keys: a sum of hyperbolic tangents."""
    row = (b, t)
    score = define("score", (*row, u), nestor.sum(weight[w] * nestor.tanh(q[b, t, w] + k[b, u, w]), over=w))
    power, total = softmax(score, row, key=u)
    return define("out", (*row, d), nestor.sum(power[(*row, u)] * v[b, u, d], over=u) / total[row], type=bf16)


def _additive(q, k, v, weight):
    score = (torch.tanh(widened(q)[:, :, None] + widened(k)[:, None]) * weight).sum(-1)
    return torch.softmax(score, -1).to(v.dtype) @ v


@nestor.nest
def linear_attention(q: bf16[batch, heads, length, half], k: bf16[batch, heads, length, half], v: bf16[batch, heads, length, half]):
    """Without a softmax: keys and values are summed first."""
    def feature(value):
        return nestor.select(value > 0.0, value + 1, nestor.exp(nestor.minimum(value, 0.0)))
    keys = define("k_feature", (b, h, j, p), feature(k[b, h, j, p]), type=bf16)
    summed = define("summed", (b, h, p, o), nestor.sum(keys[b, h, j, p] * v[b, h, j, o], over=j), type=bf16)
    count = define("count", (b, h, p), nestor.sum(keys[b, h, j, p], over=j))
    seen = define("q_feature", (b, h, i, p), feature(q[b, h, i, p]), type=bf16)
    size = define("size", (b, h, i), nestor.sum(seen[b, h, i, p] * count[b, h, p], over=p))
    return define("out", (b, h, i, o), nestor.sum(seen[b, h, i, p] * summed[b, h, p, o], over=p) / size[b, h, i], type=bf16)


def _linear(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    size = widened(q) @ widened(k).sum(-2)[..., None]
    return (widened(q @ (k.transpose(-1, -2) @ v)) / size).to(v.dtype)


TINY = {"batch": 2, "heads": 3, "length": 13, "head_dim": 5}
ROTATED = {"cosine": lambda x, _: x.cos(), "sine": lambda x, _: x.sin()}
OPERATORS = [
    Operator(rope_attention, _rope, "J. Su et al., RoFormer, arXiv:2104.09864", {**TINY, "half": 3}, draw=ROTATED),
    Operator(relative_attention, _relative, "P. Shaw et al., arXiv:1803.02155; C. Raffel et al., T5, arXiv:1910.10683",
             {**TINY, "length": 7}),
    Operator(padded_attention, _padded, "J. Devlin et al., BERT, arXiv:1810.04805", TINY,
             draw={"lengths": lambda x, sizes: 1 + (x.abs() * 1e4).long() % sizes["length"]}),
    Operator(talking_heads_attention, _talking, "N. Shazeer et al., Talking-Heads Attention, arXiv:2003.02436",
             {"batch": 2, "heads": 3, "length": 7, "half": 5}, draw={"before": lambda x, _: x / 4, "after": lambda x, _: x / 4}),
    Operator(decoding_attention, _decoding, "J. Ainslie et al., GQA, arXiv:2305.13245; T. Dao et al., Flash-Decoding, 2023",
             {"sequences": 2, "key_heads": 3, "group": 2, "keys": 13, "head_dim": 5}),
    Operator(additive_attention, _additive, "D. Bahdanau et al., arXiv:1409.0473",
             {"batch": 2, "queries": 7, "hidden": 5, "head_dim": 3}, draw={"weight": lambda x, _: x / 4}),
    Operator(linear_attention, _linear, "A. Katharopoulos et al., arXiv:2006.16236", {"batch": 2, "heads": 3, "length": 13, "half": 5}),
]
