"""Operators from many fields: tropical and interpolated attention, memories of other norms, gradients of routers and gated recurrences, four bits beside
low ranks, caches that expect queries, blocks of drafts, preferences by token, returns in two bins; whitening, reassembly, vessels, radiosity,
reverberation, shrunk covariances, scattered X-rays, forward rates, linked genes, superposed molecules, regulators, sparse retrieval, vortices, pairs."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, boolean, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

# ---------------------------------------------------------------------------------------------- reasoning: tropical attention

streams, tokens, head = Size("streams", 24), Size("tokens", 500), Size("head", 64, fixed=True)
n, i, j, e, d = indices(n=streams, i=tokens, j=tokens, e=head, d=head)


@nestor.nest
def tropical_attention(query: bf16[streams, tokens, head], key: bf16[streams, tokens, head], value: bf16[streams, tokens, head]):
    """Scores by Hilbert's projective metric, and a max-plus product in place of the weighted mean."""
    apart = query[n, i, e] - key[n, j, e]
    score = define("score", (n, i, j), nestor.min(apart, over=e) - nestor.max(apart, over=e))
    return define("out", (n, i, d), nestor.max(score[n, i, j] + value[n, j, d], over=j), type=bf16)


def tropical_attention_torch(query, key, value):
    apart = widened(query)[:, :, None] - widened(key)[:, None]
    score = apart.amin(-1) - apart.amax(-1)
    return (score[..., None] + widened(value)[:, None]).amax(2).to(value.dtype)


# ---------------------------------------------------------------------------------------------- language models: FIRE

batch, heads, length, head, hidden = Size("batch", 2), Size("heads", 12), Size("length", 1400), Size("head", 64, fixed=True), Size("hidden", 32, fixed=True)
b, h, q, k, e, d, u = indices(b=batch, h=heads, q=length, k=length, e=head, d=head, u=hidden)


@nestor.nest
def interpolated_position_attention(query: bf16[batch, heads, length, head], key: bf16[batch, heads, length, head], value: bf16[batch, heads, length, head],
                                    first: f32[hidden], shift: f32[hidden], second: f32[heads, hidden], stretch: f32[()], least: f32[()]):
    """The bias of a pair is a small network of its distance, on a logarithmic scale, relative to the query's place or to a learned threshold."""
    far = nestor.log(stretch * nestor.cast(f32, q - k) + 1) / nestor.log(stretch * nestor.maximum(nestor.cast(f32, q), least) + 1)
    bias = define("bias", (h, q, k), nestor.sum(second[h, u] * nestor.relu(first[u] * far + shift[u]), over=u), where=k <= q)
    score = define("score", (b, h, q, k), nestor.sum(query[b, h, q, e] * key[b, h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)) + bias[h, q, k], where=k <= q)
    top = nestor.max(score[b, h, q, k], over=k, where=k <= q)
    power = define("power", (b, h, q, k), nestor.exp(score[b, h, q, k] - top), where=k <= q)
    total = nestor.sum(power[b, h, q, k], over=k, where=k <= q)
    return define("out", (b, h, q, d), nestor.sum(power[b, h, q, k] * value[b, h, k, d], over=k, where=k <= q) / total, type=bf16)


def interpolated_position_attention_torch(query, key, value, first, shift, second, stretch, least):
    place = torch.arange(query.shape[2], device=query.device, dtype=first.dtype)
    far = (stretch * (place[:, None] - place).clamp(min=0) + 1).log() / (stretch * torch.maximum(place, least) + 1).log()[:, None]
    bias = (torch.relu(far[..., None] * first + shift) @ second.mT).permute(2, 0, 1)
    bias = bias.masked_fill(place[:, None] < place, -torch.inf)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype)[None])


# ---------------------------------------------------------------------------------------------- language models: Moneta

streams, steps, head = Size("streams", 128), Size("steps", 64), Size("head", 64, fixed=True)
n, t, d, e = indices(n=streams, t=steps, d=head, e=head)


@nestor.nest
def cubic_memory_steps(query: bf16[streams, steps, head], key: bf16[streams, steps, head], value: bf16[streams, steps, head],
                       forget: f32[streams, steps], rate: f32[streams, steps], start: f32[head, head], eps=1e-6):
    """A matrix learns to give values for keys by gradients of cubed errors, is kept within a norm of fourth powers, and answers queries."""
    (at,) = indices(at=steps + 1)
    memory = define("memory", (n, at, d, e), start[d, e], where=at == 0)
    with nestor.steps(n, t):
        size = define("size", (n, t), nestor.sqrt(nestor.sum(memory[n, t, d, e] ** 4, over=(d, e))) + eps)
        error = define("error", (n, t, d), nestor.sum(memory[n, t, d, e] * key[n, t, e], over=e) / size[n, t] - value[n, t, d])
        memory.write((n, t, d, e), (n, t + 1, d, e), forget[n, t] * memory[n, t, d, e] - 3 * rate[n, t] * error[n, t, d] * nestor.absolute(error[n, t, d]) * key[n, t, e])
    after = nestor.sqrt(nestor.sum(memory[n, t + 1, d, e] ** 4, over=(d, e))) + eps
    return define("out", (n, t, d), nestor.sum(memory[n, t + 1, d, e] * query[n, t, e], over=e) / after, type=bf16)


def cubic_memory_steps_torch(query, key, value, forget, rate, start, eps=1e-6):
    # a recurrence that no parallel form is known for
    memory = start.expand(len(query), -1, -1)
    of_key, wanted, asked = widened(key), widened(value), widened(query)
    size = lambda: memory.square().square().sum((1, 2)).sqrt()[:, None] + eps
    out, held = [], size()
    for t in range(query.shape[1]):
        error = (memory @ of_key[:, t, :, None])[..., 0] / held - wanted[:, t]
        memory = forget[:, t, None, None] * memory - (3 * rate[:, t, None] * error * error.abs())[..., None] * of_key[:, t, None]
        held = size()
        out.append((memory @ asked[:, t, :, None])[..., 0] / held)
    return torch.stack(out, 1).to(value.dtype)


# ---------------------------------------------------------------------------------------------- language models: what a router learns from

tokens, experts, width, chosen = Size("tokens", 8000), Size("experts", 64), Size("width", 2048), Size("chosen", 6)
t, x, o, c = indices(t=tokens, x=experts, o=experts, c=width)


@nestor.nest(require=chosen <= experts)
def router_gradients(hidden: bf16[tokens, width], gate: f32[experts, width], slope: f32[tokens, experts], balance=0.01, flat=0.001):
    """Softmax, the best experts, their shares renormalised, a loss of balance and one of large logits: backward to tokens and router."""
    logit = define("logit", (t, x), nestor.sum(hidden[t, c] * gate[x, c], over=c))
    top = define("top", t, nestor.max(logit[t, x], over=x))
    total = define("total", t, nestor.sum(nestor.exp(logit[t, x] - top[t]), over=x))
    share = define("share", (t, x), nestor.exp(logit[t, x] - top[t]) / total[t])
    rank = define("rank", (t, x), nestor.sum(nestor.select(logit[t, o] > logit[t, x], 1, 0), over=o))
    taken = define("taken", (t, x), rank[t, x] < chosen, type=boolean)
    load = define("load", x, nestor.sum(nestor.cast(i32, taken[t, x]), over=t))
    held = define("held", t, nestor.sum(nestor.select(taken[t, x], share[t, x], 0.0), over=x))
    mean = define("mean", t, nestor.sum(nestor.select(taken[t, x], slope[t, x] * share[t, x], 0.0), over=x) / held[t])
    d_share = define("d_share", (t, x), nestor.select(taken[t, x], (slope[t, x] - mean[t]) / held[t], 0.0)
                     + balance * experts * nestor.cast(f32, load[x]) / (nestor.cast(f32, tokens) * nestor.cast(f32, tokens) * chosen))
    around = nestor.sum(d_share[t, x] * share[t, x], over=x)
    spread = nestor.log(total[t]) + top[t]
    d_logit = define("d_logit", (t, x), share[t, x] * (d_share[t, x] - around + 2 * flat * spread / nestor.cast(f32, tokens)))
    d_hidden = define("d_hidden", (t, c), nestor.sum(d_logit[t, x] * gate[x, c], over=x), type=bf16)
    d_gate = define("d_gate", (x, c), nestor.sum(d_logit[t, x] * hidden[t, c], over=t))
    return d_hidden, d_gate, load


def router_gradients_torch(hidden, gate, slope, balance=0.01, flat=0.001, chosen=6):
    count, experts_ = slope.shape
    wide = widened(hidden)
    logit = wide @ gate.mT
    share, spread = logit.softmax(1), logit.logsumexp(1, keepdim=True)
    taken = torch.zeros_like(logit, dtype=torch.bool).scatter(1, logit.topk(chosen, 1).indices, True)
    load = taken.sum(0)
    held = (share * taken).sum(1, keepdim=True)
    mean = (slope * share * taken).sum(1, keepdim=True) / held
    d_share = torch.where(taken, (slope - mean) / held, 0.0) + balance * experts_ / (count * count * chosen) * load
    d_logit = share * (d_share - (d_share * share).sum(1, keepdim=True) + 2 * flat / count * spread)
    return (d_logit @ gate).to(hidden.dtype), d_logit.mT @ wide, load.to(torch.int32)


# ---------------------------------------------------------------------------------------------- diffusion: SVDQuant

rows, groups, outs, rank = Size("rows", 2000), Size("groups", 48), Size("outs", 3072), Size("rank", 32, fixed=True)
i, o, g, u, c, r = indices(i=rows, o=outs, g=groups, u=64, c=64 * groups, r=rank)


