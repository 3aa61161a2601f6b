"""Operators of 2025 and of long ago: path attention, two-bit caches, MesaNet, Dion and hashed n-grams; regions, splats, walks on graphs,
dispersion, multigrid, JPEG, retrieval, delays, haplotypes, monotone fits, robot arms, seams, spins and portfolios."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, boolean, define, f16, f32, i32, indices

from unseen_operators.problem import Operator, around_one, divided, widened

# ---------------------------------------------------------------------------------------------- language models: PaTH attention

streams, length, head = Size("streams", 24), Size("length", 200), Size("head", 64, fixed=True)
n, i, r, e, d = indices(n=streams, i=length, r=length, e=head, d=head)


@nestor.nest
def path_attention(query: f32[streams, length, head], key: f32[streams, length, head], value: f32[streams, length, head],
                   turn: f32[streams, length, head], amount: f32[streams, length]):
    """Positions are products of Householder-like matrices of all tokens between: the query walks back, and meets key after key."""
    (back,) = indices(back=length - 1)
    walk = define("walk", (n, r, i, e), query[n, i, e], where=r == 0)
    with nestor.steps(n, back):
        along = define("along", (n, back, i), nestor.sum(turn[n, i - back, e] * walk[n, back, i, e], over=e), where=i >= back)
        walk.write((n, back, i, e), (n, back + 1, i, e), walk[n, back, i, e] - amount[n, i - back] * along[n, back, i] * turn[n, i - back, e], where=i > back)
    score = define("score", (n, i, r), nestor.sum(key[n, i - r, e] * walk[n, r, i, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), where=r <= i)
    top = nestor.max(score[n, i, r], over=r, where=r <= i)
    power = define("power", (n, i, r), nestor.exp(score[n, i, r] - top), where=r <= i)
    total = nestor.sum(power[n, i, r], over=r, where=r <= i)
    return define("out", (n, i, d), nestor.sum(power[n, i, r] * value[n, i - r, d], over=r, where=r <= i) / total)


def path_attention_torch(query, key, value, turn, amount):
    # the paper's form of products of Householder matrices: one triangular solve for all pairs
    met = (turn @ turn.mT) * amount[:, None, :]
    eye = torch.eye(turn.shape[1], dtype=turn.dtype, device=turn.device)
    inverse = torch.linalg.solve_triangular(eye + met.triu(1), eye.expand_as(met), upper=True)
    between = amount[..., None] * inverse
    score = query @ key.mT - (query @ turn.mT).tril() @ between.mT @ (turn @ key.mT).tril(-1)
    hidden = torch.ones_like(score, dtype=torch.bool).triu(1)
    return torch.softmax((score / math.sqrt(query.shape[-1])).masked_fill(hidden, -torch.inf), -1) @ value


# ---------------------------------------------------------------------------------------------- language models: KIVI, a cache of two bits

batch, kv_heads, group, blocks, late = Size("batch", 12), Size("kv_heads", 8), Size("group", 4, fixed=True), Size("blocks", 100), Size("late", 37)
parts = Size("parts", 4, fixed=True)  # of 32 channels each
b, h, g, t, s, d, e = indices(b=batch, h=kv_heads, g=group, t=32 * blocks, s=late, d=32 * parts, e=32 * parts)


@nestor.nest
def two_bit_cache_decoding(query: f16[batch, kv_heads, group, 32 * parts],
                           key_bits: i32[batch, kv_heads, 2 * blocks, 32 * parts], key_scale: f16[batch, kv_heads, blocks, 32 * parts], key_zero: f16[batch, kv_heads, blocks, 32 * parts],
                           value_bits: i32[batch, kv_heads, 32 * blocks, 2 * parts], value_scale: f16[batch, kv_heads, 32 * blocks, parts], value_zero: f16[batch, kv_heads, 32 * blocks, parts],
                           late_key: f16[batch, kv_heads, late, 32 * parts], late_value: f16[batch, kv_heads, late, 32 * parts]):
    """Old keys have two bits and a scale for each channel of 32 tokens, old values for each token of 32 channels; late tokens are whole."""
    level = (key_bits[b, h, t // 16, e] >> (2 * (t % 16))) & 3
    key = level * key_scale[b, h, t // 32, e] + key_zero[b, h, t // 32, e]
    old_score = define("old_score", (b, h, g, t), nestor.sum(query[b, h, g, e] * key, over=e) / nestor.sqrt(32.0 * parts))
    late_score = define("late_score", (b, h, g, s), nestor.sum(query[b, h, g, e] * late_key[b, h, s, e], over=e) / nestor.sqrt(32.0 * parts))
    top = define("top", (b, h, g), nestor.maximum(nestor.max(old_score[b, h, g, t], over=t), nestor.max(late_score[b, h, g, s], over=s)))
    old = define("old", (b, h, g, t), nestor.exp(old_score[b, h, g, t] - top[b, h, g]))
    new = define("new", (b, h, g, s), nestor.exp(late_score[b, h, g, s] - top[b, h, g]))
    total = nestor.sum(old[b, h, g, t], over=t) + nestor.sum(new[b, h, g, s], over=s)
    value = ((value_bits[b, h, t, d // 16] >> (2 * (d % 16))) & 3) * value_scale[b, h, t, d // 32] + value_zero[b, h, t, d // 32]
    mixed = nestor.sum(old[b, h, g, t] * value, over=t) + nestor.sum(new[b, h, g, s] * late_value[b, h, s, d], over=s)
    return define("out", (b, h, g, d), mixed / total, type=f16)


def two_bit_cache_decoding_torch(query, key_bits, key_scale, key_zero, value_bits, value_scale, value_zero, late_key, late_value):
    shift = 2 * torch.arange(16, device=query.device, dtype=torch.int32)
    keys = ((key_bits[..., None, :] >> shift[:, None]) & 3).flatten(2, 3)  # b h t e
    keys = keys * key_scale.repeat_interleave(32, 2) + key_zero.repeat_interleave(32, 2)
    values = ((value_bits[..., None] >> shift) & 3).flatten(3, 4)
    values = values * value_scale.repeat_interleave(32, 3) + value_zero.repeat_interleave(32, 3)
    return F.scaled_dot_product_attention(query, torch.cat([keys, late_key], 2), torch.cat([values, late_value], 2))


# ---------------------------------------------------------------------------------------------- language models: Derf's gradients

rows, width = Size("rows", 4100), Size("width", 2880)
i, c = indices(i=rows, c=width)


@nestor.nest
def dynamic_erf_gradients(x: bf16[rows, width], slope: bf16[rows, width], gamma: f32[width], alpha: f32[()], shift: f32[()]):
    """The norm-free layer gamma erf(alpha x + shift) + beta, backward: five gradients, two of them of single numbers."""
    inner = define("inner", (i, c), alpha * x[i, c] + shift)
    carried = define("carried", (i, c), slope[i, c] * gamma[c] * (2 / math.sqrt(math.pi)) * nestor.exp(-inner[i, c] * inner[i, c]))
    d_x = define("d_x", (i, c), alpha * carried[i, c], type=bf16)
    d_gamma = define("d_gamma", c, nestor.sum(slope[i, c] * nestor.erf(inner[i, c]), over=i))
    d_beta = define("d_beta", c, nestor.sum(slope[i, c], over=i))
    d_alpha = define("d_alpha", (), nestor.sum(carried[i, c] * x[i, c], over=(i, c)))
    d_shift = define("d_shift", (), nestor.sum(carried[i, c], over=(i, c)))
    return d_x, d_gamma, d_beta, d_alpha, d_shift


def dynamic_erf_gradients_torch(x, slope, gamma, alpha, shift):
    wide, steep = widened(x), widened(slope)
    inner = alpha * wide + shift
    carried = steep * gamma * (2 / math.sqrt(math.pi)) * torch.exp(-inner.square())
    return (alpha * carried).to(x.dtype), (steep * torch.erf(inner)).sum(0), steep.sum(0), (carried * wide).sum(), carried.sum()


# ---------------------------------------------------------------------------------------------- language models: MuonClip

heads, tokens, head, model = Size("heads", 20), Size("tokens", 1500), Size("head", 128, fixed=True), Size("model", 2560)
h, q, k, e, m = indices(h=heads, q=tokens, k=tokens, e=head, m=model)


@nestor.nest
def clipped_query_keys(query: bf16[heads, tokens, head], key: bf16[heads, tokens, head], to_query: f32[heads, head, model], to_key: f32[heads, head, model], limit=3.0):
    """QK-clip: where a head's greatest causal logit passes the limit, both of its projections shrink by the root of the excess."""
    logit = define("logit", (h, q, k), nestor.sum(query[h, q, e] * key[h, k, e], over=e) * nestor.rsqrt(nestor.cast(f32, head)), where=k <= q)
    top = define("top", h, nestor.max(logit[h, q, k], over=(q, k), where=k <= q))
    factor = define("factor", h, nestor.select(top[h] > limit, nestor.sqrt(limit / top[h]), 1.0))
    new_query = define("new_query", (h, e, m), factor[h] * to_query[h, e, m])
    new_key = define("new_key", (h, e, m), factor[h] * to_key[h, e, m])
    return top, new_query, new_key


