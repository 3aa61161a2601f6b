"""Sequences: attention without a softmax or with other keys, prefixes, long filters, and recurrences over time or over a table."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f32, i32, indices

from .attention import softmax
from .problem import Operator, divided, widened

batch, heads, length, dim = Size("batch", 2), Size("heads", 16), Size("length", 4096), Size("head_dim", 128, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)
SCALE = 128**-0.5


@nestor.nest
def streaming_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim]):
    """The first 4 keys and the last 512."""
    row, near, seen = (b, h, i), (j < 4) | (j > i - 512), j <= i
    dot = nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE
    score = define("score", (*row, j), nestor.select(near, dot, -1e30), where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _streaming(q, k, v):
    at = torch.arange(q.shape[-2], device=q.device)
    back = at[:, None] - at
    return F.scaled_dot_product_attention(q, k, v, (back >= 0) & ((back < 512) | (at < 4)), scale=SCALE)


@nestor.nest
def packed_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                     document: i32[batch, length]):
    """Several documents in a row: a token sees the earlier ones of its own."""
    row, seen = (b, h, i), j <= i
    dot = nestor.sum(q[(*row, e)] * k[b, h, j, e], over=e) * SCALE
    score = define("score", (*row, j), nestor.select(document[b, i] == document[b, j], dot, -1e30), where=seen)
    power, total = softmax(score, row, seen, key=j)
    return define("out", (*row, d), nestor.sum(power[(*row, j)] * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _packed(q, k, v, document):
    at = torch.arange(q.shape[-2], device=q.device)
    same = document[:, None, :, None] == document[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, same & (at <= at[:, None]), scale=SCALE)


narrow = Size("narrow", 16, fixed=True)
a, a2 = indices(a=narrow, a2=narrow)


@nestor.nest
def taylor_attention(q: bf16[batch, heads, length, narrow], k: bf16[batch, heads, length, narrow], v: bf16[batch, heads, length, dim]):
    """Based: 1 + s + s^2 / 2 in place of an exponential."""
    row, seen = (b, h, i), j <= i
    score = define("score", (*row, j), nestor.sum(q[(*row, a)] * k[b, h, j, a], over=a) / 4, where=seen)
    weight = 1 + score[(*row, j)] + 0.5 * score[(*row, j)] * score[(*row, j)]
    total = define("total", row, nestor.sum(weight, over=j, where=seen))
    return define("out", (*row, d), nestor.sum(weight * v[b, h, j, d], over=j, where=seen) / total[row], type=bf16)


def _taylor(q, k, v):
    score = widened(q @ k.transpose(-1, -2)) / 4
    weight = (1 + score + 0.5 * score.square()).tril()
    return ((weight.to(v.dtype) @ v) / weight.sum(-1, keepdim=True)).to(v.dtype)


times, width = Size("times", 512), Size("width", 1024)
t, u, c = indices(t=times, u=times, c=width)


@nestor.nest
def attention_free(q: bf16[batch, times, width], k: bf16[batch, times, width], v: bf16[batch, times, width], place: f32[times, times]):
    """AFT: keys and places are added, each channel for itself."""
    power = nestor.exp(k[b, u, c] + place[t, u])
    total = define("total", (b, t, c), nestor.sum(power, over=u))
    mean = define("mean", (b, t, c), nestor.sum(power * v[b, u, c], over=u))
    return define("out", (b, t, c), mean[b, t, c] / total[b, t, c] / (1 + nestor.exp(-q[b, t, c])), type=bf16)


def _attention_free(q, k, v, place):
    far, near = place.exp(), widened(k).exp()
    return (torch.sigmoid(widened(q)) * (far @ (near * widened(v))) / (far @ near)).to(q.dtype)


rows, columns = Size("rows", 4096), Size("columns", 2048)
r, s, s2 = indices(r=rows, s=columns, s2=columns)


@nestor.nest
def running_sum(x: f32[rows, columns]):
    """Prefix sums of rows."""
    return define("out", (r, s), nestor.sum(x[r, s2], over=s2, where=s2 <= s))


def _running(x):
    return x.cumsum(-1)


runs, moves = Size("runs", 65536), Size("moves", 128)
run, move = indices(run=runs, move=moves)


@nestor.nest
def discounted_return(reward: f32[runs, moves]):
    """Rewards that come later, each step worth 0.99 of the one before: a recurrence from the end."""
    back = indices(back=moves - 1)[0]
    value = define("value", (run, move), reward[run, move], where=move == moves - 1)
    at = moves - 2 - back
    value.write((run, back), (run, at), reward[run, at] + 0.99 * value[run, at + 1])
    return value


def _discounted(reward):
    found = [reward[:, -1]]
    for step in range(reward.shape[1] - 2, -1, -1):
        found.append(reward[:, step] + 0.99 * found[-1])
    return torch.stack(found[::-1], 1)


@nestor.nest
def long_convolution(x: f32[batch, times, width], filter: f32[times, width]):
    """Hyena: filters as long as the sequence, a filter of its own for each channel."""
    return define("out", (b, t, c), nestor.sum(filter[t - u, c] * x[b, u, c], over=u, where=u <= t))


def _long(x, filter):
    size = 2 * x.shape[1]
    found = torch.fft.rfft(x, n=size, dim=1) * torch.fft.rfft(filter, n=size, dim=0)
    return torch.fft.irfft(found, n=size, dim=1)[:, :x.shape[1]]


tokens, half = Size("tokens", 1024), Size("half", 1024)
sequences = Size("sequences", 16)
n, p, p2, f, f2 = indices(n=sequences, p=tokens, p2=tokens, f=half, f2=half)


@nestor.nest
def spatial_gating(x: bf16[sequences, tokens, 2 * half], gain: f32[half], weight: bf16[tokens, tokens], bias: f32[tokens]):
    """gMLP: the second half, normalised and mixed over tokens, gates the first."""
    mean = define("mean", (n, p), nestor.sum(x[n, p, half + f2], over=f2) / half)
    apart = x[n, p, half + f2] - mean[n, p]
    scale = define("scale", (n, p), nestor.rsqrt(nestor.sum(apart * apart, over=f2) / half + 1e-5))
    normed = define("normed", (n, p, f), (x[n, p, half + f] - mean[n, p]) * scale[n, p] * gain[f], type=bf16)
    mixed = nestor.sum(weight[p, p2] * normed[n, p2, f], over=p2)
    return define("out", (n, p, f), x[n, p, f] * (mixed + bias[p]), type=bf16)


def _spatial(x, gain, weight, bias):
    first, second = x.chunk(2, -1)
    normed = F.layer_norm(widened(second), second.shape[-1:], gain, eps=1e-5).to(x.dtype)
    return (widened(first) * (widened(weight @ normed) + bias[:, None])).to(x.dtype)


seen, kept, kernel = Size("seen", 4096), Size("kept", 4096), Size("kernel", 64, fixed=True)
y, z, g, g2, o = indices(y=seen, z=kept, g=kernel, g2=kernel, o=dim)


@nestor.nest
def kernel_regression(x: f32[seen, kernel], at: f32[kept, kernel], value: f32[kept, dim]):
    """Nadaraya and Watson: means of values by the nearness of their places."""
    apart = x[y, g] - at[z, g]
    power = define("power", (y, z), nestor.exp(-0.05 * nestor.sum(apart * apart, over=g)))
    total = define("total", y, nestor.sum(power[y, z], over=z))
    return define("out", (y, o), nestor.sum(power[y, z] * value[z, o], over=z) / (total[y] + 1e-20))


def _regression(x, at, value):
    squares = x.square().sum(-1)[:, None] + at.square().sum(-1) - 2 * x @ at.T
    power = (-0.05 * squares).exp()
    return power @ value / (power.sum(-1, keepdim=True) + 1e-20)


states, actions = Size("states", 2048), Size("actions", 16)
st, st2, act = indices(st=states, st2=states, act=actions)


@nestor.nest
def value_iteration(reward: f32[states, actions], chance: bf16[actions, states, states], value: bf16[states]):
    """Bellman: the best action's reward and what follows it."""
    after = define("after", (st, act), reward[st, act] + 0.9 * nestor.sum(chance[act, st, st2] * value[st2], over=st2))
    return define("out", st, nestor.max(after[st, act], over=act))


