"""Operators as users bring them: newer attentions and their gradients, memories, packed weights of three and four bits, routers without ranks, distillation
from hidden states, optimisers, streams of audio, images at two resolutions, alignments, glossy surfaces, picture quality, distances in maps, swimmers, options."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, boolean, define, f16, f32, i32, indices

from .problem import Operator, divided, widened

# ---------------------------------------------------------------------------------------------- language models: Differential Transformer V2

batch, heads, length, head = Size("batch", 2), Size("heads", 8), Size("length", 2048), Size("head", 128, fixed=True)
b, h, s, q, k, e, d = indices(b=batch, h=heads, s=2, q=length, k=length, e=head, d=head)


@nestor.nest
def paired_difference_attention(query: bf16[batch, heads, 2, length, head], key: bf16[batch, heads, length, head], value: bf16[batch, heads, length, head],
                                mix: bf16[batch, heads, length]):
    """Two causal heads of queries share keys and values; a gate of each token says how much of the second is taken from the first."""
    score = define("score", (b, h, s, q, k), nestor.sum(query[b, h, s, q, e] * key[b, h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), where=k <= q)
    top = nestor.max(score[b, h, s, q, k], over=k, where=k <= q)
    power = define("power", (b, h, s, q, k), nestor.exp(score[b, h, s, q, k] - top), where=k <= q)
    total = nestor.sum(power[b, h, s, q, k], over=k, where=k <= q)
    seen = define("seen", (b, h, s, q, d), nestor.sum(power[b, h, s, q, k] * value[b, h, k, d], over=k, where=k <= q) / total)
    return define("out", (b, h, q, d), seen[b, h, 0, q, d] - nestor.sigmoid(mix[b, h, q]) * seen[b, h, 1, q, d], type=bf16)


def paired_difference_attention_torch(query, key, value, mix):
    seen = F.scaled_dot_product_attention(query.flatten(1, 2), key, value, is_causal=True, enable_gqa=True).unflatten(1, (-1, 2))
    return seen[:, :, 0] - torch.sigmoid(mix)[..., None] * seen[:, :, 1]


# ---------------------------------------------------------------------------------------------- language models: exclusive self attention

batch, kv_heads, group, length, head = Size("batch", 2), Size("kv_heads", 4), Size("group", 4, fixed=True), Size("length", 1400), Size("head", 128, fixed=True)
b, h, g, q, k, e, d = indices(b=batch, h=kv_heads, g=group, q=length, k=length, e=head, d=head)


@nestor.nest
def exclusive_attention(query: f16[batch, kv_heads, group, length, head], key: f16[batch, kv_heads, length, head], value: f16[batch, kv_heads, length, head], eps=1e-6):
    """Grouped causal attention, and what its result has in the direction of the token's own value is taken out."""
    score = define("score", (b, h, g, q, k), nestor.sum(query[b, h, g, q, e] * key[b, h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), where=k <= q)
    top = nestor.max(score[b, h, g, q, k], over=k, where=k <= q)
    power = define("power", (b, h, g, q, k), nestor.exp(score[b, h, g, q, k] - top), where=k <= q)
    total = nestor.sum(power[b, h, g, q, k], over=k, where=k <= q)
    seen = define("seen", (b, h, g, q, d), nestor.sum(power[b, h, g, q, k] * value[b, h, k, d], over=k, where=k <= q) / total)
    along = define("along", (b, h, g, q), nestor.sum(seen[b, h, g, q, d] * value[b, h, q, d], over=d))
    size = define("size", (b, h, q), nestor.sum(value[b, h, q, d] * value[b, h, q, d], over=d) + eps)
    return define("out", (b, h, g, q, d), seen[b, h, g, q, d] - along[b, h, g, q] / size[b, h, q] * value[b, h, q, d], type=f16)


def exclusive_attention_torch(query, key, value, eps=1e-6):
    seen = widened(F.scaled_dot_product_attention(query.flatten(1, 2), key, value, is_causal=True, enable_gqa=True).unflatten(1, query.shape[1:3]))
    own = widened(value)[:, :, None]
    return (seen - (seen * own).sum(-1, keepdim=True) / (own.square().sum(-1, keepdim=True) + eps) * own).to(value.dtype)


# ---------------------------------------------------------------------------------------------- language models: PoPE

batch, heads, length, head = Size("batch", 2), Size("heads", 12), Size("length", 1800), Size("head", 64, fixed=True)
b, h, q, k, e, d = indices(b=batch, h=heads, q=length, k=length, e=head, d=head)


@nestor.nest
def polar_position_attention(query: bf16[batch, heads, length, head], key: bf16[batch, heads, length, head], value: bf16[batch, heads, length, head],
                             speed: f32[head], phase: f32[heads, head]):
    """Magnitudes come from the tokens, angles from their places and a learned phase alone."""
    asked, known = nestor.softplus(query[b, h, q, e]), nestor.softplus(key[b, h, k, e])
    turn, spin = nestor.cast(f32, q) * speed[e], nestor.cast(f32, k) * speed[e] + phase[h, e]
    asked_cos, asked_sin = define("asked_cos", (b, h, q, e), asked * nestor.cos(turn)), define("asked_sin", (b, h, q, e), asked * nestor.sin(turn))
    known_cos, known_sin = define("known_cos", (b, h, k, e), known * nestor.cos(spin)), define("known_sin", (b, h, k, e), known * nestor.sin(spin))
    met = nestor.sum(asked_cos[b, h, q, e] * known_cos[b, h, k, e] + asked_sin[b, h, q, e] * known_sin[b, h, k, e], over=e)
    score = define("score", (b, h, q, k), met * nestor.rsqrt(nestor.cast(f32, head)), where=k <= q)
    top = nestor.max(score[b, h, q, k], over=k, where=k <= q)
    power = define("power", (b, h, q, k), nestor.exp(score[b, h, q, k] - top), where=k <= q)
    total = nestor.sum(power[b, h, q, k], over=k, where=k <= q)
    return define("out", (b, h, q, d), nestor.sum(power[b, h, q, k] * value[b, h, k, d], over=k, where=k <= q) / total, type=bf16)


def polar_position_attention_torch(query, key, value, speed, phase):
    place = torch.arange(query.shape[2], device=query.device, dtype=speed.dtype)[:, None] * speed
    asked, known = F.softplus(widened(query)), F.softplus(widened(key))
    spin = place + phase[:, None]
    asked = torch.cat([asked * place.cos(), asked * place.sin()], -1).to(query.dtype)
    known = torch.cat([known * spin.cos(), known * spin.sin()], -1).to(query.dtype)
    return F.scaled_dot_product_attention(asked, known, value, is_causal=True, scale=query.shape[-1]**-0.5)


# ---------------------------------------------------------------------------------------------- vision: agent attention

images, heads, cells, head = Size("images", 32), Size("heads", 4), Size("cells", 7), Size("head", 32, fixed=True)
n, h, y, x, u, w, dy, dx, py, px, e, d = indices(n=images, h=heads, y=8 * cells, x=8 * cells, u=cells, w=cells, dy=3, dx=3, py=8, px=8, e=head, d=head)
ky, kx = indices(ky=8 * cells, kx=8 * cells)


@nestor.nest
def agent_attention(query: bf16[images, heads, 8 * cells, 8 * cells, head], key: bf16[images, heads, 8 * cells, 8 * cells, head],
                    value: bf16[images, heads, 8 * cells, 8 * cells, head], gather: bf16[heads, cells, cells, 8 * cells, 8 * cells],
                    spread: bf16[heads, 8 * cells, 8 * cells, cells, cells], filters: bf16[heads, head, 3, 3]):
    """A few pooled queries gather from all places, all places ask these few, and a depthwise filter of the values is added."""
    agent = define("agent", (n, h, u, w, e), nestor.mean(query[n, h, 8 * u + py, 8 * w + px, e], over=(py, px)))
    score = define("score", (n, h, u, w, ky, kx), nestor.sum(agent[n, h, u, w, e] * key[n, h, ky, kx, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)) + gather[h, u, w, ky, kx])
    top = nestor.max(score[n, h, u, w, ky, kx], over=(ky, kx))
    power = define("power", (n, h, u, w, ky, kx), nestor.exp(score[n, h, u, w, ky, kx] - top))
    held = define("held", (n, h, u, w, d), nestor.sum(power[n, h, u, w, ky, kx] * value[n, h, ky, kx, d], over=(ky, kx)) / nestor.sum(power[n, h, u, w, ky, kx], over=(ky, kx)))
    ask = define("ask", (n, h, y, x, u, w), nestor.sum(query[n, h, y, x, e] * agent[n, h, u, w, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)) + spread[h, y, x, u, w])
    most = nestor.max(ask[n, h, y, x, u, w], over=(u, w))
    share = define("share", (n, h, y, x, u, w), nestor.exp(ask[n, h, y, x, u, w] - most))
    back = nestor.sum(share[n, h, y, x, u, w] * held[n, h, u, w, d], over=(u, w)) / nestor.sum(share[n, h, y, x, u, w], over=(u, w))
    down, right = y + dy - 1, x + dx - 1
    inside = (down >= 0) & (down < 8 * cells) & (right >= 0) & (right < 8 * cells)
    near = nestor.sum(filters[h, d, dy, dx] * value[n, h, down, right, d], over=(dy, dx), where=inside)
    return define("out", (n, h, y, x, d), back + near, type=bf16)


def agent_attention_torch(query, key, value, gather, spread, filters):
    images_, heads_, side, _, head_ = query.shape
    agent = F.avg_pool2d(query.movedim(-1, 2).flatten(0, 1), 8).flatten(2).mT.unflatten(0, (images_, heads_))
    held = F.scaled_dot_product_attention(agent, key.flatten(2, 3), value.flatten(2, 3), attn_mask=gather.flatten(3).flatten(1, 2))
    back = F.scaled_dot_product_attention(query.flatten(2, 3), agent, held, attn_mask=spread.flatten(3).flatten(1, 2))
    near = F.conv2d(value.movedim(-1, 2).flatten(1, 2), filters.flatten(0, 1)[:, None], padding=1, groups=heads_ * head_)
    return back.unflatten(2, (side, side)) + near.unflatten(1, (heads_, head_)).movedim(2, -1)


# ---------------------------------------------------------------------------------------------- language models: Gemma 2, backward

streams, length, head = Size("streams", 24), Size("length", 2048), Size("head", 64, fixed=True)
n, q, k, e = indices(n=streams, q=length, k=length, e=head)


@nestor.nest
def softcap_attention_backward(query: bf16[streams, length, head], key: bf16[streams, length, head], value: bf16[streams, length, head], out: bf16[streams, length, head],
                               spread: f32[streams, length], slope: bf16[streams, length, head], cap=50.0):
    """Causal attention with capped scores: gradients of queries, keys and values from its result and the logarithms of its sums."""
    scale = nestor.rsqrt(nestor.cast(f32, head))
    bent = define("bent", (n, q, k), nestor.tanh(nestor.sum(query[n, q, e] * key[n, k, e], over=e) * scale / cap), where=k <= q)
    share = define("share", (n, q, k), nestor.exp(cap * bent[n, q, k] - spread[n, q]), where=k <= q)
    around = define("around", (n, q), nestor.sum(slope[n, q, e] * out[n, q, e], over=e))
    d_share = define("d_share", (n, q, k), nestor.sum(slope[n, q, e] * value[n, k, e], over=e), where=k <= q)
    d_score = define("d_score", (n, q, k), share[n, q, k] * (d_share[n, q, k] - around[n, q]) * (1 - bent[n, q, k] * bent[n, q, k]) * scale, where=k <= q)
    d_query = define("d_query", (n, q, e), nestor.sum(d_score[n, q, k] * key[n, k, e], over=k, where=k <= q), type=bf16)
    d_key = define("d_key", (n, k, e), nestor.sum(d_score[n, q, k] * query[n, q, e], over=q, where=k <= q), type=bf16)
    d_value = define("d_value", (n, k, e), nestor.sum(share[n, q, k] * slope[n, q, e], over=q, where=k <= q), type=bf16)
    return d_query, d_key, d_value


def softcap_attention_backward_torch(query, key, value, out, spread, slope, cap=50.0):
    scale = query.shape[-1]**-0.5
    bent = torch.tanh(widened(query @ key.mT) * (scale / cap))
    share = torch.exp(cap * bent - spread[..., None]).tril()
    around = (widened(slope) * widened(out)).sum(-1, keepdim=True)
    d_score = (share * (widened(slope @ value.mT) - around) * (1 - bent * bent) * scale).to(query.dtype)
    return d_score @ key, d_score.mT @ query, share.to(query.dtype).mT @ slope


# ---------------------------------------------------------------------------------------------- language models, video: sparse by blocks

heads, blocks, head = Size("heads", 24), Size("blocks", 40), Size("head", 128, fixed=True)
h, q, k, e, d = indices(h=heads, q=64 * blocks, k=64 * blocks, e=head, d=head)


@nestor.nest
def block_map_attention(query: bf16[heads, 64 * blocks, head], key: bf16[heads, 64 * blocks, head], value: bf16[heads, 64 * blocks, head], taken: boolean[heads, blocks, blocks]):
    """A map that was predicted says which blocks of 64 keys each block of 64 queries attends to; its own block it does in any case."""
    sees = taken[h, q // 64, k // 64] | (q // 64 == k // 64)
    score = define("score", (h, q, k), nestor.select(sees, nestor.sum(query[h, q, e] * key[h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), -math.inf))
    top = nestor.max(score[h, q, k], over=k)
    power = define("power", (h, q, k), nestor.exp(score[h, q, k] - top))
    return define("out", (h, q, d), nestor.sum(power[h, q, k] * value[h, k, d], over=k) / nestor.sum(power[h, q, k], over=k), type=bf16)


def block_map_attention_torch(query, key, value, taken):
    own = torch.eye(taken.shape[1], dtype=torch.bool, device=taken.device)
    mask = (taken | own).repeat_interleave(64, 1).repeat_interleave(64, 2)
    return F.scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=mask[None])[0]


# ---------------------------------------------------------------------------------------------- vision: FLatten

images, heads, tokens, head = Size("images", 16), Size("heads", 6), Size("tokens", 3136), Size("head", 32, fixed=True)
n, h, i, j, e, d = indices(n=images, h=heads, i=tokens, j=tokens, e=head, d=head)


@nestor.nest
def focused_linear_attention(query: f16[images, heads, tokens, head], key: f16[images, heads, tokens, head], value: f16[images, heads, tokens, head], stretch: f32[heads, head]):
    """Linear attention whose features are cubes that keep their lengths."""
    def focused(name, x):
        part = define(f"{name}_part", (n, h, i, e), (nestor.relu(x[n, h, i, e]) + 1e-6) / nestor.softplus(stretch[h, e]))
        size = nestor.sqrt(nestor.sum(part[n, h, i, e] ** 2, over=e))
        cube = define(f"{name}_cube", (n, h, i, e), (part[n, h, i, e] / size) ** 3)
        return define(name, (n, h, i, e), cube[n, h, i, e] * size / nestor.sqrt(nestor.sum(cube[n, h, i, e] ** 2, over=e)))

    asked, known = focused("asked", query), focused("known", key)
    memory = define("memory", (n, h, e, d), nestor.mean(known[n, h, j, e] * value[n, h, j, d], over=j))
    middle = define("middle", (n, h, e), nestor.mean(known[n, h, j, e], over=j))
    total = define("total", (n, h, i), nestor.sum(asked[n, h, i, e] * middle[n, h, e], over=e) + 1e-6)
    return define("out", (n, h, i, d), nestor.sum(asked[n, h, i, e] * memory[n, h, e, d], over=e) / total[n, h, i], type=f16)


def focused_linear_attention_torch(query, key, value, stretch):
    def focused(x):
        part = (widened(x).relu() + 1e-6) / F.softplus(stretch)[:, None]
        size = part.norm(dim=-1, keepdim=True)
        return F.normalize((part / size) ** 3, dim=-1) * size

    asked, known = focused(query), focused(key)
    memory = known.mT.to(value.dtype) @ (value / value.shape[2])
    total = asked @ known.mean(2)[..., None] + 1e-6
    return (widened(asked.to(value.dtype) @ memory) / total).to(value.dtype)


# ---------------------------------------------------------------------------------------------- language models: Longhorn

batch, times, width, keys = Size("batch", 2), Size("times", 500), Size("width", 1024), Size("keys", 16, fixed=True)
b, t, c, m = indices(b=batch, t=times, c=width, m=keys)


@nestor.nest
def longhorn_scan(x: bf16[batch, times, width], rate: bf16[batch, times, width], key: bf16[batch, times, keys], query: bf16[batch, times, keys]):
    """A state that an implicit step of online learning updates: forgetting follows from the key."""
    (at,) = indices(at=times + 1)
    size = define("size", (b, t), nestor.sum(key[b, t, m] * key[b, t, m], over=m))
    strong = nestor.sigmoid(rate[b, t, c])
    step = define("step", (b, t, c), strong / (1 + strong * size[b, t]))
    state = define("state", (b, at, c, m), 0.0, where=at == 0)
    state.write((b, t, c, m), (b, t + 1, c, m), (1 - step[b, t, c] * key[b, t, m] * key[b, t, m]) * state[b, t, c, m] + step[b, t, c] * x[b, t, c] * key[b, t, m])
    return define("out", (b, t, c), nestor.sum(state[b, t + 1, c, m] * query[b, t, m], over=m), type=bf16)


def longhorn_scan_torch(x, rate, key, query):
    # a scan by doubling
    wide, strong = widened(key), torch.sigmoid(widened(rate))
    step = strong / (1 + strong * wide.square().sum(-1, keepdim=True))
    keep = 1 - step[..., None] * wide.square()[:, :, None]
    given = (step * widened(x))[..., None] * wide[:, :, None]
    by = 1
    while by < x.shape[1]:
        given = torch.cat([given[:, :by], given[:, by:] + keep[:, by:] * given[:, :-by]], 1)
        keep = torch.cat([keep[:, :by], keep[:, by:] * keep[:, :-by]], 1)
        by *= 2
    return (given * widened(query)[:, :, None]).sum(-1).to(x.dtype)


# ---------------------------------------------------------------------------------------------- signals: normalised least mean squares

lines, times, taps = Size("lines", 1000), Size("times", 250), Size("taps", 32, fixed=True)
n, t, p = indices(n=lines, t=times, p=taps)


@nestor.nest
def adaptive_filter(far: f32[lines, times + taps - 1], near: f32[lines, times], rate=0.5, eps=1e-3):
    """An echo is cancelled: a filter for each line learns from each sample what it leaves over."""
    (at,) = indices(at=times + 1)
    energy = define("energy", (n, t), nestor.sum(far[n, t + p] * far[n, t + p], over=p) + eps)
    weight = define("weight", (n, at, p), 0.0, where=at == 0)
    with nestor.steps(n, t):
        error = define("error", (n, t), near[n, t] - nestor.sum(weight[n, t, p] * far[n, t + p], over=p))
        weight.write((n, t, p), (n, t + 1, p), weight[n, t, p] + rate * error[n, t] * far[n, t + p] / energy[n, t])
    return error, define("last", (n, p), weight[n, times, p])


def adaptive_filter_torch(far, near, rate=0.5, eps=1e-3):
    # a recurrence that no parallel form is known for
    times_ = near.shape[1]
    frames = far.unfold(1, far.shape[1] - times_ + 1, 1)
    pull = rate * frames / (frames.square().sum(-1, keepdim=True) + eps)
    weight, errors = torch.zeros_like(frames[:, 0]), []
    for t in range(times_):
        errors.append(near[:, t] - (weight * frames[:, t]).sum(-1))
        weight = weight + errors[-1][:, None] * pull[:, t]
    return torch.stack(errors, 1), weight


# ---------------------------------------------------------------------------------------------- language models: Q4_K of llama.cpp

rows, blocks, outs = Size("rows", 4), Size("blocks", 32), Size("outs", 28672)
i, o, c = indices(i=rows, o=outs, c=256 * blocks)


@nestor.nest
def superblock_linear(x: f16[rows, 256 * blocks], bits: i32[outs, 32 * blocks], steps: i32[outs, 4 * blocks], scale: f16[outs, blocks], least: f16[outs, blocks]):
    """Weights of four bits; a step and an offset of six bits for each 32 of them, and two numbers of 16 bits for each 256."""
    level = (bits[o, c // 8] >> (4 * (c % 8))) & 15
    step = (steps[o, c // 64] >> (16 * (c // 32 % 2))) & 63
    offset = (steps[o, c // 64] >> (16 * (c // 32 % 2) + 8)) & 63
    weight = scale[o, c // 256] * nestor.cast(f32, step * level) - least[o, c // 256] * nestor.cast(f32, offset)
    return define("out", (i, o), nestor.sum(x[i, c] * weight, over=c), type=f16)


def superblock_linear_torch(x, bits, steps, scale, least):
    shift = 4 * torch.arange(8, device=bits.device, dtype=torch.int32)
    level = ((bits[..., None] >> shift) & 15).flatten(1).unflatten(1, (-1, 8, 32))
    both = ((steps[..., None] >> (8 * torch.arange(4, device=bits.device, dtype=torch.int32))) & 63).flatten(1).unflatten(1, (-1, 8, 2))
    weight = scale[..., None, None] * (both[..., :1] * level) - least[..., None, None] * both[..., 1:]
    return F.linear(x, weight.flatten(1))


# ---------------------------------------------------------------------------------------------- language models: HQQ, three bits

rows, parts, outs = Size("rows", 2000), Size("parts", 9), Size("outs", 5760)
i, o, c = indices(i=rows, o=outs, c=320 * parts)


@nestor.nest
def three_bit_linear(x: bf16[rows, 320 * parts], bits: i32[outs, 32 * parts], scale: bf16[outs, 5 * parts], zero: bf16[outs, 5 * parts], bias: bf16[outs]):
    """Ten weights of three bits in a word; a scale and a zero that is no integer for each 64 of them."""
    level = nestor.cast(f32, (bits[o, c // 10] >> (3 * (c % 10))) & 7)
    return define("out", (i, o), nestor.sum(x[i, c] * ((level - zero[o, c // 64]) * scale[o, c // 64]), over=c) + bias[o], type=bf16)


def three_bit_linear_torch(x, bits, scale, zero, bias):
    shift = 3 * torch.arange(10, device=bits.device, dtype=torch.int32)
    level = ((bits[..., None] >> shift) & 7).flatten(1).to(x.dtype).unflatten(1, (-1, 64))
    return F.linear(x, ((level - zero[..., None]) * scale[..., None]).flatten(1), bias)


# ---------------------------------------------------------------------------------------------- finance: implied volatilities

options = Size("options", 1000000)
(n,) = indices(n=options)
ROUNDS = 6


@nestor.nest
def implied_volatility(price: f32[options], spot: f32[options], strike: f32[options], years: f32[options], rate=0.03):
    """Newton's iterations for the volatility at which a call costs what is paid for it."""
    paid = strike[n] * nestor.exp(-rate * years[n])
    moneyness, root = nestor.log(spot[n] / paid), nestor.sqrt(years[n])
    swing = define("swing0", n, nestor.clamp(2.5066283 * price[n] / (spot[n] * root), 0.05, 3.0))
    for r in range(ROUNDS):
        far = swing[n] * root
        up = define(f"up{r}", n, moneyness / far + 0.5 * far)
        cost = spot[n] * 0.5 * (1 + nestor.erf(up[n] * 0.70710678)) - paid * 0.5 * (1 + nestor.erf((up[n] - far) * 0.70710678))
        steep = nestor.maximum(spot[n] * root * 0.39894228 * nestor.exp(-0.5 * up[n] * up[n]), 1e-4)
        swing = define("out" if r == ROUNDS - 1 else f"swing{r + 1}", n, nestor.clamp(swing[n] - (cost - price[n]) / steep, 0.01, 3.0))
    return swing


def implied_volatility_torch(price, spot, strike, years, rate=0.03):
    paid, root = strike * torch.exp(-rate * years), years.sqrt()
    moneyness = torch.log(spot / paid)
    swing = (2.5066283 * price / (spot * root)).clamp(0.05, 3)
    for _ in range(ROUNDS):
        far = swing * root
        up = moneyness / far + 0.5 * far
        cost = spot * torch.special.ndtr(up) - paid * torch.special.ndtr(up - far)
        steep = (spot * root * 0.39894228 * torch.exp(-0.5 * up * up)).clamp(min=1e-4)
        swing = (swing - (cost - price) / steep).clamp(0.01, 3)
    return swing


# ---------------------------------------------------------------------------------------------- language models: Gemma 3n

tokens, width, small = Size("tokens", 6000), Size("width", 2048), Size("small", 256)
t, c, o, u = indices(t=tokens, c=width, o=width, u=small)


@nestor.nest
def per_layer_inputs(hidden: bf16[tokens, width], gate: bf16[small, width], own: bf16[tokens, small], back: bf16[width, small], gain: bf16[width], eps=1e-6):
    """What a layer has of its own for each token is gated by the stream, brought to its width, normed and added."""
    x = define("x", (t, u), nestor.sum(hidden[t, c] * gate[u, c], over=c))[t, u]
    let = define("let", (t, u), 0.5 * x * (1 + nestor.tanh(0.7978845608 * (x + 0.044715 * x * x * x))) * own[t, u])
    wide = define("wide", (t, o), nestor.sum(let[t, u] * back[o, u], over=u))
    size = nestor.rsqrt(nestor.mean(wide[t, o] * wide[t, o], over=o) + eps)
    return define("out", (t, o), hidden[t, o] + wide[t, o] * size * (1 + gain[o]), type=bf16)


def per_layer_inputs_torch(hidden, gate, own, back, gain, eps=1e-6):
    wide = F.linear(F.gelu(F.linear(hidden, gate), approximate="tanh") * own, back)
    return hidden + F.rms_norm(wide, wide.shape[-1:], 1 + gain, eps)


# ---------------------------------------------------------------------------------------------- language models: ReMoE

tokens, experts, width, inner = Size("tokens", 2000), Size("experts", 8), Size("width", 1024), Size("inner", 512)
t, x, c, o, u = indices(t=tokens, x=experts, c=width, o=width, u=inner)


@nestor.nest
def relu_routed_mixture(hidden: bf16[tokens, width], router: bf16[experts, width], gate: bf16[experts, inner, width], up: bf16[experts, inner, width],
                        down: bf16[experts, inner, width]):
    """Experts whose weights are what is left of a linear layer above 0, with how many of them each token has."""
    weight = define("weight", (t, x), nestor.relu(nestor.sum(hidden[t, c] * router[x, c], over=c)))
    middle = define("middle", (t, x, u), nestor.silu(nestor.sum(hidden[t, c] * gate[x, u, c], over=c)) * nestor.sum(hidden[t, c] * up[x, u, c], over=c))
    out = define("out", (t, o), nestor.sum(weight[t, x] * middle[t, x, u] * down[x, u, o], over=(x, u)), type=bf16)
    return out, define("used", t, nestor.sum(nestor.select(weight[t, x] > 0, 1, 0), over=x))


def relu_routed_mixture_torch(hidden, router, gate, up, down):
    weight = F.relu(F.linear(hidden, router))
    middle = F.silu(F.linear(hidden, gate.flatten(0, 1))) * F.linear(hidden, up.flatten(0, 1))
    out = (middle.unflatten(1, gate.shape[:2]) * weight[..., None]).flatten(1) @ down.flatten(0, 1)
    return out, (weight > 0).sum(1, dtype=torch.int32)


# ---------------------------------------------------------------------------------------------- language models: distillation from hidden states

tokens, words, width, wider = Size("tokens", 1000), Size("words", 32000), Size("width", 1024), Size("wider", 2048)
t, v, c, w = indices(t=tokens, v=words, c=width, w=wider)


@nestor.nest
def linear_distillation_loss(student: bf16[tokens, width], student_head: bf16[words, width], teacher: bf16[tokens, wider], teacher_head: bf16[words, wider],
                             counts: boolean[tokens], heat: nestor.Scalar(2.0, min=0.1)):
    """Hidden states of a student and a teacher go through their heads, and their words' shares are compared at a temperature."""
    def log_shares(name, logit):
        top = nestor.max(logit[t, v], over=v)
        spread = top + nestor.log(nestor.sum(nestor.exp(logit[t, v] - top), over=v))
        return define(name, (t, v), logit[t, v] - spread)

    new = log_shares("new", define("new_logit", (t, v), nestor.sum(student[t, c] * student_head[v, c], over=c) / heat))
    old = log_shares("old", define("old_logit", (t, v), nestor.sum(teacher[t, w] * teacher_head[v, w], over=w) / heat))
    apart = nestor.sum(nestor.exp(old[t, v]) * (old[t, v] - new[t, v]), over=v)
    loss = define("loss", t, nestor.select(counts[t], heat * heat * apart, 0.0))
    known = nestor.sum(nestor.cast(i32, counts[t]), over=t)
    return define("mean", (), nestor.sum(loss[t], over=t) / nestor.maximum(nestor.cast(f32, known), 1.0)), loss


def linear_distillation_loss_torch(student, student_head, teacher, teacher_head, counts, heat=2.0):
    new = (widened(F.linear(student, student_head)) / heat).log_softmax(-1)
    old = (widened(F.linear(teacher, teacher_head)) / heat).log_softmax(-1)
    loss = torch.where(counts, heat * heat * F.kl_div(new, old, reduction="none", log_target=True).sum(-1), 0.0)
    return loss.sum() / counts.sum().clamp(min=1), loss


# ---------------------------------------------------------------------------------------------- diffusion: DiT, backward

batch, tokens, width = Size("batch", 24), Size("tokens", 1000), Size("width", 1152)
b, t, c = indices(b=batch, t=tokens, c=width)


@nestor.nest
def adaln_backward(x: bf16[batch, tokens, width], scale: bf16[batch, width], slope: bf16[batch, tokens, width], eps=1e-6):
    """A layer norm that each image shifts and scales: gradients of tokens, and of shift and scale over an image's tokens."""
    mean = define("mean", (b, t), nestor.mean(x[b, t, c], over=c))
    root = define("root", (b, t), nestor.rsqrt(nestor.mean((x[b, t, c] - mean[b, t]) ** 2, over=c) + eps))
    normed = define("normed", (b, t, c), (x[b, t, c] - mean[b, t]) * root[b, t])
    into = define("into", (b, t, c), slope[b, t, c] * (1 + scale[b, c]))
    along, plain = nestor.mean(into[b, t, c] * normed[b, t, c], over=c), nestor.mean(into[b, t, c], over=c)
    d_x = define("d_x", (b, t, c), root[b, t] * (into[b, t, c] - plain - normed[b, t, c] * along), type=bf16)
    d_scale = define("d_scale", (b, c), nestor.sum(slope[b, t, c] * normed[b, t, c], over=t))
    return d_x, d_scale, define("d_shift", (b, c), nestor.sum(slope[b, t, c], over=t))


def adaln_backward_torch(x, scale, slope, eps=1e-6):
    wide, steep = widened(x), widened(slope)
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    root = (variance + eps).rsqrt()
    normed = (wide - mean) * root
    into = steep * (1 + widened(scale)[:, None])
    d_x = root * (into - into.mean(-1, keepdim=True) - normed * (into * normed).mean(-1, keepdim=True))
    return d_x.to(x.dtype), (steep * normed).sum(1), steep.sum(1)


# ---------------------------------------------------------------------------------------------- training: AdEMAMix

rows, width = Size("rows", 3000), Size("width", 2880)
i, c = indices(i=rows, c=width)


@nestor.nest
def ademamix_step(weight: bf16[rows, width], gradient: bf16[rows, width], fast: f32[rows, width], slow: f32[rows, width], square: f32[rows, width], step: f32[()],
                  rate=1e-3, longest=1.0, first=0.9, second=0.999, third=0.9999, mix=8.0, decay=0.1, eps=1e-8):
    """Gradients are clipped to a norm, two averages of them, a fast one and a slow one, make the step together."""
    size = nestor.sqrt(nestor.sum(gradient[i, c] * gradient[i, c], over=(i, c)))
    let = define("let", (), nestor.minimum(longest / (size + 1e-6), 1.0))
    clipped = gradient[i, c] * let[()]
    new_fast = define("new_fast", (i, c), first * fast[i, c] + (1 - first) * clipped)
    new_slow = define("new_slow", (i, c), third * slow[i, c] + (1 - third) * clipped)
    new_square = define("new_square", (i, c), second * square[i, c] + (1 - second) * clipped * clipped)
    even = new_fast[i, c] / (1 - nestor.pow(first, step[()])) + mix * new_slow[i, c]
    root = nestor.sqrt(new_square[i, c] / (1 - nestor.pow(second, step[()]))) + eps
    return define("out", (i, c), weight[i, c] - rate * (even / root + decay * weight[i, c]), type=bf16), new_fast, new_slow, new_square


def ademamix_step_torch(weight, gradient, fast, slow, square, step, rate=1e-3, longest=1.0, first=0.9, second=0.999, third=0.9999, mix=8.0, decay=0.1, eps=1e-8):
    wide, own = widened(gradient), widened(weight)
    clipped = wide * (longest / (torch.linalg.vector_norm(wide) + 1e-6)).clamp(max=1)
    fast, slow, square = first * fast + (1 - first) * clipped, third * slow + (1 - third) * clipped, second * square + (1 - second) * clipped * clipped
    even = fast / (1 - first ** step) + mix * slow
    root = (square / (1 - second ** step)).sqrt() + eps
    return (own - rate * (even / root + decay * own)).to(weight.dtype), fast, slow, square


# ---------------------------------------------------------------------------------------------- sound: streaming codecs

batch, groups, per, times = Size("batch", 12), Size("groups", 48), Size("per", 16, fixed=True), Size("times", 2000)
b, g, o, p, t, r, z = indices(b=batch, g=groups, o=per, p=per, t=times, r=4, z=6)


@nestor.nest
def streaming_causal_conv(x: f16[batch, groups, per, times], past: f16[batch, groups, per, 6], weight: f16[groups, per, per, 4], bias: f16[groups, per]):
    """Dilated grouped filters over a chunk of sound and what is kept of the one before, an ELU, and what the next one needs."""
    joined = nestor.Tensor("joined", f16, (batch, groups, per, times + 6))
    joined.write((b, g, p, z), (b, g, p, z), past[b, g, p, z])
    joined.write((b, g, p, t), (b, g, p, t + 6), x[b, g, p, t])
    y = define("y", (b, g, o, t), nestor.sum(weight[g, o, p, r] * joined[b, g, p, t + 2 * r], over=(p, r)) + bias[g, o])
    out = define("out", (b, g, o, t), nestor.select(y[b, g, o, t] > 0, y[b, g, o, t], nestor.expm1(y[b, g, o, t])), type=f16)
    return out, define("kept", (b, g, p, z), joined[b, g, p, times + z], type=f16)


def streaming_causal_conv_torch(x, past, weight, bias):
    joined = torch.cat([past, x], -1)
    out = F.elu(F.conv1d(joined.flatten(1, 2), weight.flatten(0, 1), bias.flatten(), dilation=2, groups=x.shape[1]))
    return out.unflatten(1, x.shape[1:3]), joined[..., -6:].clone()


# ---------------------------------------------------------------------------------------------- vision: octave convolution

images, fine, coarse, tall, wide = Size("images", 16), Size("fine", 96), Size("coarse", 32), Size("tall", 28), Size("wide", 28)
n, f, g, o, p, y, x, yy, xx, dy, dx, py, px = indices(n=images, f=fine, g=coarse, o=fine, p=coarse, y=tall, x=wide, yy=2 * tall, xx=2 * wide, dy=3, dx=3, py=2, px=2)


@nestor.nest
def octave_conv(high: bf16[images, fine, 2 * tall, 2 * wide], low: bf16[images, coarse, tall, wide], high_high: bf16[fine, fine, 3, 3], high_low: bf16[coarse, fine, 3, 3],
                low_high: bf16[fine, coarse, 3, 3], low_low: bf16[coarse, coarse, 3, 3]):
    """Channels at two resolutions, each of which gets filters of both."""
    a, c = yy + dy - 1, xx + dx - 1
    inside = (a >= 0) & (a < 2 * tall) & (c >= 0) & (c < 2 * wide)
    own = nestor.sum(high_high[o, f, dy, dx] * high[n, f, a, c], over=(f, dy, dx), where=inside)
    a, c = y + dy - 1, x + dx - 1
    within = (a >= 0) & (a < tall) & (c >= 0) & (c < wide)
    risen = define("risen", (n, o, y, x), nestor.sum(low_high[o, g, dy, dx] * low[n, g, a, c], over=(g, dy, dx), where=within))
    pooled = define("pooled", (n, f, y, x), nestor.mean(high[n, f, 2 * y + py, 2 * x + px], over=(py, px)))
    kept = nestor.sum(low_low[p, g, dy, dx] * low[n, g, a, c], over=(g, dy, dx), where=within)
    fallen = nestor.sum(high_low[p, f, dy, dx] * pooled[n, f, a, c], over=(f, dy, dx), where=within)
    return define("new_high", (n, o, yy, xx), own + risen[n, o, yy // 2, xx // 2], type=bf16), define("new_low", (n, p, y, x), kept + fallen, type=bf16)


def octave_conv_torch(high, low, high_high, high_low, low_high, low_low):
    new_high = F.conv2d(high, high_high, padding=1) + F.interpolate(F.conv2d(low, low_high, padding=1), scale_factor=2)
    return new_high, F.conv2d(low, low_low, padding=1) + F.conv2d(F.avg_pool2d(high, 2), high_low, padding=1)


# ---------------------------------------------------------------------------------------------- biology: AlphaFold 3

sequences, residues, heads, head = Size("sequences", 500), Size("residues", 384), Size("heads", 8), Size("head", 32, fixed=True)
s, i, j, h, d = indices(s=sequences, i=residues, j=residues, h=heads, d=head)


@nestor.nest
def pair_weighted_averaging(value: bf16[sequences, residues, heads, head], bias: bf16[residues, residues, heads], gate: bf16[sequences, residues, heads, head], counts: boolean[residues]):
    """Rows of an alignment are averaged by weights of pairs alone, which all of them share, and gated."""
    score = define("score", (h, i, j), nestor.select(counts[j], bias[i, j, h], -1e9))
    top = nestor.max(score[h, i, j], over=j)
    power = define("power", (h, i, j), nestor.exp(score[h, i, j] - top))
    share = define("share", (h, i, j), power[h, i, j] / nestor.sum(power[h, i, j], over=j))
    return define("out", (s, i, h, d), nestor.sigmoid(gate[s, i, h, d]) * nestor.sum(share[h, i, j] * value[s, j, h, d], over=j), type=bf16)


def pair_weighted_averaging_torch(value, bias, gate, counts):
    share = bias.permute(2, 0, 1).masked_fill(~counts, -1e9).softmax(-1)
    return torch.sigmoid(gate) * torch.einsum("hij,sjhd->sihd", share, value)


# ---------------------------------------------------------------------------------------------- graphics: glossy reflections

pixels, lights = Size("pixels", 6144), Size("lights", 8000)
n, l, a, c = indices(n=pixels, l=lights, a=3, c=3)


@nestor.nest
def glossy_prefilter(normal: f32[pixels, 3], light: f32[lights, 3], radiance: f32[lights, 3], solid: f32[lights], roughness: nestor.Scalar(0.4, min=0.01, max=1.0)):
    """An environment as a rough surface reflects it: its colours weighted by the share of microfacets that face halfway."""
    facing = define("facing", (n, l), nestor.sum(normal[n, a] * light[l, a], over=a))
    sharp = roughness * roughness * roughness * roughness
    bend = 0.5 * (1 + facing[n, l]) * (sharp - 1) + 1
    weight = define("weight", (n, l), nestor.select(facing[n, l] > 0, facing[n, l] * solid[l] * sharp / (bend * bend), 0.0))
    total = nestor.maximum(nestor.sum(weight[n, l], over=l), 1e-6)
    return define("out", (n, c), nestor.sum(weight[n, l] * radiance[l, c], over=l) / total)


def glossy_prefilter_torch(normal, light, radiance, solid, roughness=0.4):
    facing, sharp = normal @ light.mT, roughness**4
    bend = 0.5 * (1 + facing) * (sharp - 1) + 1
    weight = facing.clamp(min=0) * solid * sharp / (bend * bend)
    return weight @ radiance / weight.sum(1, keepdim=True).clamp(min=1e-6)


# ---------------------------------------------------------------------------------------------- images: gradient magnitude similarity deviation

images, tall, wide = Size("images", 16), Size("tall", 270), Size("wide", 480)
n, y, x, py, px, dy, dx, c = indices(n=images, y=tall, x=wide, py=2, px=2, dy=3, dx=3, c=3)


@nestor.nest
def gradient_similarity(first: f32[images, 3, 2 * tall, 2 * wide], second: f32[images, 3, 2 * tall, 2 * wide], steady=0.0026):
    """How unevenly the edges of two pictures differ: their grey versions at half size, Prewitt's filters, and a deviation over places."""
    red, green, blue = 0.299, 0.587, 0.114
    down, right = y + dy - 1, x + dx - 1
    inside = (down >= 0) & (down < tall) & (right >= 0) & (right < wide)

    def edges(name, picture):
        grey = red * picture[n, 0, 2 * y + py, 2 * x + px] + green * picture[n, 1, 2 * y + py, 2 * x + px] + blue * picture[n, 2, 2 * y + py, 2 * x + px]
        small = define(f"{name}_small", (n, y, x), nestor.mean(grey, over=(py, px)))
        across = nestor.sum(nestor.cast(f32, dx - 1) / 3 * small[n, down, right], over=(dy, dx), where=inside)
        along = nestor.sum(nestor.cast(f32, dy - 1) / 3 * small[n, down, right], over=(dy, dx), where=inside)
        return define(name, (n, y, x), nestor.sqrt(across * across + along * along + 1e-12))

    one, two = edges("one", first), edges("two", second)
    like = define("like", (n, y, x), (2 * one[n, y, x] * two[n, y, x] + steady) / (one[n, y, x] ** 2 + two[n, y, x] ** 2 + steady))
    mean = define("mean", n, nestor.mean(like[n, y, x], over=(y, x)))
    return define("out", n, nestor.sqrt(nestor.mean((like[n, y, x] - mean[n]) ** 2, over=(y, x))))


def gradient_similarity_torch(first, second, steady=0.0026):
    share = first.new_tensor([0.299, 0.587, 0.114])
    across = first.new_tensor([-1, 0, 1]).expand(3, 3) / 3
    filters = torch.stack([across, across.mT])[:, None]

    def edges(picture):
        small = F.avg_pool2d((picture * share[:, None, None]).sum(1, keepdim=True), 2)
        return (F.conv2d(small, filters, padding=1).square().sum(1) + 1e-12).sqrt()

    one, two = edges(first), edges(second)
    return ((2 * one * two + steady) / (one.square() + two.square() + steady)).std((1, 2), correction=0)


# ---------------------------------------------------------------------------------------------- statistics: variograms

points, bins = Size("points", 4000), Size("bins", 24, fixed=True)
i, j, k = indices(i=points, j=points, k=bins)


@nestor.nest
def empirical_variogram(place: f32[points, 2], value: f32[points], reach: nestor.Scalar(0.1, min=1e-3)):
    """How much values at two places differ, by classes of how far these are apart, and how many pairs each class has."""
    far = define("far", (i, j), nestor.sqrt((place[i, 0] - place[j, 0]) ** 2 + (place[i, 1] - place[j, 1]) ** 2), where=j < i)
    member = define("member", (i, j), nestor.cast(i32, nestor.floor(far[i, j] / reach)), where=j < i)
    gap = value[i] - value[j]
    pairs = define("pairs", k, nestor.sum(nestor.select(member[i, j] == k, 1, 0), over=(i, j), where=j < i))
    total = nestor.sum(nestor.select(member[i, j] == k, gap * gap, 0.0), over=(i, j), where=j < i)
    return define("out", k, 0.5 * total / nestor.maximum(nestor.cast(f32, pairs[k]), 1.0)), pairs


def empirical_variogram_torch(place, value, reach=0.1, bins=24):
    one, two = torch.tril_indices(len(place), len(place), -1, device=place.device)
    member = ((place[one] - place[two]).square().sum(1).sqrt() / reach).floor().clamp(max=bins).long()
    pairs = torch.zeros(bins + 1, dtype=torch.int32, device=place.device).index_add_(0, member, torch.ones_like(member, dtype=torch.int32))[:bins]
    total = torch.zeros(bins + 1, dtype=place.dtype, device=place.device).index_add_(0, member, (value[one] - value[two]).square())[:bins]
    return 0.5 * total / pairs.clamp(min=1), pairs


# ---------------------------------------------------------------------------------------------- physics: Rotne, Prager and Yamakawa

spheres = Size("spheres", 8000)
i, j, a, e = indices(i=spheres, j=spheres, a=3, e=3)


@nestor.nest
def hydrodynamic_velocities(place: f32[spheres, 3], force: f32[spheres, 3], radius: nestor.Scalar(0.5, min=1e-3)):
    """Spheres in a viscous fluid, overlapping ones too, move each other by forces: velocities relative to a free sphere's mobility."""
    gap = define("gap", (i, j, a), place[i, a] - place[j, a])
    squared = nestor.sum(gap[i, j, a] * gap[i, j, a], over=a)
    far = define("far", (i, j), nestor.sqrt(squared + 1e-12))
    along = define("along", (i, j), nestor.sum(gap[i, j, a] * force[j, a], over=a) / (far[i, j] * far[i, j]))
    ratio = radius / far[i, j]
    apart = far[i, j] >= 2 * radius
    straight = define("straight", (i, j), nestor.select(apart, 0.75 * ratio + 0.5 * ratio * ratio * ratio, 1 - 0.28125 / ratio))
    inward = define("inward", (i, j), nestor.select(apart, 0.75 * ratio - 1.5 * ratio * ratio * ratio, 0.09375 / ratio))
    return define("out", (i, e), nestor.sum(straight[i, j] * force[j, e] + inward[i, j] * along[i, j] * gap[i, j, e], over=j))


def hydrodynamic_velocities_torch(place, force, radius=0.5):
    gap = place[:, None] - place
    squared = gap.square().sum(-1) + 1e-12
    far = squared.sqrt()
    ratio = radius / far
    apart, cubed = far >= 2 * radius, ratio ** 3
    straight = torch.where(apart, 0.75 * ratio + 0.5 * cubed, 1 - 0.28125 / ratio)
    inward = torch.where(apart, 0.75 * ratio - 1.5 * cubed, 0.09375 / ratio)
    along = inward * (gap * force).sum(-1) / squared
    return straight @ force + (along[..., None] * gap).sum(1)


def packed(normal, _):
    """Words of 32 random bits."""
    return torch.floor(normal * 5e8).clamp(-2**31, 2**31 - 1000)


def unit(normal, _):
    """Directions."""
    return F.normalize(normal, dim=1)


OPERATORS = [
    Operator(paired_difference_attention, paired_difference_attention_torch, "Ye et al., Differential Transformer V2, 2026", {"batch": 2, "heads": 3, "length": 9, "head": 5}),
    Operator(exclusive_attention, exclusive_attention_torch, "Zhai, Exclusive self attention, 2026", {"batch": 2, "kv_heads": 2, "group": 3, "length": 9, "head": 5}),
    Operator(polar_position_attention, polar_position_attention_torch, "Gopalakrishnan et al., Decoupling the what and where with polar coordinate positional embeddings, 2025",
             {"batch": 2, "heads": 3, "length": 9, "head": 5},
             draw={"speed": lambda normal, _: torch.logspace(0, -4, len(normal), device=normal.device)}),
    Operator(agent_attention, agent_attention_torch, "Han et al., Agent attention, 2023", {"images": 2, "heads": 3, "cells": 2, "head": 5}, draw={"filters": lambda normal, _: normal / 3}),
    Operator(softcap_attention_backward, softcap_attention_backward_torch, "Gemma team, Gemma 2, 2024", {"streams": 2, "length": 9, "head": 5},
             draw={"spread": lambda normal, _: torch.arange(1, normal.shape[1] + 1, device=normal.device).log() + 0.5 + 0.1 * normal, "out": lambda normal, _: 0.2 * normal}),
    Operator(block_map_attention, block_map_attention_torch, "Zhang et al., SpargeAttention, 2025; Xu et al., XAttention, 2025", {"heads": 2, "blocks": 2, "head": 5},
             draw={"taken": lambda normal, _: normal > 0.8}),
    Operator(focused_linear_attention, focused_linear_attention_torch, "Han et al., FLatten Transformer, 2023", {"images": 2, "heads": 3, "tokens": 9, "head": 5}),
    Operator(longhorn_scan, longhorn_scan_torch, "Liu et al., Longhorn, 2024", {"batch": 2, "times": 7, "width": 5, "keys": 3}, draw={"key": divided("keys")}),
    Operator(adaptive_filter, adaptive_filter_torch, "Widrow and Hoff, 1960; Nagumo and Noda, 1967", {"lines": 3, "times": 11, "taps": 5}),
    Operator(superblock_linear, superblock_linear_torch, "Gerganov et al., llama.cpp (Q4_K), 2023", {"rows": 3, "blocks": 2, "outs": 5},
             draw={"bits": packed, "steps": packed, "scale": lambda normal, _: 1e-4 * (1 + 0.1 * normal), "least": lambda normal, _: 7.5e-4 * (1 + 0.1 * normal)}),
    Operator(three_bit_linear, three_bit_linear_torch, "Badri and Shaji, Half-quadratic quantization, 2023", {"rows": 5, "parts": 2, "outs": 7},
             draw={"bits": packed, "scale": lambda normal, _: 0.02 * (1 + 0.1 * normal), "zero": lambda normal, _: 3.5 + 0.3 * normal}),
    Operator(implied_volatility, implied_volatility_torch, "Brenner and Subrahmanyam, 1988; Manaster and Koehler, 1982", {"options": 37},
             draw={"price": lambda normal, _: 12 + normal, "spot": lambda normal, _: 100 + 3 * normal, "strike": lambda normal, _: 100 + 3 * normal,
                   "years": lambda normal, _: 0.9 + 0.1 * torch.tanh(normal)}),
    Operator(per_layer_inputs, per_layer_inputs_torch, "Gemma team, Gemma 3n, 2025", {"tokens": 7, "width": 11, "small": 5},
             draw={"gate": divided("width"), "back": divided("small"), "gain": lambda normal, _: 0.1 * normal}),
    Operator(relu_routed_mixture, relu_routed_mixture_torch, "Wang et al., ReMoE, 2024", {"tokens": 7, "experts": 3, "width": 11, "inner": 5},
             draw={"router": divided("width"), "gate": divided("width"), "up": divided("width"), "down": divided("inner")}),
    Operator(linear_distillation_loss, linear_distillation_loss_torch, "Hinton et al., 2015; Hsu et al., Liger kernel, 2024", {"tokens": 5, "words": 13, "width": 7, "wider": 11},
             draw={"student_head": divided("width"), "teacher_head": divided("wider"), "counts": lambda normal, _: normal > -1}),
    Operator(adaln_backward, adaln_backward_torch, "Peebles and Xie, Scalable diffusion models with transformers, 2023", {"batch": 3, "tokens": 7, "width": 11},
             draw={"scale": lambda normal, _: 0.2 * normal}),
    Operator(ademamix_step, ademamix_step_torch, "Pagliardini et al., The AdEMAMix optimizer, 2024", {"rows": 5, "width": 7},
             draw={"fast": lambda normal, _: 0.01 * normal, "slow": lambda normal, _: 0.001 * normal, "square": lambda normal, _: 1e-4 * (1 + normal * normal),
                   "step": lambda normal, _: 100 + 0 * normal}),
    Operator(streaming_causal_conv, streaming_causal_conv_torch, "Defossez et al., High fidelity neural audio compression, 2022", {"batch": 2, "groups": 3, "per": 3, "times": 7},
             draw={"weight": lambda normal, sizes: normal / (4 * sizes["per"])**0.5}),
    Operator(octave_conv, octave_conv_torch, "Chen et al., Drop an octave, 2019", {"images": 2, "fine": 3, "coarse": 2, "tall": 3, "wide": 5},
             draw={"high_high": lambda normal, sizes: normal / (9 * sizes["fine"])**0.5, "high_low": lambda normal, sizes: normal / (9 * sizes["fine"])**0.5,
                   "low_high": lambda normal, sizes: normal / (9 * sizes["coarse"])**0.5, "low_low": lambda normal, sizes: normal / (9 * sizes["coarse"])**0.5}),
    Operator(pair_weighted_averaging, pair_weighted_averaging_torch, "Abramson et al., AlphaFold 3, 2024", {"sequences": 3, "residues": 7, "heads": 2, "head": 5},
             draw={"counts": lambda normal, _: normal > -1}),
    Operator(glossy_prefilter, glossy_prefilter_torch, "Walter et al., Microfacet models, 2007; Karis, Real shading in Unreal Engine 4, 2013", {"pixels": 7, "lights": 11},
             draw={"normal": unit, "light": unit, "radiance": lambda normal, _: normal.abs(), "solid": lambda normal, _: 1 + 0.1 * normal}),
    Operator(gradient_similarity, gradient_similarity_torch, "Xue et al., Gradient magnitude similarity deviation, 2014", {"images": 2, "tall": 5, "wide": 7},
             draw={"first": lambda normal, _: torch.sigmoid(normal), "second": lambda normal, _: torch.sigmoid(normal)}),
    Operator(empirical_variogram, empirical_variogram_torch, "Matheron, Principles of geostatistics, 1963", {"points": 29, "bins": 7}, told=("bins",)),
    Operator(hydrodynamic_velocities, hydrodynamic_velocities_torch, "Rotne and Prager, 1969; Yamakawa, 1970", {"spheres": 13}, draw={"place": lambda normal, _: 2 * normal}),
]
