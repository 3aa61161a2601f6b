"""Attention of other keys, values and shares: tied, cached in bytes, seen as a tree, of polynomials, in the exponential, by thresholds."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .attention import softmax
from .layered import _bytes
from .problem import Operator, divided, widened

batch, heads, length, dim = Size("batch", 2), Size("heads", 16), Size("length", 2048), Size("head_dim", 128, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)
SCALE = 128**-0.5

shared, ways, half = Size("shared", 4), Size("ways", 8), Size("half", 64, fixed=True)
s, w, f, f2, wide = indices(s=shared, w=ways, f=half, f2=half, wide=2 * half)


@nestor.nest
def grouped_tied_attention(q: bf16[batch, shared, ways, length, 2 * half], tied: bf16[batch, shared, length, 2 * half],
                           turned: bf16[batch, length, half]):
    """Half of a value is half of its key; the other half of all keys is one row, which was rotated."""
    row, seen = (b, s, w, i), j <= i
    near = nestor.sum(q[(*row, f)] * tied[b, s, j, f], over=f) + nestor.sum(q[(*row, half + f2)] * turned[b, j, f2], over=f2)
    score = define("score", (*row, j), near * SCALE, where=seen)
    power, total = softmax(score, row, seen, key=j)
    found = nestor.sum(power[(*row, j)] * tied[b, s, j, wide], over=j, where=seen)
    return define("out", (*row, wide), found / total[row], type=bf16)


def _tied(q, tied, turned):
    half = turned.shape[-1]
    key = torch.cat([tied[..., :half], turned[:, None].expand(-1, tied.shape[1], -1, -1)], -1)
    many = [x.repeat_interleave(q.shape[2], 1) for x in (key, tied)]
    return F.scaled_dot_product_attention(q.flatten(1, 2), *many, is_causal=True, scale=SCALE).view(q.shape)


@nestor.nest
def laser_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
    """Attention to exp(values), and the logarithm of what it gives: values are kept below their largest, column by column."""
    row, seen = (b, h, i), j <= i
    high = define("high", (b, h, d), nestor.max(v[b, h, j, d], over=j))
    grown = define("grown", (b, h, j, d), nestor.exp(v[b, h, j, d] - high[b, h, d]), type=bf16)
    score = define("score", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE, where=seen)
    power, total = softmax(score, row, seen, key=j)
    found = nestor.sum(power[(*row, j)] * grown[b, h, j, d], over=j, where=seen) / total[row]
    return define("out", (*row, d), nestor.log(found + 1e-6) + high[b, h, d], type=bf16)


def _laser(q, k, v):
    high = widened(v).amax(2, keepdim=True)
    found = F.scaled_dot_product_attention(q, k, (widened(v) - high).exp().to(v.dtype), is_causal=True, scale=SCALE)
    return ((widened(found) + 1e-6).log() + high).to(v.dtype)


@nestor.nest
def polynomial_attention(q: f16[batch, heads, length, dim], k: f16[batch, heads, length, dim], v: f16[batch, heads, length, dim]):
    """Shares are fourth powers of products."""
    row, seen = (b, h, i), j <= i
    near = define("near", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE, where=seen)
    square = near[(*row, j)] * near[(*row, j)]
    power = define("power", (*row, j), square * square, where=seen)
    total = nestor.sum(power[(*row, j)], over=j, where=seen)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / (total + 1e-3), type=f16)


def _polynomial(q, k, v):
    power = (widened(q @ k.transpose(-1, -2)) * SCALE).pow(4).tril()
    return (widened(power.to(v.dtype) @ v) / (power.sum(-1, keepdim=True) + 1e-3)).to(v.dtype)


windows, crew, tall, broad, small = Size("windows", 25), Size("crew", 12), Size("tall", 14), Size("broad", 14), Size("small", 64, fixed=True)
n, c, y, x, y2, x2, o, o2 = indices(n=windows, c=crew, y=tall, x=broad, y2=tall, x2=broad, o=small, o2=small)


@nestor.nest
def decomposed_position_attention(q: f16[windows, crew, tall, broad, small], k: f16[windows, crew, tall, broad, small],
                                  v: f16[windows, crew, tall, broad, small], down: f16[2 * tall - 1, small], aside: f16[2 * broad - 1, small]):
    """MViTv2 and SAM: a query's products with a table of rows apart, and with one of columns apart, are added to its scores."""
    row, key = (n, c, y, x), (y2, x2)
    below = define("below", (*row, y2), nestor.sum(q[(*row, o)] * down[y - y2 + tall - 1, o], over=o))
    beside = define("beside", (*row, x2), nestor.sum(q[(*row, o)] * aside[x - x2 + broad - 1, o], over=o))
    dot = nestor.sum(q[(*row, o)] * k[n, c, y2, x2, o], over=o) * 0.125
    score = define("score", (*row, *key), dot + below[(*row, y2)] + beside[(*row, x2)])
    top = define("top", row, nestor.max(score[(*row, *key)], over=key))
    power = define("power", (*row, *key), nestor.exp(score[(*row, *key)] - top[row]))
    total = define("total", row, nestor.sum(power[(*row, *key)], over=key))
    return define("out", (*row, o2), nestor.sum(power[(*row, *key)] * v[n, c, y2, x2, o2], over=key) / total[row], type=f16)


