"""Images: mixed filters, branches, wide kernels, shifts, samples by hats, pyramids, directions, sharpening."""

import math

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, define, f16, f32, indices

from .problem import Operator, divided, widened

images, tall, broad = Size("images", 32), Size("tall", 56), Size("broad", 56)
wide, deep, experts = Size("wide", 128), Size("deep", 128, fixed=True), Size("experts", 8)
n, y, x, o, c, ex, ty, tx = indices(n=images, y=tall, x=broad, o=wide, c=deep, ex=experts, ty=3, tx=3)


def _at(image, row, column):
    """`image` at (n, row, column, c), and 0 around it."""
    inside = (row >= 0) & (row < tall) & (column >= 0) & (column < broad)
    return nestor.select(inside, image[n, row, column, c], 0.0)


def _first(image):
    """Channels first, as PyTorch's convolutions take them."""
    return image.permute(0, 3, 1, 2)


@nestor.nest
def mixed_filter_conv(x0: f16[images, tall, broad, deep], route: f32[images, experts], weight: f16[experts, wide, 3, 3, deep]):
    """CondConv: each image's filters are a weighted sum of the experts'."""
    own = define("own", (n, o, ty, tx, c), nestor.sum(route[n, ex] * weight[ex, o, ty, tx, c], over=ex), type=f16)
    return define("out", (n, y, x, o), nestor.sum(_at(x0, y + ty - 1, x + tx - 1) * own[n, o, ty, tx, c], over=(ty, tx, c)), type=f16)


def _mixed_filter(x0, route, weight):
    own = torch.einsum("ne,eoyxc->noyxc", route, widened(weight)).to(x0.dtype)
    joined = _first(x0).flatten(0, 1)[None]
    found = F.conv2d(joined, own.permute(0, 1, 4, 2, 3).flatten(0, 1), padding=1, groups=len(x0))
    return found.view(len(x0), -1, *x0.shape[1:3]).permute(0, 2, 3, 1)


@nestor.nest(require=wide == deep)
def branched_conv(x0: f16[images, tall, broad, deep], large: f16[wide, 3, 3, deep], point: f16[wide, deep], scale: f32[wide], bias: f32[wide]):
    """RepVGG in training: a convolution, one of single pixels and the pixel itself, added."""
    found = nestor.sum(_at(x0, y + ty - 1, x + tx - 1) * large[o, ty, tx, c], over=(ty, tx, c))
    beside = nestor.sum(x0[n, y, x, c] * point[o, c], over=c)
    return define("out", (n, y, x, o), nestor.maximum(found + beside + scale[o] * x0[n, y, x, o] + bias[o], 0.0), type=f16)


def _branched(x0, large, point, scale, bias):
    found = widened(F.conv2d(_first(x0), large.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1)) + x0 @ point.T
    return F.relu(found + scale * x0 + bias).to(x0.dtype)


narrow = Size("narrow", 32, fixed=True)
s, s2 = indices(s=narrow, s2=narrow)


@nestor.nest
def fused_bottleneck(x0: f16[images, tall, broad, narrow], grow: f16[wide, 3, 3, narrow], first: f32[wide], shrink: f16[narrow, wide],
                     second: f32[narrow]):
    """EfficientNetV2: a convolution to four times the channels, SiLU, a product back, and the input again."""
    row, column = y + ty - 1, x + tx - 1
    inside = (row >= 0) & (row < tall) & (column >= 0) & (column < broad)
    grown = nestor.sum(nestor.select(inside, x0[n, row, column, s], 0.0) * grow[o, ty, tx, s], over=(ty, tx, s)) + first[o]
    kept = define("kept", (n, y, x, o), grown * nestor.sigmoid(grown), type=f16)
    back = nestor.sum(kept[n, y, x, o] * shrink[s2, o], over=o) + second[s2]
    return define("out", (n, y, x, s2), back + x0[n, y, x, s2], type=f16)


def _bottleneck(x0, grow, first, shrink, second):
    grown = widened(F.conv2d(_first(x0), grow.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1)) + first
    return (widened(F.silu(grown).to(x0.dtype) @ shrink.T) + second + x0).to(x0.dtype)


