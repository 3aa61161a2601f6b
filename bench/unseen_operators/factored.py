"""Layers whose weights are factors: Kronecker products, trains of tensors, pairs, quaternions, reflections, ternary weights."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, divided, widened

rows, left, right = Size("rows", 4096), Size("left", 64, fixed=True), Size("right", 64, fixed=True)
r, a, b, c, d = indices(r=rows, a=left, b=right, c=left, d=right)


@nestor.nest
def kronecker_linear(x: bf16[rows, left, right], first: bf16[left, left], second: bf16[right, right]):
    half = define("half", (r, a, d), nestor.sum(x[r, a, b] * second[b, d], over=b), type=bf16)
    return define("out", (r, c, d), nestor.sum(half[r, a, d] * first[a, c], over=a), type=bf16)


def _kronecker(x, first, second):
    return torch.einsum("rad,ac->rcd", x @ second, first)


link = Size("link", 32, fixed=True)
(g,) = indices(g=link)


@nestor.nest
def tensor_train_linear(x: f16[rows, left, right], first: f16[left, left, link], second: f16[link, right, right]):
    """Two cores: sums over one side of the input, then over the link and the other side."""
    half = define("half", (r, b, c, g), nestor.sum(x[r, a, b] * first[a, c, g], over=a), type=f16)
    return define("out", (r, c, d), nestor.sum(half[r, b, c, g] * second[g, b, d], over=(b, g)), type=f16)


def _tensor_train(x, first, second):
    half = torch.einsum("rab,acg->rbcg", x, first)
    return torch.einsum("rbcg,gbd->rcd", half, second)


width, inner = Size("width", 1024), Size("inner", 2048)
w, k = indices(w=width, k=inner)


@nestor.nest
def bilinear_pooling(x: bf16[rows, inner], y: bf16[rows, inner], left_map: bf16[width, inner], right_map: bf16[width, inner]):
    """Two inputs, each through its own layer, multiplied."""
    return define("out", (r, w), nestor.tanh(nestor.sum(x[r, k] * left_map[w, k], over=k))
                  * nestor.tanh(nestor.sum(y[r, k] * right_map[w, k], over=k)), type=bf16)


def _pooling(x, y, left_map, right_map):
    return (torch.tanh(widened(x @ left_map.T)) * torch.tanh(widened(y @ right_map.T))).to(x.dtype)


deep = Size("inner", 1024)
m, m2 = indices(m=deep, m2=deep)


@nestor.nest
def cross_network(first: f16[rows, deep], x: f16[rows, deep], weight: f16[deep, deep], bias: f32[deep]):
    """A layer of DCN v2: what a layer makes times the first input, added."""
    made = nestor.sum(x[r, m2] * weight[m, m2], over=m2) + bias[m]
    return define("out", (r, m), first[r, m] * made + x[r, m], type=f16)


def _cross(first, x, weight, bias):
    return (first * (widened(x @ weight.T) + bias) + x).to(x.dtype)


quarter = Size("quarter", 512)
o, h = indices(o=quarter, h=quarter)


@nestor.nest
def quaternion_linear(x: bf16[rows, 4, quarter], weight: bf16[4, quarter, quarter]):
    """A Hamilton product in place of each product."""
    def product(i, j):
        return nestor.sum(x[r, j, h] * weight[i, o, h], over=h)
    one = product(0, 0) - product(1, 1) - product(2, 2) - product(3, 3)
    i = product(0, 1) + product(1, 0) + product(2, 3) - product(3, 2)
    j = product(0, 2) - product(1, 3) + product(2, 0) + product(3, 1)
    k_part = product(0, 3) + product(1, 2) - product(2, 1) + product(3, 0)
    return tuple(define(name, (r, o), value, type=bf16) for name, value in (("one", one), ("i", i), ("j", j), ("k", k_part)))


def _quaternion(x, weight):
    p = [[widened(x[:, j] @ weight[i].T) for j in range(4)] for i in range(4)]
    parts = (p[0][0] - p[1][1] - p[2][2] - p[3][3], p[0][1] + p[1][0] + p[2][3] - p[3][2],
             p[0][2] - p[1][3] + p[2][0] + p[3][1], p[0][3] + p[1][2] - p[2][1] + p[3][0])
    return tuple(part.to(x.dtype) for part in parts)


@nestor.nest
def householder(x: bf16[rows, deep], v: bf16[rows, deep]):
    """Each row reflected at its own plane."""
    along = define("along", r, nestor.sum(x[r, m] * v[r, m], over=m))
    size = define("size", r, nestor.sum(v[r, m2] * v[r, m2], over=m2))
    return define("out", (r, m), x[r, m] - 2 * along[r] / size[r] * v[r, m], type=bf16)


def _householder(x, v):
    x_wide, v_wide = widened(x), widened(v)
    return (x_wide - 2 * (x_wide * v_wide).sum(-1, keepdim=True) / v_wide.square().sum(-1, keepdim=True) * v_wide).to(x.dtype)


@nestor.nest
def ternary_linear(x: bf16[rows, inner], weight: bf16[width, inner], scale: f32[()]):
    """BitNet: activations rounded to 8 bits by the largest of a row, weights of -1, 0 and 1."""
    (k2,) = indices(k2=inner)
    top = define("top", r, nestor.maximum(nestor.max(nestor.absolute(x[r, k]), over=k), 1e-5))
    level = nestor.floor(x[r, k2] * (127 / top[r]) + 0.5)
    rounded = define("rounded", (r, k2), nestor.minimum(nestor.maximum(level, -128.0), 127.0), type=bf16)
    return define("out", (r, w), nestor.sum(rounded[r, k] * weight[w, k], over=k) * (top[r] / 127 * scale[()]), type=bf16)


def _ternary(x, weight, scale):
    top = widened(x).abs().amax(-1, keepdim=True).clamp(min=1e-5)
    rounded = torch.floor(widened(x) * (127 / top) + 0.5).clamp(-128, 127).to(x.dtype)
    return (widened(rounded @ weight.T) * (top / 127 * scale)).to(x.dtype)


clips, frames, window, bins, mels = Size("clips", 64), Size("frames", 500), Size("window", 400), Size("bins", 201), Size("mels", 80)
n, f, t, y, z = indices(n=clips, f=frames, t=window, y=bins, z=mels)


@nestor.nest
def log_mel(wave: f16[clips, frames, window], cosine: f16[bins, window], sine: f16[bins, window], mel: f16[mels, bins]):
    """Log-mel features of frames: two products for the spectrum, its power, a product of filters."""
    real = nestor.sum(wave[n, f, t] * cosine[y, t], over=t)
    imaginary = nestor.sum(wave[n, f, t] * sine[y, t], over=t)
    power = define("power", (n, f, y), real * real + imaginary * imaginary, type=f16)
    return define("out", (n, f, z), nestor.log(nestor.maximum(nestor.sum(power[n, f, y] * mel[z, y], over=y), 1e-6)))


def _log_mel(wave, cosine, sine, mel):
    power = (widened(wave @ cosine.T).square() + widened(wave @ sine.T).square()).to(wave.dtype)
    return torch.log(widened(power @ mel.T).clamp(min=1e-6))


experts, chosen = Size("experts", 64, fixed=True), Size("inner", 1024)
e, e2, i = indices(e=experts, e2=experts, i=chosen)


@nestor.nest
def router_z_loss(x: bf16[rows, chosen], weight: bf16[experts, chosen]):
    """Chances of experts, and the square of the logarithm of their sum."""
    logit = define("logit", (r, e), nestor.sum(x[r, i] * weight[e, i], over=i))
    top = define("top", r, nestor.max(logit[r, e2], over=e2))
    total = define("total", r, nestor.sum(nestor.exp(logit[r, e2] - top[r]), over=e2))
    whole = define("whole", r, top[r] + nestor.log(total[r]))
    return define("chance", (r, e), nestor.exp(logit[r, e] - whole[r])), define("loss", r, whole[r] * whole[r])


def _router(x, weight):
    logit = widened(x @ weight.T)
    return torch.softmax(logit, -1), torch.logsumexp(logit, -1).square()


@nestor.nest
def silu_layer_norm(x: f16[rows, inner], weight: f16[width, inner], bias: f32[width], gain: f32[width]):
    """A layer, its SiLU, and the norm of the rows that it makes."""
    (w2,) = indices(w2=width)
    made = define("made", (r, w), nestor.sum(x[r, k] * weight[w, k], over=k) + bias[w])
    active = define("active", (r, w), made[r, w] / (1 + nestor.exp(-made[r, w])), type=f16)
    scale = define("scale", r, nestor.rsqrt(nestor.sum(active[r, w2] * active[r, w2], over=w2) / width + 1e-6))
    return define("out", (r, w), active[r, w] * scale[r] * gain[w], type=f16)


def _silu_norm(x, weight, bias, gain):
    active = F.silu(widened(x @ weight.T) + bias).to(x.dtype)
    wide = widened(active)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * gain).to(x.dtype)


OPERATORS = [
    Operator(kronecker_linear, _kronecker, "M. Tahaei et al., KroneckerBERT, arXiv:2109.06243", {"rows": 3, "left": 5, "right": 7},
             draw={"first": divided("left"), "second": divided("right")}),
    Operator(tensor_train_linear, _tensor_train, "A. Novikov et al., arXiv:1509.06569", {"rows": 3, "left": 5, "right": 7, "link": 2},
             draw={"first": divided("left"), "second": lambda x, sizes: x / (sizes["right"] * sizes["link"])**0.5}),
    Operator(bilinear_pooling, _pooling, "J. Kim et al., arXiv:1610.04325", {"rows": 5, "width": 7, "inner": 6},
             draw={"left_map": divided("inner"), "right_map": divided("inner")}),
    Operator(cross_network, _cross, "R. Wang et al., DCN V2, arXiv:2008.13535", {"rows": 5, "inner": 7}, draw={"weight": divided("inner")}),
    Operator(quaternion_linear, _quaternion, "T. Parcollet et al., arXiv:1806.04418", {"rows": 5, "quarter": 7},
             draw={"weight": divided("quarter")}),
    Operator(householder, _householder, "J. Tomczak, M. Welling, arXiv:1611.09630", {"rows": 5, "inner": 7}),
    Operator(ternary_linear, _ternary, "S. Ma et al., BitNet b1.58, arXiv:2402.17764", {"rows": 5, "width": 7, "inner": 6},
             draw={"weight": lambda x, _: x.round().clamp(-1, 1), "scale": lambda x, _: 0 * x + 0.02}),
    Operator(log_mel, _log_mel, "A. Radford et al., Whisper, arXiv:2212.04356",
             {"clips": 2, "frames": 3, "window": 6, "bins": 4, "mels": 5},
             draw={"cosine": divided("window"), "sine": divided("window"), "mel": lambda x, sizes: x.abs() / sizes["bins"]}),
    Operator(router_z_loss, _router, "B. Zoph et al., ST-MoE, arXiv:2202.08906", {"rows": 5, "experts": 4, "inner": 7},
             draw={"weight": divided("inner")}),
    Operator(silu_layer_norm, _silu_norm, "N. Shazeer, arXiv:2002.05202; B. Zhang, R. Sennrich, arXiv:1910.07467",
             {"rows": 5, "width": 7, "inner": 6}, draw={"weight": divided("inner")}),
]