@nestor.nest
def low_rank_four_bit_linear(x: bf16[rows, 64 * groups], smooth: f32[64 * groups], down: bf16[64 * groups, rank], up: bf16[rank, outs],
                             bits: i32[outs, 8 * groups], scale: bf16[outs, groups], bias: bf16[outs]):
    """Smoothed activations go through a branch of low rank in 16 bits, and, in four bits of groups, through weights of four bits."""
    even = define("even", (i, c), x[i, c] / smooth[c])
    own = define("own", (i, g), nestor.maximum(nestor.max(nestor.absolute(even[i, 64 * g + u]), over=u) / 7, 1e-6))
    level = define("level", (i, c), nestor.clamp(nestor.round(even[i, c] / own[i, c // 64]), -7.0, 7.0))
    weight = nestor.cast(f32, ((bits[o, c // 8] >> (4 * (c % 8))) & 15) - 8) * scale[o, c // 64]
    coarse = define("coarse", (i, o), nestor.sum(level[i, c] * own[i, c // 64] * weight, over=c))
    low = define("low", (i, r), nestor.sum(even[i, c] * down[c, r], over=c))
    return define("out", (i, o), coarse[i, o] + nestor.sum(low[i, r] * up[r, o], over=r) + bias[o], type=bf16)


def low_rank_four_bit_linear_torch(x, smooth, down, up, bits, scale, bias):
    even = widened(x) / smooth
    parts = even.unflatten(1, (-1, 64))
    own = (parts.abs().amax(2, keepdim=True) / 7).clamp(min=1e-6)
    coarse = ((parts / own).round().clamp(-7, 7) * own).flatten(1).to(x.dtype)
    shift = 4 * torch.arange(8, device=bits.device, dtype=torch.int32)
    weight = (((bits[..., None] >> shift) & 15) - 8).flatten(1).to(x.dtype).unflatten(1, (-1, 64)) * scale[..., None]
    return F.linear(coarse, weight.flatten(1), bias) + (even.to(x.dtype) @ down) @ up


# ---------------------------------------------------------------------------------------------- language models: expected attention

kv_heads, group, recent, length, head = Size("kv_heads", 8), Size("group", 4, fixed=True), Size("recent", 512), Size("length", 8000), Size("head", 128, fixed=True)
h, g, t, j, l, e, f = indices(h=kv_heads, g=group, t=recent, j=length, l=length, e=head, f=head)


@nestor.nest
def expected_attention_scores(query: bf16[kv_heads, group, recent, head], key: bf16[kv_heads, length, head], value: bf16[kv_heads, length, head], floor_=1e-4):
    """Which of a cache's tokens may go: what queries of a normal distribution would attend to each, times the length of its value."""
    mean = define("mean", (h, g, e), nestor.mean(query[h, g, t, e], over=t))
    spread = define("spread", (h, g, e, f), nestor.mean((query[h, g, t, e] - mean[h, g, e]) * (query[h, g, t, f] - mean[h, g, f]), over=t))
    turned = define("turned", (h, g, j, e), nestor.sum(spread[h, g, e, f] * key[h, j, f], over=f))
    straight = nestor.sum(mean[h, g, e] * key[h, j, e], over=e) * nestor.rsqrt(nestor.cast(f32, head))
    score = define("score", (h, g, j), straight + 0.5 * nestor.sum(turned[h, g, j, e] * key[h, j, e], over=e) / nestor.cast(f32, head))
    top = define("top", (h, g), nestor.max(score[h, g, j], over=j))
    total = define("total", (h, g), nestor.sum(nestor.exp(score[h, g, j] - top[h, g]), over=j))
    size = nestor.sqrt(nestor.sum(value[h, j, e] * value[h, j, e], over=e))
    return define("out", (h, j), (nestor.mean(nestor.exp(score[h, g, j] - top[h, g]) / total[h, g], over=g) + floor_) * size)


def expected_attention_scores_torch(query, key, value, floor_=1e-4):
    wide = widened(query)
    mean = wide.mean(2, keepdim=True)
    spread = ((wide - mean).mT @ (wide - mean)) / wide.shape[2]
    keys = key[:, None]
    straight = widened(keys @ mean.to(key.dtype).mT)[..., 0] / math.sqrt(key.shape[-1])
    score = straight + 0.5 / key.shape[-1] * (widened(keys @ spread.to(key.dtype)) * keys).sum(-1)
    return (score.softmax(-1).mean(1) + floor_) * torch.linalg.vector_norm(widened(value), dim=-1)


# ---------------------------------------------------------------------------------------------- language models: blocks of drafts

rows, steps, words = Size("rows", 96), Size("steps", 7, fixed=True), Size("words", 32000)
n, s, v = indices(n=rows, s=steps, v=words)
(p,) = indices(p=steps + 1)


@nestor.nest
def block_verification(target_logit: bf16[rows, steps + 1, words], draft_logit: bf16[rows, steps, words], token: i32[rows, steps], luck: f32[rows, steps]):
    """A block of drafted tokens is verified together: how many stay, and from what the next one is drawn."""
    target_top = nestor.max(target_logit[n, p, v], over=v)
    target_power = define("target_power", (n, p, v), nestor.exp(target_logit[n, p, v] - target_top))
    target = define("target", (n, p, v), target_power[n, p, v] / nestor.sum(target_power[n, p, v], over=v))
    draft_top = nestor.max(draft_logit[n, s, v], over=v)
    draft_power = define("draft_power", (n, s, v), nestor.exp(draft_logit[n, s, v] - draft_top))
    draft = define("draft", (n, s, v), draft_power[n, s, v] / nestor.sum(draft_power[n, s, v], over=v))
    own_target = nestor.sum(nestor.select(token[n, s] == v, target[n, s, v], 0.0), over=v)
    own_draft = nestor.sum(nestor.select(token[n, s] == v, draft[n, s, v], 0.0), over=v)
    ratio = define("ratio", (n, s), own_target / own_draft)
    weight = define("weight", (n, p), 1.0, where=p == 0)
    weight.write((n, s), (n, s + 1), nestor.minimum(weight[n, s] * ratio[n, s], 1.0))
    left = define("left", (n, p, v), nestor.maximum(weight[n, p] * target[n, p, v] - draft[n, p, v], 0.0), where=p < steps)
    left.write((n, v), (n, steps, v), target[n, steps, v])
    mass = define("mass", (n, p), nestor.sum(left[n, p, v], over=v))
    chance = define("chance", (n, p), mass[n, p] / (mass[n, p] + 1 - weight[n, p] + 1e-9), where=p < steps)
    chance.write(n, (n, steps), weight[n, steps])
    stay = define("stay", n, nestor.max(nestor.select(luck[n, s] <= chance[n, s + 1], s + 1, 0), over=s))
    out = define("out", (n, v), nestor.sum(nestor.select(stay[n] == p, left[n, p, v] / (mass[n, p] + 1e-9), 0.0), over=p))
    return stay, out


def block_verification_torch(target_logit, draft_logit, token, luck):
    steps_ = token.shape[1]
    target, draft = widened(target_logit).softmax(-1), widened(draft_logit).softmax(-1)
    places = token.long()[..., None]
    ratio = (target[:, :-1].gather(2, places) / draft.gather(2, places))[..., 0]
    weight = [torch.ones_like(ratio[:, 0])]
    for s in range(steps_):
        weight.append((weight[-1] * ratio[:, s]).clamp(max=1))
    weight = torch.stack(weight, 1)
    left = (weight[..., None] * target - F.pad(draft, (0, 0, 0, 1))).clamp(min=0)
    mass = left.sum(-1)
    chance = torch.cat([mass[:, 1:-1] / (mass[:, 1:-1] + 1 - weight[:, 1:-1] + 1e-9), weight[:, -1:]], 1)
    stay = torch.where(luck <= chance, torch.arange(1, steps_ + 1, device=token.device), 0).amax(1)
    last = (stay == steps_)[:, None]
    rest = torch.where(last, target[:, -1], left.gather(1, stay[:, None, None].expand(-1, 1, left.shape[2]))[:, 0])
    return stay.to(torch.int32), rest / (rest.sum(1, keepdim=True) + 1e-9)


# ---------------------------------------------------------------------------------------------- language models: TDPO

pairs, tokens, words = Size("pairs", 4), Size("tokens", 230), Size("words", 32000)
n, a, t, v = indices(n=pairs, a=2, t=tokens, v=words)


@nestor.nest
def token_preference_loss(logit: bf16[pairs, 2, tokens, words], old_logit: bf16[pairs, 2, tokens, words], label: i32[pairs, 2, tokens],
                          counts: boolean[pairs, 2, tokens], beta=0.1, alpha=0.5):
    """Preferences with each token's divergence from the reference over all words: the chosen answer is 0, the rejected one 1."""
    def log_shares(name, logit):
        top = nestor.max(logit[n, a, t, v], over=v)
        spread = define(f"{name}_spread", (n, a, t), top + nestor.log(nestor.sum(nestor.exp(logit[n, a, t, v] - top), over=v)))
        return define(name, (n, a, t, v), logit[n, a, t, v] - spread[n, a, t])

    new, old = log_shares("new", logit), log_shares("old", old_logit)
    gap = old[n, a, t, v] - new[n, a, t, v]
    own = define("own", (n, a, t), -nestor.sum(nestor.select(label[n, a, t] == v, gap, 0.0), over=v))
    away = define("away", (n, a, t), nestor.sum(nestor.exp(old[n, a, t, v]) * gap, over=v))
    reward = define("reward", (n, a), nestor.sum(nestor.select(counts[n, a, t], own[n, a, t], 0.0), over=t))
    drift = define("drift", (n, a), nestor.sum(nestor.select(counts[n, a, t], away[n, a, t], 0.0), over=t))
    margin = beta * (reward[n, 0] - reward[n, 1] - alpha * (drift[n, 1] - drift[n, 0]))
    loss = define("loss", n, nestor.softplus(-margin))
    return define("mean", (), nestor.mean(loss[n], over=n)), loss, drift


def token_preference_loss_torch(logit, old_logit, label, counts, beta=0.1, alpha=0.5):
    new, old = widened(logit).log_softmax(-1), widened(old_logit).log_softmax(-1)
    gap = old - new
    reward = -(gap.gather(-1, label.long()[..., None])[..., 0] * counts).sum(2)
    drift = ((old.exp() * gap).sum(-1) * counts).sum(2)
    loss = F.softplus(-beta * (reward[:, 0] - reward[:, 1] - alpha * (drift[:, 1] - drift[:, 0])))
    return loss.mean(), loss, drift


# ---------------------------------------------------------------------------------------------- training: Prodigy

rows, width = Size("rows", 4000), Size("width", 4096)
i, c = indices(i=rows, c=width)


@nestor.nest
def prodigy_step(weight: f32[rows, width], first: f32[rows, width], gradient: f32[rows, width], moment: f32[rows, width], square: f32[rows, width],
                 way: f32[rows, width], distance: f32[()], toward: f32[()], rate=1.0, fast=0.9, slow=0.999, eps=1e-8):
    """Adam whose step is an estimate of how far the solution is, from two sums over all weights."""
    root = nestor.sqrt(slow)
    new_moment = define("new_moment", (i, c), fast * moment[i, c] + (1 - fast) * distance * gradient[i, c])
    new_square = define("new_square", (i, c), slow * square[i, c] + (1 - slow) * distance * distance * gradient[i, c] * gradient[i, c])
    met = nestor.sum(gradient[i, c] * (first[i, c] - weight[i, c]), over=(i, c))
    new_toward = define("new_toward", (), root * toward + (1 - root) * rate * distance * distance * met)
    new_way = define("new_way", (i, c), root * way[i, c] + (1 - root) * rate * distance * distance * gradient[i, c])
    new_distance = define("new_distance", (), nestor.maximum(distance[()], new_toward / nestor.sum(nestor.absolute(new_way[i, c]), over=(i, c))))
    new_weight = define("new_weight", (i, c), weight[i, c] - rate * distance * new_moment[i, c] / (nestor.sqrt(new_square[i, c]) + distance * eps))
    return new_weight, new_moment, new_square, new_way, new_distance, new_toward


def prodigy_step_torch(weight, first, gradient, moment, square, way, distance, toward, rate=1.0, fast=0.9, slow=0.999, eps=1e-8):
    root = math.sqrt(slow)
    moment = fast * moment + (1 - fast) * distance * gradient
    square = slow * square + (1 - slow) * distance * distance * gradient * gradient
    toward = root * toward + (1 - root) * rate * distance * distance * (gradient * (first - weight)).sum()
    way = root * way + (1 - root) * rate * distance * distance * gradient
    longer = torch.maximum(distance, toward / way.abs().sum())
    return weight - rate * distance * moment / (square.sqrt() + distance * eps), moment, square, way, longer, toward


# ---------------------------------------------------------------------------------------------- language models: Griffin, backward

batch, times, width = Size("batch", 8), Size("times", 500), Size("width", 1280)
b, t, c = indices(b=batch, t=times, c=width)


@nestor.nest
def gated_unit_gradients(x: bf16[batch, times, width], keep: bf16[batch, times, width], enter: bf16[batch, times, width], decay: f32[width],
                         slope: bf16[batch, times, width]):
    """The real-gated linear recurrent unit: its states again, and gradients of its input, of both gates and of the decay."""
    (at,) = indices(at=times + 1)
    kept = define("kept", (b, t, c), nestor.sigmoid(keep[b, t, c]))
    let = define("let", (b, t, c), nestor.sigmoid(enter[b, t, c]))
    a = define("a", (b, t, c), nestor.exp(-8 * nestor.softplus(decay[c]) * kept[b, t, c]))
    rest = define("rest", (b, t, c), nestor.sqrt(1 - a[b, t, c] * a[b, t, c] + 1e-6))
    state = define("state", (b, at, c), 0.0, where=at == 0)
    state.write((b, t, c), (b, t + 1, c), a[b, t, c] * state[b, t, c] + rest[b, t, c] * let[b, t, c] * x[b, t, c])
    back = define("back", (b, at, c), 0.0, where=at == 0)  # at: steps from the end
    later = nestor.select(t == 0, 0.0, a[b, times - t, c] * back[b, t, c])
    back.write((b, t, c), (b, t + 1, c), slope[b, times - 1 - t, c] + later)
    steep = define("steep", (b, t, c), back[b, times - t, c])
    d_x = define("d_x", (b, t, c), steep[b, t, c] * rest[b, t, c] * let[b, t, c], type=bf16)
    d_enter = define("d_enter", (b, t, c), steep[b, t, c] * rest[b, t, c] * x[b, t, c] * let[b, t, c] * (1 - let[b, t, c]), type=bf16)
    inner = define("inner", (b, t, c), steep[b, t, c] * (state[b, t, c] - a[b, t, c] / rest[b, t, c] * let[b, t, c] * x[b, t, c]) * a[b, t, c] * -8)
    d_keep = define("d_keep", (b, t, c), inner[b, t, c] * nestor.softplus(decay[c]) * kept[b, t, c] * (1 - kept[b, t, c]), type=bf16)
    d_decay = define("d_decay", c, nestor.sum(inner[b, t, c] * kept[b, t, c], over=(b, t)) * nestor.sigmoid(decay[c]))
    return d_x, d_keep, d_enter, d_decay


def gated_unit_gradients_torch(x, keep, enter, decay, slope):
    # both recurrences as scans by doubling
    def scan(a, given):
        by = 1
        while by < a.shape[1]:
            given = torch.cat([given[:, :by], given[:, by:] + a[:, by:] * given[:, :-by]], 1)
            a = torch.cat([a[:, :by], a[:, by:] * a[:, :-by]], 1)
            by *= 2
        return given

    kept, let, wide = torch.sigmoid(widened(keep)), torch.sigmoid(widened(enter)), widened(x)
    a = torch.exp(-8 * F.softplus(decay) * kept)
    rest = (1 - a * a + 1e-6).sqrt()
    state = F.pad(scan(a, rest * let * wide), (0, 0, 1, 0))[:, :-1]
    steep = scan(F.pad(a[:, 1:], (0, 0, 0, 1)).flip(1), widened(slope).flip(1)).flip(1)
    inner = steep * (state - a / rest * let * wide) * a * -8
    d_enter = steep * rest * wide * let * (1 - let)
    d_keep = inner * F.softplus(decay) * kept * (1 - kept)
    return (steep * rest * let).to(x.dtype), d_keep.to(x.dtype), d_enter.to(x.dtype), (inner * kept).sum((0, 1)) * torch.sigmoid(decay)


# ---------------------------------------------------------------------------------------------- reinforcement learning: DreamerV3

times, batch, bins = Size("times", 48), Size("batch", 6000), Size("bins", 255)
t, n, k = indices(t=times, n=batch, k=bins)
(at,) = indices(at=times + 1)


@nestor.nest(require=bins >= 2)
def two_hot_returns(logit: bf16[times + 1, batch, bins], reward: f32[times, batch], goes_on: f32[times, batch], discount=0.997, trace=0.95, reach=20.0):
    """Values from bins on a symmetric logarithmic scale, returns of mixed length, and the cross entropy to the two bins beside each."""
    gap = 2 * reach / nestor.cast(f32, bins - 1)
    middle = nestor.cast(f32, k) * gap - reach
    top = nestor.max(logit[at, n, k], over=k)
    total = define("total", (at, n), nestor.sum(nestor.exp(logit[at, n, k] - top), over=k))
    spread = define("spread", (at, n), top + nestor.log(total[at, n]))
    short = nestor.sum(nestor.exp(logit[at, n, k] - spread[at, n]) * middle, over=k)
    value = define("value", (at, n), nestor.sign(short) * nestor.expm1(nestor.absolute(short)))
    gain = define("gain", (at, n), value[times, n], where=at == times)
    gain.write((t, n), (times - 1 - t, n), reward[times - 1 - t, n] + discount * goes_on[times - 1 - t, n] * ((1 - trace) * value[times - t, n] + trace * gain[times - t, n]))
    small = nestor.clamp(nestor.sign(gain[t, n]) * nestor.log1p(nestor.absolute(gain[t, n])), -reach, reach)
    aim = nestor.maximum(1 - nestor.absolute(small - middle) / gap, 0.0)
    loss = define("loss", (t, n), -nestor.sum(aim * (logit[t, n, k] - spread[t, n]), over=k))
    out = define("out", (t, n), gain[t, n])
    return define("mean", (), nestor.mean(loss[t, n], over=(t, n))), out, loss


def two_hot_returns_torch(logit, reward, goes_on, discount=0.997, trace=0.95, reach=20.0):
    log_share = widened(logit).log_softmax(-1)
    count = logit.shape[-1]
    gap = 2 * reach / (count - 1)
    middle = torch.arange(count, device=logit.device, dtype=log_share.dtype) * gap - reach
    short = (log_share.exp() * middle).sum(-1)
    value = short.sign() * torch.expm1(short.abs())
    gain, out = value[-1], []
    for t in reversed(range(len(reward))):
        gain = reward[t] + discount * goes_on[t] * ((1 - trace) * value[t + 1] + trace * gain)
        out.append(gain)
    out = torch.stack(out[::-1])
    place = ((out.sign() * torch.log1p(out.abs())).clamp(-reach, reach) + reach) / gap
    low = place.floor().clamp(0, count - 2)
    part, low = place - low, low.long()[..., None]
    loss = -((1 - part) * log_share[:-1].gather(-1, low)[..., 0] + part * log_share[:-1].gather(-1, low + 1)[..., 0])
    return loss.mean(), out, loss


# ---------------------------------------------------------------------------------------------- vision: iterative whitening

images, groups, pixels = Size("images", 32), Size("groups", 8), Size("pixels", 3136)
n, g, s, c, e, f, o = indices(n=images, g=groups, s=pixels, c=32, e=32, f=32, o=32)
ROUNDS = 5


@nestor.nest
def whitened_channels(x: bf16[images, groups, 32, pixels], gamma: f32[groups, 32], beta: f32[groups, 32], eps=1e-3):
    """Groups of channels lose their correlations: a covariance over batch and places, Newton's iterations for its inverse root, and the product."""
    mean = define("mean", (g, c), nestor.mean(x[n, g, c, s], over=(n, s)))
    covariance = define("covariance", (g, c, e), nestor.mean((x[n, g, c, s] - mean[g, c]) * (x[n, g, e, s] - mean[g, e]), over=(n, s)) + nestor.select(c == e, eps, 0.0))
    trace = define("trace", g, nestor.sum(covariance[g, c, c], over=c))
    root = define("root0", (g, c, e), nestor.select(c == e, 1.0, 0.0))
    for k in range(ROUNDS):
        square = define(f"square{k}", (g, c, e), nestor.sum(root[g, c, f] * root[g, f, e], over=f))
        cube = define(f"cube{k}", (g, c, e), nestor.sum(square[g, c, f] * root[g, f, e], over=f))
        root = define(f"root{k + 1}", (g, c, e), 1.5 * root[g, c, e] - 0.5 * nestor.sum(cube[g, c, f] * covariance[g, f, e], over=f) / trace[g])
    white = nestor.sum(root[g, c, o] * (x[n, g, o, s] - mean[g, o]), over=o) * nestor.rsqrt(trace[g])
    return define("out", (n, g, c, s), white * gamma[g, c] + beta[g, c], type=bf16)


def whitened_channels_torch(x, gamma, beta, eps=1e-3):
    wide = widened(x)
    mean = wide.mean((0, 3), keepdim=True)
    centred = wide - mean
    rows = centred.permute(1, 2, 0, 3).flatten(2)
    covariance = rows @ rows.mT / rows.shape[2] + eps * torch.eye(32, dtype=wide.dtype, device=x.device)
    trace = covariance.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
    root = torch.eye(32, dtype=wide.dtype, device=x.device).expand_as(covariance)
    for _ in range(ROUNDS):
        root = 1.5 * root - 0.5 * root @ root @ root @ (covariance / trace)
    return ((root * trace.rsqrt()) @ centred * gamma[..., None] + beta[..., None]).to(x.dtype)


# ---------------------------------------------------------------------------------------------- vision: CARAFE

pictures, channels, tall, wide_ = Size("pictures", 4), Size("channels", 256), Size("tall", 64), Size("wide", 66)
n, c, y, x, a, b, dy, dx = indices(n=pictures, c=channels, y=tall, x=wide_, a=2, b=2, dy=5, dx=5)


@nestor.nest
def upsampled_reassembly(picture: bf16[pictures, channels, tall, wide_], mask: bf16[pictures, 100, tall, wide_]):
    """Twice as many pixels each way, each the mean of 25 around it with weights of its own, from a softmax over them."""
    place = 4 * (5 * dy + dx) + 2 * a + b
    top = define("top", (n, a, b, y, x), nestor.max(mask[n, place, y, x], over=(dy, dx)))
    power = define("power", (n, a, b, dy, dx, y, x), nestor.exp(mask[n, place, y, x] - top[n, a, b, y, x]))
    total = define("total", (n, a, b, y, x), nestor.sum(power[n, a, b, dy, dx, y, x], over=(dy, dx)))
    down, right = y + dy - 2, x + dx - 2
    inside = (down >= 0) & (down < tall) & (right >= 0) & (right < wide_)
    mixed = nestor.sum(power[n, a, b, dy, dx, y, x] / total[n, a, b, y, x] * picture[n, c, down, right], over=(dy, dx), where=inside)
    out = nestor.Tensor("out", bf16, (pictures, channels, 2 * tall, 2 * wide_))
    return out.write((n, c, y, a, x, b), (n, c, 2 * y + a, 2 * x + b), mixed)


def upsampled_reassembly_torch(picture, mask):
    share = widened(mask).unflatten(1, (25, 4)).softmax(1)
    wide = F.pad(picture, (2, 2, 2, 2))
    tall_, across = picture.shape[2:]
    mixed = sum(wide[:, :, None, k // 5:k // 5 + tall_, k % 5:k % 5 + across] * share[:, None, k] for k in range(25))
    return F.pixel_shuffle(mixed.flatten(1, 2), 2).to(picture.dtype)


# ---------------------------------------------------------------------------------------------- medical images: vessels

scans, tall, wide_ = Size("scans", 4), Size("tall", 500), Size("wide", 490)
n, y, x = indices(n=scans, y=tall, x=wide_)
SCALES = (1, 2, 3)


@nestor.nest
def vessel_filter(scan: f32[scans, tall, wide_], narrow=0.5, strong=0.2):
    """How much a pixel looks like a tube: eigenvalues of second derivatives of Gaussians, the best of three scales; nothing is beyond the edges."""
    best = None
    for scale in SCALES:
        reach = 4 * scale
        dy, dx = indices(dy=2 * reach + 1, dx=2 * reach + 1)
        v, w = (nestor.cast(f32, d - reach) / scale for d in (dy, dx))
        bell = nestor.exp(-0.5 * (v * v + w * w)) / (2 * math.pi * scale**2)
        down, right = y + dy - reach, x + dx - reach
        inside = (down >= 0) & (down < tall) & (right >= 0) & (right < wide_)

        def bend(name, factor):
            kernel = define(f"kernel_{name}{scale}", (dy, dx), factor * bell)
            return define(f"{name}{scale}", (n, y, x), nestor.sum(kernel[dy, dx] * scan[n, down, right], over=(dy, dx), where=inside))[n, y, x]

        yy, xx, xy = bend("yy", v * v - 1), bend("xx", w * w - 1), bend("xy", v * w)
        half, root = 0.5 * (yy + xx), nestor.sqrt((0.5 * (yy - xx)) ** 2 + xy * xy)
        high, low = define(f"high{scale}", (n, y, x), half + root)[n, y, x], define(f"low{scale}", (n, y, x), half - root)[n, y, x]
        first = nestor.absolute(high) < nestor.absolute(low)
        small, large = nestor.select(first, high, low), nestor.select(first, low, high)
        ratio = small * small / (large * large + 1e-12)
        found = nestor.select(large > 0, 0.0, nestor.exp(-ratio / (2 * narrow * narrow)) * (1 - nestor.exp(-(small * small + large * large) / (2 * strong * strong))))
        found = define(f"found{scale}", (n, y, x), found)[n, y, x]
        best = found if best is None else nestor.maximum(best, found)
    return define("out", (n, y, x), best)


def vessel_filter_torch(scan, narrow=0.5, strong=0.2):
    found = []
    for scale in SCALES:
        at = torch.arange(-4 * scale, 4 * scale + 1, device=scan.device, dtype=scan.dtype) / scale
        bell = torch.exp(-0.5 * at * at) / math.sqrt(2 * math.pi * scale**2)
        lines = torch.stack([bell, at * bell, (at * at - 1) * bell])[:, None]
        across = F.conv2d(scan[:, None], lines[:, :, None], padding=(0, 4 * scale))
        yy, xy, xx = F.conv2d(across, lines.flip(0)[..., None], padding=(4 * scale, 0), groups=3).unbind(1)
        half, root = 0.5 * (yy + xx), torch.sqrt((0.5 * (yy - xx)).square() + xy * xy)
        high, low = half + root, half - root
        first = high.abs() < low.abs()
        small, large = torch.where(first, high, low), torch.where(first, low, high)
        ratio = small * small / (large * large + 1e-12)
        tube = torch.exp(-ratio / (2 * narrow * narrow)) * (1 - torch.exp(-(small * small + large * large) / (2 * strong * strong)))
        found.append(torch.where(large > 0, 0.0, tube))
    return torch.stack(found).amax(0)


# ---------------------------------------------------------------------------------------------- graphics: radiosity

patches = Size("patches", 4000)
i, j, c = indices(i=patches, j=patches, c=3)
BOUNCES = 4


@nestor.nest
def radiosity(place: f32[patches, 3], normal: f32[patches, 3], area: f32[patches], reflects: f32[patches, 3], shines: f32[patches, 3]):
    """Light between patches: form factors of discs by distance and both angles, and four bounces of three colours."""
    gap = [place[j, axis] - place[i, axis] for axis in range(3)]
    squared = define("squared", (i, j), sum(part * part for part in gap))
    here = nestor.maximum(sum(normal[i, axis] * gap[axis] for axis in range(3)), 0.0)
    there = nestor.maximum(-sum(normal[j, axis] * gap[axis] for axis in range(3)), 0.0)
    factor = define("factor", (i, j), nestor.select(i == j, 0.0, here * there * area[j] / (squared[i, j] * (math.pi * squared[i, j] + area[j]))))
    light = shines
    for bounce in range(BOUNCES):
        light = define(f"light{bounce}", (i, c), shines[i, c] + reflects[i, c] * nestor.sum(factor[i, j] * light[j, c], over=j))
    return light, define("open", i, 1 - nestor.sum(factor[i, j], over=j))


def radiosity_torch(place, normal, area, reflects, shines):
    gap = place - place[:, None]
    squared = gap.square().sum(-1)
    here = (normal[:, None] * gap).sum(-1).clamp(min=0)
    there = -(normal * gap).sum(-1)
    factor = here * there.clamp(min=0) * area / (squared * (math.pi * squared + area))
    factor = factor.masked_fill(torch.eye(len(place), dtype=torch.bool, device=place.device), 0.0)
    light = shines
    for _ in range(BOUNCES):
        light = shines + reflects * (factor @ light)
    return light, 1 - factor.sum(1)


# ---------------------------------------------------------------------------------------------- audio: reverberation

rooms, times = Size("rooms", 500), Size("times", 3000)
n, t, k = indices(n=rooms, t=times, k=8)
DELAYS = (61, 67, 73, 79, 83, 89, 97, 101)


@nestor.nest
def feedback_delays(sound: f32[rooms, times], mix: f32[8, 8], enters: f32[8], leaves: f32[8], straight=0.3):
    """A room of eight delay lines that feed each other through a matrix."""
    before = DELAYS[-1]
    (past,) = indices(past=before)
    line = nestor.Tensor("lines", f32, (rooms, times + before, 8))
    line.write((n, past, k), (n, past, k), 0.0)
    ends = [line[n, t + before - delay, place] for place, delay in enumerate(DELAYS)]
    line.write((n, t, k), (n, t + before, k), enters[k] * sound[n, t] + sum(mix[k, place] * end for place, end in enumerate(ends)))
    return define("out", (n, t), straight * sound[n, t] + sum(leaves[place] * end for place, end in enumerate(ends)))


def feedback_delays_torch(sound, mix, enters, leaves, straight=0.3):
    # a recurrence: as many samples at a time as the shortest delay has
    step, before, count = DELAYS[0], DELAYS[-1], sound.shape[1]
    lines = sound.new_zeros(sound.shape[0], 8, before)
    out = []
    for start in range(0, count, step):
        size = min(step, count - start)
        given = sound[:, None, start:start + size]
        ends = torch.stack([lines[:, place, lines.shape[2] - delay:lines.shape[2] - delay + size] for place, delay in enumerate(DELAYS)], 1)
        out.append(straight * given[:, 0] + (leaves[:, None] * ends).sum(1))
        lines = torch.cat([lines[:, :, -before:], enters[:, None] * given + mix @ ends], 2)
    return torch.cat(out, 1)


# ---------------------------------------------------------------------------------------------- statistics: shrunk covariances

samples, assets = Size("samples", 1500), Size("assets", 900)
t, i, j = indices(t=samples, i=assets, j=assets)


@nestor.nest
def shrunk_covariance(x: f32[samples, assets]):
    """The covariance, drawn to a multiple of the identity as far as its elements vary from sample to sample."""
    mean = define("mean", i, nestor.mean(x[t, i], over=t))
    apart = define("apart", (t, i), x[t, i] - mean[i])
    covariance = define("covariance", (i, j), nestor.mean(apart[t, i] * apart[t, j], over=t))
    varies = define("varies", (), nestor.sum((apart[t, i] * apart[t, j] - covariance[i, j]) ** 2, over=(t, i, j)) / (nestor.cast(f32, samples) * nestor.cast(f32, samples) * assets))
    level = define("level", (), nestor.mean(covariance[i, i], over=i))
    off = nestor.sum((covariance[i, j] - nestor.select(i == j, level[()], 0.0)) ** 2, over=(i, j)) / nestor.cast(f32, assets)
    part = define("part", (), nestor.minimum(varies[()] / off, 1.0))
    out = define("out", (i, j), (1 - part) * covariance[i, j] + nestor.select(i == j, part * level, 0.0))
    return out, part


def shrunk_covariance_torch(x):
    samples_, assets_ = x.shape
    apart = x - x.mean(0)
    covariance = apart.mT @ apart / samples_
    squares = apart.square()
    varies = ((squares.mT @ squares / samples_).sum() - covariance.square().sum()) / (samples_ * assets_)
    eye = torch.eye(assets_, dtype=x.dtype, device=x.device)
    level = covariance.diagonal().mean()
    part = (varies / ((covariance - level * eye).square().sum() / assets_)).clamp(max=1)
    return (1 - part) * covariance + part * level * eye, part


# ---------------------------------------------------------------------------------------------- chemistry: scattered X-rays

molecules, atoms, angles = Size("molecules", 8), Size("atoms", 600), Size("angles", 100)
m, i, j, a = indices(m=molecules, i=atoms, j=atoms, a=angles)


@nestor.nest
def debye_scattering(place: f32[molecules, atoms, 3], weight: f32[molecules, atoms], spread: f32[molecules, atoms], wave: f32[angles]):
    """Debye: what a molecule in any position scatters, from all distances within it."""
    form = define("form", (m, i, a), weight[m, i] * nestor.exp(-spread[m, i] * wave[a] * wave[a]))
    far = define("far", (m, i, j), nestor.sqrt(sum((place[m, i, x] - place[m, j, x]) ** 2 for x in range(3))), where=i < j)
    phase = wave[a] * far[m, i, j]
    pairs = nestor.sum(form[m, i, a] * form[m, j, a] * nestor.sin(phase) / phase, over=(i, j), where=i < j)
    return define("out", (m, a), nestor.sum(form[m, i, a] * form[m, i, a], over=i) + 2 * pairs)


def debye_scattering_torch(place, weight, spread, wave):
    form = weight[..., None] * torch.exp(-spread[..., None] * wave * wave)
    # all pairs both ways; the diagonal gives the squares of form factors
    far = (place[:, :, None] - place[:, None]).square().sum(-1).sqrt()
    wide = torch.sinc(wave[:, None, None] / math.pi * far[:, None])
    form = form.mT
    return (form[..., None] * form[:, :, None] * wide).sum((2, 3))


# ---------------------------------------------------------------------------------------------- finance: forward rates

paths, terms, times = Size("paths", 30000), Size("terms", 24), Size("times", 20)
p, k, j, t = indices(p=paths, k=terms, j=terms, t=times)


@nestor.nest
def forward_rates(normal: f32[paths, times], begin: f32[terms], swings: f32[terms], strike=0.05, tenor=0.25):
    """Brace, Gatarek and Musiela: a curve of forward rates, each with the drift that all shorter ones give, and what a swap option is worth."""
    (at,) = indices(at=times + 1)
    rate = define("rate", (p, at, k), begin[k], where=at == 0)
    with nestor.steps(p, t):
        pull = define("pull", (p, t, k), tenor * swings[k] * rate[p, t, k] / (1 + tenor * rate[p, t, k]))
        drift = define("drift", (p, t, k), swings[k] * nestor.sum(pull[p, t, j], over=j, where=j <= k))
        rate.write((p, t, k), (p, t + 1, k), rate[p, t, k] * nestor.exp((drift[p, t, k] - 0.5 * swings[k] * swings[k]) * tenor + nestor.sqrt(tenor) * swings[k] * normal[p, t]))
    kept = define("kept", (p, k), nestor.exp(-nestor.sum(nestor.log1p(tenor * rate[p, times, j]), over=j, where=j <= k)))
    worth = define("worth", p, nestor.maximum(nestor.sum(tenor * kept[p, k] * (rate[p, times, k] - strike), over=k), 0.0))
    return define("mean", (), nestor.mean(worth[p], over=p)), worth, define("curve", k, nestor.mean(rate[p, times, k], over=p))


def forward_rates_torch(normal, begin, swings, strike=0.05, tenor=0.25):
    # a recurrence of few steps
    rate = begin.expand(len(normal), -1)
    for t in range(normal.shape[1]):
        drift = swings * (tenor * swings * rate / (1 + tenor * rate)).cumsum(1)
        rate = rate * torch.exp((drift - 0.5 * swings * swings) * tenor + math.sqrt(tenor) * swings * normal[:, t, None])
    kept = 1 / (1 + tenor * rate).cumprod(1)
    worth = (tenor * kept * (rate - strike)).sum(1).clamp(min=0)
    return worth.mean(), worth, rate.mean(0)


# ---------------------------------------------------------------------------------------------- genetics: linkage disequilibrium

people, sites = Size("people", 2500), Size("sites", 2000)
p, a, b = indices(p=people, a=sites, b=sites)


@nestor.nest
def linkage_disequilibrium(copies: f16[people, sites]):
    """Squared correlations of all pairs of sites over the people who are known at both: 0, 1 or 2 copies, below 0 unknown."""
    known = define("known", (p, a), nestor.select(copies[p, a] >= 0, 1.0, 0.0), type=f16)
    seen = define("seen", (p, a), nestor.maximum(copies[p, a], 0.0), type=f16)
    both = define("both", (a, b), nestor.maximum(nestor.sum(known[p, a] * known[p, b], over=p), 1.0))
    one = define("one", (a, b), nestor.sum(seen[p, a] * known[p, b], over=p) / both[a, b])
    two = define("two", (a, b), nestor.sum(seen[p, a] * seen[p, a] * known[p, b], over=p) / both[a, b])
    met = define("met", (a, b), nestor.sum(seen[p, a] * seen[p, b], over=p) / both[a, b])
    shared = met[a, b] - one[a, b] * one[b, a]
    own = nestor.maximum(two[a, b] - one[a, b] * one[a, b], 0.0) * nestor.maximum(two[b, a] - one[b, a] * one[b, a], 0.0)
    return define("out", (a, b), shared * shared / (own + 1e-4))


def linkage_disequilibrium_torch(copies):
    known = (copies >= 0).to(copies.dtype)
    seen = copies.clamp(min=0)
    # sums over people are too large for f16
    times = lambda x, y: torch.mm(x.mT, y, out_dtype=torch.float32) if x.is_cuda and x.element_size() == 2 else widened(x).mT @ widened(y)
    both = times(known, known).clamp(min=1)
    one, two, met = times(seen, known) / both, times(seen * seen, known) / both, times(seen, seen) / both
    own = (two - one * one).clamp(min=0)
    return (met - one * one.mT).square() / (own * own.mT + 1e-4)


# ---------------------------------------------------------------------------------------------- geometry: superposed molecules

frames, others, atoms = Size("frames", 1000), Size("others", 1200), Size("atoms", 64)
i, j, k, r, c = indices(i=frames, j=others, k=atoms, r=3, c=3)
NEWTON = 8


@nestor.nest
def superposed_distances(frame: f32[frames, atoms, 3], other: f32[others, atoms, 3]):
    """Least root mean square distances of all pairs of shapes, however turned: the greatest root of a quartic from their products, by Newton's method."""
    middle = define("middle", (i, r), nestor.mean(frame[i, k, r], over=k))
    middle2 = define("middle2", (j, r), nestor.mean(other[j, k, r], over=k))
    own = nestor.sum((frame[i, k, r] - middle[i, r]) ** 2, over=(k, r))
    own2 = define("own2", j, nestor.sum((other[j, k, r] - middle2[j, r]) ** 2, over=(k, r)))
    met = define("met", (i, j, r, c), nestor.sum((frame[i, k, r] - middle[i, r]) * (other[j, k, c] - middle2[j, c]), over=k))
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = ([met[i, j, row, column] for column in range(3)] for row in range(3))
    half = define("half", (i, j), 0.5 * (own + own2[j]))
    (u,) = indices(u=4)
    # the four by four matrix of quaternions: trace 0, so l^4 + two l^2 + one l + none = 0
    matrix = [[xx + yy + zz, yz - zy, zx - xz, xy - yx], [yz - zy, xx - yy - zz, xy + yx, zx + xz],
              [zx - xz, xy + yx, yy - xx - zz, yz + zy], [xy - yx, zx + xz, yz + zy, zz - xx - yy]]
    quaternion = nestor.Tensor("quaternion", f32, (frames, others, 4, 4))
    for row in range(4):
        for column in range(4):
            quaternion.write((i, j), (i, j, row, column), matrix[row][column] / half[i, j])
    q = [[quaternion[i, j, row, column] for column in range(4)] for row in range(4)]

    def minor(rows, columns):
        if len(rows) == 1:
            return q[rows[0]][columns[0]]
        return sum((-1) ** place * q[rows[0]][column] * minor(rows[1:], columns[:place] + columns[place + 1:]) for place, column in enumerate(columns))

    two = define("two", (i, j), -0.5 * sum(q[row][column] * q[row][column] for row in range(4) for column in range(4)))[i, j]
    one = define("one", (i, j), -sum(minor([x for x in range(4) if x != left], [x for x in range(4) if x != left]) for left in range(4)))[i, j]
    none = define("none", (i, j), minor([0, 1, 2, 3], [0, 1, 2, 3]))[i, j]
    root = define("root0", (i, j), nestor.cast(f32, 1.0))
    for step in range(NEWTON):
        at = root[i, j]
        square = at * at
        root = define(f"root{step + 1}", (i, j), at - (square * square + two * square + one * at + none) / (4 * square * at + 2 * two * at + one))
    return define("out", (i, j), nestor.sqrt(nestor.maximum(2 * half[i, j] * (1 - root[i, j]) / atoms, 0.0)))


def superposed_distances_torch(frame, other):
    frame, other = frame - frame.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
    half = 0.5 * (frame.square().sum((1, 2))[:, None] + other.square().sum((1, 2)))
    met = (frame.mT.reshape(-1, frame.shape[1]) @ other.mT.reshape(-1, other.shape[1]).mT).unflatten(0, (-1, 3)).unflatten(2, (-1, 3)).transpose(1, 2)
    xx, xy, xz, yx, yy, yz, zx, zy, zz = (met / half[..., None, None]).flatten(2).unbind(2)
    two = -2 * (xx * xx + xy * xy + xz * xz + yx * yx + yy * yy + yz * yz + zx * zx + zy * zy + zz * zz)
    one = -8 * (xx * (yy * zz - yz * zy) - xy * (yx * zz - yz * zx) + xz * (yx * zy - yy * zx))
    q = [[xx + yy + zz, yz - zy, zx - xz, xy - yx], [yz - zy, xx - yy - zz, xy + yx, zx + xz],
         [zx - xz, xy + yx, yy - xx - zz, yz + zy], [xy - yx, zx + xz, yz + zy, zz - xx - yy]]
    above = {(a, b): q[0][a] * q[1][b] - q[0][b] * q[1][a] for a in range(4) for b in range(a + 1, 4)}
    below = {(a, b): q[2][a] * q[3][b] - q[2][b] * q[3][a] for a in range(4) for b in range(a + 1, 4)}
    none = (above[0, 1] * below[2, 3] - above[0, 2] * below[1, 3] + above[0, 3] * below[1, 2]
            + above[1, 2] * below[0, 3] - above[1, 3] * below[0, 2] + above[2, 3] * below[0, 1])
    root = torch.ones_like(half)
    for _ in range(NEWTON):
        square = root * root
        root = root - (square * square + two * square + one * root + none) / (4 * square * root + 2 * two * root + one)
    return (2 * half * (1 - root) / frame.shape[1]).clamp(min=0).sqrt()


# ---------------------------------------------------------------------------------------------- robotics: regulators

plans, horizon, state = Size("plans", 2000), Size("horizon", 48), Size("state", 12, fixed=True)
n, t, a, b, c, u = indices(n=plans, t=horizon, a=state, b=state, c=state, u=2)


@nestor.nest
def regulator_gains(moves: f32[plans, horizon, state, state], steers: f32[plans, horizon, state, 2], cost: f32[state], effort: f32[2], pull: f32[plans, horizon, state]):
    """Differential dynamic programming's way back: gains, corrections and the cost to go of linear systems that change with time."""
    (at,) = indices(at=horizon + 1)
    bent = define("bent", (n, at, a, b), nestor.select(a == b, cost[a], 0.0), where=at == 0)  # at: steps from the end
    steep = define("steep", (n, at, a), nestor.cast(f32, 0.0), where=at == 0)
    gain = nestor.Tensor("gain", f32, (plans, horizon, 2, state))
    nudge = nestor.Tensor("nudge", f32, (plans, horizon, 2))
    now = horizon - 1 - t
    (w,) = indices(w=2)
    with nestor.steps(n, t):
        ahead = define("ahead", (n, t, a, b), nestor.sum(bent[n, t, a, c] * moves[n, now, c, b], over=c))
        pushed = define("pushed", (n, t, a, u), nestor.sum(bent[n, t, a, c] * steers[n, now, c, u], over=c))
        inner = define("inner", (n, t, u, w), nestor.select(u == w, effort[u], 0.0) + nestor.sum(steers[n, now, c, u] * pushed[n, t, c, w], over=c))
        cross = define("cross", (n, t, u, b), nestor.sum(steers[n, now, c, u] * ahead[n, t, c, b], over=c))
        felt = define("felt", (n, t, u), nestor.sum(steers[n, now, c, u] * steep[n, t, c], over=c))
        area = define("area", (n, t), inner[n, t, 0, 0] * inner[n, t, 1, 1] - inner[n, t, 0, 1] * inner[n, t, 1, 0])
        gain.write((n, t, u, b), (n, now, u, b), nestor.select(u == 0, inner[n, t, 1, 1] * cross[n, t, 0, b] - inner[n, t, 0, 1] * cross[n, t, 1, b],
                                                               inner[n, t, 0, 0] * cross[n, t, 1, b] - inner[n, t, 1, 0] * cross[n, t, 0, b]) / area[n, t])
        nudge.write((n, t, u), (n, now, u), nestor.select(u == 0, inner[n, t, 1, 1] * felt[n, t, 0] - inner[n, t, 0, 1] * felt[n, t, 1],
                                                          inner[n, t, 0, 0] * felt[n, t, 1] - inner[n, t, 1, 0] * felt[n, t, 0]) / area[n, t])
        bent.write((n, t, a, b), (n, t + 1, a, b), nestor.select(a == b, cost[a], 0.0) + nestor.sum(moves[n, now, c, a] * ahead[n, t, c, b], over=c)
                   - sum(cross[n, t, k, a] * gain[n, now, k, b] for k in range(2)))
        steep.write((n, t, a), (n, t + 1, a), pull[n, now, a] + nestor.sum(moves[n, now, c, a] * steep[n, t, c], over=c) - sum(cross[n, t, k, a] * nudge[n, now, k] for k in range(2)))
    return gain, nudge, define("last", (n, a, b), bent[n, horizon, a, b])


def regulator_gains_torch(moves, steers, cost, effort, pull):
    # a recurrence back in time
    bent, steep = torch.diag(cost).expand(len(moves), -1, -1), torch.zeros_like(pull[:, 0])
    gains, nudges = [], []
    for t in reversed(range(moves.shape[1])):
        move, steer = moves[:, t], steers[:, t]
        ahead = bent @ move
        inner = torch.diag(effort) + steer.mT @ bent @ steer
        cross = steer.mT @ ahead
        felt = steer.mT @ steep[..., None]
        area = inner[:, 0, 0] * inner[:, 1, 1] - inner[:, 0, 1] * inner[:, 1, 0]
        inverse = torch.stack([inner[:, 1, 1], -inner[:, 0, 1], -inner[:, 1, 0], inner[:, 0, 0]], 1).unflatten(1, (2, 2)) / area[:, None, None]
        gain, nudge = inverse @ cross, inverse @ felt
        bent = torch.diag(cost) + move.mT @ ahead - cross.mT @ gain
        steep = pull[:, t] + (move.mT @ steep[..., None] - cross.mT @ nudge)[..., 0]
        gains.append(gain)
        nudges.append(nudge[..., 0])
    return torch.stack(gains[::-1], 1), torch.stack(nudges[::-1], 1), bent


# ---------------------------------------------------------------------------------------------- retrieval: SPLADE

texts, tokens, words, width = Size("texts", 16), Size("tokens", 120), Size("words", 30522), Size("width", 768)
n, t, v, c = indices(n=texts, t=tokens, v=words, c=width)


@nestor.nest
def sparse_text_weights(hidden: bf16[texts, tokens, width], table: bf16[words, width], bias: f32[words], counts: boolean[texts, tokens]):
    """Weights of all words in a text: the largest logarithmic activation of its tokens; and what as many of them would cost to search."""
    logit = define("logit", (n, t, v), nestor.sum(hidden[n, t, c] * table[v, c], over=c) + bias[v])
    felt = nestor.select(counts[n, t], nestor.log1p(nestor.relu(logit[n, t, v])), 0.0)
    weight = define("weight", (n, v), nestor.max(felt, over=t))
    usual = define("usual", v, nestor.mean(weight[n, v], over=n))
    return weight, define("work", (), nestor.sum(usual[v] * usual[v], over=v))


def sparse_text_weights_torch(hidden, table, bias, counts):
    logit = widened(F.linear(hidden, table)) + bias
    weight = (torch.log1p(torch.relu(logit)) * counts[..., None]).amax(1)
    return weight, weight.mean(0).square().sum()


# ---------------------------------------------------------------------------------------------- recommenders: swing

users, items = Size("users", 240), Size("items", 300)
u, w, i, j, k = indices(u=users, w=users, i=items, j=items, k=items)


@nestor.nest
def swing_similarity(bought: boolean[users, items], trust: f32[users], alpha=1.0):
    """Two things are alike as far as pairs of people have both, less where such a pair has much else in common."""
    own = define("own", u, trust[u] * nestor.rsqrt(nestor.maximum(nestor.sum(nestor.cast(f32, bought[u, k]), over=k), 1.0)))
    common = define("common", (u, w), nestor.sum(nestor.select(bought[u, k] & bought[w, k], 1.0, 0.0), over=k), where=u < w)
    pair = define("pair", (u, w), own[u] * own[w] / (alpha + common[u, w]), where=u < w)
    all_four = bought[u, i] & bought[u, j] & bought[w, i] & bought[w, j]
    return define("out", (i, j), nestor.sum(nestor.select(all_four, pair[u, w], 0.0), over=(u, w), where=u < w))


def swing_similarity_torch(bought, trust, alpha=1.0):
    links = bought.to(trust.dtype)
    own = trust * links.sum(1).clamp(min=1).rsqrt()
    pair = (own[:, None] * own / (alpha + links @ links.mT)).triu(1)
    both = (links[:, :, None] * links[:, None]).flatten(1)
    return (both * (pair @ both)).sum(0).view(bought.shape[1], -1)


# ---------------------------------------------------------------------------------------------- weather: vortices

fields, tall, wide_ = Size("fields", 30), Size("tall", 700), Size("wide", 720)
n, y, x = indices(n=fields, y=tall, x=wide_)


@nestor.nest(require=(tall >= 3) & (wide_ >= 3))
def vorticity_step(vorticity: f32[fields, tall, wide_], stream: f32[fields, tall, wide_], dt=0.01, beta=0.3, viscosity=0.02):
    """Arakawa's Jacobian, which keeps energy and enstrophy: a step of the barotropic vorticity equation in a channel; round in x, walls in y."""
    def wrapped(name, field):
        (p,) = indices(p=wide_ + 2)
        return define(name, (n, y, p), nestor.select(p == 0, field[n, y, wide_ - 1], nestor.select(p == wide_ + 1, field[n, y, 0], field[n, y, p - 1])))

    z, s = wrapped("z", vorticity), wrapped("s", stream)

    def at(field, down, right):
        return field[n, y + down, x + 1 + right]

    plus = (at(s, 0, 1) - at(s, 0, -1)) * (at(z, 1, 0) - at(z, -1, 0)) - (at(s, 1, 0) - at(s, -1, 0)) * (at(z, 0, 1) - at(z, 0, -1))
    cross = (at(s, 0, 1) * (at(z, 1, 1) - at(z, -1, 1)) - at(s, 0, -1) * (at(z, 1, -1) - at(z, -1, -1))
             - at(s, 1, 0) * (at(z, 1, 1) - at(z, 1, -1)) + at(s, -1, 0) * (at(z, -1, 1) - at(z, -1, -1)))
    other = (at(z, 1, 0) * (at(s, 1, 1) - at(s, 1, -1)) - at(z, -1, 0) * (at(s, -1, 1) - at(s, -1, -1))
             - at(z, 0, 1) * (at(s, 1, 1) - at(s, -1, 1)) + at(z, 0, -1) * (at(s, 1, -1) - at(s, -1, -1)))
    inside = (y > 0) & (y < tall - 1)
    carried = define("carried", (n, y, x), (plus + cross + other) / 12, where=inside)
    laplace = at(z, 1, 0) + at(z, -1, 0) + at(z, 0, 1) + at(z, 0, -1) - 4 * at(z, 0, 0)
    turn = beta * (at(s, 0, 1) - at(s, 0, -1)) / 2
    change = define("change", (n, y, x), dt * (viscosity * laplace - carried[n, y, x] - turn), where=inside)
    out = define("out", (n, y, x), vorticity[n, y, x] + nestor.select(inside, change[n, y, x], 0.0))
    enstrophy = define("enstrophy", n, 0.5 * nestor.mean(out[n, y, x] * out[n, y, x], over=(y, x)))
    return out, enstrophy, define("produced", n, nestor.sum(carried[n, y, x] * vorticity[n, y, x], over=(y, x), where=inside))


def vorticity_step_torch(vorticity, stream, dt=0.01, beta=0.3, viscosity=0.02):
    across = vorticity.shape[2]
    z, s = (F.pad(field, (1, 1), mode="circular") for field in (vorticity, stream))
    at = lambda field, down, right: field[:, 1 + down:field.shape[1] - 1 + down, 1 + right:1 + right + across]
    plus = (at(s, 0, 1) - at(s, 0, -1)) * (at(z, 1, 0) - at(z, -1, 0)) - (at(s, 1, 0) - at(s, -1, 0)) * (at(z, 0, 1) - at(z, 0, -1))
    cross = (at(s, 0, 1) * (at(z, 1, 1) - at(z, -1, 1)) - at(s, 0, -1) * (at(z, 1, -1) - at(z, -1, -1))
             - at(s, 1, 0) * (at(z, 1, 1) - at(z, 1, -1)) + at(s, -1, 0) * (at(z, -1, 1) - at(z, -1, -1)))
    other = (at(z, 1, 0) * (at(s, 1, 1) - at(s, 1, -1)) - at(z, -1, 0) * (at(s, -1, 1) - at(s, -1, -1))
             - at(z, 0, 1) * (at(s, 1, 1) - at(s, -1, 1)) + at(z, 0, -1) * (at(s, 1, -1) - at(s, -1, -1)))
    carried = (plus + cross + other) / 12
    laplace = at(z, 1, 0) + at(z, -1, 0) + at(z, 0, 1) + at(z, 0, -1) - 4 * at(z, 0, 0)
    change = dt * (viscosity * laplace - carried - beta * (at(s, 0, 1) - at(s, 0, -1)) / 2)
    out = vorticity + F.pad(change, (0, 0, 1, 1))
    return out, 0.5 * out.square().mean((1, 2)), (carried * vorticity[:, 1:-1]).sum((1, 2))


# ---------------------------------------------------------------------------------------------- proteins: triangles attend

residues, heads, head, width = Size("residues", 260), Size("heads", 4), Size("head", 32, fixed=True), Size("width", 128)
i, j, k, h, e, d, c, o = indices(i=residues, j=residues, k=residues, h=heads, e=head, d=head, c=width, o=width)


@nestor.nest
def triangle_attention(pair: bf16[residues, residues, width], gamma: f32[width], beta: f32[width], to_query: bf16[heads, head, width], to_key: bf16[heads, head, width],
                       to_value: bf16[heads, head, width], to_bias: bf16[heads, width], to_gate: bf16[heads, head, width], back: bf16[width, heads, head], eps=1e-5):
    """Edges from a node attend to each other, with a bias from the third edge of the triangle, and are let out by a gate."""
    mean = define("mean", (i, j), nestor.mean(pair[i, j, c], over=c))
    spread = define("spread", (i, j), nestor.mean((pair[i, j, c] - mean[i, j]) ** 2, over=c))
    even = define("even", (i, j, c), (pair[i, j, c] - mean[i, j]) * nestor.rsqrt(spread[i, j] + eps) * gamma[c] + beta[c], type=bf16)
    query = define("query", (h, i, j, e), nestor.sum(even[i, j, c] * to_query[h, e, c], over=c), type=bf16)
    key = define("key", (h, i, k, e), nestor.sum(even[i, k, c] * to_key[h, e, c], over=c), type=bf16)
    value = define("value", (h, i, k, d), nestor.sum(even[i, k, c] * to_value[h, d, c], over=c), type=bf16)
    third = define("third", (h, j, k), nestor.sum(even[j, k, c] * to_bias[h, c], over=c))
    gate = define("gate", (h, i, j, d), nestor.sigmoid(nestor.sum(even[i, j, c] * to_gate[h, d, c], over=c)), type=bf16)
    score = define("score", (h, i, j, k), nestor.sum(query[h, i, j, e] * key[h, i, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)) + third[h, j, k])
    top = nestor.max(score[h, i, j, k], over=k)
    power = define("power", (h, i, j, k), nestor.exp(score[h, i, j, k] - top))
    total = nestor.sum(power[h, i, j, k], over=k)
    mixed = define("mixed", (h, i, j, d), gate[h, i, j, d] * nestor.sum(power[h, i, j, k] * value[h, i, k, d], over=k) / total, type=bf16)
    return define("out", (i, j, o), pair[i, j, o] + nestor.sum(mixed[h, i, j, d] * back[o, h, d], over=(h, d)), type=bf16)


def triangle_attention_torch(pair, gamma, beta, to_query, to_key, to_value, to_bias, to_gate, back, eps=1e-5):
    even = F.layer_norm(widened(pair), pair.shape[-1:], gamma, beta, eps).to(pair.dtype)
    joined = F.linear(even, torch.cat([each.flatten(0, 1) for each in (to_query, to_key, to_value, to_gate)]))
    query, key, value, gate = joined.unflatten(-1, (4, *to_query.shape[:2])).permute(2, 0, 3, 1, 4)  # of residue, head, residue, head's depth
    third = F.linear(even, to_bias).permute(2, 0, 1)[None]
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=third) * torch.sigmoid(gate)
    return pair + F.linear(mixed.transpose(1, 2).flatten(2), back.flatten(1))


# ---------------------------------------------------------------------------------------------- graphs: SimRank

nodes = Size("nodes", 1000)
u, v, a, b, k = indices(u=nodes, v=nodes, a=nodes, b=nodes, k=nodes)
HOPS = 4


@nestor.nest
def similar_nodes(links: boolean[nodes, nodes], lessens: f32[()]):
    """Two nodes are alike as far as those are that point to them; each is wholly like itself. Four rounds."""
    incoming = nestor.sum(nestor.cast(f32, links[k, v]), over=k)
    share = define("share", (u, v), nestor.cast(f32, links[u, v]) / nestor.maximum(incoming, 1.0))
    alike = define("alike0", (u, v), nestor.select(u == v, 1.0, 0.0))
    for hop in range(HOPS):
        half = define(f"half{hop}", (a, v), nestor.sum(alike[a, k] * share[k, v], over=k))
        alike = define(f"alike{hop + 1}", (u, v), nestor.select(u == v, 1.0, lessens * nestor.sum(share[k, u] * half[k, v], over=k)))
    return alike


def similar_nodes_torch(links, lessens):
    share = links.to(lessens.dtype)
    share = share / share.sum(0).clamp(min=1)
    own = torch.eye(len(links), dtype=torch.bool, device=links.device)
    alike = own.to(share.dtype)
    for _ in range(HOPS):
        alike = (lessens * (share.mT @ (alike @ share))).masked_fill(own, 1.0)
    return alike


# ---------------------------------------------------------------------------------------------- diffusion: two streams attend together

batch, heads, pixels, words, head = Size("batch", 2), Size("heads", 24), Size("pixels", 1024), Size("words", 150), Size("head", 64, fixed=True)
b, h, p, w, e, d, c = indices(b=batch, h=heads, p=pixels, w=words, e=head, d=head, c=head)
q, k = indices(q=pixels + words, k=pixels + words)


@nestor.nest
def joint_stream_attention(picture: bf16[batch, pixels, 3, heads, head], text: bf16[batch, words, 3, heads, head], picture_gain: f32[2, head], text_gain: f32[2, head],
                           counts: boolean[batch, words], eps=1e-6):
    """Tokens of a picture and of its text, with norms of their own, attend to all of both, but for the padding of the text."""
    def joined(name, part):
        whole = nestor.Tensor(name, bf16, (batch, heads, pixels + words, head))
        for at, stream, gain, before in ((p, picture, picture_gain, 0), (w, text, text_gain, pixels)):
            size = nestor.rsqrt(nestor.mean(stream[b, at, part, h, c] * stream[b, at, part, h, c], over=c) + eps)
            whole.write((b, h, at, e), (b, h, before + at, e), stream[b, at, part, h, e] * size * gain[part, e] if part < 2 else stream[b, at, part, h, e])
        return whole

    query, key, value = (joined(name, part) for part, name in enumerate(("query", "key", "value")))
    seen = nestor.Tensor("seen", boolean, (batch, pixels + words))
    seen.write((b, p), (b, p), nestor.cast(boolean, 1))
    seen.write((b, w), (b, pixels + w), counts[b, w])
    score = define("score", (b, h, q, k), nestor.select(seen[b, k], nestor.sum(query[b, h, q, e] * key[b, h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), -1e30))
    top = nestor.max(score[b, h, q, k], over=k)
    power = define("power", (b, h, q, k), nestor.exp(score[b, h, q, k] - top))
    total = nestor.sum(power[b, h, q, k], over=k)
    mixed = define("mixed", (b, h, q, d), nestor.sum(power[b, h, q, k] * value[b, h, k, d], over=k) / total)
    return define("picture_out", (b, p, h, d), mixed[b, h, p, d], type=bf16), define("text_out", (b, w, h, d), mixed[b, h, pixels + w, d], type=bf16)


def joint_stream_attention_torch(picture, text, picture_gain, text_gain, counts, eps=1e-6):
    def parts(stream, gain):
        query, key, value = stream.unbind(2)
        return [F.rms_norm(widened(each), each.shape[-1:], own, eps).to(value.dtype) for each, own in ((query, gain[0]), (key, gain[1]))] + [value]

    query, key, value = (torch.cat(both, 1).transpose(1, 2) for both in zip(parts(picture, picture_gain), parts(text, text_gain)))
    seen = F.pad(counts, (picture.shape[1], 0), value=True)[:, None, None]
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen.expand(-1, -1, query.shape[2], -1)).transpose(1, 2)
    return mixed[:, :picture.shape[1]], mixed[:, picture.shape[1]:]


# ---------------------------------------------------------------------------------------------- control: Lyapunov's equation

systems, order = Size("systems", 6000), Size("order", 24, fixed=True)
n, i, j, k, l = indices(n=systems, i=order, j=order, k=order, l=order)
DOUBLINGS = 6


@nestor.nest
def stationary_covariances(step: f32[systems, order, order], noise: f32[systems, order, order]):
    """What spread a linear system with noise settles at: the sum over all steps, twice as many in each round."""
    spread = define("spread0", (n, i, j), nestor.sum(noise[n, i, k] * noise[n, j, k], over=k))
    for doubling in range(DOUBLINGS):
        carried = define(f"carried{doubling}", (n, i, l), nestor.sum(step[n, i, k] * spread[n, k, l], over=k))
        spread = define(f"spread{doubling + 1}", (n, i, j), spread[n, i, j] + nestor.sum(carried[n, i, l] * step[n, j, l], over=l))
        if doubling + 1 < DOUBLINGS:
            step = define(f"step{doubling + 1}", (n, i, j), nestor.sum(step[n, i, k] * step[n, k, j], over=k))
    return spread, define("trace", n, nestor.sum(spread[n, i, i], over=i))


def stationary_covariances_torch(step, noise):
    spread = noise @ noise.mT
    for doubling in range(DOUBLINGS):
        spread = spread + step @ spread @ step.mT
        if doubling + 1 < DOUBLINGS:
            step = step @ step
    return spread, spread.diagonal(dim1=1, dim2=2).sum(1)


# ---------------------------------------------------------------------------------------------- physics: plaquettes of lattice QCD

times, tall, broad, deep = Size("times", 28), Size("tall", 18), Size("broad", 18), Size("deep", 16)
m, v, t, z, y, x, a, b, c, r = indices(m=4, v=4, t=times, z=tall, y=broad, x=deep, a=3, b=3, c=3, r=2)


@nestor.nest
def gauge_plaquettes(link: f32[4, times, tall, broad, deep, 3, 3, 2]):
    """Wilson's action: traces of complex matrices around all squares of a periodic lattice in four dimensions; at each site, and each plane's mean."""
    def after(at, last, read):
        return nestor.select(at == last, read(0), read(at + 1))

    ahead = define("ahead", (m, v, t, z, y, x, a, b, r), nestor.select(
        m == 0, after(t, times - 1, lambda at: link[v, at, z, y, x, a, b, r]), nestor.select(
            m == 1, after(z, tall - 1, lambda at: link[v, t, at, y, x, a, b, r]), nestor.select(
                m == 2, after(y, broad - 1, lambda at: link[v, t, z, at, x, a, b, r]), after(x, deep - 1, lambda at: link[v, t, z, y, at, a, b, r])))))
    mine, next_ = (lambda part: link[m, t, z, y, x, a, c, part]), (lambda part: ahead[m, v, t, z, y, x, c, b, part])
    real = define("real", (m, v, t, z, y, x, a, b), nestor.sum(mine(0) * next_(0) - mine(1) * next_(1), over=c), where=m != v)
    imaginary = define("imaginary", (m, v, t, z, y, x, a, b), nestor.sum(mine(0) * next_(1) + mine(1) * next_(0), over=c), where=m != v)
    # first along m and then along v, against first along v and then along m
    trace = define("trace", (m, v, t, z, y, x), nestor.sum(real[m, v, t, z, y, x, a, b] * real[v, m, t, z, y, x, a, b]
                                                           + imaginary[m, v, t, z, y, x, a, b] * imaginary[v, m, t, z, y, x, a, b], over=(a, b)), where=m < v)
    action = define("action", (t, z, y, x), nestor.sum(1 - trace[m, v, t, z, y, x] / 3, over=(m, v), where=m < v))
    mean = define("mean", (m, v), nestor.mean(trace[m, v, t, z, y, x], over=(t, z, y, x)) / 3, where=m < v)
    return action, define("means", (m, v), nestor.select(m < v, mean[m, v], 0.0))


def gauge_plaquettes_torch(link):
    real, imaginary = link.unbind(-1)
    times_ = lambda one, other: (one[..., :, :, None] * other[..., None, :, :]).sum(-2)

    def ahead(m, v):  # along m and then along v
        next_real, next_imaginary = real[v].roll(-1, m), imaginary[v].roll(-1, m)
        return (times_(real[m], next_real) - times_(imaginary[m], next_imaginary), times_(real[m], next_imaginary) + times_(imaginary[m], next_real))

    action, mean = 0.0, [link.new_zeros(())] * 16
    for m in range(4):
        for v in range(m + 1, 4):
            one, other = ahead(m, v), ahead(v, m)
            trace = (one[0] * other[0] + one[1] * other[1]).sum((-1, -2)) / 3
            action = action + 1 - trace
            mean[4 * m + v] = trace.mean()
    return action, torch.stack(mean).view(4, 4)


# ---------------------------------------------------------------------------------------------- statistics: change points

series, points = Size("series", 600), Size("points", 128)
n, s, t, k = indices(n=series, s=points, t=points, k=points)


@nestor.nest
def change_points(x: f32[series, points], penalty=4.0):
    """Optimal partitioning: a series cut into pieces of one level each, with the least squares and a price for each cut; and where the last piece of each part begins."""
    (at,) = indices(at=points + 1)
    within = (k >= s) & (k <= t)
    level = define("level", (n, s, t), nestor.mean(x[n, k], over=k, where=within), where=s <= t)
    cost = define("cost", (n, s, t), nestor.sum((x[n, k] - level[n, s, t]) ** 2, over=k, where=within), where=s <= t)
    best = define("best", (n, at), nestor.cast(f32, 0.0) - penalty, where=at == 0)
    best.write((n, t), (n, t + 1), nestor.min(best[n, s] + cost[n, s, t], over=s, where=s <= t) + penalty)
    total = define("total", (n, t, s), best[n, s] + cost[n, s, t], where=s <= t)
    return best, define("begin", (n, t), nestor.argmin(total[n, t, s], over=s, where=s <= t))


def change_points_torch(x, penalty=4.0):
    # a recurrence, over all earlier points at once
    count = x.shape[1]
    sums, squares = F.pad(x.cumsum(1), (1, 0)), F.pad(x.square().cumsum(1), (1, 0))
    place = torch.arange(count, device=x.device)
    size = place - place[:, None] + 1  # from row to column, both within
    one, two = sums[:, None, 1:] - sums[:, :-1, None], squares[:, None, 1:] - squares[:, :-1, None]
    cost = torch.where(size > 0, two - one.square() / size.clamp(min=1), torch.inf)
    best, begin = x.new_full((len(x), count + 1), -penalty), []
    for t in range(count):
        least = (best[:, :t + 1] + cost[:, :t + 1, t]).min(1)
        best[:, t + 1] = least.values + penalty
        begin.append(least.indices)
    return best, torch.stack(begin, 1).to(torch.int32)


# ---------------------------------------------------------------------------------------------- language models: FourierFormer

streams, tokens, head = Size("streams", 32), Size("tokens", 500), Size("head", 32, fixed=True)
n, i, j, e, d = indices(n=streams, i=tokens, j=tokens, e=head, d=head)


@nestor.nest
def fourier_integral_attention(query: f16[streams, tokens, head], key: f16[streams, tokens, head], value: f16[streams, tokens, head], radius: f32[head]):
    """Causal attention whose weights are products over dimensions of fourth powers of sin(R x) / (R x), with neither scores nor exponentials."""
    apart = define("apart", (n, i, j, e), radius[e] * (query[n, i, e] - key[n, j, e]), where=j <= i)[n, i, j, e]
    wave = nestor.select(apart == 0, 1.0, nestor.sin(apart) / apart)
    weight = define("weight", (n, i, j), nestor.prod(wave ** 4, over=e), where=j <= i)
    total = nestor.sum(weight[n, i, j], over=j, where=j <= i)
    return define("out", (n, i, d), nestor.sum(weight[n, i, j] * value[n, j, d], over=j, where=j <= i) / total, type=f16)


def fourier_integral_attention_torch(query, key, value, radius):
    apart = radius * (widened(query)[:, :, None] - widened(key)[:, None])
    weight = torch.sinc(apart / math.pi).square().square().prod(-1).tril()
    return (weight @ widened(value) / weight.sum(-1, keepdim=True)).to(value.dtype)


OPERATORS = [
    Operator(tropical_attention, tropical_attention_torch, "Hashemi et al., Tropical attention, 2025", {"streams": 2, "tokens": 9, "head": 5}),
    Operator(interpolated_position_attention, interpolated_position_attention_torch, "Li et al., FIRE, 2024", {"batch": 2, "heads": 3, "length": 9, "head": 5, "hidden": 7},
             draw={"stretch": lambda normal, _: 0.1 + normal.abs(), "least": lambda normal, sizes: sizes["length"] / 4 + normal.abs()}),
    Operator(cubic_memory_steps, cubic_memory_steps_torch, "Behrouz et al., It's all connected (Moneta), 2025", {"streams": 2, "steps": 7, "head": 5},
             draw={"key": divided("head"), "forget": lambda normal, _: torch.sigmoid(3 + normal), "rate": lambda normal, _: torch.sigmoid(normal - 3), "start": divided("head")}),
    Operator(router_gradients, router_gradients_torch, "DeepSeek-AI, DeepSeekMoE, 2024; Zoph et al., ST-MoE, 2022", {"tokens": 11, "experts": 7, "width": 5, "chosen": 3}, told=("chosen",),
             draw={"gate": divided("width")}),
    Operator(low_rank_four_bit_linear, low_rank_four_bit_linear_torch, "Li et al., SVDQuant, 2024", {"rows": 5, "groups": 2, "outs": 7, "rank": 3},
             draw={"smooth": lambda normal, _: 0.5 + normal.abs(), "down": lambda normal, sizes: normal / (8 * sizes["groups"]**0.5), "up": divided("rank"),
                   "bits": lambda normal, _: torch.floor(normal * 5e8).clamp(-2**31, 2**31 - 1000), "scale": lambda normal, _: 0.01 * (1 + 0.1 * normal)}),
    Operator(expected_attention_scores, expected_attention_scores_torch, "Devoto et al., Expected attention, 2025", {"kv_heads": 2, "group": 3, "recent": 7, "length": 11, "head": 5},
             draw={"query": lambda normal, _: 0.2 + 1.5 * normal}),
    Operator(block_verification, block_verification_torch, "Sun et al., Block verification, 2024", {"rows": 5, "steps": 3, "words": 11},
             draw={"token": lambda normal, sizes: (normal.abs() * sizes["words"] / 2).floor() % sizes["words"], "luck": lambda normal, _: torch.sigmoid(1.5 * normal)}),
    Operator(token_preference_loss, token_preference_loss_torch, "Zeng et al., Token-level DPO, 2024", {"pairs": 3, "tokens": 5, "words": 11},
             draw={"label": lambda normal, sizes: (normal.abs() * sizes["words"] / 2).floor() % sizes["words"], "counts": lambda normal, _: normal > -1}),
    Operator(prodigy_step, prodigy_step_torch, "Mishchenko and Defazio, Prodigy, 2023", {"rows": 7, "width": 5},
             draw={"square": lambda normal, _: 0.01 + normal * normal, "distance": lambda normal, _: 0.1 + 0.1 * normal.abs(), "toward": lambda normal, _: normal.abs()}),
    Operator(gated_unit_gradients, gated_unit_gradients_torch, "De et al., Griffin, 2024", {"batch": 2, "times": 7, "width": 5}, draw={"decay": lambda normal, _: normal - 2}),
    Operator(two_hot_returns, two_hot_returns_torch, "Hafner et al., DreamerV3, 2023", {"times": 5, "batch": 3, "bins": 7}, draw={"goes_on": lambda normal, _: (normal > -2).float()}),
    Operator(whitened_channels, whitened_channels_torch, "Huang et al., Iterative normalization, 2019", {"images": 3, "groups": 2, "pixels": 23}),
    Operator(upsampled_reassembly, upsampled_reassembly_torch, "Wang et al., CARAFE, 2019", {"pictures": 2, "channels": 3, "tall": 5, "wide": 7}),
    Operator(vessel_filter, vessel_filter_torch, "Frangi et al., Multiscale vessel enhancement filtering, 1998", {"scans": 2, "tall": 9, "wide": 15}),
    Operator(radiosity, radiosity_torch, "Goral et al., Modeling the interaction of light between diffuse surfaces, 1984", {"patches": 13},
             draw={"place": lambda normal, _: 3 * normal, "normal": lambda normal, _: normal / normal.square().sum(1, keepdim=True).sqrt(),
                   "area": lambda normal, sizes: 20 * (0.5 + normal.abs()) / sizes["patches"], "reflects": lambda normal, _: torch.sigmoid(normal), "shines": lambda normal, _: normal.abs()}),
    Operator(feedback_delays, feedback_delays_torch, "Jot and Chaigne, Digital delay networks for artificial reverberators, 1991", {"rooms": 2, "times": 107},
             draw={"mix": lambda normal, _: 0.7 * torch.linalg.qr(normal)[0]}),
    Operator(shrunk_covariance, shrunk_covariance_torch, "Ledoit and Wolf, A well-conditioned estimator for large-dimensional covariance matrices, 2004", {"samples": 11, "assets": 7},
             draw={"x": lambda normal, sizes: normal * torch.linspace(0.5, 2, sizes["assets"], device=normal.device)}),
    Operator(debye_scattering, debye_scattering_torch, "Debye, Zerstreuung von Roentgenstrahlen, 1915", {"molecules": 2, "atoms": 7, "angles": 5},
             draw={"place": lambda normal, _: 4 * normal, "weight": lambda normal, _: 6 + normal, "spread": lambda normal, _: 0.1 + 0.02 * normal.abs(),
                   "wave": lambda normal, sizes: torch.linspace(0.05, 3, sizes["angles"], device=normal.device)}),
    Operator(forward_rates, forward_rates_torch, "Brace, Gatarek and Musiela, 1997; Glasserman and Zhao, 1999", {"paths": 5, "terms": 4, "times": 3},
             draw={"begin": lambda normal, _: 0.05 + 0.005 * normal, "swings": lambda normal, _: 0.2 + 0.02 * normal}),
    Operator(linkage_disequilibrium, linkage_disequilibrium_torch, "Hill and Robertson, 1968; Purcell et al., PLINK, 2007", {"people": 23, "sites": 7},
             draw={"copies": lambda normal, _: torch.where(normal < -1.8, -1.0, (normal.abs() * 1.5).floor().clamp(max=2))}),
    Operator(superposed_distances, superposed_distances_torch, "Horn, 1987; Theobald, Rapid calculation of RMSDs, 2005", {"frames": 4, "others": 3, "atoms": 7}),
    Operator(regulator_gains, regulator_gains_torch, "Kalman, 1960; Tassa et al., Iterative LQG, 2012", {"plans": 2, "horizon": 5, "state": 3},
             draw={"moves": lambda normal, sizes: 0.95 * torch.eye(sizes["state"], device=normal.device) + 0.03 * normal, "cost": lambda normal, _: 0.5 + normal.abs(),
                   "effort": lambda normal, _: 0.5 + normal.abs()}),
    Operator(sparse_text_weights, sparse_text_weights_torch, "Formal et al., SPLADE v2, 2021", {"texts": 3, "tokens": 5, "words": 11, "width": 7},
             draw={"table": divided("width"), "counts": lambda normal, _: normal > -1}),
    Operator(swing_similarity, swing_similarity_torch, "Yang et al., Large scale product graph construction (Swing), 2020", {"users": 7, "items": 9},
             draw={"bought": lambda normal, _: normal > 0.8, "trust": around_one}),
    Operator(vorticity_step, vorticity_step_torch, "Arakawa, Computational design for long-term numerical integration, 1966", {"fields": 2, "tall": 5, "wide": 7}),
    Operator(triangle_attention, triangle_attention_torch, "Jumper et al., AlphaFold, 2021", {"residues": 7, "heads": 2, "head": 3, "width": 5},
             draw={"gamma": around_one, "to_query": divided("width"), "to_key": divided("width"), "to_value": divided("width"), "to_bias": divided("width"), "to_gate": divided("width"),
                   "back": lambda normal, sizes: normal / (sizes["heads"] * sizes["head"])**0.5}),
    Operator(similar_nodes, similar_nodes_torch, "Jeh and Widom, SimRank, 2002", {"nodes": 9},
             draw={"links": lambda normal, _: normal > 1, "lessens": lambda normal, _: 0.8 + 0.01 * normal}),
    Operator(joint_stream_attention, joint_stream_attention_torch, "Esser et al., Stable Diffusion 3, 2024", {"batch": 2, "heads": 3, "pixels": 7, "words": 5, "head": 5},
             draw={"picture_gain": around_one, "text_gain": around_one, "counts": lambda normal, _: normal > -1}),
    Operator(stationary_covariances, stationary_covariances_torch, "Smith, Matrix equation XA + BX = C, 1968", {"systems": 3, "order": 5},
             draw={"step": lambda normal, sizes: 0.6 * normal / sizes["order"]**0.5, "noise": divided("order")}),
    Operator(gauge_plaquettes, gauge_plaquettes_torch, "Wilson, Confinement of quarks, 1974", {"times": 2, "tall": 3, "broad": 2, "deep": 4},
             draw={"link": lambda normal, _: normal / 18**0.5 * 3**0.5}),
    Operator(change_points, change_points_torch, "Jackson et al., Optimal partitioning of data on an interval, 2005", {"series": 2, "points": 11}),
    Operator(fourier_integral_attention, fourier_integral_attention_torch, "Nguyen et al., FourierFormer, 2022", {"streams": 2, "tokens": 7, "head": 5},
             draw={"radius": lambda normal, _: 0.3 + 0.05 * normal.abs()}),
]
