"""Layers of recent models and of their training: mixtures without routing, keys of blocks, gates on values, quantised rows, preferences."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened

EPS = 1e-6

batch, heads, length, dim = Size("batch", 2), Size("heads", 16), Size("length", 2048), Size("head_dim", 128, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)
SCALE = 128**-0.5


@nestor.nest
def value_residual_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                             first: bf16[batch, heads, length, dim], share: f32[heads]):
    """Values are mixed with those of the first layer."""
    value = define("value", (b, h, j, d), share[h] * v[b, h, j, d] + (1 - share[h]) * first[b, h, j, d], type=bf16)
    score = define("score", (b, h, i, j), nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * SCALE, where=j <= i)
    power, total = softmax(score, (b, h, i), j <= i, key=j)
    return define("out", (b, h, i, d), nestor.sum(power[b, h, i, j] * value[b, h, j, d], over=j, where=j <= i) / total[b, h, i],
                  type=bf16)


def _value_residual(q, k, v, first, share):
    share = share[:, None, None]
    value = (share * widened(v) + (1 - share) * widened(first)).to(v.dtype)
    return F.scaled_dot_product_attention(q, k, value, is_causal=True, scale=SCALE)


packs = Size("packs", 256)
n, n2 = indices(n=packs, n2=packs)


@nestor.nest
def compressed_attention(q: bf16[batch, heads, packs * 16, dim], k: bf16[batch, heads, packs * 16, dim],
                         v: bf16[batch, heads, packs * 16, dim]):
    """Native sparse attention's coarse branch: means of 16 keys and values, and all queries that come after them."""
    (i,) = indices(i=packs * 16)
    (w,) = indices(w=16)
    key = define("key", (b, h, n, d), nestor.sum(k[b, h, 16 * n + w, d], over=w) / 16, type=bf16)
    value = define("value", (b, h, n, d), nestor.sum(v[b, h, 16 * n + w, d], over=w) / 16, type=bf16)
    score = define("score", (b, h, i, n), nestor.sum(q[b, h, i, e] * key[b, h, n, e], over=e) * SCALE, where=16 * n <= i)
    power, total = softmax(score, (b, h, i), 16 * n <= i, key=n)
    return define("out", (b, h, i, d), nestor.sum(power[b, h, i, n] * value[b, h, n, d], over=n, where=16 * n <= i) / total[b, h, i],
                  type=bf16)


def _compressed(q, k, v):
    key, value = (widened(x).unflatten(2, (-1, 16)).mean(3).to(x.dtype) for x in (k, v))
    at = torch.arange(q.shape[2], device=q.device)
    seen = 16 * torch.arange(key.shape[2], device=q.device) <= at[:, None]
    return F.scaled_dot_product_attention(q, key, value, attn_mask=seen, scale=SCALE)


caches, context, groups, shared = Size("caches", 16), Size("context", 8192), Size("groups", 4), Size("shared", 8)
m, t, x, y = indices(m=caches, t=context, x=groups, y=shared)


@nestor.nest
def alibi_decoding(q: bf16[caches, shared, groups, dim], k: bf16[caches, shared, context, dim], v: bf16[caches, shared, context, dim],
                   slope: f32[shared, groups]):
    """A token of each sequence; scores fall with distance."""
    raw = nestor.sum(q[m, y, x, e] * k[m, y, t, e], over=e) * SCALE
    score = define("score", (m, y, x, t), raw - slope[y, x] * (context - 1 - t))
    power, total = softmax(score, (m, y, x), key=t)
    return define("out", (m, y, x, d), nestor.sum(power[m, y, x, t] * v[m, y, t, d], over=t) / total[m, y, x], type=bf16)


def _alibi(q, k, v, slope):
    back = torch.arange(k.shape[2] - 1, -1, -1, device=q.device, dtype=slope.dtype)
    bias = (-slope[..., None] * back).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=SCALE)


tokens, slots, width = Size("tokens", 4096), Size("slots", 512), Size("width", 1024)
p, p2, s, s2, c, c2 = indices(p=tokens, p2=tokens, s=slots, s2=slots, c=width, c2=width)


