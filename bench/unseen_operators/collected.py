"""What recent models and their training do beside attention, and what crowds, chances and pictures ask for: gates that are clamped, few of many
units, layers that attend to layers, optimisers' steps, pairs that are ranked, particles that turn, votes, trees of species, prices."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened

EPS = 1e-6

tokens, width, inner = Size("tokens", 4096), Size("width", 1024), Size("inner", 2816)
p, c, c2, u, u2 = indices(p=tokens, c=width, c2=width, u=inner, u2=inner)


@nestor.nest
def clamped_swiglu(x: bf16[tokens, width], weight: bf16[2 * inner, width], bias: bf16[2 * inner]):
    """gpt-oss: gates in even columns and values in odd ones, both clamped, a sigmoid with a slope of its own."""
    gate = define("gate", (p, u), nestor.minimum(nestor.sum(x[p, c] * weight[2 * u, c], over=c) + bias[2 * u], 7.0))
    value = nestor.maximum(nestor.minimum(nestor.sum(x[p, c] * weight[2 * u + 1, c], over=c) + bias[2 * u + 1], 7.0), -7.0)
    return define("out", (p, u), gate[p, u] * nestor.sigmoid(1.702 * gate[p, u]) * (value + 1), type=bf16)


def _clamped(x, weight, bias):
    both = x @ weight.T + bias
    gate, value = widened(both[:, ::2]).clamp(max=7.0), widened(both[:, 1::2]).clamp(-7.0, 7.0)
    return (gate * torch.sigmoid(1.702 * gate) * (value + 1)).to(x.dtype)


rows, units = Size("rows", 4096), Size("units", 8192)
r, k, k2 = indices(r=rows, k=units, k2=units)


@nestor.nest
def few_units(gate: bf16[rows, units], up: bf16[rows, units]):
    """Gemma 3n: units are on where they are far above their row's mean, as a normal distribution would have 5 % of them."""
    mean = define("mean", r, nestor.sum(gate[r, k2], over=k2) / units)
    apart = gate[r, k2] - mean[r]
    least = define("least", r, mean[r] + 1.6448536 * nestor.sqrt(nestor.sum(apart * apart, over=k2) / units))
    on = nestor.maximum(gate[r, k] - least[r], 0.0)
    curve = 0.5 * on * (1 + nestor.tanh(0.7978845608 * (on + 0.044715 * on * on * on)))
    return define("out", (r, k), curve * up[r, k], type=bf16)


def _few_units(gate, up):
    wide = widened(gate)
    least = wide.mean(1, keepdim=True) + 1.6448536 * wide.std(1, keepdim=True, unbiased=False)
    return (F.gelu(torch.relu(wide - least), approximate="tanh") * up).to(gate.dtype)


layers = Size("layers", 24)
l, l2 = indices(l=layers, l2=layers)


@nestor.nest
def layers_attention(history: bf16[layers, tokens, width], key: f32[width], gain: f32[width]):
    """A token reads what each layer before left, by the softmax of how a learned vector likes their norms."""
    scale = define("scale", (l, p), nestor.rsqrt(nestor.sum(history[l, p, c2] * history[l, p, c2], over=c2) / width + EPS))
    score = define("score", (p, l), nestor.sum(history[l, p, c2] * gain[c2] * key[c2], over=c2) * scale[l, p])
    power, total = softmax(score, (p,), key=l)
    return define("out", (p, c), nestor.sum(power[p, l] / total[p] * history[l, p, c], over=l), type=bf16)


def _layers(history, key, gain):
    normed = F.rms_norm(widened(history), history.shape[-1:], gain, EPS)
    share = torch.softmax(normed @ key, 0)
    return (share[..., None] * history).sum(0).to(history.dtype)


@nestor.nest
def sphere_update(state: bf16[rows, units], block: bf16[rows, units], rate: f32[units]):
    """nGPT: what a block gives is of length one, and so is the state that moves towards it."""
    length = define("length", r, nestor.rsqrt(nestor.sum(block[r, k2] * block[r, k2], over=k2)))
    moved = define("moved", (r, k), state[r, k] + rate[k] * (block[r, k] * length[r] - state[r, k]))
    final = define("final", r, nestor.rsqrt(nestor.sum(moved[r, k2] * moved[r, k2], over=k2)))
    return define("out", (r, k), moved[r, k] * final[r], type=bf16)


