"""Attention whose shares are no softmax's, its backward pass, its parts put together, and what is done to its operands."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened
from .rows import sigmoid

batch, heads, length, dim = Size("batch", 2), Size("heads", 16), Size("length", 1024), Size("head_dim", 64, fixed=True)
b, h, i, j, l, d, e = indices(b=batch, h=heads, i=length, j=length, l=length, d=dim, e=dim)
SCALE = 0.125


def _causal(score):
    at = torch.arange(score.shape[-1], device=score.device)
    return score.masked_fill(at > at[:, None], float("-inf"))


@nestor.nest
def stick_breaking_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim],
                             v: bf16[batch, heads, length, dim]):
    """A key takes its share of what the keys after it left."""
    row, seen = (b, h, i), j < i
    score = define("score", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE, where=seen)

    def softplus(x):
        return nestor.maximum(x, 0.0) + nestor.log(1 + nestor.exp(-nestor.absolute(x)))
    left = define("left", (*row, j), nestor.sum(softplus(score[(*row, l)]), over=l, where=(l >= j) & (l < i)), where=seen)
    share = define("share", (*row, j), nestor.exp(score[(*row, j)] - left[(*row, j)]), where=seen)
    return define("out", (*row, d), nestor.sum(share[(*row, j)] * v[b, h, j, d], over=j, where=seen), type=bf16)


def _stick_breaking(q, k, v):
    score = (widened(q @ k.transpose(-1, -2)) * SCALE)
    left = F.softplus(score).tril(-1).flip(-1).cumsum(-1).flip(-1)
    return (score - left).exp().tril(-1).to(v.dtype) @ v


@nestor.nest
def mlstm_parallel(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                   gate: f32[batch, heads, length], kept: f32[batch, heads, length]):
    """xLSTM's matrix memory: exponential gates, and the sum of logarithms of what is kept between a key and a query."""
    row, seen = (b, h, i), j <= i
    decay = define("decay", row, nestor.sum(nestor.log(sigmoid(kept[b, h, l])), over=l, where=l <= i))
    gates = define("gates", (*row, j), decay[row] - decay[b, h, j] + gate[b, h, j], where=seen)
    top = define("top", row, nestor.max(gates[(*row, j)], over=j, where=seen))
    dot = nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE
    weight = define("weight", (*row, j), dot * nestor.exp(gates[(*row, j)] - top[row]), where=seen)
    total = nestor.sum(weight[(*row, j)], over=j, where=seen)
    found = nestor.sum(weight[(*row, j)] * v[b, h, j, d], over=j, where=seen)
    return define("out", (*row, d), found / (nestor.maximum(nestor.absolute(total), nestor.exp(-top[row])) + 1e-6), type=bf16)


def _mlstm(q, k, v, gate, kept):
    decay = F.logsigmoid(kept).cumsum(-1)
    gates = _causal(decay[..., None] - decay[..., None, :] + gate[..., None, :])
    top = gates.amax(-1, keepdim=True)
    weight = widened(q @ k.transpose(-1, -2)) * SCALE * (gates - top).exp()
    total = torch.maximum(weight.sum(-1, keepdim=True).abs(), (-top).exp()) + 1e-6
    return (weight / total).to(v.dtype) @ v


@nestor.nest
def attention_backward(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                       out: bf16[batch, heads, length, dim], d_out: bf16[batch, heads, length, dim], lse: f32[batch, heads, length]):
    """Gradients of all three operands from the saved logarithms of the sums."""
    row, seen = (b, h, i), j <= i
    (i2, j2) = indices(i2=length, j2=length)
    score = nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE
    share = define("share", (*row, j), nestor.exp(score - lse[row]), where=seen)
    dot = define("dot", row, nestor.sum(out[(*row, d)] * d_out[(*row, d)], over=d))
    d_share = nestor.sum(d_out[(*row, d)] * v[b, h, j, d], over=d)
    d_score = define("d_score", (*row, j), share[(*row, j)] * (d_share - dot[row]) * SCALE, where=seen)
    dq = nestor.sum(d_score[b, h, i, j2] * k[b, h, j2, e], over=j2, where=j2 <= i)
    dk = nestor.sum(d_score[b, h, i2, j] * q[b, h, i2, e], over=i2, where=i2 >= j)
    dv = nestor.sum(share[b, h, i2, j] * d_out[b, h, i2, d], over=i2, where=i2 >= j)
    return (define("dq", (b, h, i, e), dq, type=bf16), define("dk", (b, h, j, e), dk, type=bf16),
            define("dv", (b, h, j, d), dv, type=bf16))


