"""Attention of other kinds: biases of distance, signs, indexers, windows that are shifted, points in space, caches of many lengths, states."""

import math

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from . import flex
from .attention import softmax
from .problem import Operator, around_one, divided, widened

batch, heads, length, dim = Size("batch", 4), Size("heads", 16), Size("length", 2048), Size("head_dim", 128, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)
SCALE = 128**-0.5


@nestor.nest
def kerple_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                     slope: f32[heads], rate: f32[heads]):
    """Scores fall with the logarithm of the distance; each head learns how fast."""
    row, seen = (b, h, i), j <= i
    dot = nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE
    score = define("score", (*row, j), dot - slope[h] * nestor.log(1 + rate[h] * (i - j)), where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _kerple(q, k, v, slope, rate):
    at = torch.arange(q.shape[2], device=q.device)
    back = at[:, None] - at
    bias = -slope[:, None, None] * torch.log(1 + rate[:, None, None] * back.clamp(min=0))
    return F.scaled_dot_product_attention(q, k, v, bias.masked_fill(back < 0, -math.inf).to(q.dtype), scale=SCALE)


def _flex_kerple(q, k, v, slope, rate, mask):
    return flex_attention(q, k, v, block_mask=mask, scale=SCALE,
                          score_mod=lambda score, b, h, i, j: score - slope[h] * torch.log(1 + rate[h] * (i - j).abs()))


@nestor.nest
def signed_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
    """Cog attention: a softmax of the scores' sizes, whose weights keep the scores' signs."""
    row, seen = (b, h, i), j <= i
    score = define("score", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE, where=seen)
    size = define("size", (*row, j), nestor.absolute(score[(*row, j)]), where=seen)
    power, total = softmax(size, row, seen, key=j)
    weight = nestor.select(score[(*row, j)] < 0, -power[(*row, j)], power[(*row, j)])
    return define("out", (*row, d), nestor.sum(weight * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _signed(q, k, v):
    score = widened(q @ k.transpose(2, 3)) * SCALE
    hidden = torch.ones(score.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return (torch.softmax(score.abs().masked_fill(hidden, -math.inf), -1) * torch.where(score < 0, -1.0, 1.0)).to(q.dtype) @ v


asked, crew = Size("asked", 2048), Size("crew", 64)
t, s, w = indices(t=asked, s=asked, w=crew)


@nestor.nest
def lightning_indexer(q: bf16[asked, crew, dim], k: bf16[asked, dim], weight: f32[asked, crew]):
    """DeepSeek's sparse attention: how much each earlier token matters, by 64 small heads with one key."""
    dot = define("dot", (t, s, w), nestor.sum(q[t, w, e] * k[s, e], over=e))
    found = nestor.sum(weight[t, w] * nestor.maximum(dot[t, s, w], 0.0), over=w)
    return define("out", (t, s), nestor.select(s <= t, found, -1e30))


def _indexer(q, k, weight):
    found = torch.einsum("twe,se->tsw", q, k).relu()
    found = (widened(found) * weight[:, None]).sum(-1)
    return found.masked_fill(torch.ones_like(found, dtype=torch.bool).triu(1), -1e30)


texts, groups, ways, packs = Size("texts", 2), Size("groups", 4), Size("ways", 4), Size("packs", 256)
x, g, u, a, n = indices(x=texts, g=groups, u=ways, a=16 * packs, n=packs)


@nestor.nest
def block_importance(q: f16[texts, groups, ways, 16 * packs, dim], key: f16[texts, groups, packs, dim]):
    """Native sparse attention: how much the heads of a group look at each block of 16 keys, by which blocks are chosen."""
    row, seen = (x, g, u, a), 16 * n <= a
    score = define("score", (*row, n), nestor.sum(q[(*row, e)] * key[x, g, n, e], over=e) * SCALE, where=seen)
    power, total = softmax(score, row, seen, key=n)
    found = nestor.sum(power[(*row, n)] / total[row], over=u, where=seen)
    return define("out", (x, g, a, n), nestor.select(seen, found, 0.0))


def _importance(q, key):
    score = widened(q @ key[:, :, None].transpose(3, 4)) * SCALE
    at = torch.arange(q.shape[3], device=q.device)
    return torch.softmax(score.masked_fill(16 * at[:key.shape[2]] > at[:, None], -math.inf), -1).sum(2)


caches, shared, fours, cached = Size("caches", 16), Size("shared", 8), Size("fours", 4), Size("cached", 4096)
m, y, z, c = indices(m=caches, y=shared, z=fours, c=cached)


@nestor.nest
def ragged_decoding(q: f16[caches, shared, fours, dim], k: f16[caches, cached, shared, dim], v: f16[caches, cached, shared, dim], ends: i32[caches]):
    """A token of each sequence reads its cache, as far as that is filled; keys of all heads lie together."""
    dot = nestor.sum(q[m, y, z, e] * k[m, c, y, e], over=e) * SCALE
    score = define("score", (m, y, z, c), nestor.select(ends[m] > c, dot, -1e30))
    power, total = softmax(score, (m, y, z), key=c)
    return define("out", (m, y, z, d), nestor.sum(power[m, y, z, c] * v[m, c, y, d], over=c) / total[m, y, z], type=f16)


def _ragged(q, k, v, ends):
    hidden = torch.arange(k.shape[1], device=k.device) >= ends[:, None]
    bias = torch.where(hidden, -1e4, 0.0).to(q.dtype)[:, None, None]
    return F.scaled_dot_product_attention(q, k.transpose(1, 2), v.transpose(1, 2), bias, scale=SCALE)


small = Size("small", 64, fixed=True)
few, more = indices(few=small, more=small)


@nestor.nest
def lorentz_attention(q: f16[batch, heads, length, small], k: f16[batch, heads, length, small], v: f16[batch, heads, length, small], sharp: f32[heads]):
    """Hyperbolic attention: distances and means on a hyperboloid, whose first coordinate follows from the others."""
    def first(name, x, at):
        return define(name, (b, h, at), nestor.sqrt(1 + nestor.sum(x[b, h, at, more] * x[b, h, at, more], over=more)))
    first_q, first_k, first_v = first("first_q", q, i), first("first_k", k, j), first("first_v", v, j)
    row = (b, h, i)
    inner = first_q[row] * first_k[b, h, j] - nestor.sum(q[(*row, more)] * k[b, h, j, more], over=more)
    large = define("large", (*row, j), nestor.maximum(inner, 1.0001))
    far = nestor.log(large[(*row, j)] + nestor.sqrt(large[(*row, j)] * large[(*row, j)] - 1))
    score = define("score", (*row, j), -sharp[h] * far)
    top = define("top", row, nestor.max(score[(*row, j)], over=j))
    power = define("power", (*row, j), nestor.exp(score[(*row, j)] - top[row]))
    mean = define("mean", (*row, few), nestor.sum(power[(*row, j)] * v[b, h, j, few], over=j))
    mean_first = define("mean_first", row, nestor.sum(power[(*row, j)] * first_v[b, h, j], over=j))
    length_ = mean_first[row] * mean_first[row] - nestor.sum(mean[(*row, more)] * mean[(*row, more)], over=more)
    inverse = define("inverse", row, nestor.rsqrt(nestor.maximum(length_, 1e-8)))
    return define("out", (*row, few), mean[(*row, few)] * inverse[row], type=f16)


def _lorentz(q, k, v, sharp):
    first_q, first_k, first_v = ((1 + widened(x).square().sum(-1)).sqrt() for x in (q, k, v))
    large = (first_q[..., None] * first_k[:, :, None] - widened(q @ k.transpose(2, 3))).clamp(min=1.0001)
    weight = torch.softmax(-sharp[:, None, None] * torch.acosh(large), -1)
    mean, mean_first = widened(weight.to(v.dtype) @ v), (weight * first_v[:, :, None]).sum(-1)
    length_ = mean_first.square() - mean.square().sum(-1)
    return (mean * length_.clamp(min=1e-8).rsqrt()[..., None]).to(q.dtype)


@nestor.nest
def cosformer_attention(q: f16[batch, heads, length, small], k: f16[batch, heads, length, small], v: f16[batch, heads, length, small],
                        cosine: f32[length], sine: f32[length]):
    """Linear attention of ReLUs, whose weights fall as a cosine of the distance: two states, one for each part of the angle."""
    def part(name, wave):
        key = define(f"key_{name}", (b, h, j, few), nestor.maximum(k[b, h, j, few], 0.0) * wave[j], type=f16)
        query = define(f"query_{name}", (b, h, i, few), nestor.maximum(q[b, h, i, few], 0.0) * wave[i], type=f16)
        state = define(f"state_{name}", (b, h, more, few), nestor.sum(key[b, h, j, more] * v[b, h, j, few], over=j) / length, type=f16)
        sums = define(f"sums_{name}", (b, h, more), nestor.sum(key[b, h, j, more], over=j) / length)
        return (nestor.sum(query[b, h, i, more] * state[b, h, more, few], over=more), nestor.sum(query[b, h, i, more] * sums[b, h, more], over=more))
    (found, total), (found2, total2) = part("cosine", cosine), part("sine", sine)
    total = define("total", (b, h, i), total + total2)
    return define("out", (b, h, i, few), (found + found2) / nestor.maximum(total[b, h, i], 1e-4), type=f16)


def _cosformer(q, k, v, cosine, sine):
    length_ = q.shape[2]
    found, total = 0.0, 0.0
    for wave in (cosine, sine):
        query, key = ((widened(x).relu() * wave[:, None]).to(q.dtype) for x in (q, k))
        state = (widened(key.transpose(2, 3) @ v) / length_).to(q.dtype)
        found = found + widened(query @ state)
        total = total + (widened(query) @ (widened(key).sum(2) / length_)[..., None])
    return (found / total.clamp(min=1e-4)).to(q.dtype)


many, chunk = Size("many", 4096), Size("chunk", 16, fixed=True)
ch, o, o2 = indices(ch=many, o=chunk, o2=chunk)


@nestor.nest
def test_time_training(q: bf16[many, chunk, small], k: bf16[many, chunk, small], v: bf16[many, chunk, small], weight: bf16[many, small, small],
                       bias: f32[many, small], gain: f32[small], shift: f32[small], rate: f32[many, chunk]):
    """TTT-Linear: a layer is trained on 16 tokens by one step of gradient descent, through a layer norm, and used on the way."""
    at = (ch, o)
    line = define("line", (*at, few), nestor.sum(k[(*at, more)] * weight[ch, more, few], over=more) + bias[ch, few])
    mean = define("mean", at, nestor.sum(line[(*at, more)], over=more) / small)
    apart = line[(*at, more)] - mean[at]
    spread = define("spread", at, nestor.rsqrt(nestor.sum(apart * apart, over=more) / small + 1e-6))
    hat = define("hat", (*at, few), (line[(*at, few)] - mean[at]) * spread[at])
    back = define("back", (*at, few), gain[few] * (gain[few] * hat[(*at, few)] + shift[few] - v[(*at, few)] + k[(*at, few)]))
    total = define("total", at, nestor.sum(back[(*at, more)], over=more) / small)
    along = define("along", at, nestor.sum(back[(*at, more)] * hat[(*at, more)], over=more) / small)
    grad = define("grad", (*at, few), (back[(*at, few)] - total[at] - hat[(*at, few)] * along[at]) * spread[at], type=bf16)
    dot = nestor.sum(q[(*at, more)] * k[ch, o2, more], over=more)
    near = define("near", (*at, o2), (1 + dot) * rate[ch, o2], type=bf16, where=o2 <= o)
    before = nestor.sum(q[(*at, more)] * weight[ch, more, few], over=more) + bias[ch, few]
    out = define("out", (*at, few), before - nestor.sum(near[(*at, o2)] * grad[ch, o2, few], over=o2, where=o2 <= o), type=bf16)
    slow = define("slow", (*at, few), k[(*at, few)] * rate[at], type=bf16)
    after = weight[ch, more, few] - nestor.sum(slow[(*at, more)] * grad[(*at, few)], over=o)
    return out, define("after", (ch, more, few), after, type=bf16)


def _test_time(q, k, v, weight, bias, gain, shift, rate):
    line = widened(k @ weight) + bias[:, None]
    spread = (line.var(-1, unbiased=False, keepdim=True) + 1e-6).rsqrt()
    hat = (line - line.mean(-1, keepdim=True)) * spread
    back = gain * (gain * hat + shift - widened(v) + widened(k))
    grad = ((back - back.mean(-1, keepdim=True) - hat * (back * hat).mean(-1, keepdim=True)) * spread).to(q.dtype)
    near = ((1 + widened(q @ k.transpose(1, 2))) * rate[:, None]).tril().to(q.dtype)
    out = widened(q @ weight) + bias[:, None] - widened(near @ grad)
    slow = (widened(k) * rate[..., None]).to(q.dtype)
    return out.to(q.dtype), (widened(weight) - widened(slow.transpose(1, 2) @ grad)).to(q.dtype)


marks = Size("marks", 64)
p, p2, r, at32, whole = indices(p=marks, p2=marks, r=32 * marks, at32=32, whole=32 * marks)


@nestor.nest
def nystrom_attention(q: f16[batch, heads, 32 * marks, small], k: f16[batch, heads, 32 * marks, small], v: f16[batch, heads, 32 * marks, small],
                      middle: f16[batch, heads, marks, marks]):
    """Two softmaxes over landmarks, which are means of 32 neighbours, and the inverse between them, which is given."""
    def landmarks(name, x0):
        return define(name, (b, h, p, few), nestor.sum(x0[b, h, 32 * p + at32, few], over=at32) / 32, type=f16)

    def spread(name, row, key, query, keys):
        score = define(f"score_{name}", (*row, key), nestor.sum(query[(*row, more)] * keys[b, h, key, more], over=more) / 8)
        top = define(f"top_{name}", row, nestor.max(score[(*row, key)], over=key))
        power = define(f"power_{name}", (*row, key), nestor.exp(score[(*row, key)] - top[row]))
        return power, define(f"total_{name}", row, nestor.sum(power[(*row, key)], over=key))
    marks_q, marks_k = landmarks("marks_q", q), landmarks("marks_k", k)
    late, late_total = spread("late", (b, h, p), whole, marks_q, k)
    found = define("found", (b, h, p, few), nestor.sum(late[b, h, p, whole] * v[b, h, whole, few], over=whole) / late_total[b, h, p], type=f16)
    mixed = define("mixed", (b, h, p, few), nestor.sum(middle[b, h, p, p2] * found[b, h, p2, few], over=p2), type=f16)
    early, early_total = spread("early", (b, h, r), p, q, marks_k)
    return define("out", (b, h, r, few), nestor.sum(early[b, h, r, p] * mixed[b, h, p, few], over=p) / early_total[b, h, r], type=f16)


def _nystrom(q, k, v, middle):
    marks_q, marks_k = (x.unflatten(2, (-1, 32)).mean(3) for x in (q, k))
    return F.scaled_dot_product_attention(q, marks_k, middle @ F.scaled_dot_product_attention(marks_q, k, v))


images, band = Size("images", 64), Size("band", 4)
narrow = Size("narrow", 32, fixed=True)
im, ba, wy, wx, at, to, na, na2 = indices(im=images, ba=band, wy=8, wx=8, at=49, to=49, na=narrow, na2=narrow)


@nestor.nest
def shifted_window_attention(q: f16[images, 56, 56, band, narrow], k: f16[images, 56, 56, band, narrow], v: f16[images, 56, 56, band, narrow],
                             bias: f16[band, 13, 13]):
    """Swin: windows of 7 x 7 of a picture that is rolled by 3; what comes from the other side is not seen."""
    def place(token):
        return (7 * wy + token // 7 + 3) % 56, (7 * wx + token % 7 + 3) % 56
    row = (im, ba, wy, wx, at)
    dot = nestor.sum(q[(im, *place(at), ba, na2)] * k[(im, *place(to), ba, na2)], over=na2) * 32**-0.5
    dot = dot + bias[ba, at // 7 - to // 7 + 6, at % 7 - to % 7 + 6]
    low, low2, left, left2 = at // 7 < 4, to // 7 < 4, at % 7 < 4, to % 7 < 4
    apart = ((wy == 7) & ((low & ~low2) | (~low & low2))) | ((wx == 7) & ((left & ~left2) | (~left & left2)))
    score = define("score", (*row, to), nestor.select(apart, dot - 100, dot))
    power, total = softmax(score, row, key=to)
    found = nestor.sum(power[(*row, to)] * v[(im, *place(to), ba, na)], over=to) / total[row]
    return define("out", (*row, na), found, type=f16)


def _windows(x):
    """Rolled by 3 and cut: [images, band, wy, wx, at, na]."""
    return x.roll((-3, -3), (1, 2)).unflatten(2, (8, 7)).unflatten(1, (8, 7)).permute(0, 5, 1, 3, 2, 4, 6).flatten(4, 5)


def _shifted(q, k, v, bias):
    at = torch.arange(49, device=q.device)
    by_place = bias[:, (at[:, None] // 7 - at // 7 + 6), (at[:, None] % 7 - at % 7 + 6)]
    part = torch.stack([at // 7 < 4, at % 7 < 4])
    differ = part[:, :, None] != part[:, None]
    last = torch.arange(8, device=q.device) == 7
    apart = (last[:, None, None, None] & differ[0]) | (last[:, None, None] & differ[1])
    full = by_place[:, None, None] + torch.where(apart, -100.0, 0.0).to(q.dtype)
    return F.scaled_dot_product_attention(_windows(q), _windows(k), _windows(v), full.expand(q.shape[0], *full.shape))


folds, residues, channels, pair = Size("folds", 2), Size("residues", 384), Size("channels", 16, fixed=True), Size("pair", 128, fixed=True)
twelve = Size("twelve", 12)
f, hd, i1, j1, cc, cc2, pt, pt2, xyz, pr = indices(f=folds, hd=twelve, i1=residues, j1=residues, cc=channels, cc2=channels, pt=4, pt2=8, xyz=3, pr=pair)


@nestor.nest
def invariant_point_attention(q: bf16[folds, twelve, residues, channels], k: bf16[folds, twelve, residues, channels],
                              v: bf16[folds, twelve, residues, channels], q_point: f32[folds, twelve, residues, 4, 3],
                              k_point: f32[folds, twelve, residues, 4, 3], v_point: f32[folds, twelve, residues, 8, 3],
                              bias: bf16[folds, twelve, residues, residues], pairs: bf16[folds, residues, residues, pair], sharp: f32[twelve]):
    """AlphaFold 2: residues attend by features, by a bias of each pair and by distances of points; they get values, points and features of pairs."""
    row = (f, hd, i1)
    dot = nestor.sum(q[(*row, cc2)] * k[f, hd, j1, cc2], over=cc2) * 48**-0.5
    apart = q_point[(*row, pt, xyz)] - k_point[f, hd, j1, pt, xyz]
    far = nestor.sum(apart * apart, over=(pt, xyz))
    score = define("score", (*row, j1), dot + 0.57735 * bias[(*row, j1)] - sharp[hd] * far)
    power, total = softmax(score, row, key=j1)
    share = define("share", (*row, j1), power[(*row, j1)] / total[row])
    return (define("out", (*row, cc), nestor.sum(share[(*row, j1)] * v[f, hd, j1, cc], over=j1), type=bf16),
            define("out_point", (*row, pt2, xyz), nestor.sum(share[(*row, j1)] * v_point[f, hd, j1, pt2, xyz], over=j1)),
            define("out_pair", (*row, pr), nestor.sum(share[(*row, j1)] * pairs[f, i1, j1, pr], over=j1), type=bf16))


def _invariant(q, k, v, q_point, k_point, v_point, bias, pairs, sharp):
    far = (q_point[:, :, :, None] - k_point[:, :, None]).square().sum((-2, -1))
    score = widened(q @ k.transpose(2, 3)) * 48**-0.5 + 0.57735 * bias - sharp[:, None, None] * far
    share = torch.softmax(score, -1)
    points = torch.einsum("fhij,fhjpx->fhipx", share, v_point)
    return share.to(v.dtype) @ v, points, torch.einsum("fhij,fijc->fhic", share.to(v.dtype), pairs)


ATTENTION = {"batch": 2, "heads": 2, "length": 7, "head_dim": 6}
SMALL = {"batch": 2, "heads": 2, "length": 7, "small": 5}
OPERATORS = [
    Operator(kerple_attention, _kerple, "T.-C. Chi et al., arXiv:2205.09921", ATTENTION | {"head_dim": 128}, flex=_flex_kerple, seen=flex.causal,
             draw={"slope": lambda x, _: x.abs(), "rate": lambda x, _: x.abs()}),
    Operator(signed_attention, _signed, "A. Lv et al., arXiv:2411.07176", ATTENTION),
    Operator(lightning_indexer, _indexer, "DeepSeek-V3.2-Exp, 2025", {"asked": 7, "crew": 3, "head_dim": 6}, draw={"q": divided("head_dim")}),
    Operator(block_importance, _importance, "J. Yuan et al., arXiv:2502.11089", {"texts": 2, "groups": 2, "ways": 3, "packs": 2, "head_dim": 6}),
    Operator(ragged_decoding, _ragged, "W. Kwon et al., arXiv:2309.06180", {"caches": 3, "shared": 2, "fours": 3, "cached": 9, "head_dim": 6},
             draw={"ends": lambda x, s: 1 + (x.abs() * 1e4).long() % s["cached"]}),
    Operator(lorentz_attention, _lorentz, "C. Gulcehre et al., arXiv:1805.09786", SMALL,
             draw={name: lambda x, _: 0.3 * x for name in "qkv"} | {"sharp": lambda x, _: 1 + x.abs()}),
    Operator(cosformer_attention, _cosformer, "Z. Qin et al., arXiv:2202.08791", SMALL,
             draw={"cosine": lambda x, s: (torch.arange(s["length"], device=x.device) * (math.pi / 2 / s["length"])).cos(),
                   "sine": lambda x, s: (torch.arange(s["length"], device=x.device) * (math.pi / 2 / s["length"])).sin()}),
    Operator(test_time_training, _test_time, "Y. Sun et al., arXiv:2407.04620", {"many": 3, "chunk": 4, "small": 6},
             draw={"weight": divided("small"), "q": divided("small"), "bias": lambda x, _: 0.1 * x, "gain": around_one, "shift": lambda x, _: 0.1 * x,
                   "rate": lambda x, s: torch.sigmoid(x) / s["chunk"]}),
    Operator(nystrom_attention, _nystrom, "Y. Xiong et al., arXiv:2102.03902", {"batch": 2, "heads": 2, "marks": 3, "small": 64},
             draw={"middle": divided("marks")}),
    Operator(shifted_window_attention, _shifted, "Z. Liu et al., Swin, arXiv:2103.14030", {"images": 1, "band": 2, "narrow": 32}),
    Operator(invariant_point_attention, _invariant, "J. Jumper et al., AlphaFold 2, 2021",
             {"folds": 2, "twelve": 2, "residues": 5, "channels": 4, "pair": 6}, draw={"sharp": lambda x, _: 0.1 * x.abs()}),
]
