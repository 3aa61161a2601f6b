"""Cells, layers with packed weights, pairs of features, losses with both sides of a matrix, gradients of norms."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

EPS = 1e-5

rows, width, inner = Size("rows", 4096), Size("width", 1024), Size("inner", 1024)
r, c, k = indices(r=rows, c=width, k=inner)


def sigmoid(x):
    return 1 / (1 + nestor.exp(-x))


@nestor.nest
def lstm_cell(x: bf16[rows, inner], hidden: bf16[rows, width], memory: f32[rows, width], wx: bf16[4, width, inner],
              wh: bf16[4, width, width], bias: f32[4, width]):
    """Four gates, each of two products."""
    (c2,) = indices(c2=width)

    def gate(at):
        return (nestor.sum(x[r, k] * wx[at, c, k], over=k) + nestor.sum(hidden[r, c2] * wh[at, c, c2], over=c2)) + bias[at, c]
    kept = sigmoid(gate(1)) * memory[r, c] + sigmoid(gate(0)) * nestor.tanh(gate(2))
    new = define("new", (r, c), kept)
    return new, define("out", (r, c), sigmoid(gate(3)) * nestor.tanh(new[r, c]), type=bf16)


def _lstm(x, hidden, memory, wx, wh, bias):
    into, forget, fresh, out = (widened(x @ wx[g].T) + widened(hidden @ wh[g].T) + bias[g] for g in range(4))
    new = torch.sigmoid(forget) * memory + torch.sigmoid(into) * torch.tanh(fresh)
    return new, (torch.sigmoid(out) * torch.tanh(new)).to(x.dtype)


blocks = Size("blocks", 32)
o, kk, oo = indices(o=width, kk=128 * blocks, oo=width)


@nestor.nest
def int4_linear(x: f16[rows, 128 * blocks], packed: i32[width, 16 * blocks], scale: f32[width, blocks], zero: f32[width, blocks]):
    """GPTQ: eight weights of 4 bits in a word, a scale and a zero for each 128."""
    bits = (packed[oo, kk // 8] >> (4 * (kk % 8))) & 15
    full = define("full", (oo, kk), (nestor.cast(f32, bits) - zero[oo, kk // 128]) * scale[oo, kk // 128], type=f16)
    return define("out", (r, o), nestor.sum(x[r, kk] * full[o, kk], over=kk), type=f16)


def _int4(x, packed, scale, zero):
    shifts = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
    bits = ((packed[:, :, None] >> shifts) & 15).flatten(1)
    full = (bits - zero.repeat_interleave(128, 1)) * scale.repeat_interleave(128, 1)
    return x @ full.to(x.dtype).T


samples, fields, deep = Size("samples", 8192), Size("fields", 27, fixed=True), Size("inner", 128, fixed=True)
s, i, j, d = indices(s=samples, i=fields, j=fields, d=deep)


@nestor.nest
def dlrm_interaction(x: f16[samples, fields, deep]):
    """Products of all pairs of a sample's features, below the diagonal."""
    dot = nestor.sum(x[s, i, d] * x[s, j, d], over=d)
    return define("out", (s, i, j), nestor.select(j < i, dot, 0.0), type=f16)


def _dlrm(x):
    return (x @ x.transpose(1, 2)).tril(-1)


@nestor.nest
def factorization_machine(x: bf16[samples, fields], factor: bf16[samples, fields, deep]):
    """Half the square of a sum less the sum of squares."""
    term = x[s, i] * factor[s, i, d]
    total = define("total", (s, d), nestor.sum(term, over=i))
    squares = define("squares", (s, d), nestor.sum(term * term, over=i))
    return define("out", s, nestor.sum(total[s, d] * total[s, d] - squares[s, d], over=d) / 2)


def _factorization(x, factor):
    term = widened(x)[:, :, None] * widened(factor)
    return (term.sum(1).square() - term.square().sum(1)).sum(-1) / 2


images, places, channels, hidden = Size("images", 64), Size("places", 196), Size("channels", 768), Size("hidden", 384)
n, p, p2, m, h = indices(n=images, p=places, p2=places, m=channels, h=hidden)


@nestor.nest
def token_mixing(x: bf16[images, places, channels], up: bf16[hidden, places], down: bf16[places, hidden]):
    """MLP-Mixer: a layer along the places, for each channel."""
    lifted = define("lifted", (n, h, m), nestor.sum(up[h, p2] * x[n, p2, m], over=p2))
    active = define("active", (n, h, m), 0.5 * lifted[n, h, m] * (1 + nestor.erf(lifted[n, h, m] * 0.70710678)), type=bf16)
    return define("out", (n, p, m), x[n, p, m] + nestor.sum(down[p, h] * active[n, h, m], over=h), type=bf16)


def _token_mixing(x, up, down):
    return x + down @ F.gelu(widened(up @ x)).to(x.dtype)


few, basis = Size("inner", 256), Size("basis", 8, fixed=True)
u, t = indices(u=few, t=basis)


