"""Layers with odd operands: packed weights, adapters, features that are computed on the way to a product, small networks over pairs and fields."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .attention import softmax
from .problem import Operator, divided, widened
from .rows import sigmoid

rows, words, outer = Size("rows", 2048), Size("words", 512), Size("outer", 4096)
r, k, o = indices(r=rows, k=4 * words, o=outer)


def _byte(packed, row, at):
    return ((packed[row, at // 4] >> (8 * (at % 4))) & 255) - 128


@nestor.nest
def int8_linear(x0: i32[rows, words], weight: i32[outer, words], row_scale: f32[rows], column_scale: f32[outer], bias: f16[outer]):
    """LLM.int8(): both operands are bytes, four in a word; scales of rows and of columns after the product."""
    left = define("left", (r, k), nestor.cast(f32, _byte(x0, r, k)), type=f16)
    right = define("right", (o, k), nestor.cast(f32, _byte(weight, o, k)), type=f16)
    found = nestor.sum(left[r, k] * right[o, k], over=k)
    return define("out", (r, o), found * row_scale[r] * column_scale[o] + bias[o], type=f16)


def _bytes(packed):
    shifts = torch.arange(0, 32, 8, device=packed.device, dtype=torch.int32)
    return ((packed[:, :, None] >> shifts) & 255).flatten(1) - 128


def _int8(x, weight, row_scale, column_scale, bias):
    kind = torch.float64 if bias.dtype == torch.float64 else torch.float16
    left, right = (_bytes(each).to(kind) / 16 for each in (x, weight))  # half precision holds sums of the sixteenths
    return (widened(left @ right.T) * 256 * row_scale[:, None] * column_scale + bias).to(bias.dtype)


few, blocks = Size("few", 512), Size("blocks", 128)
s, kb = indices(s=few, kb=32 * blocks)


@nestor.nest
def microscaled_linear(x0: bf16[few, 32 * blocks], packed: i32[outer, 4 * blocks], power: i32[outer, blocks]):
    """MXFP4: numbers of 4 bits (a sign, two of the exponent, one of the fraction), and an exponent for each 32 of them."""
    code = (packed[o, kb // 8] >> (4 * (kb % 8))) & 15
    exponent, fraction = (code >> 1) & 3, 0.5 * nestor.cast(f32, code & 1)
    size = nestor.select(exponent == 0, fraction, (1 + fraction) * nestor.exp2(nestor.cast(f32, exponent - 1)))
    value = nestor.select(code > 7, -size, size) * nestor.exp2(nestor.cast(f32, power[o, kb // 32] - 127))
    full = define("full", (o, kb), value, type=bf16)
    return define("out", (s, o), nestor.sum(x0[s, kb] * full[o, kb], over=kb), type=bf16)


def _microscaled(x, packed, power):
    shifts = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
    code = ((packed[:, :, None] >> shifts) & 15).flatten(1)
    exponent, fraction = (code >> 1) & 3, 0.5 * (code & 1)
    size = torch.where(exponent == 0, fraction, (1 + fraction) * torch.exp2((exponent - 1).float()))
    full = torch.where(code > 7, -size, size) * torch.exp2((power - 127).float()).repeat_interleave(32, 1)
    return x @ full.to(x.dtype).T


decoded, deep, eighths = Size("decoded", 16), Size("deep", 64), Size("eighths", 3584)
t, kd, od = indices(t=decoded, kd=128 * deep, od=8 * eighths)


@nestor.nest
def activation_aware_linear(x0: f16[decoded, 128 * deep], packed: i32[128 * deep, eighths], zero: i32[deep, eighths], scale: f16[deep, 8 * eighths]):
    """AWQ: eight outputs of 4 bits in a word, in an order of their own, with scales and packed zeros for each 128 inputs; a few tokens are decoded."""
    shift = 16 * (od % 2) + 4 * (od % 8 // 2)
    full = ((packed[kd, od // 8] >> shift) & 15) - ((zero[kd // 128, od // 8] >> shift) & 15)
    weight = define("weight", (kd, od), nestor.cast(f32, full) * scale[kd // 128, od], type=f16)
    return define("out", (t, od), nestor.sum(x0[t, kd] * weight[kd, od], over=kd), type=f16)


def _activation_aware(x, packed, zero, scale):
    shifts = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], device=x.device, dtype=torch.int32)
    full, zero = (((each[:, :, None] >> shifts) & 15).flatten(1) for each in (packed, zero))
    return x @ ((full - zero.repeat_interleave(128, 0)) * scale.repeat_interleave(128, 0)).to(x.dtype)


tokens, inner, width = Size("tokens", 4096), Size("inner", 2048), Size("width", 2048)
experts, rank = Size("experts", 8), Size("rank", 16)
n, c, w, x, a = indices(n=tokens, c=inner, w=width, x=experts, a=rank)


@nestor.nest
def expert_adapters(x0: bf16[tokens, inner], weight: bf16[width, inner], down: bf16[experts, rank, inner], up: bf16[experts, width, rank],
                    gate: f32[tokens, experts]):
    """MoLE: a layer, and adapters of rank 16 that each token mixes by its own weights."""
    low = define("low", (n, x, a), nestor.sum(x0[n, c] * down[x, a, c], over=c) * gate[n, x], type=bf16)
    found = nestor.sum(x0[n, c] * weight[w, c], over=c) + nestor.sum(low[n, x, a] * up[x, w, a], over=(x, a))
    return define("out", (n, w), found, type=bf16)


def _adapters(x, weight, down, up, gate):
    low = widened(x @ down.flatten(0, 1).T).unflatten(1, down.shape[:2]) * gate[..., None]
    return x @ weight.T + low.to(x.dtype).flatten(1) @ up.transpose(1, 2).flatten(0, 1)


@nestor.nest
def adapter_gradients(x0: bf16[tokens, inner], grad: bf16[tokens, width], down: bf16[rank, inner], up: bf16[width, rank]):
    """LoRA's backward: the gradients of both narrow matrices."""
    low = define("low", (n, a), nestor.sum(x0[n, c] * down[a, c], over=c), type=bf16)
    back = define("back", (n, a), nestor.sum(grad[n, w] * up[w, a], over=w), type=bf16)
    return (define("down_grad", (a, c), nestor.sum(back[n, a] * x0[n, c], over=n)),
            define("up_grad", (w, a), nestor.sum(grad[n, w] * low[n, a], over=n)))


