"""Images and volumes: strides, padding by conditions, groups, patches, upsampling, windows, and losses over two or three dims."""

import torch
import torch.nn.functional as F

import nestor
from nestor import Size, bf16, define, f16, f32, indices

from .problem import Operator, around_one, divided, widened

EPS = 1e-5

images, height, across = Size("images", 32), Size("height", 112), Size("across", 112)
channels, filters = Size("channels", 64, fixed=True), Size("filters", 128)
n, m, c, s, t = indices(n=images, m=filters, c=channels, s=3, t=3)


@nestor.nest(require=[height >= 2, across >= 2])
def strided_conv(x: f16[images, height, across, channels], weight: f16[filters, 3, 3, channels]):
    """A stage of a ResNet begins: stride 2, one row of zeros around."""
    y, z = indices(y=(height + 1) // 2, z=(across + 1) // 2)
    row, column = 2 * y + s - 1, 2 * z + t - 1
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < across)
    pixel = nestor.select(inside, x[n, row, column, c], 0.0)
    return define("out", (n, y, z, m), nestor.sum(pixel * weight[m, s, t, c], over=(s, t, c)), type=f16)


def _strided_conv(x, weight):
    return F.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), stride=2, padding=1).permute(0, 2, 3, 1)


side, cardinality, inside = Size("side", 28), Size("groups", 16), Size("share", 32, fixed=True)
g, a, b, y, z = indices(g=cardinality, a=inside, b=inside, y=side, z=side)


@nestor.nest
def grouped_conv(x: f16[images, side + 2, side + 2, cardinality, inside], weight: f16[cardinality, inside, 3, 3, inside]):
    """ResNeXt: a group's filters see the group's channels alone."""
    found = nestor.sum(x[n, y + s, z + t, g, b] * weight[g, a, s, t, b], over=(s, t, b))
    return define("out", (n, y, z, g, a), nestor.maximum(found, 0.0), type=f16)


def _grouped_conv(x, weight):
    groups, share = weight.shape[:2]
    flat = x.flatten(3).permute(0, 3, 1, 2)
    found = F.conv2d(flat, weight.permute(0, 1, 4, 2, 3).flatten(0, 1), groups=groups)
    return torch.relu(found).permute(0, 2, 3, 1).unflatten(3, (groups, share))


wide = Size("channels", 256, fixed=True)
(w,) = indices(w=wide)