@nestor.nest
def radial_layer(x: bf16[rows, few], weight: bf16[width, few, basis], centre: f32[basis]):
    """FastKAN: Gaussians around centres of every input, then a linear layer."""
    near = (x[r, u] - centre[t]) * 2
    feature = define("feature", (r, u, t), nestor.exp(-near * near), type=bf16)
    return define("out", (r, c), nestor.sum(feature[r, u, t] * weight[c, u, t], over=(u, t)), type=bf16)


def _radial(x, weight, centre):
    near = (widened(x)[:, :, None] - centre) * 2
    return torch.exp(-near * near).to(x.dtype).flatten(1) @ weight.flatten(1).T


pairs = Size("pairs", 4096)
v, v2 = indices(v=pairs, v2=pairs)
near = Size("inner", 512)
(g,) = indices(g=near)


@nestor.nest
def clip_loss(image: bf16[pairs, near], text: bf16[pairs, near], sharpness: f32[()]):
    """Cross entropy along the rows and along the columns of one matrix."""
    score = define("score", (v, v2), nestor.sum(image[v, g] * text[v2, g], over=g) * sharpness[()])
    own = define("own", v, nestor.sum(image[v, g] * text[v, g], over=g) * sharpness[()])
    top = define("top", v, nestor.max(score[v, v2], over=v2))
    total = define("total", v, nestor.sum(nestor.exp(score[v, v2] - top[v]), over=v2))
    down = define("down", v, nestor.max(score[v2, v], over=v2))
    sums = define("sums", v, nestor.sum(nestor.exp(score[v2, v] - down[v]), over=v2))
    return define("loss", v, (top[v] + nestor.log(total[v]) + down[v] + nestor.log(sums[v])) / 2 - own[v])


def _clip(image, text, sharpness):
    score = widened(image @ text.T) * sharpness
    own = (widened(image) * widened(text)).sum(-1) * sharpness
    return (torch.logsumexp(score, 1) + torch.logsumexp(score, 0)) / 2 - own


views, code = Size("views", 2048), Size("code", 4096)
y, f, f2 = indices(y=views, f=code, f2=code)


@nestor.nest
def barlow_twins(left: bf16[views, code], right: bf16[views, code]):
    """Correlations of normed features are pushed towards the identity; the loss of each row."""
    def normed(name, x, at):
        mean = define(name + "_mean", at, nestor.sum(x[y, at], over=y) / views)
        apart = x[y, at] - mean[at]
        scale = define(name + "_scale", at, nestor.rsqrt(nestor.sum(apart * apart, over=y) / views + EPS))
        return define(name, (y, at), (x[y, at] - mean[at]) * scale[at], type=bf16)
    a, b = normed("a", left, f), normed("b", right, f2)
    correlation = define("correlation", (f, f2), nestor.sum(a[y, f] * b[y, f2], over=y) / views)
    off = correlation[f, f2] - nestor.select(f == f2, 1.0, 0.0)
    return define("loss", f, nestor.sum(off * off * nestor.select(f == f2, 1.0, 0.005), over=f2))


def _barlow(left, right):
    def normed(x):
        wide = widened(x)
        return ((wide - wide.mean(0)) * (wide.var(0, correction=0) + EPS).rsqrt()).to(x.dtype)
    off = widened(normed(left).T @ normed(right)) / left.shape[0]
    eye = torch.eye(off.shape[0], device=off.device, dtype=off.dtype)
    return ((off - eye).square() * (0.005 + 0.995 * eye)).sum(-1)


points, centroids = Size("points", 65536), Size("centroids", 1024)
z, y2 = indices(z=points, y2=centroids)


@nestor.nest
def kmeans_distance(x: bf16[points, deep], centre: bf16[centroids, deep]):
    """The squared distance to the nearest centre, less the point's own square. (Which one it is, rounding decides.)"""
    size = define("size", y2, nestor.sum(centre[y2, d] * centre[y2, d], over=d))
    far = define("far", (z, y2), size[y2] - 2 * nestor.sum(x[z, d] * centre[y2, d], over=d))
    return define("least", z, nestor.min(far[z, y2], over=y2))


def _kmeans(x, centre):
    far = widened(centre).square().sum(-1) - 2 * widened(x @ centre.T)
    return far.min(1).values


long, wide = Size("rows", 16384), Size("width", 2048)
b, w, w2 = indices(b=long, w=wide, w2=wide)


@nestor.nest
def layernorm_backward(x: bf16[long, wide], grad: bf16[long, wide], weight: f32[wide], mean: f32[long], scale: f32[long]):
    """Gradients of a norm's input, weight and bias."""
    hat = define("hat", (b, w), (x[b, w] - mean[b]) * scale[b])
    scaled = define("scaled", (b, w), grad[b, w] * weight[w])
    first = define("first", b, nestor.sum(scaled[b, w2], over=w2) / wide)
    second = define("second", b, nestor.sum(scaled[b, w2] * hat[b, w2], over=w2) / wide)
    dx = define("dx", (b, w), (scaled[b, w] - first[b] - hat[b, w] * second[b]) * scale[b], type=bf16)
    dweight = define("dweight", w, nestor.sum(grad[b, w] * hat[b, w], over=b))
    return dx, dweight, define("dbias", w, nestor.sum(grad[b, w], over=b))