def _adapter_gradients(x, grad, down, up):
    return widened((grad @ up).T @ x), widened(grad.T @ (x @ down.T))


high, across, kept = Size("high", 4096), Size("across", 4096), Size("kept", 128)
u, v, q = indices(u=high, v=across, q=kept)


@nestor.nest
def projected_adam_step(weight: f32[high, across], grad: bf16[high, across], basis: bf16[high, kept], mean: f32[kept, across],
                        square: f32[kept, across]):
    """GaLore: Adam in a space of 128 directions, and its step brought back."""
    low = define("low", (q, v), nestor.sum(basis[u, q] * grad[u, v], over=u))
    mean2 = define("next_mean", (q, v), 0.9 * mean[q, v] + 0.1 * low[q, v])
    square2 = define("next_square", (q, v), 0.999 * square[q, v] + 0.001 * low[q, v] * low[q, v])
    step = define("step", (q, v), mean2[q, v] / (nestor.sqrt(square2[q, v]) + 1e-8), type=bf16)
    return define("out", (u, v), weight[u, v] - 0.01 * nestor.sum(basis[u, q] * step[q, v], over=q)), mean2, square2


def _projected_adam(weight, grad, basis, mean, square):
    low = widened(basis.T @ grad)
    mean, square = 0.9 * mean + 0.1 * low, 0.999 * square + 0.001 * low.square()
    return weight - 0.01 * widened(basis @ (mean / (square.sqrt() + 1e-8)).to(basis.dtype)), mean, square


points, hidden = Size("points", 131072), Size("hidden", 256)
p, h, axis, part, octave = indices(p=points, h=hidden, axis=3, part=2, octave=10)


@nestor.nest
def encoded_position_layer(place: f32[points, 3], rate: f32[10], weight: f16[hidden, 3, 2, 10], bias: f16[hidden]):
    """NeRF's first layer: sines and cosines of ten octaves of each coordinate."""
    angle = place[p, axis] * rate[octave]
    wave = define("wave", (p, axis, part, octave), nestor.select(part == 0, nestor.sin(angle), nestor.cos(angle)), type=f16)
    found = nestor.sum(wave[p, axis, part, octave] * weight[h, axis, part, octave], over=(axis, part, octave))
    return define("out", (p, h), nestor.maximum(found + bias[h], 0.0), type=f16)