def _decomposed(q, k, v, down, aside):
    at, across = (torch.arange(size, device=q.device) for size in q.shape[2:4])
    below = torch.einsum("ncyxo,yvo->ncyxv", q, down[at[:, None] - at + len(at) - 1])
    beside = torch.einsum("ncyxo,xuo->ncyxu", q, aside[across[:, None] - across + len(across) - 1])
    bias = (below[..., None] + beside[..., None, :]).flatten(4).flatten(2, 3)
    found = F.scaled_dot_product_attention(*(each.flatten(2, 3) for each in (q, k, v)), attn_mask=bias, scale=0.125)
    return found.view(q.shape)


caches, fours, nodes, known = Size("caches", 16), Size("fours", 4), Size("nodes", 32), Size("known", 4096)
a, u, t, t2, p = indices(a=caches, u=fours, t=nodes, t2=nodes, p=known + nodes)


@nestor.nest
def tree_decoding(q: bf16[caches, shared, fours, nodes, dim], k: bf16[caches, shared, known + nodes, dim], v: bf16[caches, shared, known + nodes, dim],
                  ancestors: i32[nodes, nodes]):
    """Speculative decoding: candidates of a tree see all that is known, and their ancestors behind it."""
    row = (a, s, u, t)
    dot = nestor.sum(q[(*row, e)] * k[a, s, p, e], over=e) * SCALE
    score = define("score", (*row, p), nestor.select(p < known, dot, nestor.select(ancestors[t, p - known] != 0, dot, -1e30)))
    power, total = softmax(score, row, key=p)
    return define("out", (*row, d), nestor.sum(power[(*row, p)] * v[a, s, p, d], over=p) / total[row], type=bf16)


def _tree(q, k, v, ancestors):
    many = [x.repeat_interleave(q.shape[2], 1) for x in (k, v)]
    seen = F.pad(ancestors != 0, (k.shape[2] - ancestors.shape[1], 0), value=True)
    return F.scaled_dot_product_attention(q.flatten(1, 2), *many, attn_mask=seen, scale=SCALE).view(q.shape)


words = Size("words", 32, fixed=True)
m, k4, k5, cached = indices(m=fours, k4=4 * words, k5=4 * words, cached=known)


