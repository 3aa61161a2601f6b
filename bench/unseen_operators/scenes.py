"""Parts of models of images and scenes, and attention of kinds that no other module has."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .attention import softmax
from .problem import Operator, around_one, divided, widened

EPS = 1e-5

images, side, channels, filters = Size("images", 16), Size("side", 64), Size("channels", 128, fixed=True), Size("filters", 128)
n, m, c, c2, y, z, s, t = indices(n=images, m=filters, c=channels, c2=channels, y=side, z=side, s=3, t=3)


@nestor.nest
def modulated_conv(x: f16[images, side + 2, side + 2, channels], weight: f32[filters, 3, 3, channels], style: f32[images, channels]):
    """StyleGAN2: each image scales the weights, which then get norm 1 for each filter."""
    scaled = define("scaled", (n, m, s, t, c), weight[m, s, t, c] * style[n, c])
    size = define("size", (n, m), nestor.rsqrt(nestor.sum(scaled[n, m, s, t, c] * scaled[n, m, s, t, c], over=(s, t, c)) + 1e-8))
    normed = define("normed", (n, m, s, t, c), scaled[n, m, s, t, c] * size[n, m], type=f16)
    found = nestor.sum(x[n, y + s, z + t, c] * normed[n, m, s, t, c], over=(s, t, c))
    return define("out", (n, y, z, m), found, type=f16)


def _modulated(x, weight, style):
    scaled = weight * style[:, None, None, None]
    normed = (scaled * torch.rsqrt(scaled.square().sum((2, 3, 4), keepdim=True) + 1e-8)).to(x.dtype)
    batch, each = normed.shape[:2]
    found = F.conv2d(x.permute(0, 3, 1, 2).flatten(0, 1)[None], normed.flatten(0, 1).permute(0, 3, 1, 2), groups=batch)
    return found.unflatten(1, (batch, each))[0].permute(0, 2, 3, 1)


groups, share = Size("groups", 32), Size("share", 4, fixed=True)
g, u, u2 = indices(g=groups, u=share, u2=share)


@nestor.nest
def norm_silu_conv(x: bf16[images, side, side, groups, share], gain: f32[groups, share], bias: f32[groups, share],
                   weight: bf16[filters, groups, share]):
    """Half a block of a diffusion model: a norm over groups, SiLU and a convolution of one pixel."""
    y2, z2, y3, z3 = indices(y2=side, z2=side, y3=side, z3=side)
    count = side * 1.0 * side * share
    mean = define("mean", (n, g), nestor.sum(x[n, y2, z2, g, u2], over=(y2, z2, u2)) / count)
    square = define("square", (n, g), nestor.sum(x[n, y3, z3, g, u2] * x[n, y3, z3, g, u2], over=(y3, z3, u2)) / count)
    scale = define("scale", (n, g), nestor.rsqrt(square[n, g] - mean[n, g] * mean[n, g] + EPS))
    normed = define("normed", (n, y, z, g, u), (x[n, y, z, g, u] - mean[n, g]) * scale[n, g] * gain[g, u] + bias[g, u])
    active = define("active", (n, y, z, g, u), normed[n, y, z, g, u] / (1 + nestor.exp(-normed[n, y, z, g, u])), type=bf16)
    return define("out", (n, y, z, m), nestor.sum(active[n, y, z, g, u] * weight[m, g, u], over=(g, u)), type=bf16)


def _norm_silu_conv(x, gain, bias, weight):
    wide = widened(x)
    mean, square = wide.mean((1, 2, 4), keepdim=True), wide.square().mean((1, 2, 4), keepdim=True)
    normed = (wide - mean) * torch.rsqrt(square - mean.square() + EPS) * gain + bias
    return F.silu(normed).to(x.dtype).flatten(3) @ weight.flatten(1).T


@nestor.nest
def perceptual_distance(x: f16[images, side, side, channels], y_map: f16[images, side, side, channels], weight: f32[channels]):
    """LPIPS: features of unit length at each pixel, their weighted differences, a mean over the image."""
    def unit(name, a):
        return define(name, (n, y, z), nestor.rsqrt(nestor.sum(a[n, y, z, c] * a[n, y, z, c], over=c) + 1e-10))
    left, right = unit("left", x), unit("right", y_map)
    gap = x[n, y, z, c2] * left[n, y, z] - y_map[n, y, z, c2] * right[n, y, z]
    here = define("here", (n, y, z), nestor.sum(gap * gap * weight[c2], over=c2))
    return define("loss", n, nestor.sum(here[n, y, z], over=(y, z)) / side / side)


def _perceptual(x, y_map, weight):
    x, y_map = (widened(a) for a in (x, y_map))
    x, y_map = (a * torch.rsqrt(a.square().sum(-1, keepdim=True) + 1e-10) for a in (x, y_map))
    return ((x - y_map).square() * weight).sum(-1).mean((1, 2))


@nestor.nest
def spatial_soft_argmax(x: f16[images, channels, side, side]):
    """Where a map's mass is: a softmax over both sides, and the means of its coordinates."""
    top = define("top", (n, c), nestor.max(x[n, c, y, z], over=(y, z)))
    power = nestor.exp(x[n, c, y, z] - top[n, c])
    total = define("total", (n, c), nestor.sum(power, over=(y, z)))
    down = define("down", (n, c), nestor.sum(power * y, over=(y, z)) / total[n, c])
    return down, define("across", (n, c), nestor.sum(power * z, over=(y, z)) / total[n, c])


