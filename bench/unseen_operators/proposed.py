"""What papers on language models propose: late interaction, prefixes that requests share, odds of answers, several words ahead, products with
scales of blocks on both sides, states that chunks hand on, norms and gates behind heads, sparse softmaxes, gradients of gated layers."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

searches, asks, papers, says, dim = Size("searches", 64), Size("asks", 32), Size("papers", 1024), Size("says", 180), Size("dim", 128, fixed=True)
s, q, p, t, e = indices(s=searches, q=asks, p=papers, t=says, e=dim)


@nestor.nest
def late_interaction(query: f16[searches, asks, dim], document: f16[papers, says, dim], length: i32[papers]):
    """ColBERT: each word of a query takes its nearest in the document; how near they are adds up."""
    near = define("near", (s, p, q, t), nestor.sum(query[s, q, e] * document[p, t, e], over=e))
    seen = nestor.select(nestor.cast(i32, t) < length[p], near[s, p, q, t], -1e4)
    best = define("best", (s, p, q), nestor.max(seen, over=t))
    return define("out", (s, p), nestor.sum(best[s, p, q], over=q))


def _late(query, document, length):
    near = widened(torch.einsum("sqe,pte->spqt", query, document))
    seen = torch.arange(document.shape[1], device=query.device) < length[:, None]
    return near.masked_fill(~seen[:, None], -1e4).amax(-1).sum(-1)


requests, key_heads, group, prefix, own = (Size("requests", 64), Size("key_heads", 8), Size("group", 4), Size("prefix", 4096), Size("own", 512))
r, h, g, j, k, d = indices(r=requests, h=key_heads, g=group, j=prefix, k=own, d=dim)
SCALE = 128**-0.5


@nestor.nest
def shared_prefix_decoding(query: bf16[requests, key_heads, group, dim], key: bf16[key_heads, prefix, dim], value: bf16[key_heads, prefix, dim],
                           own_key: bf16[requests, key_heads, own, dim], own_value: bf16[requests, key_heads, own, dim]):
    """A prompt that all requests share, and what each has of its own, under one softmax."""
    row = (r, h, g)
    score = define("score", (*row, j), nestor.sum(query[(*row, e)] * key[h, j, e], over=e) * SCALE)
    own_score = define("own_score", (*row, k), nestor.sum(query[(*row, e)] * own_key[r, h, k, e], over=e) * SCALE)
    top = define("top", row, nestor.maximum(nestor.max(score[(*row, j)], over=j), nestor.max(own_score[(*row, k)], over=k)))
    power = define("power", (*row, j), nestor.exp(score[(*row, j)] - top[row]))
    own_power = define("own_power", (*row, k), nestor.exp(own_score[(*row, k)] - top[row]))
    total = nestor.sum(power[(*row, j)], over=j) + nestor.sum(own_power[(*row, k)], over=k)
    summed = nestor.sum(power[(*row, j)] * value[h, j, d], over=j) + nestor.sum(own_power[(*row, k)] * own_value[r, h, k, d], over=k)
    return define("out", (*row, d), summed / total, type=bf16)


def _shared_prefix(query, key, value, own_key, own_value):
    score = torch.einsum("rhge,hje->rhgj", query, key)
    own_score = torch.einsum("rhge,rhke->rhgk", query, own_key)
    weight = torch.softmax(widened(torch.cat([score, own_score], -1)) * SCALE, -1).to(query.dtype)
    shared, own = weight.split([key.shape[1], own_key.shape[2]], -1)
    return torch.einsum("rhgj,hjd->rhgd", shared, value) + torch.einsum("rhgk,rhkd->rhgd", own, own_value)


pairs, words, vocabulary = Size("pairs", 4), Size("words", 512), Size("vocabulary", 32000)
a, b, w, v = indices(a=pairs, b=2, w=words, v=vocabulary)


@nestor.nest
def odds_ratio_loss(logit: bf16[pairs, 2, words, vocabulary], label: i32[pairs, 2, words]):
    """ORPO: the odds of a chosen answer against those of a rejected one, by mean chances of their words; and the chosen one's own loss."""
    top = define("top", (a, b, w), nestor.max(logit[a, b, w, v], over=v))
    total = define("total", (a, b, w), nestor.sum(nestor.exp(logit[a, b, w, v] - top[a, b, w]), over=v))
    said = nestor.sum(nestor.select(nestor.cast(i32, v) == label[a, b, w], logit[a, b, w, v], 0.0), over=v)
    chance = define("chance", (a, b, w), said - top[a, b, w] - nestor.log(total[a, b, w]))
    mean = define("mean", (a, b), nestor.sum(chance[a, b, w], over=w) / words)
    odds = define("odds", (a, b), mean[a, b] - nestor.log1p(-nestor.exp(mean[a, b])))
    gap = odds[a, 0] - odds[a, 1]
    lost = nestor.maximum(-gap, 0.0) + nestor.log1p(nestor.exp(-nestor.absolute(gap)))
    return define("out", a, 0.1 * lost - mean[a, 0])