def _value_iteration(reward, chance, value):
    return (reward + 0.9 * widened(chance @ value).T).amax(-1)


words, lefts, rights = Size("words", 16384), Size("lefts", 16), Size("rights", 16)
w, left, right = indices(w=words, left=lefts, right=rights)


@nestor.nest
def time_warping(cost: f32[words, lefts, rights]):
    """The cheapest way through each table, from one corner to the other."""
    after, beside = indices(after=lefts - 1, beside=rights - 1)
    best = define("best", (w, left, right), cost[w, left, right], where=(left == 0) & (right == 0))
    best.write((w, beside), (w, 0, beside + 1), best[w, 0, beside] + cost[w, 0, beside + 1])
    best.write((w, after), (w, after + 1, 0), best[w, after, 0] + cost[w, after + 1, 0])
    least = nestor.minimum(nestor.minimum(best[w, after, beside + 1], best[w, after + 1, beside]), best[w, after, beside])
    best.write((w, after, beside), (w, after + 1, beside + 1), cost[w, after + 1, beside + 1] + least)
    return best


def _time_warping(cost):
    best = [[None] * cost.shape[2] for _ in range(cost.shape[1])]
    for left in range(cost.shape[1]):
        for right in range(cost.shape[2]):
            before = [best[left - 1][right]] if left else []
            before += [best[left][right - 1]] if right else []
            before += [best[left - 1][right - 1]] if left and right else []
            found = cost[:, left, right]
            best[left][right] = found + torch.stack(before).amin(0) if before else found
    return torch.stack([torch.stack(line, 1) for line in best], 1)


