"""Attention and recurrences of 2024 and 2025: scores that are mixed or forgotten, other shares than a softmax's, solved chunks."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .attention import softmax
from .problem import Operator, divided, widened
from .rows import sigmoid

batch, heads, length, dim = Size("batch", 2), Size("heads", 16), Size("length", 1024), Size("head_dim", 64, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)
SCALE = 0.125


def _causal(score):
    at = torch.arange(score.shape[-1], device=score.device)
    return score.masked_fill(at > at[:, None], float("-inf"))


@nestor.nest
def multi_token_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                          kernel: bf16[heads, 6, 11]):
    """Scores are convolved over 6 queries and 11 keys before the softmax."""
    row, seen = (b, h, i), j <= i
    above, beside = indices(above=6, beside=11)
    query, key = i + above - 5, j + beside - 5
    raw = define("raw", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE, where=seen)
    near = nestor.select((query >= 0) & (key >= 0) & (key <= query), raw[b, h, query, key], 0.0)
    score = define("score", (*row, j), nestor.sum(near * kernel[h, above, beside], over=(above, beside)), where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _multi_token(q, k, v, kernel):
    raw = F.pad((q @ k.transpose(-1, -2) * SCALE).tril(), (5, 5, 5, 0))
    score = _causal(widened(F.conv2d(raw, kernel[:, None], groups=kernel.shape[0])))
    return torch.softmax(score, -1).to(v.dtype) @ v


@nestor.nest
def softpick_attention(q: f32[batch, heads, length, dim], k: f32[batch, heads, length, dim], v: f32[batch, heads, length, dim]):
    """Shares are relu(exp(s) - 1) over the sum of |exp(s) - 1|: neither sinks nor shares that add up to 1."""
    row, seen = (b, h, i), j <= i
    score = define("score", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE, where=seen)
    top = define("top", row, nestor.max(score[(*row, j)], over=j, where=seen))
    apart = define("apart", (*row, j), nestor.exp(score[(*row, j)] - top[row]) - nestor.exp(-top[row]), where=seen)
    total = nestor.sum(nestor.absolute(apart[(*row, j)]), over=j, where=seen)
    found = nestor.sum(nestor.maximum(apart[(*row, j)], 0.0) * v[b, h, j, d], over=j, where=seen)
    return define("out", (*row, d), found / (total + 1e-6))


def _softpick(q, k, v):
    score = _causal(q @ k.transpose(-1, -2) * SCALE)
    top = score.amax(-1, keepdim=True)
    apart = ((score - top).exp() - (-top).exp()).tril()
    return F.relu(apart) @ v / (apart.abs().sum(-1, keepdim=True) + 1e-6)


places, short = Size("places", 64, fixed=True), Size("short", 512)
p, i_, j_, l_ = indices(p=places, i=short, j=short, l=short)


@nestor.nest
def contextual_position_attention(q: f16[batch, heads, short, dim], k: f16[batch, heads, short, dim], v: f16[batch, heads, short, dim],
                                  embedding: f16[places, dim]):
    """CoPE: a key's position is the sum of gates after it, and embeddings are interpolated, here by hats around whole numbers."""
    row, seen = (b, h, i_), j_ <= i_
    raw = define("raw", (*row, j_), nestor.sum(q[(*row, e)] * k[b, h, j_, e], over=e) * SCALE, where=seen)
    counted = nestor.sum(sigmoid(raw[(*row, l_)]), over=l_, where=(l_ >= j_) & (l_ <= i_))
    position = define("position", (*row, j_), nestor.minimum(counted, nestor.cast(f32, places - 1)), where=seen)
    level = define("level", (*row, p), nestor.sum(q[(*row, e)] * embedding[p, e], over=e))
    hat = nestor.maximum(1 - nestor.absolute(position[(*row, j_)] - nestor.cast(f32, p)), 0.0)
    score = define("score", (*row, j_), raw[(*row, j_)] + nestor.sum(hat * level[(*row, p)], over=p), where=seen)
    power, total = softmax(score, row, seen, key=j_)
    return define("out", (*row, d), nestor.sum(power[(*row, j_)] * v[b, h, j_, d], over=j_, where=seen) / total[row], type=f16)


