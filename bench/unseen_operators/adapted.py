"""Large models as they are served and adapted: small updates of weights, packed weights, latent caches, heads of odd sizes, chunks of states."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened

rows, inner, outer, rank = Size("rows", 4096), Size("inner", 2048), Size("outer", 2048), Size("rank", 16)
r, k, o, a = indices(r=rows, k=inner, o=outer, a=rank)


@nestor.nest
def dora_linear(x0: bf16[rows, inner], weight: bf16[outer, inner], down: bf16[rank, inner], up: bf16[outer, rank], size: f32[outer]):
    """DoRA: the length of each row of the adapted weight is a parameter of its own."""
    full = define("full", (o, k), weight[o, k] + 2 * nestor.sum(up[o, a] * down[a, k], over=a), type=bf16)
    length = define("length", o, nestor.sqrt(nestor.sum(full[o, k] * full[o, k], over=k)))
    return define("out", (r, o), nestor.sum(x0[r, k] * full[o, k], over=k) * (size[o] / length[o]), type=bf16)


def _dora(x, weight, down, up, size):
    full = (widened(weight) + 2 * widened(up @ down)).to(x.dtype)
    return (widened(x @ full.T) * (size / widened(full).norm(dim=1))).to(x.dtype)


few, blocks = Size("few", 128), Size("blocks", 64)
s, kk = indices(s=few, kk=64 * blocks)


@nestor.nest
def grouped_int8_linear(x0: f16[few, 64 * blocks], packed: i32[outer, 16 * blocks], scale: f16[outer, blocks], bias: f16[outer]):
    """Weights of eight bits, four in a word, with a scale for each 64; a few rows, as when tokens are decoded."""
    byte = ((packed[o, kk // 4] >> (8 * (kk % 4))) & 255) - 128
    full = define("full", (o, kk), nestor.cast(f32, byte) * scale[o, kk // 64], type=f16)
    return define("out", (s, o), nestor.sum(x0[s, kk] * full[o, kk], over=kk) + bias[o], type=f16)


def _int8(x, packed, scale, bias):
    shifts = torch.arange(0, 32, 8, device=x.device, dtype=torch.int32)
    byte = ((packed[:, :, None] >> shifts) & 255).flatten(1) - 128
    return F.linear(x, (byte * scale.repeat_interleave(64, 1)).to(x.dtype), bias)


batch, heads, seen = Size("batch", 16), Size("heads", 128), Size("seen", 4096)
nope, latent, turned = Size("nope", 128, fixed=True), Size("latent", 512, fixed=True), Size("turned", 64, fixed=True)
b, h, j, n, c, c2, t = indices(b=batch, h=heads, j=seen, n=nope, c=latent, c2=latent, t=turned)


@nestor.nest
def absorbed_latent_decoding(q: bf16[batch, heads, nope], q_turned: bf16[batch, heads, turned], cache: bf16[batch, seen, latent],
                             k_turned: bf16[batch, seen, turned], into: bf16[heads, nope, latent], out_of: bf16[heads, nope, latent]):
    """DeepSeek: one query reads a cache of latents that all heads share; what would expand keys and values is applied to it instead."""
    low = define("low", (b, h, c), nestor.sum(q[b, h, n] * into[h, n, c], over=n), type=bf16)
    dot = nestor.sum(low[b, h, c] * cache[b, j, c], over=c) + nestor.sum(q_turned[b, h, t] * k_turned[b, j, t], over=t)
    score = define("score", (b, h, j), dot * 192**-0.5)
    power, total = softmax(score, (b, h), key=j)
    found = define("found", (b, h, c), nestor.sum(power[b, h, j] * cache[b, j, c], over=j) / total[b, h], type=bf16)
    return define("out", (b, h, n), nestor.sum(found[b, h, c] * out_of[h, n, c], over=c), type=bf16)


def _absorbed(q, q_turned, cache, k_turned, into, out_of):
    low = torch.einsum("bhn,hnc->bhc", q, into)
    score = widened(low @ cache.transpose(1, 2)) + widened(q_turned @ k_turned.transpose(1, 2))
    found = torch.softmax(score * 192**-0.5, -1).to(cache.dtype) @ cache
    return torch.einsum("bhc,hnc->bhn", found, out_of)


images, crew, side = Size("images", 4), Size("crew", 16), Size("side", 32)
narrow = Size("head_dim", 80, fixed=True)
m, w, y, x, y2, x2, d, e = indices(m=images, w=crew, y=side, x=side, y2=side, x2=side, d=narrow, e=narrow)


@nestor.nest
def position_map_attention(q: f16[images, crew, side, side, narrow], k: f16[images, crew, side, side, narrow],
                           v: f16[images, crew, side, side, narrow], high: f16[side, side, narrow], across: f16[side, side, narrow]):
    """Segment Anything: scores get what the query says of the key's row and column."""
    row = (m, w, y, x)
    by_row = define("by_row", (*row, y2), nestor.sum(q[(*row, e)] * high[y, y2, e], over=e))
    by_column = define("by_column", (*row, x2), nestor.sum(q[(*row, e)] * across[x, x2, e], over=e))
    dot = nestor.sum(q[(*row, e)] * k[m, w, y2, x2, e], over=e) * 80**-0.5
    score = define("score", (*row, y2, x2), dot + by_row[(*row, y2)] + by_column[(*row, x2)])
    top = define("top", row, nestor.max(score[(*row, y2, x2)], over=(y2, x2)))
    power = define("power", (*row, y2, x2), nestor.exp(score[(*row, y2, x2)] - top[row]))
    total = define("total", row, nestor.sum(power[(*row, y2, x2)], over=(y2, x2)))
    return define("out", (*row, d), nestor.sum(power[(*row, y2, x2)] * v[m, w, y2, x2, d], over=(y2, x2)) / total[row], type=f16)