@nestor.nest
def soft_dispatch(x: bf16[tokens, width], phi: bf16[slots, width]):
    """Soft MoE: slots as means of tokens, weights of each slot over all tokens."""
    score = define("score", (s, p), nestor.sum(x[p, c2] * phi[s, c2], over=c2))
    power, total = softmax(score, (s,), key=p)
    return define("out", (s, c), nestor.sum(power[s, p] * x[p, c], over=p) / total[s], type=bf16)


def _soft_dispatch(x, phi):
    return torch.softmax(widened(x @ phi.T), 0).to(x.dtype).T @ x


side = Size("side", 2048)
a, a2, a3, a4 = indices(a=side, a2=side, a3=side, a4=side)


@nestor.nest
def orthogonal_step(x: bf16[side, side]):
    """Muon: one step of Newton and Schulz."""
    square = define("square", (a, a2), nestor.sum(x[a, a3] * x[a2, a3], over=a3), type=bf16)
    fourth = nestor.sum(square[a, a3] * square[a3, a2], over=a3)
    mixed = define("mixed", (a, a2), -4.775 * square[a, a2] + 2.0315 * fourth, type=bf16)
    return define("out", (a, a2), 3.4445 * x[a, a2] + nestor.sum(mixed[a, a3] * x[a3, a2], over=a3), type=bf16)


def _orthogonal(x):
    square = x @ x.T
    mixed = (-4.775 * widened(square) + 2.0315 * widened(square @ square)).to(x.dtype)
    return (3.4445 * widened(x) + widened(mixed @ x)).to(x.dtype)


inner = Size("inner", 2816)
u, u2 = indices(u=inner, u2=inner)


@nestor.nest
def norm_swiglu(x: bf16[tokens, width], gain: bf16[width], gate: bf16[inner, width], up: bf16[inner, width]):
    """A norm, then both halves of a gated layer."""
    scale = define("scale", p, nestor.rsqrt(nestor.sum(x[p, c2] * x[p, c2], over=c2) / width + EPS))
    normed = define("normed", (p, c), x[p, c] * scale[p] * gain[c], type=bf16)
    opened = define("opened", (p, u), nestor.sum(normed[p, c] * gate[u, c], over=c))
    value = nestor.sum(normed[p, c] * up[u, c], over=c)
    return define("out", (p, u), opened[p, u] / (1 + nestor.exp(-opened[p, u])) * value, type=bf16)


def _norm_swiglu(x, gain, gate, up):
    normed = F.rms_norm(x, x.shape[-1:], gain, EPS)
    return F.silu(normed @ gate.T) * (normed @ up.T)


@nestor.nest
def weight_norm_linear(x: f16[tokens, width], weight: f16[inner, width], size: f32[inner]):
    """Filters of a size of their own, whatever their weights."""
    norm = define("norm", u, nestor.rsqrt(nestor.sum(weight[u, c2] * weight[u, c2], over=c2)))
    return define("out", (p, u), nestor.sum(x[p, c] * weight[u, c], over=c) * (norm[u] * size[u]), type=f16)


def _weight_norm(x, weight, size):
    return (widened(x @ weight.T) * (size * torch.rsqrt(widened(weight).square().sum(-1)))).to(x.dtype)


rows, cols = Size("rows", 8192), Size("cols", 4096)
r, k, k2 = indices(r=rows, k=cols, k2=cols)


@nestor.nest
def quantise_rows(x: bf16[rows, cols]):
    """Rows as integers of 8 bits and a scale each."""
    top = define("top", r, nestor.maximum(nestor.max(nestor.absolute(x[r, k2]), over=k2), 1e-5) / 127)
    return define("out", (r, k), nestor.floor(x[r, k] / top[r] + 0.5), type=bf16), top


def _quantise(x):
    top = widened(x).abs().amax(-1).clamp(min=1e-5) / 127
    return torch.floor(widened(x) / top[:, None] + 0.5).to(x.dtype), top