def _odds(logit, label):
    chance = torch.log_softmax(widened(logit), -1).gather(-1, label.long()[..., None])[..., 0]
    mean = chance.mean(-1)
    odds = mean - torch.log1p(-torch.exp(mean))
    return -0.1 * F.logsigmoid(odds[:, 0] - odds[:, 1]) - mean[:, 0]


rows, ahead, width = Size("rows", 64), Size("ahead", 4), Size("width", 2048)
n, m, c, o = indices(n=rows, m=ahead, c=width, o=width)


@nestor.nest
def medusa_heads(x: bf16[rows, width], weight: bf16[ahead, width, width], bias: f32[ahead, width], head: bf16[vocabulary, width]):
    """Medusa: a residual layer for each of the next words, and the head that all of them share."""
    raised = define("raised", (m, n, o), nestor.sum(x[n, c] * weight[m, o, c], over=c) + bias[m, o])
    found = define("found", (m, n, o), x[n, o] + raised[m, n, o] * nestor.sigmoid(raised[m, n, o]), type=bf16)
    return define("out", (m, n, v), nestor.sum(found[m, n, o] * head[v, o], over=o), type=bf16)


def _medusa(x, weight, bias, head):
    found = (x + F.silu(widened(x @ weight.transpose(1, 2)) + bias[:, None])).to(x.dtype)
    return found @ head.T


experts, places, units, blocks = Size("experts", 8), Size("places", 1024), Size("units", 16), Size("blocks", 16)
x_, y, u, l, z = indices(ex=experts, y=places, u=128 * units, l=blocks, z=128)