def clipped_query_keys_torch(query, key, to_query, to_key, limit=3.0):
    logit = widened(query @ key.mT)
    logit = logit / math.sqrt(query.shape[-1])
    top = logit.masked_fill(torch.ones_like(logit, dtype=torch.bool).triu(1), -torch.inf).amax((1, 2))
    factor = torch.where(top > limit, (limit / top).sqrt(), 1.0)[:, None, None]
    return top, factor * to_query, factor * to_key


# ---------------------------------------------------------------------------------------------- language models: MesaNet

layers, steps, head = Size("layers", 48), Size("steps", 100), Size("head", 32, fixed=True)
n, t, d, e, f = indices(n=layers, t=steps, d=head, e=head, f=head)
ROUNDS = 4


@nestor.nest
def mesa_layer(query: f32[layers, steps, head], key: f32[layers, steps, head], value: f32[layers, steps, head], forget: f32[layers, steps], beta: f32[layers, steps], ridge: f32[head]):
    """Each token solves its own regularised least squares over all before it, with four steps of conjugate gradients."""
    (at,) = indices(at=steps + 1)
    keys = define("keys", (n, at, d, e), 0.0, where=at == 0)
    pairs = define("pairs", (n, at, d, e), 0.0, where=at == 0)
    keys.write((n, t, d, e), (n, t + 1, d, e), forget[n, t] * keys[n, t, d, e] + beta[n, t] * key[n, t, d] * key[n, t, e])
    pairs.write((n, t, d, e), (n, t + 1, d, e), forget[n, t] * pairs[n, t, d, e] + beta[n, t] * value[n, t, d] * key[n, t, e])
    answer = define("answer0", (n, t, d), 0 * query[n, t, d])
    rest = way = query
    energy = define("energy0", (n, t), nestor.sum(query[n, t, d] * query[n, t, d], over=d))
    for k in range(ROUNDS):
        image = define(f"image{k}", (n, t, d), nestor.sum(keys[n, t + 1, d, e] * way[n, t, e], over=e) + ridge[d] * way[n, t, d])
        step = define(f"step{k}", (n, t), energy[n, t] / (nestor.sum(image[n, t, d] * way[n, t, d], over=d) + 1e-12))
        answer = define(f"answer{k + 1}", (n, t, d), answer[n, t, d] + step[n, t] * way[n, t, d])
        rest = define(f"rest{k}", (n, t, d), rest[n, t, d] - step[n, t] * image[n, t, d])
        before, energy = energy, define(f"energy{k + 1}", (n, t), nestor.sum(rest[n, t, d] * rest[n, t, d], over=d))
        way = define(f"way{k}", (n, t, d), rest[n, t, d] + energy[n, t] / (before[n, t] + 1e-12) * way[n, t, d])
    return define("out", (n, t, d), nestor.sum(pairs[n, t + 1, d, e] * answer[n, t, e], over=e))


def mesa_layer_torch(query, key, value, forget, beta, ridge):
    since = forget.log().cumsum(1)
    kept = torch.exp((since[:, :, None] - since[:, None, :]).masked_fill(torch.ones(since.shape[1], since.shape[1], dtype=torch.bool, device=key.device).triu(1), -torch.inf)) * beta[:, None, :]
    keys = torch.einsum("nts,nsd,nse->ntde", kept, key, key)
    answer, rest, way, energy = torch.zeros_like(query), query, query, query.square().sum(-1, keepdim=True)
    for _ in range(ROUNDS):
        image = (keys @ way[..., None])[..., 0] + ridge * way
        step = energy / ((image * way).sum(-1, keepdim=True) + 1e-12)
        answer, rest = answer + step * way, rest - step * image
        before, energy = energy, rest.square().sum(-1, keepdim=True)
        way = rest + energy / (before + 1e-12) * way
    return (kept * (answer @ key.mT)) @ value


# ---------------------------------------------------------------------------------------------- training: Dion

high, across, rank = Size("high", 2000), Size("across", 1536), Size("rank", 24, fixed=True)
y, x, a, p = indices(y=high, x=across, a=rank, p=rank)


@nestor.nest(require=high >= rank)
def dion_step(weight: f32[high, across], momentum: f32[high, across], gradient: f32[high, across], basis: f32[across, rank], rate=0.02, keep=0.95):
    """A power iteration of the momentum, orthonormal columns of rank `rank`, error feedback, and the update."""
    full = define("full", (y, x), momentum[y, x] + gradient[y, x])
    left = define("left", (y, a), nestor.sum(full[y, x] * basis[x, a], over=x))
    unit = nestor.Tensor("unit", f32, (high, rank))
    with nestor.steps(a):
        shared = define("shared", (a, p), nestor.sum(unit[y, p] * left[y, a], over=y), where=p < a)
        residue = define("residue", (a, y), left[y, a] - nestor.sum(unit[y, p] * shared[a, p], over=p, where=p < a))
        size = define("size", a, nestor.sqrt(nestor.sum(residue[a, y] * residue[a, y], over=y)))
        unit.write((a, y), (y, a), residue[a, y] / size[a])
    right = define("right", (x, a), nestor.sum(full[y, x] * unit[y, a], over=y))
    new_momentum = define("new_momentum", (y, x), full[y, x] - (1 - keep) * nestor.sum(unit[y, a] * right[x, a], over=a))
    spread = define("spread", a, nestor.sqrt(nestor.sum(right[x, a] * right[x, a], over=x)))
    new_basis = define("new_basis", (x, a), right[x, a] / (spread[a] + 1e-8))
    factor = nestor.sqrt(nestor.cast(f32, high) / across)
    new_weight = define("new_weight", (y, x), weight[y, x] - rate * factor * nestor.sum(unit[y, a] * new_basis[x, a], over=a))
    return new_weight, new_momentum, new_basis


def dion_step_torch(weight, momentum, gradient, basis, rate=0.02, keep=0.95):
    full = momentum + gradient
    left = full @ basis
    lower = torch.linalg.cholesky(left.mT @ left)
    unit = torch.linalg.solve_triangular(lower.mT, left, upper=True, left=False)
    right = full.mT @ unit
    new_basis = right / (right.square().sum(0).sqrt() + 1e-8)
    factor = math.sqrt(weight.shape[0] / weight.shape[1])
    return weight - rate * factor * unit @ new_basis.mT, full - (1 - keep) * unit @ right.mT, new_basis


# ---------------------------------------------------------------------------------------------- language models: nucleus sampling

rows, words = Size("rows", 20), Size("words", 5003)
i, v, u = indices(i=rows, v=words, u=words)


@nestor.nest
def nucleus_shares(logit: f32[rows, words], heat: f32[rows], share: f32[rows]):
    """A word stays if those that are likelier hold less than the row's share; what stays is normalised, and counted."""
    top = define("top", i, nestor.max(logit[i, v], over=v))
    power = define("power", (i, v), nestor.exp((logit[i, v] - top[i]) / heat[i]))
    total = define("total", i, nestor.sum(power[i, v], over=v))
    above = define("above", (i, v), nestor.sum(nestor.select(logit[i, u] > logit[i, v], power[i, u], 0.0), over=u))
    stays = define("stays", (i, v), above[i, v] < share[i] * total[i], type=boolean)
    left = define("left", i, nestor.sum(nestor.select(stays[i, v], power[i, v], 0.0), over=v))
    out = define("out", (i, v), nestor.select(stays[i, v], power[i, v] / left[i], 0.0))
    count = define("count", i, nestor.sum(nestor.cast(i32, stays[i, v]), over=v))
    return out, count


def nucleus_shares_torch(logit, heat, share):
    power = torch.exp((logit - logit.amax(1, keepdim=True)) / heat[:, None])
    order = logit.argsort(1, descending=True)
    sorted_power = power.gather(1, order)
    stays = sorted_power.cumsum(1) - sorted_power < share[:, None] * power.sum(1, keepdim=True)
    kept = torch.where(stays, sorted_power, 0.0)
    out = torch.zeros_like(power).scatter(1, order, kept / kept.sum(1, keepdim=True))
    return out, stays.sum(1).to(torch.int32)


# ---------------------------------------------------------------------------------------------- language models: Engram

batch, tokens, slots, width = Size("batch", 4), Size("tokens", 1000), Size("slots", 1021), Size("width", 320)
b, t, s, c, k = indices(b=batch, t=tokens, s=slots, c=width, k=width)


