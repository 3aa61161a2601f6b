"""Statistics of channels and of time, pooling, margins, gates and sinks, operands that are scaled or shuffled on their way."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened

EPS = 1e-5

images, places, groups, share = Size("images", 32), Size("places", 4096), Size("groups", 32), Size("share", 10)
n, s, g, c, s2, c2 = indices(n=images, s=places, g=groups, c=share, s2=places, c2=share)


@nestor.nest
def groupnorm_channels_last(x: f16[images, places, groups, share], weight: f32[groups, share], bias: f32[groups, share]):
    """Statistics over the places and the channels of a group, which lie last."""
    mean = define("mean", (n, g), nestor.sum(x[n, s2, g, c2], over=(s2, c2)) / places / share)
    apart = x[n, s2, g, c2] - mean[n, g]
    variance = define("variance", (n, g), nestor.sum(apart * apart, over=(s2, c2)) / places / share)
    normed = (x[n, s, g, c] - mean[n, g]) * nestor.rsqrt(variance[n, g] + EPS) * weight[g, c] + bias[g, c]
    return define("out", (n, s, g, c), normed, type=f16)


def _groupnorm_last(x, weight, bias):
    flat = x.flatten(2).transpose(1, 2)
    found = F.group_norm(flat, x.shape[2], weight.flatten().to(x.dtype), bias.flatten().to(x.dtype), EPS)
    return found.transpose(1, 2).view(x.shape)


batch, time, width = Size("batch", 256), Size("time", 768), Size("width", 512)
b, t, w, t2, w2 = indices(b=batch, t=time, w=width, t2=time, w2=width)


@nestor.nest
def statistics_pooling(x: bf16[batch, time, width]):
    """Mean and deviation over time."""
    mean = define("mean", (b, w), nestor.sum(x[b, t, w], over=t) / time)
    apart = x[b, t, w] - mean[b, w]
    variance = nestor.sum(apart * apart, over=t) / time
    return mean, define("deviation", (b, w), nestor.sqrt(variance + EPS))


def _statistics(x):
    x = widened(x)
    return x.mean(1), (x.var(1, correction=0) + EPS).sqrt()


@nestor.nest
def attention_pooling(x: bf16[batch, time, width], query: f32[width]):
    """One learnt query for a sequence, whose states are keys and values."""
    score = define("score", (b, t), nestor.sum(x[b, t, w] * query[w], over=w))
    top = define("top", b, nestor.max(score[b, t], over=t))
    power = define("power", (b, t), nestor.exp(score[b, t] - top[b]))
    total = define("total", b, nestor.sum(power[b, t], over=t))
    return define("out", (b, w), nestor.sum(power[b, t] * x[b, t, w], over=t) / total[b], type=bf16)


def _attention_pooling(x, query):
    weight = torch.softmax(widened(x) @ query, -1)
    return (weight[:, :, None] * widened(x)).sum(1).to(x.dtype)


@nestor.nest
def masked_mean_pooling(x: bf16[batch, time, width], mask: f32[batch, time]):
    """A sentence's vector: the mean of the tokens that are there, of length one."""
    kept = define("kept", b, nestor.sum(mask[b, t], over=t))
    pooled = define("pooled", (b, w), nestor.sum(x[b, t, w] * mask[b, t], over=t) / nestor.maximum(kept[b], 1e-6))
    size = define("size", b, nestor.sqrt(nestor.sum(pooled[b, w2] * pooled[b, w2], over=w2)))
    return define("out", (b, w), pooled[b, w] / nestor.maximum(size[b], 1e-6))


def _mean_pooling(x, mask):
    pooled = (widened(x) * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1e-6)
    return F.normalize(pooled, dim=-1, eps=1e-6)


rows, across = Size("rows", 8192), Size("width", 2048)
r, k, k2, k3 = indices(r=rows, k=across, k2=across, k3=across)


@nestor.nest
def layerscale_layernorm(x: bf16[rows, across], branch: bf16[rows, across], scale: f32[across], weight: f32[across], bias: f32[across]):
    """The scaled branch joins the residual; the next block's norm."""
    residual = define("residual", (r, k), x[r, k] + branch[r, k] * scale[k], type=bf16)
    mean = define("mean", r, nestor.sum(residual[r, k2], over=k2) / across)
    apart = residual[r, k3] - mean[r]
    variance = define("variance", r, nestor.sum(apart * apart, over=k3) / across)
    normed = (residual[r, k] - mean[r]) * nestor.rsqrt(variance[r] + EPS) * weight[k] + bias[k]
    return residual, define("out", (r, k), normed, type=bf16)


