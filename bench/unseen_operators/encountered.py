"""What models of 2024 to 2026 brought: decays of each channel, keys in pairs, two-level scales, quantised scores, positions of videos,
experts that choose, samplers, guidance, codes of what codes left, adapters by entries, streams mixed by doubly stochastic matrices."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

pieces, dim = Size("pieces", 1024), Size("dim", 128, fixed=True)
c, i, j, d, e = indices(c=pieces, i=64, j=64, d=dim, e=dim)


@nestor.nest
def channel_decay_chunk(q: bf16[pieces, 64, dim], key: bf16[pieces, 64, dim], value: bf16[pieces, 64, dim], decay: f32[pieces, 64, dim],
                        beta: f32[pieces, 64]):
    """Kimi delta attention: within a chunk, each channel of a key forgets at its own pace. The delta rule's matrix, and what queries see."""
    faded = nestor.exp(decay[c, i, d] - decay[c, j, d])
    known = nestor.sum(key[c, i, d] * key[c, j, d] * faded, over=d)
    rule = define("rule", (c, i, j), nestor.select(j < i, beta[c, i] * known, 0.0))
    seen = define("seen", (c, i, j), nestor.sum(q[c, i, d] * key[c, j, d] * faded, over=d), where=j <= i)
    return rule, define("out", (c, i, e), nestor.sum(seen[c, i, j] * value[c, j, e], over=j, where=j <= i), type=bf16)


def _channel_decay(q, key, value, decay, beta):
    grown = widened(key) * torch.exp(-decay)
    rule = torch.tril(beta[:, :, None] * ((widened(key) * torch.exp(decay)) @ grown.transpose(1, 2)), -1)
    seen = torch.tril((widened(q) * torch.exp(decay)) @ grown.transpose(1, 2))
    return rule, (seen @ widened(value)).to(value.dtype)


heads, length, deep = Size("heads", 8), Size("length", 2048), Size("deep", 64, fixed=True)
h, l, a, b, x, y = indices(h=heads, l=length, a=96, b=16, x=deep, y=deep)


@nestor.nest
def simplicial_attention(q: bf16[heads, length, deep], key: bf16[heads, length + 95, deep], pair: bf16[heads, length + 15, deep],
                         value: bf16[heads, length + 95, deep], other: bf16[heads, length + 15, deep]):
    """2-simplicial attention: a query looks at pairs of keys, one of the last 96, one of the last 16."""
    score = define("score", (h, l, a, b), nestor.sum(q[h, l, x] * key[h, l + a, x] * pair[h, l + b, x], over=x) / 8)
    top = define("top", (h, l), nestor.max(score[h, l, a, b], over=(a, b)))
    power = define("power", (h, l, a, b), nestor.exp(score[h, l, a, b] - top[h, l]))
    total = define("total", (h, l), nestor.sum(power[h, l, a, b], over=(a, b)))
    seen = nestor.sum(power[h, l, a, b] * value[h, l + a, y] * other[h, l + b, y], over=(a, b))
    return define("out", (h, l, y), seen / total[h, l], type=bf16)


def _simplicial(q, key, pair, value, other):
    key, value = (widened(t).unfold(1, 96, 1) for t in (key, value))  # heads, length, deep, 96
    pair, other = (widened(t).unfold(1, 16, 1) for t in (pair, other))
    score = torch.einsum("hlxa,hlxb->hlab", widened(q)[..., None] * key, pair) / 8
    weight = torch.softmax(score.flatten(2), -1).unflatten(2, (96, 16))
    return (torch.einsum("hlab,hlyb->hlya", weight, other) * value).sum(-1).to(q.dtype)


scenes, points, spots, parts = Size("scenes", 4), Size("points", 2304), Size("spots", 2304), Size("parts", 256, fixed=True)
s, n, m, p = indices(s=scenes, n=points, m=spots, p=parts)
n2, m2 = indices(n2=points, m2=spots)


