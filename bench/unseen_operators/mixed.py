"""Attention with features, over channels, along one side of an image, among neighbours, and of one query for all heads; chunks with gates."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .attention import softmax
from .problem import Operator, divided, widened

EPS = 1e-6

batch, heads, length = Size("batch", 4), Size("heads", 16), Size("length", 4096)
dim, features = Size("head_dim", 64, fixed=True), Size("features", 256, fixed=True)
b, h, i, j, d, e, m = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim, m=features)


@nestor.nest
def performer_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                        omega: bf16[features, dim]):
    """Random features of exp(q k) in place of scores."""
    def feature(name, x, at):
        norm = define(name + "_norm", (b, h, at), nestor.sum(x[b, h, at, e] * x[b, h, at, e], over=e) / 2)
        dot = nestor.sum(x[b, h, at, e] * omega[m, e], over=e)
        return define(name, (b, h, at, m), nestor.exp(dot - norm[b, h, at]) + 1e-4, type=bf16)
    left, right = feature("left", q, i), feature("right", k, j)
    state = define("state", (b, h, m, d), nestor.sum(right[b, h, j, m] * v[b, h, j, d], over=j), type=bf16)
    mass = define("mass", (b, h, m), nestor.sum(right[b, h, j, m], over=j))
    total = define("total", (b, h, i), nestor.sum(left[b, h, i, m] * mass[b, h, m], over=m))
    return define("out", (b, h, i, d), nestor.sum(left[b, h, i, m] * state[b, h, m, d], over=m) / total[b, h, i], type=bf16)


def _performer(q, k, v, omega):
    def feature(x):
        return (torch.exp(widened(x @ omega.T) - widened(x).square().sum(-1, keepdim=True) / 2) + 1e-4).to(x.dtype)
    left, right = feature(q), feature(k)
    state, mass = right.transpose(-1, -2) @ v, widened(right).sum(-2)
    return (widened(left @ state) / (widened(left) @ mass[..., None])).to(q.dtype)


@nestor.nest
def cross_covariance_attention(q: bf16[batch, length, heads, dim], k: bf16[batch, length, heads, dim], v: bf16[batch, length, heads, dim],
                               temperature: f32[heads]):
    """Channels attend to channels: scores are cosines along the tokens."""
    def size(name, x):
        return define(name, (b, h, d), nestor.rsqrt(nestor.sum(x[b, j, h, d] * x[b, j, h, d], over=j) + EPS))
    rows, columns = size("rows", q), size("columns", k)
    dot = define("dot", (b, h, d, e), nestor.sum(q[b, j, h, d] * k[b, j, h, e], over=j))
    score = define("score", (b, h, d, e), dot[b, h, d, e] * rows[b, h, d] * columns[b, h, e] * temperature[h])
    power, total = softmax(score, (b, h, d), key=e)
    weight = define("weight", (b, h, d, e), power[b, h, d, e] / total[b, h, d], type=bf16)
    return define("out", (b, i, h, d), nestor.sum(weight[b, h, d, e] * v[b, i, h, e], over=e), type=bf16)


def _cross_covariance(q, k, v, temperature):
    q, k, v = (x.permute(0, 2, 3, 1) for x in (q, k, v))
    sizes = [(widened(x).square().sum(-1) + EPS).rsqrt() for x in (q, k)]
    score = widened(q @ k.transpose(-1, -2)) * sizes[0][..., None] * sizes[1][..., None, :] * temperature[:, None, None]
    return (torch.softmax(score, -1).to(v.dtype) @ v).permute(0, 3, 1, 2)


side = Size("side", 64)
y, y2, z = indices(y=side, y2=side, z=side)
SCALE = 0.125


@nestor.nest
def axial_attention(q: f16[batch, side, side, heads, dim], k: f16[batch, side, side, heads, dim], v: f16[batch, side, side, heads, dim]):
    """Pixels of a column attend to each other."""
    row = (b, y, z, h)
    score = define("score", (*row, y2), nestor.sum(q[b, y, z, h, e] * k[b, y2, z, h, e], over=e) * SCALE)
    power, total = softmax(score, row, key=y2)
    return define("out", (*row, d), nestor.sum(power[(*row, y2)] * v[b, y2, z, h, d], over=y2) / total[row], type=f16)


def _axial(q, k, v):
    q, k, v = (x.permute(0, 2, 3, 1, 4) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, scale=SCALE).permute(0, 3, 1, 2, 4)


few, near = Size("heads", 4), Size("head_dim", 32, fixed=True)
a, f, f2, s, t = indices(a=few, f=near, f2=near, s=7, t=7)


@nestor.nest
def neighbourhood_attention(q: f16[batch, few, side, side, near], k: f16[batch, few, side + 6, side + 6, near],
                            v: f16[batch, few, side + 6, side + 6, near], bias: f32[few, 7, 7]):
    """A pixel attends to 7 x 7 around it."""
    row = (b, a, y, z)
    dot = nestor.sum(q[b, a, y, z, f2] * k[b, a, y + s, z + t, f2], over=f2)
    score = define("score", (*row, s, t), dot * 0.17677669 + bias[a, s, t])
    top = define("top", row, nestor.max(score[(*row, s, t)], over=(s, t)))
    power = define("power", (*row, s, t), nestor.exp(score[(*row, s, t)] - top[row]))
    total = define("total", row, nestor.sum(power[(*row, s, t)], over=(s, t)))
    found = nestor.sum(power[(*row, s, t)] * v[b, a, y + s, z + t, f], over=(s, t))
    return define("out", (*row, f), found / total[row], type=f16)


def _neighbourhood(q, k, v, bias):
    def windows(x):
        return x.unfold(2, 7, 1).unfold(3, 7, 1)
    score = torch.einsum("bayzf,bayzfst->bayzst", widened(q), widened(windows(k))) * 0.17677669 + bias[:, None, None]
    weight = torch.softmax(score.flatten(4), -1).view(score.shape)
    return torch.einsum("bayzst,bayzfst->bayzf", weight, widened(windows(v))).to(q.dtype)


sequences, keys, wide = Size("sequences", 32), Size("keys", 8192), Size("head_dim", 128, fixed=True)
group = Size("heads", 32, fixed=True)
n, x, g, c, c2 = indices(n=sequences, x=keys, g=group, c=wide, c2=wide)
CAP = 30.0


@nestor.nest
def multi_query_decoding(q: bf16[sequences, group, wide], k: bf16[sequences, keys, wide], v: bf16[sequences, keys, wide],
                         slope: f32[group], lengths: i32[sequences]):
    """All heads share keys and values; ALiBi and a cap; sequences end early."""
    dot = nestor.sum(q[n, g, c2] * k[n, x, c2], over=c2) * 0.08838835
    biased = CAP * nestor.tanh(dot / CAP) - slope[g] * (lengths[n] - 1 - x)
    score = define("score", (n, g, x), nestor.select(x < lengths[n], biased, -1e30))
    power, total = softmax(score, (n, g), key=x)
    return define("out", (n, g, c), nestor.sum(power[n, g, x] * v[n, x, c], over=x) / total[n, g], type=bf16)


def _multi_query(q, k, v, slope, lengths):
    at = torch.arange(k.shape[1], device=q.device)
    behind = lengths[:, None] - 1 - at
    score = CAP * torch.tanh(widened(q @ k.transpose(1, 2)) * 0.08838835 / CAP) - slope[:, None] * behind[:, None]
    weight = torch.softmax(score.masked_fill(behind[:, None] < 0, -1e30), -1)
    return weight.to(v.dtype) @ v


chunks, inside = Size("chunks", 64), Size("chunk", 64, fixed=True)
u, p, p2 = indices(u=chunks, p=inside, p2=inside)


@nestor.nest
def gated_chunk(q: bf16[batch, heads, chunks, inside, dim], k: bf16[batch, heads, chunks, inside, dim],
                v: bf16[batch, heads, chunks, inside, dim], decay: f32[batch, heads, chunks, inside, dim]):
    """Gated linear attention within chunks: every channel of a key fades on its own; decay holds running sums of logarithms."""
    at = (b, h, u)
    left = define("left", (*at, p, d), q[(*at, p, d)] * nestor.exp(decay[(*at, p, d)]), type=bf16)
    right = define("right", (*at, p, d), k[(*at, p, d)] * nestor.exp(-decay[(*at, p, d)]), type=bf16)
    score = define("score", (*at, p, p2), nestor.sum(left[(*at, p, e)] * right[(*at, p2, e)], over=e), type=bf16, where=p2 <= p)
    return define("out", (*at, p, d), nestor.sum(score[(*at, p, p2)] * v[(*at, p2, d)], over=p2, where=p2 <= p), type=bf16)


def _gated_chunk(q, k, v, decay):
    left, right = (widened(q) * decay.exp()).to(q.dtype), (widened(k) * (-decay).exp()).to(k.dtype)
    return (left @ right.transpose(-1, -2)).tril() @ v


OPERATORS = [
    Operator(performer_attention, _performer, "K. Choromanski et al., arXiv:2009.14794",
             {"batch": 2, "heads": 2, "length": 7, "head_dim": 5, "features": 6},
             draw={"q": lambda x, _: x / 8**0.5, "k": lambda x, _: x / 8**0.5}),
    Operator(cross_covariance_attention, _cross_covariance, "A. El-Nouby et al., XCiT, arXiv:2106.09681",
             {"batch": 2, "heads": 3, "length": 7, "head_dim": 5}, draw={"temperature": lambda x, _: x.abs() + 1}),
    Operator(axial_attention, _axial, "J. Ho et al., arXiv:1912.12180", {"batch": 2, "heads": 3, "side": 5, "head_dim": 7}),
    Operator(neighbourhood_attention, _neighbourhood, "A. Hassani et al., arXiv:2204.07143",
             {"batch": 2, "heads": 2, "side": 3, "head_dim": 5}),
    Operator(multi_query_decoding, _multi_query, "N. Shazeer, arXiv:1911.02150; O. Press et al., ALiBi, arXiv:2108.12409",
             {"sequences": 3, "heads": 4, "keys": 9, "head_dim": 5},
             draw={"slope": lambda x, _: x.abs() / 64, "lengths": lambda x, sizes: 1 + (x.abs() * 1e4).long() % sizes["keys"]}),
    Operator(gated_chunk, _gated_chunk, "S. Yang et al., Gated Linear Attention, arXiv:2312.06635",
             {"batch": 2, "heads": 2, "chunks": 2, "chunk": 6, "head_dim": 5},
             draw={"q": divided("head_dim"), "decay": lambda x, _: -x.abs()}),
]
