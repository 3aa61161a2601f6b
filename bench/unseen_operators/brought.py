"""Operators as users bring them today. Attention: drafted tokens, sinks, heads that a router weighs, frames of video. Products: sparse and packed weights,
adapters of many users, greedy words. Policies, optimisers, chunks of states, convolutions of frames, bispectra, kinship, barriers."""

import math

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

import nestor
from nestor import Size, bf16, boolean, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

# ---------------------------------------------------------------------------------------------- language models: gpt-oss, drafted tokens

batch, kv_heads, group, drafts = Size("batch", 24), Size("kv_heads", 8), Size("group", 8, fixed=True), Size("drafts", 5, fixed=True)
length, head = Size("length", 4000), Size("head", 64, fixed=True)
b, h, g, s, k, e, d = indices(b=batch, h=kv_heads, g=group, s=drafts, k=length, e=head, d=head)


@nestor.nest
def drafted_window_decoding(query: f16[batch, kv_heads, group, drafts, head], key: f16[batch, kv_heads, length, head], value: f16[batch, kv_heads, length, head],
                            sink: f32[kv_heads, group], first: i32[batch], window=1024):
    """Some drafted tokens of each request look at a window of its cache, of a length of its own; a sink takes a share."""
    sees = (k <= first[b] + s) & (k > first[b] + s - window)
    met = nestor.sum(query[b, h, g, s, e] * key[b, h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head))
    score = define("score", (b, h, g, s, k), nestor.select(sees, met, -math.inf))
    top = nestor.maximum(nestor.max(score[b, h, g, s, k], over=k), sink[h, g])
    power = define("power", (b, h, g, s, k), nestor.exp(score[b, h, g, s, k] - top))
    total = nestor.sum(power[b, h, g, s, k], over=k) + nestor.exp(sink[h, g] - top)
    return define("out", (b, h, g, s, d), nestor.sum(power[b, h, g, s, k] * value[b, h, k, d], over=k) / total, type=f16)


def drafted_window_decoding_torch(query, key, value, sink, first, window=1024):
    token = first[:, None] + torch.arange(query.shape[3], device=query.device, dtype=first.dtype)
    place = torch.arange(key.shape[2], device=query.device, dtype=first.dtype)
    sees = (place <= token[..., None]) & (place > token[..., None] - window)
    score = query.flatten(2, 3) @ key.mT * query.shape[-1]**-0.5
    score = widened(score).unflatten(2, query.shape[2:4]).masked_fill(~sees[:, None, None], -math.inf)
    last = sink[None, :, :, None, None].expand(*score.shape[:-1], 1)
    share = torch.cat([score, last], -1).softmax(-1)[..., :-1].to(value.dtype)
    return (share.flatten(2, 3) @ value).view(query.shape)


# ---------------------------------------------------------------------------------------------- language models: gpt-oss, backward

kv_heads, group, length, head = Size("kv_heads", 4), Size("group", 4, fixed=True), Size("length", 2048), Size("head", 64, fixed=True)
h, g, q, k, e = indices(h=kv_heads, g=group, q=length, k=length, e=head)


@nestor.nest
def sink_attention_backward(query: bf16[kv_heads, group, length, head], key: bf16[kv_heads, length, head], value: bf16[kv_heads, length, head], sink: f32[kv_heads, group],
                            out: bf16[kv_heads, group, length, head], spread: f32[kv_heads, group, length], slope: bf16[kv_heads, group, length, head]):
    """Grouped causal attention with a learned sink in each head: gradients of queries, keys, values and sinks."""
    scale = nestor.rsqrt(nestor.cast(f32, head))
    score = nestor.sum(query[h, g, q, e] * key[h, k, e], over=e) * scale
    share = define("share", (h, g, q, k), nestor.exp(score - spread[h, g, q]), where=k <= q)
    around = define("around", (h, g, q), nestor.sum(slope[h, g, q, e] * out[h, g, q, e], over=e))
    d_share = define("d_share", (h, g, q, k), nestor.sum(slope[h, g, q, e] * value[h, k, e], over=e), where=k <= q)
    d_score = define("d_score", (h, g, q, k), share[h, g, q, k] * (d_share[h, g, q, k] - around[h, g, q]), where=k <= q)
    d_query = define("d_query", (h, g, q, e), scale * nestor.sum(d_score[h, g, q, k] * key[h, k, e], over=k, where=k <= q), type=bf16)
    d_key = define("d_key", (h, k, e), scale * nestor.sum(d_score[h, g, q, k] * query[h, g, q, e], over=(g, q), where=k <= q), type=bf16)
    d_value = define("d_value", (h, k, e), nestor.sum(share[h, g, q, k] * slope[h, g, q, e], over=(g, q), where=k <= q), type=bf16)
    d_sink = define("d_sink", (h, g), -nestor.sum(nestor.exp(sink[h, g] - spread[h, g, q]) * around[h, g, q], over=q))
    return d_query, d_key, d_value, d_sink


def sink_attention_backward_torch(query, key, value, sink, out, spread, slope):
    scale, group = query.shape[-1]**-0.5, query.shape[1]
    score = widened(query.flatten(1, 2) @ key.mT).unflatten(1, (group, -1)) * scale
    share = torch.exp(score - spread[..., None]).tril()
    around = (widened(slope) * widened(out)).sum(-1)
    d_share = widened(slope.flatten(1, 2) @ value.mT).unflatten(1, (group, -1))
    d_score = (share * (d_share - around[..., None]) * scale).to(query.dtype).flatten(1, 2)
    d_value = share.to(query.dtype).flatten(1, 2).mT @ slope.flatten(1, 2)
    d_sink = -(torch.exp(sink[..., None] - spread) * around).sum(-1)
    return (d_score @ key).view(query.shape), d_score.mT @ query.flatten(1, 2), d_value, d_sink


# ---------------------------------------------------------------------------------------------- language models: MInference

heads, last, length, head = Size("heads", 32), Size("last", 64), Size("length", 16000), Size("head", 128, fixed=True)
h, q, k, e, z = indices(h=heads, q=last, k=length, e=head, z=length)


