"""Steps of training and of decoding: optimizers, gradients, states that are read and written once, tensor algebra."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened

EPS = 1e-6

rows, width = Size("rows", 8192), Size("width", 4096)
r, c, c2 = indices(r=rows, c=width, c2=width)


@nestor.nest
def adamw_step(weight: f32[rows, width], grad: bf16[rows, width], first: f32[rows, width], second: f32[rows, width], rate: f32[()]):
    """Decoupled decay; moments without correction."""
    slope = grad[r, c]
    first2 = define("first2", (r, c), 0.9 * first[r, c] + 0.1 * slope)
    second2 = define("second2", (r, c), 0.999 * second[r, c] + 0.001 * slope * slope)
    step = first2[r, c] / (nestor.sqrt(second2[r, c]) + 1e-8)
    return define("out", (r, c), weight[r, c] * (1 - 0.01 * rate[()]) - rate[()] * step), first2, second2


def _adamw(weight, grad, first, second, rate):
    slope = widened(grad)
    first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope.square()
    return weight * (1 - 0.01 * rate) - rate * first / (second.sqrt() + 1e-8), first, second


@nestor.nest
def swiglu_backward(gate: bf16[rows, width], up: bf16[rows, width], grad: bf16[rows, width]):
    chance = 1 / (1 + nestor.exp(-gate[r, c]))
    change = grad[r, c] * up[r, c] * chance * (1 + gate[r, c] * (1 - chance))
    return define("dgate", (r, c), change, type=bf16), define("dup", (r, c), grad[r, c] * gate[r, c] * chance, type=bf16)


def _swiglu_backward(gate, up, grad):
    wide, up, slope = widened(gate), widened(up), widened(grad)
    chance = torch.sigmoid(wide)
    return (slope * up * chance * (1 + wide * (1 - chance))).to(gate.dtype), (slope * wide * chance).to(gate.dtype)


@nestor.nest
def rmsnorm_backward(x: bf16[rows, width], gain: bf16[width], grad: bf16[rows, width]):
    """Gradients of a row's elements and of the gains."""
    r2, c3 = indices(r2=rows, c3=width)
    scale = define("scale", r, nestor.rsqrt(nestor.sum(x[r, c2] * x[r, c2], over=c2) / width + EPS))
    dot = define("dot", r, nestor.sum(x[r, c3] * gain[c3] * grad[r, c3], over=c3) / width)
    change = grad[r, c] * gain[c] - x[r, c] * scale[r] * scale[r] * dot[r]
    gains = define("gains", c, nestor.sum(grad[r2, c] * x[r2, c] * scale[r2], over=r2))
    return define("out", (r, c), scale[r] * change, type=bf16), gains


def _rmsnorm_backward(x, gain, grad):
    x, gain, slope, kept = widened(x), widened(gain), widened(grad), x.dtype
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    dot = (x * gain * slope).mean(-1, keepdim=True)
    return (scale * (slope * gain - x * scale.square() * dot)).to(kept), (slope * x * scale).sum(0)


@nestor.nest
def softmax_backward(weight: bf16[rows, width], grad: bf16[rows, width]):
    dot = define("dot", r, nestor.sum(weight[r, c2] * grad[r, c2], over=c2))
    return define("out", (r, c), weight[r, c] * (grad[r, c] - dot[r]), type=bf16)


def _softmax_backward(weight, grad):
    wide, slope = widened(weight), widened(grad)
    return (wide * (slope - (wide * slope).sum(-1, keepdim=True))).to(weight.dtype)


@nestor.nest
def weight_gradient(x: bf16[rows, width], grad: bf16[rows, width]):
    """Of a linear layer, added to what is there in f32, and of its bias."""
    o, r2, r3 = indices(o=width, r2=rows, r3=rows)
    return (define("out", (o, c), nestor.sum(grad[r2, o] * x[r2, c], over=r2), type=f32),
            define("bias", o, nestor.sum(grad[r3, o], over=r3)))


def _weight_gradient(x, grad):
    return widened(grad.T @ x), widened(grad).sum(0)