def _layernorm_backward(x, grad, weight, mean, scale):
    hat = (widened(x) - mean[:, None]) * scale[:, None]
    scaled = widened(grad) * weight
    dx = scaled - scaled.mean(-1, keepdim=True) - hat * (scaled * hat).mean(-1, keepdim=True)
    return (dx * scale[:, None]).to(x.dtype), (widened(grad) * hat).sum(0), widened(grad).sum(0)


@nestor.nest
def fourier_filter(re: f16[rows, inner], im: f16[rows, inner], cosine: f16[width, inner], sine: f16[width, inner]):
    """A discrete Fourier transform as products: four of them, two each for the real and the imaginary part."""
    real = nestor.sum(re[r, k] * cosine[c, k] - im[r, k] * sine[c, k], over=k)
    imaginary = nestor.sum(re[r, k] * sine[c, k] + im[r, k] * cosine[c, k], over=k)
    return define("real", (r, c), real, type=f16), define("imaginary", (r, c), imaginary, type=f16)


def _fourier(re, im, cosine, sine):
    return re @ cosine.T - im @ sine.T, re @ sine.T + im @ cosine.T


side = Size("side", 8192)
x1, x2, x3, x4 = indices(x1=side, x2=side, x3=side, x4=side)


@nestor.nest
def spectral_norm(weight: bf16[side, side], start: f32[side]):
    """A step of the power iteration: the vector on the right, then on the left, both of length one."""
    turned = define("turned", x2, nestor.sum(weight[x1, x2] * start[x1], over=x1))
    size = define("size", (), nestor.sum(turned[x3] * turned[x3], over=x3))
    right = define("right", x2, turned[x2] * nestor.rsqrt(size[()] + EPS))
    left = define("left", x1, nestor.sum(weight[x1, x2] * right[x2], over=x2))
    length = define("length", (), nestor.sum(left[x4] * left[x4], over=x4))
    return right, define("out", x1, left[x1] * nestor.rsqrt(length[()] + EPS))


def _spectral(weight, start):
    weight = widened(weight)
    right = weight.T @ start
    right = right * (right.square().sum() + EPS).rsqrt()
    left = weight @ right
    return right, left * (left.square().sum() + EPS).rsqrt()


OPERATORS = [
    Operator(lstm_cell, _lstm, "S. Hochreiter and J. Schmidhuber, 1997", {"rows": 5, "width": 7, "inner": 6},
             draw={"wx": divided("inner"), "wh": divided("width")}),
    Operator(int4_linear, _int4, "E. Frantar et al., GPTQ, arXiv:2210.17323", {"rows": 5, "width": 7, "blocks": 2},
             draw={"packed": lambda x, _: (x * 1e9).clamp(-2**31, 2**31 - 1), "zero": lambda x, _: 8 + x.round(),
                   "scale": lambda x, sizes: around_one(x, sizes) / 4 / (128 * sizes["blocks"])**0.5}),
    Operator(dlrm_interaction, _dlrm, "M. Naumov et al., DLRM, arXiv:1906.00091", {"samples": 3, "fields": 5, "inner": 6}),
    Operator(factorization_machine, _factorization, "S. Rendle, ICDM 2010", {"samples": 3, "fields": 5, "inner": 6}),
    Operator(token_mixing, _token_mixing, "I. Tolstikhin et al., MLP-Mixer, arXiv:2105.01601",
             {"images": 2, "places": 5, "channels": 7, "hidden": 6}, draw={"up": divided("places"), "down": divided("hidden")}),
    Operator(radial_layer, _radial, "Z. Li, FastKAN, arXiv:2405.06721", {"rows": 5, "inner": 6, "width": 7, "basis": 4},
             draw={"weight": divided("inner"), "centre": lambda x, _: x.tanh()}),
    Operator(clip_loss, _clip, "A. Radford et al., CLIP, arXiv:2103.00020", {"pairs": 7, "inner": 5},
             draw={"image": divided("inner"), "text": divided("inner"), "sharpness": lambda x, _: 5 + x}),
    Operator(barlow_twins, _barlow, "J. Zbontar et al., arXiv:2103.03230", {"views": 9, "code": 5}),
    Operator(kmeans_distance, _kmeans, "S. Lloyd, IEEE Trans. Inf. Theory 28, 1982", {"points": 7, "centroids": 5, "inner": 6}),
    Operator(layernorm_backward, _layernorm_backward, "J. Ba et al., arXiv:1607.06450, its gradients", {"rows": 7, "width": 5},
             draw={"weight": around_one, "scale": around_one}),
    Operator(fourier_filter, _fourier, "J. Lee-Thorp et al., FNet, arXiv:2105.03824", {"rows": 5, "width": 7, "inner": 6},
             draw={"cosine": divided("inner"), "sine": divided("inner")}),
    Operator(spectral_norm, _spectral, "T. Miyato et al., arXiv:1802.05957", {"side": 7}),
]