def _encoded(place, rate, weight, bias):
    angle = place[..., None] * rate
    wave = torch.stack([angle.sin(), angle.cos()], 2).to(weight.dtype)
    return F.relu(F.linear(wave.flatten(1), weight.flatten(1), bias))


narrow, wide = Size("narrow", 512), Size("wide", 512)
na, wi, order = indices(na=narrow, wi=wide, order=5)


@nestor.nest
def chebyshev_layer(x0: f16[tokens, narrow], weight: f16[wide, narrow, 5]):
    """Chebyshev KAN: polynomials up to degree 4 of each squashed input, and a weight for each of them."""
    flat = define("flat", (n, na), nestor.tanh(x0[n, na]))
    y = flat[n, na]
    square = y * y
    value = nestor.select(order == 4, 8 * square * square - 8 * square + 1, (4 * square - 3) * y)
    for at, term in ((2, 2 * square - 1), (1, y), (0, 1.0)):
        value = nestor.select(order == at, term, value)
    basis = define("basis", (n, na, order), value, type=f16)
    return define("out", (n, wi), nestor.sum(basis[n, na, order] * weight[wi, na, order], over=(na, order)), type=f16)


def _chebyshev(x, weight):
    y = torch.tanh(widened(x))
    terms = [torch.ones_like(y), y]
    for _ in range(3):
        terms.append(2 * y * terms[-1] - terms[-2])
    return torch.stack(terms, -1).flatten(1).to(x.dtype) @ weight.flatten(1).T


users, seen, features, units = Size("users", 2048), Size("seen", 100), Size("features", 64), Size("units", 80)
us, se, fe, fe2, un = indices(us=users, se=seen, fe=features, fe2=features, un=units)


@nestor.nest
def interest_attention(history: f16[users, seen, features], item: f16[users, features], own: f16[units, features], other: f16[units, features],
                       apart: f16[units, features], both: f16[units, features], bias: f16[units], last: f16[units], ends: i32[users]):
    """DIN: a small layer of what was seen, what is offered, their difference and their product weighs what was seen."""
    def layer(value, weight):
        return nestor.sum(value * weight[un, fe], over=fe)
    old, new = history[us, se, fe], item[us, fe]
    line = layer(old, own) + layer(new, other) + layer(old - new, apart) + layer(old * new, both) + bias[un]
    active = define("active", (us, se, un), sigmoid(line))
    weight = define("weight", (us, se), nestor.sum(active[us, se, un] * last[un], over=un))
    found = nestor.sum(nestor.select(ends[us] > se, weight[us, se], 0.0) * history[us, se, fe2], over=se)
    return define("out", (us, fe2), found, type=f16)


def _interest(history, item, own, other, apart, both, bias, last, ends):
    new = item[:, None].expand_as(history)
    joined = torch.cat([history, new, history - new, history * new], -1)
    active = torch.sigmoid(F.linear(joined, torch.cat([own, other, apart, both], 1), bias))
    weight = (active @ last).masked_fill(torch.arange(history.shape[1], device=ends.device) >= ends[:, None], 0.0)
    return (weight[:, None] @ history)[:, 0]


people, fields, size, ways = Size("people", 4096), Size("fields", 39), Size("size", 32), Size("ways", 2)
pe, f1, f2, si, si2, wa, he, he2 = indices(pe=people, f1=fields, f2=fields, si=size, si2=size, wa=ways, he=32, he2=32)


@nestor.nest
def field_attention(x0: f16[people, fields, size], to_q: f16[ways, 32, size], to_k: f16[ways, 32, size], to_v: f16[ways, 32, size],
                    around: f16[ways, 32, size]):
    """AutoInt: attention between a sample's 39 fields, with its projections, a way around and a ReLU."""
    def projected(name, weight, field, head):
        return define(name, (pe, wa, field, head), nestor.sum(x0[pe, field, si] * weight[wa, head, si], over=si), type=f16)
    query, key, value = projected("query", to_q, f1, he2), projected("key", to_k, f2, he2), projected("value", to_v, f2, he)
    row = (pe, wa, f1)
    score = define("score", (*row, f2), nestor.sum(query[(*row, he2)] * key[pe, wa, f2, he2], over=he2))
    power, total = softmax(score, row, key=f2)
    found = nestor.sum(power[(*row, f2)] * value[pe, wa, f2, he], over=f2) / total[row]
    past = nestor.sum(x0[pe, f1, si2] * around[wa, he, si2], over=si2)
    return define("out", (pe, f1, wa, he), nestor.maximum(found + past, 0.0), type=f16)