def _soft_argmax(x):
    weight = torch.softmax(widened(x).flatten(2), -1).view(x.shape)
    at = torch.arange(x.shape[-1], device=x.device, dtype=weight.dtype)
    return (weight.sum(3) * at).sum(-1), (weight.sum(2) * at).sum(-1)


batch, heads, length, dim = Size("batch", 4), Size("heads", 16), Size("length", 4096), Size("head_dim", 64, fixed=True)
b, h, i, j, d, e = indices(b=batch, h=heads, i=length, j=length, d=dim, e=dim)


@nestor.nest
def forgetting_attention(q: bf16[batch, heads, length, dim], k: bf16[batch, heads, length, dim], v: bf16[batch, heads, length, dim],
                         gates: f32[batch, heads, length]):
    """Causal; gates holds running sums of the logarithms of forget gates."""
    dot = nestor.sum(q[b, h, i, e] * k[b, h, j, e], over=e) * 0.125
    score = define("score", (b, h, i, j), nestor.select(j <= i, dot + gates[b, h, i] - gates[b, h, j], -1e30))
    power, total = softmax(score, (b, h, i), key=j)
    return define("out", (b, h, i, d), nestor.sum(power[b, h, i, j] * v[b, h, j, d], over=j) / total[b, h, i], type=bf16)