@nestor.nest
def upsampling_conv(x: f16[images, side, side, wide], weight: f16[wide, 2, 2, filters], bias: f32[filters]):
    """U-Net's way up: each pixel becomes four."""
    row, column = indices(row=2 * side, column=2 * side)
    found = nestor.sum(x[n, row // 2, column // 2, w] * weight[w, row % 2, column % 2, m], over=w)
    return define("out", (n, row, column, m), found + bias[m], type=f16)


def _upsampling_conv(x, weight, bias):
    found = F.conv_transpose2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias.to(x.dtype), stride=2)
    return found.permute(0, 2, 3, 1)


clips, frames = Size("clips", 4), Size("frames", 16)
k, f, u = indices(k=clips, f=frames, u=3)


@nestor.nest
def conv3d(x: f16[clips, frames + 2, side + 2, side + 2, channels], weight: f16[filters, 3, 3, 3, channels]):
    found = nestor.sum(x[k, f + u, y + s, z + t, c] * weight[m, u, s, t, c], over=(u, s, t, c))
    return define("out", (k, f, y, z, m), found, type=f16)


def _conv3d(x, weight):
    return F.conv3d(x.permute(0, 4, 1, 2, 3), weight.permute(0, 4, 1, 2, 3)).permute(0, 2, 3, 4, 1)


grid, patch, width = Size("grid", 16), 14, Size("width", 1024)
py, px, o, rgb, p, q = indices(py=grid, px=grid, o=width, rgb=3, p=patch, q=patch)


@nestor.nest
def patch_embedding(x: bf16[images, 3, patch * grid, patch * grid], weight: bf16[width, 3, patch, patch], place: f32[grid, grid, width]):
    """Patches of an image, channels first, as vectors."""
    found = nestor.sum(x[n, rgb, patch * py + p, patch * px + q] * weight[o, rgb, p, q], over=(rgb, p, q))
    return define("out", (n, py, px, o), found + place[py, px, o], type=bf16)


def _patch_embedding(x, weight, place):
    return (widened(F.conv2d(x, weight, stride=patch).permute(0, 2, 3, 1)) + place).to(x.dtype)


maps, classes = Size("maps", 1024), Size("classes", 1000)
l, e = indices(l=maps, e=classes)


@nestor.nest
def pooled_classifier(x: f16[images, maps, side, side], weight: f16[classes, maps]):
    """The mean of each map, and a linear layer behind it."""
    pooled = define("pooled", (n, l), nestor.sum(x[n, l, y, z], over=(y, z)) / side / side)
    return define("out", (n, e), nestor.sum(pooled[n, l] * weight[e, l], over=l))


def _pooled_classifier(x, weight):
    return widened(x).mean((2, 3)) @ widened(weight).T


masks, tall = Size("masks", 256), Size("tall", 256)
i, v, h = indices(i=masks, v=tall, h=tall)


@nestor.nest
def dice_loss(logit: bf16[masks, tall, tall], truth: f32[masks, tall, tall]):
    chance = define("chance", (i, v, h), 1 / (1 + nestor.exp(-logit[i, v, h])))
    both = nestor.sum(chance[i, v, h] * truth[i, v, h], over=(v, h))
    either = nestor.sum(chance[i, v, h] + truth[i, v, h], over=(v, h))
    return define("loss", i, 1 - (2 * both + 1) / (either + 1))


def _dice_loss(logit, truth):
    chance = torch.sigmoid(widened(logit))
    return 1 - (2 * (chance * truth).sum((1, 2)) + 1) / (chance.sum((1, 2)) + truth.sum((1, 2)) + 1)


@nestor.nest
def total_variation(x: f16[masks, 3, tall + 1, tall + 1]):
    here = x[i, rgb, v, h]
    steps = nestor.absolute(x[i, rgb, v + 1, h] - here) + nestor.absolute(x[i, rgb, v, h + 1] - here)
    return define("loss", i, nestor.sum(steps, over=(rgb, v, h)) / tall / tall)


def _total_variation(x):
    x = widened(x)
    here, down, right = x[:, :, :-1, :-1], x[:, :, 1:, :-1], x[:, :, :-1, 1:]
    return ((down - here).abs() + (right - here).abs()).sum((1, 2, 3)) / here.shape[-1]**2


@nestor.nest
def ssim(x: f16[masks, tall + 6, tall + 6], y: f16[masks, tall + 6, tall + 6]):
    """Structural similarity in windows of 7 x 7."""
    p, q = indices(p=7, q=7)
    left, right = x[i, v + p, h + q], y[i, v + p, h + q]

    def mean(name, value):
        return define(name, (i, v, h), nestor.sum(value, over=(p, q)) / 49)[i, v, h]
    x1, y1, xx, yy, xy = (mean(*each) for each in (("x1", left), ("y1", right), ("xx", left * left), ("yy", right * right),
                                                  ("xy", left * right)))
    near = (2 * x1 * y1 + 1e-4) * (2 * (xy - x1 * y1) + 9e-4)
    return define("out", (i, v, h), near / ((x1 * x1 + y1 * y1 + 1e-4) * (xx - x1 * x1 + yy - y1 * y1 + 9e-4)))


def _ssim(x, y):
    x, y = widened(x)[:, None], widened(y)[:, None]
    x1, y1, xx, yy, xy = (F.avg_pool2d(each, 7, 1)[:, 0] for each in (x, y, x * x, y * y, x * y))
    near = (2 * x1 * y1 + 1e-4) * (2 * (xy - x1 * y1) + 9e-4)
    return near / ((x1 * x1 + y1 * y1 + 1e-4) * (xx - x1 * x1 + yy - y1 * y1 + 9e-4))


@nestor.nest
def layernorm_maps(x: f16[images, channels, height, across], weight: f32[channels, height, across]):
    """A norm over all that an image has: channels and both sides."""
    y, z, y2, z2, y3, z3, c2, c3 = indices(y=height, z=across, y2=height, z2=across, y3=height, z3=across, c2=channels, c3=channels)
    count = channels * 1.0 * height * across
    mean = define("mean", n, nestor.sum(x[n, c2, y2, z2], over=(c2, y2, z2)) / count)
    apart = x[n, c3, y3, z3] - mean[n]
    scale = define("scale", n, nestor.rsqrt(nestor.sum(apart * apart, over=(c3, y3, z3)) / count + EPS))
    return define("out", (n, c, y, z), (x[n, c, y, z] - mean[n]) * scale[n] * weight[c, y, z], type=f16)


def _layernorm_maps(x, weight):
    wide_x = widened(x)
    return F.layer_norm(wide_x, weight.shape, weight.to(wide_x.dtype), None, EPS).to(x.dtype)


def _near(x, sizes):
    return 0.5 + 0.2 * x.tanh()


OPERATORS = [
    Operator(strided_conv, _strided_conv, "K. He et al., ResNet, arXiv:1512.03385",
             {"images": 2, "height": 7, "across": 6, "channels": 5, "filters": 9}, draw={"weight": divided("channels")}),
    Operator(grouped_conv, _grouped_conv, "S. Xie et al., ResNeXt, arXiv:1611.05431", {"images": 2, "side": 5, "groups": 3, "share": 4},
             draw={"weight": divided("share")}),
    Operator(upsampling_conv, _upsampling_conv, "O. Ronneberger et al., U-Net, arXiv:1505.04597",
             {"images": 2, "side": 3, "channels": 7, "filters": 5}, draw={"weight": divided("channels")}),
    Operator(conv3d, _conv3d, "D. Tran et al., C3D, arXiv:1412.0767", {"clips": 2, "frames": 3, "side": 4, "channels": 5, "filters": 7},
             draw={"weight": divided("channels")}),
    Operator(patch_embedding, _patch_embedding, "A. Dosovitskiy et al., ViT, arXiv:2010.11929", {"images": 2, "grid": 3, "width": 7},
             draw={"weight": lambda x, _: x / 588**0.5}),
    Operator(pooled_classifier, _pooled_classifier, "M. Lin et al., Network in Network, arXiv:1312.4400",
             {"images": 3, "maps": 7, "side": 4, "classes": 5}, draw={"weight": divided("maps")}),
    Operator(dice_loss, _dice_loss, "F. Milletari et al., V-Net, arXiv:1606.04797", {"masks": 3, "tall": 5},
             draw={"truth": lambda x, _: (x > 0).to(x.dtype)}),
    Operator(total_variation, _total_variation, "L. Rudin et al., Physica D 60, 1992", {"masks": 3, "tall": 5}),
    Operator(ssim, _ssim, "Z. Wang et al., IEEE TIP 13, 2004", {"masks": 2, "tall": 5}, draw={"x": _near, "y": _near}),
    Operator(layernorm_maps, _layernorm_maps, "J. Ba et al., arXiv:1607.06450, over whole images",
             {"images": 3, "channels": 2, "height": 3, "across": 5}, draw={"weight": around_one}),
]