def _position_map(q, k, v, high, across):
    by_row = torch.einsum("mwyxe,yze->mwyxz", q, high)
    by_column = torch.einsum("mwyxe,xze->mwyxz", q, across)
    bias = (by_row[..., :, None] + by_column[..., None, :]).flatten(4).flatten(2, 3)
    found = F.scaled_dot_product_attention(q.flatten(2, 3), k.flatten(2, 3), v.flatten(2, 3), bias)
    return found.unflatten(2, q.shape[2:4])


shared, ways, frames = Size("shared", 4), Size("ways", 5), Size("frames", 1500)
gb, g, u, i, i2 = indices(gb=images, g=shared, u=ways, i=frames, i2=frames)


@nestor.nest
def grouped_bias_attention(q: f16[images, frames, shared, ways, narrow], k: f16[images, frames, shared, narrow],
                           v: f16[images, frames, shared, narrow], q_bias: f16[shared, ways, narrow], v_bias: f16[shared, narrow]):
    """Five heads share keys; queries and values get biases, as in Whisper; 1,500 frames of sound, heads of 80."""
    row = (gb, i, g, u)
    query = define("query", (*row, d), q[(*row, d)] + q_bias[g, u, d], type=f16)
    value = define("value", (gb, i2, g, d), v[gb, i2, g, d] + v_bias[g, d], type=f16)
    score = define("score", (*row, i2), nestor.sum(query[(*row, e)] * k[gb, i2, g, e], over=e) * 80**-0.5)
    power, total = softmax(score, row, key=i2)
    return define("out", (*row, d), nestor.sum(power[(*row, i2)] * value[gb, i2, g, d], over=i2) / total[row], type=f16)


def _grouped_bias(q, k, v, q_bias, v_bias):
    q = (q + q_bias).flatten(2, 3).transpose(1, 2)
    k, v = (x.repeat_interleave(q_bias.shape[1], 2).transpose(1, 2) for x in (k, v + v_bias))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).unflatten(2, q_bias.shape[:2])