def _fields(x, *weights):
    query, key, value, past = ((x @ weight.flatten(0, 1).T).unflatten(2, weight.shape[:2]).transpose(1, 2) for weight in weights)
    return F.relu(F.scaled_dot_product_attention(query, key, value, scale=1.0) + past).transpose(1, 2)


clouds, atoms, channels = Size("clouds", 256), Size("atoms", 48), Size("channels", 64)
cl, i, j, ca, cb, xyz = indices(cl=clouds, i=atoms, j=atoms, ca=channels, cb=channels, xyz=3)


@nestor.nest
def equivariant_layer(x0: f16[clouds, atoms, channels], place: f32[clouds, atoms, 3], own: f16[channels, channels], other: f16[channels, channels],
                      far: f16[channels], mix: f16[channels, channels], pull: f16[channels]):
    """EGNN: messages of two layers for each pair of atoms, from features and distance; places move along what lies between them."""
    left = define("left", (cl, i, cb), nestor.sum(x0[cl, i, ca] * own[cb, ca], over=ca))
    right = define("right", (cl, j, cb), nestor.sum(x0[cl, j, ca] * other[cb, ca], over=ca))
    way = place[cl, i, xyz] - place[cl, j, xyz]
    square = define("square", (cl, i, j), nestor.sum(way * way, over=xyz))

    def swish(value):
        return value * sigmoid(value)
    first = define("first", (cl, i, j, cb), swish(left[cl, i, cb] + right[cl, j, cb] + square[cl, i, j] * far[cb]), type=f16)
    message = define("message", (cl, i, j, ca), swish(nestor.sum(first[cl, i, j, cb] * mix[ca, cb], over=cb)), type=f16)
    strength = define("strength", (cl, i, j), nestor.sum(message[cl, i, j, ca] * pull[ca], over=ca))
    moved = place[cl, i, xyz] + nestor.sum(way * strength[cl, i, j], over=j) / atoms
    return define("moved", (cl, i, xyz), moved), define("sums", (cl, i, ca), nestor.sum(message[cl, i, j, ca], over=j), type=f16)


def _equivariant(x, place, own, other, far, mix, pull):
    way = place[:, :, None] - place[:, None]
    square = way.square().sum(-1, keepdim=True)
    first = F.silu((x @ own.T)[:, :, None] + (x @ other.T)[:, None] + square * far).to(x.dtype)
    message = F.silu(first @ mix.T)
    return place + (way * widened(message @ pull)[..., None]).mean(2), widened(message).sum(2).to(x.dtype)


edges, turns, angles, slim = Size("edges", 16384), Size("turns", 12), Size("angles", 8), Size("slim", 64)
ed, tu, an, sl, sm = indices(ed=edges, tu=turns, an=angles, sl=slim, sm=slim)


@nestor.nest
def directional_messages(message: f16[edges, turns, slim], angle: f16[edges, turns, angles], weight: f16[slim, angles, slim]):
    """DimeNet: messages from an edge's neighbours, through a bilinear layer of each and of the angle between them."""
    found = nestor.sum(angle[ed, tu, an] * weight[sm, an, sl] * message[ed, tu, sl], over=(tu, an, sl))
    return define("out", (ed, sm), found, type=f16)


def _directional(message, angle, weight):
    return torch.einsum("eal,mal->em", angle.transpose(1, 2) @ message, weight)


spots, near = Size("spots", 16384), Size("near", 16)
sp, ne, ne2 = indices(sp=spots, ne=near, ne2=near)


@nestor.nest
def vector_attention(q: f16[spots, slim], k: f16[spots, near, slim], v: f16[spots, near, slim], place: f16[spots, near, slim],
                     weight: f16[slim, slim], bias: f16[slim]):
    """Point Transformer: a weight for each channel of each of 16 neighbours, by a layer of differences and places."""
    apart = define("apart", (sp, ne, sl), nestor.maximum(q[sp, sl] - k[sp, ne, sl] + place[sp, ne, sl], 0.0), type=f16)
    score = define("score", (sp, ne, sm), nestor.sum(apart[sp, ne, sl] * weight[sm, sl], over=sl) + bias[sm])
    top = define("top", (sp, sm), nestor.max(score[sp, ne2, sm], over=ne2))
    power = define("power", (sp, ne, sm), nestor.exp(score[sp, ne, sm] - top[sp, sm]))
    total = define("total", (sp, sm), nestor.sum(power[sp, ne2, sm], over=ne2))
    found = nestor.sum(power[sp, ne, sm] * (v[sp, ne, sm] + place[sp, ne, sm]), over=ne)
    return define("out", (sp, sm), found / total[sp, sm], type=f16)