lanes, inner = Size("lanes", 1024), Size("inner", 16, fixed=True)
steps = Size("steps", 128)
time, lane, m = indices(time=steps, lane=lanes, m=inner)


@nestor.nest
def selective_scan(x: f32[batch, steps, lanes], delta: f32[batch, steps, lanes], rate: f32[lanes, inner], into: f32[batch, steps, inner],
                   out_of: f32[batch, steps, inner]):
    """Mamba: 16 states a channel, whose decay and input depend on the token."""
    after = indices(after=steps - 1)[0]
    state = define("state", (b, time, lane, m), delta[b, time, lane] * into[b, time, m] * x[b, time, lane], where=time == 0)
    at = (b, after + 1, lane)
    kept = nestor.exp(delta[at] * rate[lane, m]) * state[b, after, lane, m]
    state.write((b, after, lane, m), (*at, m), kept + delta[at] * into[b, after + 1, m] * x[at])
    return define("out", (b, time, lane), nestor.sum(state[b, time, lane, m] * out_of[b, time, m], over=m))


def _selective(x, delta, rate, into, out_of):
    state, found = 0, []
    for step in range(x.shape[1]):
        kept = torch.exp(delta[:, step, :, None] * rate)
        state = kept * state + (delta[:, step] * x[:, step])[..., None] * into[:, step, None]
        found.append((state * out_of[:, step, None]).sum(-1))
    return torch.stack(found, 1)


ATTENTION = {"batch": 2, "heads": 3, "length": 7, "head_dim": 6}
OPERATORS = [
    Operator(streaming_attention, _streaming, "G. Xiao et al., StreamingLLM, arXiv:2309.17453", ATTENTION),
    Operator(packed_attention, _packed, "M. Krell et al., arXiv:2107.02027", ATTENTION,
             draw={"document": lambda x, sizes: (torch.arange(sizes["length"], device=x.device) * 5 // sizes["length"]).expand(x.shape)}),
    Operator(taylor_attention, _taylor, "S. Arora et al., Based, arXiv:2402.18668", ATTENTION | {"narrow": 5}),
    Operator(attention_free, _attention_free, "S. Zhai et al., arXiv:2105.14103", {"batch": 2, "times": 7, "width": 6}),
    Operator(running_sum, _running, "G. Blelloch, Prefix Sums and Their Applications, 1990", {"rows": 5, "columns": 7}),
    Operator(discounted_return, _discounted, "R. Sutton and A. Barto, Reinforcement Learning, 1998", {"runs": 5, "moves": 7}),
    Operator(long_convolution, _long, "M. Poli et al., Hyena, arXiv:2302.10866", {"batch": 2, "times": 7, "width": 6},
             draw={"filter": divided("times")}),
    Operator(spatial_gating, _spatial, "H. Liu et al., Pay Attention to MLPs, arXiv:2105.08050", {"sequences": 2, "tokens": 7, "half": 6},
             draw={"weight": divided("tokens")}),
    Operator(kernel_regression, _regression, "E. Nadaraya, 1964; G. Watson, 1964", {"seen": 7, "kept": 5, "kernel": 4, "head_dim": 6}),
    Operator(value_iteration, _value_iteration, "R. Bellman, Dynamic Programming, 1957", {"states": 7, "actions": 3},
             draw={"chance": divided("states")}),
    Operator(time_warping, _time_warping, "H. Sakoe and S. Chiba, 1978", {"words": 2, "lefts": 5, "rights": 4}, draw={"cost": lambda x, _: x.abs()}),
    Operator(selective_scan, _selective, "A. Gu and T. Dao, Mamba, arXiv:2312.00752", {"batch": 2, "steps": 5, "lanes": 7, "inner": 3},
             draw={"delta": lambda x, _: 0.1 * x.abs(), "rate": lambda x, _: -x.abs()}),
]