ly, lx, my, mx = indices(ly=5, lx=5, my=7, mx=7)


@nestor.nest(require=wide == deep)
def large_kernel_attention(x0: f16[images, tall, broad, deep], near: f16[5, 5, deep], far: f16[7, 7, deep], mix: f16[wide, deep]):
    """VAN: a depthwise convolution of 5 x 5, one of 7 x 7 with gaps, a product of channels, times the image."""
    small = define("small", (n, y, x, c), nestor.sum(_at(x0, y + ly - 2, x + lx - 2) * near[ly, lx, c], over=(ly, lx)), type=f16)
    large = define("large", (n, y, x, c), nestor.sum(_at(small, y + 3 * my - 9, x + 3 * mx - 9) * far[my, mx, c], over=(my, mx)), type=f16)
    return define("out", (n, y, x, o), nestor.sum(large[n, y, x, c] * mix[o, c], over=c) * x0[n, y, x, o], type=f16)


def _large_kernel(x0, near, far, mix):
    small = F.conv2d(_first(x0), near.permute(2, 0, 1)[:, None], padding=2, groups=x0.shape[-1])
    large = F.conv2d(small, far.permute(2, 0, 1)[:, None], padding=9, dilation=3, groups=x0.shape[-1]).permute(0, 2, 3, 1)
    return (widened(large @ mix.T) * x0).to(x0.dtype)


part = Size("part", 32, fixed=True)
(q,) = indices(q=part)


@nestor.nest
def shifted_linear(x0: f16[images, tall, broad, 4 * part], weight: f16[wide, 4 * part], bias: f16[wide]):
    """S2-MLP: quarters of the channels come from the pixels above, below, left and right; edges stay."""
    last_y, last_x = y == tall - 1, x == broad - 1
    found = bias[o]
    for number, moved in enumerate((lambda at: nestor.select(y > 0, x0[n, y - 1, x, at], x0[n, y, x, at]),
                                    lambda at: nestor.select(last_y, x0[n, y, x, at], x0[n, y + 1, x, at]),
                                    lambda at: nestor.select(x > 0, x0[n, y, x - 1, at], x0[n, y, x, at]),
                                    lambda at: nestor.select(last_x, x0[n, y, x, at], x0[n, y, x + 1, at]))):
        found = found + nestor.sum(moved(number * part + q) * weight[o, number * part + q], over=q)
    return define("out", (n, y, x, o), found, type=f16)


def _shifted_linear(x0, weight, bias):
    parts = list(x0.chunk(4, -1))
    moved = [torch.cat([parts[0][:, :1], parts[0][:, :-1]], 1), torch.cat([parts[1][:, 1:], parts[1][:, -1:]], 1),
             torch.cat([parts[2][:, :, :1], parts[2][:, :, :-1]], 2), torch.cat([parts[3][:, :, 1:], parts[3][:, :, -1:]], 2)]
    return torch.cat(moved, -1) @ weight.T + bias


maps, high, across = Size("maps", 32), Size("high", 28), Size("across", 28)
m, v, u, v2, u2 = indices(m=maps, v=high, u=across, v2=high, u2=across)


@nestor.nest
def sampled_images(x0: f16[maps, high, across, deep], down: f32[maps, high, across], aside: f32[maps, high, across]):
    """A spatial transformer without addresses: hats around each sample's place weigh all pixels."""
    tent = (nestor.maximum(1 - nestor.absolute(down[m, v, u] - nestor.cast(f32, v2)), 0.0)
            * nestor.maximum(1 - nestor.absolute(aside[m, v, u] - nestor.cast(f32, u2)), 0.0))
    weight = define("weight", (m, v, u, v2, u2), tent, type=f16)
    return define("out", (m, v, u, c), nestor.sum(weight[m, v, u, v2, u2] * x0[m, v2, u2, c], over=(v2, u2)), type=f16)


def _sampled(x0, down, aside):
    rows, columns = (torch.arange(size, device=x0.device) for size in x0.shape[1:3])
    tent = [(1 - (place[..., None] - to).abs()).clamp(min=0) for place, to in ((down, rows), (aside, columns))]
    weight = (tent[0][..., None] * tent[1][..., None, :]).to(x0.dtype)
    return torch.einsum("mvuyx,myxc->mvuc", weight, x0)