def _backward(q, k, v, out, d_out, lse):
    share = (_causal(widened(q @ k.transpose(-1, -2)) * SCALE) - lse[..., None]).exp()
    dot = widened(out * d_out).sum(-1, keepdim=True)
    d_score = (share * (widened(d_out @ v.transpose(-1, -2)) - dot) * SCALE).to(q.dtype)
    return d_score @ k, d_score.transpose(-1, -2) @ q, share.to(q.dtype).transpose(-1, -2) @ d_out


pieces, queries = Size("pieces", 8), Size("queries", 8192)
p, p2, n, c = indices(p=pieces, p2=pieces, n=queries, c=dim)


@nestor.nest
def merged_parts(part: f32[pieces, queries, heads, dim], lse: f32[pieces, queries, heads]):
    """Attention over pieces of the keys, put together by the logarithms of their sums."""
    top = define("top", (n, h), nestor.max(lse[p, n, h], over=p))
    power = define("power", (p, n, h), nestor.exp(lse[p, n, h] - top[n, h]))
    total = define("total", (n, h), nestor.sum(power[p, n, h], over=p))
    found = nestor.sum(power[p, n, h] * part[p, n, h, c], over=p)
    return (define("out", (n, h, c), found / total[n, h], type=bf16),
            define("whole", (n, h), top[n, h] + nestor.log(total[n, h])))


def _merged(part, lse):
    found = (torch.softmax(lse, 0)[..., None] * part).sum(0)
    return found if part.dtype == torch.float64 else found.bfloat16(), torch.logsumexp(lse, 0)


@nestor.nest
def rebased_attention(q: f16[batch, heads, length, dim], k: f16[batch, heads, length, dim], v: f16[batch, heads, length, dim],
                      q_scale: f32[heads, dim], k_scale: f32[heads, dim]):
    """ReBased: normalised queries and keys, squares of their products as weights."""
    def normed(name, x, scale, at):
        mean = define(f"{name}_mean", (b, h, at), nestor.sum(x[b, h, at, e], over=e) / dim)
        apart = x[b, h, at, e] - mean[b, h, at]
        spread = define(f"{name}_spread", (b, h, at), nestor.sum(apart * apart, over=e) / dim)
        found = (x[b, h, at, d] - mean[b, h, at]) * nestor.rsqrt(spread[b, h, at] + 1e-5) * scale[h, d]
        return define(f"{name}_normed", (b, h, at, d), found, type=f16)
    query, key = normed("q", q, q_scale, i), normed("k", k, k_scale, j)
    seen = j <= i
    dot = define("dot", (b, h, i, j), nestor.sum(query[b, h, i, e] * key[b, h, j, e], over=e) * SCALE, where=seen)
    weight = dot[b, h, i, j] * dot[b, h, i, j]
    total = nestor.sum(weight, over=j, where=seen)
    return define("out", (b, h, i, d), nestor.sum(weight * v[b, h, j, d], over=j, where=seen) / (total + 1e-5), type=f16)


def _rebased(q, k, v, q_scale, k_scale):
    def normed(x, scale):
        return (F.layer_norm(widened(x), x.shape[-1:], eps=1e-5) * scale[:, None]).to(x.dtype)
    weight = (widened(normed(q, q_scale) @ normed(k, k_scale).transpose(-1, -2)) * SCALE).square().tril()
    return (weight.to(v.dtype) @ v / (weight.sum(-1, keepdim=True) + 1e-5)).to(v.dtype)


tokens = Size("tokens", 8192)
t, w, w2 = indices(t=tokens, w=128, w2=128)


@nestor.nest
def normed_rotary(x: bf16[tokens, heads, 128], weight: bf16[128], cosine: f32[tokens, 64], sine: f32[tokens, 64]):
    """Qwen3: each head's RMS norm, then the rotation of its halves."""
    square = define("square", (t, h), nestor.sum(x[t, h, w2] * x[t, h, w2], over=w2) / 128)
    normed = define("normed", (t, h, w), x[t, h, w] * nestor.rsqrt(square[t, h] + 1e-6) * weight[w], type=bf16)
    beside = nestor.select(w < 64, -normed[t, h, w + 64], normed[t, h, w - 64])
    return define("out", (t, h, w), normed[t, h, w] * cosine[t, w % 64] + beside * sine[t, w % 64], type=bf16)


