"""Operators as users carry them in today. Attention: stories of video, packed documents with beacons, caches of eight bits with a fresh end, integers that are
causal, pictures between words, windows backward, segments that are dilated. Products: integers in and out, heads that are normed and turned, latents of a world,
experts of blocks. Convolutions of integers, of vocoders, of packed texts. A norm backward, an optimiser, boxes. Stars, rays, curves, risks."""

import math

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

import nestor
from nestor import Size, bf16, boolean, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened


def signed(word, byte):
    """A byte of a word, as an integer with a sign."""
    return (word << (24 - 8 * byte)) >> 24


# ---------------------------------------------------------------------------------------------- video: a text, then frames (MAGI-1, NOVA)

TEXT, CELLS = 77, 60
batch, heads, frames, head = Size("batch", 2), Size("heads", 12), Size("frames", 64), Size("head", 128, fixed=True)
b, h, q, j, e, d = indices(b=batch, h=heads, q=TEXT + CELLS * frames, j=TEXT + CELLS * frames, e=head, d=head)


@nestor.nest
def story_video_attention(query: bf16[batch, heads, TEXT + CELLS * frames, head], key: bf16[batch, heads, TEXT + CELLS * frames, head],
                          value: bf16[batch, heads, TEXT + CELLS * frames, head]):
    """All see a text; cells of a frame see the whole of it and of all frames before it; the text does not see the video."""
    sees = (j < TEXT) | ((q >= TEXT) & ((j - TEXT) // CELLS <= (q - TEXT) // CELLS))
    score = define("score", (b, h, q, j), nestor.sum(query[b, h, q, e] * key[b, h, j, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), where=sees)
    top = nestor.max(score[b, h, q, j], over=j, where=sees)
    power = define("power", (b, h, q, j), nestor.exp(score[b, h, q, j] - top), where=sees)
    total = nestor.sum(power[b, h, q, j], over=j, where=sees)
    return define("out", (b, h, q, d), nestor.sum(power[b, h, q, j] * value[b, h, j, d], over=j, where=sees) / total, type=bf16)


def story_video_attention_torch(query, key, value):
    place = torch.arange(query.shape[2], device=query.device)
    frame = torch.div(place - TEXT, CELLS, rounding_mode="floor")
    sees = (place < TEXT) | ((place[:, None] >= TEXT) & (frame <= frame[:, None]))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=sees)


def story_video_seen(sizes):
    def sees(b, h, i, j):
        return (j < TEXT) | ((i >= TEXT) & ((j - TEXT) // CELLS <= (i - TEXT) // CELLS))

    return sees, TEXT + CELLS * sizes["frames"]


def story_video_attention_flex(query, key, value, mask):
    return flex_attention(query, key, value, block_mask=mask)


# ---------------------------------------------------------------------------------------------- language models: packed documents, windows, beacons

heads, length, head = Size("heads", 16), Size("length", 4096), Size("head", 128, fixed=True)
h, q, j, e, d = indices(h=heads, q=length, j=length, e=head, d=head)


@nestor.nest
def beacon_window_attention(query: bf16[heads, length, head], key: bf16[heads, length, head], value: bf16[heads, length, head], document: i32[length],
                            beacon: boolean[length], window=512):
    """Documents in one row of tokens: a token sees a window before it and all beacons before it, of its own document."""
    near = q - j < window
    sees = (j <= q) & (document[q] == document[j]) & (near | beacon[j])
    met = nestor.sum(query[h, q, e] * key[h, j, e], over=e) * nestor.rsqrt(nestor.cast(f32, head))
    score = define("score", (h, q, j), nestor.select(sees, met, -math.inf))
    top = nestor.max(score[h, q, j], over=j)
    power = define("power", (h, q, j), nestor.exp(score[h, q, j] - top))
    total = nestor.sum(power[h, q, j], over=j)
    return define("out", (h, q, d), nestor.sum(power[h, q, j] * value[h, j, d], over=j) / total, type=bf16)


def beacon_window_attention_torch(query, key, value, document, beacon, window=512):
    place = torch.arange(query.shape[1], device=query.device)
    near = place[:, None] - place < window
    sees = (place <= place[:, None]) & (document[:, None] == document) & (near | beacon)
    return F.scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=sees)[0]


# ---------------------------------------------------------------------------------------------- language models: KIVI, a cache with a fresh end

batch, kv_heads, group, length, fresh, words = (Size("batch", 32), Size("kv_heads", 8), Size("group", 4, fixed=True), Size("length", 6000), Size("fresh", 128),
                                                Size("words", 32, fixed=True))
b, h, g, k, r, e, d = indices(b=batch, h=kv_heads, g=group, k=length, r=fresh, e=4 * words, d=4 * words)


@nestor.nest
def fresh_end_decoding(query: bf16[batch, kv_heads, group, 4 * words], key: i32[batch, kv_heads, length, words], key_scale: f32[batch, kv_heads, length],
                       value: i32[batch, kv_heads, length, words], value_scale: f32[batch, kv_heads, length], new_key: bf16[batch, kv_heads, fresh, 4 * words],
                       new_value: bf16[batch, kv_heads, fresh, 4 * words], stored: i32[batch]):
    """A token of each request looks at a cache of eight bits, with a scale for each token and a length of its own, and at newest tokens of 16 bits behind it."""
    root = nestor.rsqrt(nestor.cast(f32, 4 * words))
    met = nestor.sum(query[b, h, g, e] * signed(key[b, h, k, e // 4], e % 4), over=e) * key_scale[b, h, k] * root
    old = define("old", (b, h, g, k), nestor.select(k < stored[b], met, -math.inf))
    new = define("new", (b, h, g, r), nestor.sum(query[b, h, g, e] * new_key[b, h, r, e], over=e) * root)
    top = define("top", (b, h, g), nestor.maximum(nestor.max(old[b, h, g, k], over=k), nestor.max(new[b, h, g, r], over=r)))
    old_power = define("old_power", (b, h, g, k), nestor.exp(old[b, h, g, k] - top[b, h, g]))
    new_power = define("new_power", (b, h, g, r), nestor.exp(new[b, h, g, r] - top[b, h, g]))
    total = nestor.sum(old_power[b, h, g, k], over=k) + nestor.sum(new_power[b, h, g, r], over=r)
    seen = nestor.sum(old_power[b, h, g, k] * value_scale[b, h, k] * signed(value[b, h, k, d // 4], d % 4), over=k)
    seen = seen + nestor.sum(new_power[b, h, g, r] * new_value[b, h, r, d], over=r)
    return define("out", (b, h, g, d), seen / total, type=bf16)


def fresh_end_decoding_torch(query, key, key_scale, value, value_scale, new_key, new_value, stored):
    dtype, length = query.dtype, key.shape[2]
    old = widened(query @ key.view(torch.int8).to(dtype).mT) * key_scale[:, :, None]
    hidden = torch.arange(length, device=key.device) >= stored[:, None]
    old = old.masked_fill(hidden[:, None, None], -math.inf)
    share = (torch.cat([old, widened(query @ new_key.mT)], -1) * query.shape[-1]**-0.5).softmax(-1)
    return (share[..., :length] * value_scale[:, :, None]).to(dtype) @ value.view(torch.int8).to(dtype) + share[..., length:].to(dtype) @ new_value


# ---------------------------------------------------------------------------------------------- language models: SageAttention, causal

kv_heads, group, blocks, words = Size("kv_heads", 4), Size("group", 6, fixed=True), Size("blocks", 32), Size("words", 32, fixed=True)
length = 128 * blocks
h, g, q, j, e, d = indices(h=kv_heads, g=group, q=length, j=length, e=4 * words, d=4 * words)


@nestor.nest
def sage_causal_attention(query: i32[kv_heads, group, length, words], query_scale: f32[kv_heads, group, blocks], key: i32[kv_heads, length, words],
                          key_scale: f32[kv_heads, 2 * blocks], value: f16[kv_heads, length, 4 * words]):
    """Queries and keys are integers of eight bits with a scale for a block of 128 queries, of 64 keys; causal, groups share keys."""
    met = nestor.sum(signed(query[h, g, q, e // 4], e % 4) * signed(key[h, j, e // 4], e % 4), over=e)
    scale = query_scale[h, g, q // 128] * key_scale[h, j // 64] * nestor.rsqrt(nestor.cast(f32, 4 * words))
    score = define("score", (h, g, q, j), nestor.cast(f32, met) * scale, where=j <= q)
    top = nestor.max(score[h, g, q, j], over=j, where=j <= q)
    power = define("power", (h, g, q, j), nestor.exp(score[h, g, q, j] - top), where=j <= q)
    total = nestor.sum(power[h, g, q, j], over=j, where=j <= q)
    return define("out", (h, g, q, d), nestor.sum(power[h, g, q, j] * value[h, j, d], over=j, where=j <= q) / total, type=f16)


def sage_causal_attention_torch(query, query_scale, key, key_scale, value):
    asked = query.view(torch.int8) * query_scale.repeat_interleave(128, -1)[..., None]
    known = key.view(torch.int8) * key_scale.repeat_interleave(64, -1)[..., None]
    return F.scaled_dot_product_attention(asked.flatten(0, 1)[None].to(value.dtype), known[None].to(value.dtype), value[None], is_causal=True,
                                          enable_gqa=True)[0].view(*query.shape[:3], -1)


# ---------------------------------------------------------------------------------------------- vision and language: Flamingo

LATENTS = 64
batch, text, pictures, heads, head, width = Size("batch", 16), Size("text", 500), Size("pictures", 6), Size("heads", 8), Size("head", 64, fixed=True), Size("width", 2048)
b, q, j, h, e, d, o = indices(b=batch, q=text, j=LATENTS * pictures, h=heads, e=head, d=head, o=width)


@nestor.nest
def flamingo_cross_attention(stream: f16[batch, text, width], query: f16[batch, text, heads, head], key: f16[batch, LATENTS * pictures, heads, head],
                             value: f16[batch, LATENTS * pictures, heads, head], picture: i32[batch, text], weight: f16[width, heads, head], gate: f32[()]):
    """A word sees the latents of the last picture before it, and nothing where there is none; what it saw is projected, gated and added to the stream."""
    sees = picture[b, q] == j // LATENTS + 1
    met = nestor.sum(query[b, q, h, e] * key[b, j, h, e], over=e) * nestor.rsqrt(nestor.cast(f32, head))
    score = define("score", (b, h, q, j), nestor.select(sees, met, -1e30))
    top = nestor.max(score[b, h, q, j], over=j)
    power = define("power", (b, h, q, j), nestor.select(sees, nestor.exp(score[b, h, q, j] - top), 0.0))
    total = nestor.maximum(nestor.sum(power[b, h, q, j], over=j), 1e-20)
    seen = define("seen", (b, q, h, d), nestor.sum(power[b, h, q, j] * value[b, j, h, d], over=j) / total, type=f16)
    return define("out", (b, q, o), stream[b, q, o] + nestor.tanh(gate[()]) * nestor.sum(seen[b, q, h, d] * weight[o, h, d], over=(h, d)), type=f16)


def flamingo_cross_attention_torch(stream, query, key, value, picture, weight, gate):
    sees = picture[..., None] == torch.arange(key.shape[1], device=key.device) // LATENTS + 1
    seen = F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=sees[:, None]).transpose(1, 2)
    seen = torch.where((picture > 0)[..., None, None], seen, 0.0)
    return stream + torch.tanh(gate).to(stream.dtype) * F.linear(seen.flatten(2), weight.flatten(1))


# ---------------------------------------------------------------------------------------------- language models: windows, backward (Mistral, Gemma 3)

WINDOW = 512
kv_heads, group, length, head = Size("kv_heads", 4), Size("group", 4, fixed=True), Size("length", 2500), Size("head", 128, fixed=True)
h, g, q, j, e = indices(h=kv_heads, g=group, q=length, j=length, e=head)


@nestor.nest
def window_attention_backward(query: bf16[kv_heads, group, length, head], key: bf16[kv_heads, length, head], value: bf16[kv_heads, length, head],
                              out: bf16[kv_heads, group, length, head], spread: f32[kv_heads, group, length], slope: bf16[kv_heads, group, length, head]):
    """Grouped causal attention within a window: gradients of queries, keys and values, from the logarithms that the forward pass kept."""
    scale = nestor.rsqrt(nestor.cast(f32, head))
    sees = (j <= q) & (q - j < WINDOW)
    share = define("share", (h, g, q, j), nestor.exp(nestor.sum(query[h, g, q, e] * key[h, j, e], over=e) * scale - spread[h, g, q]), where=sees)
    around = define("around", (h, g, q), nestor.sum(slope[h, g, q, e] * out[h, g, q, e], over=e))
    d_share = nestor.sum(slope[h, g, q, e] * value[h, j, e], over=e)
    d_score = define("d_score", (h, g, q, j), scale * share[h, g, q, j] * (d_share - around[h, g, q]), where=sees)
    d_query = define("d_query", (h, g, q, e), nestor.sum(d_score[h, g, q, j] * key[h, j, e], over=j, where=sees), type=bf16)
    d_key = define("d_key", (h, j, e), nestor.sum(d_score[h, g, q, j] * query[h, g, q, e], over=(g, q), where=sees), type=bf16)
    d_value = define("d_value", (h, j, e), nestor.sum(share[h, g, q, j] * slope[h, g, q, e], over=(g, q), where=sees), type=bf16)
    return d_query, d_key, d_value


def window_attention_backward_torch(query, key, value, out, spread, slope):
    scale, group = query.shape[-1]**-0.5, query.shape[1]
    place = torch.arange(query.shape[2], device=query.device)
    apart = place[:, None] - place
    score = widened(query.flatten(1, 2) @ key.mT).unflatten(1, (group, -1)) * scale
    share = torch.where((apart >= 0) & (apart < WINDOW), torch.exp(score - spread[..., None]), 0.0)
    around = (widened(slope) * widened(out)).sum(-1)
    d_share = widened(slope.flatten(1, 2) @ value.mT).unflatten(1, (group, -1))
    d_score = (share * (d_share - around[..., None]) * scale).to(query.dtype).flatten(1, 2)
    d_value = share.to(query.dtype).flatten(1, 2).mT @ slope.flatten(1, 2)
    return (d_score @ key).view(query.shape), d_score.mT @ query.flatten(1, 2), d_value


# ---------------------------------------------------------------------------------------------- language models: LongNet

NEAR, FAR, STEP = 512, 2048, 4
heads, segments, head = Size("heads", 16), Size("segments", 4), Size("head", 64, fixed=True)
length = FAR * segments
h, q, j, e, d = indices(h=heads, q=length, j=length, e=head, d=head)


@nestor.nest
def longnet_attention(query: f16[heads, length, head], key: f16[heads, length, head], value: f16[heads, length, head]):
    """Causal attention within short segments, and within long ones among every fourth token; both are mixed by the sums of their exponentials."""
    near = (j <= q) & (q // NEAR == j // NEAR)
    far = (j <= q) & (q // FAR == j // FAR) & (q % STEP == j % STEP)
    score = define("score", (h, q, j), nestor.sum(query[h, q, e] * key[h, j, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), where=near | far)
    top = define("top", (h, q), nestor.max(score[h, q, j], over=j, where=near | far))
    power = define("power", (h, q, j), nestor.exp(score[h, q, j] - top[h, q]), where=near | far)
    total = nestor.sum(power[h, q, j], over=j, where=near) + nestor.sum(power[h, q, j], over=j, where=far)
    seen = nestor.sum(power[h, q, j] * value[h, j, d], over=j, where=near) + nestor.sum(power[h, q, j] * value[h, j, d], over=j, where=far)
    return define("out", (h, q, d), seen / total, type=f16)


def longnet_attention_torch(query, key, value):
    scale = query.shape[-1]**-0.5

    def branch(parted, joined):
        asked, known, worth = map(parted, (query, key, value))
        hidden = torch.ones(asked.shape[-2], asked.shape[-2], dtype=torch.bool, device=query.device).triu(1)
        score = widened(asked @ known.mT * scale).masked_fill(hidden, -math.inf)
        top = score.amax(-1, keepdim=True)
        power = torch.exp(score - top)
        return joined(top), joined(power.sum(-1, keepdim=True)), joined(widened(power.to(value.dtype) @ worth))

    one = branch(lambda x: x.unflatten(1, (-1, NEAR)), lambda x: x.flatten(1, 2))
    two = branch(lambda x: x.unflatten(1, (-1, FAR // STEP, STEP)).transpose(2, 3), lambda x: x.transpose(2, 3).flatten(1, 3))
    top = torch.maximum(one[0], two[0])
    left, right = torch.exp(one[0] - top), torch.exp(two[0] - top)
    return ((left * one[2] + right * two[2]) / (left * one[1] + right * two[1])).to(query.dtype)


# ---------------------------------------------------------------------------------------------- networks of integers: eight bits in and out

rows, words, quads = Size("rows", 4096), Size("words", 1024), Size("quads", 1024)
i, o, c, p, z = indices(i=rows, o=4 * quads, c=4 * words, p=quads, z=4)


@nestor.nest
def int8_requantised_linear(x: i32[rows, words], weight: i32[4 * quads, words], bias: i32[4 * quads], factor: f32[4 * quads], zero=-12):
    """Integers of eight bits, four in a word, times such weights; sums get a bias, are scaled, rounded, moved, clipped, and are eight bits again (a layer of TFLite)."""
    total = nestor.sum(signed(x[i, c // 4], c % 4) * signed(weight[o, c // 4], c % 4), over=c) + bias[o]
    level = define("level", (i, o), nestor.clamp(nestor.cast(i32, nestor.round(nestor.cast(f32, total) * factor[o])) + zero, -128, 127))
    return define("out", (i, p), nestor.sum((level[i, 4 * p + z] & 255) << (8 * z), over=z))


def int8_requantised_linear_torch(x, weight, bias, factor, zero=-12):
    total = torch._int_mm(x.view(torch.int8), weight.view(torch.int8).t()) + bias
    level = (torch.round(total.to(factor.dtype) * factor) + zero).clamp(-128, 127).to(torch.int8)
    return level.view(torch.int32)


# ---------------------------------------------------------------------------------------------- language models: W8A8, between two layers (SmoothQuant, vLLM)

rows, words, quads = Size("rows", 2048), Size("words", 1024), Size("quads", 688)
i, o, c, p, z = indices(i=rows, o=4 * quads, c=4 * words, p=quads, z=4)


@nestor.nest
def int8_swiglu_requantised(x: i32[rows, words], scale: f32[rows], gate: i32[4 * quads, words], gate_scale: f32[4 * quads], up: i32[4 * quads, words], up_scale: f32[4 * quads]):
    """Two layers of integers, SwiGLU between them, and rows of the result become integers by their largest element."""
    one = nestor.cast(f32, nestor.sum(signed(x[i, c // 4], c % 4) * signed(gate[o, c // 4], c % 4), over=c)) * scale[i] * gate_scale[o]
    two = nestor.cast(f32, nestor.sum(signed(x[i, c // 4], c % 4) * signed(up[o, c // 4], c % 4), over=c)) * scale[i] * up_scale[o]
    hidden = define("hidden", (i, o), nestor.silu(one) * two)
    step = define("step", i, nestor.maximum(nestor.max(nestor.absolute(hidden[i, o]), over=o), 1e-8) / 127)
    level = define("level", (i, o), nestor.clamp(nestor.cast(i32, nestor.round(hidden[i, o] / step[i])), -127, 127))
    return define("out", (i, p), nestor.sum((level[i, 4 * p + z] & 255) << (8 * z), over=z)), step


def int8_swiglu_requantised_torch(x, scale, gate, gate_scale, up, up_scale):
    level = x.view(torch.int8)
    one = torch._int_mm(level, gate.view(torch.int8).t()).to(scale.dtype) * scale[:, None] * gate_scale
    two = torch._int_mm(level, up.view(torch.int8).t()).to(scale.dtype) * scale[:, None] * up_scale
    hidden = F.silu(one) * two
    step = hidden.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
    return torch.round(hidden / step).clamp(-127, 127).to(torch.int8).view(torch.int32), step[:, 0]


# ---------------------------------------------------------------------------------------------- language models: Qwen3, in front of attention

tokens, width, heads, kv_heads, half = Size("tokens", 4000), Size("width", 2048), Size("heads", 16), Size("kv_heads", 4), Size("half", 64, fixed=True)
t, c, h, g, d, e = indices(t=tokens, c=width, h=heads, g=kv_heads, d=2 * half, e=2 * half)


@nestor.nest
def qwen_query_key_values(x: bf16[tokens, width], weight: bf16[heads + 2 * kv_heads, 2 * half, width], query_gain: f32[2 * half], key_gain: f32[2 * half],
                          cos: f32[tokens, 2 * half], sin: f32[tokens, 2 * half], eps=1e-6):
    """One layer makes queries, keys and values; heads of queries and keys are normed and turned; all of them come out head by head."""
    asked = define("asked", (h, t, d), nestor.sum(x[t, c] * weight[h, d, c], over=c))
    known = define("known", (g, t, d), nestor.sum(x[t, c] * weight[heads + g, d, c], over=c))
    query_root = nestor.rsqrt(nestor.mean(asked[h, t, e] * asked[h, t, e], over=e) + eps)
    key_root = nestor.rsqrt(nestor.mean(known[g, t, e] * known[g, t, e], over=e) + eps)
    query_normed = define("query_normed", (h, t, d), asked[h, t, d] * query_root * query_gain[d])
    key_normed = define("key_normed", (g, t, d), known[g, t, d] * key_root * key_gain[d])
    query_turned = nestor.select(d < half, -query_normed[h, t, d + half], query_normed[h, t, d - half])
    key_turned = nestor.select(d < half, -key_normed[g, t, d + half], key_normed[g, t, d - half])
    query = define("query", (h, t, d), query_normed[h, t, d] * cos[t, d] + query_turned * sin[t, d], type=bf16)
    key = define("key", (g, t, d), key_normed[g, t, d] * cos[t, d] + key_turned * sin[t, d], type=bf16)
    return query, key, define("value", (g, t, d), nestor.sum(x[t, c] * weight[heads + kv_heads + g, d, c], over=c), type=bf16)


def qwen_query_key_values_torch(x, weight, query_gain, key_gain, cos, sin, eps=1e-6):
    width, heads = weight.shape[1], len(weight) * 2 // 3  # four queries to a key and a value
    joined = F.linear(x, weight.flatten(0, 1)).unflatten(1, (-1, width)).transpose(0, 1)
    query, key, value = joined.split([heads, (len(weight) - heads) // 2, (len(weight) - heads) // 2])

    def turned(part, gain):
        normed = F.rms_norm(widened(part), (width, ), gain, eps)
        left, right = normed.chunk(2, -1)
        return (normed * cos + torch.cat([-right, left], -1) * sin).to(x.dtype)

    return turned(query, query_gain), turned(key, key_gain), value.contiguous()


# ---------------------------------------------------------------------------------------------- world models: DreamerV3

CLASSES = 32
rows, width, seen, groups = Size("rows", 8192), Size("width", 1024), Size("seen", 512), Size("groups", 32)
i, c, s, u, k, m = indices(i=rows, c=width, s=seen, u=groups, k=CLASSES, m=CLASSES)


@nestor.nest
def dreamer_latents(state: f16[rows, width], image: f16[rows, seen], prior: f16[groups, CLASSES, width], prior_bias: f32[groups, CLASSES],
                    post: f16[groups, CLASSES, width + seen], post_bias: f32[groups, CLASSES], mix=0.01, free=1.0):
    """Latents are groups of classes, their chances a softmax with a hundredth of even chances: what a state expects, what an image adds, and how far these are apart."""
    expected = define("expected", (i, u, k), nestor.sum(state[i, c] * prior[u, k, c], over=c) + prior_bias[u, k])
    known = define("known", (i, u, k), nestor.sum(state[i, c] * post[u, k, c], over=c) + nestor.sum(image[i, s] * post[u, k, width + s], over=s) + post_bias[u, k])

    def chances(name, logit):
        top = nestor.max(logit[i, u, m], over=m)
        power = define(name + "_power", (i, u, k), nestor.exp(logit[i, u, k] - top))
        return define(name, (i, u, k), (1 - mix) * power[i, u, k] / nestor.sum(power[i, u, m], over=m) + mix / CLASSES)

    before, after = chances("before", expected), chances("after", known)
    apart = nestor.sum(after[i, u, k] * (nestor.log(after[i, u, k]) - nestor.log(before[i, u, k])), over=(u, k))
    return define("latent", (i, u, k), after[i, u, k], type=f16), define("cost", i, nestor.maximum(apart, free))


def dreamer_latents_torch(state, image, prior, prior_bias, post, post_bias, mix=0.01, free=1.0):
    expected = widened(F.linear(state, prior.flatten(0, 1))).unflatten(1, (-1, CLASSES)) + prior_bias
    known = widened(F.linear(torch.cat([state, image], -1), post.flatten(0, 1))).unflatten(1, (-1, CLASSES)) + post_bias
    before = (1 - mix) * expected.softmax(-1) + mix / CLASSES
    after = (1 - mix) * known.softmax(-1) + mix / CLASSES
    return after.to(state.dtype), (after * (after.log() - before.log())).sum((1, 2)).clamp(min=free)


# ---------------------------------------------------------------------------------------------- language models: experts of blocks of tokens (vLLM, MegaBlocks)

BLOCK = 64
blocks, experts, width, hidden = Size("blocks", 96), Size("experts", 16), Size("width", 2048), Size("hidden", 1024)
i, a, c, o = indices(i=BLOCK * blocks, a=experts, c=width, o=hidden)


@nestor.nest
def block_expert_swiglu(x: bf16[BLOCK * blocks, width], expert: i32[blocks], gate: bf16[experts, hidden, width], up: bf16[experts, hidden, width]):
    """Tokens are sorted by expert and padded to blocks, each of which has one expert: its two layers and SwiGLU."""
    mine = expert[i // BLOCK] == a
    one = nestor.sum(nestor.select(mine, nestor.sum(x[i, c] * gate[a, o, c], over=c), 0.0), over=a)
    two = nestor.sum(nestor.select(mine, nestor.sum(x[i, c] * up[a, o, c], over=c), 0.0), over=a)
    return define("out", (i, o), nestor.silu(one) * two, type=bf16)


def block_expert_swiglu_torch(x, expert, gate, up):
    if x.is_cuda and x.dtype == torch.bfloat16:
        ends = (BLOCK * (expert[:, None] <= torch.arange(len(gate), device=x.device)).sum(0)).int()
        one, two = torch._grouped_mm(x, gate.mT, ends), torch._grouped_mm(x, up.mT, ends)
    else:
        one, two = ((x.unflatten(0, (-1, BLOCK)) @ weight[expert].mT).flatten(0, 1) for weight in (gate, up))
    return F.silu(one) * two


# ---------------------------------------------------------------------------------------------- networks of integers: a convolution

images, tall, wide, words, outs = Size("images", 64), Size("tall", 56), Size("wide", 56), Size("words", 32, fixed=True), Size("outs", 128)
n, y, x, c, o, dy, dx = indices(n=images, y=tall, x=wide, c=4 * words, o=outs, dy=3, dx=3)


@nestor.nest
def int8_residual_conv(image: i32[images, tall, wide, words], weight: i32[outs, 3, 3, words], factor: f32[outs], bias: f16[outs], residual: f16[images, tall, wide, outs]):
    """Filters of three by three over channels of eight bits, a scale for each filter, a bias, a residual, ReLU."""
    down, across = y + dy - 1, x + dx - 1
    inside = (down >= 0) & (down < tall) & (across >= 0) & (across < wide)
    total = nestor.sum(signed(image[n, down, across, c // 4], c % 4) * signed(weight[o, dy, dx, c // 4], c % 4), over=(dy, dx, c), where=inside)
    return define("out", (n, y, x, o), nestor.relu(nestor.cast(f32, total) * factor[o] + bias[o] + residual[n, y, x, o]), type=f16)


def int8_residual_conv_torch(image, weight, factor, bias, residual):
    dtype = residual.dtype
    filters = (weight.view(torch.int8) * factor[:, None, None, None]).to(dtype).permute(0, 3, 1, 2)
    total = F.conv2d(image.view(torch.int8).to(dtype).permute(0, 3, 1, 2), filters, bias, padding=1)
    return F.relu(total.permute(0, 2, 3, 1) + residual).contiguous()


# ---------------------------------------------------------------------------------------------- speech: HiFi-GAN, longer

batch, ins, outs, length = Size("batch", 16), Size("ins", 512), Size("outs", 256), Size("length", 400)
n, c, o, t, k = indices(n=batch, c=ins, o=outs, t=8 * length, k=16)


@nestor.nest
def vocoder_lengthening(sound: f16[batch, ins, length], weight: f16[ins, outs, 16], bias: f16[outs]):
    """A leaky bend and a transposed convolution that makes sound eight times as long; filters overlap by half."""
    came = t + 4 - k
    reaches = (came % 8 == 0) & (came // 8 >= 0) & (came // 8 < length)
    bent = define("bent", (n, c, t), nestor.select(sound[n, c, t] > 0, sound[n, c, t], 0.1 * sound[n, c, t]), where=t < length, type=f16)
    return define("out", (n, o, t), nestor.sum(weight[c, o, k] * bent[n, c, came // 8], over=(c, k), where=reaches) + bias[o], type=f16)


def vocoder_lengthening_torch(sound, weight, bias):
    return F.conv_transpose1d(F.leaky_relu(sound, 0.1), weight, bias, stride=8, padding=4)


# ---------------------------------------------------------------------------------------------- language models: LFM2, packed documents

tokens, width = Size("tokens", 16000), Size("width", 2048)
t, c, k = indices(t=tokens, c=width, k=3)


@nestor.nest
def packed_gated_conv(joined: bf16[tokens, 3 * width], weight: bf16[width, 3], document: i32[tokens]):
    """A gate before and a gate behind short causal filters of channels, which do not look beyond the beginning of a document."""
    early = define("early", (t, c), joined[t, c] * joined[t, 2 * width + c], type=bf16)
    tap = nestor.select(document[t - k] == document[t], weight[c, 2 - k] * early[t - k, c], 0.0)
    mixed = nestor.sum(tap, over=k, where=t >= k)
    return define("out", (t, c), joined[t, width + c] * mixed, type=bf16)


def packed_gated_conv_torch(joined, weight, document):
    before, behind, x = joined.chunk(3, -1)
    early, mixed = before * x, 0.0
    for k in range(3):
        moved = F.pad(early, (0, 0, k, 0))[:len(early)]
        same = F.pad(document, (k, 0), value=-1)[:len(document)] == document
        mixed = mixed + torch.where(same[:, None], weight[:, 2 - k] * moved, 0.0)
    return behind * mixed


# ---------------------------------------------------------------------------------------------- language models: Mamba 2's norm, backward

rows, groups, width = Size("rows", 8000), Size("groups", 8), Size("width", 512)
i, g, c, m = indices(i=rows, g=groups, c=width, m=width)


@nestor.nest
def gate_then_norm_backward(x: bf16[rows, groups, width], gate: bf16[rows, groups, width], gain: f32[groups, width], slope: bf16[rows, groups, width], eps=1e-5):
    """A stream is multiplied by a bent gate, and groups of it are divided by their root mean square: gradients of stream, gate and gain."""
    product = define("product", (i, g, c), x[i, g, c] * nestor.silu(gate[i, g, c]))
    root = define("root", (i, g), nestor.rsqrt(nestor.mean(product[i, g, m] * product[i, g, m], over=m) + eps))
    steep = define("steep", (i, g, c), slope[i, g, c] * gain[g, c])
    along = define("along", (i, g), nestor.mean(steep[i, g, m] * product[i, g, m], over=m))
    back = define("back", (i, g, c), root[i, g] * (steep[i, g, c] - product[i, g, c] * root[i, g] * root[i, g] * along[i, g]))
    opened = nestor.sigmoid(gate[i, g, c])
    d_x = define("d_x", (i, g, c), back[i, g, c] * gate[i, g, c] * opened, type=bf16)
    d_gate = define("d_gate", (i, g, c), back[i, g, c] * x[i, g, c] * opened * (1 + gate[i, g, c] * (1 - opened)), type=bf16)
    return d_x, d_gate, define("d_gain", (g, c), nestor.sum(slope[i, g, c] * product[i, g, c] * root[i, g], over=i))


def gate_then_norm_backward_torch(x, gate, gain, slope, eps=1e-5):
    stream, bend, given = widened(x), widened(gate), widened(slope)
    opened = torch.sigmoid(bend)
    product = stream * bend * opened
    root = (product.square().mean(-1, keepdim=True) + eps).rsqrt()
    normed, steep = product * root, given * gain
    back = root * (steep - normed * (steep * normed).mean(-1, keepdim=True))
    d_gate = back * stream * opened * (1 + bend * (1 - opened))
    return (back * bend * opened).to(x.dtype), d_gate.to(x.dtype), (given * normed).sum(0)


# ---------------------------------------------------------------------------------------------- training: ADOPT, scaled losses

rows, width = Size("rows", 4001), Size("width", 3003)
i, c = indices(i=rows, c=width)


@nestor.nest
def adopt_step(weight: f32[rows, width], gradient: f16[rows, width], first: f32[rows, width], second: f32[rows, width], step: i32[()], loss_scale: f32[()], overflow: boolean[()],
               rate=1e-3, beta1=0.9, beta2=0.9999, decay=0.01, eps=1e-6):
    """ADOPT: gradients are divided by the root of the averages before them, and clipped by a bound that grows; nothing happens where a scaled loss overflowed."""
    slope = define("slope", (i, c), gradient[i, c] / loss_scale[()])
    bound = define("bound", (), nestor.pow(nestor.cast(f32, step[()]), 0.25))
    even = nestor.clamp(slope[i, c] / nestor.maximum(nestor.sqrt(second[i, c]), eps), -bound[()], bound[()])
    moved = define("moved", (i, c), beta1 * first[i, c] + (1 - beta1) * even)
    new_weight = define("new_weight", (i, c), nestor.select(overflow[()], weight[i, c], (1 - rate * decay) * weight[i, c] - rate * moved[i, c]))
    new_first = define("new_first", (i, c), nestor.select(overflow[()], first[i, c], moved[i, c]))
    new_second = define("new_second", (i, c), nestor.select(overflow[()], second[i, c], beta2 * second[i, c] + (1 - beta2) * slope[i, c] * slope[i, c]))
    return new_weight, new_first, new_second, define("half", (i, c), new_weight[i, c], type=f16)


def adopt_step_torch(weight, gradient, first, second, step, loss_scale, overflow, rate=1e-3, beta1=0.9, beta2=0.9999, decay=0.01, eps=1e-6):
    slope, bound = gradient.to(weight.dtype) / loss_scale, step.to(weight.dtype)**0.25
    moved = torch.lerp(torch.clamp(slope / second.sqrt().clamp(min=eps), -bound, bound), first, beta1)
    new_weight = torch.where(overflow, weight, (1 - rate * decay) * weight - rate * moved)
    new_second = torch.where(overflow, second, beta2 * second + (1 - beta2) * slope.square())
    return new_weight, torch.where(overflow, first, moved), new_second, new_weight.to(gradient.dtype)


# ---------------------------------------------------------------------------------------------- vision: YOLOv8, boxes

BINS = 16
boxes = Size("boxes", 600011)
n, s, k, m, a = indices(n=boxes, s=4, k=BINS, m=BINS, a=2)


@nestor.nest
def binned_box_losses(logit: f16[boxes, 4, BINS], anchor: f32[boxes, 2], target: f32[boxes, 4], weight: f32[boxes], eps=1e-7):
    """Distances to a box's four sides are means over bins: complete overlap of boxes, and cross entropy of the two bins around each true distance."""
    top = define("top", (n, s), nestor.max(nestor.cast(f32, logit[n, s, m]), over=m))
    total = define("total", (n, s), nestor.sum(nestor.exp(logit[n, s, m] - top[n, s]), over=m))
    side = define("side", (n, s), nestor.sum(nestor.exp(logit[n, s, k] - top[n, s]) * nestor.cast(f32, k), over=k) / total[n, s])
    left, upper = anchor[n, 0] - side[n, 0], anchor[n, 1] - side[n, 1]
    right, lower = anchor[n, 0] + side[n, 2], anchor[n, 1] + side[n, 3]
    wide, tall = right - left, lower - upper + eps
    true_wide, true_tall = target[n, 2] - target[n, 0], target[n, 3] - target[n, 1] + eps
    shared = nestor.relu(nestor.minimum(right, target[n, 2]) - nestor.maximum(left, target[n, 0])) * nestor.relu(
        nestor.minimum(lower, target[n, 3]) - nestor.maximum(upper, target[n, 1]))
    overlap = define("overlap", n, shared / (wide * tall + true_wide * true_tall - shared + eps))
    hull_wide = nestor.maximum(right, target[n, 2]) - nestor.minimum(left, target[n, 0])
    hull_tall = nestor.maximum(lower, target[n, 3]) - nestor.minimum(upper, target[n, 1])
    across = target[n, 0] + target[n, 2] - left - right
    down = target[n, 1] + target[n, 3] - upper - lower
    distance = (across * across + down * down) / 4 / (hull_wide * hull_wide + hull_tall * hull_tall + eps)
    bend = define("bend", n, 4 / math.pi**2 * (nestor.atan(true_wide / true_tall) - nestor.atan(wide / tall)) ** 2)
    share = bend[n] / (bend[n] - overlap[n] + 1 + eps)
    complete = overlap[n] - distance - bend[n] * share
    number = nestor.maximum(nestor.sum(weight[n], over=n), 1.0)
    box_loss = define("box_loss", (), nestor.sum((1 - complete) * weight[n], over=n) / number)

    away = nestor.select(s < 2, anchor[n, s % 2] - target[n, s], target[n, s] - anchor[n, s % 2])
    wanted = define("wanted", (n, s), nestor.clamp(away, 0.0, BINS - 1.01))
    lower_bin = nestor.cast(i32, nestor.floor(wanted[n, s]))
    part = wanted[n, s] - nestor.floor(wanted[n, s])
    picked = nestor.sum(nestor.select(lower_bin == k, (1 - part) * logit[n, s, k], 0.0) + nestor.select(lower_bin + 1 == k, part * logit[n, s, k], 0.0), over=k)
    cost = define("cost", (n, s), top[n, s] + nestor.log(total[n, s]) - picked)
    bin_loss = define("bin_loss", (), nestor.sum(nestor.mean(cost[n, s], over=s) * weight[n], over=n) / number)
    return box_loss, bin_loss, overlap


def binned_box_losses_torch(logit, anchor, target, weight, eps=1e-7):
    logit = widened(logit)
    side = logit.softmax(-1) @ torch.arange(BINS, device=logit.device, dtype=logit.dtype)
    low, high = anchor - side[:, :2], anchor + side[:, 2:]
    floor, ceiling = target[:, :2], target[:, 2:]
    (wide, tall), (true_wide, true_tall) = (high - low).unbind(1), (ceiling - floor).unbind(1)
    tall, true_tall = tall + eps, true_tall + eps
    shared = (torch.minimum(high, ceiling) - torch.maximum(low, floor)).clamp(min=0).prod(1)
    overlap = shared / (wide * tall + true_wide * true_tall - shared + eps)
    hull = (torch.maximum(high, ceiling) - torch.minimum(low, floor)).square().sum(1) + eps
    distance = (floor + ceiling - low - high).square().sum(1) / 4 / hull
    bend = 4 / math.pi**2 * (torch.atan(true_wide / true_tall) - torch.atan(wide / tall)).square()
    complete = overlap - distance - bend * bend / (bend - overlap + 1 + eps)
    number = weight.sum().clamp(min=1)
    true = torch.cat([anchor - floor, ceiling - anchor], 1).clamp(0, BINS - 1.01)
    lower_bin, likely = true.long(), logit.log_softmax(-1)
    part = true - lower_bin
    cost = -(1 - part) * likely.gather(2, lower_bin[..., None])[..., 0] - part * likely.gather(2, lower_bin[..., None] + 1)[..., 0]
    return ((1 - complete) * weight).sum() / number, (cost.mean(1) * weight).sum() / number, overlap


# ---------------------------------------------------------------------------------------------- astronomy: Lomb and Scargle

stars, length, waves = Size("stars", 48), Size("length", 700), Size("waves", 2000)
s, t, f = indices(s=stars, t=length, f=waves)


@nestor.nest
def lomb_scargle_power(moment: f32[stars, length], light: f32[stars, length], error: f32[stars, length], finest=0.01):
    """Power of frequencies in light that was measured at uneven moments, each with an error of its own."""
    worth = define("worth", (s, t), 1 / (error[s, t] * error[s, t]))
    mean = define("mean", s, nestor.sum(worth[s, t] * light[s, t], over=t) / nestor.sum(worth[s, t], over=t))
    centred = define("centred", (s, t), light[s, t] - mean[s])
    speed = 2 * math.pi * finest * nestor.cast(f32, f + 1)
    sines = nestor.sum(worth[s, t] * nestor.sin(2 * speed * moment[s, t]), over=t)
    cosines = nestor.sum(worth[s, t] * nestor.cos(2 * speed * moment[s, t]), over=t)
    turn = define("turn", (s, f), 0.5 * nestor.atan2(sines, cosines))
    angle = speed * moment[s, t] - turn[s, f]
    with_cos = nestor.sum(worth[s, t] * centred[s, t] * nestor.cos(angle), over=t)
    with_sin = nestor.sum(worth[s, t] * centred[s, t] * nestor.sin(angle), over=t)
    cos_size = nestor.sum(worth[s, t] * nestor.cos(angle) ** 2, over=t)
    sin_size = nestor.sum(worth[s, t] * nestor.sin(angle) ** 2, over=t)
    whole = nestor.sum(worth[s, t] * centred[s, t] * centred[s, t], over=t)
    return define("power", (s, f), (with_cos * with_cos / cos_size + with_sin * with_sin / sin_size) / whole)


def lomb_scargle_power_torch(moment, light, error, finest=0.01, waves=2000):
    worth = error.square().reciprocal()
    centred = light - (worth * light).sum(1, keepdim=True) / worth.sum(1, keepdim=True)
    speed = 2 * math.pi * finest * torch.arange(1, waves + 1, device=light.device, dtype=light.dtype)
    phase, weight = speed[:, None] * moment[:, None], worth[:, None]
    turn = 0.5 * torch.atan2((weight * torch.sin(2 * phase)).sum(2), (weight * torch.cos(2 * phase)).sum(2))
    cos, sin = torch.cos(phase - turn[..., None]), torch.sin(phase - turn[..., None])
    pull = (worth * centred)[:, None]
    power = (pull * cos).sum(2).square() / (weight * cos.square()).sum(2) + (pull * sin).sum(2).square() / (weight * sin.square()).sum(2)
    return power / (worth * centred.square()).sum(1, keepdim=True)


# ---------------------------------------------------------------------------------------------- graphics: rays and triangles

rays, triangles = Size("rays", 40000), Size("triangles", 1500)
r, k, a = indices(r=rays, k=triangles, a=3)


@nestor.nest
def ray_triangle_hits(origin: f32[rays, 3], direction: f32[rays, 3], corner: f32[triangles, 3, 3], beyond=100.0):
    """Which triangle a ray hits first, and how far away (Moeller and Trumbore); a number beyond all where it hits none."""

    def minus(x, y):
        return [x[z] - y[z] for z in range(3)]

    def cross(x, y):
        return [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]

    def dot(x, y):
        return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]

    first, second, third = ([corner[k, z, x] for x in range(3)] for z in range(3))
    edge, other = minus(second, first), minus(third, first)
    ahead = [direction[r, z] for z in range(3)]
    across = cross(ahead, other)
    volume = dot(edge, across)
    away = minus([origin[r, z] for z in range(3)], first)
    u = dot(away, across) / volume
    turned = cross(away, edge)
    v = dot(ahead, turned) / volume
    far = dot(other, turned) / volume
    hits = (nestor.absolute(volume) > 1e-9) & (u >= 0) & (v >= 0) & (u + v <= 1) & (far > 1e-4)
    depth = define("depth", (r, k), nestor.select(hits, nestor.minimum(far, beyond), beyond))
    return define("nearest", r, nestor.min(depth[r, k], over=k)), define("which", r, nestor.argmin(depth[r, k], over=k))


def ray_triangle_hits_torch(origin, direction, corner, beyond=100.0):
    first, edge, other = corner[:, 0], corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]
    ahead, away = direction[:, None], origin[:, None] - first
    across = torch.linalg.cross(ahead, other[None])
    volume = (edge * across).sum(-1)
    u = (away * across).sum(-1) / volume
    turned = torch.linalg.cross(away, edge[None])
    v, far = (ahead * turned).sum(-1) / volume, (other * turned).sum(-1) / volume
    hits = (volume.abs() > 1e-9) & (u >= 0) & (v >= 0) & (u + v <= 1) & (far > 1e-4)
    nearest, which = torch.where(hits, far.clamp(max=beyond), beyond).min(1)
    return nearest, which.int()


# ---------------------------------------------------------------------------------------------- statistics: local lines (LOESS)

places, points = Size("places", 4001), Size("points", 9000)
i, j = indices(i=places, j=points)


@nestor.nest
def local_lines(place: f32[places], x: f32[points], y: f32[points], trust: f32[points], reach: nestor.Scalar(0.3, min=1e-3)):
    """A line through the points near each place, by tricube weights and what an earlier round trusts each point: its height, its slope, and the sum of weights."""
    apart = x[j] - place[i]
    near = nestor.absolute(apart) / reach
    weight = define("weight", (i, j), nestor.select(near < 1, trust[j] * (1 - near ** 3) ** 3, 0.0))
    s0 = define("s0", i, nestor.sum(weight[i, j], over=j))
    s1 = define("s1", i, nestor.sum(weight[i, j] * apart, over=j))
    s2 = define("s2", i, nestor.sum(weight[i, j] * apart * apart, over=j))
    t0 = define("t0", i, nestor.sum(weight[i, j] * y[j], over=j))
    t1 = define("t1", i, nestor.sum(weight[i, j] * apart * y[j], over=j))
    below = s0[i] * s2[i] - s1[i] * s1[i] + 1e-6
    height = define("height", i, (s2[i] * t0[i] - s1[i] * t1[i]) / below)
    return height, define("slope", i, (s0[i] * t1[i] - s1[i] * t0[i]) / below), s0


def local_lines_torch(place, x, y, trust, reach=0.3):
    apart = x - place[:, None]
    near = apart.abs() / reach
    weight = torch.where(near < 1, trust * (1 - near**3)**3, 0.0)
    moved = weight * apart
    s0, s1, s2, t0, t1 = weight.sum(1), moved.sum(1), (moved * apart).sum(1), (weight * y).sum(1), (moved * y).sum(1)
    below = s0 * s2 - s1 * s1 + 1e-6
    return (s2 * t0 - s1 * t1) / below, (s0 * t1 - s1 * t0) / below, s0


# ---------------------------------------------------------------------------------------------- finance: RiskMetrics

days, assets = Size("days", 750), Size("assets", 1500)
t, i, j = indices(t=days, i=assets, j=assets)


@nestor.nest
def fading_covariance(gain: f32[days, assets], held: f32[assets], fade: nestor.Scalar(0.97, min=0.5, max=0.9999)):
    """Covariance of returns in which days fade, the risk of a portfolio by it, and what each asset adds to that."""
    raw = define("raw", t, nestor.pow(fade, nestor.cast(f32, days - 1 - t)))
    weight = define("weight", t, raw[t] / nestor.sum(raw[t], over=t))
    mean = define("mean", i, nestor.sum(weight[t] * gain[t, i], over=t))
    covariance = define("covariance", (i, j), nestor.sum(weight[t] * (gain[t, i] - mean[i]) * (gain[t, j] - mean[j]), over=t))
    pull = define("pull", i, nestor.sum(covariance[i, j] * held[j], over=j))
    risk = define("risk", (), nestor.sqrt(nestor.sum(held[i] * pull[i], over=i)))
    return covariance, risk, define("added", i, held[i] * pull[i] / risk[()])


def fading_covariance_torch(gain, held, fade=0.97):
    weight = fade**torch.arange(len(gain) - 1, -1, -1, device=gain.device, dtype=gain.dtype)
    weight = weight / weight.sum()
    centred = gain - weight @ gain
    covariance = (centred * weight[:, None]).mT @ centred
    pull = covariance @ held
    risk = (held @ pull).sqrt()
    return covariance, risk, held * pull / risk


def bytes_of(normal, _):
    """Words of four integers of eight bits, up to 60."""
    pace = torch.tensor([1000.0, 3100.0, 7300.0, 11700.0], device=normal.device)
    return (60 * torch.sin(normal[..., None] * pace)).round().to(torch.int8).view(torch.int32)[..., 0]


def scales(normal, _):
    """Makes integers of bytes_of about 1."""
    return (1 + 0.1 * torch.tanh(normal)) / 42


def over_root(size, factor=1):
    """Makes products of integers of bytes_of about `factor`; size counts words."""
    return lambda normal, sizes: factor * (1 + 0.1 * torch.tanh(normal)) / (1800 * (4 * sizes[size])**0.5)


def documents(normal, _):
    """Seven documents, longer ones first, in a row of tokens."""
    return torch.floor(7 * (torch.arange(len(normal), device=normal.device) / len(normal))**2.5)


OPERATORS = [
    Operator(story_video_attention, story_video_attention_torch, "Sand AI, MAGI-1, 2025; Deng et al., NOVA, 2024", {"batch": 1, "heads": 1, "frames": 2, "head": 3},
             flex=story_video_attention_flex, seen=story_video_seen),
    Operator(beacon_window_attention, beacon_window_attention_torch, "Zhang et al., Activation beacon, 2024; Beltagy et al., Longformer, 2020",
             {"heads": 1, "length": 901, "head": 3}, draw={"document": documents, "beacon": lambda normal, _: normal > 1.5}),
    Operator(fresh_end_decoding, fresh_end_decoding_torch, "Liu et al., KIVI, 2024; Hugging Face, QuantizedCache", {"batch": 3, "kv_heads": 2, "group": 2, "length": 13, "fresh": 3, "words": 2},
             draw={"key": bytes_of, "value": bytes_of, "key_scale": scales, "value_scale": scales,
                   "stored": lambda normal, sizes: ((0.6 + 0.2 * normal).clamp(0, 1) * sizes["length"]).floor()}),
    Operator(sage_causal_attention, sage_causal_attention_torch, "Zhang et al., SageAttention, 2024", {"kv_heads": 1, "group": 2, "blocks": 1, "words": 2},
             draw={"query": bytes_of, "key": bytes_of, "query_scale": scales, "key_scale": scales}),
    Operator(flamingo_cross_attention, flamingo_cross_attention_torch, "Alayrac et al., Flamingo, 2022; Awadalla et al., OpenFlamingo, 2023",
             {"batch": 2, "text": 7, "pictures": 2, "heads": 3, "head": 5, "width": 11},
             draw={"picture": lambda normal, sizes: torch.floor(torch.arange(normal.shape[1], device=normal.device) * (sizes["pictures"] + 1) / normal.shape[1]).expand(normal.shape),
                   "weight": lambda normal, sizes: normal / (sizes["heads"] * sizes["head"])**0.5}),
    Operator(window_attention_backward, window_attention_backward_torch, "Jiang et al., Mistral 7B, 2023; Gemma team, Gemma 3, 2025",
             {"kv_heads": 1, "group": 2, "length": 601, "head": 3},
             draw={"spread": lambda normal, _: torch.arange(1, normal.shape[-1] + 1, device=normal.device).clamp(max=WINDOW).log() + 1 + 0.1 * normal,
                   "out": lambda normal, _: 0.2 * normal}),
    Operator(longnet_attention, longnet_attention_torch, "Ding et al., LongNet, 2023", {"heads": 1, "segments": 1, "head": 2}),
    Operator(int8_requantised_linear, int8_requantised_linear_torch, "Jacob et al., Quantization for integer-arithmetic-only inference, 2018", {"rows": 5, "words": 3, "quads": 2},
             draw={"x": bytes_of, "weight": bytes_of, "bias": lambda normal, sizes: torch.floor(1000 * normal), "factor": over_root("words", 40)}),
    Operator(int8_swiglu_requantised, int8_swiglu_requantised_torch, "Xiao et al., SmoothQuant, 2023; Kwon et al., vLLM, 2023", {"rows": 5, "words": 3, "quads": 2},
             draw={"x": bytes_of, "gate": bytes_of, "up": bytes_of, "scale": scales, "gate_scale": over_root("words", 42), "up_scale": over_root("words", 42)}),
    Operator(qwen_query_key_values, qwen_query_key_values_torch, "Qwen team, Qwen3, 2025", {"tokens": 5, "width": 7, "heads": 4, "kv_heads": 1, "half": 3},
             draw={"weight": divided("width"), "query_gain": around_one, "key_gain": around_one, "cos": lambda normal, _: torch.cos(normal), "sin": lambda normal, _: torch.sin(normal)}),
    Operator(dreamer_latents, dreamer_latents_torch, "Hafner et al., DreamerV3, 2023", {"rows": 3, "width": 5, "seen": 4, "groups": 2},
             draw={"prior": divided("width"), "post": divided("width"), "prior_bias": lambda normal, _: 0.1 * normal, "post_bias": lambda normal, _: 0.1 * normal}),
    Operator(block_expert_swiglu, block_expert_swiglu_torch, "Gale et al., MegaBlocks, 2022; Kwon et al., vLLM, 2023", {"blocks": 2, "experts": 3, "width": 5, "hidden": 4},
             draw={"gate": divided("width"), "up": divided("width"),
                   "expert": lambda normal, sizes: (normal.abs() * sizes["experts"] / 2).floor().clamp(max=sizes["experts"] - 1).sort().values}),
    Operator(int8_residual_conv, int8_residual_conv_torch, "Jacob et al., Quantization for integer-arithmetic-only inference, 2018; NVIDIA, TensorRT",
             {"images": 2, "tall": 4, "wide": 5, "words": 2, "outs": 3}, draw={"image": bytes_of, "weight": bytes_of, "factor": over_root("words", 1 / 3)}),
    Operator(vocoder_lengthening, vocoder_lengthening_torch, "Kong et al., HiFi-GAN, 2020", {"batch": 2, "ins": 3, "outs": 5, "length": 4},
             draw={"weight": lambda normal, sizes: normal / (2 * sizes["ins"])**0.5}),
    Operator(packed_gated_conv, packed_gated_conv_torch, "Liquid AI, LFM2, 2025", {"tokens": 19, "width": 5}, draw={"document": documents}),
    Operator(gate_then_norm_backward, gate_then_norm_backward_torch, "Dao and Gu, Transformers are SSMs, 2024", {"rows": 5, "groups": 2, "width": 7}, draw={"gain": around_one}),
    Operator(adopt_step, adopt_step_torch, "Taniguchi et al., ADOPT, 2024", {"rows": 5, "width": 7},
             draw={"gradient": lambda normal, _: 10 * normal, "first": lambda normal, _: 0.1 * normal, "second": lambda normal, _: 0.01 * (1 + normal * normal),
                   "step": lambda normal, _: 100 + 0 * normal, "loss_scale": lambda normal, _: 128 + 0 * normal, "overflow": lambda normal, _: normal > 9}),
    Operator(binned_box_losses, binned_box_losses_torch, "Li et al., Generalized focal loss, 2020; Zheng et al., Distance-IoU loss, 2020; Jocher, YOLOv8, 2023", {"boxes": 7},
             draw={"anchor": lambda normal, _: 20 + 5 * torch.tanh(normal),
                   "target": lambda normal, _: torch.tensor([10.0, 11.0, 28.0, 30.0], device=normal.device) + 2 * torch.tanh(normal),
                   "weight": lambda normal, _: torch.sigmoid(normal)}),
    Operator(lomb_scargle_power, lomb_scargle_power_torch, "Lomb, 1976; Scargle, 1982; VanderPlas, Understanding the Lomb-Scargle periodogram, 2018", {"stars": 2, "length": 7, "waves": 5},
             told=("waves", ), draw={"moment": lambda normal, _: 5 * (1 + torch.tanh(normal)), "error": lambda normal, _: 0.5 + torch.sigmoid(normal)}),
    Operator(ray_triangle_hits, ray_triangle_hits_torch, "Moeller and Trumbore, Fast, minimum storage ray-triangle intersection, 1997", {"rays": 19, "triangles": 307},
             draw={"origin": lambda normal, _: torch.tensor([0.0, 0.0, -4.0], device=normal.device) + 0.1 * normal,
                   "direction": lambda normal, _: torch.tensor([0.0, 0.0, 1.0], device=normal.device) + 0.3 * torch.tanh(normal),
                   "corner": lambda normal, _: normal[:, :1].clamp(-2, 2) + 0.2 * normal}),
    Operator(local_lines, local_lines_torch, "Cleveland, Robust locally weighted regression, 1979", {"places": 5, "points": 23},
             draw={"trust": lambda normal, _: torch.sigmoid(normal)}),
    Operator(fading_covariance, fading_covariance_torch, "J.P. Morgan, RiskMetrics, 1996", {"days": 13, "assets": 7}, draw={"held": lambda normal, _: 0.1 + torch.sigmoid(normal)}),
]