photos, half_y, half_x = Size("photos", 8), Size("half_y", 540), Size("half_x", 960)
f, gy, gx, hy, hx, ky, kx = indices(f=photos, gy=2 * half_y, gx=2 * half_x, hy=half_y, hx=half_x, ky=5, kx=5)
BLUR = [1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16]


@nestor.nest(require=[half_y >= 3, half_x >= 3])
def laplacian_level(photo: f32[photos, 2 * half_y, 2 * half_x], tap: f32[5]):
    """Burt and Adelson: an image blurred and thinned, and what is lost when that is blown up again."""
    def read(row, column):
        """The photo mirrored at its edges."""
        found = None
        for below, up in ((row < 0, -row), (row >= 2 * half_y, 4 * half_y - 2 - row), ((row >= 0) & (row < 2 * half_y), row)):
            for beside, aside in ((column < 0, -column), (column >= 2 * half_x, 4 * half_x - 2 - column),
                                  ((column >= 0) & (column < 2 * half_x), column)):
                piece = photo[f, up, aside]
                found = piece if found is None else nestor.select(below & beside, piece, found)
        return found
    small = define("small", (f, hy, hx), nestor.sum(tap[ky] * tap[kx] * read(2 * hy + ky - 2, 2 * hx + kx - 2), over=(ky, kx)))
    near_y, near_x = (gy + ky - 2), (gx + kx - 2)
    there = (near_y % 2 == 0) & (near_x % 2 == 0) & (near_y >= 0) & (near_y < 2 * half_y) & (near_x >= 0) & (near_x < 2 * half_x)
    large = nestor.sum(nestor.select(there, tap[ky] * tap[kx] * small[f, near_y // 2, near_x // 2], 0.0), over=(ky, kx))
    return small, define("rest", (f, gy, gx), photo[f, gy, gx] - 4 * large)


def _laplacian(photo, tap):
    kernel = (tap[:, None] * tap)[None, None]
    small = F.conv2d(F.pad(photo[:, None], (2, 2, 2, 2), mode="reflect"), kernel, stride=2)
    large = F.conv_transpose2d(small, 4 * kernel, stride=2, padding=2, output_padding=1)
    return small[:, 0], photo - large[:, 0]


frames, cells_y, cells_x = Size("frames", 16), Size("cells_y", 60), Size("cells_x", 80)
g, cy, cx, way, iy, ix = indices(g=frames, cy=cells_y, cx=cells_x, way=9, iy=8, ix=8)


@nestor.nest
def oriented_gradients(frame: f32[frames, 8 * cells_y + 2, 8 * cells_x + 2], cosine: f32[9], sine: f32[9]):
    """HOG: nine directions of a cell's gradients, each by how near it is; cells over their length."""
    row, column = 8 * cy + iy + 1, 8 * cx + ix + 1
    aside = frame[g, row, column + 1] - frame[g, row, column - 1]
    down = frame[g, row + 1, column] - frame[g, row - 1, column]
    strength = nestor.rsqrt(aside * aside + down * down + 1e-6)
    along = nestor.absolute(aside * cosine[way] + down * sine[way])
    share = nestor.maximum(along - 0.9 / strength, 0.0)
    cell = define("cell", (g, cy, cx, way), nestor.sum(share, over=(iy, ix)))
    length = define("length", (g, cy, cx), nestor.sum(cell[g, cy, cx, way] * cell[g, cy, cx, way], over=way))
    return define("out", (g, cy, cx, way), cell[g, cy, cx, way] * nestor.rsqrt(length[g, cy, cx] + 1e-4))


def _oriented(frame, cosine, sine):
    aside = (frame[:, 1:-1, 2:] - frame[:, 1:-1, :-2])[..., None]
    down = (frame[:, 2:, 1:-1] - frame[:, :-2, 1:-1])[..., None]
    share = ((aside * cosine + down * sine).abs() - 0.9 * (aside.square() + down.square() + 1e-6).sqrt()).clamp(min=0)
    cell = share.unflatten(2, (-1, 8)).unflatten(1, (-1, 8)).sum((2, 4))
    return cell * (cell.square().sum(-1, keepdim=True) + 1e-4).rsqrt()


skies, sky_y, sky_x = Size("skies", 16), Size("sky_y", 512), Size("sky_x", 512)
k, ay, ax, by, bx = indices(k=skies, ay=sky_y, ax=sky_x, by=9, bx=9)


@nestor.nest
def deconvolution_step(guess: f32[skies, sky_y, sky_x], seen: f32[skies, sky_y, sky_x], spread: f32[9, 9]):
    """Richardson and Lucy: what is seen over what the guess would show, spread back."""
    def at(image, row, column):
        inside = (row >= 0) & (row < sky_y) & (column >= 0) & (column < sky_x)
        return nestor.select(inside, image[k, row, column], 0.0)
    shown = nestor.sum(at(guess, ay + by - 4, ax + bx - 4) * spread[by, bx], over=(by, bx))
    ratio = define("ratio", (k, ay, ax), seen[k, ay, ax] / (shown + 0.01))
    back = nestor.sum(at(ratio, ay + 4 - by, ax + 4 - bx) * spread[by, bx], over=(by, bx))
    return define("out", (k, ay, ax), guess[k, ay, ax] * back)


def _deconvolution(guess, seen, spread):
    shown = F.conv2d(guess[:, None], spread[None, None], padding=4)
    ratio = seen[:, None] / (shown + 0.01)
    return guess * F.conv_transpose2d(ratio, spread[None, None], padding=4)[:, 0]


def _blur(normal, _):
    return torch.tensor(BLUR, device=normal.device)


def _turns(function):
    return lambda normal, _: function(torch.arange(9, device=normal.device) * (math.pi / 9))


MAP = {"images": 2, "tall": 4, "broad": 5}
OPERATORS = [
    Operator(mixed_filter_conv, _mixed_filter, "B. Yang et al., CondConv, arXiv:1904.04971", MAP | {"wide": 3, "deep": 4, "experts": 2},
             draw={"route": lambda x, _: torch.sigmoid(x), "weight": divided("deep")}),
    Operator(branched_conv, _branched, "X. Ding et al., RepVGG, arXiv:2101.03697", MAP | {"wide": 3, "deep": 3},
             draw={"large": divided("deep"), "point": divided("deep")}),
    Operator(fused_bottleneck, _bottleneck, "M. Tan and Q. Le, EfficientNetV2, arXiv:2104.00298", MAP | {"wide": 6, "narrow": 3},
             draw={"grow": lambda x, s: x / (9 * s["narrow"])**0.5, "shrink": divided("wide")}),
    Operator(large_kernel_attention, _large_kernel, "M.-H. Guo et al., VAN, arXiv:2202.09741", MAP | {"wide": 3, "deep": 3},
             draw={"near": lambda x, _: x / 5, "far": lambda x, _: x / 7, "mix": divided("deep")}),
    Operator(shifted_linear, _shifted_linear, "T. Yu et al., S2-MLP, arXiv:2106.07477", MAP | {"wide": 3, "part": 2},
             draw={"weight": lambda x, s: x / (4 * s["part"])**0.5}),
    Operator(sampled_images, _sampled, "M. Jaderberg et al., arXiv:1506.02025", {"maps": 2, "high": 3, "across": 4, "deep": 3},
             draw={"down": lambda x, s: (x.abs() * s["high"] / 2), "aside": lambda x, s: (x.abs() * s["across"] / 2)}),
    Operator(laplacian_level, _laplacian, "P. Burt and E. Adelson, 1983", {"photos": 2, "half_y": 3, "half_x": 4}, draw={"tap": _blur}),
    Operator(oriented_gradients, _oriented, "N. Dalal and B. Triggs, 2005", {"frames": 2, "cells_y": 2, "cells_x": 3},
             draw={"cosine": _turns(torch.cos), "sine": _turns(torch.sin)}),
    Operator(deconvolution_step, _deconvolution, "W. Richardson, 1972; L. Lucy, 1974", {"skies": 2, "sky_y": 5, "sky_x": 6},
             draw={"guess": lambda x, _: x.abs(), "seen": lambda x, _: x.abs(), "spread": lambda x, _: torch.softmax(x.flatten(), 0).view(x.shape)}),
]