def _sphere(state, block, rate):
    wide = widened(state)
    moved = wide + rate * (F.normalize(widened(block), dim=1, eps=0.0) - wide)
    return F.normalize(moved, dim=1, eps=0.0).to(state.dtype)


@nestor.nest
def adan_step(weight: f32[rows, units], grad: bf16[rows, units], before: bf16[rows, units], first: f32[rows, units], change: f32[rows, units],
              second: f32[rows, units]):
    """Adan: moments of gradients, of their changes, and of the squares of both together."""
    slope = nestor.cast(f32, grad[r, k])
    differs = slope - before[r, k]
    first2 = define("first2", (r, k), 0.98 * first[r, k] + 0.02 * slope)
    change2 = define("change2", (r, k), 0.92 * change[r, k] + 0.08 * differs)
    ahead = slope + 0.92 * differs
    second2 = define("second2", (r, k), 0.99 * second[r, k] + 0.01 * ahead * ahead)
    step = (first2[r, k] + 0.92 * change2[r, k]) / (nestor.sqrt(second2[r, k]) + 1e-8)
    return define("out", (r, k), (weight[r, k] - 1e-3 * step) / (1 + 1e-5)), first2, change2, second2


def _adan(weight, grad, before, first, change, second):
    slope = widened(grad)
    differs = slope - before
    first, change = 0.98 * first + 0.02 * slope, 0.92 * change + 0.08 * differs
    second = 0.99 * second + 0.01 * (slope + 0.92 * differs).square()
    return (weight - 1e-3 * (first + 0.92 * change) / (second.sqrt() + 1e-8)) / (1 + 1e-5), first, change, second


matrices, tall, broad = Size("matrices", 12), Size("tall", 1024), Size("broad", 1024)
m, a, b, a2, b2 = indices(m=matrices, a=tall, b=broad, a2=tall, b2=broad)


@nestor.nest
def lars_step(weight: f32[matrices, tall, broad], grad: bf16[matrices, tall, broad], moment: f32[matrices, tall, broad]):
    """LARS: steps of each layer in proportion to what its weights are to its gradients."""
    size = define("size", m, nestor.sqrt(nestor.sum(weight[m, a2, b2] * weight[m, a2, b2], over=(a2, b2))))
    slope = define("slope", m, nestor.sqrt(nestor.sum(grad[m, a2, b2] * grad[m, a2, b2], over=(a2, b2))))
    trust = define("trust", m, 0.001 * size[m] / (slope[m] + 1e-4 * size[m] + 1e-9))
    moment2 = define("moment2", (m, a, b), 0.9 * moment[m, a, b] + trust[m] * (grad[m, a, b] + 1e-4 * weight[m, a, b]))
    return define("out", (m, a, b), weight[m, a, b] - moment2[m, a, b]), moment2


def _lars(weight, grad, moment):
    slope = widened(grad)
    size, steep = (x.square().sum((1, 2), keepdim=True).sqrt() for x in (weight, slope))
    moment = 0.9 * moment + 0.001 * size / (steep + 1e-4 * size + 1e-9) * (slope + 1e-4 * weight)
    return weight - moment, moment


batch, heads, length, dim = Size("batch", 2), Size("heads", 16), Size("length", 2048), Size("head_dim", 128, fixed=True)
w, h, i, j, d, e = indices(w=batch, h=heads, i=length, j=length, d=dim, e=dim)


@nestor.nest
def largest_logits(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim]):
    """MuonClip: the largest score of each head, over all that a query sees, and by how much its weights are to shrink."""
    score = nestor.sum(q[w, h, i, e] * k[w, h, j, e], over=e) * 128**-0.5
    row = define("row", (w, h, i), nestor.max(score, over=j, where=j <= i))
    top = define("top", h, nestor.max(row[w, h, i], over=(w, i)))
    return top, define("shrink", h, nestor.minimum(nestor.sqrt(100 / nestor.maximum(top[h], 1e-3)), 1.0))