tokens, crew2, half = Size("tokens", 4096), Size("heads", 16), Size("half", 48, fixed=True)
p, hh, f, f2, part, part2 = indices(p=tokens, hh=crew2, f=half, f2=half, part=2, part2=2)


@nestor.nest
def projected_rotary(x0: bf16[tokens, inner], weight: bf16[crew2, 2, half, inner], gain: f32[2, half], cosine: f32[tokens, half],
                     sine: f32[tokens, half]):
    """Queries from hidden states: a product, an RMS norm of each head of 96, and a rotation of halves."""
    line = define("line", (p, hh, part, f), nestor.sum(x0[p, k] * weight[hh, part, f, k], over=k))
    square = nestor.sum(line[p, hh, part2, f2] * line[p, hh, part2, f2], over=(part2, f2))
    inverse = define("inverse", (p, hh), nestor.rsqrt(square / (2 * half) + 1e-6))

    def normed(at):
        return line[p, hh, at, f] * inverse[p, hh] * gain[at, f]
    first, second = normed(0), normed(1)
    turned = nestor.select(part == 0, first * cosine[p, f] - second * sine[p, f], second * cosine[p, f] + first * sine[p, f])
    return define("out", (p, hh, part, f), turned, type=bf16)


def _projected_rotary(x, weight, gain, cosine, sine):
    line = widened(x @ weight.flatten(0, 2).T).unflatten(1, weight.shape[:3])
    first, second = (line * (line.square().mean((2, 3), keepdim=True) + 1e-6).rsqrt() * gain).unbind(2)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.stack([first * cosine - second * sine, second * cosine + first * sine], 2).to(x.dtype)


experts, hidden, wide = Size("experts", 8), Size("hidden", 512), Size("wide", 1024)
q1, ex, hi, wi = indices(q1=tokens, ex=experts, hi=hidden, wi=wide)


@nestor.nest
def top1_experts(x0: bf16[tokens, hidden], weight: bf16[experts, wide, hidden], bias: bf16[experts, wide], chosen: i32[tokens], share: f32[tokens]):
    """Switch: each token goes through the layer of the one expert that was chosen for it."""
    line = define("line", (q1, ex, wi), nestor.sum(x0[q1, hi] * weight[ex, wi, hi], over=hi))
    found = nestor.sum(nestor.select(chosen[q1] == ex, nestor.maximum(line[q1, ex, wi] + bias[ex, wi], 0.0), 0.0), over=ex)
    return define("out", (q1, wi), share[q1] * found, type=bf16)


def _top1(x, weight, bias, chosen, share):
    found = torch.zeros(x.shape[0], weight.shape[1], dtype=share.dtype, device=x.device)
    for expert in range(weight.shape[0]):
        line = widened(F.relu(F.linear(x, weight[expert], bias[expert])))
        found = found + torch.where((chosen == expert)[:, None], line, torch.zeros_like(line))
    return (share[:, None] * found).to(x.dtype)


many, chunk, state, value_dim = Size("many", 1024), Size("chunk", 64, fixed=True), Size("state", 128, fixed=True), Size("value_dim", 128, fixed=True)
ch, z, z2, ke, va = indices(ch=many, z=chunk, z2=chunk, ke=state, va=value_dim)