@nestor.nest
def hashed_ngrams(token: i32[batch, tokens], hidden: bf16[batch, tokens, width], table: bf16[slots, width], taste: f32[width], eps=1e-6):
    """Three last tokens are hashed to a row of memory, which a gate lets into the stream as far as it fits."""
    def earlier(by):
        return nestor.select(t >= by, token[b, t - by], 0)

    mix = (earlier(0) * 40503) ^ (earlier(1) * 12289) ^ (earlier(2) * 2971215)
    place = define("place", (b, t), (mix & 0x7fffffff) % slots)
    memory = define("memory", (b, t, c), nestor.sum(nestor.select(place[b, t] == s, table[s, c], 0.0), over=s))
    length = nestor.rsqrt(nestor.mean(memory[b, t, k] * memory[b, t, k], over=k) + eps)
    length2 = nestor.rsqrt(nestor.mean(hidden[b, t, k] * hidden[b, t, k], over=k) + eps)
    fit = define("fit", (b, t), nestor.sum(memory[b, t, k] * hidden[b, t, k] * taste[k], over=k) * length * length2 / nestor.sqrt(nestor.cast(f32, width)))
    return define("out", (b, t, c), hidden[b, t, c] + nestor.sigmoid(fit[b, t]) * memory[b, t, c], type=bf16), place


def hashed_ngrams_torch(token, hidden, table, taste, eps=1e-6):
    earlier = [F.pad(token, (by, 0))[:, :token.shape[1]] for by in range(3)]
    mix = (earlier[0] * 40503) ^ (earlier[1] * 12289) ^ (earlier[2] * 2971215)
    place = (mix & 0x7fffffff) % table.shape[0]
    memory, wide = widened(table)[place], widened(hidden)
    fit = (F.rms_norm(memory, memory.shape[-1:], eps=eps) * F.rms_norm(wide, wide.shape[-1:], eps=eps) * taste).sum(-1, keepdim=True) / math.sqrt(wide.shape[-1])
    return (wide + torch.sigmoid(fit) * memory).to(hidden.dtype), place.to(torch.int32)


# ---------------------------------------------------------------------------------------------- vision: RoIAlign

pictures, channels, tall, wide_, regions, bins = Size("pictures", 2), Size("channels", 96), Size("tall", 50), Size("wide", 68), Size("regions", 120), Size("bins", 7, fixed=True)
z, c, y, x, r, by, bx, sy, sx = indices(z=pictures, c=channels, y=tall, x=wide_, r=regions, by=bins, bx=bins, sy=2, sx=2)


@nestor.nest
def region_align(picture: f32[pictures, channels, tall, wide_], box: f32[regions, 4], which: i32[regions]):
    """Features of boxes: four bilinear samples in each bin, averaged. Samples outside the picture are taken at its edge."""
    def hat(place, at):
        return nestor.maximum(0.0, 1 - nestor.absolute(place - at))

    def sample(low, high, bin_, part, last):
        place = box[r, low] + (bin_ + 0.5 * part + 0.25) * (box[r, high] - box[r, low]) / bins - 0.5
        return nestor.clamp(place, 0.0, nestor.cast(f32, last - 1))

    down = define("down", (r, by, y), 0.5 * nestor.sum(hat(sample(0, 2, by, sy, tall), y), over=sy))
    along = define("along", (r, bx, x), 0.5 * nestor.sum(hat(sample(1, 3, bx, sx, wide_), x), over=sx))
    seen = define("seen", (r, c, y, x), nestor.sum(nestor.select(which[r] == z, picture[z, c, y, x], 0.0), over=z))
    return define("out", (r, c, by, bx), nestor.sum(down[r, by, y] * along[r, bx, x] * seen[r, c, y, x], over=(y, x)))


def region_align_torch(picture, box, which, bins=7):
    tall_, across_ = picture.shape[-2:]
    part = (torch.arange(2 * bins, device=box.device, dtype=box.dtype) + 0.5) / 2 / bins
    at_y = (box[:, 0, None] + part * (box[:, 2] - box[:, 0])[:, None] - 0.5).clamp(0, tall_ - 1)
    at_x = (box[:, 1, None] + part * (box[:, 3] - box[:, 1])[:, None] - 0.5).clamp(0, across_ - 1)
    grid = torch.stack(torch.broadcast_tensors((2 * at_x / (across_ - 1) - 1)[:, None, :], (2 * at_y / (tall_ - 1) - 1)[:, :, None]), -1)
    return F.avg_pool2d(F.grid_sample(picture[which], grid, align_corners=True, padding_mode="border"), 2)


# ---------------------------------------------------------------------------------------------- 3D: Gaussians on the screen

splats = Size("splats", 700000)
(s,) = indices(s=splats)


@nestor.nest
def projected_gaussians(centre: f32[splats, 3], quaternion: f32[splats, 4], log_scale: f32[splats, 3], logit: f32[splats], camera: f32[3, 4], focal=500.0, near=0.2):
    """Gaussians of a scene to ellipses of the screen: middle, inverse covariance with the antialiasing's opacity, radius, and whether it is seen."""
    inverse_length = nestor.rsqrt(sum(quaternion[s, k] * quaternion[s, k] for k in range(4)) + 1e-12)
    w, i_, j_, k_ = (define(f"q{part}", s, quaternion[s, part] * inverse_length)[s] for part in range(4))
    turn = [[1 - 2 * (j_ * j_ + k_ * k_), 2 * (i_ * j_ - w * k_), 2 * (i_ * k_ + w * j_)],
            [2 * (i_ * j_ + w * k_), 1 - 2 * (i_ * i_ + k_ * k_), 2 * (j_ * k_ - w * i_)],
            [2 * (i_ * k_ - w * j_), 2 * (j_ * k_ + w * i_), 1 - 2 * (i_ * i_ + j_ * j_)]]
    scale = [nestor.exp(log_scale[s, axis]) for axis in range(3)]
    eye = [define(f"eye{axis}", s, sum(camera[axis, k] * centre[s, k] for k in range(3)) + camera[axis, 3])[s] for axis in range(3)]
    depth = define("depth", s, nestor.maximum(eye[2], near))[s]
    # the camera's matrix times turn times scale, then the projection's Jacobian: a 2x3 matrix whose square is the covariance
    seen = [[sum(camera[row, k] * turn[k][axis] for k in range(3)) * scale[axis] for axis in range(3)] for row in range(3)]
    flat = [[define(f"flat{row}{axis}", s, focal / depth * (seen[row][axis] - eye[row] / depth * seen[2][axis]))[s] for axis in range(3)] for row in range(2)]
    plain = [[define(f"c{row}{column}", s, sum(flat[row][axis] * flat[column][axis] for axis in range(3)))[s] for column in range(2)] for row in range(2)]
    before = nestor.maximum(plain[0][0] * plain[1][1] - plain[0][1] * plain[0][1], 0.0)
    xx, yy, xy = plain[0][0] + 0.3, plain[1][1] + 0.3, plain[0][1]
    area = define("area", s, xx * yy - xy * xy)[s]
    middle = nestor.Tensor("middle", f32, (splats, 2))
    for axis in range(2):
        middle.write(s, (s, axis), focal * eye[axis] / depth)
    conic = nestor.Tensor("conic", f32, (splats, 4))
    for place, value in enumerate([yy / area, -xy / area, xx / area, nestor.sigmoid(logit[s]) * nestor.sqrt(before / area)]):
        conic.write(s, (s, place), value)
    half = 0.5 * (xx + yy)
    radius = define("radius", s, nestor.ceil(3 * nestor.sqrt(half + nestor.sqrt(nestor.maximum(half * half - area, 0.1)))))
    visible = define("visible", s, eye[2] > near, type=boolean)
    return middle, conic, radius, visible


def projected_gaussians_torch(centre, quaternion, log_scale, logit, camera, focal=500.0, near=0.2):
    w, i_, j_, k_ = (quaternion * (quaternion.square().sum(1, keepdim=True) + 1e-12).rsqrt()).unbind(1)
    turn = torch.stack([1 - 2 * (j_ * j_ + k_ * k_), 2 * (i_ * j_ - w * k_), 2 * (i_ * k_ + w * j_),
                        2 * (i_ * j_ + w * k_), 1 - 2 * (i_ * i_ + k_ * k_), 2 * (j_ * k_ - w * i_),
                        2 * (i_ * k_ - w * j_), 2 * (j_ * k_ + w * i_), 1 - 2 * (i_ * i_ + j_ * j_)], 1).view(-1, 3, 3)
    eye = centre @ camera[:, :3].mT + camera[:, 3]
    depth = eye[:, 2].clamp(min=near)
    seen = camera[:, :3] @ (turn * log_scale.exp()[:, None])
    flat = (focal / depth)[:, None, None] * (seen[:, :2] - (eye[:, :2] / depth[:, None])[..., None] * seen[:, 2:])
    plain = flat @ flat.mT
    before = (plain[:, 0, 0] * plain[:, 1, 1] - plain[:, 0, 1].square()).clamp(min=0)
    xx, yy, xy = plain[:, 0, 0] + 0.3, plain[:, 1, 1] + 0.3, plain[:, 0, 1]
    area = xx * yy - xy * xy
    conic = torch.stack([yy / area, -xy / area, xx / area, torch.sigmoid(logit) * (before / area).sqrt()], 1)
    half = 0.5 * (xx + yy)
    radius = torch.ceil(3 * (half + (half * half - area).clamp(min=0.1).sqrt()).sqrt())
    return focal * eye[:, :2] / depth[:, None], conic, radius, eye[:, 2] > near