@nestor.nest(require=length >= last)
def vertical_slash_scores(query: bf16[heads, last, head], key: bf16[heads, length, head]):
    """The newest queries' shares summed for each key, and for each distance: which columns and diagonals a sparse prefill keeps."""
    sees = k <= q + length - last
    score = define("score", (h, q, k), nestor.sum(query[h, q, e] * key[h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), where=sees)
    top = nestor.max(score[h, q, k], over=k, where=sees)
    power = define("power", (h, q, k), nestor.exp(score[h, q, k] - top), where=sees)
    share = define("share", (h, q, k), power[h, q, k] / nestor.sum(power[h, q, k], over=k, where=sees), where=sees)
    column = define("column", (h, k), nestor.sum(share[h, q, k], over=q, where=sees))
    slash = define("slash", (h, z), nestor.sum(share[h, q, q + length - last - z], over=q, where=z <= q + length - last))
    return column, slash


def vertical_slash_scores_torch(query, key):
    last, length = query.shape[1], key.shape[1]
    score = widened(query @ key.mT * query.shape[-1]**-0.5)
    share = score.masked_fill(torch.ones(last, length, dtype=torch.bool, device=query.device).triu(length - last + 1), -math.inf).softmax(-1)
    turned = F.pad(share.flip(-1), (0, last))
    wide = length + last
    slash = turned.as_strided((len(query), last, length), (last * wide, wide - 1, 1), last - 1)
    return share.sum(1), slash.sum(1)


# ---------------------------------------------------------------------------------------------- language models: scalable softmax

batch, heads, length, head = Size("batch", 2), Size("heads", 14), Size("length", 2300), Size("head", 128, fixed=True)
b, h, q, k, e, d = indices(b=batch, h=heads, q=length, k=length, e=head, d=head)


@nestor.nest
def scalable_softmax_attention(query: bf16[batch, heads, length, head], key: bf16[batch, heads, length, head], value: bf16[batch, heads, length, head], speed: f32[heads]):
    """Causal attention whose scores grow with the logarithm of how many keys a query sees, by a factor that each head learns."""
    growth = speed[h] * nestor.log(nestor.cast(f32, q + 1))
    met = nestor.sum(query[b, h, q, e] * key[b, h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head))
    score = define("score", (b, h, q, k), growth * met, where=k <= q)
    top = nestor.max(score[b, h, q, k], over=k, where=k <= q)
    power = define("power", (b, h, q, k), nestor.exp(score[b, h, q, k] - top), where=k <= q)
    total = nestor.sum(power[b, h, q, k], over=k, where=k <= q)
    return define("out", (b, h, q, d), nestor.sum(power[b, h, q, k] * value[b, h, k, d], over=k, where=k <= q) / total, type=bf16)


def scalable_softmax_attention_torch(query, key, value, speed):
    seen = torch.arange(1, query.shape[2] + 1, device=query.device, dtype=speed.dtype)
    growth = speed[:, None] * seen.log()
    return F.scaled_dot_product_attention((query * growth[..., None]).to(query.dtype), key, value, is_causal=True)


# ---------------------------------------------------------------------------------------------- vision: mixture of heads

batch, tokens, heads, head, width = Size("batch", 128), Size("tokens", 197), Size("heads", 12), Size("head", 64, fixed=True), Size("width", 768)
b, h, q, k, e, d, o = indices(b=batch, h=heads, q=tokens, k=tokens, e=head, d=head, o=width)


@nestor.nest
def mixture_of_heads_attention(query: f16[batch, tokens, heads, head], key: f16[batch, tokens, heads, head], value: f16[batch, tokens, heads, head],
                               router: f32[batch, tokens, heads], taken: boolean[batch, tokens, heads], weight: f16[width, heads, head], bias: f16[width]):
    """Heads are experts: of those that a token takes, each is weighed by a softmax, and the weighed heads are projected."""
    score = define("score", (b, h, q, k), nestor.sum(query[b, q, h, e] * key[b, k, h, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)))
    top = nestor.max(score[b, h, q, k], over=k)
    power = define("power", (b, h, q, k), nestor.exp(score[b, h, q, k] - top))
    total = nestor.sum(power[b, h, q, k], over=k)
    seen = define("seen", (b, q, h, d), nestor.sum(power[b, h, q, k] * value[b, k, h, d], over=k) / total, type=f16)
    most = nestor.max(router[b, q, h], over=h)
    raised = define("raised", (b, q, h), nestor.exp(router[b, q, h] - most))
    gate = define("gate", (b, q, h), nestor.select(taken[b, q, h], raised[b, q, h] / nestor.sum(raised[b, q, h], over=h), 0.0))
    return define("out", (b, q, o), nestor.sum(gate[b, q, h] * seen[b, q, h, d] * weight[o, h, d], over=(h, d)) + bias[o], type=f16)


def mixture_of_heads_attention_torch(query, key, value, router, taken, weight, bias):
    seen = F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)).transpose(1, 2)
    gate = (router.softmax(-1) * taken).to(query.dtype)
    return F.linear((seen * gate[..., None]).flatten(2), weight.flatten(1), bias)


# ---------------------------------------------------------------------------------------------- video: frames one after the other

CELLS, KEPT = 78, 6
heads, frames, head = Size("heads", 12), Size("frames", 40), Size("head", 128, fixed=True)
h, q, k, e, d = indices(h=heads, q=CELLS * frames, k=CELLS * frames, e=head, d=head)


@nestor.nest
def rolling_frame_attention(query: bf16[heads, CELLS * frames, head], key: bf16[heads, CELLS * frames, head], value: bf16[heads, CELLS * frames, head]):
    """Video that is made frame by frame: a frame sees itself, the first one, and the newest before it, all of their cells."""
    asked, known = q // CELLS, k // CELLS
    sees = (known <= asked) & ((known == 0) | (known > asked - KEPT))
    score = define("score", (h, q, k), nestor.sum(query[h, q, e] * key[h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), where=sees)
    top = nestor.max(score[h, q, k], over=k, where=sees)
    power = define("power", (h, q, k), nestor.exp(score[h, q, k] - top), where=sees)
    total = nestor.sum(power[h, q, k], over=k, where=sees)
    return define("out", (h, q, d), nestor.sum(power[h, q, k] * value[h, k, d], over=k, where=sees) / total, type=bf16)


def rolling_frame_attention_torch(query, key, value):
    frame = torch.arange(query.shape[1], device=query.device) // CELLS
    asked, known = frame[:, None], frame
    sees = (known <= asked) & ((known == 0) | (known > asked - KEPT))
    return F.scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=sees)[0]


def rolling_frames(sizes):
    def sees(b, h, i, j):
        asked, known = i // CELLS, j // CELLS
        return (known <= asked) & ((known == 0) | (known > asked - KEPT))

    return sees, CELLS * sizes["frames"]


def rolling_frame_attention_flex(query, key, value, mask):
    return flex_attention(query[None], key[None], value[None], block_mask=mask)[0]


# ---------------------------------------------------------------------------------------------- language models: weights of which two in four are kept

rows, words, outs = Size("rows", 2000), Size("words", 90), Size("outs", 2880)
i, o, c, r = indices(i=rows, o=outs, c=32 * words, r=2)