def _layerscale(x, branch, scale, weight, bias):
    residual = (widened(x) + widened(branch) * scale).to(x.dtype)
    wide = widened(residual)
    return residual, F.layer_norm(wide, weight.shape, weight.to(wide.dtype), bias.to(wide.dtype), EPS).to(x.dtype)


@nestor.nest
def bce_with_logits(x: bf16[rows, across], target: f32[rows, across]):
    """A mean over labels that may hold together."""
    each = nestor.maximum(x[r, k], 0.0) - x[r, k] * target[r, k] + nestor.log1p(nestor.exp(-nestor.absolute(x[r, k])))
    return define("loss", r, nestor.sum(each, over=k) / across)


def _bce(x, target):
    x = widened(x)
    return F.binary_cross_entropy_with_logits(x, target.to(x.dtype), reduction="none").mean(-1)


faces, classes, deep = Size("rows", 2048), Size("classes", 8192), Size("inner", 512)
f, v, u = indices(f=faces, v=classes, u=deep)
MARGIN, SHARPNESS = 0.35, 30.0


@nestor.nest
def cosine_margin_loss(x: bf16[faces, deep], weight: bf16[classes, deep], label: i32[faces]):
    """Cosines to the vectors of classes, less a margin at the own one, then cross entropy."""
    row = define("row", f, nestor.rsqrt(nestor.sum(x[f, u] * x[f, u], over=u) + 1e-6))
    column = define("column", v, nestor.rsqrt(nestor.sum(weight[v, u] * weight[v, u], over=u) + 1e-6))
    dot = define("dot", (f, v), nestor.sum(x[f, u] * weight[v, u], over=u))
    score = define("score", (f, v), SHARPNESS * (dot[f, v] * row[f] * column[v] - nestor.select(label[f] == v, MARGIN, 0.0)))
    top = define("top", f, nestor.max(score[f, v], over=v))
    total = define("total", f, nestor.sum(nestor.exp(score[f, v] - top[f]), over=v))
    own = nestor.sum(nestor.select(label[f] == v, score[f, v], 0.0), over=v)
    return define("loss", f, top[f] + nestor.log(total[f]) - own)


def _margin(x, weight, label):
    wide, vectors = widened(x), widened(weight)
    row = (wide.square().sum(-1) + 1e-6).rsqrt()
    column = (vectors.square().sum(-1) + 1e-6).rsqrt()
    score = widened(x @ weight.T) * row[:, None] * column
    score = SHARPNESS * (score - MARGIN * F.one_hot(label.long(), weight.shape[0]))
    return F.cross_entropy(score, label.long(), reduction="none")


tokens, outputs, blocks = Size("rows", 2048), Size("width", 4096), Size("blocks", 32)
BLOCK = 128
m, o, q, p = indices(m=tokens, o=outputs, q=blocks, p=BLOCK)
o1, i1 = indices(o1=outputs, i1=blocks * BLOCK)