def _vector(q, k, v, place, weight, bias):
    score = F.linear(F.relu(q[:, None] - k + place), weight, bias)
    return (torch.softmax(score, 1) * (v + place)).sum(1)


PACKED = {name: lambda x, _: (x * 1e9).clamp(-2e9, 2e9).long() for name in ("packed", "zero", "weight", "x0")}
OPERATORS = [
    Operator(int8_linear, _int8, "T. Dettmers et al., arXiv:2208.07339", {"rows": 5, "words": 2, "outer": 7},
             draw=PACKED | {"row_scale": lambda x, s: 1e-3 * (1 + x.abs()), "column_scale": lambda x, s: 1e-2 * (1 + x.abs())}),
    Operator(microscaled_linear, _microscaled, "B. Rouhani et al., arXiv:2310.10537", {"few": 5, "blocks": 2, "outer": 7},
             draw={"packed": PACKED["packed"], "power": lambda x, _: (121 + 2 * x).clamp(115, 127).long()}),
    Operator(activation_aware_linear, _activation_aware, "J. Lin et al., AWQ, arXiv:2306.00978", {"decoded": 3, "deep": 2, "eighths": 2},
             draw={"packed": PACKED["packed"], "zero": PACKED["zero"], "scale": lambda x, _: (1 + x.abs()) / 300}),
    Operator(expert_adapters, _adapters, "X. Wu et al., arXiv:2404.13628", {"tokens": 5, "inner": 7, "width": 6, "experts": 3, "rank": 4},
             draw={"weight": divided("inner"), "down": divided("inner"), "up": divided("rank"), "gate": lambda x, _: torch.softmax(x, -1)}),
    Operator(adapter_gradients, _adapter_gradients, "E. Hu et al., arXiv:2106.09685", {"tokens": 5, "inner": 7, "width": 6, "rank": 4},
             draw={"grad": divided("tokens"), "down": divided("inner"), "up": divided("width")}),
    Operator(projected_adam_step, _projected_adam, "J. Zhao et al., GaLore, arXiv:2403.03507", {"high": 5, "across": 7, "kept": 3},
             draw={"basis": divided("high"), "square": lambda x, _: x.square()}),
    Operator(encoded_position_layer, _encoded, "B. Mildenhall et al., NeRF, arXiv:2003.08934", {"points": 7, "hidden": 5},
             draw={"rate": lambda x, _: torch.exp2(torch.arange(10, device=x.device)), "weight": lambda x, _: x / 60**0.5,
                   "place": lambda x, _: torch.tanh(x)}),
    Operator(chebyshev_layer, _chebyshev, "S. Sidharth et al., arXiv:2405.07200", {"tokens": 5, "narrow": 3, "wide": 6},
             draw={"weight": lambda x, s: x / (5 * s["narrow"])**0.5}),
    Operator(interest_attention, _interest, "G. Zhou et al., DIN, arXiv:1706.06978", {"users": 3, "seen": 5, "features": 6, "units": 7},
             draw={name: divided("features") for name in ("own", "other", "apart", "both")}
             | {"last": divided("units"), "ends": lambda x, s: (x.abs() * 1e4).long() % (s["seen"] + 1)}),
    Operator(field_attention, _fields, "W. Song et al., AutoInt, arXiv:1810.11921", {"people": 3, "fields": 5, "size": 4, "ways": 2},
             draw={name: divided("size") for name in ("to_q", "to_k", "to_v", "around")}),
    Operator(equivariant_layer, _equivariant, "V. Satorras et al., EGNN, arXiv:2102.09844", {"clouds": 2, "atoms": 5, "channels": 6},
             draw={name: divided("channels") for name in ("own", "other", "mix", "pull")}),
    Operator(directional_messages, _directional, "J. Gasteiger et al., DimeNet, arXiv:2003.03123", {"edges": 5, "turns": 3, "angles": 4, "slim": 6},
             draw={"weight": lambda x, s: x / (s["slim"] * s["angles"])**0.5}),
    Operator(vector_attention, _vector, "H. Zhao et al., arXiv:2012.09164", {"spots": 5, "near": 4, "slim": 6}, draw={"weight": divided("slim")}),
]