@nestor.nest
def two_in_four_linear(x: f16[rows, 32 * words], kept: f16[outs, 8 * words, 2], places: i32[outs, words], bias: f16[outs], residual: f16[rows, outs]):
    """Of four neighbours two weights are kept, two bits say where each belongs; a bias and a residual are added."""
    place = (places[o, c // 32] >> (4 * (c // 4 % 8) + 2 * r)) & 3
    weight = define("weight", (o, c), nestor.sum(nestor.select(place == c % 4, kept[o, c // 4, r], 0.0), over=r))
    return define("out", (i, o), residual[i, o] + nestor.sum(x[i, c] * weight[o, c], over=c) + bias[o], type=f16)


def two_in_four_linear_torch(x, kept, places, bias, residual):
    shift = 4 * torch.arange(8, device=places.device, dtype=torch.int32)[:, None] + 2 * torch.arange(2, device=places.device, dtype=torch.int32)
    place = ((places[..., None, None] >> shift) & 3).flatten(1, 2)
    weight = torch.zeros(*kept.shape[:2], 4, device=kept.device, dtype=kept.dtype).scatter_add_(2, place.long(), kept)
    return residual + F.linear(x, weight.flatten(1), bias)


# ---------------------------------------------------------------------------------------------- language models: greedy words

tokens, words, width = Size("tokens", 300), Size("words", 50257), Size("width", 2048)
t, c, v = indices(t=tokens, c=width, v=words)


@nestor.nest
def greedy_words(hidden: f16[tokens, width], gain: f16[width], table: f16[words, width], cap=30.0, eps=1e-6):
    """A norm, a table of words, bent logits: the word that is likeliest, and the logarithm of how likely it is."""
    root = nestor.rsqrt(nestor.mean(hidden[t, c] * hidden[t, c], over=c) + eps)
    normed = define("normed", (t, c), hidden[t, c] * root * gain[c])
    logit = define("logit", (t, v), cap * nestor.tanh(nestor.sum(normed[t, c] * table[v, c], over=c) / cap))
    top = define("top", t, nestor.max(logit[t, v], over=v))
    total = nestor.sum(nestor.exp(logit[t, v] - top[t]), over=v)
    return define("word", t, nestor.argmax(logit[t, v], over=v)), define("likely", t, -nestor.log(total))


def greedy_words_torch(hidden, gain, table, cap=30.0, eps=1e-6):
    logit = cap * torch.tanh(widened(F.linear(F.rms_norm(hidden, hidden.shape[-1:], gain, eps), table)) / cap)
    likely, word = logit.log_softmax(-1).max(-1)
    return word.int(), likely


# ---------------------------------------------------------------------------------------------- language models: Punica, S-LoRA

tokens, ins, outs, adapters, rank = Size("tokens", 2000), Size("ins", 2048), Size("outs", 2560), Size("adapters", 12), Size("rank", 16, fixed=True)
t, c, o, a, r = indices(t=tokens, c=ins, o=outs, a=adapters, r=rank)


@nestor.nest
def many_users_linear(x: bf16[tokens, ins], weight: bf16[outs, ins], down: bf16[adapters, rank, ins], up: bf16[adapters, outs, rank], scale: f32[adapters], user: i32[tokens]):
    """Tokens of many users share a layer; each token is adapted by its user's two small matrices, or by none."""
    low = define("low", (t, r), nestor.sum(nestor.select(user[t] == a, scale[a] * nestor.sum(x[t, c] * down[a, r, c], over=c), 0.0), over=a), type=bf16)
    changed = nestor.sum(nestor.select(user[t] == a, low[t, r] * up[a, o, r], 0.0), over=(a, r))
    return define("out", (t, o), nestor.sum(x[t, c] * weight[o, c], over=c) + changed, type=bf16)


def many_users_linear_torch(x, weight, down, up, scale, user):
    own = user[:, None] == torch.arange(len(down), device=user.device, dtype=user.dtype)
    low = F.linear(x, down.flatten(0, 1)).unflatten(1, down.shape[:2]) * torch.where(own, scale, 0.0)[..., None]
    return F.linear(x, weight) + low.to(x.dtype).flatten(1) @ up.mT.flatten(0, 1)


# ---------------------------------------------------------------------------------------------- diffusion: Flux, the end of a single block

batch, tokens, width = Size("batch", 4), Size("tokens", 1030), Size("width", 1536)
b, t, c, u, o = indices(b=batch, t=tokens, c=width, u=4 * width, o=width)


@nestor.nest
def joined_branches_out(seen: bf16[batch, tokens, width], middle: bf16[batch, tokens, 4 * width], weight: bf16[width, 5 * width], bias: bf16[width], gate: bf16[batch, width],
                        residual: bf16[batch, tokens, width]):
    """Attention and a GELU's branch side by side go through one matrix; an image's gate weighs what is added to the stream."""
    x = middle[b, t, u]
    bent = define("bent", (b, t, u), 0.5 * x * (1 + nestor.tanh(0.7978845608 * (x + 0.044715 * x * x * x))), type=bf16)
    first = nestor.sum(seen[b, t, c] * weight[o, c], over=c)
    second = nestor.sum(bent[b, t, u] * weight[o, width + u], over=u)
    return define("out", (b, t, o), residual[b, t, o] + gate[b, o] * (first + second + bias[o]), type=bf16)


def joined_branches_out_torch(seen, middle, weight, bias, gate, residual):
    return residual + gate[:, None] * F.linear(torch.cat([seen, F.gelu(middle, approximate="tanh")], -1), weight, bias)


# ---------------------------------------------------------------------------------------------- language models: QServe, four bits by eight

rows, groups, outs = Size("rows", 1000), Size("groups", 30), Size("outs", 4096)
i, o, u, z, c = indices(i=rows, o=outs, u=groups, z=128, c=128 * groups)


@nestor.nest
def int4_by_int8_linear(x: f16[rows, 128 * groups], bits: i32[outs, 16 * groups], scale: f16[outs, groups]):
    """Rows become integers of eight bits by their largest element, weights have four and a scale for 128; sums of a group are integers."""
    step = define("step", i, nestor.maximum(nestor.max(nestor.absolute(x[i, c]), over=c), 1e-6) / 127)
    level = define("level", (i, c), nestor.cast(i32, nestor.round(x[i, c] / step[i])))
    weight = ((bits[o, 16 * u + z // 8] >> (4 * (z % 8))) & 15) - 8
    part = define("part", (i, o, u), nestor.sum(level[i, 128 * u + z] * weight, over=z))
    return define("out", (i, o), step[i] * nestor.sum(scale[o, u] * nestor.cast(f32, part[i, o, u]), over=u), type=f16)


def int4_by_int8_linear_torch(x, bits, scale):
    step = widened(x.abs().amax(1, keepdim=True)).clamp(min=1e-6) / 127
    level = torch.round(widened(x) / step).to(x.dtype)
    shift = 4 * torch.arange(8, device=bits.device, dtype=torch.int32)
    weight = (((bits[..., None] >> shift) & 15) - 8).flatten(1).unflatten(1, (-1, 128)).to(x.dtype) * scale[..., None]
    return (widened(F.linear(level, weight.flatten(1))) * step).to(x.dtype)


# ---------------------------------------------------------------------------------------------- reinforcement: policies from hidden states

tokens, words, width = Size("tokens", 1000), Size("words", 32005), Size("width", 1024)
t, c, v = indices(t=tokens, c=width, v=words)


@nestor.nest
def linear_policy_loss(hidden: bf16[tokens, width], table: bf16[words, width], word: i32[tokens], old: f32[tokens], reference: f32[tokens], advantage: f32[tokens],
                       counts: boolean[tokens], heat: nestor.Scalar(0.9, min=0.1), low=0.2, high=0.28, pull=0.04):
    """What words cost that a policy chose, right from hidden states: clipped ratios, a pull to a reference, and how many were clipped."""
    logit = define("logit", (t, v), nestor.sum(hidden[t, c] * table[v, c], over=c) / heat)
    top = define("top", t, nestor.max(logit[t, v], over=v))
    spread = top[t] + nestor.log(nestor.sum(nestor.exp(logit[t, v] - top[t]), over=v))
    likely = define("likely", t, nestor.sum(nestor.select(word[t] == v, logit[t, v], 0.0), over=v) - spread)
    ratio = define("ratio", t, nestor.exp(likely[t] - old[t]))
    bounded = nestor.clamp(ratio[t], 1 - low, 1 + high)
    away = reference[t] - likely[t]
    gain = nestor.minimum(ratio[t] * advantage[t], bounded * advantage[t])
    cost = define("cost", t, nestor.select(counts[t], pull * (nestor.exp(away) - away - 1) - gain, 0.0))
    number = define("number", (), nestor.maximum(nestor.sum(nestor.cast(f32, counts[t]), over=t), 1.0))
    beyond = ((ratio[t] < 1 - low) & (advantage[t] < 0)) | ((ratio[t] > 1 + high) & (advantage[t] > 0))
    clipped = nestor.sum(nestor.select(beyond & counts[t], 1.0, 0.0), over=t)
    return define("loss", (), nestor.sum(cost[t], over=t) / number[()]), define("clipped", (), clipped / number[()]), likely


def linear_policy_loss_torch(hidden, table, word, old, reference, advantage, counts, heat=0.9, low=0.2, high=0.28, pull=0.04):
    logit = widened(F.linear(hidden, table)) / heat
    likely = -F.cross_entropy(logit, word.long(), reduction="none")
    ratio, away = torch.exp(likely - old), reference - likely
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    cost = torch.where(counts, pull * (torch.exp(away) - away - 1) - gain, 0.0)
    beyond = ((ratio < 1 - low) & (advantage < 0)) | ((ratio > 1 + high) & (advantage > 0))
    number = counts.sum().clamp(min=1)
    return cost.sum() / number, (beyond & counts).to(cost.dtype).sum() / number, likely


# ---------------------------------------------------------------------------------------------- training: NorMuon

rows, width = Size("rows", 4000), Size("width", 4100)
i, c = indices(i=rows, c=width)


@nestor.nest
def normuon_step(weight: bf16[rows, width], update: bf16[rows, width], moment: f32[rows], rate=1e-3, second=0.95, decay=0.1, eps=1e-8):
    """An orthogonal step whose rows are made alike by averages of their squares, then brought to a size that Adam's would have."""
    new_moment = define("new_moment", i, second * moment[i] + (1 - second) * nestor.mean(update[i, c] * update[i, c], over=c))
    even = define("even", (i, c), update[i, c] / (nestor.sqrt(new_moment[i]) + eps))
    size = nestor.sqrt(nestor.sum(even[i, c] * even[i, c], over=(i, c)))
    stretch = define("stretch", (), 0.2 * nestor.sqrt(nestor.cast(f32, rows) * nestor.cast(f32, width)) / size)
    out = define("out", (i, c), weight[i, c] * (1 - rate * decay) - rate * stretch[()] * even[i, c], type=bf16)
    return out, new_moment


def normuon_step_torch(weight, update, moment, rate=1e-3, second=0.95, decay=0.1, eps=1e-8):
    wide = widened(update)
    moment = second * moment + (1 - second) * wide.square().mean(1)
    even = wide / (moment.sqrt() + eps)[:, None]
    stretch = 0.2 * weight.numel()**0.5 / torch.linalg.vector_norm(even)
    return (widened(weight) * (1 - rate * decay) - rate * stretch * even).to(weight.dtype), moment


# ---------------------------------------------------------------------------------------------- training: StableAdamW

rows, width = Size("rows", 3001), Size("width", 3000)
i, c = indices(i=rows, c=width)


@nestor.nest
def stable_adamw_step(weight: f32[rows, width], gradient: bf16[rows, width], first: f32[rows, width], second: f32[rows, width], step: i32[()],
                      rate=1e-3, beta1=0.9, beta2=0.99, decay=0.05, eps=1e-8):
    """AdamW that slows down where gradients are larger than their averages say, by a matrix' mean of their ratios."""
    age = nestor.cast(f32, step[()])
    keep1 = define("keep1", (), beta1 * (1 - nestor.pow(beta1, age - 1)) / (1 - nestor.pow(beta1, age)))
    keep2 = define("keep2", (), beta2 * (1 - nestor.pow(beta2, age - 1)) / (1 - nestor.pow(beta2, age)))
    new_first = define("new_first", (i, c), keep1[()] * first[i, c] + (1 - keep1[()]) * gradient[i, c])
    new_second = define("new_second", (i, c), keep2[()] * second[i, c] + (1 - keep2[()]) * gradient[i, c] * gradient[i, c])
    ratio = nestor.mean(gradient[i, c] * gradient[i, c] / nestor.maximum(new_second[i, c], eps * eps), over=(i, c))
    pace = define("pace", (), rate / nestor.maximum(1.0, nestor.sqrt(ratio)))
    out = define("out", (i, c), weight[i, c] * (1 - pace[()] * decay) - pace[()] * new_first[i, c] / (nestor.sqrt(new_second[i, c]) + eps))
    return out, new_first, new_second, pace


def stable_adamw_step_torch(weight, gradient, first, second, step, rate=1e-3, beta1=0.9, beta2=0.99, decay=0.05, eps=1e-8):
    age, wide = step.to(weight.dtype), gradient.to(weight.dtype)
    keep1 = beta1 * (1 - beta1 ** (age - 1)) / (1 - beta1 ** age)
    keep2 = beta2 * (1 - beta2 ** (age - 1)) / (1 - beta2 ** age)
    first, second = torch.lerp(wide, first, keep1), torch.lerp(wide.square(), second, keep2)
    pace = rate / (wide.square() / second.clamp(min=eps * eps)).mean().sqrt().clamp(min=1)
    return weight * (1 - pace * decay) - pace * first / (second.sqrt() + eps), first, second, pace


# ---------------------------------------------------------------------------------------------- vision: filter response normalisation, backward

images, tall, wide, width = Size("images", 32), Size("tall", 56), Size("wide", 54), Size("width", 100)
n, y, x, c = indices(n=images, y=tall, x=wide, c=width)


@nestor.nest
def filter_response_backward(image: f16[images, tall, wide, width], gain: f32[width], bias: f32[width], least: f32[width], slope: f16[images, tall, wide, width], eps=1e-6):
    """Channels divided by the root of their mean square, scaled and cut from below by a learned number: gradients of all that."""
    root = define("root", (n, c), nestor.rsqrt(nestor.mean(image[n, y, x, c] * image[n, y, x, c], over=(y, x)) + eps))
    normed = define("normed", (n, y, x, c), image[n, y, x, c] * root[n, c])
    above = gain[c] * normed[n, y, x, c] + bias[c] > least[c]
    into = define("into", (n, y, x, c), nestor.select(above, slope[n, y, x, c], 0.0))
    along = define("along", (n, c), nestor.mean(into[n, y, x, c] * normed[n, y, x, c], over=(y, x)))
    d_image = define("d_image", (n, y, x, c), gain[c] * root[n, c] * (into[n, y, x, c] - normed[n, y, x, c] * along[n, c]), type=f16)
    d_gain = define("d_gain", c, nestor.sum(into[n, y, x, c] * normed[n, y, x, c], over=(n, y, x)))
    d_bias = define("d_bias", c, nestor.sum(into[n, y, x, c], over=(n, y, x)))
    return d_image, d_gain, d_bias, define("d_least", c, nestor.sum(slope[n, y, x, c] - into[n, y, x, c], over=(n, y, x)))


def filter_response_backward_torch(image, gain, bias, least, slope, eps=1e-6):
    picture, steep = widened(image), widened(slope)
    root = (picture.square().mean((1, 2), keepdim=True) + eps).rsqrt()
    normed = picture * root
    into = torch.where(gain * normed + bias > least, steep, 0.0)
    along = (into * normed).mean((1, 2), keepdim=True)
    d_image = (gain * root * (into - normed * along)).to(image.dtype)
    return d_image, (into * normed).sum((0, 1, 2)), into.sum((0, 1, 2)), (steep - into).sum((0, 1, 2))


# ---------------------------------------------------------------------------------------------- language models: Lightning attention

streams, chunks, chunk, dim = Size("streams", 64), Size("chunks", 32), Size("chunk", 64, fixed=True), Size("dim", 96, fixed=True)
n, u, i, j, e, d, w = indices(n=streams, u=chunks, i=chunk, j=chunk, e=dim, d=dim, w=chunks + 1)


@nestor.nest
def lightning_chunks(query: bf16[streams, chunks, chunk, dim], key: bf16[streams, chunks, chunk, dim], value: bf16[streams, chunks, chunk, dim], pace: f32[streams]):
    """Linear attention that forgets at a head's pace: within chunks by scores, between them by a state."""
    state = define("state", (n, w, e, d), 0.0, where=w == 0)
    late = nestor.exp(-pace[n] * nestor.cast(f32, chunk - 1 - j))
    fresh = define("fresh", (n, u, e, d), nestor.sum(key[n, u, j, e] * late * value[n, u, j, d], over=j))
    state.write((n, u, e, d), (n, u + 1, e, d), nestor.exp(-pace[n] * nestor.cast(f32, chunk)) * state[n, u, e, d] + fresh[n, u, e, d])
    met = nestor.sum(query[n, u, i, e] * key[n, u, j, e], over=e)
    score = define("score", (n, u, i, j), met * nestor.exp(-pace[n] * nestor.cast(f32, i - j)), where=j <= i)
    near = nestor.sum(score[n, u, i, j] * value[n, u, j, d], over=j, where=j <= i)
    far = nestor.sum(query[n, u, i, e] * state[n, u, e, d], over=e) * nestor.exp(-pace[n] * nestor.cast(f32, i + 1))
    return define("out", (n, u, i, d), near + far, type=bf16), define("final", (n, e, d), state[n, chunks, e, d])


def lightning_chunks_torch(query, key, value, pace):
    chunks, chunk = query.shape[1:3]
    place, fade = torch.arange(chunk, device=query.device, dtype=pace.dtype), -pace[:, None, None]
    apart = place[:, None] - place
    within = torch.exp(fade * apart.clamp(min=0)).tril().to(query.dtype)
    near = ((query @ key.mT) * within[:, None]) @ value
    late = torch.exp(fade * (chunk - 1 - place[:, None])).to(query.dtype)
    fresh = widened((key * late[:, None]).mT @ value)
    whole, states, state = torch.exp(fade * chunk), [], torch.zeros_like(fresh[:, 0])
    for u in range(chunks):
        states.append(state)
        state = whole * state + fresh[:, u]
    early = torch.exp(fade * (place[:, None] + 1))
    far = widened(query @ torch.stack(states, 1).to(query.dtype)) * early[:, None]
    return (near + far).to(query.dtype), state


# ---------------------------------------------------------------------------------------------- language models: Mamba 2, a layer

batch, chunks, chunk, heads = Size("batch", 4), Size("chunks", 32), Size("chunk", 64, fixed=True), Size("heads", 24)
dim, state = Size("dim", 64, fixed=True), Size("state", 128, fixed=True)
b, u, i, j, m, h, p, z, w = indices(b=batch, u=chunks, i=chunk, j=chunk, m=chunk, h=heads, p=dim, z=state, w=chunks + 1)


@nestor.nest
def state_space_layer(x: bf16[batch, chunks, chunk, heads, dim], write: bf16[batch, chunks, chunk, state], read: bf16[batch, chunks, chunk, state],
                      pace: bf16[batch, chunks, chunk, heads], offset: f32[heads], rate: f32[heads], skip: f32[heads], gate: bf16[batch, chunks, chunk, heads, dim]):
    """All of a state-space layer in chunks: steps from data, running sums of decays, scores, states that chunks hand on, a skip and a gate."""
    step = define("step", (b, u, i, h), nestor.softplus(pace[b, u, i, h] + offset[h]))
    run = define("run", (b, u, i, h), -rate[h] * nestor.sum(step[b, u, j, h], over=j, where=j <= i))
    met = define("met", (b, u, i, j), nestor.sum(read[b, u, i, z] * write[b, u, j, z], over=z), where=j <= i)
    score = define("score", (b, u, h, i, j), met[b, u, i, j] * nestor.exp(run[b, u, i, h] - run[b, u, j, h]) * step[b, u, j, h], where=j <= i)
    near = nestor.sum(score[b, u, h, i, j] * x[b, u, j, h, p], over=j, where=j <= i)
    late = nestor.exp(run[b, u, chunk - 1, h] - run[b, u, j, h]) * step[b, u, j, h]
    fresh = define("fresh", (b, u, h, p, z), nestor.sum(late * x[b, u, j, h, p] * write[b, u, j, z], over=j))
    held = define("held", (b, w, h, p, z), 0.0, where=w == 0)
    with nestor.steps(b, u):
        held.write((b, u, h, p, z), (b, u + 1, h, p, z), nestor.exp(run[b, u, chunk - 1, h]) * held[b, u, h, p, z] + fresh[b, u, h, p, z])
    far = nestor.sum(read[b, u, i, z] * held[b, u, h, p, z], over=z) * nestor.exp(run[b, u, i, h])
    return define("out", (b, u, i, h, p), (near + far + skip[h] * x[b, u, i, h, p]) * nestor.silu(gate[b, u, i, h, p]), type=bf16)


def state_space_layer_torch(x, write, read, pace, offset, rate, skip, gate):
    step = F.softplus(pace + offset)
    run = -rate * step.cumsum(2)
    run_h = run.permute(0, 1, 3, 2)
    decay = torch.exp((run_h[..., None] - run_h[..., None, :]).tril()).tril()
    score = widened(read @ write.mT)[:, :, None] * decay * step.permute(0, 1, 3, 2)[..., None, :]
    rows = x.transpose(2, 3)
    near = score.to(x.dtype) @ rows
    late = torch.exp(run[:, :, -1:] - run) * step
    fresh = widened((rows * late.permute(0, 1, 3, 2)[..., None]).to(x.dtype).mT @ write[:, :, None])
    whole, states, held = torch.exp(run[:, :, -1])[..., None, None], [], torch.zeros_like(fresh[:, 0])
    for u in range(x.shape[1]):
        states.append(held)
        held = whole[:, u] * held + fresh[:, u]
    far = widened(read[:, :, None] @ torch.stack(states, 1).to(x.dtype).mT) * torch.exp(run_h)[..., None]
    out = near + far + skip[:, None, None] * rows
    return (out.transpose(2, 3) * F.silu(widened(gate))).to(x.dtype)


# ---------------------------------------------------------------------------------------------- language models: gated DeltaNet, a layer

streams, chunks, chunk, dim = Size("streams", 32), Size("chunks", 16), Size("chunk", 64, fixed=True), Size("dim", 64, fixed=True)
n, u, i, j, e, d, w = indices(n=streams, u=chunks, i=chunk, j=chunk, e=dim, d=dim, w=chunks + 1)


@nestor.nest
def gated_delta_layer(query: bf16[streams, chunks, chunk, dim], key: bf16[streams, chunks, chunk, dim], value: bf16[streams, chunks, chunk, dim],
                      decay: f32[streams, chunks, chunk], rate: f32[streams, chunks, chunk]):
    """The delta rule with a gate, chunk after chunk: what each token writes depends on those before it, and on the state."""
    run = define("run", (n, u, i), nestor.sum(decay[n, u, j], over=j, where=j <= i))
    fade = define("fade", (n, u, i, j), nestor.exp(run[n, u, i] - run[n, u, j]), where=j <= i)
    like = define("like", (n, u, i, j), nestor.sum(key[n, u, i, e] * key[n, u, j, e], over=e) * fade[n, u, i, j], where=j < i)
    score = define("score", (n, u, i, j), nestor.sum(query[n, u, i, e] * key[n, u, j, e], over=e) * fade[n, u, i, j] * nestor.rsqrt(nestor.cast(f32, dim)), where=j <= i)
    state = define("state", (n, w, e, d), 0.0, where=w == 0)
    written = nestor.Tensor("written", f32, (streams, chunks, chunk, dim))
    with nestor.steps(n, u):
        known = define("known", (n, u, i, d), value[n, u, i, d] - nestor.exp(run[n, u, i]) * nestor.sum(key[n, u, i, e] * state[n, u, e, d], over=e))
        before = nestor.sum(like[n, u, i, j] * written[n, u, j, d], over=j, where=j < i)
        written.write((n, u, i, d), (n, u, i, d), rate[n, u, i] * (known[n, u, i, d] - before))
        fresh = nestor.sum(key[n, u, j, e] * fade[n, u, chunk - 1, j] * written[n, u, j, d], over=j)
        state.write((n, u, e, d), (n, u + 1, e, d), nestor.exp(run[n, u, chunk - 1]) * state[n, u, e, d] + fresh)
    far = nestor.sum(query[n, u, i, e] * state[n, u, e, d], over=e) * nestor.exp(run[n, u, i]) * nestor.rsqrt(nestor.cast(f32, dim))
    near = nestor.sum(score[n, u, i, j] * written[n, u, j, d], over=j, where=j <= i)
    return define("out", (n, u, i, d), near + far, type=bf16)


def gated_delta_layer_torch(query, key, value, decay, rate):
    asked, known, worth = widened(query), widened(key), widened(value)
    scale, run = query.shape[-1]**-0.5, decay.cumsum(-1)
    fade = torch.exp((run[..., None] - run[..., None, :]).tril()).tril()
    system = (known @ known.mT * fade).tril(-1) * rate[..., None] + torch.eye(query.shape[2], device=query.device, dtype=run.dtype)
    sides = torch.cat([rate[..., None] * worth, (rate * torch.exp(run))[..., None] * known], -1)
    fixed, moving = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True).chunk(2, -1)
    score, late = asked @ known.mT * fade * scale, known * fade[..., -1, :, None]
    early, whole = asked * torch.exp(run)[..., None] * scale, torch.exp(run[..., -1])[..., None, None]
    state, outs = torch.zeros(len(query), query.shape[3], query.shape[3], device=query.device, dtype=run.dtype), []
    for u in range(query.shape[1]):
        written = fixed[:, u] - moving[:, u] @ state
        outs.append(score[:, u] @ written + early[:, u] @ state)
        state = whole[:, u] * state + late[:, u].mT @ written
    return torch.stack(outs, 1).to(query.dtype)


# ---------------------------------------------------------------------------------------------- vision: StarNet

images, width, tall, wide = Size("images", 48), Size("width", 32), Size("tall", 56), Size("wide", 56)
n, c, o, u, y, x, dy, dx = indices(n=images, c=width, o=width, u=4 * width, y=tall, x=wide, dy=7, dx=7)


@nestor.nest
def star_block(image: f16[images, width, tall, wide], first: f16[width, 7, 7], shift: f16[width], left: f16[4 * width, width], left_bias: f16[4 * width],
               right: f16[4 * width, width], right_bias: f16[4 * width], back: f16[width, 4 * width], last: f16[width, 7, 7]):
    """Depthwise filters, two wide layers whose product is the only bend, a layer back, depthwise filters again, a residual."""
    down, across = y + dy - 3, x + dx - 3
    inside = (down >= 0) & (down < tall) & (across >= 0) & (across < wide)
    near = define("near", (n, c, y, x), nestor.sum(first[c, dy, dx] * image[n, c, down, across], over=(dy, dx), where=inside) + shift[c], type=f16)
    one = nestor.sum(left[u, c] * near[n, c, y, x], over=c) + left_bias[u]
    two = nestor.sum(right[u, c] * near[n, c, y, x], over=c) + right_bias[u]
    star = define("star", (n, u, y, x), nestor.clamp(one, 0.0, 6.0) * two, type=f16)
    narrow = define("narrow", (n, o, y, x), nestor.sum(back[o, u] * star[n, u, y, x], over=u), type=f16)
    return define("out", (n, o, y, x), image[n, o, y, x] + nestor.sum(last[o, dy, dx] * narrow[n, o, down, across], over=(dy, dx), where=inside), type=f16)


def star_block_torch(image, first, shift, left, left_bias, right, right_bias, back, last):
    near = F.conv2d(image, first[:, None], shift, padding=3, groups=len(first))
    star = F.relu6(F.conv2d(near, left[..., None, None], left_bias)) * F.conv2d(near, right[..., None, None], right_bias)
    return image + F.conv2d(F.conv2d(star, back[..., None, None]), last[:, None], padding=3, groups=len(last))


# ---------------------------------------------------------------------------------------------- vision: RAFT

images, tall, wide = Size("images", 16), Size("tall", 55), Size("wide", 128)
n, a, y, x, yy, xx, dy, dx, py, px = indices(n=images, a=2, y=tall, x=wide, yy=8 * tall, xx=8 * wide, dy=3, dx=3, py=8, px=8)


@nestor.nest
def convex_upsampling(flow: f32[images, 2, tall, wide], mask: f16[images, 3, 3, 8, 8, tall, wide]):
    """Each fine place mixes the nine coarse flows around it, by a softmax of what a network says there."""
    score = define("score", (n, dy, dx, py, px, y, x), 0.25 * mask[n, dy, dx, py, px, y, x])
    top = nestor.max(score[n, dy, dx, py, px, y, x], over=(dy, dx))
    power = define("power", (n, dy, dx, py, px, y, x), nestor.exp(score[n, dy, dx, py, px, y, x] - top))
    share = define("share", (n, dy, dx, py, px, y, x), power[n, dy, dx, py, px, y, x] / nestor.sum(power[n, dy, dx, py, px, y, x], over=(dy, dx)))
    down, across = yy // 8 + dy - 1, xx // 8 + dx - 1
    inside = (down >= 0) & (down < tall) & (across >= 0) & (across < wide)
    return define("out", (n, a, yy, xx), 8 * nestor.sum(share[n, dy, dx, yy % 8, xx % 8, yy // 8, xx // 8] * flow[n, a, down, across], over=(dy, dx), where=inside))


def convex_upsampling_torch(flow, mask):
    share = torch.softmax(0.25 * widened(mask).flatten(1, 2), 1)
    near = F.unfold(8 * flow, 3, padding=1).unflatten(1, (2, 9)).unflatten(-1, flow.shape[2:])
    out = torch.einsum("nkpqyx,nakyx->naypxq", share, near)
    return out.flatten(4, 5).flatten(2, 3)


# ---------------------------------------------------------------------------------------------- video: Wan's autoencoder

batch, width, outs, frames, tall, wide = Size("batch", 2), Size("width", 96), Size("outs", 96), Size("frames", 9), Size("tall", 60), Size("wide", 100)
n, c, o, t, y, x, dt, dy, dx, z = indices(n=batch, c=width, o=outs, t=frames, y=tall, x=wide, dt=3, dy=3, dx=3, z=2)


@nestor.nest
def causal_video_conv(video: bf16[batch, width, frames, tall, wide], past: bf16[batch, width, 2, tall, wide], gain: f32[width],
                      weight: bf16[outs, width, 3, 3, 3], bias: f32[outs]):
    """Channels are normed and bent, then filters look at a frame and at two before it, of which the first come from a cache."""
    size = nestor.sqrt(nestor.sum(video[n, c, t, y, x] * video[n, c, t, y, x], over=c))
    normed = define("normed", (n, c, t, y, x), video[n, c, t, y, x] / nestor.maximum(size, 1e-12) * nestor.sqrt(nestor.cast(f32, width)) * gain[c])
    joined = nestor.Tensor("joined", bf16, (batch, width, frames + 2, tall, wide))
    joined.write((n, c, z, y, x), (n, c, z, y, x), past[n, c, z, y, x])
    joined.write((n, c, t, y, x), (n, c, t + 2, y, x), nestor.silu(normed[n, c, t, y, x]))
    down, across = y + dy - 1, x + dx - 1
    inside = (down >= 0) & (down < tall) & (across >= 0) & (across < wide)
    out = define("out", (n, o, t, y, x), nestor.sum(weight[o, c, dt, dy, dx] * joined[n, c, t + dt, down, across], over=(c, dt, dy, dx), where=inside) + bias[o], type=bf16)
    return out, define("kept", (n, c, z, y, x), joined[n, c, frames + z, y, x], type=bf16)


def causal_video_conv_torch(video, past, gain, weight, bias):
    normed = F.normalize(widened(video), dim=1) * (video.shape[1]**0.5 * gain[:, None, None, None])
    joined = torch.cat([past, F.silu(normed).to(video.dtype)], 2)
    return F.conv3d(joined, weight, bias.to(video.dtype), padding=(0, 1, 1)), joined[:, :, -2:].clone()


# ---------------------------------------------------------------------------------------------- signals: bispectra

pieces, half = Size("pieces", 300), Size("half", 128)
s, t, f, g = indices(s=pieces, t=2 * half, f=half, g=half)


@nestor.nest
def bispectrum(signal: f32[pieces, 2 * half]):
    """Which pairs of frequencies move together with their sum: a mean of triple products over pieces of a signal, as real and imaginary parts."""
    mean = define("mean", s, nestor.mean(signal[s, t], over=t))
    window = 0.5 - 0.5 * nestor.cos(nestor.cast(f32, t) * 3.14159265358979 / nestor.cast(f32, half))
    tapered = define("tapered", (s, t), (signal[s, t] - mean[s]) * window)
    turn = (f * t) % (2 * half)
    angle = turn * 3.14159265358979 / nestor.cast(f32, half)
    real = define("real", (s, f), nestor.sum(tapered[s, t] * nestor.cos(angle), over=t))
    imag = define("imag", (s, f), -nestor.sum(tapered[s, t] * nestor.sin(angle), over=t))
    held = (g <= f) & (f + g < half)
    pair_real = real[s, f] * real[s, g] - imag[s, f] * imag[s, g]
    pair_imag = real[s, f] * imag[s, g] + imag[s, f] * real[s, g]
    both_real = nestor.mean(pair_real * real[s, f + g] + pair_imag * imag[s, f + g], over=s, where=held)
    both_imag = nestor.mean(pair_imag * real[s, f + g] - pair_real * imag[s, f + g], over=s, where=held)
    return define("level", (f, g), nestor.select(held, both_real, 0.0)), define("turned", (f, g), nestor.select(held, both_imag, 0.0))


def bispectrum_torch(signal):
    half = signal.shape[1] // 2
    window = torch.hann_window(2 * half, device=signal.device, dtype=signal.dtype)
    wave = torch.fft.rfft((signal - signal.mean(1, keepdim=True)) * window)[:, :half]
    one = torch.arange(half, device=signal.device)
    total = one[:, None] + one
    mean = (wave[:, :, None] * wave[:, None] * wave[:, total.clamp(max=half - 1)].conj()).mean(0)
    mean = torch.where((one <= one[:, None]) & (total < half), mean, 0)
    return mean.real.contiguous(), mean.imag.contiguous()


# ---------------------------------------------------------------------------------------------- biology: kinship

people, words = Size("people", 1501), Size("words", 250)
i, j, s = indices(i=people, j=people, s=16 * words)


@nestor.nest
def kinship_matrix(genotype: i32[people, words]):
    """How related people are, from packed pairs of bits: counts of an allele, centred and scaled by its frequency; 3 says that it is missing."""
    code = (genotype[i, s // 16] >> (2 * (s % 16))) & 3
    seen = define("seen", (i, s), nestor.select(code == 3, 0.0, 1.0))
    count = define("count", (i, s), nestor.select(code == 3, 0.0, nestor.cast(f32, code)))
    share = define("share", s, nestor.sum(count[i, s], over=i) / nestor.maximum(2 * nestor.sum(seen[i, s], over=i), 1.0))
    spread = nestor.rsqrt(nestor.maximum(2 * share[s] * (1 - share[s]), 1e-3))
    centred = define("centred", (i, s), seen[i, s] * (count[i, s] - 2 * share[s]) * spread)
    number = nestor.sum(seen[i, s] * seen[j, s], over=s)
    return define("out", (i, j), nestor.sum(centred[i, s] * centred[j, s], over=s) / nestor.maximum(number, 1.0)), share


def kinship_matrix_torch(genotype):
    shift = 2 * torch.arange(16, device=genotype.device, dtype=torch.int32)
    code = ((genotype[..., None] >> shift) & 3).flatten(1)
    seen = (code != 3).to(torch.get_default_dtype())
    count = code * seen
    share = count.sum(0) / (2 * seen.sum(0)).clamp(min=1)
    centred = seen * (count - 2 * share) * (2 * share * (1 - share)).clamp(min=1e-3).rsqrt()
    return centred @ centred.mT / (seen @ seen.mT).clamp(min=1), share


# ---------------------------------------------------------------------------------------------- finance: barriers

paths, moves = Size("paths", 200003), Size("moves", 50)
n, t, w = indices(n=paths, t=moves, w=moves + 1)


@nestor.nest
def barrier_option(normal: f32[moves, paths], spot: f32[()], swing: nestor.Scalar(0.25, min=0.01), years: nestor.Scalar(1.0, min=0.01),
                   strike=100.0, barrier=130.0, rate=0.03):
    """A call that is lost where prices touch a barrier: also between two moves, by chance. A mean over paths and its error."""
    time = define("time", (), years / nestor.cast(f32, moves))
    drift = (rate - 0.5 * swing * swing) * time[()]
    level = define("level", (w, n), nestor.log(spot[()]), where=w == 0)
    safe = define("safe", (w, n), 1.0, where=w == 0)
    top = nestor.log(barrier)
    with nestor.steps(t):
        level.write((t, n), (t + 1, n), level[t, n] + drift + swing * nestor.sqrt(time[()]) * normal[t, n])
        one, two = top - level[t, n], top - level[t + 1, n]
        stays = nestor.select((one > 0) & (two > 0), 1 - nestor.exp(-2 * one * two / (swing * swing * time[()])), 0.0)
        safe.write((t, n), (t + 1, n), safe[t, n] * stays)
    worth = define("worth", n, nestor.exp(-rate * years) * safe[moves, n] * nestor.relu(nestor.exp(level[moves, n]) - strike))
    price = define("price", (), nestor.mean(worth[n], over=n))
    return price, define("error", (), nestor.sqrt(nestor.mean((worth[n] - price[()]) ** 2, over=n) / nestor.cast(f32, paths)))


def barrier_option_torch(normal, spot, swing=0.25, years=1.0, strike=100.0, barrier=130.0, rate=0.03):
    time = years / len(normal)
    level = spot.log() + torch.cumsum((rate - 0.5 * swing * swing) * time + swing * time**0.5 * normal, 0)
    gap = math.log(barrier) - torch.cat([spot.log().expand(1, normal.shape[1]), level])
    one, two = gap[:-1], gap[1:]
    stays = torch.where((one > 0) & (two > 0), -torch.expm1(-2 * one * two / (swing * swing * time)), 0.0)
    worth = math.exp(-rate * years) * stays.prod(0) * F.relu(level[-1].exp() - strike)
    return worth.mean(), worth.std(correction=0) / normal.shape[1]**0.5


def packed(normal, _):
    """Words of 32 random bits."""
    return torch.floor(normal * 5e8).clamp(-2**31, 2**31 - 1000)


def log_of_seen(normal, _):
    """About the logarithm of how many keys a causal query sees."""
    return torch.arange(1, normal.shape[-1] + 1, device=normal.device).log() + 1 + 0.1 * normal


def filters(size, taps):
    """Draws filters whose sums over a size of channels and their taps are about 1."""
    return lambda normal, sizes: normal / (taps * sizes.get(size, 1))**0.5


OPERATORS = [
    Operator(drafted_window_decoding, drafted_window_decoding_torch, "OpenAI, gpt-oss, 2025; Leviathan et al., Speculative decoding, 2023",
             {"batch": 3, "kv_heads": 2, "group": 3, "drafts": 2, "length": 13, "head": 5},
             draw={"first": lambda normal, sizes: ((0.5 + 0.2 * normal).clamp(0, 1) * (sizes["length"] - sizes["drafts"])).floor()}),
    Operator(sink_attention_backward, sink_attention_backward_torch, "OpenAI, gpt-oss, 2025; Xiao et al., Attention sinks, 2023",
             {"kv_heads": 2, "group": 3, "length": 9, "head": 5}, draw={"spread": log_of_seen, "out": lambda normal, _: 0.2 * normal}),
    Operator(vertical_slash_scores, vertical_slash_scores_torch, "Jiang et al., MInference 1.0, 2024", {"heads": 2, "last": 3, "length": 11, "head": 5}),
    Operator(scalable_softmax_attention, scalable_softmax_attention_torch, "Nakanishi, Scalable-softmax is superior for attention, 2025",
             {"batch": 2, "heads": 3, "length": 9, "head": 5}, draw={"speed": lambda normal, _: 0.4 + 0.05 * normal}),
    Operator(mixture_of_heads_attention, mixture_of_heads_attention_torch, "Jin et al., MoH, 2024", {"batch": 2, "tokens": 7, "heads": 3, "head": 5, "width": 11},
             draw={"taken": lambda normal, _: normal > -0.6, "weight": lambda normal, sizes: normal / (sizes["heads"] * sizes["head"])**0.5}),
    Operator(rolling_frame_attention, rolling_frame_attention_torch, "Yin et al., CausVid, 2025; Huang et al., Self forcing, 2025", {"heads": 1, "frames": 8, "head": 3},
             flex=rolling_frame_attention_flex, seen=rolling_frames),
    Operator(two_in_four_linear, two_in_four_linear_torch, "Mishra et al., Accelerating sparse deep neural networks, 2021", {"rows": 3, "words": 2, "outs": 5},
             draw={"places": packed, "kept": lambda normal, sizes: normal / (16 * sizes["words"])**0.5}),
    Operator(greedy_words, greedy_words_torch, "Gemma team, Gemma 2, 2024; Radford et al., GPT-2, 2019", {"tokens": 5, "words": 13, "width": 7},
             draw={"gain": around_one, "table": divided("width")}),
    Operator(many_users_linear, many_users_linear_torch, "Chen et al., Punica, 2023; Sheng et al., S-LoRA, 2023", {"tokens": 7, "ins": 11, "outs": 9, "adapters": 3, "rank": 2},
             draw={"weight": divided("ins"), "down": divided("ins"), "up": divided("rank"), "scale": around_one,
                   "user": lambda normal, sizes: (normal.abs() * sizes["adapters"] / 2).floor().clamp(max=sizes["adapters"]) - 1}),
    Operator(joined_branches_out, joined_branches_out_torch, "Black Forest Labs, FLUX.1, 2024", {"batch": 2, "tokens": 5, "width": 7}, draw={"weight": divided("width")}),
    Operator(int4_by_int8_linear, int4_by_int8_linear_torch, "Lin et al., QServe, 2024; Zhang et al., QQQ, 2024", {"rows": 5, "groups": 3, "outs": 7},
             draw={"bits": packed, "scale": lambda normal, _: 0.01 * (1 + 0.1 * normal)}),
    Operator(linear_policy_loss, linear_policy_loss_torch, "Shao et al., DeepSeekMath, 2024; Yu et al., DAPO, 2025; Hsu et al., Liger kernel, 2024",
             {"tokens": 7, "words": 13, "width": 11},
             draw={"table": divided("width"), "word": lambda normal, sizes: (normal.abs() * sizes["words"] / 4).floor().clamp(max=sizes["words"] - 1),
                   "counts": lambda normal, _: normal > -1,
                   "old": lambda normal, sizes: 0.5 * normal - math.log(sizes["words"]), "reference": lambda normal, sizes: 0.5 * normal - math.log(sizes["words"])}),
    Operator(normuon_step, normuon_step_torch, "Li et al., NorMuon, 2025", {"rows": 5, "width": 7},
             draw={"update": divided("width"), "moment": lambda normal, sizes: (1 + 0.1 * torch.tanh(normal)) / sizes["width"]}),
    Operator(stable_adamw_step, stable_adamw_step_torch, "Wortsman et al., Stable and low-precision training, 2023", {"rows": 5, "width": 7},
             draw={"first": lambda normal, _: 0.1 * normal, "second": lambda normal, _: 0.1 * (1 + normal * normal), "step": lambda normal, _: 100 + 0 * normal}),
    Operator(filter_response_backward, filter_response_backward_torch, "Singh and Krishnan, Filter response normalization layer, 2019",
             {"images": 2, "tall": 3, "wide": 5, "width": 7}, draw={"gain": around_one, "bias": lambda normal, _: 0.1 * normal, "least": lambda normal, _: 0.1 * normal - 0.5}),
    Operator(lightning_chunks, lightning_chunks_torch, "Qin et al., Lightning attention-2, 2024; MiniMax, MiniMax-01, 2025", {"streams": 2, "chunks": 3, "chunk": 4, "dim": 5},
             draw={"pace": lambda normal, _: 0.05 * (1 + normal * normal), "key": divided("dim")}),
    Operator(state_space_layer, state_space_layer_torch, "Dao and Gu, Transformers are SSMs, 2024", {"batch": 2, "chunks": 3, "chunk": 4, "heads": 3, "dim": 5, "state": 7},
             draw={"write": divided("state"), "offset": lambda normal, _: normal - 3, "rate": lambda normal, _: 1 + torch.sigmoid(normal), "skip": around_one}),
    Operator(gated_delta_layer, gated_delta_layer_torch, "Yang et al., Gated delta networks, 2024; Qwen team, Qwen3-Next, 2025", {"streams": 2, "chunks": 3, "chunk": 4, "dim": 5},
             draw={"key": lambda normal, _: F.normalize(normal, dim=-1), "decay": lambda normal, _: -0.05 * (1 + torch.sigmoid(normal)),
                   "rate": lambda normal, _: torch.sigmoid(normal)}),
    Operator(star_block, star_block_torch, "Ma et al., Rewrite the stars, 2024", {"images": 2, "width": 3, "tall": 5, "wide": 7},
             draw={"first": filters("", 49), "last": filters("", 49), "left": divided("width"), "right": divided("width"), "back": divided("width")}),
    Operator(convex_upsampling, convex_upsampling_torch, "Teed and Deng, RAFT, 2020", {"images": 2, "tall": 3, "wide": 5}),
    Operator(causal_video_conv, causal_video_conv_torch, "Wan team, Wan, 2025", {"batch": 1, "width": 3, "outs": 5, "frames": 3, "tall": 4, "wide": 5},
             draw={"gain": around_one, "weight": filters("width", 27)}),
    Operator(bispectrum, bispectrum_torch, "Kim and Powers, Digital bispectral analysis, 1979", {"pieces": 3, "half": 7}),
    Operator(kinship_matrix, kinship_matrix_torch, "VanRaden, 2008; Yang et al., GCTA, 2011", {"people": 7, "words": 3}, draw={"genotype": packed}),
    Operator(barrier_option, barrier_option_torch, "Broadie et al., A continuity correction, 1997; Glasserman, Monte Carlo methods in financial engineering, 2003",
             {"paths": 11, "moves": 5}, draw={"spot": lambda normal, _: 110 + 0 * normal}),
]
