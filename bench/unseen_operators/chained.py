"""Products between products, and statistics of images: projections in front of attention and behind it, features, grids of scores."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, i32, indices

from .problem import Operator, around_one, divided, widened

EPS = 1e-5
SCALE = 0.125

batch, length, width = Size("batch", 2), Size("length", 2048), Size("width", 1024)
heads, dim = Size("heads", 16), Size("head_dim", 64, fixed=True)
n, h, t, s, c, d, e, f = indices(n=batch, h=heads, t=length, s=length, c=width, d=dim, e=dim, f=dim)


def softmax(score, row, key):
    """exp(score - its maximum) over keys, and the sums of rows."""
    top = define("top", row, nestor.max(score[(*row, key)], over=key))
    power = define("power", (*row, key), nestor.exp(score[(*row, key)] - top[row]))
    return power, define("total", row, nestor.sum(power[(*row, key)], over=key))


@nestor.nest
def projected_attention(x: bf16[batch, length, width], wq: bf16[heads, dim, width], wk: bf16[heads, dim, width],
                        wv: bf16[heads, dim, width]):
    """Queries, keys and values are products of one tensor."""
    def projected(name, weight, at):
        return define(name, (n, h, at, d), nestor.sum(x[n, at, c] * weight[h, d, c], over=c), type=bf16)
    q, k, v = projected("q", wq, t), projected("k", wk, s), projected("v", wv, s)
    score = define("score", (n, h, t, s), nestor.sum(q[n, h, t, e] * k[n, h, s, e], over=e) * SCALE)
    power, total = softmax(score, (n, h, t), s)
    summed = nestor.sum(power[n, h, t, s] * v[n, h, s, f], over=s)
    return define("out", (n, h, t, f), summed / total[n, h, t], type=bf16)


def _projected(x, wq, wk, wv):
    q, k, v = (torch.einsum("ntc,hdc->nhtd", x, weight) for weight in (wq, wk, wv))
    return F.scaled_dot_product_attention(q, k, v, scale=SCALE)


other, slots = Size("keys", 1024), Size("queries", 2048)
u, j = indices(u=slots, j=other)


@nestor.nest
def biased_cross_attention(q: bf16[batch, heads, slots, dim], k: bf16[batch, heads, other, dim], v: bf16[batch, heads, other, dim],
                           bias: bf16[heads, slots, other]):
    """A learnt bias for each head, query and key."""
    score = define("score", (n, h, u, j), nestor.sum(q[n, h, u, e] * k[n, h, j, e], over=e) * SCALE + bias[h, u, j])
    power, total = softmax(score, (n, h, u), j)
    summed = nestor.sum(power[n, h, u, j] * v[n, h, j, f], over=j)
    return define("out", (n, h, u, f), summed / total[n, h, u], type=bf16)


def _biased(q, k, v, bias):
    return F.scaled_dot_product_attention(q, k, v, bias[None], scale=SCALE)


windows, places, few = Size("windows", 1024), Size("places", 49, fixed=True), Size("head_dim", 32, fixed=True)
w, y, z, g, o = indices(w=windows, y=places, z=places, g=few, o=few)
small = Size("heads", 8)
(a,) = indices(a=small)


@nestor.nest
def window_bias_attention(q: f16[windows, small, places, few], k: f16[windows, small, places, few], v: f16[windows, small, places, few],
                          bias: f32[small, places, places]):
    """Windows of 7 x 7 places with a bias for each pair of them."""
    score = define("score", (w, a, y, z), nestor.sum(q[w, a, y, g] * k[w, a, z, g], over=g) * 0.17677669 + bias[a, y, z])
    power, total = softmax(score, (w, a, y), z)
    summed = nestor.sum(power[w, a, y, z] * v[w, a, z, o], over=z)
    return define("out", (w, a, y, o), summed / total[w, a, y], type=f16)


def _windows(q, k, v, bias):
    return F.scaled_dot_product_attention(q, k, v, bias[None].to(q.dtype), scale=0.17677669)


rows, hidden, across = Size("rows", 4096), Size("hidden", 4096), Size("width", 1024)
r, m, x1, x2 = indices(r=rows, m=hidden, x1=across, x2=across)


@nestor.nest
def swish_ffn(x: bf16[rows, across], gate: bf16[hidden, across], up: bf16[hidden, across], down: bf16[across, hidden]):
    """A gated layer, whose result is added to its input."""
    gated = define("gated", (r, m), nestor.sum(x[r, x1] * gate[m, x1], over=x1))
    lifted = define("lifted", (r, m), nestor.sum(x[r, x1] * up[m, x1], over=x1))
    inner = define("inner", (r, m), gated[r, m] / (1 + nestor.exp(-gated[r, m])) * lifted[r, m], type=bf16)
    return define("out", (r, x2), x[r, x2] + nestor.sum(inner[r, m] * down[x2, m], over=m), type=bf16)


def _ffn(x, gate, up, down):
    return x + (F.silu(widened(x @ gate.T)) * widened(x @ up.T)).to(x.dtype) @ down.T


near, points = Size("inner", 128), Size("points", 4096)
i, p, q1 = indices(i=points, p=points, q1=near)


@nestor.nest
def cosine_softmax(x: bf16[points, near], y: bf16[points, near]):
    """Weights of a retrieval: a softmax over similarities of unit vectors."""
    def unit(name, of, at):
        size = define(name + "_size", at, nestor.rsqrt(nestor.sum(of[at, q1] * of[at, q1], over=q1) + EPS))
        return define(name, (at, q1), of[at, q1] * size[at], type=bf16)
    left, right = unit("left", x, i), unit("right", y, p)
    score = define("score", (i, p), nestor.sum(left[i, q1] * right[p, q1], over=q1) * 10.0)
    power, total = softmax(score, (i, ), p)
    return define("out", (i, p), power[i, p] / total[i], type=bf16)


def _cosine(x, y):
    left, right = ((widened(one) * torch.rsqrt(widened(one).square().sum(-1, keepdim=True) + EPS)).to(x.dtype) for one in (x, y))
    return torch.softmax(widened(left @ right.T) * 10.0, -1).to(x.dtype)


images, maps, spots = Size("images", 64), Size("maps", 256), Size("spots", 3136)
k, b, v, l = indices(k=images, b=maps, v=spots, l=maps)
(v2,) = indices(v2=spots)


@nestor.nest
def instance_norm_relu(x: f16[images, maps, spots], weight: f32[maps], bias: f32[maps]):
    mean = define("mean", (k, b), nestor.sum(x[k, b, v2], over=v2) / spots)
    apart = x[k, b, v2] - mean[k, b]
    variance = define("variance", (k, b), nestor.sum(apart * apart, over=v2) / spots)
    normed = (x[k, b, v] - mean[k, b]) * nestor.rsqrt(variance[k, b] + EPS) * weight[b] + bias[b]
    return define("out", (k, b, v), nestor.maximum(normed, 0), type=f16)


def _instance_norm(x, weight, bias):
    return F.relu(F.instance_norm(widened(x), weight=weight.to(widened(x).dtype), bias=bias.to(widened(x).dtype), eps=EPS)).to(x.dtype)


@nestor.nest
def channel_rms(x: f16[images, maps, spots], weight: f32[maps]):
    """Each place of an image is divided by the root mean square of its channels, which lie apart in memory."""
    size = define("size", (k, v), nestor.rsqrt(nestor.sum(x[k, l, v] * x[k, l, v], over=l) / maps + EPS))
    return define("out", (k, b, v), x[k, b, v] * size[k, v] * weight[b], type=f16)


def _channel_rms(x, weight):
    return (widened(x) * torch.rsqrt(widened(x).square().mean(1, keepdim=True) + EPS) * weight[:, None]).to(x.dtype)


@nestor.nest
def local_response_norm(x: f16[images, maps + 4, spots]):
    """Divided by a power of the mean square of five neighbouring channels; two on either side are given."""
    (near5,) = indices(near5=5)
    squares = nestor.sum(x[k, b + near5, v] * x[k, b + near5, v], over=near5)
    return define("out", (k, b, v), x[k, b + 2, v] * nestor.exp(-0.75 * nestor.log(2 + 1e-4 * squares)), type=f16)


def _local_response(x):
    squares = widened(x).square().unfold(1, 5, 1).sum(-1)
    return (widened(x)[:, 2:-2] * (2 + 1e-4 * squares).pow(-0.75)).to(x.dtype)


classes = Size("classes", 32768)
labels, each, deep = Size("rows", 4096), Size("triples", 16384), Size("inner", 512)
row, cls, trip, k3 = indices(row=labels, cls=classes, trip=each, k3=deep)


@nestor.nest
def focal_loss(logits: bf16[labels, classes], label: i32[labels]):
    """Cross entropy, less of it for what is easy."""
    top = define("top", row, nestor.max(logits[row, cls], over=cls))
    total = define("total", row, nestor.sum(nestor.exp(logits[row, cls] - top[row]), over=cls))
    own = nestor.sum(nestor.select(label[row] == cls, nestor.cast(f32, logits[row, cls]), 0.0), over=cls)
    sure = define("sure", row, own - top[row] - nestor.log(total[row]))
    easy = 1 - nestor.exp(sure[row])
    return define("loss", row, -easy * easy * sure[row])


def _focal(logits, label):
    sure = torch.log_softmax(widened(logits), -1).gather(1, label.long()[:, None])[:, 0]
    return -(1 - sure.exp()).square() * sure


@nestor.nest
def triplet_loss(anchor: bf16[each, deep], alike: bf16[each, deep], unlike: bf16[each, deep]):
    def apart(x):
        return nestor.sum((anchor[trip, k3] - x[trip, k3]) * (anchor[trip, k3] - x[trip, k3]), over=k3)
    return define("loss", trip, nestor.maximum(nestor.sqrt(apart(alike) + EPS) - nestor.sqrt(apart(unlike) + EPS) + 1, 0))


def _triplet(anchor, alike, unlike):
    def apart(x):
        return (widened(anchor) - widened(x)).square().sum(-1).add(EPS).sqrt()
    return F.relu(apart(alike) - apart(unlike) + 1)


side = Size("side", 4096)
g1, g2 = indices(g1=side, g2=side)


@nestor.nest
def sinkhorn_step(score: bf16[side, side], column: f32[side]):
    """Logarithms of the scales of rows, then of columns, of a transport plan."""
    top = define("top", g1, nestor.max(score[g1, g2] + column[g2], over=g2))
    rows_scale = define("row_scale", g1, -top[g1] - nestor.log(nestor.sum(nestor.exp(score[g1, g2] + column[g2] - top[g1]), over=g2)))
    high = define("high", g2, nestor.max(score[g1, g2] + rows_scale[g1], over=g1))
    summed = nestor.sum(nestor.exp(score[g1, g2] + rows_scale[g1] - high[g2]), over=g1)
    return rows_scale, define("column_scale", g2, -high[g2] - nestor.log(summed))


def _sinkhorn(score, column):
    row_scale = -torch.logsumexp(widened(score) + column, 1)
    return row_scale, -torch.logsumexp(widened(score) + row_scale[:, None], 0)


steps, span, features = Size("batch", 8), Size("length", 2048), Size("features", 1024)
b2, t1, t2, f2 = indices(b2=steps, t1=span, t2=span, f2=features)


@nestor.nest
def moving_average(x: bf16[steps, span, features], decay: f32[span]):
    """Each step is a mean of those before it, weighted by their distance: a product with a triangular matrix."""
    weight = define("weight", (t1, t2), decay[t1 - t2], where=t2 <= t1, type=bf16)
    return define("out", (b2, t1, f2), nestor.sum(weight[t1, t2] * x[b2, t2, f2], over=t2, where=t2 <= t1), type=bf16)


def _moving_average(x, decay):
    at = torch.arange(x.shape[1], device=x.device)
    weight = decay[(at[:, None] - at).clamp(min=0)].tril().to(x.dtype)
    return weight @ x


clips, times, inputs, filters = Size("batch", 16), Size("length", 8192), Size("maps", 256), Size("filters", 256)
c1, t3, i1, o1 = indices(c1=clips, t3=times, i1=inputs, o1=filters)
(tap,) = indices(tap=3)


@nestor.nest
def dilated_conv1d(x: f16[clips, times + 16, inputs], weight: f16[filters, 3, inputs]):
    """Taps eight steps apart."""
    found = nestor.sum(x[c1, t3 + 8 * tap, i1] * weight[o1, tap, i1], over=(tap, i1))
    return define("out", (c1, t3, o1), nestor.tanh(found), type=f16)


def _dilated(x, weight):
    return torch.tanh(F.conv1d(x.transpose(1, 2), weight.transpose(1, 2), dilation=8)).transpose(1, 2)


OPERATORS = [
    Operator(projected_attention, _projected, "A. Vaswani et al., arXiv:1706.03762",
             {"batch": 2, "length": 13, "width": 11, "heads": 3, "head_dim": 5},
             draw={name: divided("width") for name in ("wq", "wk", "wv")}),
    Operator(biased_cross_attention, _biased, "C. Raffel et al., T5, arXiv:1910.10683",
             {"batch": 2, "heads": 3, "queries": 7, "keys": 11, "head_dim": 5}),
    Operator(window_bias_attention, _windows, "Z. Liu et al., Swin Transformer, arXiv:2103.14030",
             {"windows": 3, "heads": 2, "places": 7, "head_dim": 5}),
    Operator(swish_ffn, _ffn, "N. Shazeer, GLU Variants, arXiv:2002.05202", {"rows": 7, "hidden": 11, "width": 5},
             draw={"gate": divided("width"), "up": divided("width"), "down": divided("hidden")}),
    Operator(cosine_softmax, _cosine, "A. Radford et al., CLIP, arXiv:2103.00020", {"points": 7, "inner": 5}),
    Operator(instance_norm_relu, _instance_norm, "D. Ulyanov et al., arXiv:1607.08022", {"images": 3, "maps": 5, "spots": 11},
             draw={"weight": around_one}),
    Operator(channel_rms, _channel_rms, "T. Karras et al., Progressive Growing of GANs, arXiv:1710.10196",
             {"images": 3, "maps": 5, "spots": 11}, draw={"weight": around_one}),
    Operator(local_response_norm, _local_response, "A. Krizhevsky et al., 2012", {"images": 3, "maps": 5, "spots": 11}),
    Operator(focal_loss, _focal, "T.-Y. Lin et al., arXiv:1708.02002", {"rows": 7, "classes": 11},
             draw={"label": lambda x, sizes: (x.abs() * 1e4).long() % sizes["classes"]}),
    Operator(triplet_loss, _triplet, "F. Schroff et al., FaceNet, arXiv:1503.03832", {"triples": 7, "inner": 5}),
    Operator(sinkhorn_step, _sinkhorn, "M. Cuturi, arXiv:1306.0895", {"side": 7}),
    Operator(moving_average, _moving_average, "X. Ma et al., Mega, arXiv:2209.10655", {"batch": 2, "length": 7, "features": 5},
             draw={"decay": lambda x, sizes: 0.1 * x.exp() / sizes["length"]**0.5}),
    Operator(dilated_conv1d, _dilated, "A. van den Oord et al., WaveNet, arXiv:1609.03499",
             {"batch": 2, "length": 5, "maps": 3, "filters": 7}, draw={"weight": divided("maps")}),
]