@nestor.nest
def gated_delta_chunk(q: bf16[many, chunk, state], k: bf16[many, chunk, state], removed: bf16[many, chunk, state],
                      fresh: bf16[many, chunk, value_dim], before: bf16[many, state, value_dim], decay: f32[many, chunk]):
    """Gated DeltaNet: what a chunk puts out, and the state after it. decay: running sums of logarithms."""
    old = nestor.sum(removed[ch, z, ke] * before[ch, ke, va], over=ke)
    delta = define("delta", (ch, z, va), fresh[ch, z, va] - old, type=bf16)
    near = define("near", (ch, z, z2), nestor.sum(q[ch, z, ke] * k[ch, z2, ke], over=ke) * nestor.exp(decay[ch, z] - decay[ch, z2]),
                  type=bf16, where=z2 <= z)
    far = nestor.sum(q[ch, z, ke] * before[ch, ke, va], over=ke) * nestor.exp(decay[ch, z])
    out = define("out", (ch, z, va), far + nestor.sum(near[ch, z, z2] * delta[ch, z2, va], over=z2, where=z2 <= z), type=bf16)
    kept = define("kept", (ch, z, ke), k[ch, z, ke] * nestor.exp(decay[ch, chunk - 1] - decay[ch, z]), type=bf16)
    grown = nestor.sum(kept[ch, z, ke] * delta[ch, z, va], over=z)
    return out, define("after", (ch, ke, va), before[ch, ke, va] * nestor.exp(decay[ch, chunk - 1]) + grown, type=bf16)


def _gated_delta(q, k, removed, fresh, before, decay):
    delta = (widened(fresh) - widened(removed @ before)).to(q.dtype)
    apart = (decay[:, :, None] - decay[:, None]).tril()
    near = (widened(q @ k.transpose(1, 2)) * apart.exp()).tril().to(q.dtype)
    out = widened(q @ before) * decay.exp()[..., None] + widened(near @ delta)
    last = decay[:, -1:]
    kept = (widened(k) * (last - decay).exp()[..., None]).to(q.dtype)
    return out.to(q.dtype), (widened(before) * last.exp()[..., None] + widened(kept.transpose(1, 2) @ delta)).to(q.dtype)


clips, length, dim = Size("clips", 2), Size("length", 2048), Size("head_dim", 128, fixed=True)
cl, he, l1, l2, d1, d2, w1 = indices(cl=clips, he=crew2, l1=length, l2=length, d1=dim, d2=dim, w1=2)


@nestor.nest
def shared_differential_attention(q: bf16[clips, crew2, 2, length, dim], k: bf16[clips, crew2, length, dim], v: bf16[clips, crew2, length, dim],
                                  gate: f32[clips, crew2, length]):
    """Differential attention, second version: two queries on the same keys and values; a gate says how much of one is taken from the other."""
    row, seen_ = (cl, he, w1, l1), l2 <= l1
    score = define("score", (*row, l2), nestor.sum(q[(*row, d2)] * k[cl, he, l2, d2], over=d2) * 128**-0.5, where=seen_)
    power, total = softmax(score, row, seen_, key=l2)
    found = define("found", (*row, d1), nestor.sum(power[(*row, l2)] * v[cl, he, l2, d1], over=l2, where=seen_) / total[row], type=bf16)
    share = 1 / (1 + nestor.exp(-gate[cl, he, l1]))
    return define("out", (cl, he, l1, d1), found[cl, he, 0, l1, d1] - share * found[cl, he, 1, l1, d1], type=bf16)


def _shared_differential(q, k, v, gate):
    k, v = (x[:, :, None].expand_as(q).flatten(1, 2) for x in (k, v))
    found = F.scaled_dot_product_attention(q.flatten(1, 2), k, v, is_causal=True).unflatten(1, q.shape[1:3])
    return (widened(found[:, :, 0]) - torch.sigmoid(gate)[..., None] * widened(found[:, :, 1])).to(q.dtype)


beams, depth, words = Size("beams", 320), Size("depth", 768), Size("words", 50257)
be, de, wo, wo2 = indices(be=beams, de=depth, wo=words, wo2=words)