# ---------------------------------------------------------------------------------------------- graphs: where random walks return

graphs, nodes, hops = Size("graphs", 24), Size("nodes", 190), Size("hops", 12)
g, u, v, w, t = indices(g=graphs, u=nodes, v=nodes, w=nodes, t=hops)


@nestor.nest
def return_probabilities(adjacency: boolean[graphs, nodes, nodes]):
    """Random-walk structural encodings: the chance to be back after 1, 2, ... steps, of each node."""
    degree = nestor.sum(nestor.cast(f32, adjacency[g, u, v]), over=v)
    step = define("step", (g, u, v), nestor.cast(f32, adjacency[g, u, v]) / nestor.maximum(degree, 1.0))
    power = define("power", (t, g, u, v), step[g, u, v], where=t == 0)
    (more,) = indices(more=hops - 1)
    power.write((more, g, u, v), (more + 1, g, u, v), nestor.sum(power[more, g, u, w] * step[g, w, v], over=w))
    return define("out", (g, u, t), power[t, g, u, u])


def return_probabilities_torch(adjacency, hops=12):
    links = adjacency.to(torch.get_default_dtype() if adjacency.dtype == torch.bool else adjacency.dtype)
    step = links / links.sum(-1, keepdim=True).clamp(min=1)
    power, out = step, [step.diagonal(dim1=1, dim2=2)]
    for _ in range(hops - 1):
        power = power @ step
        out.append(power.diagonal(dim1=1, dim2=2))
    return torch.stack(out, -1)


# ---------------------------------------------------------------------------------------------- molecules: D3 dispersion

molecules, atoms, kinds = Size("molecules", 50), Size("atoms", 75), Size("kinds", 5, fixed=True)
m, i, j, p, q, a, b = indices(m=molecules, i=atoms, j=atoms, p=kinds, q=kinds, a=4, b=4)


@nestor.nest
def dispersion_energy(place: f32[molecules, atoms, 3], kind: i32[molecules, atoms], radius: f32[kinds], charge: f32[kinds],
                      reference: f32[kinds, 4], coefficient: f32[kinds, kinds, 4, 4]):
    """Coordination numbers, C6 interpolated between reference molecules, and the damped energy of all pairs."""
    def of(table):  # data never is an index
        return nestor.sum(nestor.select(kind[m, i] == p, table[p], 0.0), over=p)

    size = define("size", (m, i), of(radius))
    strength = define("strength", (m, i), of(charge))
    squared = define("squared", (m, i, j), sum((place[m, i, x] - place[m, j, x]) * (place[m, i, x] - place[m, j, x]) for x in range(3)), where=i != j)
    bonded = 1 / (1 + nestor.exp(-16 * (4 / 3 * (size[m, i] + size[m, j]) * nestor.rsqrt(squared[m, i, j]) - 1)))
    number = define("number", (m, i), nestor.sum(bonded, over=j, where=i != j))
    near = define("near", (m, i, p, a), nestor.select(kind[m, i] == p, nestor.exp(-4 * (number[m, i] - reference[p, a]) ** 2), 0.0))
    total = define("total", (m, i), nestor.sum(near[m, i, p, a], over=(p, a)) + 1e-20)
    c6 = define("c6", (m, i, j), nestor.sum(near[m, i, p, a] * near[m, j, q, b] * coefficient[p, q, a, b], over=(p, q, a, b)) / (total[m, i] * total[m, j]), where=i != j)
    ratio = 3 * strength[m, i] * strength[m, j]
    damp = define("damp", (m, i, j), 0.4 * nestor.sqrt(ratio) + 1.5, where=i != j)
    r2, d2 = squared[m, i, j], damp[m, i, j] * damp[m, i, j]
    pair = c6[m, i, j] * (1 / (r2 * r2 * r2 + d2 * d2 * d2) + 0.8 * ratio / (r2 * r2 * r2 * r2 + d2 * d2 * d2 * d2))
    return define("energy", m, -0.5 * nestor.sum(pair, over=(i, j), where=i != j)), number


def dispersion_energy_torch(place, kind, radius, charge, reference, coefficient):
    others = ~torch.eye(place.shape[1], dtype=torch.bool, device=place.device)
    kind = kind.long()
    size, strength = radius[kind], charge[kind]
    squared = torch.where(others, (place[:, :, None] - place[:, None]).square().sum(-1), 1.0)
    bonded = torch.sigmoid(16 * (4 / 3 * (size[:, :, None] + size[:, None]) * squared.rsqrt() - 1))
    number = (bonded * others).sum(-1)
    near = torch.exp(-4 * (number[..., None] - reference[kind]).square())
    share = near / (near.sum(-1, keepdim=True) + 1e-20)
    spread = (F.one_hot(kind, radius.shape[0]).to(share.dtype)[..., None] * share[..., None, :]).flatten(2)
    c6 = spread @ coefficient.permute(0, 2, 1, 3).reshape(spread.shape[-1], -1) @ spread.mT
    ratio = 3 * strength[:, :, None] * strength[:, None]
    damp = 0.4 * ratio.sqrt() + 1.5
    pair = c6 * (1 / (squared ** 3 + damp ** 6) + 0.8 * ratio / (squared ** 4 + damp ** 8))
    return -0.5 * (pair * others).sum((1, 2)), number


# ---------------------------------------------------------------------------------------------- PDE: a cycle of two grids

problems, coarse = Size("problems", 3), Size("coarse", 350)
n, y, x, a, c, dy, dx, s = indices(n=problems, y=2 * coarse + 1, x=2 * coarse + 1, a=coarse, c=coarse, dy=3, dx=3, s=2)


@nestor.nest
def two_grid_cycle(guess: f32[problems, 2 * coarse + 1, 2 * coarse + 1], force: f32[problems, 2 * coarse + 1, 2 * coarse + 1]):
    """Poisson's equation with zeros around: damped Jacobi, the residual on the coarse grid, its correction back, and what is left."""
    def around(grid, y, x, last):
        return (nestor.sum(grid[n, y + 2 * s - 1, x], over=s, where=(y + 2 * s >= 1) & (y + 2 * s <= last + 1))
                + nestor.sum(grid[n, y, x + 2 * s - 1], over=s, where=(x + 2 * s >= 1) & (x + 2 * s <= last + 1)))

    state = guess
    for sweep in range(2):
        state = define(f"before{sweep}", (n, y, x), 0.2 * state[n, y, x] + 0.2 * (around(state, y, x, 2 * coarse) + force[n, y, x]))
    rest = define("rest", (n, y, x), force[n, y, x] - 4 * state[n, y, x] + around(state, y, x, 2 * coarse))
    weight = (1 - 0.5 * nestor.absolute(nestor.cast(f32, dy - 1))) * (1 - 0.5 * nestor.absolute(nestor.cast(f32, dx - 1)))
    below = define("below", (n, a, c), nestor.sum(weight * rest[n, 2 * a + dy, 2 * c + dx], over=(dy, dx)))
    error = define("error0", (n, a, c), 0.2 * below[n, a, c])
    for sweep in range(3):
        error = define(f"error{sweep + 1}", (n, a, c), 0.2 * error[n, a, c] + 0.2 * (around(error, a, c, coarse - 1) + below[n, a, c]))
    better = define("better", (n, y, x), state[n, y, x])
    better.write((n, a, c, dy, dx), (n, 2 * a + dy, 2 * c + dx), weight * error[n, a, c], reduction="add")
    out = define("out", (n, y, x), 0.2 * better[n, y, x] + 0.2 * (around(better, y, x, 2 * coarse) + force[n, y, x]))
    left = define("left", (n, y, x), force[n, y, x] - 4 * out[n, y, x] + around(out, y, x, 2 * coarse))
    return out, define("norm", n, nestor.sqrt(nestor.sum(left[n, y, x] * left[n, y, x], over=(y, x))))