@nestor.nest
def lion_step(weight: f32[rows, cols], grad: bf16[rows, cols], moment: bf16[rows, cols]):
    """Signs of an interpolated moment."""
    way = 0.9 * moment[r, k] + 0.1 * grad[r, k]
    sign = nestor.select(way > 0, 1.0, nestor.select(way < 0, -1.0, 0.0))
    return (define("out", (r, k), weight[r, k] * (1 - 1e-5) - 1e-4 * sign),
            define("moment2", (r, k), 0.99 * moment[r, k] + 0.01 * grad[r, k], type=bf16))


def _lion(weight, grad, moment):
    wide, slope = widened(moment), widened(grad)
    return weight * (1 - 1e-5) - 1e-4 * torch.sign(0.9 * wide + 0.1 * slope), (0.99 * wide + 0.01 * slope).to(moment.dtype)


pairs, words, vocabulary = Size("pairs", 8), Size("words", 256), Size("vocabulary", 32000)
z, w, q, q2 = indices(z=pairs, w=words, q=vocabulary, q2=vocabulary)


@nestor.nest
def sequence_likelihood(logits: bf16[pairs, words, vocabulary], label: i32[pairs, words], weight: f32[pairs, words]):
    """DPO's part of a sequence: log probabilities of its words, added."""
    top = define("top", (z, w), nestor.max(logits[z, w, q], over=q))
    total = define("total", (z, w), nestor.sum(nestor.exp(logits[z, w, q] - top[z, w]), over=q))
    own = define("own", (z, w), nestor.sum(nestor.select(label[z, w] == q2, logits[z, w, q2], 0.0), over=q2))
    chance = own[z, w] - top[z, w] - nestor.log(total[z, w])
    return define("out", z, nestor.sum(weight[z, w] * chance, over=w))


def _likelihood(logits, label, weight):
    chance = torch.log_softmax(widened(logits), -1).gather(-1, label.long()[..., None])[..., 0]
    return (weight * chance).sum(-1)


pictures, high, across, maps, ways = Size("pictures", 32), Size("high", 56), Size("across", 56), Size("maps", 128), Size("ways", 128)
l, yy, xx, g, g2, o = indices(l=pictures, yy=high, xx=across, g=maps, g2=maps, o=ways)


@nestor.nest
def separable_conv(x: f16[pictures, high + 2, across + 2, maps], each: f16[3, 3, maps], mix: f16[ways, maps]):
    """MobileNet: a filter of 3 x 3 for each channel, then a product over channels."""
    dy, dx = indices(dy=3, dx=3)
    found = nestor.maximum(nestor.sum(x[l, yy + dy, xx + dx, g] * each[dy, dx, g], over=(dy, dx)), 0.0)
    middle = define("middle", (l, yy, xx, g), found, type=f16)
    return define("out", (l, yy, xx, o), nestor.maximum(nestor.sum(middle[l, yy, xx, g] * mix[o, g], over=g), 0.0), type=f16)


def _separable(x, each, mix):
    found = F.conv2d(x.permute(0, 3, 1, 2), each.permute(2, 0, 1)[:, None], groups=x.shape[-1])
    return torch.relu(F.conv2d(torch.relu(found), mix[..., None, None])).permute(0, 2, 3, 1)


@nestor.nest
def generalised_pooling(x: f16[pictures, high, across, maps], power: f32[maps]):
    """GeM: means of powers."""
    found = nestor.sum(nestor.exp(power[g] * nestor.log(nestor.maximum(x[l, yy, xx, g], EPS))), over=(yy, xx))
    return define("out", (l, g), nestor.exp(nestor.log(found / (high * across)) / power[g]))


def _generalised(x, power):
    return widened(x).clamp(min=EPS).pow(power).mean((1, 2)).pow(1 / power)