@nestor.nest
def quantised_cache_decoding(q: f16[caches, shared, fours, 4 * words], keys: i32[caches, shared, known, words], key_scale: f16[caches, shared, known],
                             values: i32[caches, shared, known, words], value_scale: f16[caches, shared, known]):
    """Keys and values are bytes, four in a word, with a scale for each token."""
    def whole(name, packed, scale):
        byte = nestor.cast(f32, ((packed[a, s, cached, k4 // 4] >> (8 * (k4 % 4))) & 255) - 128)
        return define(name, (a, s, cached, k4), byte * scale[a, s, cached], type=f16)
    key, value, row = whole("key", keys, key_scale), whole("value", values, value_scale), (a, s, m)
    score = define("score", (*row, cached), nestor.sum(q[(*row, k4)] * key[a, s, cached, k4], over=k4) * SCALE)
    power, total = softmax(score, row, key=cached)
    return define("out", (*row, k5), nestor.sum(power[(*row, cached)] * value[a, s, cached, k5], over=cached) / total[row], type=f16)


def _quantised(q, keys, key_scale, values, value_scale):
    key, value = ((_bytes(x.flatten(0, 2)).view(*x.shape[:3], -1) * scale[..., None]).to(q.dtype) for x, scale in ((keys, key_scale), (values, value_scale)))
    return F.scaled_dot_product_attention(q, key, value, scale=SCALE)


rows, columns, cuts = Size("rows", 4096), Size("columns", 1024), Size("cuts", 25)
r, z, cut, turn = indices(r=rows, z=columns, cut=cuts, turn=cuts - 1)


@nestor.nest
def sparse_shares(score: f32[rows, columns]):
    """Sparsemax and its threshold, found by halving: a sum of each row decides in which half it is."""
    top = define("top", r, nestor.max(score[r, z], over=z))
    low = define("low", (r, cut), top[r] - 1, where=cut == 0)
    with nestor.steps(turn):
        step = define("step", (turn, r), nestor.exp2(nestor.cast(f32, -1 - turn)))
        mass = define("mass", (turn, r), nestor.sum(nestor.maximum(score[r, z] - low[r, turn] - step[turn, r], 0.0), over=z))
        low.write((turn, r), (r, turn + 1), nestor.select(mass[turn, r] >= 1, low[r, turn] + step[turn, r], low[r, turn]))
    return define("out", (r, z), nestor.maximum(score[r, z] - low[r, cuts - 1], 0.0)), low


def _sparse(score, cuts):
    low = [score.amax(-1) - 1]
    for turn in range(cuts - 1):
        middle = low[-1] + 0.5**(turn + 1)
        low.append(torch.where((score - middle[:, None]).clamp(min=0).sum(-1) >= 1, middle, low[-1]))
    return (score - low[-1][:, None]).clamp(min=0), torch.stack(low, -1)


def _tree_of(normal, _):
    """Each node's parent is half its number."""
    seen = torch.eye(len(normal))
    for node in range(1, len(normal)):
        seen[node] += seen[(node - 1) // 2]
    return seen.to(normal.device)


def _packed_words(normal, _):
    return (normal * 5e8).long()


ATTENTION = {"batch": 2, "heads": 2, "length": 7, "head_dim": 6}
OPERATORS = [
    Operator(grouped_tied_attention, _tied, "T. Zadouri et al., arXiv:2505.21487", {"batch": 2, "shared": 2, "ways": 3, "length": 7, "half": 3}),
    Operator(laser_attention, _laser, "S. Duvvuri and I. Dhillon, arXiv:2411.03493", ATTENTION),
    Operator(polynomial_attention, _polynomial, "P. Kacham et al., PolySketchFormer, arXiv:2310.01655", ATTENTION),
    Operator(decomposed_position_attention, _decomposed, "Y. Li et al., MViTv2, arXiv:2112.01526",
             {"windows": 2, "crew": 2, "tall": 3, "broad": 4, "small": 5}, draw={"down": divided("small"), "aside": divided("small")}),
    Operator(tree_decoding, _tree, "X. Miao et al., SpecInfer, arXiv:2305.09781",
             {"caches": 2, "shared": 2, "fours": 3, "nodes": 5, "known": 7, "head_dim": 6}, draw={"ancestors": _tree_of}),
    Operator(quantised_cache_decoding, _quantised, "C. Hooper et al., KVQuant, arXiv:2401.18079",
             {"caches": 2, "shared": 2, "fours": 3, "known": 7, "words": 2},
             draw={name: _packed_words for name in ("keys", "values")} | {f"{name}_scale": lambda x, _: 0.01 + 0.001 * x.abs() for name in ("key", "value")}),
    Operator(sparse_shares, _sparse, "A. Martins and R. Astudillo, arXiv:1602.02068", {"rows": 3, "columns": 5, "cuts": 9}, told=("cuts",)),
]