def two_grid_cycle_torch(guess, force):
    ring = torch.tensor([[0., 1, 0], [1, 0, 1], [0, 1, 0]], dtype=guess.dtype, device=guess.device)[None, None]
    hat = torch.tensor([0.5, 1, 0.5], dtype=guess.dtype, device=guess.device)
    hat = (hat[:, None] * hat)[None, None]
    around = lambda grid: F.conv2d(grid, ring, padding=1)
    state, force = guess[:, None], force[:, None]
    smooth = lambda grid, force: 0.2 * grid + 0.2 * (around(grid) + force)
    for _ in range(2):
        state = smooth(state, force)
    below = F.conv2d(force - 4 * state + around(state), hat, stride=2)
    error = 0.2 * below
    for _ in range(3):
        error = smooth(error, below)
    out = smooth(state + F.conv_transpose2d(error, hat, stride=2), force)
    left = force - 4 * out + around(out)
    return out[:, 0], left.square().sum((1, 2, 3)).sqrt()


# ---------------------------------------------------------------------------------------------- image compression: JPEG

photos, up, along_ = Size("photos", 12), Size("up", 67), Size("along", 90)
n, a, b, y, x, v, u = indices(n=photos, a=up, b=along_, y=8, x=8, v=8, u=8)


@nestor.nest
def coded_blocks(photo: f32[photos, 8 * up, 8 * along_], table: f32[8, 8]):
    """Cosine transforms of 8x8 blocks, quantised to integers, and the picture that these give."""
    def wave(k, place):
        return nestor.select(k == 0, math.sqrt(0.125), 0.5 * nestor.cos((2 * place + 1) * k * (math.pi / 16)))

    lines = define("lines", (n, a, b, y, u), nestor.sum((photo[n, 8 * a + y, 8 * b + x] - 128) * wave(u, x), over=x))
    level = define("level", (n, a, b, v, u), nestor.cast(i32, nestor.round(nestor.sum(lines[n, a, b, y, u] * wave(v, y), over=y) / table[v, u])))
    back = define("back", (n, a, b, v, x), nestor.sum(level[n, a, b, v, u] * table[v, u] * wave(u, x), over=u))
    out = nestor.Tensor("out", f32, (photos, 8 * up, 8 * along_))
    out.write((n, a, b, y, x), (n, 8 * a + y, 8 * b + x), nestor.clamp(nestor.sum(back[n, a, b, v, x] * wave(v, y), over=v) + 128, 0.0, 255.0))
    return level, out


def coded_blocks_torch(photo, table):
    k = torch.arange(8, device=photo.device, dtype=photo.dtype)
    first, angle = torch.tensor([math.sqrt(0.125), math.pi / 16], device=photo.device).to(photo.dtype)  # numbers of f32, as the nest's
    wave = torch.where(k[:, None] == 0, first, 0.5 * torch.cos((2 * k + 1) * k[:, None] * angle))
    blocks = photo.unflatten(1, (-1, 8)).unflatten(3, (-1, 8)).transpose(2, 3) - 128
    level = (wave @ blocks @ wave.mT / table).round()
    back = (wave.mT @ (level * table) @ wave + 128).clamp(0, 255)
    return level.to(torch.int32), back.transpose(2, 3).reshape(photo.shape)


# ---------------------------------------------------------------------------------------------- recommenders: two towers

pairs, depth = Size("pairs", 3000), Size("depth", 96, fixed=True)
i, j, e = indices(i=pairs, j=pairs, e=depth)


@nestor.nest
def retrieval_loss(user: bf16[pairs, depth], item: bf16[pairs, depth], identity: i32[pairs], chance: f32[pairs], heat=0.1):
    """In-batch softmax of unit vectors, corrected by how often items are drawn; the same item elsewhere is no negative."""
    user_size = nestor.rsqrt(nestor.sum(user[i, e] * user[i, e], over=e) + 1e-12)
    item_size = define("item_size", j, nestor.rsqrt(nestor.sum(item[j, e] * item[j, e], over=e) + 1e-12))
    score = define("score", (i, j), nestor.sum(user[i, e] * item[j, e], over=e) * user_size * item_size[j] / heat - nestor.log(chance[j]))
    counts = (identity[i] != identity[j]) | (i == j)
    top = nestor.max(nestor.select(counts, score[i, j], -1e30), over=j)
    spread = define("spread", i, top + nestor.log(nestor.sum(nestor.select(counts, nestor.exp(score[i, j] - top), 0.0), over=j)))
    loss = define("loss", (), nestor.mean(spread[i] - score[i, i], over=i))
    better = define("better", i, nestor.sum(nestor.select(counts & (score[i, j] > score[i, i]), 1, 0), over=j))
    return loss, better


def retrieval_loss_torch(user, item, identity, chance, heat=0.1):
    wide_user, wide_item = widened(user), widened(item)
    score = wide_user @ wide_item.mT * (wide_user.square().sum(1, keepdim=True) + 1e-12).rsqrt() * (wide_item.square().sum(1) + 1e-12).rsqrt() / heat - chance.log()
    counts = (identity[:, None] != identity) | torch.eye(len(user), dtype=torch.bool, device=user.device)
    own = score.diagonal()
    loss = (score.masked_fill(~counts, -torch.inf).logsumexp(1) - own).mean()
    return loss, (counts & (score > own[:, None])).sum(1).to(torch.int32)


# ---------------------------------------------------------------------------------------------- audio: GCC-PHAT

