"""Attention with a softmax, as papers have it: norms of queries and keys, sinks, gates, two products, caps and windows."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import nestor
from nestor import Size, bf16, define, f32, indices

from . import flex
from .problem import Operator, around_one, widened

EPS = 1e-6
SCALE, NARROW_SCALE, MLA_SCALE = 128**-0.5, 64**-0.5, 192**-0.5
CAP = 50.0
INIT = 0.8  # lambda_init of differential attention

batch, heads, length = Size("batch", 2), Size("heads", 16), Size("length", 4096)
dim = Size("head_dim", 128, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)


def softmax(score, row, seen=None, key=j):
    """exp(score - its maximum) over keys, and the sums of rows; score: a tensor at (*row, key)."""
    where = {} if seen is None else {"where": seen}
    top = define("top", row, nestor.max(score[(*row, key)], over=key, **where))
    power = define("power", (*row, key), nestor.exp(score[(*row, key)] - top[row]), **where)
    return power, define("total", row, nestor.sum(power[(*row, key)], over=key, **where))


@nestor.nest
def qk_norm_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                      q_weight: bf16[dim], k_weight: bf16[dim]):
    def normed(name, x, weight, at):
        scale = nestor.rsqrt(nestor.sum(x[b, h, at, e] * x[b, h, at, e], over=e) / dim + EPS)
        return define(name, (b, h, at, d), x[b, h, at, d] * scale * weight[d], type=bf16)
    queries, keys = normed("q_normed", q, q_weight, i), normed("k_normed", k, k_weight, j)
    score = define("score", (b, h, i, j), nestor.sum(queries[b, h, i, d] * keys[b, h, j, d], over=d) * SCALE, where=j <= i)
    power, total = softmax(score, (b, h, i), j <= i)
    return define("out", (b, h, i, d), nestor.sum(power[b, h, i, j] * v[b, h, j, d], over=j, where=j <= i) / total[b, h, i],
                  type=bf16)


def _qk_norm(q, k, v, q_weight, k_weight):
    q, k = (F.rms_norm(x, x.shape[-1:], weight, EPS) for x, weight in ((q, q_weight), (k, k_weight)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE)


def _qk_norm_cudnn(*inputs):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return _qk_norm(*inputs)


windows, places, side = Size("windows", 512), Size("places", 256), Size("head_dim", 32, fixed=True)
window, y, x, c, g = indices(window=windows, y=places, x=places, c=side, g=side)


@nestor.nest
def cosine_attention(q: bf16[windows, heads, places, side], k: bf16[windows, heads, places, side],
                     v: bf16[windows, heads, places, side], temperature: f32[heads], bias: bf16[heads, places, places]):
    def unit(name, tensor, at):
        norm = nestor.maximum(nestor.sqrt(nestor.sum(tensor[window, h, at, g] * tensor[window, h, at, g], over=g)), 1e-12)
        return define(name, (window, h, at, c), tensor[window, h, at, c] / norm, type=bf16)
    queries, keys = unit("q_unit", q, y), unit("k_unit", k, x)
    row = (window, h, y)
    cosine = nestor.sum(queries[window, h, y, c] * keys[window, h, x, c], over=c)
    score = define("score", (*row, x), cosine * nestor.exp(nestor.minimum(temperature[h], 4.6051702)) + bias[h, y, x])
    top = define("top", row, nestor.max(score[(*row, x)], over=x))
    power = define("power", (*row, x), nestor.exp(score[(*row, x)] - top[row]))
    total = define("total", row, nestor.sum(power[(*row, x)], over=x))
    probability = define("probability", (*row, x), power[(*row, x)] / total[row], type=bf16)
    return define("out", (*row, c), nestor.sum(probability[(*row, x)] * v[window, h, x, c], over=x), type=bf16)


def _cosine(q, k, v, temperature, bias):
    score = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2)
    score = widened(score) * temperature.clamp(max=4.6051702).exp()[:, None, None] + bias
    return torch.softmax(score, -1).to(v.dtype) @ v


key_heads, group = Size("key_heads", 4), Size("group", 8, fixed=True)
head, member = indices(head=key_heads, member=group)


@nestor.nest
def sink_attention(q: bf16[batch, key_heads, group, length, dim], k: bf16[batch, key_heads, length, dim],
                   v: bf16[batch, key_heads, length, dim], sink: bf16[key_heads, group]):
    row, seen = (b, head, member, i), j <= i
    score = define("score", (*row, j), nestor.sum(q[(*row, e)] * k[b, head, j, e], over=e) * SCALE, where=seen)
    top = define("top", row, nestor.maximum(nestor.max(score[(*row, j)], over=j, where=seen), sink[head, member]))
    power = define("power", (*row, j), nestor.exp(score[(*row, j)] - top[row]), where=seen)
    total = define("total", row, nestor.sum(power[(*row, j)], over=j, where=seen) + nestor.exp(sink[head, member] - top[row]))
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, head, j, d], over=j, where=seen) / total[row], type=bf16)


def _sink(q, k, v, sink):
    score = widened(q @ k[:, :, None].transpose(-1, -2)) * SCALE
    future = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).triu(1)
    score = score.masked_fill(future, -torch.inf)
    score = torch.cat([score, sink.to(score.dtype)[:, :, None, None].expand(*score.shape[:-1], 1)], -1)
    return torch.softmax(score, -1)[..., :-1].to(v.dtype) @ v[:, :, None]


turned = Size("rope_dim", 64, fixed=True)
(t,) = indices(t=turned)


@nestor.nest
def mla_attention(q: bf16[batch, heads, length, dim], q_rope: bf16[batch, heads, length, turned],
                  k: bf16[batch, heads, length, dim], k_rope: bf16[batch, length, turned], v: bf16[batch, heads, length, dim]):
    row, seen = (b, h, i), j <= i
    dot = nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) + nestor.sum(q_rope[b, h, i, t] * k_rope[b, j, t], over=t)
    score = define("score", (*row, j), dot * MLA_SCALE, where=seen)
    power, total = softmax(score, row, seen)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _mla(q, q_rope, k, k_rope, v):
    return F.scaled_dot_product_attention(*flex.joined(q, q_rope, k, k_rope), v, is_causal=True, scale=MLA_SCALE)


narrow = Size("head_dim", 64, fixed=True)
u, w = indices(u=2 * narrow, w=narrow)


@nestor.nest
def differential_norm_attention(q1: bf16[batch, heads, length, narrow], k1: bf16[batch, heads, length, narrow],
                                q2: bf16[batch, heads, length, narrow], k2: bf16[batch, heads, length, narrow],
                                v: bf16[batch, heads, length, 2 * narrow], weight: f32[heads]):
    row, seen = (b, h, i), j <= i

    def attended(q, k):
        score = define("score", (*row, j), nestor.sum(q[b, h, i, w] * k[b, h, j, w], over=w) * NARROW_SCALE, where=seen)
        power, total = softmax(score, row, seen)
        return nestor.sum(power[(*row, j)] * v[b, h, j, u], over=j, where=seen) / total[row]
    difference = define("difference", (*row, u), attended(q1, k1) - weight[h] * attended(q2, k2))
    mean = nestor.sum(difference[(*row, u)] * difference[(*row, u)], over=u) / (2 * narrow)
    mean = define("mean", row, mean)
    return define("out", (*row, u), difference[(*row, u)] * nestor.rsqrt(mean[row] + EPS) * (1 - INIT), type=bf16)


def _differential(q1, k1, q2, k2, v, weight):
    first = F.scaled_dot_product_attention(q1, k1, v, is_causal=True, scale=NARROW_SCALE)
    second = F.scaled_dot_product_attention(q2, k2, v, is_causal=True, scale=NARROW_SCALE)
    difference = widened(first) - weight[:, None, None] * widened(second)
    return (F.rms_norm(difference, difference.shape[-1:], None, EPS) * (1 - INIT)).to(v.dtype)


reach = Size("window", 1024)


@nestor.nest
def window_softcap_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim],
                             v: bf16[batch, heads, length, dim]):
    row, seen = (b, h, i), (j <= i) & (j > i - reach)
    dot = nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e, name="dot") * SCALE
    score = define("score", (*row, j), CAP * nestor.tanh(dot / CAP), where=seen)
    power, total = softmax(score, row, seen)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _window_softcap(q, k, v, window):
    score = CAP * torch.tanh(widened(q @ k.transpose(-1, -2)) * SCALE / CAP)
    at = torch.arange(score.shape[-1], device=score.device)
    seen = (at <= at[:, None]) & (at > at[:, None] - window)
    return torch.softmax(score.masked_fill(~seen, -torch.inf), -1).to(v.dtype) @ v


@nestor.nest
def gated_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                    gate: bf16[batch, heads, length, dim]):
    row, seen = (b, h, i), j <= i
    score = define("score", (*row, j), nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * SCALE, where=seen)
    power, total = softmax(score, row, seen)
    attended = nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row]
    return define("out", (*row, d), attended / (1 + nestor.exp(-gate[(*row, d)])), type=bf16)


def _gated(q, k, v, gate):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE) * torch.sigmoid(gate)


TINY = {"batch": 2, "heads": 3, "length": 13, "head_dim": 5}
OPERATORS = [
    Operator(qk_norm_attention, _qk_norm, "Qwen3, arXiv:2505.09388; A. Henry et al., arXiv:2010.04245", TINY,
             draw={"q_weight": around_one, "k_weight": around_one}, cudnn=_qk_norm_cudnn),
    Operator(cosine_attention, _cosine, "Z. Liu et al., Swin Transformer V2, arXiv:2111.09883",
             {"windows": 3, "heads": 2, "places": 9, "head_dim": 7}, draw={"temperature": lambda x, _: 2 + x}, flex=flex.cosine),
    Operator(sink_attention, _sink, "G. Xiao et al., arXiv:2309.17453; gpt-oss, arXiv:2508.10925",
             {"batch": 2, "key_heads": 2, "group": 3, "length": 11, "head_dim": 5}, flex=flex.sink, seen=flex.causal),
    Operator(mla_attention, _mla, "DeepSeek-V2, arXiv:2405.04434", {**TINY, "rope_dim": 3}, flex=flex.mla, seen=flex.causal),
    Operator(differential_norm_attention, _differential, "T. Ye et al., Differential Transformer, arXiv:2410.05258", TINY,
             draw={"weight": lambda x, _: 0.8 + 0.1 * x}, flex=flex.differential, seen=flex.causal),
    Operator(window_softcap_attention, _window_softcap, "Gemma 2, arXiv:2408.00118", {**TINY, "window": 4}, ("window", ),
             flex=flex.window_softcap, seen=flex.window),
    Operator(gated_attention, _gated, "Z. Qiu et al., Gated Attention for LLMs, arXiv:2505.06708", TINY, flex=flex.gated,
             seen=flex.causal),
]