@nestor.nest
def dual_softmax_matching(one: f16[scenes, points, parts], other: f16[scenes, spots, parts]):
    """LoFTR: how surely two places match, as a softmax over either picture's places, multiplied."""
    score = define("score", (s, n, m), nestor.sum(one[s, n, p] * other[s, m, p], over=p) * 0.0390625)
    top, across = define("top", (s, n), nestor.max(score[s, n, m], over=m)), define("across", (s, m), nestor.max(score[s, n, m], over=n))
    total = define("total", (s, n), nestor.sum(nestor.exp(score[s, n, m2] - top[s, n]), over=m2))
    whole = define("whole", (s, m), nestor.sum(nestor.exp(score[s, n2, m] - across[s, m]), over=n2))
    return define("out", (s, n, m), nestor.exp(score[s, n, m] - top[s, n]) / total[s, n] * nestor.exp(score[s, n, m] - across[s, m]) / whole[s, m])


def _dual(one, other):
    score = widened(one @ other.transpose(1, 2)) * 0.0390625
    return torch.softmax(score, 1) * torch.softmax(score, 2)


rows, wide = Size("rows", 4096), Size("wide", 5120)
r, w, w2 = indices(r=rows, w=wide, w2=wide)


@nestor.nest
def adam_mini_step(weight: f32[rows, wide], grad: f32[rows, wide], momentum: f32[rows, wide], second: f32[rows], rate=0.001):
    """Adam-mini: one second moment for each output neuron."""
    square = nestor.sum(grad[r, w2] * grad[r, w2], over=w2) / wide
    moment = define("moment", r, 0.95 * second[r] + 0.05 * square)
    mean = define("mean", (r, w), 0.9 * momentum[r, w] + 0.1 * grad[r, w])
    return define("out", (r, w), weight[r, w] * (1 - 0.1 * rate) - rate * mean[r, w] / (nestor.sqrt(moment[r]) + 1e-8)), mean, moment


def _mini(weight, grad, momentum, second):
    moment = 0.95 * second + 0.05 * grad.square().mean(1)
    mean = 0.9 * momentum + 0.1 * grad
    return weight * (1 - 0.1 * 0.001) - 0.001 * mean / (moment.sqrt() + 1e-8)[:, None], mean, moment


long, blocks = Size("long", 4096), Size("blocks", 448)
o, k, t = indices(o=long, k=blocks, t=16)
o2, k2, t2 = indices(o2=long, k2=blocks, t2=16)


@nestor.nest
def two_level_quantise(x: bf16[long, blocks, 16]):
    """NVFP4: one scale for a tensor, eighths of it for each 16 neighbours, and what a number of 4 bits can say of the rest."""
    most = define("most", (o, k), nestor.max(nestor.absolute(x[o, k, t]), over=t))
    whole = define("whole", (), nestor.max(nestor.absolute(x[o2, k2, t2]), over=(o2, k2, t2)) / 2688)
    scale = define("scale", (o, k), nestor.maximum(nestor.floor(most[o, k] / 6 / whole[()] * 8 + 0.5) / 8, 0.125))
    size = define("size", (o, k, t), nestor.minimum(nestor.absolute(x[o, k, t]) / (scale[o, k] * whole[()]), 6.0))
    small, large = nestor.floor(2 * size[o, k, t] + 0.5) / 2, nestor.floor(size[o, k, t] / 2 + 0.5) * 2
    code = nestor.select(size[o, k, t] < 2, small, nestor.select(size[o, k, t] < 4, nestor.floor(size[o, k, t] + 0.5), large))
    return define("out", (o, k, t), nestor.select(x[o, k, t] < 0, -code, code), type=bf16), scale


def _two_level(x):
    size = widened(x).abs()
    whole = size.max() / 2688
    scale = (torch.floor(size.amax(-1) / 6 / whole * 8 + 0.5) / 8).clamp(min=0.125)
    size = (size / (scale * whole)[..., None]).clamp(max=6)
    large = torch.where(size < 4, torch.floor(size + 0.5), torch.floor(size / 2 + 0.5) * 2)
    code = torch.where(size < 2, torch.floor(2 * size + 0.5) / 2, large)
    return torch.where(x < 0, -code, code).to(x.dtype), scale


many, asks, keys = Size("many", 16), Size("asks", 2000), Size("keys", 2000)
ma, qi, ki, u, v = indices(ma=many, qi=asks, ki=keys, u=deep, v=deep)
(ki2,) = indices(ki2=keys)