frames, ears, samples, lags = Size("frames", 150), Size("ears", 4), Size("samples", 400, fixed=True), Size("lags", 25)
n, l, r, t, k, z = indices(n=frames, l=ears, r=ears, t=samples, k=samples // 2 + 1, z=2 * lags + 1)


@nestor.nest(require=samples >= 2 * lags + 2)
def phase_delays(wave: f32[frames, ears, samples]):
    """Cross-correlations of microphones by phase alone, at small lags, and the strongest of each pair."""
    turn = 2 * math.pi / samples * ((k * t) % samples)
    real = define("real", (n, l, k), nestor.sum(wave[n, l, t] * nestor.cos(turn), over=t))
    imag = define("imag", (n, l, k), -nestor.sum(wave[n, l, t] * nestor.sin(turn), over=t))
    up = real[n, l, k] * real[n, r, k] + imag[n, l, k] * imag[n, r, k]
    side = imag[n, l, k] * real[n, r, k] - real[n, l, k] * imag[n, r, k]
    size = nestor.sqrt(up * up + side * side) + 1e-6
    up, side = define("up", (n, l, r, k), up / size), define("side", (n, l, r, k), side / size)
    back = 2 * math.pi / samples * nestor.cast(f32, (k * (z - lags)) % samples)
    times = nestor.select((k == 0) | (2 * k == samples), 1.0, 2.0)
    out = define("out", (n, l, r, z), nestor.sum(times * (up[n, l, r, k] * nestor.cos(back) - side[n, l, r, k] * nestor.sin(back)), over=k) / samples)
    return out, define("peak", (n, l, r), nestor.max(out[n, l, r, z], over=z))


def phase_delays_torch(wave, lags=25):
    spectrum = torch.fft.rfft(wave)
    cross = spectrum[:, :, None] * spectrum[:, None].conj()
    seen = torch.fft.irfft(cross / (cross.abs() + 1e-6), n=wave.shape[-1])
    out = torch.cat([seen[..., -lags:], seen[..., :lags + 1]], -1)
    return out, out.amax(-1)


# ---------------------------------------------------------------------------------------------- bioinformatics: reads and haplotypes

reads, bases, haplotype = Size("reads", 700), Size("bases", 60), Size("haplotype", 90)
n, i, j = indices(n=reads, i=bases, j=haplotype)


@nestor.nest
def pair_hmm_forward(read: i32[reads, bases], error: f32[reads, bases], hap: i32[reads, haplotype], opens=0.02, extends=0.15):
    """How likely a read comes from a haplotype: matches, insertions and deletions summed over all alignments, rows rescaled."""
    ii, jj = indices(ii=bases + 1, jj=haplotype + 1)
    match = define("match", (n, ii, jj), 0.0, where=(ii == 0) | (jj == 0))
    insert = define("insert", (n, ii, jj), 0.0, where=(ii == 0) | (jj == 0))
    delete = define("delete", (n, ii, jj), nestor.select(ii == 0, 1.0 / nestor.cast(f32, haplotype), 0.0), where=(ii == 0) | (jj == 0))
    scale = define("scale", (n, ii), 1.0, where=ii == 0)
    with nestor.steps(n, i):
        fits = nestor.select(read[n, i] == hap[n, j], 1 - error[n, i], error[n, i] / 3)
        match.write((n, i, j), (n, i + 1, j + 1), fits / scale[n, i] * ((1 - 2 * opens) * match[n, i, j] + (1 - extends) * (insert[n, i, j] + delete[n, i, j])))
        insert.write((n, i, j), (n, i + 1, j + 1), (opens * match[n, i, j + 1] + extends * insert[n, i, j + 1]) / scale[n, i])
        delete.write((n, i, j), (n, i + 1, j + 1), opens * match[n, i + 1, j] + extends * delete[n, i + 1, j])
        scale.write((n, i), (n, i + 1), nestor.sum(match[n, i + 1, j + 1] + insert[n, i + 1, j + 1], over=j))
    return define("out", n, nestor.sum(nestor.log(scale[n, i + 1]), over=i))


def pair_hmm_forward_torch(read, error, hap, opens=0.02, extends=0.15):
    width = hap.shape[1]
    place = torch.arange(width + 1, device=hap.device)
    apart = place[:, None] - place[None]  # to, from
    chain = torch.where(apart > 0, opens * extends ** (apart - 1).clamp(min=0).to(error.dtype), 0.0).mT
    match = error.new_zeros(len(read), width + 1)
    insert, delete = match, torch.full_like(match, 1 / width)
    scale, out = match.new_ones(len(read), 1), 0.0
    for i in range(read.shape[1]):
        miss = error[:, i, None]
        fits = torch.where(read[:, i, None] == hap, 1 - miss, miss / 3)
        moved = F.pad(fits / scale * ((1 - 2 * opens) * match + (1 - extends) * (insert + delete))[:, :-1], (1, 0))
        insert = F.pad(((opens * match + extends * insert) / scale)[:, 1:], (1, 0))
        match, delete = moved, moved @ chain
        scale = (match + insert).sum(1, keepdim=True)
        out = out + scale[:, 0].log()
    return out


# ---------------------------------------------------------------------------------------------- statistics: isotonic regression

series, points = Size("series", 30), Size("points", 210)
n, i, a, b, k = indices(n=series, i=points, a=points, b=points, k=points)


@nestor.nest
def isotonic_fit(value: f32[series, points], weight: f32[series, points]):
    """The nearest non-decreasing series, by its min-max formula: of all means that start before, the greatest of the least to end after."""
    mean = define("mean", (n, a, b), nestor.sum(weight[n, k] * value[n, k], over=k, where=(k >= a) & (k <= b))
                  / nestor.sum(weight[n, k], over=k, where=(k >= a) & (k <= b)), where=a <= b)
    least = define("least", (n, a, i), nestor.min(mean[n, a, b], over=b, where=b >= i), where=a <= i)
    fit = define("fit", (n, i), nestor.max(least[n, a, i], over=a, where=a <= i))
    off = define("off", n, nestor.sum(weight[n, i] * (fit[n, i] - value[n, i]) ** 2, over=i))
    return fit, off


def isotonic_fit_torch(value, weight):
    total, mass = F.pad((weight * value).cumsum(1), (1, 0)), F.pad(weight.cumsum(1), (1, 0))
    above = torch.ones(value.shape[1], value.shape[1], dtype=torch.bool, device=value.device).triu()
    mean = torch.where(above, (total[:, None, 1:] - total[:, :-1, None]) / (mass[:, None, 1:] - mass[:, :-1, None]), torch.inf)
    least = mean.flip(2).cummin(2).values.flip(2)
    fit = least.masked_fill(~above, -torch.inf).amax(1)
    return fit, (weight * (fit - value).square()).sum(1)


# ---------------------------------------------------------------------------------------------- robotics: arms

poses, joints = Size("poses", 60000), Size("joints", 7, fixed=True)
p, j, r, c, k = indices(p=poses, j=joints, r=3, c=3, k=3)
(s,) = indices(s=6)


@nestor.nest
def arm_jacobians(angle: f32[poses, joints], link: f32[joints, 3]):
    """Forward kinematics of an arm by Denavit and Hartenberg: where the hand is, how it is turned, and its Jacobian and manipulability matrix."""
    (frame,) = indices(frame=joints + 1)
    turn = define("turn", (p, frame, r, c), nestor.select(r == c, 1.0, 0.0), where=frame == 0)
    place = define("place", (p, frame, r), 0.0, where=frame == 0)
    cos, sin = define("cos", (p, j), nestor.cos(angle[p, j])), define("sin", (p, j), nestor.sin(angle[p, j]))
    twist_cos, twist_sin = nestor.cos(link[j, 1]), nestor.sin(link[j, 1])  # link: length, twist, offset
    local = nestor.Tensor("local", f32, (poses, joints, 3, 3))
    for row, values in enumerate([[cos[p, j], -sin[p, j] * twist_cos, sin[p, j] * twist_sin], [sin[p, j], cos[p, j] * twist_cos, -cos[p, j] * twist_sin], [0.0, twist_sin, twist_cos]]):
        for column, value in enumerate(values):
            local.write((p, j), (p, j, row, column), value)
    with nestor.steps(p, j):
        turn.write((p, j, r, c), (p, j + 1, r, c), nestor.sum(turn[p, j, r, k] * local[p, j, k, c], over=k))
        place.write((p, j, r), (p, j + 1, r), place[p, j, r] + link[j, 0] * (turn[p, j, r, 0] * cos[p, j] + turn[p, j, r, 1] * sin[p, j]) + link[j, 2] * turn[p, j, r, 2])
    hand = define("hand", (p, r), place[p, joints, r])
    facing = define("facing", (p, r, c), turn[p, joints, r, c])
    jacobian = nestor.Tensor("jacobian", f32, (poses, 6, joints))
    for axis in range(3):
        one, two = (axis + 1) % 3, (axis + 2) % 3
        jacobian.write((p, j), (p, axis, j), turn[p, j, one, 2] * (hand[p, two] - place[p, j, two]) - turn[p, j, two, 2] * (hand[p, one] - place[p, j, one]))
        jacobian.write((p, j), (p, axis + 3, j), turn[p, j, axis, 2])
    (o,) = indices(o=6)
    return hand, facing, jacobian, define("square", (p, s, o), nestor.sum(jacobian[p, s, j] * jacobian[p, o, j], over=j))


def arm_jacobians_torch(angle, link):
    cos, sin = angle.cos(), angle.sin()
    twist_cos, twist_sin = link[:, 1].cos(), link[:, 1].sin()
    zero = torch.zeros_like(cos)
    local = torch.stack([cos, -sin * twist_cos, sin * twist_sin, sin, cos * twist_cos, -cos * twist_sin, zero, twist_sin + zero, twist_cos + zero], -1).unflatten(-1, (3, 3))
    step = torch.stack([link[:, 0] * cos, link[:, 0] * sin, link[:, 2] + zero], -1)
    turn = torch.eye(3, dtype=angle.dtype, device=angle.device).expand(len(angle), 3, 3)
    place, axes, places = step.new_zeros(len(angle), 3), [], []
    for j in range(angle.shape[1]):
        axes.append(turn[:, :, 2])
        places.append(place)
        place = place + (turn @ step[:, j, :, None])[..., 0]
        turn = turn @ local[:, j]
    axes, places = torch.stack(axes, -1), torch.stack(places, -1)
    jacobian = torch.cat([torch.linalg.cross(axes, place[..., None] - places, dim=1), axes], 1)
    return place, turn, jacobian, jacobian @ jacobian.mT


# ---------------------------------------------------------------------------------------------- image processing: seam carving

pictures, tall, wide_ = Size("pictures", 40), Size("tall", 90), Size("wide", 330)
n, y, x = indices(n=pictures, y=tall, x=wide_)


@nestor.nest(require=(tall >= 2) & (wide_ >= 2))
def seam_costs(picture: f32[pictures, tall, wide_]):
    """The cheapest way down to each pixel, past the weakest gradients, and from which side it comes."""
    right = nestor.select(x < wide_ - 1, picture[n, y, x + 1] - picture[n, y, x], 0.0)
    down = nestor.select(y < tall - 1, picture[n, y + 1, x] - picture[n, y, x], 0.0)
    energy = define("energy", (n, y, x), nestor.absolute(right) + nestor.absolute(down))
    cost = define("cost", (n, y, x), energy[n, y, x], where=y == 0)
    (row,) = indices(row=tall - 1)
    came = nestor.Tensor("came", i32, (pictures, tall - 1, wide_))
    with nestor.steps(n, row):
        left = define("left", (n, row, x), nestor.select(x > 0, cost[n, row, x - 1], 1e30))
        other = define("other", (n, row, x), nestor.select(x < wide_ - 1, cost[n, row, x + 1], 1e30))
        came.write((n, row, x), (n, row, x), nestor.select((left[n, row, x] < cost[n, row, x]) & (left[n, row, x] <= other[n, row, x]), -1, nestor.select(other[n, row, x] < cost[n, row, x], 1, 0)))
        cost.write((n, row, x), (n, row + 1, x), energy[n, row + 1, x] + nestor.minimum(cost[n, row, x], nestor.minimum(left[n, row, x], other[n, row, x])))
    return cost, came


def seam_costs_torch(picture):
    right, down = F.pad(picture.diff(dim=2), (0, 1)), F.pad(picture.diff(dim=1), (0, 0, 0, 1))
    energy = right.abs() + down.abs()
    cost = energy[:, 0]
    costs, came = [cost], []
    for y in range(1, picture.shape[1]):
        around = F.pad(cost, (1, 1), value=1e30)
        left, other = around[:, :-2], around[:, 2:]
        came.append(torch.where((left < cost) & (left <= other), -1, torch.where(other < cost, 1, 0)))
        cost = energy[:, y] + torch.minimum(cost, torch.minimum(left, other))
        costs.append(cost)
    return torch.stack(costs, 1), torch.stack(came, 1).to(torch.int32)


# ---------------------------------------------------------------------------------------------- physics: spins that precess

layers, across, along_ = Size("layers", 60), Size("across", 110), Size("along", 130)
z, y, x, c = indices(z=layers, y=across, x=along_, c=3)


@nestor.nest
def spin_precession(spin: f32[3, layers, across, along_], dt=0.02, damping=0.1, easy=0.5, outer=0.3):
    """Heun's step of Landau, Lifshitz and Gilbert on a periodic lattice: exchange, an easy axis, a field outside; and the energy before it."""
    def neighbours(state):
        def wrapped(at, last, read):
            return nestor.select(at == last, read(0), read(at + 1)) + nestor.select(at == 0, read(last), read(at - 1))
        return (wrapped(z, layers - 1, lambda at: state[c, at, y, x]) + wrapped(y, across - 1, lambda at: state[c, z, at, x])
                + wrapped(x, along_ - 1, lambda at: state[c, z, y, at]))

    def slope(name, state):
        pull = define(f"{name}_field", (c, z, y, x), neighbours(state) + nestor.select(c == 2, 2 * easy * state[2, z, y, x] + outer, 0.0))
        m = [state[k, z, y, x] for k in range(3)]
        h = [pull[k, z, y, x] for k in range(3)]
        torque = define(f"{name}_torque", (c, z, y, x), sum(nestor.select(c == k, m[(k + 1) % 3] * h[(k + 2) % 3] - m[(k + 2) % 3] * h[(k + 1) % 3], 0.0) for k in range(3)))
        t = [torque[k, z, y, x] for k in range(3)]
        again = sum(nestor.select(c == k, m[(k + 1) % 3] * t[(k + 2) % 3] - m[(k + 2) % 3] * t[(k + 1) % 3], 0.0) for k in range(3))
        return pull, define(name, (c, z, y, x), -(torque[c, z, y, x] + damping * again) / (1 + damping * damping))

    pull, first = slope("first", spin)
    guess = define("guess", (c, z, y, x), spin[c, z, y, x] + dt * first[c, z, y, x])
    _, second = slope("second", guess)
    raw = define("raw", (c, z, y, x), spin[c, z, y, x] + 0.5 * dt * (first[c, z, y, x] + second[c, z, y, x]))
    out = define("out", (c, z, y, x), raw[c, z, y, x] * nestor.rsqrt(nestor.sum(raw[c, z, y, x] * raw[c, z, y, x], over=c)))
    exchange = define("exchange", (), -0.5 * nestor.mean(spin[c, z, y, x] * neighbours(spin), over=(c, z, y, x)))
    return out, exchange, define("moment", c, nestor.mean(out[c, z, y, x], over=(z, y, x)))


def spin_precession_torch(spin, dt=0.02, damping=0.1, easy=0.5, outer=0.3):
    neighbours = lambda state: sum(state.roll(by, axis) for by in (-1, 1) for axis in (1, 2, 3))

    def slope(state):
        up = torch.stack([torch.zeros_like(state[0]), torch.zeros_like(state[0]), 2 * easy * state[2] + outer])
        torque = torch.linalg.cross(state, neighbours(state) + up, dim=0)
        return -(torque + damping * torch.linalg.cross(state, torque, dim=0)) / (1 + damping * damping)

    first = slope(spin)
    raw = spin + 0.5 * dt * (first + slope(spin + dt * first))
    out = raw * raw.square().sum(0).rsqrt()
    return out, -0.5 * (spin * neighbours(spin)).mean(), out.mean((1, 2, 3))


# ---------------------------------------------------------------------------------------------- finance: expected shortfall

portfolios, assets, scenarios, worst = Size("portfolios", 40), Size("assets", 300), Size("scenarios", 2001), Size("worst", 50)
p, a, s, o = indices(p=portfolios, a=assets, s=scenarios, o=scenarios)


@nestor.nest(require=worst <= scenarios)
def portfolio_shortfall(position: f32[portfolios, assets], move: f32[scenarios, assets]):
    """Value at risk, expected shortfall and each asset's part of it, from the worst scenarios of each portfolio."""
    gain = define("gain", (p, s), nestor.sum(position[p, a] * move[s, a], over=a))
    rank = define("rank", (p, s), nestor.sum(nestor.select(gain[p, o] < gain[p, s], 1, 0), over=o))
    bad = define("bad", (p, s), rank[p, s] < worst, type=boolean)
    at_risk = define("at_risk", p, -nestor.max(nestor.select(bad[p, s], gain[p, s], -1e30), over=s))
    shortfall = define("shortfall", p, -nestor.sum(nestor.select(bad[p, s], gain[p, s], 0.0), over=s) / worst)
    part = define("part", (p, a), -position[p, a] * nestor.sum(nestor.select(bad[p, s], move[s, a], 0.0), over=s) / worst)
    return at_risk, shortfall, part


def portfolio_shortfall_torch(position, move, worst=50):
    gain = position @ move.mT
    lowest, place = gain.topk(worst, largest=False)
    return -lowest.amax(1), -lowest.mean(1), -position * move[place].mean(1)


# ---------------------------------------------------------------------------------------------- image processing: Kuwahara's filter

photos, tall, wide_ = Size("photos", 6), Size("tall", 270), Size("wide", 410)
n, y, x, c, q, dy, dx = indices(n=photos, y=tall, x=wide_, c=3, q=4, dy=4, dx=4)


@nestor.nest
def kuwahara_filter(photo: f32[photos, 3, tall, wide_]):
    """Each pixel becomes the mean of that quadrant around it whose brightness varies least; edges are repeated."""
    py, px = indices(py=tall + 6, px=wide_ + 6)
    taller = define("taller", (n, c, py, x), nestor.select(py < 3, photo[n, c, 0, x], nestor.select(py >= tall + 3, photo[n, c, tall - 1, x], photo[n, c, py - 3, x])))
    larger = define("larger", (n, c, py, px), nestor.select(px < 3, taller[n, c, py, 0], nestor.select(px >= wide_ + 3, taller[n, c, py, wide_ - 1], taller[n, c, py, px - 3])))

    def at(c, q):
        return larger[n, c, y + dy + 3 * (1 - q // 2), x + dx + 3 * (1 - q % 2)]

    bright = 0.299 * at(0, q) + 0.587 * at(1, q) + 0.114 * at(2, q)
    middle = define("middle", (n, q, y, x), nestor.mean(bright, over=(dy, dx)))
    varies = define("varies", (n, q, y, x), nestor.mean((bright - middle[n, q, y, x]) ** 2, over=(dy, dx)))
    colour = define("colour", (n, q, c, y, x), nestor.mean(at(c, q), over=(dy, dx)))
    best = define("best", (n, y, x), nestor.argmin(varies[n, q, y, x], over=q))
    return define("out", (n, c, y, x), nestor.sum(nestor.select(best[n, y, x] == q, colour[n, q, c, y, x], 0.0), over=q))


def kuwahara_filter_torch(photo):
    tall_, across_ = photo.shape[2:]
    wide = F.pad(photo, (3, 3, 3, 3), mode="replicate")
    tint = torch.tensor([0.299, 0.587, 0.114], dtype=photo.dtype, device=photo.device)
    bright = (wide * tint[:, None, None]).sum(1, keepdim=True)
    colour = F.avg_pool2d(wide, 4, 1)
    patch = F.unfold(bright, 4).unflatten(2, (tall_ + 3, across_ + 3))
    varies = patch.var(1, correction=0)
    quarters = [(slice(3 * (1 - q // 2), None if q < 2 else tall_), slice(3 * (1 - q % 2), None if q % 2 == 0 else across_)) for q in range(4)]
    best = torch.stack([varies[:, rows, columns] for rows, columns in quarters]).argmin(0)
    return torch.stack([colour[:, :, rows, columns] for rows, columns in quarters]).gather(0, best[None, :, None].expand(1, -1, 3, -1, -1))[0]


# ---------------------------------------------------------------------------------------------- language models: KTO

texts, tokens, words = Size("texts", 14), Size("tokens", 300), Size("words", 9001)
n, t, v = indices(n=texts, t=tokens, v=words)


@nestor.nest
def unpaired_preference_loss(logit: bf16[texts, tokens, words], label: i32[texts, tokens], reference: f32[texts, tokens], answer: boolean[texts, tokens],
                             wanted: boolean[texts], beta=0.1, gain=1.3):
    """KTO: texts are wanted or not, each against how far the policy has moved on the whole batch."""
    top = nestor.max(logit[n, t, v], over=v)
    spread = nestor.log(nestor.sum(nestor.exp(logit[n, t, v] - top), over=v)) + top
    own = nestor.sum(nestor.select(label[n, t] == v, logit[n, t, v], 0.0), over=v)
    moved = define("moved", n, nestor.sum(nestor.select(answer[n, t], own - spread - reference[n, t], 0.0), over=t))
    zero = define("zero", (), nestor.maximum(nestor.mean(moved[n], over=n), 0.0))
    loss = define("loss", n, nestor.select(wanted[n], 1 - nestor.sigmoid(beta * (moved[n] - zero)), gain * (1 - nestor.sigmoid(beta * (zero - moved[n])))))
    return define("mean", (), nestor.mean(loss[n], over=n)), loss, define("length", n, nestor.sum(nestor.cast(i32, answer[n, t]), over=t))


def unpaired_preference_loss_torch(logit, label, reference, answer, wanted, beta=0.1, gain=1.3):
    own = torch.log_softmax(widened(logit), -1).gather(-1, label.long()[..., None])[..., 0]
    moved = ((own - reference) * answer).sum(1)
    zero = moved.mean().clamp(min=0)
    loss = torch.where(wanted, 1 - torch.sigmoid(beta * (moved - zero)), gain * (1 - torch.sigmoid(beta * (zero - moved))))
    return loss.mean(), loss, answer.sum(1).to(torch.int32)


OPERATORS = [
    Operator(path_attention, path_attention_torch, "Yang et al., PaTH attention, 2025", {"streams": 2, "length": 9, "head": 5},
             draw={"turn": divided("head"), "amount": lambda normal, _: 2 * torch.sigmoid(normal)}),
    Operator(two_bit_cache_decoding, two_bit_cache_decoding_torch, "Liu et al., KIVI, 2024", {"batch": 2, "kv_heads": 3, "group": 2, "blocks": 2, "late": 5, "parts": 1},
             draw={"key_bits": lambda normal, _: torch.floor(normal * 5e8).clamp(-2**31, 2**31 - 1000), "value_bits": lambda normal, _: torch.floor(normal * 5e8).clamp(-2**31, 2**31 - 1000)}),
    Operator(dynamic_erf_gradients, dynamic_erf_gradients_torch, "Chen et al., Stronger normalization-free transformers, 2025", {"rows": 9, "width": 7}),
    Operator(clipped_query_keys, clipped_query_keys_torch, "Kimi team, MuonClip, 2025", {"heads": 3, "tokens": 11, "head": 5, "model": 7}),
    Operator(mesa_layer, mesa_layer_torch, "von Oswald et al., MesaNet, 2025", {"layers": 2, "steps": 9, "head": 5},
             draw={"key": divided("head"), "query": divided("head"), "forget": lambda normal, _: torch.sigmoid(3 + normal),
                   "beta": lambda normal, _: torch.sigmoid(normal), "ridge": lambda normal, _: 1 + normal.abs()}),
    Operator(dion_step, dion_step_torch, "Ahn et al., Dion, 2025", {"high": 11, "across": 9, "rank": 3}, draw={"basis": divided("across")}),
    Operator(nucleus_shares, nucleus_shares_torch, "Holtzman et al., Nucleus sampling, 2020", {"rows": 3, "words": 23},
             draw={"logit": lambda normal, _: 2 * normal, "heat": lambda normal, _: 1 + 0.2 * normal.clamp(-3, 3), "share": lambda normal, _: torch.sigmoid(1 + normal)}),
    Operator(hashed_ngrams, hashed_ngrams_torch, "Cheng et al., Engram, 2026", {"batch": 2, "tokens": 9, "slots": 13, "width": 7},
             draw={"token": lambda normal, _: (30000 * normal.abs()).floor(), "taste": around_one}),
    Operator(region_align, region_align_torch, "He et al., Mask R-CNN, 2017", {"pictures": 2, "channels": 3, "tall": 9, "wide": 11, "regions": 4, "bins": 7},
             draw={"box": lambda normal, sizes: torch.cat([normal[:, :2].abs() * sizes["tall"] / 4, (normal[:, :2].abs() + normal[:, 2:].abs() + 0.3) * sizes["tall"] / 3], 1),
                   "which": lambda normal, sizes: (normal.abs() * 2).floor() % sizes["pictures"]}),
    Operator(projected_gaussians, projected_gaussians_torch, "Kerbl et al., 3D Gaussian splatting, 2023; Yu et al., Mip-splatting, 2024", {"splats": 13},
             draw={"centre": lambda normal, _: normal + torch.tensor([0.0, 0.0, 4.0], device=normal.device), "log_scale": lambda normal, _: -3 + 0.5 * normal,
                   "camera": lambda normal, _: torch.eye(3, 4, device=normal.device) + 0.1 * normal}),
    Operator(return_probabilities, return_probabilities_torch, "Dwivedi et al., Learnable structural encodings, 2022", {"graphs": 2, "nodes": 7, "hops": 5}, told=("hops",),
             draw={"adjacency": lambda normal, _: normal > 1}),
    Operator(dispersion_energy, dispersion_energy_torch, "Grimme et al., D3, 2010; BJ damping, 2011", {"molecules": 2, "atoms": 7, "kinds": 3},
             draw={"place": lambda normal, _: 3 * normal, "kind": lambda normal, sizes: (3 * normal.abs()).floor() % sizes["kinds"], "radius": lambda normal, _: 0.8 + 0.1 * normal,
                   "charge": lambda normal, _: 1.5 + 0.1 * normal, "reference": lambda normal, _: 1.5 * normal.abs(), "coefficient": lambda normal, _: 20 + 3 * normal}),
    Operator(two_grid_cycle, two_grid_cycle_torch, "Brandt, Multi-level adaptive solutions, 1977", {"problems": 2, "coarse": 4}),
    Operator(coded_blocks, coded_blocks_torch, "Wallace, JPEG, 1992", {"photos": 2, "up": 1, "along": 3},
             draw={"photo": lambda normal, _: (128 + 40 * normal).clamp(0, 255), "table": lambda normal, _: 12 + 3 * normal.abs()}),
    Operator(retrieval_loss, retrieval_loss_torch, "Yi et al., Sampling-bias-corrected neural modeling, 2019", {"pairs": 11, "depth": 7},
             draw={"identity": lambda normal, sizes: (normal.abs() * sizes["pairs"] / 2).floor(), "chance": lambda normal, _: torch.sigmoid(normal - 3)}),
    Operator(phase_delays, phase_delays_torch, "Knapp and Carter, 1976", {"frames": 2, "ears": 3, "samples": 15, "lags": 3}, told=("lags",)),
    Operator(pair_hmm_forward, pair_hmm_forward_torch, "Poplin et al., HaplotypeCaller, 2018", {"reads": 3, "bases": 7, "haplotype": 9},
             draw={"read": lambda normal, _: (2 * normal.abs()).floor() % 4, "hap": lambda normal, _: (2 * normal.abs()).floor() % 4, "error": lambda normal, _: torch.sigmoid(normal - 2)}),
    Operator(isotonic_fit, isotonic_fit_torch, "Barlow et al., Statistical inference under order restrictions, 1972", {"series": 2, "points": 11},
             draw={"weight": lambda normal, _: 0.5 + normal.abs()}),
    Operator(arm_jacobians, arm_jacobians_torch, "Denavit and Hartenberg, 1955; Yoshikawa, 1985", {"poses": 5, "joints": 3}),
    Operator(seam_costs, seam_costs_torch, "Avidan and Shamir, Seam carving, 2007", {"pictures": 2, "tall": 5, "wide": 9}),
    Operator(spin_precession, spin_precession_torch, "Landau and Lifshitz, 1935; Gilbert, 1955", {"layers": 3, "across": 5, "along": 4},
             draw={"spin": lambda normal, _: normal / normal.square().sum(0).sqrt()}),
    Operator(portfolio_shortfall, portfolio_shortfall_torch, "Rockafellar and Uryasev, 2000; Tasche, 1999", {"portfolios": 3, "assets": 7, "scenarios": 23, "worst": 4}, told=("worst",)),
    Operator(kuwahara_filter, kuwahara_filter_torch, "Kuwahara et al., 1976", {"photos": 2, "tall": 5, "wide": 9}),
    Operator(unpaired_preference_loss, unpaired_preference_loss_torch, "Ethayarajh et al., KTO, 2024", {"texts": 3, "tokens": 5, "words": 11},
             draw={"label": lambda normal, sizes: (normal.abs() * sizes["words"] / 2).floor() % sizes["words"], "reference": lambda normal, _: normal - 2,
                   "answer": lambda normal, _: normal > -1, "wanted": lambda normal, _: normal > 0}),
]