@nestor.nest
def evolved_norm(x: f16[pictures, high, across, 8, maps], gain: f32[8, maps], bias: f32[8, maps], slope: f32[8, maps]):
    """EvoNorm-S0: a gate over the deviation of a group."""
    part, ys, xs = indices(part=8, ys=high, xs=across)
    count = high * across * maps
    mean = define("mean", (l, part), nestor.sum(x[l, ys, xs, part, g2], over=(ys, xs, g2)) / count)
    apart = x[l, ys, xs, part, g2] - mean[l, part]
    scale = define("scale", (l, part), nestor.rsqrt(nestor.sum(apart * apart, over=(ys, xs, g2)) / count + 1e-5))
    value = x[l, yy, xx, part, g]
    gated = value / (1 + nestor.exp(-slope[part, g] * value))
    return define("out", (l, yy, xx, part, g), gated * scale[l, part] * gain[part, g] + bias[part, g], type=f16)


def _evolved(x, gain, bias, slope):
    wide = widened(x)
    scale = torch.rsqrt(wide.var((1, 2, 4), keepdim=True, unbiased=False) + 1e-5)
    return (wide * torch.sigmoid(slope * wide) * scale * gain + bias).to(x.dtype)


lanes, hidden = Size("lanes", 512), Size("hidden", 1024)
f, f2, f3 = indices(f=hidden, f2=hidden, f3=hidden)
(lane,) = indices(lane=lanes)


@nestor.nest
def gru_cell(x: f16[lanes, hidden], state: f16[lanes, hidden], wx: f16[3, hidden, hidden], wh: f16[3, hidden, hidden], bias: f32[3, hidden]):
    """A step of a gated recurrent unit, the reset before the product."""
    def part(n, of, over):
        fresh = nestor.sum(x[lane, f2] * wx[n, f, f2], over=f2)
        return fresh + nestor.sum(of[lane, over] * wh[n, f, over], over=over) + bias[n, f]
    keep = define("keep", (lane, f), 1 / (1 + nestor.exp(-part(0, state, f3))))
    reset = define("reset", (lane, f), state[lane, f] / (1 + nestor.exp(-part(1, state, f3))), type=f16)
    new = nestor.tanh(part(2, reset, f3))
    return define("out", (lane, f), keep[lane, f] * state[lane, f] + (1 - keep[lane, f]) * new, type=f16)


def _gru(x, state, wx, wh, bias):
    fresh = [widened(x @ w.T) + shift for w, shift in zip(wx, bias)]
    keep = torch.sigmoid(fresh[0] + widened(state @ wh[0].T))
    reset = (widened(state) * torch.sigmoid(fresh[1] + widened(state @ wh[1].T))).to(x.dtype)
    new = torch.tanh(fresh[2] + widened(reset @ wh[2].T))
    return (keep * widened(state) + (1 - keep) * new).to(x.dtype)


talks, frames, feats, taps = Size("talks", 16), Size("frames", 2048), Size("feats", 32), Size("taps", 7, fixed=True)
at, time, feat, tap, tap2, head = indices(at=talks, time=frames, feat=feats, tap=taps, tap2=taps, head=16)


@nestor.nest
def dynamic_conv(x: f16[talks, frames + taps - 1, 16, feats], raw: f16[talks, frames, 16, taps]):
    """Filters of each place and head, softmax over taps."""
    top = define("top", (at, time, head), nestor.max(raw[at, time, head, tap2], over=tap2))
    power = define("power", (at, time, head, tap), nestor.exp(raw[at, time, head, tap] - top[at, time, head]))
    total = define("total", (at, time, head), nestor.sum(power[at, time, head, tap2], over=tap2))
    found = nestor.sum(power[at, time, head, tap] * x[at, time + tap, head, feat], over=tap)
    return define("out", (at, time, head, feat), found / total[at, time, head], type=f16)


def _dynamic(x, raw):
    windows = widened(x).unfold(1, raw.shape[-1], 1)
    return (windows * torch.softmax(widened(raw), -1)[..., None, :]).sum(-1).to(x.dtype)