def _largest(q, k):
    score = widened(q @ k.transpose(2, 3)) * 128**-0.5
    seen = torch.ones(score.shape[2:], dtype=torch.bool, device=q.device).tril()
    top = score.masked_fill(~seen, -math.inf).amax((0, 2, 3))
    return top, torch.sqrt(100 / top.clamp(min=1e-3)).clamp(max=1.0)


latents = Size("latents", 64)
t, t2, v2 = indices(t=latents, t2=latents, v2=length)


@nestor.nest
def perceiver_resampler(q: f16[batch, heads, latents, dim], k: f16[batch, heads, length, dim], v: f16[batch, heads, length, dim],
                        own_k: f16[batch, heads, latents, dim], own_v: f16[batch, heads, latents, dim]):
    """Flamingo: few latents attend to all that a picture has and to each other, in one softmax."""
    far = define("far", (w, h, t, j), nestor.sum(q[w, h, t, e] * k[w, h, j, e], over=e) * 128**-0.5)
    near = define("near", (w, h, t, t2), nestor.sum(q[w, h, t, e] * own_k[w, h, t2, e], over=e) * 128**-0.5)
    top = define("top", (w, h, t), nestor.maximum(nestor.max(far[w, h, t, j], over=j), nestor.max(near[w, h, t, t2], over=t2)))
    far_power = define("far_power", (w, h, t, j), nestor.exp(far[w, h, t, j] - top[w, h, t]))
    near_power = define("near_power", (w, h, t, t2), nestor.exp(near[w, h, t, t2] - top[w, h, t]))
    total = define("total", (w, h, t), nestor.sum(far_power[w, h, t, j], over=j) + nestor.sum(near_power[w, h, t, t2], over=t2))
    mixed = nestor.sum(far_power[w, h, t, j] * v[w, h, j, d], over=j) + nestor.sum(near_power[w, h, t, t2] * own_v[w, h, t2, d], over=t2)
    return define("out", (w, h, t, d), mixed / total[w, h, t], type=f16)


def _perceiver(q, k, v, own_k, own_v):
    return F.scaled_dot_product_attention(q, torch.cat([k, own_k], 2), torch.cat([v, own_v], 2))


vocabulary, deep = Size("vocabulary", 32000), Size("deep", 1024)
n = Size("places", 2048)
s, z, z2, y = indices(s=n, z=vocabulary, z2=vocabulary, y=deep)


@nestor.nest
def linear_entropy(x: bf16[n, deep], head: bf16[vocabulary, deep]):
    """How unsure a model is of each next word, from its last layer on, as reinforcement learning rewards it."""
    logit = define("logit", (s, z), nestor.sum(x[s, y] * head[z, y], over=y))
    top = define("top", s, nestor.max(logit[s, z], over=z))
    power = define("power", (s, z), nestor.exp(logit[s, z] - top[s]))
    total = define("total", s, nestor.sum(power[s, z], over=z))
    mean = nestor.sum(power[s, z] * (logit[s, z] - top[s]), over=z) / total[s]
    return define("out", s, nestor.log(total[s]) - mean)


def _linear_entropy(x, head):
    chance = torch.log_softmax(widened(x @ head.T), -1)
    return -(chance.exp() * chance).sum(-1)


@nestor.nest
def contrastive_decoding(expert: bf16[n, vocabulary], amateur: bf16[n, vocabulary]):
    """What an expert likes more than an amateur does, among words that the expert finds likely enough."""
    top = define("top", s, nestor.max(expert[s, z], over=z))
    total = define("total", s, nestor.sum(nestor.exp(expert[s, z] - top[s]), over=z))
    high = define("high", s, nestor.max(amateur[s, z], over=z))
    sum2 = define("sum2", s, nestor.sum(nestor.exp(amateur[s, z] - high[s]), over=z))
    gap = (expert[s, z2] - top[s] - nestor.log(total[s])) - (amateur[s, z2] - high[s] - nestor.log(sum2[s]))
    return define("out", (s, z2), nestor.select(expert[s, z2] >= top[s] + math.log(0.1), gap, -math.inf), type=bf16)