batch, heads, key, value = Size("batch", 64), Size("heads", 32), Size("key", 128, fixed=True), Size("value", 128, fixed=True)
b, h, k, k2, v = indices(b=batch, h=heads, k=key, k2=key, v=value)


@nestor.nest
def delta_rule_step(state: f32[batch, heads, key, value], q: bf16[batch, heads, key], at: bf16[batch, heads, key],
                    new: bf16[batch, heads, value], beta: f32[batch, heads], decay: f32[batch, heads]):
    """Gated DeltaNet decodes a token: what the state says is corrected, then read."""
    said = define("said", (b, h, v), decay[b, h] * nestor.sum(state[b, h, k2, v] * at[b, h, k2], over=k2))
    gap = beta[b, h] * (new[b, h, v] - said[b, h, v])
    after = define("after", (b, h, k, v), decay[b, h] * state[b, h, k, v] + at[b, h, k] * gap)
    k3 = indices(k3=key)[0]
    return after, define("out", (b, h, v), nestor.sum(after[b, h, k3, v] * q[b, h, k3], over=k3), type=bf16)


def _delta_rule(state, q, at, new, beta, decay):
    kept = q.dtype
    q, at, new = widened(q), widened(at), widened(new)
    state = state * decay[..., None, None]
    gap = beta[..., None] * (new - (state * at[..., None]).sum(-2))
    after = state + at[..., None] * gap[..., None, :]
    return after, (after * q[..., None]).sum(-2).to(kept)


samples, left, right, outs = Size("samples", 2048), Size("left", 128), Size("right", 128), Size("outs", 256)
s, i, j, o = indices(s=samples, i=left, j=right, o=outs)


@nestor.nest
def bilinear_layer(x: f16[samples, left], weight: f16[outs, left, right], y: f16[samples, right]):
    """torch.nn.Bilinear."""
    half = define("half", (s, o, j), nestor.sum(x[s, i] * weight[o, i, j], over=i))
    return define("out", (s, o), nestor.sum(half[s, o, j] * y[s, j], over=j), type=f16)


def _bilinear_layer(x, weight, y):
    return torch.einsum("soj,sj->so", torch.einsum("si,oij->soj", x, weight), y)


one, two, three, rank = Size("one", 512), Size("two", 256), Size("three", 256), Size("rank", 64)
p, q2, t, u = indices(p=one, q2=two, t=three, u=rank)


@nestor.nest
def mttkrp(x: f16[one, two, three], second: f16[two, rank], third: f16[three, rank]):
    """A tensor times a Khatri-Rao product: the step of a CP decomposition."""
    return define("out", (p, u), nestor.sum(x[p, q2, t] * (second[q2, u] * third[t, u]), over=(q2, t)))


def _mttkrp(x, second, third):
    return torch.einsum("pqu,qu->pu", widened(torch.einsum("pqt,tu->pqu", x, third)), widened(second))


@nestor.nest
def cp_reconstruction(first: f16[one, rank], second: f16[two, rank], third: f16[three, rank]):
    """A tensor from its CP factors."""
    pair = define("pair", (q2, t, u), second[q2, u] * third[t, u], type=f16)
    return define("out", (p, q2, t), nestor.sum(first[p, u] * pair[q2, t, u], over=u), type=f16)


def _cp(first, second, third):
    pair = (widened(second)[:, None] * widened(third)).to(first.dtype)
    return (first @ pair.flatten(0, 1).T).unflatten(1, pair.shape[:2])


many, small = Size("many", 16384), Size("small", 32, fixed=True)
m, a, e, f = indices(m=many, a=small, e=small, f=small)


@nestor.nest
def tiny_products(x: f16[many, small, small], y: f16[many, small, small]):
    """Many products of 32 x 32."""
    return define("out", (m, a, e), nestor.sum(x[m, a, f] * y[m, f, e], over=f), type=f16)


def _tiny_products(x, y):
    return x @ y


long, thin = Size("long", 1048576), Size("thin", 64)
l, d, d2 = indices(l=long, d=thin, d2=thin)