@nestor.nest
def pearson(x: f32[rows, cols], y: f32[rows, cols]):
    """Correlations of rows."""
    mx = define("mx", r, nestor.sum(x[r, k2], over=k2) / cols)
    my = define("my", r, nestor.sum(y[r, k2], over=k2) / cols)
    dx, dy = x[r, k] - mx[r], y[r, k] - my[r]
    both = define("both", r, nestor.sum(dx * dy, over=k))
    sx = define("sx", r, nestor.sum(dx * dx, over=k))
    sy = define("sy", r, nestor.sum(dy * dy, over=k))
    return define("out", r, both[r] * nestor.rsqrt(sx[r] * sy[r] + EPS))


def _pearson(x, y):
    dx, dy = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    return (dx * dy).sum(-1) * torch.rsqrt(dx.square().sum(-1) * dy.square().sum(-1) + EPS)


ATTENTION = {"batch": 2, "heads": 3, "length": 7, "head_dim": 6}
OPERATORS = [
    Operator(value_residual_attention, _value_residual, "Z. Zhou et al., arXiv:2410.17897", ATTENTION,
             draw={"share": lambda x, _: torch.sigmoid(x)}),
    Operator(compressed_attention, _compressed, "J. Yuan et al., Native Sparse Attention, arXiv:2502.11089",
             {"batch": 2, "heads": 3, "packs": 3, "head_dim": 6}),
    Operator(alibi_decoding, _alibi, "O. Press et al., arXiv:2108.12409", {"caches": 2, "context": 7, "groups": 3, "shared": 2, "head_dim": 6},
             draw={"slope": lambda x, _: 0.01 * x.abs()}),
    Operator(soft_dispatch, _soft_dispatch, "J. Puigcerver et al., Soft MoE, arXiv:2308.00951", {"tokens": 7, "slots": 5, "width": 6},
             draw={"phi": divided("width")}),
    Operator(orthogonal_step, _orthogonal, "K. Jordan et al., Muon, 2024", {"side": 7}, draw={"x": lambda x, sizes: x / (2 * sizes["side"]**0.5)}),
    Operator(norm_swiglu, _norm_swiglu, "N. Shazeer, arXiv:2002.05202", {"tokens": 7, "width": 6, "inner": 5},
             draw={"gain": around_one, "gate": divided("width"), "up": divided("width")}),
    Operator(weight_norm_linear, _weight_norm, "T. Salimans and D. Kingma, arXiv:1602.07868", {"tokens": 7, "width": 6, "inner": 5},
             draw={"size": around_one}),
    Operator(quantise_rows, _quantise, "T. Dettmers et al., LLM.int8(), arXiv:2208.07339", {"rows": 5, "cols": 7}),
    Operator(lion_step, _lion, "X. Chen et al., arXiv:2302.06675", {"rows": 5, "cols": 7}),
    Operator(sequence_likelihood, _likelihood, "R. Rafailov et al., arXiv:2305.18290", {"pairs": 3, "words": 5, "vocabulary": 7},
             draw={"label": lambda x, sizes: (x.abs() * 1e4) % sizes["vocabulary"]}),
    Operator(separable_conv, _separable, "A. Howard et al., MobileNets, arXiv:1704.04861",
             {"pictures": 2, "high": 5, "across": 3, "maps": 6, "ways": 4}, draw={"mix": divided("maps")}),
    Operator(generalised_pooling, _generalised, "F. Radenovic et al., arXiv:1711.02512", {"pictures": 2, "high": 5, "across": 3, "maps": 6},
             draw={"power": lambda x, _: 3 + 0.1 * x}),
    Operator(evolved_norm, _evolved, "H. Liu et al., EvoNorm, arXiv:2004.02967", {"pictures": 2, "high": 5, "across": 3, "maps": 6},
             draw={"gain": around_one}),
    Operator(gru_cell, _gru, "K. Cho et al., arXiv:1406.1078", {"lanes": 5, "hidden": 6},
             draw={"wx": divided("hidden"), "wh": divided("hidden")}),
    Operator(dynamic_conv, _dynamic, "F. Wu et al., arXiv:1901.10430", {"talks": 2, "frames": 5, "feats": 3, "taps": 7}),
    Operator(pearson, _pearson, "K. Pearson, 1895", {"rows": 5, "cols": 7}),
]