def _contrastive(expert, amateur):
    one, two = (torch.log_softmax(widened(x), -1) for x in (expert, amateur))
    wide = widened(expert)
    return (one - two).masked_fill(wide < wide.amax(-1, keepdim=True) + math.log(0.1), -math.inf).to(expert.dtype)


pictures, bank, side = Size("pictures", 1024), Size("bank", 16384), Size("side", 128)
g, o, f, f2 = indices(g=pictures, o=bank, f=side, f2=side)


@nestor.nest
def queue_contrast(query: f16[pictures, side], key: f16[pictures, side], queue: f16[bank, side]):
    """MoCo: a picture's other view against a queue of keys, all of length one."""
    def unit(x):
        return nestor.rsqrt(nestor.sum(x[g, f2] * x[g, f2], over=f2))
    inverse = define("inverse", g, unit(query))
    normed = define("normed", (g, f), query[g, f] * inverse[g], type=f16)
    good = define("good", g, nestor.sum(normed[g, f] * key[g, f], over=f) * unit(key) / 0.2)
    bad = define("bad", (g, o), nestor.sum(normed[g, f] * queue[o, f], over=f) / 0.2)
    top = define("top", g, nestor.maximum(nestor.max(bad[g, o], over=o), good[g]))
    total = nestor.sum(nestor.exp(bad[g, o] - top[g]), over=o) + nestor.exp(good[g] - top[g])
    return define("out", g, nestor.log(total) + top[g] - good[g])


def _queue(query, key, queue):
    normed = F.normalize(widened(query), dim=1).to(query.dtype)
    good = (widened(normed) * F.normalize(widened(key), dim=1)).sum(1, keepdim=True)
    score = torch.cat([good, widened(normed @ queue.T)], 1) / 0.2
    return -torch.log_softmax(score, 1)[:, 0]


OPERATORS = [
    Operator(clamped_swiglu, _clamped, "OpenAI, gpt-oss, arXiv:2508.10925", {"tokens": 5, "width": 16, "inner": 3}, draw={"weight": divided("width")}),
    Operator(few_units, _few_units, "Google, Gemma 3n, 2025", {"rows": 3, "units": 37}),
    Operator(layers_attention, _layers, "Kimi Team, attention residuals, 2026", {"layers": 5, "tokens": 3, "width": 17}, draw={"key": divided("width"),
                                                                                                                        "gain": around_one}),
    Operator(sphere_update, _sphere, "I. Loshchilov et al., nGPT, arXiv:2410.01131", {"rows": 3, "units": 37}, draw={"rate": lambda x, _: 0.1 * x}),
    Operator(adan_step, _adan, "X. Xie et al., arXiv:2208.06677", {"rows": 3, "units": 7}, draw={"second": lambda x, _: x * x}),
    Operator(lars_step, _lars, "Y. You et al., arXiv:1708.03888", {"matrices": 2, "tall": 5, "broad": 7}),
    Operator(largest_logits, _largest, "Kimi Team, K2, arXiv:2507.20534", {"batch": 2, "heads": 3, "length": 9, "head_dim": 128}),
    Operator(perceiver_resampler, _perceiver, "J.-B. Alayrac et al., arXiv:2204.14198", {"batch": 1, "heads": 2, "latents": 3, "length": 7, "head_dim": 128}),
    Operator(linear_entropy, _linear_entropy, "T. Haarnoja et al., 2018; D. Cui et al., arXiv:2505.22617", {"places": 3, "deep": 16, "vocabulary": 11},
             draw={"head": divided("deep")}),
    Operator(contrastive_decoding, _contrastive, "X. L. Li et al., arXiv:2210.15097", {"places": 3, "vocabulary": 41}),
    Operator(queue_contrast, _queue, "K. He et al., arXiv:1911.05722", {"pictures": 3, "bank": 7, "side": 16}, draw={"queue": divided("side")}),
]
