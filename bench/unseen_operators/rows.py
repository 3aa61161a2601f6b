"""Work on rows and channels: norms with what stands around them, short convolutions, rotations, losses."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened

EPS = 1e-5

batch, groups, share, places = Size("batch", 32), Size("groups", 32), Size("share", 20), Size("places", 4096)
b, g, c, s, c2, s2 = indices(b=batch, g=groups, c=share, s=places, c2=share, s2=places)


def sigmoid(x):
    return 1 / (1 + nestor.exp(-x))


@nestor.nest
def groupnorm_silu(x: f16[batch, groups, share, places], weight: f16[groups, share], bias: f16[groups, share]):
    mean = define("mean", (b, g), nestor.sum(x[b, g, c2, s2], over=(c2, s2)) / share / places)
    apart = x[b, g, c2, s2] - mean[b, g]
    variance = define("variance", (b, g), nestor.sum(apart * apart, over=(c2, s2)) / share / places)
    normed = (x[b, g, c, s] - mean[b, g]) * nestor.rsqrt(variance[b, g] + EPS) * weight[g, c] + bias[g, c]
    return define("out", (b, g, c, s), normed * sigmoid(normed), type=f16)


def _groupnorm_silu(x, weight, bias):
    return F.silu(F.group_norm(x.flatten(1, 2), x.shape[1], weight.flatten(), bias.flatten(), EPS)).view(x.shape)


images, tokens, width = Size("images", 256), Size("tokens", 256), Size("width", 1152)
n, t, w, w2 = indices(n=images, t=tokens, w=width, w2=width)


@nestor.nest
def adaln_modulate(x: bf16[images, tokens, width], shift: bf16[images, width], scale: bf16[images, width]):
    mean = define("mean", (n, t), nestor.sum(x[n, t, w2], over=w2) / width)
    apart = x[n, t, w2] - mean[n, t]
    variance = define("variance", (n, t), nestor.sum(apart * apart, over=w2) / width)
    normed = define("normed", (n, t, w), (x[n, t, w] - mean[n, t]) * nestor.rsqrt(variance[n, t] + EPS), type=bf16)
    return define("out", (n, t, w), normed[n, t, w] * (1 + scale[n, w]) + shift[n, w], type=bf16)


def _adaln(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=EPS) * (1 + scale[:, None]) + shift[:, None]


channels, length = Size("channels", 4096), Size("length", 2048)
d, i, p = indices(d=channels, i=length, p=4)


@nestor.nest
def causal_conv_silu(x: bf16[batch, channels, length], weight: bf16[channels, 4], bias: bf16[channels]):
    found = nestor.sum(x[b, d, i + p - 3] * weight[d, p], over=p, where=i + p >= 3) + bias[d]
    return define("out", (b, d, i), found * sigmoid(found), type=bf16)


def _causal_conv(x, weight, bias):
    return F.silu(F.conv1d(x, weight[:, None], bias, padding=3, groups=x.shape[1])[..., :x.shape[-1]])


heads, half = Size("heads", 32), Size("half", 64, fixed=True)
h, a = indices(h=heads, a=2 * half)


@nestor.nest
def rotary(q: bf16[batch, length, heads, 2 * half], cosine: bf16[length, half], sine: bf16[length, half]):
    first = q[b, i, h, a] * cosine[i, a] - q[b, i, h, a + half] * sine[i, a]
    second = q[b, i, h, a] * cosine[i, a - half] + q[b, i, h, a - half] * sine[i, a - half]
    return define("out", (b, h, i, a), nestor.select(a < half, first, second), type=bf16)


def _rotary(q, cosine, sine):
    first, second = q.transpose(1, 2).chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


maps, reduced = Size("maps", 512), Size("reduced", 32)
m, m2, u = indices(m=maps, m2=maps, u=reduced)


@nestor.nest
def squeeze_excite(x: f16[batch, maps, places], down: f16[reduced, maps], up: f16[maps, reduced]):
    mean = define("mean", (b, m2), nestor.sum(x[b, m2, s], over=s) / places)
    squeezed = define("squeezed", (b, u), nestor.maximum(nestor.sum(mean[b, m2] * down[u, m2], over=m2), 0.0))
    gate = define("gate", (b, m), sigmoid(nestor.sum(squeezed[b, u] * up[m, u], over=u)))
    return define("out", (b, m, s), x[b, m, s] * gate[b, m], type=f16)


def _squeeze_excite(x, down, up):
    return x * torch.sigmoid(torch.relu(x.mean(-1) @ down.T) @ up.T)[..., None]


rows, vocabulary = Size("rows", 8192), Size("vocabulary", 32000)
r, v = indices(r=rows, v=vocabulary)


@nestor.nest
def kl_divergence(teacher: bf16[rows, vocabulary], student: bf16[rows, vocabulary]):
    def log_softmax(x):
        top = define("top", r, nestor.max(x[r, v], over=v))
        total = define("total", r, nestor.sum(nestor.exp(x[r, v] - top[r]), over=v))
        return x[r, v] - top[r] - nestor.log(total[r])
    wanted, found = log_softmax(teacher), log_softmax(student)
    return define("loss", r, nestor.sum(nestor.exp(wanted) * (wanted - found), over=v))


def _kl_divergence(teacher, student):
    wanted, found = (torch.log_softmax(widened(x), -1) for x in (teacher, student))
    return (wanted.exp() * (wanted - found)).sum(-1)


hidden = Size("hidden", 4096)
k, k2 = indices(k=hidden, k2=hidden)


@nestor.nest
def residual_rmsnorm_quantise(x: bf16[rows, hidden], residual: bf16[rows, hidden], weight: bf16[hidden]):
    """Whole numbers up to 127, which bf16 holds, and what to multiply them with."""
    summed = define("summed", (r, k), x[r, k] + residual[r, k], type=bf16)
    scale = define("scale", r, nestor.rsqrt(nestor.sum(summed[r, k2] * summed[r, k2], over=k2) / hidden + EPS))
    normed = define("normed", (r, k), summed[r, k] * scale[r] * weight[k])
    largest = define("largest", r, nestor.max(nestor.absolute(normed[r, k2]), over=k2))
    step = define("step", r, nestor.maximum(largest[r], 1e-6) / 127)
    return summed, define("quantised", (r, k), nestor.floor(normed[r, k] / step[r] + 0.5), type=bf16), step


def _residual_rmsnorm_quantise(x, residual, weight):
    summed = x + residual
    normed = F.rms_norm(widened(summed), summed.shape[-1:], widened(weight), EPS)
    step = normed.abs().amax(-1).clamp(min=1e-6) / 127
    return summed, torch.floor(normed / step[:, None] + 0.5).to(x.dtype), step


@nestor.nest
def gated_rmsnorm(x: bf16[rows, hidden], gate: bf16[rows, hidden], weight: bf16[hidden]):
    gated = define("gated", (r, k), x[r, k] * gate[r, k] * sigmoid(gate[r, k]))
    mean = define("mean", r, nestor.sum(gated[r, k2] * gated[r, k2], over=k2) / hidden)
    return define("out", (r, k), gated[r, k] * nestor.rsqrt(mean[r] + EPS) * weight[k], type=bf16)


def _gated_rmsnorm(x, gate, weight):
    gated = widened(x) * F.silu(widened(gate))
    return (gated * torch.rsqrt(gated.square().mean(-1, keepdim=True) + EPS) * weight).to(x.dtype)


OPERATORS = [
    Operator(groupnorm_silu, _groupnorm_silu, "Y. Wu and K. He, arXiv:1803.08494; J. Ho et al., DDPM, arXiv:2006.11239",
             {"batch": 2, "groups": 3, "share": 5, "places": 7}, draw={"weight": around_one}),
    Operator(adaln_modulate, _adaln, "W. Peebles and S. Xie, DiT, arXiv:2212.09748", {"images": 2, "tokens": 5, "width": 13}),
    Operator(causal_conv_silu, _causal_conv, "A. Gu and T. Dao, Mamba, arXiv:2312.00752",
             {"batch": 2, "channels": 3, "length": 9}, draw={"weight": lambda x, _: x / 2}),
    Operator(rotary, _rotary, "J. Su et al., RoFormer, arXiv:2104.09864", {"batch": 2, "length": 7, "heads": 3, "half": 5}),
    Operator(squeeze_excite, _squeeze_excite, "J. Hu et al., arXiv:1709.01507",
             {"batch": 2, "maps": 9, "places": 7, "reduced": 3}, draw={"down": divided("maps"), "up": divided("reduced")}),
    Operator(kl_divergence, _kl_divergence, "G. Hinton et al., Distillation, arXiv:1503.02531", {"rows": 5, "vocabulary": 17}),
    Operator(residual_rmsnorm_quantise, _residual_rmsnorm_quantise, "G. Xiao et al., SmoothQuant, arXiv:2211.10438",
             {"rows": 5, "hidden": 17}, draw={"weight": around_one}),
    Operator(gated_rmsnorm, _gated_rmsnorm, "T. Dao and A. Gu, Mamba-2, arXiv:2405.21060", {"rows": 5, "hidden": 17},
             draw={"weight": around_one}),
]