@nestor.nest
def two_sided_scales(x: f16[experts, places, 128 * blocks], x_scale: f32[experts, places, blocks], weight: f16[experts, 128 * units, 128 * blocks],
                     scale: f32[experts, units, blocks]):
    """DeepSeek-V3's products of experts: a scale for each 128 of a token, and one for each 128 by 128 of a weight."""
    term = x[x_, y, 128 * l + z] * weight[x_, u, 128 * l + z] * x_scale[x_, y, l] * scale[x_, u // 128, l]
    return define("out", (x_, y, u), nestor.sum(term, over=(l, z)), type=f16)


def _two_sided(x, x_scale, weight, scale):
    full = (widened(x) * x_scale.repeat_interleave(128, 2)).to(x.dtype)
    wide = (widened(weight) * scale.repeat_interleave(128, 1).repeat_interleave(128, 2)).to(x.dtype)
    return torch.bmm(full, wide.transpose(1, 2))


texts, chunks, many, states, lanes = Size("texts", 4), Size("chunks", 32), Size("heads", 32), Size("states", 128), Size("lanes", 64)
tx, ch, mh, i1, i2, st, la, la2 = indices(tx=texts, ch=chunks, mh=many, i1=64, i2=64, st=states, la=lanes, la2=lanes)
(done,) = indices(done=chunks - 1)


@nestor.nest
def gated_chunk_output(read: bf16[texts, chunks, 64, states], into: bf16[texts, chunks, 64, states], x: bf16[texts, chunks, 64, many, lanes],
                       decay: f32[texts, chunks, many, 64], added: f32[texts, chunks, many, states, lanes], gate: bf16[texts, chunks, 64, many, lanes]):
    """Mamba-2's last part: the state before each chunk, what tokens read of it and of their own chunk, and the gate behind."""
    state = define("state", (tx, ch, mh, st, la), 0.0, where=ch == 0)
    kept = nestor.exp(decay[tx, done, mh, 63])
    state.write((tx, done, mh, st, la), (tx, done + 1, mh, st, la), kept * state[tx, done, mh, st, la] + added[tx, done, mh, st, la])
    rounded = define("rounded", (tx, ch, mh, st, la), state[tx, ch, mh, st, la], type=bf16)
    alike = define("alike", (tx, ch, i1, i2), nestor.sum(read[tx, ch, i1, st] * into[tx, ch, i2, st], over=st))
    lasting = nestor.exp(decay[tx, ch, mh, i1] - decay[tx, ch, mh, i2])
    weight = define("weight", (tx, ch, mh, i1, i2), alike[tx, ch, i1, i2] * lasting, where=i2 <= i1)
    inner = nestor.sum(weight[tx, ch, mh, i1, i2] * x[tx, ch, i2, mh, la], over=i2, where=i2 <= i1)
    outer = nestor.sum(read[tx, ch, i1, st] * rounded[tx, ch, mh, st, la], over=st)
    found = define("found", (tx, ch, i1, mh, la), inner + nestor.exp(decay[tx, ch, mh, i1]) * outer)
    opened = gate[tx, ch, i1, mh, la] * nestor.sigmoid(gate[tx, ch, i1, mh, la])
    return define("out", (tx, ch, i1, mh, la), found[tx, ch, i1, mh, la] * opened, type=bf16)


def _gated_chunk(read, into, x, decay, added, gate):
    state, kept = [torch.zeros_like(added[:, 0])], torch.exp(decay[..., 63])
    for chunk in range(added.shape[1] - 1):
        state.append(kept[:, chunk, :, None, None] * state[-1] + added[:, chunk])
    alike = widened(read @ into.transpose(-1, -2))
    weight = (alike[:, :, None] * torch.exp(decay[..., :, None] - decay[..., None, :]).tril()).to(x.dtype)
    inner = torch.einsum("bchij,bcjhl->bcihl", weight, x)
    outer = torch.einsum("bcis,bchsl->bcihl", read, torch.stack(state, 1).to(x.dtype))
    return ((widened(inner) + torch.exp(decay).transpose(2, 3)[..., None] * widened(outer)) * F.silu(widened(gate))).to(x.dtype)


tokens, heads, outer_ = Size("tokens", 4096), Size("heads", 16), Size("outer", 2048)
to, he, e2, ou = indices(to=tokens, he=heads, e2=dim, ou=outer_)


@nestor.nest
def gated_head_norm(x: bf16[tokens, heads, dim], gate: bf16[tokens, heads, dim], gain: f32[dim], weight: bf16[outer_, heads, dim]):
    """Gated DeltaNet behind its recurrence: each head's root mean square, a gate, and the mix of all heads."""
    mean = define("mean", (to, he), nestor.sum(x[to, he, e] * x[to, he, e], over=e) / dim)
    opened = gate[to, he, d] * nestor.sigmoid(gate[to, he, d])
    normed = define("normed", (to, he, d), x[to, he, d] * nestor.rsqrt(mean[to, he] + 1e-6) * gain[d] * opened, type=bf16)
    return define("out", (to, ou), nestor.sum(normed[to, he, e2] * weight[ou, he, e2], over=(he, e2)), type=bf16)


def _gated_norm(x, gate, gain, weight):
    wide = widened(x)
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * gain * F.silu(widened(gate))
    return normed.to(x.dtype).flatten(1) @ weight.flatten(1).T


lines, columns, turns = Size("lines", 8192), Size("columns", 1024), Size("turns", 20, fixed=True)
li, co, co2 = indices(li=lines, co=columns, co2=columns)
(turn,) = indices(turn=turns)


@nestor.nest
def entmax_rows(x: f32[lines, columns]):
    """Sparse softmaxes with exponent 1.5: their threshold by bisection."""
    top = define("top", li, nestor.max(0.5 * x[li, co], over=co))
    low = nestor.Tensor("low", f32, (turns + 1, lines))
    low.write((li,), (0, li), top[li] - 1)
    with nestor.steps(turn):
        half = nestor.exp2(-nestor.cast(f32, turn + 1))
        over_ = nestor.maximum(0.5 * x[li, co] - low[turn, li] - half, 0.0)
        mass = define("mass", (turn, li), nestor.sum(over_ * over_, over=co))
        low.write((turn, li), (turn + 1, li), nestor.select(mass[turn, li] >= 1, low[turn, li] + half, low[turn, li]))
    weight = nestor.maximum(0.5 * x[li, co2] - low[turns, li], 0.0)
    power = define("power", (li, co2), weight * weight)
    total = define("sum", li, nestor.sum(power[li, co2], over=co2))
    return define("out", (li, co2), power[li, co2] / total[li])


def _entmax(x):
    half = 0.5 * x
    low = half.amax(1, keepdim=True) - 1
    for turn in range(20):
        mid = low + 0.5**(turn + 1)
        low = torch.where((half - mid).clamp(min=0).square().sum(1, keepdim=True) >= 1, mid, low)
    power = (half - low).clamp(min=0).square()
    return power / power.sum(1, keepdim=True)


deep, inner = Size("deep", 1024), Size("inner", 2816)
de, de2, inn = indices(de=deep, de2=deep, inn=inner)


@nestor.nest
def gated_input_gradient(gradient: bf16[tokens, deep], gate: bf16[tokens, inner], up: bf16[tokens, inner], gate_weight: bf16[inner, deep],
                         up_weight: bf16[inner, deep], down: bf16[deep, inner]):
    """SwiGLU backwards, from what comes behind its last layer to what went into it."""
    back = define("back", (to, inn), nestor.sum(gradient[to, de] * down[de, inn], over=de))
    opened = nestor.sigmoid(gate[to, inn])
    slope = opened * (1 + gate[to, inn] * (1 - opened))
    to_gate = define("to_gate", (to, inn), back[to, inn] * up[to, inn] * slope, type=bf16)
    to_up = define("to_up", (to, inn), back[to, inn] * gate[to, inn] * opened, type=bf16)
    found = nestor.sum(to_gate[to, inn] * gate_weight[inn, de2], over=inn) + nestor.sum(to_up[to, inn] * up_weight[inn, de2], over=inn)
    return define("out", (to, de2), found, type=bf16)


def _gated_gradient(gradient, gate, up, gate_weight, up_weight, down):
    back, wide = widened(gradient @ down), widened(gate)
    opened = torch.sigmoid(wide)
    to_gate = (back * up * opened * (1 + wide * (1 - opened))).to(gate.dtype)
    to_up = (back * wide * opened).to(gate.dtype)
    return to_gate @ gate_weight + to_up @ up_weight


def _lengths(normal, _):
    """Draws lengths of 3 and more, near the longest."""
    return 3 + (1 + normal.abs() * 40).floor()


OPERATORS = [
    Operator(late_interaction, _late, "O. Khattab and M. Zaharia, ColBERT, arXiv:2004.12832", {"searches": 2, "asks": 3, "papers": 3, "says": 7, "dim": 128},
             draw={"query": divided("dim"), "length": _lengths}),
    Operator(shared_prefix_decoding, _shared_prefix, "J. Juravsky et al., Hydragen, arXiv:2402.05099",
             {"requests": 2, "key_heads": 2, "group": 2, "prefix": 9, "own": 5, "dim": 128}),
    Operator(odds_ratio_loss, _odds, "J. Hong et al., ORPO, arXiv:2403.07691", {"pairs": 2, "words": 3, "vocabulary": 11},
             draw={"label": lambda x, sizes: (x.abs() * 3).floor().clamp(max=sizes["vocabulary"] - 1)}),
    Operator(medusa_heads, _medusa, "T. Cai et al., arXiv:2401.10774", {"rows": 3, "ahead": 2, "width": 16, "vocabulary": 11},
             draw={"weight": divided("width"), "head": divided("width")}),
    Operator(two_sided_scales, _two_sided, "DeepSeek-AI, arXiv:2412.19437", {"experts": 2, "places": 3, "units": 1, "blocks": 2},
             draw={"x_scale": around_one, "scale": lambda x, _: (1 + 0.1 * x) / 48}),
    Operator(gated_chunk_output, _gated_chunk, "T. Dao and A. Gu, arXiv:2405.21060", {"texts": 1, "chunks": 3, "heads": 2, "states": 5, "lanes": 3},
             draw={"decay": lambda x, _: -(x.abs() / 32).cumsum(-1), "read": divided("states"), "into": divided("states")}),
    Operator(gated_head_norm, _gated_norm, "S. Yang et al., arXiv:2412.06464", {"tokens": 3, "heads": 2, "dim": 128, "outer": 5},
             draw={"gain": around_one, "weight": lambda x, sizes: x / (sizes["heads"] * sizes["dim"])**0.5}),
    Operator(entmax_rows, _entmax, "B. Peters et al., arXiv:1905.05702", {"lines": 3, "columns": 11, "turns": 20}),
    Operator(gated_input_gradient, _gated_gradient, "N. Shazeer, arXiv:2002.05202", {"tokens": 3, "deep": 16, "inner": 5},
             draw={"gate_weight": divided("inner"), "up_weight": divided("inner"), "down": divided("deep")}),
]