@nestor.nest
def tall_covariance(x: bf16[long, thin]):
    """Of a million samples with a mean."""
    l2 = indices(l2=long)[0]
    mean = define("mean", d, nestor.sum(x[l2, d], over=l2) / long)
    return define("out", (d, d2), nestor.sum(x[l, d] * x[l, d2], over=l) / long - mean[d] * mean[d2])


def _tall_covariance(x):
    mean = widened(x).mean(0)
    return widened(x.T @ x / x.shape[0]) - mean[:, None] * mean


side = Size("side", 2048)
y2, x2, z = indices(y2=side, x2=side, z=side)


@nestor.nest
def f32_linear(x: f32[side, side], weight: f32[side, side], bias: f32[side]):
    """A layer that keeps all of f32."""
    return define("out", (y2, x2), nestor.maximum(nestor.sum(x[y2, z] * weight[x2, z], over=z) + bias[x2], 0.0))


def _f32_linear(x, weight, bias):
    return torch.relu(x @ weight.T + bias)


@nestor.nest
def sin_layer(x: f16[rows, side], weight: f16[side, side], bias: f32[side]):
    """SIREN."""
    return define("out", (r, y2), nestor.sin(30 * (nestor.sum(x[r, z] * weight[y2, z], over=z) + bias[y2])), type=f16)


def _sin_layer(x, weight, bias):
    return torch.sin(30 * (widened(x @ weight.T) + bias)).to(x.dtype)


OPERATORS = [
    Operator(adamw_step, _adamw, "I. Loshchilov and F. Hutter, arXiv:1711.05101", {"rows": 5, "width": 7},
             draw={"second": lambda x, _: x.square(), "rate": lambda x, _: 0 * x + 0.01}),
    Operator(swiglu_backward, _swiglu_backward, "N. Shazeer, arXiv:2002.05202, its gradients", {"rows": 5, "width": 7}),
    Operator(rmsnorm_backward, _rmsnorm_backward, "B. Zhang and R. Sennrich, arXiv:1910.07467, its gradients",
             {"rows": 5, "width": 7}, draw={"gain": around_one}),
    Operator(softmax_backward, _softmax_backward, "A. Vaswani et al., arXiv:1706.03762, a gradient", {"rows": 5, "width": 7},
             draw={"weight": lambda x, _: torch.softmax(x, -1)}),
    Operator(weight_gradient, _weight_gradient, "D. Rumelhart et al., 1986", {"rows": 9, "width": 7}),
    Operator(delta_rule_step, _delta_rule, "S. Yang et al., arXiv:2412.06464", {"batch": 2, "heads": 3, "key": 5, "value": 7},
             draw={"at": lambda x, _: F.normalize(x, dim=-1), "beta": lambda x, _: torch.sigmoid(x), "decay": lambda x, _: torch.sigmoid(x + 3)}),
    Operator(bilinear_layer, _bilinear_layer, "J. Tenenbaum and W. Freeman, 2000", {"samples": 5, "left": 6, "right": 7, "outs": 4},
             draw={"x": divided("left"), "y": divided("right")}),
    Operator(mttkrp, _mttkrp, "B. Bader and T. Kolda, 2007", {"one": 5, "two": 4, "three": 6, "rank": 3}),
    Operator(cp_reconstruction, _cp, "J. Carroll and J. Chang, 1970", {"one": 5, "two": 4, "three": 6, "rank": 3}),
    Operator(tiny_products, _tiny_products, "A. Abdelfattah et al., batched BLAS, 2016", {"many": 5, "small": 6}),
    Operator(tall_covariance, _tall_covariance, "K. Pearson, 1901", {"long": 50, "thin": 5}, draw={"x": lambda x, _: x + 1}),
    Operator(f32_linear, _f32_linear, "J. Dongarra et al., level 3 BLAS, 1990", {"side": 7}, draw={"weight": divided("side")}),
    Operator(sin_layer, _sin_layer, "V. Sitzmann et al., SIREN, arXiv:2006.09661", {"rows": 5, "side": 7},
             draw={"weight": lambda x, sizes: x / 30 / sizes["side"]**0.5}),
]