def _contextual(q, k, v, embedding):
    raw = widened(q @ k.transpose(-1, -2)) * SCALE
    position = torch.sigmoid(raw).tril().flip(-1).cumsum(-1).flip(-1).clamp(max=embedding.shape[0] - 1)
    level, low = widened(q @ embedding.T), position.floor()
    part = position - low
    below, above = level.gather(-1, low.long()), level.gather(-1, position.ceil().long())
    return torch.softmax(_causal(raw + (1 - part) * below + part * above), -1).to(v.dtype) @ v


@nestor.nest
def selective_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
    """The first head's scores say how much later tokens forget a key, in all heads; the first key is kept."""
    row, seen = (b, h, i), j <= i
    (l,) = indices(l=length)
    raw = define("raw", (*row, j), nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE, where=seen)
    lost = nestor.sum(nestor.maximum(raw[b, 0, l, j], 0.0), over=l, where=(j >= 1) & (l > j) & (l < i))
    forgotten = define("forgotten", (b, i, j), lost, where=seen)
    score = define("score", (*row, j), raw[(*row, j)] - forgotten[b, i, j], where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _selective(q, k, v):
    raw = widened(q @ k.transpose(-1, -2)) * SCALE
    lost = F.relu(raw[:, 0]).tril(-1)
    lost = torch.cat([torch.zeros_like(lost[..., :1]), lost[..., 1:]], -1)
    forgotten = F.pad(lost, (0, 0, 1, 0))[:, :-1].cumsum(-2)
    return torch.softmax(_causal(raw - forgotten[:, None]), -1).to(v.dtype) @ v


query_rank, rank = Size("query_rank", 6, fixed=True), Size("rank", 2, fixed=True)
s, r = indices(s=query_rank, r=rank)


@nestor.nest
def tensor_product_attention(qa: bf16[batch, length, query_rank, heads], qb: bf16[batch, length, query_rank, dim],
                             ka: bf16[batch, length, rank, heads], kb: bf16[batch, length, rank, dim],
                             va: bf16[batch, length, rank, heads], vb: bf16[batch, length, rank, dim]):
    """Each token's queries, keys and values are sums of few outer products of heads and channels."""
    row, seen = (b, h, i), j <= i
    query = define("query", (b, i, h, d), nestor.sum(qa[b, i, s, h] * qb[b, i, s, d], over=s) / query_rank, type=bf16)
    key = define("key", (b, j, h, d), nestor.sum(ka[b, j, r, h] * kb[b, j, r, d], over=r) / rank, type=bf16)
    value = define("value", (b, j, h, d), nestor.sum(va[b, j, r, h] * vb[b, j, r, d], over=r) / rank, type=bf16)
    score = define("score", (*row, j), nestor.sum(query[b, i, h, e] * key[b, j, h, e], over=e) * SCALE, where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (b, i, h, d), nestor.sum(power[(*row, j)] * value[b, j, h, d], over=j, where=seen) / total[row], type=bf16)


def _tensor_product(qa, qb, ka, kb, va, vb):
    q, k, v = (torch.einsum("btrh,btrd->bhtd", x, y) / x.shape[2] for x, y in ((qa, qb), (ka, kb), (va, vb)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE).transpose(1, 2)


sign = indices(sign=2)[0]


@nestor.nest
def hedgehog_attention(q: f16[batch, heads, length, dim], k: f16[batch, heads, length, dim], v: f16[batch, heads, length, dim],
                       q_weight: f16[heads, dim, dim], k_weight: f16[heads, dim, dim]):
    """Linear attention on learned features: a softmax of a projection beside one of its opposite."""
    def features(name, x, weight, at):
        there = (b, h, at, sign)
        mapped = define(f"{name}_mapped", (b, h, at, d), nestor.sum(x[b, h, at, e] * weight[h, d, e], over=e), type=f16)
        signed = define(f"{name}_signed", (*there, d), nestor.select(sign == 0, mapped[b, h, at, d], -mapped[b, h, at, d]))
        top = define(f"{name}_top", there, nestor.max(signed[(*there, d)], over=d))
        power = define(f"{name}_power", (*there, d), nestor.exp(signed[(*there, d)] - top[there]))
        return define(f"{name}_features", (*there, d), power[(*there, d)] / nestor.sum(power[(*there, e)], over=e), type=f16)
    query, key = features("q", q, q_weight, i), features("k", k, k_weight, j)
    product = nestor.sum(query[b, h, i, sign, e] * key[b, h, j, sign, e], over=(sign, e))
    weight = define("weight", (b, h, i, j), product, where=j <= i)
    total = nestor.sum(weight[b, h, i, j], over=j, where=j <= i)
    found = nestor.sum(weight[b, h, i, j] * v[b, h, j, d], over=j, where=j <= i)
    return define("out", (b, h, i, d), found / total, type=f16)


def _hedgehog(q, k, v, q_weight, k_weight):
    def features(x, weight):
        mapped = widened(x @ weight.transpose(-1, -2))
        return torch.cat([torch.softmax(mapped, -1), torch.softmax(-mapped, -1)], -1).to(x.dtype)
    weight = (features(q, q_weight) @ features(k, k_weight).transpose(-1, -2)).tril()
    return ((weight @ v) / widened(weight).sum(-1, keepdim=True)).to(v.dtype)


tokens, inner, outer = Size("tokens", 128), Size("inner", 64, fixed=True), Size("outer", 64, fixed=True)
n, c, c2, o = indices(n=tokens, c=inner, c2=inner, o=outer)


@nestor.nest
def rwkv7_step(state: f32[tokens, heads, outer, inner], r0: f32[tokens, heads, inner], decay: f32[tokens, heads, inner],
               k: f32[tokens, heads, inner], v: f32[tokens, heads, outer], removed: f32[tokens, heads, inner],
               rate: f32[tokens, heads, inner]):
    """A token: the state decays by channels, loses what is stored under one key, gains another, and is read."""
    said = define("said", (n, h, o), nestor.sum(state[n, h, o, c2] * removed[n, h, c2], over=c2))
    kept = state[n, h, o, c] * decay[n, h, c] - said[n, h, o] * removed[n, h, c] * rate[n, h, c]
    after = define("after", (n, h, o, c), kept + v[n, h, o] * k[n, h, c])
    return after, define("out", (n, h, o), nestor.sum(after[n, h, o, c2] * r0[n, h, c2], over=c2))


def _rwkv7(state, r, decay, k, v, removed, rate):
    said = state @ removed[..., None]
    after = state * decay[..., None, :] - said * (removed * rate)[..., None, :] + v[..., None] * k[..., None, :]
    return after, (after @ r[..., None])[..., 0]


chunks, steps, wide = Size("chunks", 512), Size("steps", 64, fixed=True), Size("width", 128)
x, t, u, w, w2 = indices(chunk=chunks, t=steps, u=steps, w=wide, w2=wide)


@nestor.nest
def delta_rule_chunk(k: f32[chunks, steps, wide], v: f32[chunks, steps, wide], beta: f32[chunks, steps]):
    """DeltaNet in chunks: what each token writes, less what earlier ones wrote under its key; a triangular system."""
    lower = define("lower", (x, t, u), beta[x, t] * nestor.sum(k[x, t, w2] * k[x, u, w2], over=w2), where=u < t)
    out = define("out", (x, t, w), beta[x, t] * v[x, t, w])
    out.write((x, t, u, w), (x, t, w), -lower[x, t, u] * out[x, u, w], where=u < t, reduction="add")
    return out


def _delta_rule(k, v, beta):
    lower = beta[..., None] * (k @ k.transpose(-1, -2)).tril(-1)
    return torch.linalg.solve_triangular(lower + torch.eye(k.shape[1], device=k.device, dtype=k.dtype), beta[..., None] * v,
                                         upper=False, unitriangular=True)


times, states, channels = Size("times", 128), Size("states", 64, fixed=True), Size("channels", 64, fixed=True)
many = Size("many", 128)
y, a, m, g, part = indices(y=many, a=times, m=states, g=channels, part=2)


@nestor.nest
def s5_layer(x0: f32[many, times, channels], pole: f32[states, 2], into: f32[states, channels, 2], out_of: f32[channels, states, 2]):
    """S5: complex states with poles of their own, shared by all channels, as pairs of real numbers."""
    drive = define("drive", (y, a, m, part), nestor.sum(into[m, g, part] * x0[y, a, g], over=g))
    state = define("state", (y, a, m, part), drive[y, a, m, part], where=a == 0)
    (after,) = indices(after=times - 1)
    own, other = state[y, after, m, part], state[y, after, m, 1 - part]
    turned = nestor.select(part == 0, -pole[m, 1] * other, pole[m, 1] * other, guards=False)
    state.write((y, after, m, part), (y, after + 1, m, part), pole[m, 0] * own + turned + drive[y, after + 1, m, part])
    real = out_of[g, m, 0] * state[y, a, m, 0] - out_of[g, m, 1] * state[y, a, m, 1]
    return define("out", (y, a, g), nestor.sum(real, over=m))


def _s5(x, pole, into, out_of):
    real, imaginary = (x @ each.T for each in into.unbind(-1))
    found = [(real[:, 0], imaginary[:, 0])]
    for now in range(1, x.shape[1]):
        re, im = found[-1]
        found.append((pole[:, 0] * re - pole[:, 1] * im + real[:, now], pole[:, 0] * im + pole[:, 1] * re + imaginary[:, now]))
    re, im = (torch.stack(each, 1) for each in zip(*found))
    return re @ out_of[..., 0].T - im @ out_of[..., 1].T


ATTENTION = {"batch": 2, "heads": 3, "length": 7, "head_dim": 6}
OPERATORS = [
    Operator(multi_token_attention, _multi_token, "O. Golovneva et al., arXiv:2504.00927", ATTENTION,
             draw={"kernel": lambda x, _: x / 8}),
    Operator(softpick_attention, _softpick, "Z. Zuhri et al., arXiv:2504.20966", ATTENTION),
    Operator(contextual_position_attention, _contextual, "O. Golovneva et al., CoPE, arXiv:2405.18719",
             {"batch": 2, "heads": 3, "short": 7, "head_dim": 6, "places": 4}),
    Operator(selective_attention, _selective, "Y. Leviathan et al., arXiv:2410.02703", ATTENTION),
    Operator(tensor_product_attention, _tensor_product, "Y. Zhang et al., arXiv:2501.06425", ATTENTION | {"query_rank": 3, "rank": 2}),
    Operator(hedgehog_attention, _hedgehog, "M. Zhang et al., arXiv:2402.04347", ATTENTION,
             draw={"q_weight": divided("head_dim"), "k_weight": divided("head_dim")}),
    Operator(rwkv7_step, _rwkv7, "B. Peng et al., arXiv:2503.14456", {"tokens": 2, "heads": 3, "inner": 5, "outer": 7},
             draw={"decay": lambda x, _: torch.sigmoid(x), "rate": lambda x, _: torch.sigmoid(x), "removed": divided("inner")}),
    Operator(delta_rule_chunk, _delta_rule, "S. Yang et al., arXiv:2406.06484", {"chunks": 3, "steps": 5, "width": 7},
             draw={"k": divided("width"), "beta": lambda x, _: torch.sigmoid(x)}),
    Operator(s5_layer, _s5, "J. Smith et al., arXiv:2208.04933", {"many": 3, "times": 5, "states": 4, "channels": 7},
             draw={"pole": lambda x, _: 0.6 * torch.tanh(x), "into": divided("channels"), "out_of": divided("states")}),
]