def _forgetting(q, k, v, gates):
    score = widened(q @ k.transpose(-1, -2)) * 0.125 + gates[..., None] - gates[..., None, :]
    hidden = torch.ones(score.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(score.masked_fill(hidden, -1e30), -1).to(v.dtype) @ v


latents, tokens, deep = Size("latents", 256), Size("tokens", 16384), Size("head_dim", 128, fixed=True)
a, x, f, f2 = indices(a=latents, x=tokens, f=deep, f2=deep)


@nestor.nest
def latent_attention(q: bf16[latents, heads, deep], k: bf16[batch, tokens, heads, deep], v: bf16[batch, tokens, heads, deep]):
    """Perceiver: a few learned queries, the same for every input, look at many tokens."""
    row = (b, a, h)
    score = define("score", (*row, x), nestor.sum(q[a, h, f2] * k[b, x, h, f2], over=f2) * 0.08838835)
    power, total = softmax(score, row, key=x)
    return define("out", (*row, f), nestor.sum(power[(*row, x)] * v[b, x, h, f], over=x) / total[row], type=bf16)


def _latent(q, k, v):
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    q = q.transpose(0, 1).expand(len(k), -1, -1, -1)
    return F.scaled_dot_product_attention(q, k, v, scale=0.08838835).transpose(1, 2)


memories, patterns, size = Size("states", 8192), Size("patterns", 8192), Size("size", 128, fixed=True)
o, p, w, w2 = indices(o=memories, p=patterns, w=size, w2=size)


@nestor.nest
def hopfield_update(state: f16[memories, size], stored: f16[patterns, size], sharpness: f32[()]):
    """Keys and values are the same stored patterns."""
    score = define("score", (o, p), nestor.sum(state[o, w2] * stored[p, w2], over=w2) * sharpness[()])
    power, total = softmax(score, (o,), key=p)
    return define("out", (o, w), nestor.sum(power[o, p] * stored[p, w], over=p) / total[o], type=f16)


def _hopfield(state, stored, sharpness):
    score = widened(state @ stored.T) * sharpness
    return torch.softmax(score, -1).to(stored.dtype) @ stored


@nestor.nest
def channel_gate(x: f16[images, side, side, channels], squeeze: f32[channels]):
    """Spatial attention: a softmax over all pixels of a score, then a sum of the pixels by it."""
    score = define("score", (n, y, z), nestor.sum(x[n, y, z, c] * squeeze[c], over=c))
    top = define("top", n, nestor.max(score[n, y, z], over=(y, z)))
    power = define("power", (n, y, z), nestor.exp(score[n, y, z] - top[n]))
    total = define("total", n, nestor.sum(power[n, y, z], over=(y, z)))
    context = define("context", (n, c), nestor.sum(power[n, y, z] * x[n, y, z, c], over=(y, z)) / total[n])
    return define("out", (n, y, z, c), x[n, y, z, c] + context[n, c], type=f16)


def _channel_gate(x, squeeze):
    wide = widened(x)
    weight = torch.softmax((wide * squeeze).sum(-1).flatten(1), -1)
    context = torch.einsum("np,npc->nc", weight, wide.flatten(1, 2))
    return (wide + context[:, None, None]).to(x.dtype)


agents, levels = Size("agents", 4096), Size("levels", 200)
l, q1, q2 = indices(l=agents, q1=levels, q2=levels)


@nestor.nest
def quantile_loss(guess: f16[agents, levels], target: f16[agents, levels]):
    """QR-DQN: the Huber loss of all pairs of quantiles, weighted by their levels."""
    gap = target[l, q2] - guess[l, q1]
    size = nestor.absolute(gap)
    huber = nestor.select(size <= 1, 0.5 * gap * gap, size - 0.5)
    level = (nestor.cast(f32, q1) + 0.5) / levels
    return define("loss", l, nestor.sum(nestor.absolute(level - nestor.select(gap < 0, 1.0, 0.0)) * huber, over=(q1, q2)) / levels)


def _quantile(guess, target):
    gap = widened(target)[:, None] - widened(guess)[:, :, None]
    level = (torch.arange(guess.shape[1], device=gap.device, dtype=gap.dtype) + 0.5) / guess.shape[1]
    huber = torch.where(gap.abs() <= 1, 0.5 * gap.square(), gap.abs() - 0.5)
    return ((level[:, None] - (gap < 0).to(gap.dtype)).abs() * huber).sum((1, 2)) / guess.shape[1]


OPERATORS = [
    Operator(modulated_conv, _modulated, "T. Karras et al., StyleGAN2, arXiv:1912.04958",
             {"images": 2, "side": 4, "channels": 5, "filters": 7}, draw={"style": around_one}),
    Operator(norm_silu_conv, _norm_silu_conv, "R. Rombach et al., arXiv:2112.10752",
             {"images": 2, "side": 4, "groups": 3, "share": 2, "filters": 7},
             draw={"gain": around_one, "weight": lambda x, sizes: x / (sizes["groups"] * sizes["share"])**0.5}),
    Operator(perceptual_distance, _perceptual, "R. Zhang et al., LPIPS, arXiv:1801.03924", {"images": 2, "side": 4, "channels": 5},
             draw={"weight": lambda x, _: x.abs()}),
    Operator(spatial_soft_argmax, _soft_argmax, "C. Finn et al., arXiv:1509.06113", {"images": 2, "channels": 5, "side": 4}),
    Operator(forgetting_attention, _forgetting, "Z. Lin et al., arXiv:2503.02130",
             {"batch": 2, "heads": 2, "length": 7, "head_dim": 5}, draw={"gates": lambda x, _: -(x.abs() / 8).cumsum(-1)}),
    Operator(latent_attention, _latent, "A. Jaegle et al., Perceiver, arXiv:2103.03206",
             {"batch": 2, "heads": 3, "latents": 4, "tokens": 7, "head_dim": 5}),
    Operator(hopfield_update, _hopfield, "H. Ramsauer et al., arXiv:2008.02217", {"states": 5, "patterns": 7, "size": 6},
             draw={"sharpness": lambda x, _: 0 * x + 0.1}),
    Operator(channel_gate, _channel_gate, "Y. Cao et al., GCNet, arXiv:1904.11492", {"images": 2, "side": 4, "channels": 5},
             draw={"squeeze": divided("channels")}),
    Operator(quantile_loss, _quantile, "W. Dabney et al., arXiv:1710.10044", {"agents": 3, "levels": 5}),
]