@nestor.nest
def smoothed_int8_attention(q: bf16[many, asks, deep], key: bf16[many, keys, deep], value: bf16[many, keys, deep]):
    """SageAttention: keys lose their mean, then queries and keys become integers of 8 bits with a scale a row; values stay."""
    mean = define("mean", (ma, u), nestor.sum(key[ma, ki2, u], over=ki2) / keys)
    left = define("left", (ma, ki, u), key[ma, ki, u] - mean[ma, u])
    step = define("step", (ma, ki), nestor.max(nestor.absolute(left[ma, ki, u]), over=u) / 127 + 1e-6)
    pace = define("pace", (ma, qi), nestor.max(nestor.absolute(q[ma, qi, u]), over=u) / 127 + 1e-6)
    whole_key = define("whole_key", (ma, ki, u), nestor.cast(i32, nestor.floor(left[ma, ki, u] / step[ma, ki] + 0.5)))
    whole_q = define("whole_q", (ma, qi, u), nestor.cast(i32, nestor.floor(q[ma, qi, u] / pace[ma, qi] + 0.5)))
    dot = nestor.sum(whole_q[ma, qi, u] * whole_key[ma, ki, u], over=u)
    score = define("score", (ma, qi, ki), nestor.cast(f32, dot) * pace[ma, qi] * step[ma, ki] / 8)
    top = define("top", (ma, qi), nestor.max(score[ma, qi, ki], over=ki))
    power = define("power", (ma, qi, ki), nestor.exp(score[ma, qi, ki] - top[ma, qi]))
    total = define("total", (ma, qi), nestor.sum(power[ma, qi, ki], over=ki))
    return define("out", (ma, qi, v), nestor.sum(power[ma, qi, ki] * value[ma, ki, v], over=ki) / total[ma, qi], type=bf16)


def _smoothed(q, key, value):
    left = widened(key) - widened(key).mean(1, keepdim=True)
    step, pace = left.abs().amax(-1, keepdim=True) / 127 + 1e-6, widened(q).abs().amax(-1, keepdim=True) / 127 + 1e-6
    exact = q.dtype if q.element_size() == 2 else torch.float64  # integers up to 127 are exact in bf16
    left, whole = torch.floor(left / step + 0.5).to(exact), torch.floor(widened(q) / pace + 0.5).to(exact)
    score = widened(whole @ left.transpose(1, 2)) * pace * step.transpose(1, 2) / 8
    return torch.softmax(score, -1).to(value.dtype) @ value


frames, tall, broad, eyes = Size("frames", 16), Size("tall", 30), Size("broad", 52), Size("eyes", 12)
fr, ta, br, ey, f = indices(fr=frames, ta=tall, br=broad, ey=eyes, f=64)


@nestor.nest
def video_rotary(x: bf16[frames, tall, broad, eyes, 2, 64], speed: f32[64]):
    """Multimodal rotary embedding: some pairs of channels turn by the frame, some by the row, some by the column."""
    place = nestor.select(f < 16, nestor.cast(f32, fr), nestor.select(f < 40, nestor.cast(f32, ta), nestor.cast(f32, br)))
    turn = define("turn", (fr, ta, br, f), place * speed[f])
    cosine, sine = nestor.cos(turn[fr, ta, br, f]), nestor.sin(turn[fr, ta, br, f])
    at = (fr, ta, br, ey, f)
    first, second = x[fr, ta, br, ey, 0, f], x[fr, ta, br, ey, 1, f]
    return (define("out_first", at, first * cosine - second * sine, type=bf16), define("out_second", at, second * cosine + first * sine, type=bf16))


def _video(x, speed):
    grid = torch.meshgrid(*(torch.arange(extent, device=x.device, dtype=speed.dtype) for extent in x.shape[:3]), indexing="ij")
    place = torch.cat([grid[0][..., None].expand(*grid[0].shape, 16), grid[1][..., None].expand(*grid[0].shape, 24),
                       grid[2][..., None].expand(*grid[0].shape, 24)], -1)
    turn = (place * speed)[..., None, :]
    first, second = widened(x).unbind(-2)
    return ((first * turn.cos() - second * turn.sin()).to(x.dtype), (second * turn.cos() + first * turn.sin()).to(x.dtype))


tokens, experts = Size("tokens", 2048), Size("experts", 64)
to, to2, ex, ex2 = indices(to=tokens, to2=tokens, ex=experts, ex2=experts)