@nestor.nest
def blockwise_scaled_linear(x: bf16[tokens, blocks * BLOCK], weight: bf16[outputs, blocks * BLOCK], scale: f32[outputs, blocks]):
    """Weights with a scale for each 128 of a row, as quantised ones have."""
    full = define("full", (o1, i1), weight[o1, i1] * scale[o1, i1 // BLOCK], type=bf16)
    return define("out", (m, o), nestor.sum(x[m, BLOCK * q + p] * full[o, BLOCK * q + p], over=(q, p)), type=bf16)


def _blockwise(x, weight, scale):
    full = (widened(weight) * scale.repeat_interleave(BLOCK, 1)).to(weight.dtype)
    return x @ full.T


few, key_heads, group, length = Size("batch", 2), Size("key_heads", 8), Size("group", 4, fixed=True), Size("length", 2048)
dim = Size("head_dim", 128, fixed=True)
a, h, e, i, j, d, d2 = indices(a=few, h=key_heads, e=group, i=length, j=length, d=dim, d2=dim)
SCALE = 128**-0.5


@nestor.nest
def gated_sink_attention(query: bf16[few, key_heads, group, length, dim], key: bf16[few, key_heads, length, dim],
                         value: bf16[few, key_heads, length, dim], sink: f32[key_heads, group],
                         gate: f32[few, key_heads, group, length]):
    """Grouped heads, each with a sink in its softmax and a gate behind it."""
    row, seen = (a, h, e, i), j <= i
    score = define("score", (*row, j), nestor.sum(query[(*row, d2)] * key[a, h, j, d2], over=d2) * SCALE, where=seen)
    top = define("top", row, nestor.maximum(nestor.max(score[(*row, j)], over=j, where=seen), sink[h, e]))
    power = define("power", (*row, j), nestor.exp(score[(*row, j)] - top[row]), where=seen)
    total = nestor.sum(power[(*row, j)], over=j, where=seen) + nestor.exp(sink[h, e] - top[row])
    summed = nestor.sum(power[(*row, j)] * value[a, h, j, d], over=j, where=seen)
    return define("out", (*row, d), summed / total / (1 + nestor.exp(-gate[row])), type=bf16)


def _gated_sink(query, key, value, sink, gate):
    score = widened(query @ key[:, :, None].transpose(-1, -2)) * SCALE
    at = torch.arange(score.shape[-1], device=score.device)
    score = score.masked_fill(at > at[:, None], float("-inf"))
    extra = sink[None, :, :, None, None].to(score.dtype).expand(*score.shape[:-1], 1)
    weight = torch.softmax(torch.cat([score, extra], -1), -1)[..., :-1]
    return (widened(weight.to(value.dtype) @ value[:, :, None]) * torch.sigmoid(gate)[..., None]).to(query.dtype)


heads = Size("heads", 16)
z, y, x1, x2 = indices(z=heads, y=heads, x1=length, x2=length)


@nestor.nest
def temperature_attention(query: bf16[few, heads, length, dim], key: bf16[few, heads, length, dim], value: bf16[few, heads, length, dim],
                          temperature: f32[heads]):
    """A learnt temperature for each head in place of the usual scale."""
    row = (a, z, i)
    score = define("score", (*row, j), nestor.sum(query[(*row, d2)] * key[a, z, j, d2], over=d2) * nestor.exp(temperature[z]))
    power, total = softmax(score, row, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * value[a, z, j, d], over=j) / total[row], type=bf16)


def _temperature(query, key, value, temperature):
    return F.scaled_dot_product_attention(query * temperature.exp()[:, None, None].to(query.dtype), key, value, scale=1.0)


OPERATORS = [
    Operator(groupnorm_channels_last, _groupnorm_last, "Y. Wu and K. He, arXiv:1803.08494, in channels-last memory",
             {"images": 3, "places": 7, "groups": 2, "share": 5}, draw={"weight": around_one}),
    Operator(statistics_pooling, _statistics, "D. Snyder et al., X-vectors, ICASSP 2018", {"batch": 3, "time": 7, "width": 5}),
    Operator(attention_pooling, _attention_pooling, "K. Okabe et al., arXiv:1803.10963", {"batch": 3, "time": 7, "width": 5},
             draw={"query": divided("width")}),
    Operator(masked_mean_pooling, _mean_pooling, "N. Reimers and I. Gurevych, Sentence-BERT, arXiv:1908.10084",
             {"batch": 3, "time": 7, "width": 5}, draw={"mask": lambda x, _: (x > 0).to(x.dtype)}),
    Operator(layerscale_layernorm, _layerscale, "H. Touvron et al., CaiT, arXiv:2103.17239", {"rows": 7, "width": 11},
             draw={"weight": around_one, "scale": lambda x, _: 0.1 * x}),
    Operator(bce_with_logits, _bce, "T. Ridnik et al., arXiv:2009.14119", {"rows": 7, "width": 11},
             draw={"target": lambda x, _: x.sigmoid()}),
    Operator(cosine_margin_loss, _margin, "H. Wang et al., CosFace, arXiv:1801.09414", {"rows": 7, "classes": 11, "inner": 5},
             draw={"label": lambda x, sizes: (x.abs() * 1e4).long() % sizes["classes"]}),
    Operator(blockwise_scaled_linear, _blockwise, "DeepSeek-AI, DeepSeek-V3, arXiv:2412.19437", {"rows": 7, "width": 5, "blocks": 2},
             draw={"weight": lambda x, sizes: x / (128 * sizes["blocks"])**0.5, "scale": around_one}),
    Operator(gated_sink_attention, _gated_sink, "Z. Qiu et al., Gated Attention, arXiv:2505.06708; gpt-oss, arXiv:2508.10925",
             {"batch": 2, "key_heads": 2, "group": 3, "length": 7, "head_dim": 5}),
    Operator(temperature_attention, _temperature, "A. El-Nouby et al., XCiT, arXiv:2106.09681",
             {"batch": 2, "heads": 3, "length": 7, "head_dim": 5}, draw={"temperature": lambda x, _: 0.1 * x - 2.4}),
]
