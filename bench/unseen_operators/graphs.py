"""Graphs, slots, capsules, and layers of vision models that no other module has."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened

EPS = 1e-6

graphs, nodes, dim = Size("graphs", 8), Size("nodes", 2048), Size("dim", 128, fixed=True)
g, i, j, d, e = indices(g=graphs, i=nodes, j=nodes, d=dim, e=dim)


@nestor.nest
def graph_attention(x: bf16[graphs, nodes, dim], to: f32[graphs, nodes], of: f32[graphs, nodes], edge: nestor.boolean[graphs, nodes, nodes]):
    """GAT: scores of edges are sums of a part of either node."""
    raw = to[g, i] + of[g, j]
    leaky = nestor.select(raw > 0, raw, 0.2 * raw)
    score = define("score", (g, i, j), nestor.select(edge[g, i, j], leaky, -1e9))
    power, total = softmax(score, (g, i), key=j)
    return define("out", (g, i, d), nestor.sum(power[g, i, j] * x[g, j, d], over=j) / total[g, i], type=bf16)


def _graph_attention(x, to, of, edge):
    score = F.leaky_relu(to[..., None] + of[:, None], 0.2).masked_fill(~edge, -1e9)
    return torch.softmax(score, -1).to(x.dtype) @ x


@nestor.nest
def graph_convolution(x: bf16[graphs, nodes, dim], edge: bf16[graphs, nodes, nodes], weight: bf16[dim, dim]):
    """GCN: neighbours by the roots of their degrees, then a layer."""
    j2 = indices(j2=nodes)[0]
    degree = define("degree", (g, i), nestor.rsqrt(nestor.sum(edge[g, i, j2], over=j2) + 1))
    scaled = define("scaled", (g, j, d), x[g, j, d] * degree[g, j], type=bf16)
    near = define("near", (g, i, d), nestor.sum(edge[g, i, j] * scaled[g, j, d], over=j) * degree[g, i], type=bf16)
    return define("out", (g, i, e), nestor.maximum(nestor.sum(near[g, i, d] * weight[e, d], over=d), 0.0), type=bf16)


def _graph_convolution(x, edge, weight):
    degree = torch.rsqrt(widened(edge).sum(-1, keepdim=True) + 1)
    near = widened(edge @ (widened(x) * degree).to(x.dtype)) * degree
    return torch.relu(near.to(x.dtype) @ weight.T)


scenes, slots, pixels = Size("scenes", 64), Size("slots", 16), Size("pixels", 4096)
n, s, s2, p, p2 = indices(n=scenes, s=slots, s2=slots, p=pixels, p2=pixels)


@nestor.nest
def slot_attention(q: bf16[scenes, slots, dim], k: bf16[scenes, pixels, dim], v: bf16[scenes, pixels, dim]):
    """Slots compete for pixels (a softmax over slots), then take means over pixels."""
    score = define("score", (n, p, s), nestor.sum(q[n, s, e] * k[n, p, e], over=e) * 0.088388348)
    top = define("top", (n, p), nestor.max(score[n, p, s2], over=s2))
    total = define("total", (n, p), nestor.sum(nestor.exp(score[n, p, s2] - top[n, p]), over=s2))
    share = define("share", (n, s, p), nestor.exp(score[n, p, s] - top[n, p]) / total[n, p], type=bf16)
    mass = define("mass", (n, s), nestor.sum(share[n, s, p2], over=p2) + 1e-8)
    return define("out", (n, s, d), nestor.sum(share[n, s, p] * v[n, p, d], over=p) / mass[n, s], type=bf16)


def _slot_attention(q, k, v):
    share = torch.softmax(widened(k @ q.transpose(1, 2)) * 0.088388348, -1).to(q.dtype).transpose(1, 2)
    return (widened(share @ v) / (widened(share).sum(-1, keepdim=True) + 1e-8)).to(q.dtype)


batch, heads, patches, odd = Size("batch", 16), Size("heads", 16), Size("patches", 729), Size("odd", 72, fixed=True)
b, h, x, y, c, c2 = indices(b=batch, h=heads, x=patches, y=patches, c=odd, c2=odd)


@nestor.nest
def odd_head_attention(q: bf16[batch, patches, heads, odd], k: bf16[batch, patches, heads, odd], v: bf16[batch, patches, heads, odd]):
    """SigLIP: 729 patches, heads of 72."""
    score = define("score", (b, h, x, y), nestor.sum(q[b, x, h, c2] * k[b, y, h, c2], over=c2) * 0.11785113)
    power, total = softmax(score, (b, h, x), key=y)
    return define("out", (b, x, h, c), nestor.sum(power[b, h, x, y] * v[b, y, h, c], over=y) / total[b, h, x], type=bf16)


def _odd_heads(q, k, v, scale=0.11785113):
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2)


words = Size("words", 77)
w = indices(w=words)[0]
places, text_dim = Size("places", 4096), Size("text_dim", 40, fixed=True)
z, t, t2 = indices(z=places, t=text_dim, t2=text_dim)


@nestor.nest
def text_attention(q: f16[batch, places, heads, text_dim], k: f16[batch, words, heads, text_dim], v: f16[batch, words, heads, text_dim]):
    """Stable Diffusion: pixels look at 77 words, heads of 40."""
    score = define("score", (b, h, z, w), nestor.sum(q[b, z, h, t2] * k[b, w, h, t2], over=t2) * 0.15811388)
    power, total = softmax(score, (b, h, z), key=w)
    return define("out", (b, z, h, t), nestor.sum(power[b, h, z, w] * v[b, w, h, t], over=w) / total[b, h, z], type=f16)


def _text(q, k, v):
    return _odd_heads(q, k, v, 0.15811388)


size = Size("length", 2048)
low, high, m, m2 = indices(low=size, high=size, m=dim, m2=dim)


@nestor.nest
def attention_entropy(q: bf16[batch, heads, size, dim], k: bf16[batch, heads, size, dim]):
    """How spread the weights of each query are."""
    score = define("score", (b, h, low, high), nestor.sum(q[b, h, low, m] * k[b, h, high, m], over=m) * 0.088388348)
    top = define("top", (b, h, low), nestor.max(score[b, h, low, high], over=high))
    power = nestor.exp(score[b, h, low, high] - top[b, h, low])
    total = define("total", (b, h, low), nestor.sum(power, over=high))
    mean = define("mean", (b, h, low), nestor.sum(power * score[b, h, low, high], over=high) / total[b, h, low])
    return define("out", (b, h, low), top[b, h, low] + nestor.log(total[b, h, low]) - mean[b, h, low])


def _attention_entropy(q, k):
    score = widened(q @ k.transpose(-1, -2)) * 0.088388348
    return torch.logsumexp(score, -1) - (torch.softmax(score, -1) * score).sum(-1)


inputs, outputs, pose = Size("inputs", 1152), Size("outputs", 32), Size("pose", 16, fixed=True)
o, u, f, f2 = indices(o=outputs, u=inputs, f=pose, f2=pose)


@nestor.nest
def capsule_votes(x: f16[batch, inputs, pose], weight: f16[inputs, outputs, pose, pose], route: f32[batch, inputs, outputs]):
    """Capsules: each input votes for each output, votes are mixed and squashed."""
    vote = define("vote", (b, u, o, f), nestor.sum(x[b, u, f2] * weight[u, o, f, f2], over=f2))
    mixed = define("mixed", (b, o, f), nestor.sum(vote[b, u, o, f] * route[b, u, o], over=u))
    size2 = define("size2", (b, o), nestor.sum(mixed[b, o, f2] * mixed[b, o, f2], over=f2))
    return define("out", (b, o, f), mixed[b, o, f] * nestor.sqrt(size2[b, o]) / (1 + size2[b, o]))


def _capsules(x, weight, route):
    vote = torch.einsum("bue,uofe->buof", widened(x), widened(weight))
    mixed = (vote * route[..., None]).sum(1)
    square = mixed.square().sum(-1, keepdim=True)
    return mixed * square.sqrt() / (1 + square)


images, side, channels = Size("images", 32), Size("side", 56), Size("channels", 192)
l, yy, xx, ch, ch2 = indices(l=images, yy=side, xx=side, ch=channels, ch2=channels)


@nestor.nest
def global_response_norm(x: f16[images, side, side, channels], gain: f32[channels], bias: f32[channels]):
    """ConvNeXt V2: norms of maps by their mean over channels."""
    ys, xs = indices(ys=side, xs=side)
    norm = define("norm", (l, ch), nestor.sqrt(nestor.sum(x[l, ys, xs, ch] * x[l, ys, xs, ch], over=(ys, xs))))
    mean = define("mean", l, nestor.sum(norm[l, ch2], over=ch2) / channels)
    scale = norm[l, ch] / (mean[l] + EPS)
    return define("out", (l, yy, xx, ch), x[l, yy, xx, ch] * (1 + gain[ch] * scale) + bias[ch], type=f16)


def _response_norm(x, gain, bias):
    wide = widened(x)
    norm = wide.square().sum((1, 2), keepdim=True).sqrt()
    return (wide * (1 + gain * norm / (norm.mean(-1, keepdim=True) + EPS)) + bias).to(x.dtype)


@nestor.nest
def convnext_norm(x: f16[images, side + 6, side + 6, channels], weight: f16[7, 7, channels], gain: f32[channels]):
    """ConvNeXt: a filter of 7 x 7 for each channel, then a norm over channels."""
    q, r = indices(q=7, r=7)
    found = define("found", (l, yy, xx, ch), nestor.sum(x[l, yy + q, xx + r, ch] * weight[q, r, ch], over=(q, r)))
    mean = define("mean", (l, yy, xx), nestor.sum(found[l, yy, xx, ch2], over=ch2) / channels)
    apart = found[l, yy, xx, ch2] - mean[l, yy, xx]
    scale = define("scale", (l, yy, xx), nestor.rsqrt(nestor.sum(apart * apart, over=ch2) / channels + EPS))
    return define("out", (l, yy, xx, ch), (found[l, yy, xx, ch] - mean[l, yy, xx]) * scale[l, yy, xx] * gain[ch], type=f16)


def _convnext(x, weight, gain):
    found = F.conv2d(x.permute(0, 3, 1, 2), weight.permute(2, 0, 1)[:, None], groups=x.shape[-1]).permute(0, 2, 3, 1)
    return F.layer_norm(widened(found), found.shape[-1:], gain, None, EPS).to(x.dtype)


stages, group = Size("stages", 16), Size("group", 12, fixed=True)
v, k, k2 = indices(v=stages, k=group, k2=group)


@nestor.nest
def involution(x: f16[images, side + 6, side + 6, stages, group], weight: f16[images, side, side, 7, 7, stages]):
    """Each pixel has filters of its own, shared by a group of channels."""
    q, r = indices(q=7, r=7)
    return define("out", (l, yy, xx, v, k), nestor.sum(x[l, yy + q, xx + r, v, k] * weight[l, yy, xx, q, r, v], over=(q, r)), type=f16)


def _involution(x, weight):
    windows = x.unfold(1, 7, 1).unfold(2, 7, 1)
    return (widened(windows) * widened(weight).permute(0, 1, 2, 5, 3, 4)[:, :, :, :, None]).sum((-1, -2)).to(x.dtype)


filters = Size("filters", 256)
ff = indices(ff=filters)[0]


@nestor.nest
def standardised_conv(x: f16[images, side + 2, side + 2, channels], weight: f32[filters, 3, 3, channels]):
    """Weight standardisation: filters of mean 0 and deviation 1."""
    q, r, q2, r2 = indices(q=3, r=3, q2=3, r2=3)
    count = channels * 9.0
    mean = define("mean", ff, nestor.sum(weight[ff, q2, r2, ch2], over=(q2, r2, ch2)) / count)
    apart = weight[ff, q2, r2, ch2] - mean[ff]
    scale = define("scale", ff, nestor.rsqrt(nestor.sum(apart * apart, over=(q2, r2, ch2)) + EPS))
    normed = define("normed", (ff, q, r, ch), (weight[ff, q, r, ch] - mean[ff]) * scale[ff], type=f16)
    found = nestor.sum(x[l, yy + q, xx + r, ch] * normed[ff, q, r, ch], over=(q, r, ch))
    return define("out", (l, yy, xx, ff), found, type=f16)


def _standardised(x, weight):
    apart = weight - weight.mean((1, 2, 3), keepdim=True)
    normed = (apart * torch.rsqrt(apart.square().sum((1, 2, 3), keepdim=True) + EPS)).to(x.dtype)
    return F.conv2d(x.permute(0, 3, 1, 2), normed.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


OPERATORS = [
    Operator(graph_attention, _graph_attention, "P. Velickovic et al., arXiv:1710.10903", {"graphs": 2, "nodes": 7, "dim": 5},
             draw={"edge": lambda x, _: (x > 0).float()}),
    Operator(graph_convolution, _graph_convolution, "T. Kipf and M. Welling, arXiv:1609.02907", {"graphs": 2, "nodes": 7, "dim": 5},
             draw={"edge": lambda x, _: (x > 1).float(), "weight": divided("dim")}),
    Operator(slot_attention, _slot_attention, "F. Locatello et al., arXiv:2006.15055",
             {"scenes": 2, "slots": 3, "pixels": 7, "dim": 5}),
    Operator(odd_head_attention, _odd_heads, "X. Zhai et al., SigLIP, arXiv:2303.15343",
             {"batch": 2, "patches": 7, "heads": 3, "odd": 6}),
    Operator(text_attention, _text, "R. Rombach et al., arXiv:2112.10752",
             {"batch": 2, "places": 7, "words": 5, "heads": 3, "text_dim": 6}),
    Operator(attention_entropy, _attention_entropy, "S. Zhai et al., arXiv:2303.06296",
             {"batch": 2, "heads": 2, "length": 7, "dim": 5}),
    Operator(capsule_votes, _capsules, "S. Sabour et al., arXiv:1710.09829", {"batch": 2, "inputs": 5, "outputs": 3, "pose": 4}),
    Operator(global_response_norm, _response_norm, "S. Woo et al., ConvNeXt V2, arXiv:2301.00808",
             {"images": 2, "side": 4, "channels": 5}),
    Operator(convnext_norm, _convnext, "Z. Liu et al., arXiv:2201.03545", {"images": 2, "side": 4, "channels": 5},
             draw={"gain": around_one}),
    Operator(involution, _involution, "D. Li et al., arXiv:2103.06255", {"images": 2, "side": 4, "stages": 3, "group": 2}),
    Operator(standardised_conv, _standardised, "S. Qiao et al., arXiv:1903.10520",
             {"images": 2, "side": 4, "channels": 5, "filters": 3}),
]