@nestor.nest
def expert_choice(logit: f32[tokens, experts]):
    """Experts choose: each takes the 64 tokens that like it most."""
    top = define("top", to, nestor.max(logit[to, ex], over=ex))
    total = define("total", to, nestor.sum(nestor.exp(logit[to, ex] - top[to]), over=ex))
    share = define("share", (to, ex2), nestor.exp(logit[to, ex2] - top[to]) / total[to])
    ahead = define("ahead", (to, ex), nestor.sum(nestor.select(share[to2, ex] > share[to, ex], 1, 0), over=to2))
    return define("out", (to, ex), nestor.select(ahead[to, ex] < 64, share[to, ex], 0.0))


def _choice(logit):
    share = torch.softmax(logit, 1)
    kept, places = share.topk(min(64, share.shape[0]), 0)
    return torch.zeros_like(share).scatter(0, places, kept)


vectors, codes, size = Size("vectors", 8192), Size("codes", 256), Size("size", 32, fixed=True)
ve, co, co2, z, z2 = indices(ve=vectors, co=codes, co2=codes, z=size, z2=size)


@nestor.nest
def residual_codes(x: f32[vectors, size], book: f32[3, codes, size]):
    """Residual quantisation, as codecs of sound have it: the nearest code, then the nearest to what is left, three times."""
    left, picks = x, []
    for stage in range(3):
        far = define(f"far_{stage}", (ve, co), nestor.sum((left[ve, z] - book[stage, co, z]) * (left[ve, z] - book[stage, co, z]), over=z))
        least = define(f"least_{stage}", ve, nestor.min(far[ve, co2], over=co2))
        pick = define(f"pick_{stage}", ve, nestor.min(nestor.select(far[ve, co] <= least[ve], nestor.cast(i32, co), 100000), over=co))
        taken = nestor.sum(nestor.select(pick[ve] == nestor.cast(i32, co2), book[stage, co2, z], 0.0), over=co2)
        left = define(f"left_{stage}", (ve, z), left[ve, z] - taken)
        picks.append(pick)
    return (*picks, left)


def _codes(x, book):
    picks = []
    for stage in book:
        picks.append(torch.cdist(x, stage).argmin(1))
        x = x - stage[picks[-1]]
    return (*(pick.to(torch.int32) for pick in picks), x)


images, pixels = Size("images", 16), Size("pixels", 65536)
im, px, px2 = indices(im=images, px=pixels, px2=pixels)


@nestor.nest
def projected_guidance(told: bf16[images, pixels], free: bf16[images, pixels], before: f32[images, pixels], strength=7.5):
    """Adaptive projected guidance of diffusion: an average of differences, kept short, less of what points along the prediction."""
    average = define("average", (im, px), told[im, px] - free[im, px] - 0.5 * before[im, px])
    norm = define("norm", im, nestor.sqrt(nestor.sum(average[im, px2] * average[im, px2], over=px2)))
    short = define("short", (im, px), average[im, px] * nestor.minimum(1.0, 15.0 / (norm[im] + 1e-6)))
    along = define("along", im, nestor.sum(short[im, px2] * told[im, px2], over=px2) / (nestor.sum(told[im, px2] * told[im, px2], over=px2) + 1e-6))
    flat = along[im] * told[im, px]
    return define("out", (im, px), told[im, px] + (strength - 1) * (short[im, px] - flat + 0.1 * flat), type=bf16), average