def _normed_rotary(x, weight, cosine, sine):
    normed = F.rms_norm(x, x.shape[-1:], weight, 1e-6)
    first, second = normed.chunk(2, -1)
    cosine, sine = torch.cat([cosine, cosine], -1)[:, None], torch.cat([sine, sine], -1)[:, None]
    return (normed * cosine + torch.cat([-second, first], -1) * sine).to(x.dtype)


wide = Size("wide", 4096)
u, u2 = indices(u=wide, u2=wide)


@nestor.nest
def dropout_residual_layernorm(x: bf16[tokens, wide], residual: bf16[tokens, wide], kept: bf16[tokens, wide], weight: bf16[wide],
                               bias: bf16[wide]):
    """The sum that goes on, and its norm; `kept` is 0 or 1."""
    both = define("both", (t, u), residual[t, u] + x[t, u] * kept[t, u] * 1.25, type=bf16)
    mean = define("mean", (t, ), nestor.sum(both[t, u2], over=u2) / wide)
    apart = both[t, u2] - mean[t]
    spread = define("spread", (t, ), nestor.sum(apart * apart, over=u2) / wide)
    return both, define("out", (t, u), (both[t, u] - mean[t]) * nestor.rsqrt(spread[t] + 1e-5) * weight[u] + bias[u], type=bf16)


def _dropout(x, residual, kept, weight, bias):
    both = residual + x * kept * 1.25
    return both, F.layer_norm(both, both.shape[-1:], weight, bias, 1e-5)


rows, block = Size("rows", 4096), Size("block", 128, fixed=True)
blocks = Size("blocks", 32)
m, g, y, y2 = indices(m=rows, g=blocks, y=block, y2=block)


@nestor.nest
def hadamard_quantise(x: bf16[rows, blocks, block], turn: bf16[block, block]):
    """QuaRot: each block is rotated, then the row goes to whole numbers in f16, with its scale."""
    turned = define("turned", (m, g, y), nestor.sum(x[m, g, y2] * turn[y, y2], over=y2))
    top = define("top", (m, ), nestor.max(nestor.absolute(turned[m, g, y]), over=(g, y)))
    scale = define("scale", (m, ), nestor.maximum(top[m], 1e-6) / 127)
    return define("out", (m, g, y), nestor.floor(turned[m, g, y] / scale[m] + 0.5), type=f16), scale


def _hadamard(x, turn):
    turned = widened(x) @ widened(turn).T
    scale = turned.abs().amax((1, 2)).clamp(min=1e-6) / 127
    found = (turned / scale[:, None, None] + 0.5).floor()
    return found if x.dtype == torch.float64 else found.half(), scale


def _signs(x, _):
    return torch.where(x > 0, 1.0, -1.0) / x.shape[-1]**0.5


ATTENTION = {"batch": 2, "heads": 3, "length": 7, "head_dim": 6}
OPERATORS = [
    Operator(stick_breaking_attention, _stick_breaking, "S. Tan et al., arXiv:2410.17980", ATTENTION),
    Operator(mlstm_parallel, _mlstm, "M. Beck et al., arXiv:2405.04517", ATTENTION, draw={"kept": lambda x, _: 3 + x}),
    Operator(attention_backward, _backward, "T. Dao, arXiv:2307.08691", ATTENTION, draw={"lse": lambda x, _: 5 + x}),
    Operator(merged_parts, _merged, "Z. Ye et al., FlashInfer, arXiv:2501.01005", {"pieces": 3, "queries": 5, "heads": 2, "head_dim": 6}),
    Operator(rebased_attention, _rebased, "Y. Aksenov et al., arXiv:2402.10644", ATTENTION,
             draw={"q_scale": around_one, "k_scale": around_one}),
    Operator(normed_rotary, _normed_rotary, "A. Yang et al., Qwen3, arXiv:2505.09388",
             {"tokens": 5, "heads": 3},
             draw={"weight": around_one, "cosine": lambda x, _: x.cos(), "sine": lambda x, _: x.sin()}),
    Operator(dropout_residual_layernorm, _dropout, "A. Vaswani et al., arXiv:1706.03762", {"tokens": 5, "wide": 7},
             draw={"kept": lambda x, _: (x > -0.84).float(), "weight": around_one}),
    Operator(hadamard_quantise, _hadamard, "S. Ashkboos et al., QuaRot, arXiv:2404.00456", {"rows": 3, "blocks": 2, "block": 8},
             draw={"turn": _signs}),
]
