"""Weighted sums of values without a softmax: sigmoid, squared ReLU, retention, the part of linear attention inside a chunk."""

import torch

import nestor
from nestor import Size, bf16, define, f32, indices

from .problem import Operator, widened

SCALE = 0.125

batch, heads, length = Size("batch", 4), Size("heads", 16), Size("length", 2048)
dim = Size("head_dim", 64, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)


@nestor.nest
def sigmoid_causal_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim],
                             v: bf16[batch, heads, length, dim], bias=-7.625):
    row, seen = (b, h, i), j <= i
    score = nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * SCALE + bias
    weight = define("weight", (*row, j), 1 / (1 + nestor.exp(-score)), where=seen)
    return define("out", (*row, d), nestor.sum(weight[(*row, j)] * v[b, h, j, d], over=j, where=seen), type=bf16)


def _sigmoid(q, k, v):
    weight = torch.sigmoid(widened(q @ k.transpose(-1, -2)) * SCALE - 7.625)
    return weight.to(v.dtype).tril() @ v


@nestor.nest
def relu2_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
    row = (b, h, i)
    score = define("score", (*row, j), nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * SCALE)
    positive = nestor.maximum(score[(*row, j)], 0.0)
    weight = define("weight", (*row, j), positive * positive / length, type=bf16)
    return define("out", (*row, d), nestor.sum(weight[(*row, j)] * v[b, h, j, d], over=j), type=bf16)


def _relu2(q, k, v):
    return (torch.relu(widened(q @ k.transpose(-1, -2)) * SCALE)**2 / q.shape[-2]).to(v.dtype) @ v


@nestor.nest
def retention_scaled(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                     log_decay: f32[heads]):
    row, seen = (b, h, i), j <= i
    decay = nestor.exp((i - j) * log_decay[h])
    score = define("score", (*row, j), nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * SCALE * decay, where=seen)
    size = define("size", row, nestor.maximum(nestor.absolute(nestor.sum(score[(*row, j)], over=j, where=seen)), 1.0))
    return define("out", (*row, d), nestor.sum(score[(*row, j)] * v[b, h, j, d], over=j, where=seen) / size[row], type=bf16)


def _retention(q, k, v, log_decay):
    at = torch.arange(q.shape[-2], device=q.device)
    decay = ((at[:, None] - at).clamp(min=0) * log_decay[:, None, None]).exp()
    score = (widened(q @ k.transpose(-1, -2)) * SCALE * decay).tril()
    return ((score / score.sum(-1, keepdim=True).abs().clamp(min=1)).to(v.dtype)) @ v


chunks, inside, state = Size("chunks", 64), Size("chunk", 256, fixed=True), Size("state", 128, fixed=True)
c, y, x, n = indices(c=chunks, y=inside, x=inside, n=state)


@nestor.nest
def ssd_chunk(query: bf16[batch, chunks, inside, state], key: bf16[batch, chunks, inside, state],
              value: bf16[batch, chunks, inside, heads, dim], log_decay: f32[batch, heads, chunks, inside]):
    """log_decay: summed from the chunk's begin."""
    seen = x <= y
    score = define("score", (b, c, y, x), nestor.sum(query[b, c, y, n] * key[b, c, x, n], over=n), where=seen)
    decay = nestor.exp(log_decay[b, h, c, y] - log_decay[b, h, c, x])
    weight = define("weight", (b, c, h, y, x), score[b, c, y, x] * decay, where=seen, type=bf16)
    return define("out", (b, c, y, h, d), nestor.sum(weight[b, c, h, y, x] * value[b, c, x, h, d], over=x, where=seen), type=bf16)


def _ssd_chunk(query, key, value, log_decay):
    decay = log_decay.transpose(1, 2)
    decay = (decay[..., :, None] - decay[..., None, :]).exp().tril()
    weight = widened(query @ key.transpose(-1, -2))[:, :, None] * decay
    return (weight.to(value.dtype) @ value.transpose(2, 3)).transpose(2, 3)


TINY = {"batch": 2, "heads": 3, "length": 13, "head_dim": 5}
OPERATORS = [
    Operator(sigmoid_causal_attention, _sigmoid, "J. Ramapuram et al., arXiv:2409.04431", TINY),
    Operator(relu2_attention, _relu2, "W. Hua et al., GAU, arXiv:2202.10447", TINY),
    Operator(retention_scaled, _retention, "Y. Sun et al., Retentive Network, arXiv:2307.08621", TINY,
             draw={"log_decay": lambda normal, _: -0.02 * normal.abs() - 0.002}),
    Operator(ssd_chunk, _ssd_chunk, "T. Dao and A. Gu, Mamba-2, arXiv:2405.21060",
             {"batch": 2, "chunks": 3, "chunk": 7, "state": 5, "heads": 3, "head_dim": 5},
             draw={"log_decay": lambda normal, _: -0.05 * normal.abs().cumsum(-1)}),
]