def _guidance(told, free, before):
    sight = widened(told)
    average = sight - widened(free) - 0.5 * before
    short = average * (15 / (average.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)
    flat = ((short * sight).sum(1, keepdim=True) / (sight.square().sum(1, keepdim=True) + 1e-6)) * sight
    return (sight + 6.5 * (short - flat + 0.1 * flat)).to(told.dtype), average


prompts, words = Size("prompts", 128), Size("words", 50257)
pr, wo, wo2, wo3 = indices(pr=prompts, wo=words, wo2=words, wo3=words)


@nestor.nest
def min_p_sampler(logit: f32[prompts, words], noise: f32[prompts, words]):
    """Min-p sampling: words at least a tenth as likely as the likeliest, one of them by noise of Gumbel; how likely it was."""
    top = define("top", pr, nestor.max(logit[pr, wo], over=wo))
    total = define("total", pr, nestor.sum(nestor.exp(logit[pr, wo] - top[pr]), over=wo))
    drawn = define("drawn", (pr, wo), nestor.select(logit[pr, wo] - top[pr] >= -2.3025851, logit[pr, wo] + noise[pr, wo], -1e30))
    best = define("best", pr, nestor.max(drawn[pr, wo2], over=wo2))
    chosen = define("out", pr, nestor.min(nestor.select(drawn[pr, wo3] >= best[pr], nestor.cast(i32, wo3), 1000000), over=wo3))
    likely = nestor.sum(nestor.select(drawn[pr, wo3] >= best[pr], logit[pr, wo3], 0.0), over=wo3)
    return chosen, define("likely", pr, likely - top[pr] - nestor.log(total[pr]))


def _min_p(logit, noise):
    share = torch.log_softmax(logit, 1)
    kept = (share - share.amax(1, keepdim=True)) >= -2.3025851
    chosen = (logit + noise).masked_fill(~kept, -1e30).argmax(1)
    return chosen.to(torch.int32), share.gather(1, chosen[:, None])[:, 0]


batch, ins, outs, rank = Size("batch", 4096), Size("ins", 3072), Size("outs", 3072), Size("rank", 32, fixed=True)
ba, n_, u_, ra = indices(ba=batch, n_=ins, u_=outs, ra=rank)


@nestor.nest
def hadamard_adapter(x: f16[batch, ins], weight: f16[outs, ins], up: f16[outs, rank], down: f16[rank, ins]):
    """HiRA: a layer's weights times one and a product of low rank, entry by entry."""
    share = nestor.sum(up[u_, ra] * down[ra, n_], over=ra)
    moved = define("moved", (u_, n_), weight[u_, n_] * (1 + share), type=f16)
    return define("out", (ba, u_), nestor.sum(x[ba, n_] * moved[u_, n_], over=n_), type=f16)


def _hadamard(x, weight, up, down):
    return x @ (weight * (1 + up @ down)).T


def _gumbel(x, _):
    """Draws noise of Gumbel."""
    return -torch.log(-torch.log(torch.rand(x.shape, generator=torch.Generator(x.device).manual_seed(3), device=x.device).clamp(1e-6, 1 - 1e-6)))


OPERATORS = [
    Operator(channel_decay_chunk, _channel_decay, "Kimi Team, Kimi Linear, arXiv:2510.26692", {"pieces": 2, "dim": 16},
             draw={"decay": lambda x, _: -(0.02 * x.abs()).cumsum(1), "q": divided("dim"), "key": divided("dim")}),
    Operator(simplicial_attention, _simplicial, "A. Roy et al., Fast and Simplex, arXiv:2507.02754", {"heads": 1, "length": 3, "deep": 8}),
    Operator(dual_softmax_matching, _dual, "J. Sun et al., LoFTR, arXiv:2104.00680", {"scenes": 2, "points": 7, "spots": 5, "parts": 16}),
    Operator(adam_mini_step, _mini, "Y. Zhang et al., Adam-mini, arXiv:2406.16793", {"rows": 3, "wide": 11}, draw={"second": lambda x, _: x.abs()}),
    Operator(two_level_quantise, _two_level, "NVIDIA, Pretraining with NVFP4, arXiv:2509.25149", {"long": 3, "blocks": 3}),
    Operator(smoothed_int8_attention, _smoothed, "J. Zhang et al., SageAttention, arXiv:2410.02367", {"many": 2, "asks": 5, "keys": 7, "deep": 16}),
    Operator(video_rotary, _video, "P. Wang et al., Qwen2-VL, arXiv:2409.12191", {"frames": 2, "tall": 3, "broad": 5, "eyes": 2},
             draw={"speed": lambda x, _: 10000.0**(-torch.arange(64, device=x.device) / 64)}),
    Operator(expert_choice, _choice, "Y. Zhou et al., arXiv:2202.09368", {"tokens": 70, "experts": 5}),
    Operator(residual_codes, _codes, "N. Zeghidour et al., SoundStream, arXiv:2107.03312", {"vectors": 5, "codes": 7, "size": 8}),
    Operator(projected_guidance, _guidance, "S. Sadat et al., arXiv:2410.02416", {"images": 3, "pixels": 13}),
    Operator(min_p_sampler, _min_p, "M. Nguyen et al., arXiv:2407.01082", {"prompts": 3, "words": 17}, draw={"noise": _gumbel}),
    Operator(hadamard_adapter, _hadamard, "Q. Huang et al., HiRA, ICLR 2025", {"batch": 5, "ins": 12, "outs": 7, "rank": 4},
             draw={"weight": divided("ins"), "up": divided("rank")}),
]