@nestor.nest
def beam_scores(x0: f16[beams, depth], weight: f16[words, depth], so_far: f32[beams], finished: i32[beams]):
    """Scores of all next words of every beam: its own so far, and a log softmax over 50,257 words; a finished beam keeps word 0."""
    logit = define("logit", (be, wo), nestor.sum(x0[be, de] * weight[wo, de], over=de))
    top = define("top", be, nestor.max(logit[be, wo2], over=wo2))
    total = define("total", be, nestor.sum(nestor.exp(logit[be, wo2] - top[be]), over=wo2))
    score = so_far[be] + logit[be, wo] - top[be] - nestor.log(total[be])
    kept = nestor.select(wo == 0, so_far[be], -1e30)
    return define("out", (be, wo), nestor.select(finished[be] == 1, kept, score))


def _beams(x, weight, so_far, finished):
    score = so_far[:, None] + torch.log_softmax(widened(x @ weight.T), -1)
    kept = torch.full_like(score, -1e30)
    kept[:, 0] = so_far
    return torch.where(finished[:, None] == 1, kept, score)


LINEAR = {"rows": 5, "inner": 7, "outer": 6, "rank": 3}
OPERATORS = [
    Operator(dora_linear, _dora, "S. Liu et al., arXiv:2402.09353", LINEAR,
             draw={"weight": divided("inner"), "down": divided("inner"), "up": divided("rank"), "size": around_one}),
    Operator(grouped_int8_linear, _int8, "G. Xiao et al., SmoothQuant, arXiv:2211.10438", {"few": 5, "blocks": 2, "outer": 7},
             draw={"packed": lambda x, _: (x * 1e9).clamp(-2e9, 2e9).long(), "scale": lambda x, s: (1 + x.abs()) / 1e3}),
    Operator(absorbed_latent_decoding, _absorbed, "DeepSeek-V2, arXiv:2405.04434",
             {"batch": 2, "heads": 3, "seen": 9, "nope": 5, "latent": 6, "turned": 4},
             draw={"into": divided("nope"), "out_of": divided("latent")}),
    Operator(position_map_attention, _position_map, "A. Kirillov et al., arXiv:2304.02643", {"images": 2, "crew": 2, "side": 3, "head_dim": 80},
             draw={"high": lambda x, _: 0.1 * x, "across": lambda x, _: 0.1 * x}),
    Operator(grouped_bias_attention, _grouped_bias, "A. Radford et al., Whisper, arXiv:2212.04356",
             {"images": 2, "shared": 2, "ways": 3, "frames": 7, "head_dim": 80}),
    Operator(projected_rotary, _projected_rotary, "M. Dehghani et al., arXiv:2302.05442; J. Su et al., arXiv:2104.09864",
             {"tokens": 5, "heads": 2, "half": 3, "inner": 7}, draw={"weight": divided("inner"), "gain": around_one}),
    Operator(top1_experts, _top1, "W. Fedus et al., arXiv:2101.03961", {"tokens": 7, "experts": 3, "hidden": 5, "wide": 6},
             draw={"weight": divided("hidden"), "chosen": lambda x, s: (x.abs() * 1e4).long() % s["experts"], "share": lambda x, _: torch.sigmoid(x)}),
    Operator(gated_delta_chunk, _gated_delta, "S. Yang et al., arXiv:2412.06464", {"many": 3, "chunk": 5, "state": 6, "value_dim": 7},
             draw={"q": divided("state"), "removed": divided("state"), "k": divided("chunk"),
                   "decay": lambda x, _: -0.05 * x.abs().cumsum(-1)}),
    Operator(shared_differential_attention, _shared_differential, "T. Ye et al., Differential Transformer, arXiv:2410.05258, and its second version",
             {"clips": 2, "heads": 2, "length": 7, "head_dim": 128}),
    Operator(beam_scores, _beams, "A. Graves, arXiv:1211.3711; A. Radford et al., GPT-2", {"beams": 5, "depth": 6, "words": 11},
             draw={"weight": divided("depth"), "so_far": lambda x, _: -x.abs(), "finished": lambda x, _: (x > 1).long()}),
]
